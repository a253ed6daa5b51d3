//! Jobs that are paused, resumed, cancelled, and made faster or slower, as far as the engine can.
//!
//! A scrub keeps in the labels whether it is paused, and its rate. A disk that is being filled does
//! not, nor does a group that leaves or a clone that is split: its job keeps them, and every look
//! has the engine wait or be slow again ([`super::table`]).
//! So the job is marked before the engine is asked, under the lock of looks, and the mark is taken
//! back if the engine cannot, or if the file cannot be written.
//!
//! Invariant: what was answered as paused is paused after a restart, too, and has the same rate.
//!
//! Fails: `Conflict` if the job or its work is over, or work of its kind cannot be changed so;
//! `Failed` if the list of jobs cannot be written.

use crate::jobs::job::{Job, Key, Setting, Subject};
use crate::jobs::room::{Jobs, missing};
use crate::jobs::works::{Look, volume_of};
use admin_api::{
    AdminError, Code, GroupRemove, JobAction, JobChange, JobInfo, JobKind, JobName, JobState,
    RateLimit,
};
use raid::ScrubOrder;
use units::shell_word;

impl Jobs {
    pub(crate) fn change(&self, wanted: &JobChange) -> Result<JobInfo, AdminError> {
        let JobChange { job: number, action, rate } = *wanted;
        let message = format!("cannot {action} job");
        self.look_before();
        let found = self.keeper.kept.lock().table.job(number).cloned();
        let job = found.ok_or_else(|| missing(&message, number))?;
        let is_away = Look::new(&self.aggregates, self.start.get()).is_away(&job.key);
        check(&message, &job, action, is_away)?;
        match job.key.kind {
            _ if is_away => self.abandon(number),
            JobKind::Scrub => self.change_scrub(&message, &job.key, wanted)?,
            JobKind::Rebuild | JobKind::Resync | JobKind::Replacement => {
                self.change_marked(&message, wanted)?;
            }
            JobKind::Evacuation | JobKind::Split if action == JobAction::Set => {
                self.change_marked(&message, wanted)?;
            }
            JobKind::Evacuation => self.keep_group(&job.key)?,
            JobKind::Split => self.stop_split(&message, &job)?,
            JobKind::Zeroing | JobKind::Growth => self.stop_erasing(&job.key),
            JobKind::Deletion => unreachable!("it is refused before"),
        }
        tracing::info!(job = number, kind = %job.key.kind, ?rate, "{action}, for an administrator");
        self.show(&JobName { job: number })
    }

    fn change_scrub(&self, message: &str, key: &Key, wanted: &JobChange) -> Result<(), AdminError> {
        let rate = wanted.rate.map(RateLimit::bytes_per_second);
        let order = match wanted.action {
            JobAction::Pause => ScrubOrder::Pause,
            JobAction::Resume => ScrubOrder::Resume { rate: rate.map(Option::unwrap_or_default) },
            JobAction::Cancel => ScrubOrder::Stop,
            JobAction::Set => ScrubOrder::SetRate { rate: rate.flatten() },
        };
        self.scrubs.order(message, key.aggregate.as_deref().unwrap_or_default(), order)
    }

    fn keep_group(&self, key: &Key) -> Result<(), AdminError> {
        let (Some(name), Subject::Group(group)) = (&key.aggregate, &key.subject) else {
            unreachable!("a group leaves an aggregate")
        };
        let (name, group) = (name.clone(), *group);
        let (rate_bytes_per_second, dry_run) = (None, false);
        let wanted = GroupRemove { name, group, cancel: true, rate_bytes_per_second, dry_run };
        self.aggregates.remove_group(&wanted).map(drop)
    }

    fn stop_split(&self, message: &str, job: &Job) -> Result<(), AdminError> {
        let node = &self.aggregates.node;
        let name = job.key.aggregate.as_deref().unwrap_or_default();
        // By its number: it may have another name by now.
        let clone = volume_of(&job.key);
        let stop = |done| node.engine.stop_split_of(name, clone, done);
        node.waits.request(message, &job.number.to_string(), stop)
    }

    fn stop_erasing(&self, key: &Key) {
        let Subject::Disk(disk) = &key.subject else { unreachable!("a disk is erased") };
        let mut kept = self.keeper.kept.lock();
        let disks = self.aggregates.disks.upkeep.cancel(disk);
        kept.table.give_up(key.kind, &disks);
    }

    /// Ends a job of which nobody can tell how its work is.
    fn abandon(&self, number: u64) {
        let at = self.aggregates.node.clock.wall();
        let mut kept = self.keeper.kept.lock();
        kept.changes += u64::from(kept.table.abandon(number, at));
    }

    /// Has work wait whose job keeps how it is to go, lets it go on, or sets its rate.
    fn change_marked(&self, message: &str, wanted: &JobChange) -> Result<(), AdminError> {
        let number = wanted.job;
        let error = |code: Code, cause: &str| {
            AdminError::new(code, message, number.to_string()).because(cause)
        };
        let marked = {
            let mut kept = self.keeper.kept.lock();
            let Some(job) = kept.table.job(number) else {
                return Err(missing(message, number));
            };
            let (key, before) = (job.key.clone(), job.setting());
            let after = after(before, wanted);
            let is_open = kept.table.set(number, after).is_some();
            let look = Look::new(&self.aggregates, self.start.get());
            let is_done = is_open && look.go_as(&key, after);
            if !is_done {
                kept.table.set(number, before);
            }
            kept.changes += 1;
            is_done.then_some((key, before))
        };
        let Some((key, before)) = marked else {
            // Or all is done, and the labels that say so are being written.
            return Err(error(Code::Conflict, "it ended a moment ago").try_next("stroop job list"));
        };
        if self.keeper.store() {
            return Ok(());
        }
        let mut kept = self.keeper.kept.lock();
        kept.table.set(number, before);
        Look::new(&self.aggregates, self.start.get()).go_as(&key, before);
        drop(kept);
        let cause = "the list of jobs cannot be written, so a restart would not know it";
        let next = "make room in the state directory, and the same command again";
        Err(error(Code::Failed, cause).try_next(next))
    }
}

/// How the work of a job is to go after a change.
fn after(before: Setting, wanted: &JobChange) -> Setting {
    let state = match wanted.action {
        JobAction::Pause => JobState::Paused,
        JobAction::Resume => JobState::Running,
        JobAction::Cancel | JobAction::Set => before.state,
    };
    Setting { state, rate: wanted.rate.map_or(before.rate, RateLimit::bytes_per_second) }
}

/// Whether a job can be changed so. If its aggregate `is_away` it can be given up, whatever it is.
fn check(message: &str, job: &Job, action: JobAction, is_away: bool) -> Result<(), AdminError> {
    let number = job.number;
    let refused = |cause: String, next: String| {
        let error = AdminError::new(Code::Conflict, message, number.to_string());
        Err(error.because(cause).try_next(next))
    };
    if job.state.is_over() {
        return refused(format!("it is over: {}", job.state), "stroop job list".to_owned());
    }
    match action {
        JobAction::Cancel if is_away => return Ok(()),
        JobAction::Pause | JobAction::Resume | JobAction::Set if is_away => {
            return refused(
                "its aggregate is not in service".to_owned(),
                format!("stroop status; or stroop job cancel {number}, if it will not be again"),
            );
        }
        JobAction::Pause | JobAction::Resume | JobAction::Cancel | JobAction::Set => {}
    }
    let (kind, subject) = (job.key.kind, &job.key.subject);
    let disk = shell_word(&subject.to_string());
    let aggregate = job.key.aggregate.as_deref().unwrap_or_default();
    match (kind, action) {
        (JobKind::Zeroing | JobKind::Growth | JobKind::Deletion, JobAction::Set) => refused(
            "only scrubs, splits, disks that are filled and groups that leave have a rate".to_owned(),
            format!("stroop job show {number}"),
        ),
        (JobKind::Rebuild | JobKind::Resync, JobAction::Cancel) => refused(
            format!(
                "{subject} has its place already, and the group is degraded until it holds all; a \
                 {kind} can be paused"
            ),
            format!("stroop job pause {number}; or stroop disk fail {disk}, to do without it"),
        ),
        (JobKind::Replacement, JobAction::Cancel) => refused(
            "the labels name both disks until one of them fails; a replacement can be paused"
                .to_owned(),
            format!("stroop job pause {number}"),
        ),
        (JobKind::Evacuation, JobAction::Pause | JobAction::Resume) => refused(
            "a group that leaves is emptied without a pause; what has moved stays where it is when \
             the job is cancelled"
                .to_owned(),
            format!("stroop job cancel {number}, and later stroop aggr remove-group {aggregate}"),
        ),
        (JobKind::Split, JobAction::Pause | JobAction::Resume) => refused(
            "a clone is split without a pause; what was copied is its own when the job is cancelled"
                .to_owned(),
            format!("stroop job cancel {number}, and later stroop clone split {disk}"),
        ),
        (JobKind::Zeroing | JobKind::Growth, JobAction::Pause | JobAction::Resume) => {
            let again = match kind {
                JobKind::Zeroing => format!("stroop disk zero {disk}"),
                _ => format!("stroop aggr add {aggregate} --disks DISK"),
            };
            refused(
                "a disk is erased without a pause; what holds zeros is passed over quickly when it \
                 is begun again"
                    .to_owned(),
                format!("stroop job cancel {number}, and later {again}"),
            )
        }
        (JobKind::Deletion, JobAction::Pause | JobAction::Resume | JobAction::Cancel) => refused(
            "the volume is gone; its blocks are freed with every consistency point until none is \
             left"
                .to_owned(),
            format!("stroop job wait {number}"),
        ),
        (_, JobAction::Pause) if job.state == JobState::Paused => {
            refused("it is paused already".to_owned(), format!("stroop job resume {number}"))
        }
        (_, JobAction::Resume) if job.state == JobState::Running => {
            refused("it is not paused".to_owned(), format!("stroop job show {number}"))
        }
        (_, JobAction::Pause | JobAction::Resume | JobAction::Cancel | JobAction::Set) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::job::Identities;
    use units::Timestamp;

    fn job(kind: JobKind, state: JobState) -> Job {
        let subject = match kind {
            JobKind::Scrub => Subject::Aggregate,
            JobKind::Evacuation => Subject::Group(1),
            JobKind::Deletion | JobKind::Split => Subject::Volume("home".to_owned()),
            _ => Subject::Disk("d4".to_owned()),
        };
        let (aggregate, identities) = (Some("a1".to_owned()), Identities::default());
        let key = Key { kind, aggregate, subject, birth: 0, identities };
        Job { state, ..Job::new(7, key, Timestamp(0)) }
    }

    #[test]
    fn a_refusal_says_why_and_what_to_type_next() {
        use JobAction::{Cancel, Pause, Resume, Set};
        use JobKind::{
            Deletion, Evacuation, Growth, Rebuild, Replacement, Resync, Scrub, Split, Zeroing,
        };
        use JobState::{Paused, Queued, Running, Succeeded};
        for (kind, state, action, next) in [
            (Scrub, Succeeded, Pause, "stroop job list"),
            (Scrub, Paused, Pause, "stroop job resume 7"),
            (Rebuild, Running, Resume, "stroop job show 7"),
            (Rebuild, Running, Cancel, "stroop job pause 7; or stroop disk fail d4"),
            (Resync, Paused, Cancel, "stroop job pause 7; or stroop disk fail d4"),
            (Replacement, Running, Cancel, "stroop job pause 7"),
            (Evacuation, Running, Pause, "stroop job cancel 7, and later stroop aggr remove-"),
            (Split, Running, Pause, "stroop job cancel 7, and later stroop clone split home"),
            (Zeroing, Running, Pause, "stroop job cancel 7, and later stroop disk zero d4"),
            (Deletion, Running, Cancel, "stroop job wait 7"),
            (Growth, Running, Resume, "stroop job cancel 7, and later stroop aggr add a1"),
            (Zeroing, Running, Set, "stroop job show 7"),
            (Scrub, Succeeded, Set, "stroop job list"),
        ] {
            let refused = check("cannot change job", &job(kind, state), action, false).unwrap_err();
            assert_eq!((refused.code, refused.cause.len()), (Code::Conflict, 1));
            let found = refused.next.unwrap_or_default();
            assert!(found.starts_with(next), "{kind} {state} {action}: {found}");
        }
        for (kind, state, action) in [
            (Scrub, Running, Pause),
            (Scrub, Paused, Resume),
            (Scrub, Paused, Cancel),
            (Resync, Running, Pause),
            (Replacement, Paused, Resume),
            (Evacuation, Running, Cancel),
            (Growth, Running, Cancel),
            (Scrub, Paused, Set),
            (Rebuild, Running, Set),
            (Resync, Paused, Set),
            (Replacement, Running, Set),
            (Evacuation, Running, Set),
            (Split, Running, Set),
            (Split, Running, Cancel),
        ] {
            assert!(check("", &job(kind, state), action, false).is_ok(), "{kind} {state} {action}");
        }
        // Of an aggregate that is not in service, whether its job waited before or not.
        for (kind, state) in [(Scrub, Queued), (Rebuild, Paused), (Deletion, Queued)] {
            assert!(check("", &job(kind, state), Cancel, true).is_ok(), "{kind} {state}");
            let refused = check("", &job(kind, state), Resume, true).unwrap_err();
            assert_eq!(refused.cause, ["its aggregate is not in service"]);
        }
    }
}
