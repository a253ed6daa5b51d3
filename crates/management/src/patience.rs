//! Opening disks at the start, when a server that was killed may still be on its way out.
//!
//! The kernel ends the I/O that a killed process had under way in its own time, and keeps the lock
//! on each file until then. That is what we want: no write of the dead server lands beside ours.
//! So a disk that is in use when the server starts is asked for again for a while, before it is
//! believed to be somebody else's.
//!
//! Invariants: all disks together are waited for at most [`PATIENCE_NANOSECONDS`]; only errors of
//! being in use are waited out.

use crate::waits::Waits;
use platform::{Clock, Disk, DiskError, DiskOpener};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait. Longer than the I/O that a server has under way takes on a busy rotating disk;
/// short enough for the start to fail while somebody looks.
const PATIENCE_NANOSECONDS: u64 = 5_000_000_000;
/// How often to ask: the kernel tells nobody that a lock is free.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// See the module.
pub struct Patience {
    clock: Arc<dyn Clock>,
    waits: Waits,
    deadline_nanoseconds: u64,
}

impl Patience {
    /// Patience from now on.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, waits: Waits) -> Self {
        let deadline_nanoseconds = clock.monotonic_nanoseconds() + PATIENCE_NANOSECONDS;
        Self { clock, waits, deadline_nanoseconds }
    }

    /// Opens a disk, waiting while it is in use.
    ///
    /// # Errors
    /// Those of the opener.
    pub fn open(&self, opener: &dyn DiskOpener, name: &str) -> Result<Arc<dyn Disk>, DiskError> {
        let mut told = false;
        loop {
            let opened = opener.open(name);
            let is_busy = matches!(opened, Err(DiskError::InUse { .. }));
            if !is_busy || self.clock.monotonic_nanoseconds() >= self.deadline_nanoseconds {
                return opened;
            }
            if !told {
                tracing::info!(disk = name, "in use; waiting, in case a killed server has it");
                told = true;
            }
            if !self.waits.pause(RETRY_INTERVAL) {
                return opened;
            }
        }
    }

    /// Waits until something is so; whether it is.
    pub fn wait_until(&self, is_so: impl Fn() -> bool) -> bool {
        while !is_so() {
            let is_late = self.clock.monotonic_nanoseconds() >= self.deadline_nanoseconds;
            if is_late || !self.waits.pause(RETRY_INTERVAL) {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::simulated::SimulatedWorld;
    use std::sync::atomic::{AtomicU64, Ordering};
    use units::Timestamp;

    /// In use for the first calls.
    struct Busy {
        world: SimulatedWorld,
        refusals: AtomicU64,
    }

    impl DiskOpener for Busy {
        fn open(&self, path: &str) -> Result<Arc<dyn Disk>, DiskError> {
            let left = self.refusals.load(Ordering::Relaxed);
            if left == 0 {
                return self.world.open(path);
            }
            self.refusals.store(left - 1, Ordering::Relaxed);
            Err(DiskError::InUse { disk: path.to_owned() })
        }
    }

    /// Each look at it takes a second.
    struct Steps(AtomicU64);

    impl Clock for Steps {
        fn wall(&self) -> Timestamp {
            Timestamp(0)
        }

        fn monotonic_nanoseconds(&self) -> u64 {
            self.0.fetch_add(1_000_000_000, Ordering::Relaxed)
        }
    }

    #[test]
    fn a_disk_in_use_is_waited_for_until_the_deadline() {
        let world = SimulatedWorld::new(1);
        world.add_disk("d1", 16);
        let open = |refusals: u64, name: &str| {
            let busy = Busy { world: world.clone(), refusals: AtomicU64::new(refusals) };
            Patience::new(Arc::new(Steps(AtomicU64::new(0))), Waits::default())
                .open(&busy, name)
                .map(drop)
        };
        assert_eq!(open(3, "d1"), Ok(()));
        assert_eq!(open(100, "d1"), Err(DiskError::InUse { disk: "d1".to_owned() }));
        assert!(matches!(open(1, "none"), Err(DiskError::Open { .. })));
    }

    #[test]
    fn what_does_not_come_is_waited_for_until_the_deadline() {
        let looks = AtomicU64::new(0);
        let wait = |wanted| {
            looks.store(0, Ordering::Relaxed);
            let patience = Patience::new(Arc::new(Steps(AtomicU64::new(0))), Waits::default());
            patience.wait_until(|| looks.fetch_add(1, Ordering::Relaxed) == wanted)
        };
        assert!(wait(0) && wait(3));
        assert!(!wait(100) && looks.load(Ordering::Relaxed) < 10);
    }
}
