//! One process at a time in a bucket: an object that says who has the range and until when.
//!
//! The lease is put on condition of the version that was read, so of several takers one wins. Its
//! holder renews it; a holder that cannot for a while has it still if nobody took it, which the
//! next renewal finds out. It is taken over when it has expired by more than clocks differ, when it
//! was given back, and at once by the node that has it: that node's process is dead, since one
//! process at a time runs on a node's state, and one disk of a name is open in it.
//!
//! Invariants:
//! - Nothing is put without a lease that was renewed within its life.
//! - A lease that was lost is lost for good.
//! - Clocks may be wrong all the same: puts are conditional too, so two that both believe in their
//!   lease see each other's puts and fail instead of replacing them.
//!
//! Fails: [`RequestError::Deposed`] when it is lost; other errors leave it as it is.

use crate::error::RequestError;
use crate::geometry::LEASE_KEY;
use crate::limits::{CLOCK_SKEW_NANOSECONDS, LEASE_ATTEMPTS_MAX};
use crate::requests::{Requests, Version};
use ondisk::object_range::ObjectRangeLease;
use platform::Clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Mutex;
use units::{IncarnationUuid, NodeUuid};

/// Who wants a lease.
#[derive(Clone)]
pub(crate) struct Claimant {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) owner: NodeUuid,
    pub(crate) incarnation: IncarnationUuid,
}

struct Held {
    version: Version,
    sequence: u64,
}

/// A lease that is held, or was lost.
pub(crate) struct Lease {
    requests: Arc<Requests>,
    claimant: Claimant,
    held: Mutex<Held>,
    /// By the monotonic clock.
    valid_until_nanoseconds: AtomicU64,
    is_lost: AtomicBool,
}

/// Why there is no lease.
#[derive(Debug)]
pub(crate) enum Denied {
    /// Somebody else has it.
    Taken,
    /// A request failed, or what is there is no lease.
    Failed(String),
}

impl Lease {
    /// Takes the lease. Also tells whether the last holder did not give it back: then puts of its
    /// may still be on their way.
    pub(crate) async fn take(
        requests: &Arc<Requests>,
        claimant: Claimant,
    ) -> Result<(Self, bool), Denied> {
        let failed = |error: RequestError| Denied::Failed(format!("object {LEASE_KEY}: {error}"));
        for _ in 0..LEASE_ATTEMPTS_MAX {
            let mut was_held = false;
            let replaced = match requests.get(LEASE_KEY, None).await.map_err(failed)? {
                None => Version::Absent,
                Some(content) => {
                    let lease = ObjectRangeLease::from_bytes(&content.bytes)
                        .map_err(|damage| Denied::Failed(damage.to_string()))?;
                    if !may_take(&lease, &claimant) {
                        return Err(Denied::Taken);
                    }
                    was_held = lease.expires_nanoseconds.get() != 0;
                    content.version
                }
            };
            let lease = Self {
                requests: Arc::clone(requests),
                claimant: claimant.clone(),
                held: Mutex::new(Held { version: replaced, sequence: 0 }),
                valid_until_nanoseconds: AtomicU64::new(0),
                is_lost: AtomicBool::new(false),
            };
            let put = lease.put(&mut *lease.held.lock().await).await;
            match put {
                Ok(()) => return Ok((lease, was_held)),
                Err(RequestError::Changed) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Denied::Taken)
    }

    /// Puts the next version of it.
    async fn put(&self, held: &mut Held) -> Result<(), RequestError> {
        let (clock, length) = (&self.claimant.clock, self.requests.limits.lease_nanoseconds);
        // Read before the request: time that it takes is not time that the lease is longer.
        let (wall, monotonic) = (clock.wall().0, clock.monotonic_nanoseconds());
        let mut lease = ObjectRangeLease::empty();
        lease.owner = self.claimant.owner;
        lease.incarnation = self.claimant.incarnation;
        lease.sequence = (held.sequence + 1).into();
        lease.expires_nanoseconds = wall.saturating_add(length).max(1).into();
        let payload = lease.to_bytes().into();
        held.version = self.requests.put(LEASE_KEY, payload, held.version.clone()).await?;
        held.sequence += 1;
        let until = monotonic.saturating_add(length.unsigned_abs());
        self.valid_until_nanoseconds.store(until, Ordering::Release);
        Ok(())
    }

    /// Makes sure that it holds now.
    pub(crate) async fn check(&self) -> Result<(), RequestError> {
        let now = self.claimant.clock.monotonic_nanoseconds();
        if self.is_lost.load(Ordering::Acquire) {
            return Err(RequestError::Deposed);
        }
        if now < self.valid_until_nanoseconds.load(Ordering::Acquire) {
            return Ok(());
        }
        self.renew().await
    }

    /// Renews it, or finds out that it is lost.
    pub(crate) async fn renew(&self) -> Result<(), RequestError> {
        let mut held = self.held.lock().await;
        if self.is_lost.load(Ordering::Acquire) {
            return Err(RequestError::Deposed);
        }
        match self.put(&mut held).await {
            Err(RequestError::Changed) => {}
            other => return other,
        }
        // A put of ours whose answer was lost changed it, or somebody else did.
        let found = self.requests.get(LEASE_KEY, None).await?;
        let ours = found.and_then(|content| {
            let lease = ObjectRangeLease::from_bytes(&content.bytes).ok()?;
            let is_ours = lease.owner == self.claimant.owner
                && lease.incarnation == self.claimant.incarnation;
            is_ours.then_some((content.version, lease.sequence.get()))
        });
        if let Some((version, sequence)) = ours {
            *held = Held { version, sequence };
            match self.put(&mut held).await {
                Err(RequestError::Changed) => {}
                other => return other,
            }
        }
        self.is_lost.store(true, Ordering::Release);
        Err(RequestError::Deposed)
    }

    /// Gives it back, as well as can be: a lease that stays expires.
    pub(crate) async fn give_back(&self) {
        let held = self.held.lock().await;
        if self.is_lost.load(Ordering::Acquire) {
            return;
        }
        let mut lease = ObjectRangeLease::empty();
        lease.owner = self.claimant.owner;
        lease.incarnation = self.claimant.incarnation;
        lease.sequence = (held.sequence + 1).into();
        let put = self.requests.put(LEASE_KEY, lease.to_bytes().into(), held.version.clone()).await;
        self.is_lost.store(true, Ordering::Release);
        if let Err(error) = put {
            tracing::debug!(%error, "the lease was not given back; it expires");
        }
    }
}

fn may_take(lease: &ObjectRangeLease, claimant: &Claimant) -> bool {
    let expires = lease.expires_nanoseconds.get();
    let is_over = claimant.clock.wall().0.saturating_sub(expires) > CLOCK_SKEW_NANOSECONDS;
    lease.owner == claimant.owner || expires == 0 || is_over
}
