//! The temperature scan of a volume: when it begins, and how far it is.
//!
//! Invariants: a clock that is set back keeps no scan for years.

use super::tiering::Tiering;
use ondisk::records::VolumeRecord;
use units::Timestamp;

/// How far the temperature scan of a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Scan {
    /// When the last one began.
    pub started: Timestamp,
    /// The lowest-level node of the container map that it goes on with.
    pub next: u64,
    pub is_running: bool,
}

impl Scan {
    pub(crate) fn of(record: &VolumeRecord) -> Self {
        let next = record.scan_next.get();
        Self { started: Timestamp(record.scan_started.get()), next, is_running: next > 0 }
    }

    pub(crate) fn store(self, record: &mut VolumeRecord) {
        record.scan_started.set(self.started.get());
        record.scan_next.set(if self.is_running { self.next } else { 0 });
    }

    /// Begins the next one if it is time.
    pub(crate) fn begin_if_due(&mut self, tiering: Tiering, now: Timestamp) {
        let period = tiering.scan_period_nanoseconds();
        let is_due = now.get().saturating_sub(self.started.get()) >= period;
        // A clock that was set back must not keep the next one for years.
        let is_ahead = self.started > now;
        if !self.is_running && (is_due || is_ahead) {
            *self = Self { started: now, next: 0, is_running: !is_ahead };
        }
    }
}
