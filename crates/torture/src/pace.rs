//! So many operations a second, and no more: a load that leaves a server time to breathe shows what
//! its latencies are; one that does not shows how long its queues are.
//!
//! Invariants: what was missed is not made up for but for a moment, so that a load does not come
//! back from a kill as a flood.

use crate::measure::now_ns;
use std::thread::park_timeout;
use std::time::Duration;

/// How far a load may lag behind and still make up for it.
const LAG_NS_MAX: u64 = 100_000_000;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time of an operation; 0 for as many as can be.
    interval_ns: u64,
    next_ns: u64,
}

impl Pace {
    /// As fast as it goes.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self { interval_ns: 0, next_ns: 0 }
    }

    /// So many a second; 0 for as many as can be.
    #[must_use]
    pub const fn per_second(operations: u64) -> Self {
        match 1_000_000_000_u64.checked_div(operations) {
            Some(interval_ns) => Self { interval_ns, next_ns: 0 },
            None => Self::unlimited(),
        }
    }

    /// Whether it ever waits.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.interval_ns > 0
    }

    /// Waits until so many operations may begin.
    pub fn wait(&mut self, operations: u64) {
        if self.interval_ns == 0 {
            return;
        }
        let mut now = now_ns();
        self.next_ns = self.next_ns.max(now.saturating_sub(LAG_NS_MAX));
        while now < self.next_ns {
            park_timeout(Duration::from_nanos(self.next_ns - now));
            now = now_ns();
        }
        self.next_ns += self.interval_ns * operations;
    }
}
