//! How fast work may go that moves data in the background.
//!
//! Invariant: no rate is zero: work that must not go on is paused.
//!
//! Fails: `Usage` if a rate is too low to be meant.

use crate::error::AdminError;
use serde::{Deserialize, Serialize};
use units::ByteSize;

/// The lowest rate that can be asked for: below it work on one large disk takes a year.
pub const RATE_BYTES_MIN: u64 = 1 << 20;

/// How fast work may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateLimit {
    /// As fast as the disks give.
    None,
    /// So many bytes a second at most.
    BytesPerSecond(u64),
}

impl RateLimit {
    /// Bytes a second, if there is a limit.
    #[must_use]
    pub const fn bytes_per_second(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::BytesPerSecond(rate) => Some(rate),
        }
    }
}

/// Refuses a rate that is too low to be meant; `error` is of the usage.
pub(crate) fn validate_rate(
    rate: Option<u64>,
    error: impl FnOnce() -> AdminError,
) -> Result<(), AdminError> {
    match rate {
        Some(rate) if rate < RATE_BYTES_MIN => {
            let lowest = ByteSize(RATE_BYTES_MIN);
            Err(error().because(format!("its rate is at least {lowest} a second")))
        }
        _ => Ok(()),
    }
}
