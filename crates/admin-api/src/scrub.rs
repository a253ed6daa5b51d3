//! Scrubs: what can be asked of them, and what they say.
//!
//! Fails: `Usage` if the rate is too low to be meant.

use crate::error::{AdminError, Code};
use crate::names::validate_name;
use crate::rate::validate_rate;
use crate::requests::Validate;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What can be asked of a scrub.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubAction {
    /// Begins one.
    Start,
    /// Has it wait.
    Pause,
    /// Has it go on, or changes its rate.
    Resume,
    /// Gives it up.
    Stop,
}

impl fmt::Display for ScrubAction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Start => "start",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Stop => "stop",
        })
    }
}

/// Asks something of the scrub of an aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubChange {
    /// The aggregate.
    pub aggregate: String,
    /// What.
    pub action: ScrubAction,
    /// Bytes a second that it may read from the disks; only with `Start`, where `None` is no limit,
    /// and with `Resume`, where it is the limit as before.
    #[serde(default)]
    pub rate_bytes_per_second: Option<u64>,
}

impl Validate for ScrubChange {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.aggregate)?;
        let rate = self.rate_bytes_per_second;
        let error = || {
            let message = format!("cannot {} the scrub of", self.action);
            AdminError::new(Code::Usage, message, &self.aggregate)
        };
        if rate.is_some() && matches!(self.action, ScrubAction::Pause | ScrubAction::Stop) {
            return Err(error().because("a scrub that pauses or stops has no rate"));
        }
        validate_rate(rate, error)
    }
}

/// Whether a scrub goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// There never was one.
    #[default]
    Never,
    /// It goes on, after a restart as well.
    Running,
    /// It waits until it is resumed.
    Paused,
    /// It was given up.
    Stopped,
    /// It has seen everything.
    Finished,
}

/// The scrub of an aggregate: the last one, or the one under way.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ScrubInfo {
    /// The aggregate.
    pub aggregate: String,
    /// Whether it goes on.
    pub state: ScrubState,
    /// When it began.
    pub started: Option<Time>,
    /// When it was over, paused or stopped.
    pub ended: Option<Time>,
    /// How long ago that was.
    pub ended_ago_ns: Option<u64>,
    /// How long it ran, pauses not counted.
    pub active_ns: u64,
    /// Bytes of the disks that it has seen.
    pub done_bytes: u64,
    /// Bytes of the disks that it is to see.
    pub size_bytes: u64,
    /// Bytes a second that it may read; `None` if as many as the disks give.
    pub rate_bytes_per_second: Option<u64>,
    /// Bytes a second that it has read in the last minute.
    pub bytes_per_second: u64,
    /// How long it will still take at that; `None` if it does not run or too little is known yet.
    pub left_ns: Option<u64>,
    /// Blocks on data disks that it repaired.
    pub repaired_data_blocks: u64,
    /// Blocks with the identities of others that it repaired.
    pub repaired_checksum_blocks: u64,
    /// Blocks on parity disks that it repaired.
    pub repaired_parity_blocks: u64,
    /// Blocks and stripes that it found damaged and could not repair.
    pub damaged_blocks: u64,
    /// The first of those since the server started.
    pub findings: Vec<String>,
}

impl ScrubInfo {
    /// What it repaired.
    #[must_use]
    pub const fn repaired_blocks(&self) -> u64 {
        self.repaired_data_blocks + self.repaired_checksum_blocks + self.repaired_parity_blocks
    }

    /// What it found.
    #[must_use]
    pub const fn found_blocks(&self) -> u64 {
        self.repaired_blocks() + self.damaged_blocks
    }

    /// How much it has seen, in whole percent; 100 only if that is all.
    #[must_use]
    pub fn percent_done(&self) -> u64 {
        let share = u128::from(self.done_bytes) * 100 / u128::from(self.size_bytes.max(1));
        u64::try_from(share.min(100)).unwrap_or(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::RATE_BYTES_MIN;

    #[test]
    fn rates_are_for_what_runs() {
        let change = |action, rate| ScrubChange {
            aggregate: "a1".to_owned(),
            action,
            rate_bytes_per_second: rate,
        };
        let rate = Some(RATE_BYTES_MIN);
        for action in [ScrubAction::Start, ScrubAction::Resume] {
            assert!(change(action, None).validate().is_ok());
            assert!(change(action, rate).validate().is_ok());
            assert!(change(action, Some(1)).validate().is_err());
        }
        for action in [ScrubAction::Pause, ScrubAction::Stop] {
            assert!(change(action, None).validate().is_ok());
            assert!(change(action, rate).validate().is_err());
        }
    }

    #[test]
    fn a_share_is_never_above_all() {
        let done = |done_bytes, size_bytes| {
            ScrubInfo { done_bytes, size_bytes, ..ScrubInfo::default() }.percent_done()
        };
        assert_eq!([done(0, 0), done(999, 1000), done(7, 7), done(8, 7)], [0, 99, 100, 100]);
        assert_eq!(done(u64::MAX - 1, u64::MAX), 99);
    }
}
