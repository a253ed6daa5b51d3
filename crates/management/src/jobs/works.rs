//! What long work the engine does right now, and what became of work that it does no more.
//!
//! Invariants: the engine is only asked; nothing waits. Of an aggregate that is not in service
//! nothing is told, and what became of its work nobody knows until it is back.

use crate::aggregates::Aggregates;
use crate::jobs::job::{Key, Outcome, Subject};
use crate::jobs::table::{Fate, Going, Work};
use admin_api::JobKind;
use aggregate::{Deletion, Evacuation};
use dblade::AggregateSummary;
use ondisk::identity::REGION_BLOCKS;
use ondisk::scrub::ScrubPhase;
use raid::{FillingStatus, FillingWay, MemberState, ScrubStatus};
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// A look at the engine.
pub(crate) struct Look {
    pub works: Vec<Work>,
    /// The aggregates in service.
    summaries: Vec<AggregateSummary>,
    aggregates: Arc<Aggregates>,
    start: i64,
}

impl Look {
    /// What is going on now. `start` is when the node was started.
    pub(crate) fn new(aggregates: &Arc<Aggregates>, start: i64) -> Self {
        aggregates.settle_upkeep();
        let engine = &aggregates.node.engine;
        let mut summaries = engine.aggregate_summaries();
        summaries.retain(|summary| summary.failure.is_none());
        let mut works = Vec::new();
        for summary in &summaries {
            works.extend(scrubbing(&summary.name, &summary.status.scrub));
            works.extend(summary.status.fillings.iter().map(|one| filling(&summary.name, one)));
            let aggregate = engine.aggregate_named(&summary.name);
            let leaving = aggregate.as_ref().and_then(|aggregate| aggregate.evacuation());
            works.extend(leaving.map(|leaving| evacuation(&summary.name, leaving)));
            let deletions = aggregate.map(|aggregate| aggregate.deletions()).unwrap_or_default();
            works.extend(deletions.into_iter().map(|one| deletion(&summary.name, one)));
        }
        let erasing = aggregates.disks.upkeep.erasing().into_iter();
        works.extend(erasing.map(|one| {
            let kind = if one.aggregate.is_some() { JobKind::Growth } else { JobKind::Zeroing };
            let subject = Subject::Disk(one.disk);
            let key = Key { kind, aggregate: one.aggregate, subject, birth: start };
            running(key, one.zeroed_blocks, one.blocks)
        }));
        Self { works, summaries, aggregates: Arc::clone(aggregates), start }
    }

    /// What became of work that is not among `works`.
    pub(crate) fn fate(&self, key: &Key) -> Fate {
        if let (JobKind::Zeroing | JobKind::Growth, Subject::Disk(disk)) = (key.kind, &key.subject)
        {
            return Fate::Ended(self.end_of_erasing(disk, key.birth));
        }
        let named = |summary: &&AggregateSummary| Some(&summary.name) == key.aggregate.as_ref();
        match self.summaries.iter().find(named) {
            Some(summary) => fate_of(key, summary),
            None => Fate::Away,
        }
    }

    /// Has the disk of a job wait that is being filled, or lets it go on; false if none is.
    pub(crate) fn hold(&self, key: &Key, is_held: bool) -> bool {
        let (Some(aggregate), Subject::Disk(disk)) = (&key.aggregate, &key.subject) else {
            return false;
        };
        let named = |summary: &&AggregateSummary| summary.name == *aggregate;
        let Some(summary) = self.summaries.iter().find(named) else { return false };
        let filling = summary.status.fillings.iter().find(|filling| filling.disk == *disk);
        let found = self.aggregates.node.engine.aggregate_named(aggregate);
        found
            .zip(filling)
            .is_some_and(|(found, filling)| found.parts.store.hold_filling(filling.place, is_held))
    }

    fn end_of_erasing(&self, disk: &str, birth: i64) -> Outcome {
        if birth != self.start {
            return Outcome::failed(
                "the server was stopped before all was erased; begin it again (stroop disk zero)",
            );
        }
        let failure = self.aggregates.disks.upkeep.failure(disk);
        failure.map_or_else(Outcome::succeeded, Outcome::failed)
    }
}

fn running(key: Key, done_blocks: u64, blocks: u64) -> Work {
    Work {
        key,
        going: Going::Running,
        began: None,
        done_bytes: Some(done_blocks.saturating_mul(BLOCK_SIZE_U64)),
        size_bytes: blocks.saturating_mul(BLOCK_SIZE_U64),
    }
}

fn key(kind: JobKind, aggregate: &str, subject: Subject) -> Key {
    Key { kind, aggregate: Some(aggregate.to_owned()), subject, birth: 0 }
}

/// The last scrub of an aggregate, if there was one.
fn scrubbing(aggregate: &str, scrub: &ScrubStatus) -> Option<Work> {
    let going = match scrub.phase {
        ScrubPhase::Never => return None,
        ScrubPhase::Running => Going::Running,
        ScrubPhase::Paused => Going::Held,
        ScrubPhase::Stopped => Going::Over(Outcome::cancelled(), scrub.ended),
        ScrubPhase::Finished => Going::Over(Outcome::succeeded(), scrub.ended),
    };
    let birth = scrub.started.get();
    let key = Key { birth, ..key(JobKind::Scrub, aggregate, Subject::Aggregate) };
    let began = Some(scrub.started);
    Some(Work { going, began, ..running(key, scrub.read_blocks, scrub.blocks) })
}

fn filling(aggregate: &str, filling: &FillingStatus) -> Work {
    let kind = match filling.way {
        FillingWay::Anew => JobKind::Rebuild,
        FillingWay::Resync => JobKind::Resync,
        FillingWay::Copy => JobKind::Replacement,
    };
    let blocks = |regions: u64| regions.saturating_mul(REGION_BLOCKS as u64);
    let key = key(kind, aggregate, Subject::Disk(filling.disk.clone()));
    let going = if filling.is_held { Going::Held } else { Going::Unheld };
    Work { going, ..running(key, blocks(filling.done_regions), blocks(filling.regions)) }
}

fn evacuation(aggregate: &str, leaving: Evacuation) -> Work {
    let Evacuation { group, used_blocks, blocks } = leaving;
    let empty = used_blocks.map_or(0, |used| blocks.saturating_sub(used));
    running(key(JobKind::Evacuation, aggregate, Subject::Group(group)), empty, blocks)
}

fn deletion(aggregate: &str, deletion: Deletion) -> Work {
    let Deletion { volume, name, left_blocks } = deletion;
    let birth = i64::from(volume.get());
    let key = Key { birth, ..key(JobKind::Deletion, aggregate, Subject::Volume(name)) };
    Work { done_bytes: None, ..running(key, 0, left_blocks) }
}

/// What became of work of an aggregate in service that goes on no more.
fn fate_of(key: &Key, summary: &AggregateSummary) -> Fate {
    match &key.subject {
        Subject::Aggregate => Fate::Ended(Outcome {
            reason: Some("another was started before its end was seen".to_owned()),
            ..Outcome::cancelled()
        }),
        Subject::Group(group) => {
            let group = summary.status.groups.get(*group as usize);
            Fate::Ended(match group.is_none_or(raid::GroupStatus::is_removed) {
                true => Outcome::succeeded(),
                false => Outcome::cancelled(),
            })
        }
        Subject::Disk(disk) => fate_of_filling(disk, summary),
        Subject::Volume(_) => Fate::Ended(Outcome::succeeded()),
    }
}

fn fate_of_filling(disk: &str, summary: &AggregateSummary) -> Fate {
    let mut members = summary.status.groups.iter().flat_map(|group| &group.members);
    let member = members.find(|member| member.name.as_deref() == Some(disk));
    let is_filled = summary.status.fillings.iter().any(|filling| filling.disk == disk);
    Fate::Ended(match member.map(|member| &member.state) {
        Some(MemberState::Online) => Outcome::succeeded(),
        Some(MemberState::Rebuilding { .. }) if !is_filled => return Fate::Ending,
        Some(MemberState::Rebuilding { .. }) => {
            Outcome::failed("the disk is filled in another way now (stroop job list)")
        }
        Some(MemberState::Failed { reason }) => Outcome::failed(reason.clone()),
        Some(MemberState::Missing) => Outcome::failed("the disk has gone"),
        None => Outcome::failed("the disk has no place any more (stroop aggr show)"),
    })
}
