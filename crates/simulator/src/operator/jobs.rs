//! The jobs that an operator has seen. A job keeps its rate, and its pause, through every end of
//! the node, and the engine works at the rates that the list of jobs shows.
//!
//! Invariants: each list has every job that is not over. A rate or a pause that was answered is
//! shown until another call changes it.
//!
//! Fails: with what an answer shows against that.

use super::views::{Checked, same};
use crate::machine::{AGGREGATE, Machine};
use admin_api::{JobAction, JobChange, JobInfo, JobKind, JobState, RateLimit, Reply, Request};
use std::collections::BTreeMap;

/// A job that is not over, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SeenJob {
    kind: JobKind,
    is_paused: bool,
    /// What an administrator said last, and was answered.
    rate: Option<Option<u64>>,
    waits: Option<bool>,
}

/// See the module.
#[derive(Default)]
pub(super) struct JobBook(BTreeMap<u64, SeenJob>);

impl JobBook {
    /// The numbers of jobs that go on, or wait.
    pub(super) fn open(&self) -> Vec<u64> {
        self.0.keys().copied().collect()
    }

    /// A call after which a job goes on as fast as it can.
    pub(super) fn release(&self, number: u64) -> Option<Request> {
        let job = self.0.get(&number)?;
        let action = match job.kind {
            JobKind::Zeroing | JobKind::Growth | JobKind::Deletion => return None,
            _ if job.is_paused => JobAction::Resume,
            _ => JobAction::Set,
        };
        let rate = Some(RateLimit::None);
        Some(Request::JobChange(JobChange { job: number, action, rate }))
    }

    /// A call was granted, or may have been.
    pub(super) fn note_call(&mut self, request: &Request, is_granted: bool) {
        match request {
            // It may be about the scrub that there is, or begin another.
            Request::ScrubChange(_) => {
                for job in self.0.values_mut().filter(|job| job.kind == JobKind::Scrub) {
                    (job.rate, job.waits) = (None, None);
                }
            }
            Request::JobChange(wanted) => self.note_change(wanted, is_granted),
            _ => {}
        }
    }

    fn note_change(&mut self, wanted: &JobChange, is_granted: bool) {
        let Some(job) = self.0.get_mut(&wanted.job) else { return };
        if !is_granted {
            (job.rate, job.waits) = (None, None);
            return;
        }
        if let Some(rate) = wanted.rate {
            job.rate = Some(rate.bytes_per_second());
        }
        job.waits = match wanted.action {
            JobAction::Pause => Some(true),
            JobAction::Resume => Some(false),
            JobAction::Set => job.waits,
            JobAction::Cancel => None,
        };
    }

    /// Takes in the jobs of an answer, which come in order of number.
    pub(super) fn take_in(&mut self, reply: &Reply) -> Checked {
        match reply {
            Reply::JobList(list) => {
                for number in self.0.keys() {
                    if !list.iter().any(|info| info.job == *number) {
                        return Err(format!("job {number} was not over, and is not in the list"));
                    }
                }
                list.iter().try_for_each(|info| self.take_in_one(info))
            }
            Reply::JobShow(info) | Reply::JobChange(info) => self.take_in_one(info),
            _ => Ok(()),
        }
    }

    fn take_in_one(&mut self, info: &JobInfo) -> Checked {
        if info.state.is_over() {
            self.0.remove(&info.job);
            return Ok(());
        }
        let is_paused = info.state == JobState::Paused;
        let new = SeenJob { kind: info.kind, is_paused, rate: None, waits: None };
        let job = self.0.entry(info.job).or_insert(new);
        job.is_paused = is_paused;
        same(&format!("kind of job {}", info.job), &job.kind, &info.kind)?;
        if let Some(rate) = job.rate {
            same(&format!("rate of {info:?}"), &rate, &info.rate_limit_bytes_per_second)?;
        }
        match job.waits {
            Some(waits) if info.state != JobState::Queued => {
                same(&format!("whether {info:?} waits"), &waits, &is_paused)
            }
            _ => Ok(()),
        }
    }
}

/// The engine goes on as the list of jobs says.
pub(super) fn check_engine(machine: &Machine<'_>, list: &[JobInfo]) -> Checked {
    let Some(aggregate) = machine.aggregate() else { return Ok(()) };
    let shown = |kinds: &[JobKind]| {
        let open = list.iter().filter(|info| !info.state.is_over() && kinds.contains(&info.kind));
        let settings =
            open.map(|info| (info.rate_limit_bytes_per_second, info.state == JobState::Paused));
        let mut settings: Vec<(Option<u64>, bool)> = settings.collect();
        settings.sort_unstable();
        settings
    };
    let leaving = aggregate.evacuation().map(|_| (aggregate.evacuation_rate(), false));
    let emptied = shown(&[JobKind::Evacuation]);
    if emptied.len() == usize::from(leaving.is_some()) {
        same("the rate of a group that leaves", &emptied, &Vec::from_iter(leaving))?;
    }
    let summaries = machine.engine.aggregate_summaries();
    let summary = summaries.iter().find(|one| one.name == AGGREGATE);
    let fillings = summary.into_iter().flat_map(|one| &one.status.fillings);
    let mut filled: Vec<_> = fillings.map(|one| (one.rate, one.is_held)).collect();
    filled.sort_unstable();
    let expected = shown(&[JobKind::Rebuild, JobKind::Resync, JobKind::Replacement]);
    // One may have ended since.
    if expected.len() != filled.len() {
        return Ok(());
    }
    same("rates of disks that are filled, and whether they wait", &expected, &filled)
}
