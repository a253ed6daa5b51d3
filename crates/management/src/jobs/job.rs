//! A job, and what tells it from others.

use crate::pace::Recent;
use admin_api::{JobInfo, JobKind, JobState, Time};
use std::fmt;
use units::{AggregateUuid, DiskUuid, Timestamp};

/// What work is done to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Subject {
    /// All of the aggregate.
    Aggregate,
    /// A disk, by name.
    Disk(String),
    /// A RAID group of the aggregate.
    Group(u32),
    /// A volume, by the name that it had.
    Volume(String),
}

impl fmt::Display for Subject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aggregate => formatter.write_str("all disks"),
            Self::Disk(name) => formatter.write_str(name),
            Self::Group(group) => write!(formatter, "group {group}"),
            Self::Volume(name) => formatter.write_str(name),
        }
    }
}

/// What tells work from other work of the node at the same time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub kind: JobKind,
    /// The aggregate, by name.
    pub aggregate: Option<String>,
    pub subject: Subject,
    /// Tells work from earlier work of the kind on the same subject, where the engine can: when a
    /// scrub began, which start of the node a disk is erased in, the number of a volume.
    pub birth: i64,
    pub identities: Identities,
}

/// Of aggregates and disks that have such: their names may be those of others after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Identities {
    pub aggregate: Option<AggregateUuid>,
    /// Of a disk that is being filled. One that is erased has none.
    pub disk: Option<DiskUuid>,
}

impl Key {
    /// Whether two keys are of the same work.
    pub(crate) fn is_of(&self, other: &Self) -> bool {
        let (own, its) = (self.identities, other.identities);
        (self.kind, self.birth) == (other.kind, other.birth)
            && is_same((own.aggregate, its.aggregate), self.aggregate == other.aggregate)
            // A volume is known by its number, the birth: it may have another name by now.
            && (matches!(self.kind, JobKind::Deletion | JobKind::Split)
                || is_same((own.disk, its.disk), self.subject == other.subject))
    }

    /// Whether the work is done to this aggregate.
    pub(crate) fn is_of_aggregate(&self, identity: AggregateUuid, name: &str) -> bool {
        let is_named = self.aggregate.as_deref() == Some(name);
        is_same((self.identities.aggregate, Some(identity)), is_named)
    }

    /// Whether the work is done to this disk, which has an identity.
    pub(crate) fn is_of_disk(&self, identity: DiskUuid, name: Option<&str>) -> bool {
        let Subject::Disk(disk) = &self.subject else { return false };
        is_same((self.identities.disk, Some(identity)), Some(disk.as_str()) == name)
    }
}

/// Whether two things are one: by identity, or by name if one of them is not known by more.
fn is_same<T: PartialEq>(identities: (Option<T>, Option<T>), is_named_so: bool) -> bool {
    match identities {
        (Some(one), Some(other)) => one == other,
        _ => is_named_so,
    }
}

/// How work came to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Outcome {
    pub state: JobState,
    pub reason: Option<String>,
}

impl Outcome {
    pub(crate) const fn succeeded() -> Self {
        Self { state: JobState::Succeeded, reason: None }
    }

    pub(crate) const fn cancelled() -> Self {
        Self { state: JobState::Cancelled, reason: None }
    }

    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self { state: JobState::Failed, reason: Some(reason.into()) }
    }
}

/// A job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub number: u64,
    pub key: Key,
    pub state: JobState,
    pub began: Timestamp,
    pub ended: Option<Timestamp>,
    pub done_bytes: u64,
    pub size_bytes: u64,
    /// Why it failed.
    pub reason: Option<String>,
    /// Bytes a second that it may do; none once it is over.
    pub rate: Option<u64>,
    /// It was cancelled, and has not ended yet. Not kept over a restart.
    pub is_given_up: bool,
    /// How it got on of late. Not kept over a restart.
    pub recent: Recent,
}

/// What a job keeps of how its work goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    pub state: JobState,
    pub rate: Option<u64>,
}

impl Job {
    /// A job that has just begun.
    pub(crate) fn new(number: u64, key: Key, began: Timestamp) -> Self {
        Self {
            number,
            key,
            state: JobState::Running,
            began,
            ended: None,
            done_bytes: 0,
            size_bytes: 0,
            reason: None,
            rate: None,
            is_given_up: false,
            recent: Recent::default(),
        }
    }

    pub(crate) const fn setting(&self) -> Setting {
        Setting { state: self.state, rate: self.rate }
    }

    /// The job as administrators see it.
    pub(crate) fn info(&self) -> JobInfo {
        let pace = match self.state {
            JobState::Running => self.recent.pace(self.size_bytes.saturating_sub(self.done_bytes)),
            _ => raid::Pace::default(),
        };
        let nanoseconds = |seconds: u64| seconds.saturating_mul(1_000_000_000);
        let waits = (self.state == JobState::Queued)
            .then(|| "its aggregate is not in service (stroop status)".to_owned());
        JobInfo {
            job: self.number,
            kind: self.key.kind,
            aggregate: self.key.aggregate.clone(),
            target: self.key.subject.to_string(),
            state: self.state,
            began: Time(self.began),
            ended: self.ended.map(Time),
            done_bytes: self.done_bytes,
            size_bytes: self.size_bytes,
            bytes_per_second: pace.seconds_left.map(|_| pace.bytes_per_second),
            left_ns: pace.seconds_left.map(nanoseconds),
            rate_limit_bytes_per_second: self.rate,
            reason: waits.or_else(|| self.reason.clone()),
        }
    }
}
