//! Groups that leave their aggregates, and how fast they are emptied.
//!
//! A thread looks once a second how much is left, so that status can tell the pace; when a group
//! has left, its disks are let go of, and are free.
//!
//! Invariants: a dry run asks, and writes nothing; what the engine refuses is passed on as the
//! cause. How much is left is the engine's, also after a start; only the pace is kept here.

use super::activity::activity;
use super::blocking::{Answer, request, wait_for};
use super::core::Core;
use super::refusals::refusal;
use admin_api::{
    Activity, AdminError, AggregateInfo, AggregateSet, AggregateState, Code, GroupRemove, Removal,
};
use aggregate::{AggregateError, Leaving, LeavingError};
use dblade::EngineError;
use platform::sync::Mutex;
use raid::Pace;
use std::collections::{BTreeMap, VecDeque};
use units::{BLOCK_SIZE_U64, ByteSize};

const REMOVE: &str = "cannot remove a group of";

const CHANGE: &str = "cannot change aggregate";

/// The pace is that of the last so many nanoseconds: a minute, as for rebuilds.
const RECENT_NANOSECONDS: u64 = 60_000_000_000;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// What was in use in a group, and when.
struct Marks {
    group: u32,
    marks: VecDeque<(u64, u64)>,
}

impl Marks {
    fn add(&mut self, now: u64, used_blocks: u64) {
        self.marks.push_back((now, used_blocks));
        while self.marks.get(1).is_some_and(|(at, _)| now - at >= RECENT_NANOSECONDS) {
            self.marks.pop_front();
        }
    }

    fn pace(&self) -> Pace {
        let (Some((then, before)), Some((now, left))) = (self.marks.front(), self.marks.back())
        else {
            return Pace::default();
        };
        let (nanoseconds, second) = (u128::from(now - then), u128::from(NANOSECONDS_PER_SECOND));
        let bytes = u128::from(before.saturating_sub(*left)) * u128::from(BLOCK_SIZE_U64);
        let per_second = (bytes * second).checked_div(nanoseconds).unwrap_or(0);
        let bytes_left = u128::from(*left) * u128::from(BLOCK_SIZE_U64);
        let number = |wide: u128| u64::try_from(wide).unwrap_or(u64::MAX);
        let seconds_left = bytes_left.checked_div(per_second).map(number);
        Pace { bytes_per_second: number(per_second), seconds_left }
    }
}

/// How fast groups are emptied, by aggregate.
#[derive(Default)]
pub(super) struct Emptying(Mutex<BTreeMap<String, Marks>>);

impl Emptying {
    /// Notes what is left of the groups that leave; whether others have left since, or stay.
    fn observe(&self, now: u64, leaving: &BTreeMap<String, Leaving>) -> bool {
        let mut known = self.0.lock();
        let before = known.len();
        known.retain(|name, marks| leaving.get(name).is_some_and(|one| one.group == marks.group));
        let has_ended = known.len() < before;
        for (name, one) in leaving {
            let new = || Marks { group: one.group, marks: VecDeque::new() };
            let marks = known.entry(name.clone()).or_insert_with(new);
            one.used_blocks.into_iter().for_each(|used| marks.add(now, used));
        }
        has_ended
    }

    fn pace(&self, aggregate: &str) -> Pace {
        self.0.lock().get(aggregate).map_or_else(Pace::default, Marks::pace)
    }
}

impl Core {
    pub(super) fn remove_group(&self, wanted: &GroupRemove) -> Result<Removal, AdminError> {
        let _turn = self.turn();
        let (name, group, engine) = (&wanted.name, wanted.group, &self.engine);
        let known = self.aggregate(name)?;
        let error = || AdminError::new(Code::Conflict, REMOVE, name);
        if known.state == AggregateState::Offline {
            return Err(error().because("it is out of service").try_next("stroop status"));
        }
        let consequences = if wanted.cancel {
            if known.leaving.is_none_or(|leaving| leaving.group != group) {
                return Err(error()
                    .because(format!("group {group} is not being emptied"))
                    .try_next(format!("stroop aggr show {name}")));
            }
            ask(name, |done| engine.keep_group(name, done))?;
            tracing::info!(aggregate = name, group, "the group stays, for an administrator");
            vec![format!("group {group} stays; what has moved stays where it is")]
        } else {
            let plan = ask(name, |done| engine.plan_removal(name, group, done))?;
            if !wanted.dry_run {
                ask(name, |done| engine.remove_group(name, group, done))?;
                tracing::warn!(aggregate = name, group, "a group leaves, for an administrator");
            }
            consequences(&known, &plan)
        };
        Ok(Removal { object: name.clone(), consequences, freed_bytes: 0, dry_run: wanted.dry_run })
    }

    pub(super) fn set_aggregate(&self, wanted: &AggregateSet) -> Result<AggregateInfo, AdminError> {
        let _turn = self.turn();
        if let Some(is_on) = wanted.area_cleaning {
            let change = |done| self.engine.set_area_cleaning(&wanted.name, is_on, done);
            request(CHANGE, &wanted.name, change)?;
            tracing::info!(aggregate = wanted.name, is_on, "area cleaning was set");
        }
        self.aggregate(&wanted.name)
    }

    /// Looks how far groups are that leave. The disks of one that has left are free.
    pub(super) fn watch_leaving(&self) {
        let now = self.clock.monotonic_nanoseconds();
        if self.emptying.observe(now, &self.leaving_groups()) {
            let _turn = self.turn();
            self.let_go_of_former_disks();
        }
    }

    /// The groups that leave, by aggregate.
    fn leaving_groups(&self) -> BTreeMap<String, Leaving> {
        let names = self.engine.aggregate_summaries().into_iter().map(|summary| summary.name);
        let leaving = names.filter_map(|name| {
            let leaving = self.engine.aggregate_named(&name)?.leaving()?;
            Some((name, leaving))
        });
        leaving.collect()
    }

    /// What is being done about groups that leave.
    pub(super) fn emptying_groups(&self) -> Vec<Activity> {
        let leaving = self.leaving_groups().into_iter();
        leaving.map(|(name, one)| emptying(&name, &one, &self.emptying.pace(&name))).collect()
    }
}

fn emptying(aggregate: &str, leaving: &Leaving, pace: &Pace) -> Activity {
    let Leaving { group, used_blocks, blocks } = *leaving;
    let what = format!("{aggregate}: emptying group {group}, which leaves then");
    let empty = used_blocks.map_or(0, |used| blocks.saturating_sub(used));
    activity(what, (empty, blocks), pace)
}

/// Has the engine do something about a group of an aggregate.
fn ask<T: Send + 'static>(
    name: &str,
    start: impl FnOnce(Answer<Result<T, EngineError>>),
) -> Result<T, AdminError> {
    match wait_for(start) {
        Some(outcome) => outcome.map_err(|error| refused(name, &error)),
        None => Err(AdminError::new(Code::Failed, REMOVE, name)
            .because("the engine stopped before it was done")),
    }
}

fn refused(name: &str, error: &EngineError) -> AdminError {
    let refused = refusal(REMOVE, name, error);
    let EngineError::Aggregate(AggregateError::Leaving(cause)) = error else { return refused };
    match cause {
        LeavingError::NoGroup { .. } | LeavingError::NotUnderWay => {
            refused.try_next(format!("stroop aggr show {name}"))
        }
        LeavingError::UnderWay { group } => refused.try_next(format!(
            "stroop aggr show {name}, until it has left; or stroop aggr remove-group {name} \
             {group} --cancel"
        )),
        LeavingError::Only => refused.try_next(format!("stroop aggr add {name} --disks N")),
        LeavingError::NoRoom { .. } => refused
            .try_next(format!("stroop aggr add {name} --disks N; or delete volumes or snapshots")),
        LeavingError::Uncounted => refused.try_next("the same command in a moment"),
        LeavingError::Traditional | LeavingError::Object => refused,
    }
}

fn consequences(known: &AggregateInfo, plan: &Leaving) -> Vec<String> {
    let bytes = |blocks: u64| ByteSize(blocks.saturating_mul(BLOCK_SIZE_U64));
    let members = known.disks.iter().filter(|disk| disk.group == Some(plan.group));
    let mut lines = vec![format!(
        "{} move to the other groups, in the background",
        bytes(plan.used_blocks.unwrap_or(plan.blocks))
    )];
    lines.extend(members.map(|disk| format!("{} is free then, its label erased", disk.name)));
    let left = known.size_bytes.saturating_sub(plan.blocks.saturating_mul(BLOCK_SIZE_U64));
    let (left, size) = (ByteSize(left), ByteSize(known.size_bytes));
    lines.push(format!("the aggregate has {left} then, of {size} now"));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = NANOSECONDS_PER_SECOND;

    fn leaving(group: u32, used_blocks: u64) -> BTreeMap<String, Leaving> {
        let one = Leaving { group, used_blocks: Some(used_blocks), blocks: 8192 };
        BTreeMap::from([("a1".to_owned(), one)])
    }

    #[test]
    fn the_pace_is_that_of_the_last_minute() {
        let seen = Emptying::default();
        assert!(!seen.observe(0, &leaving(1, 6000)));
        assert_eq!(seen.pace("a1"), Pace::default());
        // Nothing for a minute, then 20 blocks a second.
        seen.observe(60 * SECOND, &leaving(1, 6000));
        seen.observe(120 * SECOND, &leaving(1, 4800));
        let pace = seen.pace("a1");
        assert_eq!((pace.bytes_per_second, pace.seconds_left), (20 * BLOCK_SIZE_U64, Some(240)));
        let now = emptying("a1", &leaving(1, 4096)["a1"], &pace);
        assert_eq!((now.done_percent, now.left_ns), (50, Some(240 * SECOND)));
        assert_eq!(now.what, "a1: emptying group 1, which leaves then");
    }

    #[test]
    fn it_is_seen_that_a_group_has_left_or_another_leaves() {
        let seen = Emptying::default();
        assert!(!seen.observe(0, &BTreeMap::new()) && !seen.observe(0, &leaving(1, 9)));
        assert!(!seen.observe(1, &leaving(1, 8)));
        assert!(seen.observe(2, &leaving(0, 90)));
        assert!(seen.observe(3, &BTreeMap::new()) && !seen.observe(4, &BTreeMap::new()));
    }

    #[test]
    fn a_refusal_says_what_to_type_next() {
        let next = |cause: LeavingError| {
            let error = EngineError::from(AggregateError::from(cause.clone()));
            let refused = refused("a1", &error);
            assert_eq!(refused.cause, [cause.to_string()]);
            (refused.code, refused.next.unwrap_or_default())
        };
        let shown = (Code::NotFound, "stroop aggr show a1".to_owned());
        assert_eq!(next(LeavingError::NoGroup { group: 7 }), shown);
        let (free, needed) = (ByteSize(1), ByteSize(2));
        for (cause, expected) in [
            (LeavingError::UnderWay { group: 2 }, "remove-group a1 2 --cancel"),
            (LeavingError::Only, "stroop aggr add a1 --disks N"),
            (LeavingError::NoRoom { free, needed }, "stroop aggr add a1 --disks N;"),
            (LeavingError::Uncounted, "in a moment"),
            (LeavingError::Object, ""),
        ] {
            let (code, next) = next(cause);
            assert!(code == Code::Conflict && next.contains(expected), "{next}");
        }
    }
}
