//! Groups that leave their aggregates.
//!
//! A thread looks once a second how much is left, so that status can tell the pace; when a group
//! has left, its disks are let go of, and are free.
//!
//! Invariants: a dry run asks, and writes nothing; what the engine refuses is passed on as the
//! cause.

use crate::aggregates::room::Aggregates;
use crate::node::Node;
use crate::pace::activity;
use crate::refusals::refusal;
use crate::waits::Answer;
use admin_api::{
    Activity, AdminError, AggregateInfo, AggregateSet, AggregateState, Code, GroupRemove, Removal,
};
use aggregate::{AggregateError, Evacuation, EvacuationError};
use dblade::EngineError;
use raid::Pace;
use std::collections::BTreeMap;
use units::{BLOCK_SIZE_U64, ByteSize};

const REMOVE: &str = "cannot remove a group of";

const CHANGE: &str = "cannot change aggregate";

impl Aggregates {
    pub(crate) fn remove_group(&self, wanted: &GroupRemove) -> Result<Removal, AdminError> {
        let _turn = self.node.turn();
        let (name, group, engine) = (&wanted.name, wanted.group, &self.node.engine);
        let known = self.aggregate(name)?;
        let error = || AdminError::new(Code::Conflict, REMOVE, name);
        if known.state == AggregateState::Offline {
            return Err(error().because("it is out of service").try_next("stroop status"));
        }
        let consequences = if wanted.cancel {
            if known.leaving.is_none_or(|leaving| leaving.group != group) {
                return Err(error()
                    .because(format!("group {group} is not being evacuated"))
                    .try_next(format!("stroop aggr show {name}")));
            }
            ask(&self.node, name, |done| engine.keep_group(name, done))?;
            tracing::info!(aggregate = name, group, "the group stays, for an administrator");
            vec![format!("group {group} stays; what has moved stays where it is")]
        } else {
            let plan = ask(&self.node, name, |done| engine.plan_removal(name, group, done))?;
            if !wanted.dry_run {
                let rate = wanted.rate_bytes_per_second;
                ask(&self.node, name, |done| engine.remove_group(name, group, rate, done))?;
                tracing::warn!(aggregate = name, group, ?rate, "an administrator removes a group");
            }
            consequences(&known, &plan)
        };
        Ok(Removal::new(name.clone(), consequences, wanted.dry_run))
    }

    pub(crate) fn set_aggregate(&self, wanted: &AggregateSet) -> Result<AggregateInfo, AdminError> {
        let _turn = self.node.turn();
        if let Some(is_on) = wanted.area_cleaning {
            let change = |done| self.node.engine.set_area_cleaning(&wanted.name, is_on, done);
            self.node.waits.request(CHANGE, &wanted.name, change)?;
            tracing::info!(aggregate = wanted.name, is_on, "area cleaning was set");
        }
        self.aggregate(&wanted.name)
    }

    /// Looks how far groups are that leave. The disks of one that has left are free.
    pub(crate) fn watch_leaving(&self) {
        let now = self.node.clock.monotonic_nanoseconds();
        if self.emptying.observe(now, &self.leaving_groups()) {
            let _turn = self.node.turn();
            self.let_go_of_former_disks();
        }
    }

    /// The groups that leave, by aggregate.
    fn leaving_groups(&self) -> BTreeMap<String, Evacuation> {
        let names = self.node.engine.aggregate_summaries().into_iter().map(|summary| summary.name);
        let leaving = names.filter_map(|name| {
            let leaving = self.node.engine.aggregate_named(&name)?.evacuation()?;
            Some((name, leaving))
        });
        leaving.collect()
    }

    /// What is being done about groups that leave.
    pub(crate) fn emptying_groups(&self) -> Vec<Activity> {
        let leaving = self.leaving_groups().into_iter();
        leaving.map(|(name, one)| emptying(&name, &one, &self.emptying.pace(&name))).collect()
    }
}

fn emptying(aggregate: &str, leaving: &Evacuation, pace: &Pace) -> Activity {
    let Evacuation { group, used_blocks, blocks } = *leaving;
    let what = format!("{aggregate}: emptying group {group}, which leaves then");
    let empty = used_blocks.map_or(0, |used| blocks.saturating_sub(used));
    activity(what, (empty, blocks), pace)
}

/// Has the engine do something about a group of an aggregate.
fn ask<T: Send + 'static>(
    node: &Node,
    name: &str,
    start: impl FnOnce(Answer<Result<T, EngineError>>),
) -> Result<T, AdminError> {
    match node.waits.wait_for(start) {
        Some(outcome) => outcome.map_err(|error| refused(name, &error)),
        None => Err(AdminError::new(Code::Failed, REMOVE, name)
            .because("the engine stopped before the request was done")),
    }
}

fn refused(name: &str, error: &EngineError) -> AdminError {
    let refused = refusal(REMOVE, name, error);
    let EngineError::Aggregate(AggregateError::Evacuation(cause)) = error else { return refused };
    match cause {
        EvacuationError::NoGroup { .. } | EvacuationError::NotUnderWay => {
            refused.try_next(format!("stroop aggr show {name}"))
        }
        EvacuationError::UnderWay { group } => refused.try_next(format!(
            "stroop aggr show {name}, until it has left; or stroop aggr remove-group {name} \
             {group} --cancel"
        )),
        EvacuationError::Only | EvacuationError::Log => {
            refused.try_next(format!("stroop aggr add {name} --disks N"))
        }
        EvacuationError::NoRoom { .. } => refused
            .try_next(format!("stroop aggr add {name} --disks N; or delete volumes or snapshots")),
        EvacuationError::Uncounted => refused.try_next("the same command in a moment"),
        EvacuationError::Traditional | EvacuationError::Object => refused,
    }
}

fn consequences(known: &AggregateInfo, plan: &Evacuation) -> Vec<String> {
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

    #[test]
    fn what_is_done_about_a_group_that_leaves_is_said_with_its_pace() {
        let pace = Pace { bytes_per_second: 1 << 20, seconds_left: Some(240) };
        let leaving = Evacuation { group: 1, used_blocks: Some(4096), blocks: 8192 };
        let now = emptying("a1", &leaving, &pace);
        assert_eq!((now.done_percent, now.left_ns), (50, Some(240_000_000_000)));
        assert_eq!(now.what, "a1: emptying group 1, which leaves then");
    }

    #[test]
    fn a_refusal_says_what_to_type_next() {
        let next = |cause: EvacuationError| {
            let error = EngineError::from(AggregateError::from(cause.clone()));
            let refused = refused("a1", &error);
            assert_eq!(refused.cause, [cause.to_string()]);
            (refused.code, refused.next.unwrap_or_default())
        };
        let shown = (Code::NotFound, "stroop aggr show a1".to_owned());
        assert_eq!(next(EvacuationError::NoGroup { group: 7 }), shown);
        let (free, needed) = (ByteSize(1), ByteSize(2));
        for (cause, expected) in [
            (EvacuationError::UnderWay { group: 2 }, "remove-group a1 2 --cancel"),
            (EvacuationError::Only, "stroop aggr add a1 --disks N"),
            (EvacuationError::NoRoom { free, needed }, "stroop aggr add a1 --disks N;"),
            (EvacuationError::Uncounted, "in a moment"),
            (EvacuationError::Object, ""),
        ] {
            let (code, next) = next(cause);
            assert!(code == Code::Conflict && next.contains(expected), "{next}");
        }
    }
}
