//! What long work the engine does right now, and what became of work that it does no more.
//!
//! Invariants: the engine is only asked; nothing waits. Of an aggregate that is not in service
//! nothing is told, and what became of its work nobody knows until it is back.

use crate::aggregates::{Aggregates, names_of};
use crate::jobs::job::{Identities, Key, Outcome, Setting, Subject};
use crate::jobs::table::{Fate, Going, Limit, Work};
use admin_api::{JobKind, JobState};
use aggregate::{Aggregate, CloneSplit, Deletion, Evacuation};
use dblade::{AggregateSummary, Engine, ServedVolume};
use ondisk::identity::REGION_BLOCKS;
use ondisk::scrub::ScrubPhase;
use raid::{FillingStatus, FillingWay, MemberState, ScrubStatus};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, VolumeId};

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
            works.extend(scrubbing(summary, &summary.status.scrub));
            let of_disks = summary.status.fillings.iter();
            works.extend(of_disks.map(|one| {
                let called = aggregates.disks.short_names.name(&one.identity);
                filling(summary, one, called)
            }));
            let aggregate = engine.aggregate_named(&summary.name);
            let leaving = aggregate.as_ref().and_then(|aggregate| aggregate.evacuation());
            let rate = aggregate.as_ref().and_then(|aggregate| aggregate.evacuation_rate());
            works.extend(leaving.map(|leaving| evacuation(summary, leaving, rate)));
            let splits = aggregate.as_ref().map(|aggregate| aggregate.splits()).unwrap_or_default();
            works.extend(splits.into_iter().filter_map(|one| split(engine, summary, one)));
            let deletions = aggregate.map(|aggregate| aggregate.deletions()).unwrap_or_default();
            works.extend(deletions.into_iter().map(|one| deletion(summary, one)));
        }
        let erasing = aggregates.disks.upkeep.erasing().into_iter();
        works.extend(erasing.map(|one| {
            let kind = if one.aggregate.is_some() { JobKind::Growth } else { JobKind::Zeroing };
            let subject = Subject::Disk(one.disk);
            let identities = Identities::default();
            let key = Key { kind, aggregate: one.aggregate, subject, birth: start, identities };
            running(key, one.zeroed_blocks, one.blocks)
        }));
        Self { works, summaries, aggregates: Arc::clone(aggregates), start }
    }

    /// What became of work that is not among `works`.
    pub(crate) fn fate(&self, key: &Key) -> Fate {
        if self.is_deleted(key) {
            let reason = Some("its aggregate was deleted".to_owned());
            return Fate::Ended(Outcome { reason, ..Outcome::cancelled() });
        }
        let is_of_this_start = key.birth == self.start;
        match (key.kind, &key.subject) {
            (JobKind::Zeroing | JobKind::Growth, Subject::Disk(disk)) if is_of_this_start => {
                let failure = self.aggregates.disks.upkeep.failure(disk);
                Fate::Ended(failure.map_or_else(Outcome::succeeded, Outcome::failed))
            }
            (JobKind::Zeroing, Subject::Disk(disk)) => Fate::Ended(Outcome::failed(format!(
                "the server was stopped before all was erased; begin it again (stroop disk zero \
                 {disk})"
            ))),
            (JobKind::Split, _) => self.summary(key).map_or(Fate::Away, |summary| {
                let engine = &self.aggregates.node.engine;
                Fate::Ended(fate_of_split(engine, key, summary))
            }),
            _ => self.summary(key).map_or(Fate::Away, |summary| fate_of(key, summary)),
        }
    }

    /// Whether nobody can tell how the work is: its aggregate is not in service.
    pub(crate) fn is_away(&self, key: &Key) -> bool {
        if self.is_deleted(key) {
            return false;
        }
        match key.kind {
            JobKind::Zeroing | JobKind::Growth if key.birth == self.start => false,
            JobKind::Zeroing => false,
            _ => self.summary(key).is_none(),
        }
    }

    /// Whether the aggregate that work is done to was deleted.
    fn is_deleted(&self, key: &Key) -> bool {
        let deleted = &self.aggregates.disks.deleted;
        key.identities.aggregate.is_some_and(|identity| deleted.has(&identity))
    }

    /// The aggregate in service that work is done to.
    fn summary(&self, key: &Key) -> Option<&AggregateSummary> {
        self.summaries.iter().find(|one| key.is_of_aggregate(one.identity, &one.name))
    }

    /// Has the disk of a job wait that is being filled, or lets it go on; false if none is.
    pub(crate) fn hold(&self, key: &Key, is_held: bool) -> bool {
        self.change_filling(key, |store, place| store.hold_filling(place, is_held))
    }

    /// Sets how fast the disk of a job is filled, or its group is emptied; false if none is.
    pub(crate) fn limit(&self, key: &Key, rate: Option<u64>) -> bool {
        match key.subject {
            Subject::Group(group) => self.limit_evacuation(key, group, rate),
            Subject::Volume(_) => self.limit_split(key, rate),
            _ => self.change_filling(key, |store, place| store.limit_filling(place, rate)),
        }
    }

    /// Has the work of a job go on so; false if there is none.
    pub(crate) fn go_as(&self, key: &Key, setting: Setting) -> bool {
        // The rate first: what is let go may not be fast for a moment.
        let is_limited = self.limit(key, setting.rate);
        match key.kind {
            // They are never held.
            JobKind::Evacuation | JobKind::Split => is_limited,
            _ => is_limited && self.hold(key, setting.state == JobState::Paused),
        }
    }

    fn limit_evacuation(&self, key: &Key, group: u32, rate: Option<u64>) -> bool {
        let Some(summary) = self.summary(key) else { return false };
        let found = self.aggregates.node.engine.aggregate_named(&summary.name);
        let is_it = |found: &Arc<Aggregate>| found.evacuation().is_some_and(|it| it.group == group);
        found.filter(is_it).is_some_and(|found| found.limit_evacuation(rate))
    }

    fn limit_split(&self, key: &Key, rate: Option<u64>) -> bool {
        let Some(summary) = self.summary(key) else { return false };
        let found = self.aggregates.node.engine.aggregate_named(&summary.name);
        found.is_some_and(|found| found.limit_split(volume_of(key), rate))
    }

    fn change_filling(
        &self,
        key: &Key,
        change: impl FnOnce(&dyn raid::ManagedStore, raid::DiskPlace) -> bool,
    ) -> bool {
        let Some(summary) = self.summary(key) else { return false };
        let is_its =
            |filling: &&FillingStatus| key.is_of_disk(filling.identity, Some(&filling.disk));
        let filling = summary.status.fillings.iter().find(is_its);
        let found = self.aggregates.node.engine.aggregate_named(&summary.name);
        found
            .zip(filling)
            .is_some_and(|(found, filling)| change(&*found.parts.store, filling.place))
    }
}

fn running(key: Key, done_blocks: u64, blocks: u64) -> Work {
    Work {
        key,
        going: Going::Running,
        limit: Limit::NONE,
        began: None,
        done_bytes: Some(done_blocks.saturating_mul(BLOCK_SIZE_U64)),
        size_bytes: blocks.saturating_mul(BLOCK_SIZE_U64),
    }
}

fn key(kind: JobKind, aggregate: &AggregateSummary, subject: Subject) -> Key {
    let identities = Identities { aggregate: Some(aggregate.identity), disk: None };
    Key { kind, aggregate: Some(aggregate.name.clone()), subject, birth: 0, identities }
}

/// The last scrub of an aggregate, if there was one.
fn scrubbing(aggregate: &AggregateSummary, scrub: &ScrubStatus) -> Option<Work> {
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
    let limit = Limit { rate: scrub.rate, is_kept: true };
    Some(Work { going, limit, began, ..running(key, scrub.read_blocks, scrub.blocks) })
}

/// A job is kept for long: it has the short name of its disk, if there is one.
fn filling(aggregate: &AggregateSummary, filling: &FillingStatus, called: Option<String>) -> Work {
    let kind = match filling.way {
        FillingWay::Anew => JobKind::Rebuild,
        FillingWay::Resync => JobKind::Resync,
        FillingWay::Copy => JobKind::Replacement,
    };
    let blocks = |regions: u64| regions.saturating_mul(REGION_BLOCKS as u64);
    let called = called.unwrap_or_else(|| filling.disk.clone());
    let mut key = key(kind, aggregate, Subject::Disk(called));
    key.identities.disk = Some(filling.identity);
    let going = if filling.is_held { Going::Held } else { Going::Unheld };
    let limit = Limit { rate: filling.rate, is_kept: false };
    Work { going, limit, ..running(key, blocks(filling.done_regions), blocks(filling.regions)) }
}

fn evacuation(aggregate: &AggregateSummary, leaving: Evacuation, rate: Option<u64>) -> Work {
    let Evacuation { group, used_blocks, blocks } = leaving;
    let empty = used_blocks.map_or(0, |used| blocks.saturating_sub(used));
    let limit = Limit { rate, is_kept: false };
    let key = key(JobKind::Evacuation, aggregate, Subject::Group(group));
    Work { limit, ..running(key, empty, blocks) }
}

fn deletion(aggregate: &AggregateSummary, deletion: Deletion) -> Work {
    let Deletion { volume, name, left_blocks } = deletion;
    let birth = i64::from(volume.get());
    let key = Key { birth, ..key(JobKind::Deletion, aggregate, Subject::Volume(name)) };
    Work { done_bytes: None, ..running(key, 0, left_blocks) }
}

/// The volume that a job of a volume is about.
pub(super) fn volume_of(key: &Key) -> VolumeId {
    VolumeId(u32::try_from(key.birth).unwrap_or(0))
}

/// A clone that is being split; nothing if it is being deleted.
fn split(engine: &Engine, aggregate: &AggregateSummary, split: CloneSplit) -> Option<Work> {
    let CloneSplit { clone, blocks, rate } = split;
    let is_it = |one: &Arc<ServedVolume>| {
        one.environment.volume == clone
            && one.aggregate.parts.identity.aggregate == aggregate.identity
    };
    let clone = engine.volumes().into_iter().find(is_it)?;
    let birth = i64::from(clone.environment.volume.get());
    let key = Key { birth, ..key(JobKind::Split, aggregate, Subject::Volume(clone.name())) };
    let done = blocks.saturating_sub(clone.inherited_blocks());
    let limit = Limit { rate, is_kept: false };
    Some(Work { limit, ..running(key, done, blocks) })
}

/// How the split of a clone ended.
fn fate_of_split(engine: &Engine, key: &Key, summary: &AggregateSummary) -> Outcome {
    let clone = volume_of(key);
    let Some(aggregate) = engine.aggregate_named(&summary.name) else {
        return Outcome::cancelled();
    };
    if aggregate.has_split_failed(clone) {
        return Outcome::failed(
            "what it shares with its parent cannot be read, or the clone is damaged (stroop status)",
        );
    }
    match aggregate.is_clone(clone) {
        true => Outcome::cancelled(),
        false if aggregate.has_volume(clone) => Outcome::succeeded(),
        false => {
            Outcome { reason: Some("the clone was deleted".to_owned()), ..Outcome::cancelled() }
        }
    }
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
        Subject::Disk(disk) if key.kind == JobKind::Growth => {
            let is_member = names_of(summary).contains(&disk.as_str());
            Fate::Ended(match is_member {
                true => Outcome::succeeded(),
                false => Outcome::failed(format!(
                    "the server was stopped before the disk joined; begin it again (stroop aggr \
                     add {})",
                    summary.name
                )),
            })
        }
        Subject::Disk(_) => fate_of_filling(key, summary),
        Subject::Volume(_) => Fate::Ended(Outcome::succeeded()),
    }
}

fn fate_of_filling(key: &Key, summary: &AggregateSummary) -> Fate {
    let mut members = summary.status.groups.iter().flat_map(|group| &group.members);
    let member = members.find(|member| key.is_of_disk(member.identity, member.name.as_deref()));
    let mut fillings = summary.status.fillings.iter();
    let is_filled = fillings.any(|filling| key.is_of_disk(filling.identity, Some(&filling.disk)));
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
