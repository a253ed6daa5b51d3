//! What a load did, as the clock and the counters have it.
//!
//! Invariants: the processor time is that of this process, which makes the load.

use crate::latency::Latencies;

/// What a run did.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub operations: u64,
    pub nanoseconds: u64,
    /// Processor time of this process.
    pub client_nanoseconds: u64,
    pub latencies: Latencies,
}

impl Measured {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 * 1e9 / self.nanoseconds.max(1) as f64
    }
}

/// One round of one line.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// In the base unit.
    pub rate: f64,
    pub latencies: Latencies,
    pub client_nanoseconds: u64,
}

impl Sample {
    /// Of a run whose operations count as `scale` each.
    pub fn of(measured: Measured, scale: f64) -> Self {
        let rate = measured.rate() * scale;
        let Measured { latencies, client_nanoseconds, .. } = measured;
        Self { rate, latencies, client_nanoseconds }
    }
}

/// Processor time that this process has had.
pub(crate) fn client_nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
}
