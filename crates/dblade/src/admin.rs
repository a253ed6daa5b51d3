//! What administrators ask of aggregates and volumes.
//!
//! Changes are made at the freeze of a consistency point, when nothing else runs, and are answered
//! when that consistency point has committed: what was answered survives a crash.
//!
//! Fails: [`EngineError`], with nothing changed.

use crate::change::owed;
use crate::clones::{self, CloneRequest};
use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::features::{self, FeatureInUse};
use crate::retiring::LogCopy;
use crate::served::{ServedVolume, VolumeKind, while_wanted};
use crate::summary::{AggregateSummary, SnapshotSummary, VolumeSummary};
use crate::{
    log_copies, log_places, names, offline, quotas, recovery_queue, retiring, service, tree_paths,
    trees,
};
use affinity::{Access, Outcome};
use aggregate::{
    Acted, Aggregate, AggregateError, AutogrowMax, FreezeScope, Guarantee, Patience, Reallocation,
    SnapshotAutodelete, SnapshotSchedule, Tiering, VolumeChange,
};
use cowfs::cache::BufferCache;
use cowfs::logical::Logical;
use cowfs::pointer::Pointer;
use cowfs::quotas::QuotaChange;
use cowfs::reader::{HeldBlocks, Reader};
use cowfs::spans::SnapshotSpans;
use file_service::Attributes;
use media::Profile;
use ondisk::pointer::DualPointer;
use ondisk::records::{ExportRuleRecord, VolumeRecord};
use ondisk::root::metafile;
use operations::Environment;
use operations::format::make_root;
use operations::quota_trees::TreeAnswer;
use platform::Disk;
use platform::sync::Mutex;
use std::sync::Arc;
use units::{AggregateUuid, InodeNumber, SnapshotId, SnapshotUuid, Timestamp, VolumeId};
use volume::differences::{self, DifferencesDone, Found};
use volume::lifecycle::{self, NewVolumes};
use volume::quota_lists::{Listed, QuotaList};
use volume::recovery_queue::Keeping;
use volume::spans::{self, SpansDone};
use volume::{Birth, FlexibleVolume, SnapshotRequest};

/// Volumes to be made, alike but for their names.
#[derive(Clone, Debug)]
pub struct VolumeRequest {
    /// Their names, no two the same.
    pub names: Vec<String>,
    /// Their aggregate.
    pub aggregate: String,
    /// The size of each that users see.
    pub size_blocks: u64,
    /// Owner, group and mode of their root directories.
    pub root: (u32, u32, u16),
    /// Their export rules.
    pub exports: Vec<ExportRuleRecord>,
    /// Which of their blocks lie in object stores.
    pub tiering: Tiering,
    /// Whether reads reallocate.
    pub reallocation: Reallocation,
    /// The size that each grows to by itself.
    pub autogrow_max: AutogrowMax,
    /// How many snapshots of each are taken and kept.
    pub schedule: SnapshotSchedule,
    /// Which snapshots of each are deleted where room is short.
    pub autodelete: SnapshotAutodelete,
    /// How much room is kept for each.
    pub guarantee: Guarantee,
}

/// A volume that was made, and its record.
type Made = (VolumeRecord, Arc<FlexibleVolume>);

impl VolumeRequest {
    /// A volume whose root directory is root's alone to write in, without exports, all of it on
    /// disks, and whose reads reallocate.
    #[must_use]
    pub fn new(name: &str, aggregate: &str, size_blocks: u64) -> Self {
        Self {
            names: vec![name.to_owned()],
            aggregate: aggregate.to_owned(),
            size_blocks,
            root: (0, 0, 0o755),
            exports: Vec::new(),
            tiering: Tiering::default(),
            reallocation: Reallocation::default(),
            autogrow_max: AutogrowMax::default(),
            schedule: SnapshotSchedule::default(),
            autodelete: SnapshotAutodelete::default(),
            guarantee: Guarantee::default(),
        }
    }
}

impl Engine {
    pub(crate) fn environment(&self, record: &VolumeRecord) -> Environment {
        let (volume, identity) = (VolumeId(record.volume.get()), record.identity);
        let image_number = identity.half();
        let limits = crate::service::limits(self.configuration.memory_bytes);
        // What no half of the log takes need not be tried.
        let commit_bytes_max = self.configuration.tuning.commit_bytes_max.min(self.log_bytes_max());
        Environment { volume, identity, image_number, limits, commit_bytes_max }
    }

    /// Makes flexible volumes, all or none.
    pub fn create_volumes(self: &Arc<Self>, request: VolumeRequest, done: Done<()>) {
        if let Err(taken) = names::check_free(self, &request.names) {
            return done(Err(taken));
        }
        let Some(aggregate) = self.aggregate_named(&request.aggregate) else {
            let name = request.aggregate;
            return done(Err(EngineError::NotFound { kind: "aggregate", name }));
        };
        let made: Arc<Mutex<Vec<Made>>> = Arc::default();
        let (engine, slot) = (Arc::clone(self), Arc::clone(&made));
        let mut patience = Patience::default();
        let action = move |scope: &mut FreezeScope<'_, '_>| {
            let new = NewVolumes {
                names: &request.names,
                size_blocks: request.size_blocks,
                exports: &request.exports,
                tiering: request.tiering,
                reallocation: request.reallocation,
                autogrow_max: request.autogrow_max,
                schedule: request.schedule,
                autodelete: request.autodelete,
                guarantee: request.guarantee,
            };
            let checked = lifecycle::check_guarantee(scope, &new, &mut patience)?;
            if let put_off @ Acted::PutOff(_) = checked {
                return Ok(put_off);
            }
            let make_root = |logical: &mut Logical<DualPointer>, now| {
                engine.make_root(logical, request.root, now);
            };
            let entropy = &*engine.configuration.entropy;
            *slot.lock() = lifecycle::create_flexible(scope, &new, entropy, make_root)?;
            Ok(Acted::Done)
        };
        let (engine, same) = (Arc::clone(self), Arc::clone(&aggregate));
        let committed = move |outcome: Result<(), AggregateError>| {
            if outcome.is_ok() {
                for (record, volume) in std::mem::take(&mut *made.lock()) {
                    engine.register_served(&same, &record, VolumeKind::Flexible(volume));
                }
            }
            done(outcome.map_err(EngineError::from));
        };
        aggregate.request_action(Box::new(action), Box::new(committed));
    }

    /// Makes clones of a snapshot, all or none: volumes that begin with its image and share its
    /// blocks.
    pub fn create_clones(self: &Arc<Self>, request: CloneRequest, done: Done<()>) {
        clones::create(self, request, done);
    }

    /// Has a clone split from its parent: what it inherited is copied in the background, no more
    /// bytes a second than `rate` says, and then it is a volume like others. The split goes on
    /// after a start, without the limit.
    pub fn split_clone(&self, name: &str, rate: Option<u64>, done: Done<()>) {
        clones::split(self, name, rate, done);
    }

    /// Has the split of a clone end where it is.
    pub fn stop_split(&self, name: &str, done: Done<()>) {
        clones::stop_split(self, name, done);
    }

    /// The same of the clone that has this number in its aggregate.
    pub fn stop_split_of(&self, aggregate: &str, clone: VolumeId, done: Done<()>) {
        clones::stop_split_of(self, aggregate, clone, done);
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

    /// Deletes a volume with its snapshots; its space comes back in the background. Container maps
    /// are the aggregate's, so a volume with a feature that this build lacks can be deleted too
    /// (decision 34).
    pub fn delete_volume(self: &Arc<Self>, name: &str, done: Done<()>) {
        let check = |scope: &mut FreezeScope<'_, '_>, volume: &FlexibleVolume| {
            volume.check_no_holds(scope.access)
        };
        self.delete_if(name, check, done);
    }

    /// Deletes a volume of the recovery queue for good, unless it has come back meanwhile.
    pub fn purge_volume(self: &Arc<Self>, title: &str, done: Done<()>) {
        let check = |scope: &mut FreezeScope<'_, '_>, volume: &FlexibleVolume| {
            scope.block_side().check_queued(volume.front.id)
        };
        self.delete_if(title, check, done);
    }

    fn delete_if(
        self: &Arc<Self>,
        name: &str,
        check: fn(&mut FreezeScope<'_, '_>, &FlexibleVolume) -> Result<(), AggregateError>,
        done: Done<()>,
    ) {
        let Some(served) = self.volume_named(name) else {
            return done(Err(EngineError::NotFound { kind: "volume", name: name.to_owned() }));
        };
        let VolumeKind::Flexible(volume) = &served.kind else {
            return done(Err(EngineError::Conflict(format!(
                "'{name}' is a traditional volume: it goes with its aggregate"
            ))));
        };
        let volume = Arc::clone(volume);
        let (engine, aggregate) = (Arc::clone(self), Arc::clone(&served.aggregate));
        let (same, identity) = (Arc::clone(self), served.environment.identity);
        let action = move |scope: &mut FreezeScope<'_, '_>| {
            served.check_there()?;
            check(scope, &volume)?;
            scope.block_side().check_no_clones(served.environment.volume)?;
            engine.begin_deletion(&served);
            lifecycle::delete(scope, &volume);
            Ok(Acted::Done)
        };
        let committed = move |outcome: Result<(), AggregateError>| {
            if outcome.is_ok() {
                same.register.write().going.remove(&identity);
            }
            done(outcome.map_err(EngineError::from));
        };
        aggregate.request_action(Box::new(action), Box::new(committed));
    }

    /// Deletes a volume, and keeps it in the recovery queue, with its snapshots, until somebody
    /// deletes it there. It is found as `NAME~NUMBER` then, and its name is free.
    pub fn queue_deletion(self: &Arc<Self>, name: &str, keeping: Keeping, done: Done<()>) {
        recovery_queue::enter(self, name, keeping, done);
    }

    /// Brings a volume back out of the recovery queue, where it is called `title`, under this name:
    /// as it was, but for its name.
    pub fn undelete_volume(self: &Arc<Self>, title: &str, name: &str, done: Done<()>) {
        recovery_queue::leave(self, title, name, done);
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
            let number = served.environment.volume;
            scope.block_side().changeable_slot_of(number)?;
            let acted = match &served.kind {
                VolumeKind::Flexible(volume) => {
                    let lost = volume::clones::lost_snapshots(volume, scope.access, &request);
                    scope.block_side().check_no_base(number, &lost)?;
                    volume.accept(scope.access, &request, birth)?
                }
                VolumeKind::Traditional(volume) => {
                    volume.accept(scope.access, &request, birth)?;
                    Acted::Done
                }
            };
            if matches!((&request, &acted), (SnapshotRequest::Hold(_), Acted::Done)) {
                volume::note_holds(scope.block_side(), number);
            }
            Ok(acted)
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

    /// Counts what a volume's snapshots hold that its active image does not, beside everything
    /// else.
    /// The count ends when nobody holds `wanted` any more.
    pub fn snapshot_spans(
        self: &Arc<Self>,
        volume: &str,
        wanted: &Arc<()>,
        done: Done<SnapshotSpans>,
    ) {
        let Some(served) = self.volume_named(volume) else {
            return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
        };
        let done: SpansDone = Box::new(move |spans| done(spans.map_err(EngineError::from)));
        let (aggregate, may_go_on) = (&served.aggregate, while_wanted(&served, wanted));
        match &served.kind {
            VolumeKind::Flexible(volume) => spans::of_flexible(volume, aggregate, may_go_on, done),
            VolumeKind::Traditional(_) => spans::of_traditional(aggregate, may_go_on, done),
        }
    }

    /// Compares two snapshots of a volume, beside everything else. The comparison ends early when
    /// nobody holds `wanted` any more.
    pub fn snapshot_differences(
        self: &Arc<Self>,
        volume: &str,
        snapshots: [SnapshotId; 2],
        wanted: &Arc<()>,
        done: Done<Found>,
    ) {
        let Some(served) = self.volume_named(volume) else {
            return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
        };
        let done: DifferencesDone = Box::new(move |found| done(found.map_err(EngineError::from)));
        let (aggregate, outcome) = (&served.aggregate, (while_wanted(&served, wanted), done));
        match &served.kind {
            VolumeKind::Flexible(volume) => {
                differences::of_flexible(volume, aggregate, snapshots, outcome);
            }
            VolumeKind::Traditional(volume) => {
                differences::of_traditional(volume, aggregate, snapshots, outcome);
            }
        }
    }

    /// Changes limits of a volume's owners, all or none. Those of a tree that is gone are not set.
    pub fn set_quotas(&self, volume: &str, changes: Vec<QuotaChange>, done: Done<()>) {
        quotas::set(self, volume, changes, done);
    }

    /// Lists quotas of a volume as of its last commit, at most [`crate::LISTED_QUOTAS_MAX`] of
    /// them. It ends early when nobody holds `wanted` any more.
    pub fn quotas(&self, volume: &str, listed: Listed, wanted: &Arc<()>, done: Done<QuotaList>) {
        quotas::list(self, volume, listed, wanted, done);
    }

    /// Says what is at a path of a volume, as far as quota trees go.
    pub fn find_tree(self: &Arc<Self>, volume: &str, path: Vec<Vec<u8>>, done: Done<TreeAnswer>) {
        trees::find(self, volume, path, done);
    }

    /// Makes the empty directory at a path of a volume a quota tree, and says what is there then.
    pub fn make_tree(self: &Arc<Self>, volume: &str, path: Vec<Vec<u8>>, done: Done<TreeAnswer>) {
        trees::make(self, volume, path, done);
    }

    /// The paths of quota trees' directories, without a leading slash, in the order of the trees;
    /// none of those that are gone, or are not found from the root directory.
    pub fn paths_of_trees(
        self: &Arc<Self>,
        volume: &str,
        trees: Vec<u32>,
        done: Done<Vec<Option<Vec<u8>>>>,
    ) {
        tree_paths::find(self, volume, trees, done);
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
            lifecycle::set_exports(scope, number, &wanted)?;
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

    /// Gives a volume another name. Handles name its identity, so clients that have some notice
    /// nothing.
    pub fn rename_volume(self: &Arc<Self>, volume: &str, name: &str, done: Done<()>) {
        names::rename(self, volume, name, done);
    }

    /// Takes a volume offline, or brings it back: see [`crate::offline`].
    pub fn set_volume_offline(&self, volume: &str, is_offline: bool, done: Done<()>) {
        offline::set(self, volume, is_offline, done);
    }

    /// The attributes of a volume's root directory, whether or not clients are served.
    pub fn root_attributes(self: &Arc<Self>, volume: &str, done: file_service::Done<Attributes>) {
        service::root_attributes(self, volume, done);
    }

    /// Gives a flexible volume another size.
    pub fn resize_volume(self: &Arc<Self>, volume: &str, size_blocks: u64, done: Done<()>) {
        let Some(served) = self.volume_named(volume) else {
            return done(Err(EngineError::NotFound { kind: "volume", name: volume.to_owned() }));
        };
        let aggregate = Arc::clone(&served.aggregate);
        let mut patience = Patience::default();
        let action = move |scope: &mut FreezeScope<'_, '_>| {
            served.check_there()?;
            match &served.kind {
                VolumeKind::Flexible(volume) => {
                    lifecycle::resize(scope, volume, size_blocks, &mut patience)
                }
                VolumeKind::Traditional(_) => {
                    let text = "a traditional volume is as large as its aggregate".to_owned();
                    Err(AggregateError::Refused(text))
                }
            }
        };
        let committed = move |outcome: Result<(), AggregateError>| {
            done(outcome.map_err(EngineError::from));
        };
        aggregate.request_action(Box::new(action), Box::new(committed));
    }

    /// From now on the blocks of a volume's files move to the object stores of its aggregate, and
    /// back, as `tiering` says.
    pub fn set_tiering(self: &Arc<Self>, volume: &str, tiering: Tiering, done: Done<()>) {
        let change = VolumeChange { tiering: Some(tiering), ..VolumeChange::default() };
        self.change_volume(volume, change, done);
    }

    /// Gives a flexible volume the policies of `change`, all of them or none.
    pub fn change_volume(self: &Arc<Self>, volume: &str, change: VolumeChange, done: Done<()>) {
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
                served.set_policies(change);
            }
            done(outcome.map_err(EngineError::from));
        };
        aggregate.change_volume(number, change, Box::new(committed));
    }

    /// Regions of each of these disks that a new aggregate of them keeps for its log.
    #[must_use]
    pub fn log_regions_of_new(&self, disks: &[Arc<dyn Disk>], media: Option<Profile>) -> u64 {
        log_places::regions_for_log(&*self.configuration.logs, disks, media)
    }

    /// Of so many regions that each disk of a new group has, those that an aggregate in service
    /// keeps for its log.
    #[must_use]
    pub fn log_regions_of_another(&self, aggregate: &str, regions: u64, is_object: bool) -> u64 {
        let geometry = self.aggregate_named(aggregate).map(|found| found.parts.store.geometry());
        geometry.map_or(0, |geometry| geometry.log_regions_of_another(regions, is_object))
    }

    /// Ends the service of an aggregate for good, without a last consistency point: it answers at
    /// once, also beside a log that hangs. From then on nobody finds the aggregate; its disks may
    /// be used when nothing of it is left ([`Engine::is_closed`]).
    pub fn retire_aggregate(self: &Arc<Self>, name: &str, done: Done<()>) {
        retiring::retire(self, name, done);
    }

    /// The places beside its disks where the log of a deleted aggregate may be, to take it away.
    #[must_use]
    pub fn log_copies_outside(&self, aggregate: AggregateUuid) -> Vec<LogCopy> {
        retiring::copies(self, aggregate)
    }

    /// The features of the format that an aggregate uses, its disks, volumes and log included.
    pub fn features_of(&self, aggregate: &str, done: Done<Vec<FeatureInUse>>) {
        match self.aggregate_named(aggregate) {
            Some(found) => features::tell(&found, done),
            None => {
                let name = aggregate.to_owned();
                done(Err(EngineError::NotFound { kind: "aggregate", name }));
            }
        }
    }

    /// Looks whether the log of each aggregate is still there, though nobody writes to it. A log
    /// that is gone has failed a moment later ([`AggregateSummary::log_failure`]).
    pub fn probe_logs(&self) {
        self.aggregates().iter().for_each(|aggregate| aggregate.parts.log.probe());
    }

    /// Has the logs of all aggregates in service have a copy in each place, as far as that can be.
    /// A place that fails is tried again later. It opens disks, so it may take a while.
    pub fn mend_logs(&self) {
        log_copies::mend_logs(self);
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
            log_failure: aggregate.parts.log.failure(),
            log_copies: aggregate.parts.log.copies(),
            is_log_on_disks: log_places::is_on_disks(aggregate),
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
            name: served.name(),
            volume: served.environment.volume,
            aggregate: served.aggregate.parts.identity.name.clone(),
            traditional: matches!(served.kind, VolumeKind::Traditional(_)),
            size_blocks: served.size_blocks(),
            used_blocks: served.used_blocks(),
            active_blocks: served.active_blocks(),
            available_blocks: served.available_blocks(),
            created: served.created,
            exports: served.exports(),
        };
        self.volumes().into_iter().map(summary).collect()
    }
}
