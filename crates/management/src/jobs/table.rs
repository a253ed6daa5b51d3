//! The jobs of a node, and how a look at the engine changes them.
//!
//! Invariants:
//! - A number is given once, in ascending order.
//! - Work that goes on has exactly one job that is not over.
//! - A job that is over changes no more, and is forgotten when [`ENDED_MAX`] later ones are over. A
//!   job whose work the engine still tells of is not forgotten: the work would look new.
//!
//! Fails: never. Work beyond [`OPEN_MAX`] gets no job.

use crate::jobs::job::{Job, Key, Outcome, Setting, Subject};
use crate::pace::Recent;
use admin_api::{JobKind, JobState};
use std::collections::BTreeSet;
use units::Timestamp;

/// Jobs that are over and are kept: a screen or two, and weeks of a node that is well.
pub(crate) const ENDED_MAX: usize = 100;
/// Jobs that are not over: several for each disk of the largest node.
pub(crate) const OPEN_MAX: usize = 4096;

/// Beginnings and ends of jobs that are remembered until somebody takes them.
const TURNS_MAX: usize = 1024;

/// Whether work goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Going {
    Running,
    /// Waits until it is resumed.
    Held,
    /// Goes on, and is to wait if its job is paused: the engine does not keep that over a restart.
    Unheld,
    /// Ended, at a time.
    Over(Outcome, Timestamp),
}

/// How fast work may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limit {
    /// Bytes a second; none if it goes as fast as it can.
    pub rate: Option<u64>,
    /// Whether the engine keeps it over a restart; else its job does.
    pub is_kept: bool,
}

impl Limit {
    pub(crate) const NONE: Self = Self { rate: None, is_kept: true };
}

/// Work that the engine tells of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    pub key: Key,
    pub going: Going,
    pub limit: Limit,
    /// When it began, if the engine knows.
    pub began: Option<Timestamp>,
    /// `None` if the engine knows no more than what is left: `size_bytes` then.
    pub done_bytes: Option<u64>,
    pub size_bytes: u64,
}

/// What became of work of which the engine tells nothing any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Its aggregate is not in service, so nobody can tell.
    Away,
    /// All is done, and the labels that say so are being written.
    Ending,
    Ended(Outcome),
}

/// What a look came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Observed {
    /// A job began, changed its state or ended.
    pub has_changed: bool,
    /// Work that goes on though its job is paused.
    pub to_hold: Vec<Key>,
    /// Work that goes at another rate than its job has.
    pub to_limit: Vec<(Key, Option<u64>)>,
}

/// When a look was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub wall: Timestamp,
    pub monotonic_nanoseconds: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Table {
    /// In order of number.
    jobs: Vec<Job>,
    next_number: u64,
    /// Jobs that began or ended, as they were then. Not kept over a restart.
    turns: Vec<Job>,
}

impl Table {
    /// The jobs that a file told of. No job with `next_number` or above was there ever.
    pub(crate) const fn new(jobs: Vec<Job>, next_number: u64) -> Self {
        Self { jobs, next_number, turns: Vec::new() }
    }

    pub(crate) fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    pub(crate) const fn next_number(&self) -> u64 {
        self.next_number
    }

    pub(crate) fn job(&self, number: u64) -> Option<&Job> {
        self.jobs.iter().find(|job| job.number == number)
    }

    /// Takes in a look at the engine. `fate` tells what became of work that is not among `works`.
    pub(crate) fn observe(
        &mut self,
        now: Now,
        works: &[Work],
        fate: &dyn Fn(&Key) -> Fate,
    ) -> Observed {
        let (before, mut has_changed) = (self.next_number, false);
        let (mut to_hold, mut to_limit) = (Vec::new(), Vec::new());
        let mut told = BTreeSet::new();
        for work in works {
            let at = self.position_of(work).or_else(|| self.begin(work, now));
            let Some(job) = at.and_then(|at| self.jobs.get_mut(at)) else { continue };
            told.insert(job.number);
            if job.key.subject != work.key.subject {
                // Its disk has a short name by now, or its volume another name.
                job.key.subject = work.key.subject.clone();
                has_changed = true;
            }
            let was_over = job.state.is_over();
            has_changed |= take_in(job, work, now);
            if job.state.is_over() && !was_over {
                note(&mut self.turns, job);
            }
            if job.state == JobState::Paused && work.going == Going::Unheld {
                to_hold.push(job.key.clone());
            }
            if !job.state.is_over() && work.limit.rate != job.rate {
                to_limit.push((job.key.clone(), job.rate));
            }
        }
        for job in &mut self.jobs {
            if job.state.is_over() || told.contains(&job.number) {
                continue;
            }
            has_changed |= match fate(&job.key) {
                Fate::Away if job.state == JobState::Running => change(job, JobState::Queued),
                Fate::Away | Fate::Ending => false,
                Fate::Ended(outcome) => {
                    let has_ended = end(job, &outcome, now.wall);
                    note(&mut self.turns, job);
                    has_ended
                }
            };
        }
        self.forget(&told);
        let has_changed = has_changed || self.next_number != before;
        Observed { has_changed, to_hold, to_limit }
    }

    /// Marks a job as paused or running, and with its rate, before the engine is asked, or takes
    /// the mark back; what it had before. `None` if it is over.
    pub(crate) fn set(&mut self, number: u64, setting: Setting) -> Option<Setting> {
        let mut open = self.jobs.iter_mut().filter(|job| !job.state.is_over());
        let job = open.find(|job| job.number == number)?;
        let before = job.setting();
        change(job, setting.state);
        job.rate = setting.rate;
        Some(before)
    }

    /// The jobs of this kind on these disks are given up: when they end early, that is why.
    pub(crate) fn give_up(&mut self, kind: JobKind, disks: &[String]) {
        let is_one = |job: &&mut Job| {
            job.key.kind == kind
                && disks.iter().any(|disk| job.key.subject == Subject::Disk(disk.clone()))
        };
        let open = self.jobs.iter_mut().filter(|job| !job.state.is_over());
        open.filter(is_one).for_each(|job| job.is_given_up = true);
    }

    /// Ends a job of which nobody can tell how its work is; false if it is over.
    pub(crate) fn abandon(&mut self, number: u64, at: Timestamp) -> bool {
        let mut open = self.jobs.iter_mut().filter(|job| !job.state.is_over());
        let Some(job) = open.find(|job| job.number == number) else { return false };
        let reason = "given up while its aggregate was not in service; if the aggregate comes \
                      back, what goes on is another job";
        let outcome = Outcome { reason: Some(reason.to_owned()), ..Outcome::cancelled() };
        let has_ended = end(job, &outcome, at);
        note(&mut self.turns, job);
        has_ended
    }

    /// The jobs that began or ended since this was asked last, as they were then.
    pub(crate) fn take_turns(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.turns)
    }

    /// The job of work that goes on, or of work that is over.
    fn position_of(&self, work: &Work) -> Option<usize> {
        let is_over = matches!(work.going, Going::Over(..));
        let is_one = |job: &Job| job.key.is_of(&work.key) && (is_over || !job.state.is_over());
        self.jobs.iter().rposition(is_one)
    }

    /// Gives work a number.
    fn begin(&mut self, work: &Work, now: Now) -> Option<usize> {
        if self.jobs.iter().filter(|job| !job.state.is_over()).count() >= OPEN_MAX {
            return None;
        }
        let began = work.began.unwrap_or(now.wall);
        let rate = work.limit.rate;
        let job = Job { rate, ..Job::new(self.next_number, work.key.clone(), began) };
        note(&mut self.turns, &job);
        self.jobs.push(job);
        self.next_number += 1;
        Some(self.jobs.len() - 1)
    }

    /// Forgets the oldest jobs that are over, but those that the engine still tells of.
    fn forget(&mut self, told: &BTreeSet<u64>) {
        let is_old = |job: &Job| job.state.is_over() && !told.contains(&job.number);
        let mut excess =
            self.jobs.iter().filter(|job| is_old(job)).count().saturating_sub(ENDED_MAX);
        self.jobs.retain(|job| {
            let is_kept = excess == 0 || !is_old(job);
            excess -= usize::from(!is_kept);
            is_kept
        });
    }
}

/// Remembers that a job began or ended.
fn note(turns: &mut Vec<Job>, job: &Job) {
    if turns.len() < TURNS_MAX {
        turns.push(job.clone());
    }
}

/// Takes in what the engine tells of a job's work; whether its state changes.
fn take_in(job: &mut Job, work: &Work, now: Now) -> bool {
    if job.state.is_over() {
        return false;
    }
    // A disk may have another name since a restart, and a file of before told no identities.
    let is_renamed = job.key != work.key;
    job.key.clone_from(&work.key);
    match work.done_bytes {
        Some(done_bytes) => (job.done_bytes, job.size_bytes) = (done_bytes, work.size_bytes),
        None => {
            job.size_bytes = job.size_bytes.max(work.size_bytes);
            job.done_bytes = job.size_bytes - work.size_bytes;
        }
    }
    let mut is_limited = false;
    if work.limit.is_kept {
        is_limited = std::mem::replace(&mut job.rate, work.limit.rate) != work.limit.rate;
    }
    let is_changed = match &work.going {
        Going::Unheld if job.state == JobState::Paused => false,
        Going::Running | Going::Unheld => {
            job.recent.add(now.monotonic_nanoseconds, job.done_bytes);
            change(job, JobState::Running)
        }
        Going::Held => change(job, JobState::Paused),
        Going::Over(outcome, at) => end(job, outcome, *at),
    };
    is_renamed || is_limited || is_changed
}

/// Changes the state; whether it was another.
fn change(job: &mut Job, state: JobState) -> bool {
    if state != JobState::Running {
        job.recent = Recent::default();
    }
    std::mem::replace(&mut job.state, state) != state
}

fn end(job: &mut Job, outcome: &Outcome, at: Timestamp) -> bool {
    job.ended = Some(at);
    job.rate = None;
    if job.is_given_up && outcome.state == JobState::Failed {
        return change(job, JobState::Cancelled);
    }
    job.reason.clone_from(&outcome.reason);
    if outcome.state == JobState::Succeeded {
        job.done_bytes = job.size_bytes;
    }
    change(job, outcome.state)
}

#[cfg(test)]
mod tests;
