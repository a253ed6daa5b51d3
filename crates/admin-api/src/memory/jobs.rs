//! The jobs of the node in memory: its scrubs.

use crate::error::{AdminError, Code};
use crate::jobs::{JobInfo, JobKind, JobState};
use crate::scrub::{ScrubInfo, ScrubState};
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
            job.aggregate.as_ref() == Some(&scrub.aggregate) && !job.state.is_over()
        };
        if let Some(job) = self.0.iter_mut().find(is_known) {
            job.state = state;
            return;
        }
        self.0.push(JobInfo {
            job: self.0.len() as u64 + 1,
            kind: JobKind::Scrub,
            aggregate: Some(scrub.aggregate.clone()),
            target: "all disks".to_owned(),
            state,
            began: Time::default(),
            ended: None,
            done_bytes: 0,
            size_bytes: scrub.size_bytes,
            bytes_per_second: None,
            left_ns: None,
            reason: None,
        });
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
