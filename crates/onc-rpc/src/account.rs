//! Accounts of memory: one for the node, below it one for each client, and one that all strangers
//! have together.
//!
//! Whatever a client can make the server keep is taken from the client's account before it is kept:
//! a record from its first byte, a call and the reply that it may get, a reply until the socket has
//! it. What does not fit waits, and its client is not read meanwhile. Connections are counted and
//! not charged: memory for all of them is set aside (`connections`).
//!
//! | account | may have |
//! | --- | --- |
//! | the node | the share of the memory cap that is for calls and replies |
//! | all strangers | an eighth of the node's ([`STRANGERS_SHARE`]) |
//! | a client | half of the account above it ([`CLIENT_SHARE`]) |
//!
//! Invariants:
//! - Bytes in an account are bytes in all accounts above it; none has more than its limit, but for
//!   what [`Account::charge`] adds to a call that was let in already.
//! - Clients that have much leave the last quarter of the node's memory to clients that have little
//!   ([`Limits::little_bytes`]). So whoever fills the memory keeps only himself waiting.
//! - Larger buffers for connections are taken only while an account is less than half full: they
//!   keep no call out.
//! - Nobody who waits is forgotten: whoever gives back wakes one that waits for the same account,
//!   and that one, once it has got its part, wakes the next.
//!
//! Fails: [`Full`], naming the account.

use platform::sync::atomic::{AtomicUsize, Ordering};
use platform::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// The part of the account above that one client may have: two clients that take all they can still
/// leave the last quarter.
const CLIENT_SHARE: usize = 2;
/// The part of the node's memory that strangers may have together: they mount nothing, so they
/// have no need of transfers.
const STRANGERS_SHARE: usize = 8;
/// The part of the node's memory that clients with little have to themselves.
const LITTLE_POOL_SHARE: usize = 4;
/// What a client may have and still count as one with little, as a part of the node's memory. At
/// least the largest call and its reply fit into it.
const LITTLE_SHARE: usize = 16;
/// How full an account may be if somebody takes what he could do without.
const PLENTY_SHARE: usize = 2;
/// How long somebody waits at most without being woken. Nobody relies on it: it bounds what a
/// mistake in waking would cost.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// How much bytes are needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Without them a record or a call cannot go on.
    Call,
    /// With them a connection is faster.
    Buffer,
}

/// What the node's account is made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// All accounts together.
    pub(crate) bytes_max: usize,
    /// Up to this a client has little.
    pub(crate) little_bytes: usize,
}

impl Limits {
    /// Of a node that has `bytes_max` for calls of at most `call_bytes_max` with their replies.
    pub(crate) fn new(bytes_max: usize, call_bytes_max: usize) -> Self {
        Self { bytes_max, little_bytes: call_bytes_max.max(bytes_max / LITTLE_SHARE) }
    }
}

/// This account has no room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Full<'a>(&'a Account);

/// Wakes one thread that waits.
#[derive(Default, Debug)]
pub(crate) struct Waker {
    called: Mutex<bool>,
    condition: Condvar,
}

impl Waker {
    /// Ends the wait that is, or the next one.
    pub(crate) fn wake(&self) {
        *self.called.lock() = true;
        self.condition.notify_one();
    }

    fn wait(&self) {
        let mut called = self.called.lock();
        if !*called {
            self.condition.wait_for(&mut called, WAIT_MAX);
        }
        *called = false;
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Account {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Of the node: what clients that have much may fill.
    much_bytes_max: usize,
    /// Of a client that may have little: up to where it has.
    little_bytes: usize,
    parent: Option<Arc<Account>>,
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<Arc<Waker>>>,
}

impl Account {
    fn new(bytes_max: usize, little_bytes: usize, parent: Option<Arc<Self>>) -> Self {
        Self {
            bytes: AtomicUsize::new(0),
            bytes_max,
            much_bytes_max: bytes_max - bytes_max / LITTLE_POOL_SHARE,
            little_bytes,
            parent,
            waiting: AtomicUsize::new(0),
            queue: Mutex::default(),
        }
    }

    /// The node's account.
    pub(crate) fn of_node(limits: Limits) -> Arc<Self> {
        Arc::new(Self::new(limits.bytes_max, limits.little_bytes, None))
    }

    /// The account of all strangers.
    pub(crate) fn of_strangers(node: &Arc<Self>) -> Arc<Self> {
        Arc::new(Self::new(node.bytes_max / STRANGERS_SHARE, 0, Some(Arc::clone(node))))
    }

    /// The account of a client below the node's, or below that of the strangers.
    pub(crate) fn of_client(above: &Arc<Self>) -> Arc<Self> {
        let bytes_max = above.bytes_max / CLIENT_SHARE;
        Arc::new(Self::new(bytes_max, above.little_bytes, Some(Arc::clone(above))))
    }

    /// An account without a limit, of whoever counts nothing.
    pub(crate) fn unlimited() -> Arc<Self> {
        Arc::new(Self::new(usize::MAX, usize::MAX, None))
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Readers that wait for this account.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// What this account and the ones above it let a taking of this use come to.
    fn limit(&self, of_use: Use, is_little: bool) -> usize {
        match (of_use, self.parent.is_none() && !is_little) {
            (Use::Buffer, _) => self.bytes_max / PLENTY_SHARE,
            (Use::Call, true) => self.much_bytes_max,
            (Use::Call, false) => self.bytes_max,
        }
    }

    /// Takes `bytes`, if there is room for them.
    ///
    /// # Errors
    /// [`Full`]; nothing is taken then.
    pub(crate) fn take(&self, bytes: usize, of_use: Use) -> Result<(), Full<'_>> {
        // Counted before it is judged: two that come together cannot both have the last room.
        let own = self.bytes.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
        let is_little = own <= self.little_bytes;
        if own > self.limit(of_use, is_little) {
            self.bytes.fetch_sub(bytes, Ordering::SeqCst);
            return Err(Full(self));
        }
        let mut above = self.parent.as_ref();
        while let Some(account) = above {
            let all = account.bytes.fetch_add(bytes, Ordering::SeqCst).saturating_add(bytes);
            if all > account.limit(of_use, is_little) {
                account.bytes.fetch_sub(bytes, Ordering::SeqCst);
                self.give_back_up_to(bytes, account);
                return Err(Full(account));
            }
            above = account.parent.as_ref();
        }
        Ok(())
    }

    /// Takes `bytes` for something that cannot be refused any more.
    pub(crate) fn charge(&self, bytes: usize) {
        let mut account = Some(self);
        while let Some(charged) = account {
            charged.bytes.fetch_add(bytes, Ordering::SeqCst);
            account = charged.parent.as_deref();
        }
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&self, bytes: usize) {
        let mut account = Some(self);
        while let Some(credited) = account {
            credited.bytes.fetch_sub(bytes, Ordering::SeqCst);
            if credited.waiting.load(Ordering::SeqCst) > 0 {
                credited.wake_one();
            }
            account = credited.parent.as_deref();
        }
    }

    /// Undoes a taking below `refusing`, which is an account above this one.
    fn give_back_up_to(&self, bytes: usize, refusing: &Arc<Self>) {
        let mut account = self;
        while !std::ptr::eq(account, &raw const **refusing) {
            account.bytes.fetch_sub(bytes, Ordering::SeqCst);
            let Some(above) = &account.parent else { return };
            account = above;
        }
    }

    fn wake_one(&self) {
        let waker = {
            let mut queue = self.queue.lock();
            let waker = queue.pop_front();
            self.waiting.store(queue.len(), Ordering::SeqCst);
            waker
        };
        waker.into_iter().for_each(|waker| waker.wake());
    }

    /// Wakes those behind one that waited and has got its part.
    pub(crate) fn wake_next(&self) {
        self.give_back(0);
    }

    /// Waits once for room for a call of `bytes`. It may be gone again when this returns.
    pub(crate) fn wait(&self, bytes: usize, waker: &Arc<Waker>, is_over: impl Fn() -> bool) {
        let Err(Full(full)) = self.has_room(bytes) else { return };
        {
            let mut queue = full.queue.lock();
            queue.push_back(Arc::clone(waker));
            full.waiting.store(queue.len(), Ordering::SeqCst);
        }
        // Whoever gave back before this did not see the waker.
        if self.has_room(bytes).is_err() && !is_over() {
            waker.wait();
        }
        let mut queue = full.queue.lock();
        queue.retain(|other| !Arc::ptr_eq(other, waker));
        full.waiting.store(queue.len(), Ordering::SeqCst);
    }

    /// Whether a call of `bytes` would be let in.
    fn has_room(&self, bytes: usize) -> Result<(), Full<'_>> {
        let is_little = self.bytes().saturating_add(bytes) <= self.little_bytes;
        let mut account = Some(self);
        while let Some(asked) = account {
            let all = asked.bytes.load(Ordering::SeqCst).saturating_add(bytes);
            if all > asked.limit(Use::Call, is_little) {
                return Err(Full(asked));
            }
            account = asked.parent.as_deref();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
