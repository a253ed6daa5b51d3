//! What commands that begin jobs have in common: they say how to wait for the job, and with
//! `--wait` they wait for it themselves.
//!
//! Invariants: the job goes on in the server whether anybody waits or not.
//!
//! Fails: as `stroop job wait` does; the job has begun all the same.

use super::job::{title, verdict, wait_for};
use crate::arguments::Options;
use crate::output::Output;
use crate::terminal::Terminal;
use admin_api::{AdminError, Administration, JobInfo, JobKind};

/// What a command began.
pub(super) struct Begun<'a> {
    pub kinds: &'a [JobKind],
    pub aggregate: &'a str,
    /// The disk or group that the job works on, if the aggregate may have several of these jobs.
    pub target: Option<&'a str>,
    /// The newest job that there was before, if the command begins a new one: see [`newest`].
    pub after: u64,
}

/// The number of the newest job.
pub(super) fn newest(node: &dyn Administration) -> Result<u64, AdminError> {
    Ok(node.job_list()?.iter().map(|job| job.job).max().unwrap_or(0))
}

impl Begun<'_> {
    fn is(&self, job: &JobInfo) -> bool {
        self.kinds.contains(&job.kind)
            && job.job > self.after
            && job.aggregate.as_deref() == Some(self.aggregate)
            && self.target.is_none_or(|target| target == job.target)
    }

    /// The answer of the command, with how to wait for the job if there is one; after the job's end
    /// if that was asked for.
    pub(super) fn follow(
        &self,
        output: Output,
        (options, terminal): (&Options, &mut Terminal<'_>),
        node: &dyn Administration,
    ) -> Result<Output, AdminError> {
        let jobs = node.job_list()?;
        let Some(number) = jobs.iter().filter(|job| self.is(job)).map(|job| job.job).max() else {
            return Ok(output);
        };
        if options.wait.is_none() {
            return Ok(output.next(format!("stroop job wait {number}")));
        }
        let job = wait_for((options, terminal), node, number)?;
        verdict(&job)?;
        Ok(output.line(format!("job {number}: {}, {}", title(&job), job.state)))
    }
}
