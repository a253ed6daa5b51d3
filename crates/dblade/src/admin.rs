//! What administrators ask of aggregates and volumes.
//!
//! Changes are made at the freeze of a consistency point, when nothing else runs, and are answered
//! when that consistency point has committed: what was answered survives a crash.
//!
//! Fails: [`EngineError`], with nothing changed.

use crate::change::owed;
use crate::create::volume_shared;
use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::served::{ServedVolume, VolumeKind};
use crate::summary::{AggregateSummary, SnapshotSummary, VolumeSummary};
use affinity::{Access, Outcome};
use aggregate::{Acted, Aggregate, AggregateError, Container, FreezeScope, Tiering};
use cowfs::budget::{Spender, VOLUME_OVERHEAD_BLOCKS};
use cowfs::cache::BufferCache;
use cowfs::logical::Logical;
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Reader};
use ondisk::damage::Damage;
use ondisk::pointer::DualPointer;
use ondisk::records::{
    EXPORT_RULES_MAX, ExportRuleRecord, STATE_ONLINE, VOLUME_FLEXIBLE, VolumeRecord, name_field,
};
use ondisk::root::metafile;
use operations::Environment;
use operations::format::make_root;
use platform::sync::Mutex;
use std::sync::Arc;
use units::{InodeNumber, SnapshotUuid, Timestamp, VolumeId, VolumeUuid};
use volume::{Birth, FlexibleVolume, Front, FrontAffinities, SnapshotRequest, format_logical};
use zerocopy::little_endian::{I64, U32, U64};

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct VolumeRequest {
    /// Its name.
    pub name: String,
    /// Its aggregate.
    pub aggregate: String,
    /// The size that users see.
    pub size_blocks: u64,
    /// Owner, group and mode of its root directory.
    pub root: (u32, u32, u16),
    /// Its export rules.
    pub exports: Vec<ExportRuleRecord>,
    /// Which of its blocks lie in object stores.
    pub tiering: Tiering,
}

/// Smallest volume: its metafiles, and some room.
const VOLUME_BLOCKS_MIN: u64 = 256;
/// Largest volume that the format's block numbers reach: 64 PiB less the slack.
const VOLUME_BLOCKS_MAX: u64 = ondisk::pointer::BLOCK_NUMBER_MAX / 16 * 15;

impl Engine {
    pub(crate) fn environment(&self, record: &VolumeRecord) -> Environment {
        let (volume, identity) = (VolumeId(record.volume.get()), record.identity);
        let image_number = identity.half();
        let limits = crate::service::limits(self.configuration.memory_bytes);
        let commit_bytes_max = self.configuration.tuning.commit_bytes_max;
        Environment { volume, identity, image_number, limits, commit_bytes_max }
    }

    /// Makes a flexible volume.
    pub fn create_volume(self: &Arc<Self>, request: VolumeRequest, done: Done<()>) {
        if self.volume_named(&request.name).is_some() {
            return done(Err(EngineError::Exists { kind: "volume", name: request.name }));
        }
        let Some(aggregate) = self.aggregate_named(&request.aggregate) else {
            let name = request.aggregate;
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let made: Arc<Mutex<Option<(VolumeRecord, VolumeKind)>>> = Arc::default();
        let (engine, slot) = (Arc::clone(self), Arc::clone(&made));
        let action = move |scope: &mut FreezeScope<'_, '_>| {
            *slot.lock() = Some(engine.make_volume(scope, &request)?);
            Ok(Acted::Done)
        };
        let (engine, same) = (Arc::clone(self), Arc::clone(&aggregate));
        let committed = move |outcome: Result<(), AggregateError>| {
            if let (Ok(()), Some((record, kind))) = (&outcome, made.lock().take()) {
                engine.register_served(&same, &record, kind);
            }
            done(outcome.map_err(EngineError::from));
        };
        aggregate.request_action(Box::new(action), Box::new(committed));
    }

    fn make_volume(
        self: &Arc<Self>,
        scope: &mut FreezeScope<'_, '_>,
        request: &VolumeRequest,
    ) -> Result<(VolumeRecord, VolumeKind), AggregateError> {
        let refused = |text: String| Err(AggregateError::Refused(text));
        let now = self.configuration.clock.wall();
        let aggregate = Arc::clone(scope.aggregate);
        let side = scope.block_side();
        if side.traditional {
            return refused("the aggregate is a traditional volume and takes no other".to_owned());
        }
        if !(VOLUME_BLOCKS_MIN..=VOLUME_BLOCKS_MAX).contains(&request.size_blocks) {
            return refused(format!(
                "a volume has {VOLUME_BLOCKS_MIN} to {VOLUME_BLOCKS_MAX} blocks, not {}",
                request.size_blocks
            ));
        }
        if side
            .table
            .iter()
            .any(|slot| slot.record.state != 0 && slot.record.name() == request.name)
        {
            return refused(format!("volume '{}' exists or is being deleted", request.name));
        }
        // Nothing of a volume is there yet: its first image takes this much.
        let cost = 2 * VOLUME_OVERHEAD_BLOCKS;
        if !aggregate.parts.shared.budget.promise(cost, Spender::Common) {
            return Err(AggregateError::Full);
        }
        let side = scope.block_side();
        let Some(slot) = side.free_slot() else {
            return refused("the aggregate has as many volumes as it can have".to_owned());
        };
        let volume = VolumeId(side.next_volume);
        let mut record = self
            .new_record(&request.name, (VOLUME_FLEXIBLE, volume), now)
            .map_err(|_| AggregateError::Refused("the name is too long".to_owned()))?;
        record.container_inode = U64::new(aggregate::container_inode(volume).get());
        record.size_blocks = U64::new(request.size_blocks);
        set_rules(&mut record, &request.exports)?;
        request.tiering.check().map_err(AggregateError::Refused)?;
        request.tiering.store(&mut record);
        record.scan_started = I64::new(now.get());
        side.relocation.set(volume, &record);
        side.next_volume += 1;
        side.table[slot].record = record;
        side.dirty_slots.insert(slot);
        side.containers.insert(volume, Container::empty());
        let affinities = FrontAffinities::new(&self.scheduler, aggregate.parts.affinity);
        let shared = volume_shared(&aggregate);
        let mut logical = format_logical::<DualPointer>(volume, &affinities.stripes, shared, now);
        self.make_root(&mut logical, request.root, now);
        let space = FlexibleVolume::format_space(volume, request.size_blocks);
        let front = Front::new(volume, affinities, logical);
        let flexible = FlexibleVolume::new(&aggregate, front, space, request.size_blocks);
        aggregate.add_member(Arc::clone(&flexible) as _);
        Ok((record, VolumeKind::Flexible(flexible)))
    }

    /// The record of a volume that begins to be.
    ///
    /// # Errors
    /// If the name is too long.
    pub(crate) fn new_record(
        &self,
        name: &str,
        (kind, volume): (u8, VolumeId),
        now: Timestamp,
    ) -> Result<VolumeRecord, Damage> {
        let entropy = &self.configuration.entropy;
        let mut record = VolumeRecord::empty();
        (record.name, record.name_size) = name_field(name)?;
        (record.state, record.kind) = (STATE_ONLINE, kind);
        record.volume = U32::new(volume.get());
        record.created = I64::new(now.get());
        record.identity = VolumeUuid(entropy.next_identity());
        record.handle_key = entropy.next_identity();
        Ok(record)
    }

    /// Makes the content of the root directory of an empty file system.
    pub(crate) fn make_root<P: Pointer>(
        &self,
        logical: &mut Logical<P>,
        (uid, gid, mode): (u32, u32, u16),
        now: Timestamp,
    ) {
        // Everything that this touches is in memory.
        let (cache, held) = (BufferCache::new(0), HeldBlocks::default());
        let reader = Reader { cache: &cache, held: &held };
        let entropy = &self.configuration.entropy;
        let hash_seed = [entropy.next_u64(), entropy.next_u64()];
        let outcome = owed(logical, (reader, now), |transaction| {
            make_root(transaction, mode, hash_seed)?;
            let root = transaction.edit(InodeNumber(metafile::ROOT_DIRECTORY))?;
            (root.uid, root.gid) = (uid, gid);
            Ok(())
        });
        assert!(outcome.is_ok(), "an empty file system is in memory: {outcome:?}");
    }

    /// Deletes a volume with its snapshots; its space comes back in the background.
    pub fn delete_volume(self: &Arc<Self>, name: &str, done: Done<()>) {
        let Some(served) = self.volume_named(name) else {
            return done(Err(EngineError::NotFound { kind: "volume", name: name.to_owned() }));
        };
        if matches!(served.kind, VolumeKind::Traditional(_)) {
            return done(Err(EngineError::Conflict(format!(
                "'{name}' is a traditional volume: it goes with its aggregate"
            ))));
        }
        let (engine, aggregate) = (Arc::clone(self), Arc::clone(&served.aggregate));
        let action = move |scope: &mut FreezeScope<'_, '_>| {
            served.check_there()?;
            served.set_gone();
            engine.unregister_volume(&served);
            scope.aggregate.remove_member(served.environment.volume);
            if let VolumeKind::Flexible(volume) = &served.kind {
                volume.discard(scope.access);
            }
            scope.block_side().delete_volume(served.environment.volume);
            Ok(Acted::Done)
        };
        let committed = move |outcome: Result<(), AggregateError>| {
            done(outcome.map_err(EngineError::from));
        };
        aggregate.request_action(Box::new(action), Box::new(committed));
    }

    /// Carries out a request for a volume's snapshots.
    pub fn request_snapshot(
        self: &Arc<Self>,
        volume: &str,
        request: SnapshotRequest,
        done: Done<()>,
    ) {
        let Some(served) = self.volume_named(volume) else {
            return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
        };
        let aggregate = Arc::clone(&served.aggregate);
        let identity = SnapshotUuid(self.configuration.entropy.next_identity());
        let birth = Birth { identity, time: self.configuration.clock.wall() };
        let restores = matches!(request, SnapshotRequest::Restore(_));
        let of = Arc::clone(&served);
        let outcome_of = move |outcome: Result<(), AggregateError>| {
            outcome?;
            if of.damage().is_some() {
                let text = "the volume was found damaged, and is read-only".to_owned();
                return Err(AggregateError::Refused(text).into());
            }
            if restores && let Some(text) = of.take_refused_restore() {
                return Err(AggregateError::Refused(text).into());
            }
            Ok(())
        };
        let action = move |scope: &mut FreezeScope<'_, '_>| {
            served.check_there()?;
            match &served.kind {
                VolumeKind::Flexible(volume) => volume.accept(scope.access, &request, birth),
                VolumeKind::Traditional(volume) => {
                    volume.accept(scope.access, &request, birth)?;
                    Ok(Acted::Done)
                }
            }
        };
        let same = Arc::clone(&aggregate);
        let committed = move |outcome: Result<(), AggregateError>| match outcome_of(outcome) {
            // The second consistency point makes the restored image durable.
            Ok(()) if restores => same.request_consistency_point(Some(Box::new(move |outcome| {
                done(outcome_of(outcome));
            }))),
            outcome => done(outcome),
        };
        aggregate.request_action(Box::new(action), Box::new(committed));
    }

    /// A volume's snapshots, oldest first.
    pub fn snapshots(self: &Arc<Self>, volume: &str, done: Done<Vec<SnapshotSummary>>) {
        let Some(served) = self.volume_named(volume) else {
            return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
        };
        let affinity = match &served.kind {
            VolumeKind::Flexible(volume) => volume.front.affinities.volume,
            VolumeKind::Traditional(_) => served.aggregate.parts.affinity,
        };
        let mut done = Some(done);
        let message = move |access: &mut Access<'_>| {
            let snapshots = match &served.kind {
                VolumeKind::Flexible(volume) => volume.snapshots(access),
                VolumeKind::Traditional(volume) => volume.snapshots(access),
            };
            if let Some(done) = done.take() {
                done(Ok(snapshots));
            }
            Outcome::Done
        };
        self.scheduler.send(affinity, Box::new(message));
    }

    /// Replaces a volume's export rules.
    pub fn set_exports(
        self: &Arc<Self>,
        volume: &str,
        rules: Vec<ExportRuleRecord>,
        done: Done<()>,
    ) {
        let Some(served) = self.volume_named(volume) else {
            return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
        };
        let aggregate = Arc::clone(&served.aggregate);
        let (number, wanted) = (served.environment.volume, rules.clone());
        let action = move |scope: &mut FreezeScope<'_, '_>| {
            let side = scope.block_side();
            let Some(slot) = side.live_slot_of(number) else {
                return Err(AggregateError::Refused("the volume is gone".to_owned()));
            };
            set_rules(&mut side.table[slot].record, &wanted)?;
            side.dirty_slots.insert(slot);
            Ok(Acted::Done)
        };
        let committed = move |outcome: Result<(), AggregateError>| {
            if outcome.is_ok() {
                served.set_exports(rules);
            }
            done(outcome.map_err(EngineError::from));
        };
        aggregate.request_action(Box::new(action), Box::new(committed));
    }

    /// From now on the blocks of a volume's files move to the object stores of its aggregate, and
    /// back, as `tiering` says.
    pub fn set_tiering(self: &Arc<Self>, volume: &str, tiering: Tiering, done: Done<()>) {
        let Some(served) = self.volume_named(volume) else {
            return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
        };
        if let VolumeKind::Traditional(_) = served.kind {
            let refused = "a traditional volume's blocks stay where they are".to_owned();
            return done(Err(AggregateError::Refused(refused).into()));
        }
        let (aggregate, number) = (Arc::clone(&served.aggregate), served.environment.volume);
        let committed = move |outcome: Result<(), AggregateError>| {
            if outcome.is_ok() {
                served.set_tiering(tiering);
            }
            done(outcome.map_err(EngineError::from));
        };
        aggregate.set_tiering(number, tiering, Box::new(committed));
    }

    /// All aggregates at a glance.
    #[must_use]
    pub fn aggregate_summaries(&self) -> Vec<AggregateSummary> {
        self.aggregates().iter().map(|aggregate| self.summary_of(aggregate)).collect()
    }

    pub(crate) fn summary_of(&self, aggregate: &Arc<Aggregate>) -> AggregateSummary {
        use std::sync::atomic::Ordering::Relaxed;
        AggregateSummary {
            name: aggregate.parts.identity.name.clone(),
            identity: aggregate.parts.identity.aggregate,
            size_blocks: aggregate.size_blocks(),
            used_blocks: aggregate.used_blocks(),
            status: aggregate.parts.store.status(),
            lost_blocks: aggregate.statistics.lost_blocks.load(Relaxed),
            failure: aggregate.failure(),
            consistency_points: aggregate.statistics.consistency_points.load(Relaxed),
            last_cp_nanoseconds: aggregate.statistics.last_cp_nanoseconds.load(Relaxed),
            log_used_ratio: aggregate.parts.log.used_ratio(),
            traditional: self.volumes().iter().any(|served| {
                Arc::ptr_eq(&served.aggregate, aggregate)
                    && matches!(served.kind, VolumeKind::Traditional(_))
            }),
        }
    }

    /// All volumes at a glance.
    #[must_use]
    pub fn volume_summaries(&self) -> Vec<VolumeSummary> {
        let summary = |served: Arc<ServedVolume>| VolumeSummary {
            name: served.name.clone(),
            volume: served.environment.volume,
            aggregate: served.aggregate.parts.identity.name.clone(),
            traditional: matches!(served.kind, VolumeKind::Traditional(_)),
            size_blocks: served.size_blocks,
            used_blocks: served.used_blocks(),
            active_blocks: served.active_blocks(),
            available_blocks: served.available_blocks(),
            created: served.created,
            exports: served.exports(),
        };
        self.volumes().into_iter().map(summary).collect()
    }
}

fn set_rules(record: &mut VolumeRecord, rules: &[ExportRuleRecord]) -> Result<(), AggregateError> {
    if rules.len() > EXPORT_RULES_MAX {
        return Err(AggregateError::Refused(format!(
            "a volume has {EXPORT_RULES_MAX} export rules at most"
        )));
    }
    record.exports = VolumeRecord::empty().exports;
    for (slot, rule) in record.exports.iter_mut().zip(rules) {
        *slot = ExportRuleRecord { used: 1, ..*rule };
    }
    Ok(())
}
