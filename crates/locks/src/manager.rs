//! The manager: every lock, everyone who waits, every client, and the grace period.
//!
//! One mutex guards it all. Locks are taken and given back thousands of times a second at most,
//! each time for a few comparisons; files with many locks are searched in order, which
//! [`Limits::locks_of_file`] bounds.
//!
//! Invariants: see the crate. Counts agree with what is held.
//!
//! Fails: [`LockError`].

use crate::asking::{Attempt, Cancelled, Limits, Outcome, WaitId};
use crate::file::{FileLocks, Waiter};
use crate::lock::{ClientId, Held, Kind, LockError, Owner, Request, Share};
use crate::range::Range;
use crate::state::{State, check_grace};
use crate::usage::Sort;
use file_service::FileHandle;
use platform::Clock;
use platform::sync::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;

/// See the module.
pub struct LockManager {
    clock: Arc<dyn Clock>,
    limits: Limits,
    state: Mutex<State>,
}

impl LockManager {
    /// A manager without locks.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        Self { clock, limits, state: Mutex::default() }
    }

    /// A client that there was not before, with a share of the limits of its own.
    pub fn register_client(&self) -> ClientId {
        let mut state = self.state.lock();
        state.next_client += 1;
        ClientId { number: state.next_client, party: state.next_client }
    }

    /// A client that there was not before, and that has its share of the limits with another.
    pub fn register_client_beside(&self, other: ClientId) -> ClientId {
        let mut state = self.state.lock();
        state.next_client += 1;
        ClientId { number: state.next_client, party: other.party }
    }

    /// For so long only what was held before the start may be taken.
    pub fn begin_grace(&self, nanoseconds: u64) {
        let end = self.clock.monotonic_nanoseconds().saturating_add(nanoseconds);
        self.state.lock().grace_end_nanoseconds = Some(end);
    }

    /// Whether the grace period lasts. Ends it when its time has come.
    pub fn in_grace(&self) -> bool {
        let mut state = self.state.lock();
        let (lasts, granted) = state.grace(&*self.clock);
        drop(state);
        tell(granted);
        lasts
    }

    /// Takes a lock.
    ///
    /// # Errors
    /// [`LockError`]; a lock that is given up or refused leaves what the owner has as it was, but
    /// for a whole-file lock in another mode, which is gone.
    pub fn lock(&self, request: &Request, attempt: Attempt) -> Result<Outcome, LockError> {
        let mut state = self.state.lock();
        let (grace, mut granted) = state.grace(&*self.clock);
        let outcome = state.ask(&self.limits, request, attempt, grace, &mut granted);
        drop(state);
        tell(granted);
        outcome
    }

    /// The lock that stands in the way of `request`.
    #[must_use]
    pub fn conflict(&self, request: &Request) -> Option<Held> {
        let state = self.state.lock();
        state.files.get(&request.file)?.held.conflict(request).cloned()
    }

    /// Gives back what an owner has of some bytes of a file.
    pub fn unlock(&self, file: FileHandle, owner: &Owner, kind: Kind, range: &Range) {
        let mut state = self.state.lock();
        // Every close of a file on a FUSE mount comes here, and most files have no locks.
        if !state.files.contains_key(&file) {
            return;
        }
        let granted = state.change(file, |locks, usage| {
            locks.held.give_back((owner, kind, range), usage);
        });
        drop(state);
        tell(granted);
    }

    /// Whether an owner waits for just this.
    #[must_use]
    pub fn waits_for(&self, request: &Request) -> bool {
        self.state.lock().waits_of(&request.owner).any(|(waiting, _)| waiting == request)
    }

    /// Gives up waiting for just this; false if nobody does.
    pub fn cancel(&self, request: &Request) -> bool {
        let state = self.state.lock();
        let found = state.waits_of(&request.owner).find(|(waiting, _)| *waiting == request);
        let found = found.map(|(_, id)| id);
        drop(state);
        found.is_some_and(|id| self.cancel_wait(&request.owner, id))
    }

    /// Gives up a wait; false if it is over.
    pub fn cancel_wait(&self, owner: &Owner, id: WaitId) -> bool {
        let mut state = self.state.lock();
        let file = state.waits.get(owner).and_then(|waits| waits.get(&id)).copied();
        let Some(file) = file else { return false };
        let cancelled = state.take_waiters(file, |waiter| waiter.id == id).pop();
        let granted = state.serve([file].into());
        drop(state);
        tell(granted);
        let Some(waiter) = cancelled else { unreachable!("a wait is in both tables") };
        (waiter.done)(Err(Cancelled));
        true
    }

    /// Takes all from a client: it was started anew, or is gone. It may come back.
    pub fn forget_client(&self, client: ClientId) {
        self.forget(|owner| owner.client == client);
    }

    fn forget(&self, goes: impl Fn(&Owner) -> bool) {
        let mut state = self.state.lock();
        let files: BTreeSet<FileHandle> = state.files.keys().copied().collect();
        let mut cancelled = Vec::new();
        for file in &files {
            cancelled.extend(state.take_waiters(*file, |waiter| goes(&waiter.request.owner)));
            state.change_held(*file, |locks, usage| {
                locks.held.remove(|held| goes(&held.owner), usage);
                locks.remove_shares(|share| goes(&share.owner), usage);
            });
        }
        let granted = state.serve(files);
        drop(state);
        tell(granted);
        cancelled.into_iter().for_each(|waiter| (waiter.done)(Err(Cancelled)));
    }

    /// Reserves ways to open a file; the owner's reservation before is replaced.
    ///
    /// # Errors
    /// `Reserved`, `Grace`, `NoGrace`, `TooMany`.
    pub fn share(&self, file: FileHandle, share: Share, reclaim: bool) -> Result<(), LockError> {
        let mut state = self.state.lock();
        let (grace, granted) = state.grace(&*self.clock);
        let result = check_grace(grace, reclaim).and_then(|()| {
            let held = state.files.get(&file).map_or(&[][..], |locks| &locks.shares);
            if held.iter().any(|other| other.excludes(&share)) {
                return Err(LockError::Reserved);
            }
            let limit = self.limits.shares_of_file;
            let is_replaced = held.iter().any(|other| other.owner == share.owner);
            if !is_replaced && held.len() >= limit {
                return Err(LockError::TooMany { what: "reservations of the file", limit });
            }
            if !is_replaced {
                state.usage.check(&self.limits, &share.owner, (Sort::Share, 1))?;
            }
            state.change_held(file, |locks, usage| {
                locks.remove_shares(|other| other.owner == share.owner, usage);
                usage.more(Sort::Share, &share.owner);
                locks.shares.push(share);
            });
            Ok(())
        });
        drop(state);
        tell(granted);
        result
    }

    /// Gives a reservation back.
    pub fn unshare(&self, file: FileHandle, owner: &Owner) {
        let mut state = self.state.lock();
        let granted = state.change(file, |locks, usage| {
            locks.remove_shares(|held| held.owner == *owner, usage);
        });
        drop(state);
        tell(granted);
    }

    /// Clients that hold or wait for anything.
    #[must_use]
    pub fn holders(&self) -> BTreeSet<ClientId> {
        let state = self.state.lock();
        let clients = |locks: &FileLocks| -> Vec<ClientId> {
            let held = locks.held.iter().map(|held| held.owner.client);
            let waiting = locks.waiting.iter().map(|waiter| waiter.request.owner.client);
            held.chain(waiting).chain(locks.shares.iter().map(|share| share.owner.client)).collect()
        };
        state.files.values().flat_map(clients).collect()
    }

    /// How many ranges are held, and how many waits there are.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.usage.all.locks, state.usage.all.waits)
    }

    #[cfg(test)]
    pub(crate) fn parties_count(&self) -> usize {
        self.state.lock().usage.parties_count()
    }

    /// What is held of a file, in order of the first byte.
    #[must_use]
    pub fn held(&self, file: FileHandle) -> Vec<Held> {
        let state = self.state.lock();
        state.files.get(&file).map(|locks| locks.held.iter().cloned().collect()).unwrap_or_default()
    }
}

fn tell(granted: Vec<Waiter>) {
    granted.into_iter().for_each(|waiter| (waiter.done)(Ok(())));
}
