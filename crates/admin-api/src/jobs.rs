//! Jobs: work of a node that takes a while, with a number that stays the same over restarts.
//!
//! A job is begun by another call (a scrub, a replacement, a group that leaves, a split) or by the
//! node itself (a rebuild). Here it is listed, and, where the engine can, paused, resumed and
//! cancelled.
//!
//! Invariants: a number is never given to a second job of the node; a figure that is not
//! known yet is `None`, never guessed.
//!
//! Fails: `NotFound` if the node has no job of a number, or has forgotten it.

use crate::error::{AdminError, Code};
use crate::rate::{RateLimit, validate_rate};
use crate::requests::Validate;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Reads all disks of an aggregate and repairs what is damaged.
    Scrub,
    /// Fills a disk that has the place of a lost one with all that the place must hold.
    Rebuild,
    /// Writes to a disk that returned what changed while it was away.
    Resync,
    /// Copies a disk in use to another, which takes its place then.
    Replacement,
    /// Moves all blocks out of a RAID group, which leaves its aggregate then.
    Evacuation,
    /// Erases a disk that no aggregate uses.
    Zeroing,
    /// Erases a disk that is to join an aggregate.
    Growth,
    /// Frees the blocks of a volume that was deleted.
    Deletion,
    /// Copies what a clone shares with its parent.
    Split,
}

impl JobKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Scrub,
        Self::Rebuild,
        Self::Resync,
        Self::Replacement,
        Self::Evacuation,
        Self::Zeroing,
        Self::Growth,
        Self::Deletion,
        Self::Split,
    ];
}

impl fmt::Display for JobKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Scrub => "scrub",
            Self::Rebuild => "rebuild",
            Self::Resync => "resync",
            Self::Replacement => "replacement",
            Self::Evacuation => "evacuation",
            Self::Zeroing => "zeroing",
            Self::Growth => "growth",
            Self::Deletion => "deletion",
            Self::Split => "split",
        })
    }
}

/// Whether a job goes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Waits for its aggregate, which is not in service.
    Queued,
    /// Goes on, also after a restart.
    Running,
    /// Waits until it is resumed, also after a restart.
    Paused,
    /// Has done all of it.
    Succeeded,
    /// Ended before all was done, and will not go on.
    Failed,
    /// Was given up by an administrator.
    Cancelled,
}

impl JobState {
    /// All states.
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Paused, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// Whether the job is over.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// A job.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobInfo {
    /// Its number.
    pub job: u64,
    /// The kind of work.
    pub kind: JobKind,
    /// The aggregate, if it is about one.
    pub aggregate: Option<String>,
    /// What it is done to: a disk, a group, a volume, all disks of the aggregate.
    pub target: String,
    /// Whether it goes on.
    pub state: JobState,
    /// When it began; of work that was under way before the node kept jobs, when it was first seen.
    pub began: Time,
    /// When it was over.
    pub ended: Option<Time>,
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes that are to be done.
    pub size_bytes: u64,
    /// Bytes a second in the last minute.
    pub bytes_per_second: Option<u64>,
    /// How long it will still take at that.
    pub left_ns: Option<u64>,
    /// Bytes a second that it may do at most; `None` if there is no limit, or it is over.
    pub rate_limit_bytes_per_second: Option<u64>,
    /// Why it failed, or why it waits.
    pub reason: Option<String>,
}

impl JobInfo {
    /// How much is done, in whole percent; 100 only if that is all.
    #[must_use]
    pub fn percent_done(&self) -> u64 {
        let share = u128::from(self.done_bytes) * 100 / u128::from(self.size_bytes.max(1));
        u64::try_from(share.min(100)).unwrap_or(100)
    }
}

/// One job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobName {
    /// Its number.
    pub job: u64,
}

impl Validate for JobName {
    fn validate(&self) -> Result<(), AdminError> {
        Ok(())
    }
}

/// What can be asked of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobAction {
    /// Has it wait, also after a restart.
    Pause,
    /// Has it go on.
    Resume,
    /// Gives it up.
    Cancel,
    /// Has it be faster or slower.
    Set,
}

impl fmt::Display for JobAction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Cancel => "cancel",
            Self::Set => "set",
        })
    }
}

/// Asks something of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobChange {
    /// Its number.
    pub job: u64,
    /// What.
    pub action: JobAction,
    /// How fast it may go from now on: always with `Set`; with `Resume`, where `None` is as before.
    #[serde(default)]
    pub rate: Option<RateLimit>,
}

impl Validate for JobChange {
    fn validate(&self) -> Result<(), AdminError> {
        let error = || {
            let message = format!("cannot {} job", self.action);
            AdminError::new(Code::Usage, message, self.job.to_string())
        };
        match (self.action, self.rate) {
            (JobAction::Set, None) => Err(error().because("nothing is to be set: say the rate")),
            (JobAction::Pause | JobAction::Cancel, Some(_)) => {
                Err(error().because("a job that pauses or is cancelled has no rate"))
            }
            (_, rate) => validate_rate(rate.and_then(RateLimit::bytes_per_second), error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::RATE_BYTES_MIN;

    #[test]
    fn a_rate_is_for_what_goes_on_and_never_zero() {
        use JobAction::{Cancel, Pause, Resume, Set};
        let is_valid =
            |action, rate| JobChange { job: 7, action, rate }.validate().map_err(|e| e.code);
        let lowest = Some(RateLimit::BytesPerSecond(RATE_BYTES_MIN));
        for rate in [lowest, Some(RateLimit::None)] {
            assert_eq!([Set, Resume].map(|action| is_valid(action, rate)), [Ok(()), Ok(())]);
            for action in [Pause, Cancel] {
                assert_eq!(is_valid(action, rate), Err(Code::Usage), "{action}");
            }
        }
        for rate in [0, RATE_BYTES_MIN - 1] {
            let rate = Some(RateLimit::BytesPerSecond(rate));
            assert_eq!([Set, Resume].map(|action| is_valid(action, rate)), [Err(Code::Usage); 2]);
        }
        assert_eq!(is_valid(Set, None), Err(Code::Usage));
        assert!([Pause, Resume, Cancel].iter().all(|action| is_valid(*action, None).is_ok()));
        // As a command line wrote it that knows no rates.
        let old: JobChange = serde_json::from_str(r#"{"job": 7, "action": "resume"}"#).unwrap();
        assert_eq!(old, JobChange { job: 7, action: Resume, rate: None });
        let new = JobChange { job: 7, action: Set, rate: lowest };
        let text = serde_json::to_string(&new).unwrap();
        assert_eq!(serde_json::from_str::<JobChange>(&text).unwrap(), new, "{text}");
    }

    #[test]
    fn the_word_on_the_wire_is_the_word_that_people_read() {
        for kind in JobKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        for state in JobState::ALL {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{state}\""));
        }
    }
}
