//! The jobs of the node in memory: its scrubs, disks that take places, groups that leave, and
//! clones that are split; the last three never end.

use crate::error::{AdminError, Code};
use crate::jobs::{JobAction, JobChange, JobInfo, JobKind, JobState};
use crate::rate::RateLimit;
use crate::replies::DiskInfo;
use crate::scrub::{ScrubAction, ScrubChange, ScrubInfo, ScrubState};
use crate::time::Time;

/// All jobs that there ever were, in order of number.
#[derive(Default)]
pub(crate) struct Jobs(Vec<JobInfo>);

impl Jobs {
    /// A scrub was begun or changed.
    pub(crate) fn note_scrub(&mut self, scrub: &ScrubInfo) {
        let state = match scrub.state {
            ScrubState::Never | ScrubState::Running => JobState::Running,
            ScrubState::Paused => JobState::Paused,
            ScrubState::Stopped => JobState::Cancelled,
            ScrubState::Finished => JobState::Succeeded,
        };
        let is_known = |job: &&mut JobInfo| {
            job.kind == JobKind::Scrub
                && job.aggregate.as_ref() == Some(&scrub.aggregate)
                && !job.state.is_over()
        };
        let rate = scrub.rate_bytes_per_second;
        if let Some(job) = self.0.iter_mut().find(is_known) {
            (job.state, job.rate_limit_bytes_per_second) = (state, rate);
            return;
        }
        let aggregate = Some(scrub.aggregate.clone());
        let target = "all disks".to_owned();
        self.begin(JobKind::Scrub, aggregate, target, (scrub.size_bytes, rate));
    }

    /// A disk begins to take the place of another.
    pub(crate) fn note_replacement(&mut self, disk: &DiskInfo, rate: Option<u64>) {
        let (aggregate, target) = (disk.aggregate.clone(), disk.name.clone());
        self.begin(JobKind::Replacement, aggregate, target, (disk.size_bytes, rate));
    }

    /// A group begins to leave an aggregate.
    pub(crate) fn note_evacuation(&mut self, aggregate: &str, group: u32, of: (u64, Option<u64>)) {
        let target = format!("group {group}");
        self.begin(JobKind::Evacuation, Some(aggregate.to_owned()), target, of);
    }

    /// The group that was to leave an aggregate stays.
    pub(crate) fn cancel_evacuation(&mut self, aggregate: &str) {
        let is_its = |job: &&mut JobInfo| {
            job.kind == JobKind::Evacuation && job.aggregate.as_deref() == Some(aggregate)
        };
        let jobs = self.0.iter_mut().filter(is_its);
        jobs.filter(|job| !job.state.is_over()).for_each(|job| job.state = JobState::Cancelled);
    }

    /// A clone begins to be split from its parent.
    pub(super) fn note_split(&mut self, aggregate: &str, clone: &str, of: (u64, Option<u64>)) {
        self.begin(JobKind::Split, Some(aggregate.to_owned()), clone.to_owned(), of);
    }

    fn splits_of(&mut self, clone: &str) -> impl Iterator<Item = &mut JobInfo> {
        let is_its = move |job: &&mut JobInfo| job.kind == JobKind::Split && job.target == clone;
        self.0.iter_mut().filter(is_its).filter(|job| !job.state.is_over())
    }

    pub(super) fn is_splitting(&mut self, clone: &str) -> bool {
        self.splits_of(clone).next().is_some()
    }

    /// The split of a clone ends where it is.
    pub(super) fn cancel_split(&mut self, clone: &str) {
        self.splits_of(clone).for_each(|job| job.state = JobState::Cancelled);
    }

    fn begin(
        &mut self,
        kind: JobKind,
        aggregate: Option<String>,
        target: String,
        (size_bytes, rate): (u64, Option<u64>),
    ) {
        self.0.push(JobInfo {
            job: self.0.len() as u64 + 1,
            kind,
            aggregate,
            target,
            state: JobState::Running,
            began: Time::default(),
            ended: None,
            done_bytes: 0,
            size_bytes,
            bytes_per_second: None,
            left_ns: None,
            rate_limit_bytes_per_second: rate,
            reason: None,
        });
    }

    /// Changes what a scrub is not asked for ([`scrub_change`]).
    pub(crate) fn change(&mut self, wanted: &JobChange) -> Result<JobInfo, AdminError> {
        let found = self.0.iter_mut().find(|job| job.job == wanted.job);
        if let Some(job) = found.filter(|job| !job.state.is_over()) {
            job.state = match wanted.action {
                JobAction::Pause => JobState::Paused,
                JobAction::Resume => JobState::Running,
                JobAction::Cancel => JobState::Cancelled,
                JobAction::Set => job.state,
            };
            if let Some(rate) = wanted.rate {
                job.rate_limit_bytes_per_second = rate.bytes_per_second();
            }
        }
        self.show(wanted.job)
    }

    pub(crate) fn list(&self) -> Vec<JobInfo> {
        self.0.clone()
    }

    pub(crate) fn show(&self, number: u64) -> Result<JobInfo, AdminError> {
        let found = self.0.iter().find(|job| job.job == number);
        found.cloned().ok_or_else(|| {
            AdminError::new(Code::NotFound, "cannot show job", number.to_string())
                .because("there is no job of this number")
                .try_next("stroop job list")
        })
    }
}

/// What a change of a job asks of a scrub, if the job is one.
pub(crate) fn scrub_change(job: &JobInfo, wanted: &JobChange) -> Option<ScrubChange> {
    let action = match wanted.action {
        JobAction::Pause => ScrubAction::Pause,
        JobAction::Resume => ScrubAction::Resume,
        JobAction::Cancel => ScrubAction::Stop,
        JobAction::Set => return None,
    };
    let aggregate = job.aggregate.clone().filter(|_| job.kind == JobKind::Scrub)?;
    let rate_bytes_per_second = wanted.rate.and_then(RateLimit::bytes_per_second);
    Some(ScrubChange { aggregate, action, rate_bytes_per_second })
}
