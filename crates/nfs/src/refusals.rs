//! Clients that were refused by the export rules: counted, and told to the log now and then.
//!
//! A stranger who tries every volume, or a client whose rule was removed while it works, asks
//! thousands of times a second. The counters have each refusal. The log has the first one of a
//! kind, and then one line in [`LOG_INTERVAL_NANOSECONDS`] with how many came since.
//!
//! Invariants: a refusal is counted once; counters never go back; the log of one kind takes none
//! of the other's lines; whoever refuses waits for nobody but the log.

use platform::Clock;
use platform::sync::Mutex;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use units::VolumeUuid;

/// Between two lines of a kind in the log: often enough to see an attack as it happens, and six a
/// minute fill no disk.
const LOG_INTERVAL_NANOSECONDS: u64 = 10_000_000_000;

/// One kind of refusal.
#[derive(Default)]
struct Kind {
    count: AtomicU64,
    /// What the log knows; nothing before the first line.
    told: Mutex<Option<Told>>,
}

struct Told {
    monotonic_nanoseconds: u64,
    count: u64,
}

impl Kind {
    /// Counts one; how many came since the last line, if it is time for another one.
    fn refuse(&self, now: u64) -> Option<u64> {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut told = self.told.lock();
        let is_due = told.as_ref().is_none_or(|told| {
            now.saturating_sub(told.monotonic_nanoseconds) >= LOG_INTERVAL_NANOSECONDS
        });
        if !is_due {
            return None;
        }
        let count = self.count.load(Ordering::Relaxed);
        let before = told.as_ref().map_or(0, |told| told.count);
        *told = Some(Told { monotonic_nanoseconds: now, count });
        Some(count - before)
    }
}

/// The refusals of a server.
pub struct Refusals {
    clock: Arc<dyn Clock>,
    mounts: Kind,
    calls: Kind,
}

impl Refusals {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, mounts: Kind::default(), calls: Kind::default() }
    }

    /// Mounts that were refused since the start.
    #[must_use]
    pub fn mounts(&self) -> u64 {
        self.mounts.count.load(Ordering::Relaxed)
    }

    /// Calls that came with a handle of a volume which the client may not use, since the start.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.count.load(Ordering::Relaxed)
    }

    /// A client may not mount a path.
    pub(crate) fn mount(&self, client: IpAddr, path: &[u8]) {
        if let Some(refused) = self.mounts.refuse(self.clock.monotonic_nanoseconds()) {
            let path = String::from_utf8_lossy(path);
            tracing::warn!(%client, %path, refused, "no export rule allows the mount");
        }
    }

    /// A client may not use a volume whose handle it has.
    pub(crate) fn call(&self, client: IpAddr, volume: VolumeUuid) {
        if let Some(refused) = self.calls.refuse(self.clock.monotonic_nanoseconds()) {
            tracing::warn!(%client, %volume, refused, "no export rule allows the call");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_is_counted_and_few_are_told() {
        let kind = Kind::default();
        let began = 5;
        assert_eq!(kind.refuse(began), Some(1), "the first one is told at once");
        for _ in 0..99 {
            assert_eq!(kind.refuse(began + LOG_INTERVAL_NANOSECONDS - 1), None);
        }
        assert_eq!(kind.refuse(began + LOG_INTERVAL_NANOSECONDS), Some(100));
        assert_eq!(kind.refuse(began + LOG_INTERVAL_NANOSECONDS), None);
        assert_eq!(kind.count.load(Ordering::Relaxed), 102);
    }
}
