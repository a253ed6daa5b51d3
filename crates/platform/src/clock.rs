//! Time.

use units::Timestamp;

/// A source of time.
pub trait Clock: Send + Sync {
    /// The time of day, for file times.
    fn wall(&self) -> Timestamp;

    /// Nanoseconds since some fixed point; never goes back. For durations and deadlines.
    fn monotonic_nanoseconds(&self) -> u64;
}
