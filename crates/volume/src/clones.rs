//! Clones: writable volumes that begin with the image of a snapshot of another volume (FlexVol
//! section 4.2, "Volume Clones").
//!
//! A clone is made in two steps. What it takes over is read first, by a message that may wait
//! ([`read_source`]). A freeze's action then looks whether the snapshot is still there, and makes
//! the clone of what was read ([`create`]). Its first consistency point writes the few blocks of an
//! image that has changed little. Neither step depends on how large the volume is, or how many
//! snapshots it has. What of the snapshot a clone has no use for it lets go of later
//! (`cowfs::space::Base`).
//!
//! Invariants: a clone and its parent lie in one aggregate. The snapshot stays while there is a
//! clone of it ([`aggregate::BlockSide::check_no_base`]).
//!
//! Fails: [`AggregateError`], with nothing changed.

use crate::flexible::FlexibleVolume;
use crate::front::{Front, FrontAffinities};
use crate::lifecycle::{self, check_new, new_record, set_rules, shared_of};
use crate::load::read_orphans;
use crate::snapshots::{SnapshotRequest, deleted, live, newer};
use affinity::Access;
use aggregate::{
    ANCESTORS_MAX, Acted, AggregateError, AutogrowMax, BlockSide, FreezeScope, Guarantee, Patience,
    Reallocation, SnapshotAutodelete, SnapshotSchedule, Tiering, container_inode, guarantees,
};
use cowfs::budget::{Spender, VOLUME_OVERHEAD_BLOCKS};
use cowfs::buftree::Root;
use cowfs::free_map::MapFile;
use cowfs::image::{metafile_record, root_of};
use cowfs::logical::{Logical, read_record};
use cowfs::quotas::QuotaFile;
use cowfs::reader::{Progress, Reader, Stop};
use cowfs::space::{Base, DiscardPlace, Space};
use ondisk::features::{ACLS, QUOTA_TREES, QUOTAS};
use ondisk::inode::InodeRecord;
use ondisk::pointer::DualPointer;
use ondisk::records::{CloneBase, ExportRuleRecord, VOLUME_FLEXIBLE, VolumeRecord};
use ondisk::root::{DISCARDED_TREES, metafile};
use platform::Entropy;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{InodeNumber, Pvbn, SnapshotUuid, VolumeId};
use zerocopy::little_endian::{I64, U32, U64};

/// What a clone takes over of a snapshot.
#[derive(Clone)]
pub struct CloneSource {
    /// The name of the snapshot.
    pub snapshot: String,
    base: CloneBase,
    inode_file: InodeRecord,
    orphans: Vec<InodeNumber>,
    used_blocks: u64,
    used_inodes: u64,
    quotas: QuotaFile<DualPointer>,
}

/// Clones of one snapshot to be made, alike but for their names.
#[derive(Clone, Copy)]
pub struct NewClones<'a> {
    /// Their names, no two the same.
    pub names: &'a [String],
    /// What they begin with.
    pub source: &'a CloneSource,
    /// Their export rules.
    pub exports: &'a [ExportRuleRecord],
    /// How much room is kept for each; as for the parent, if not given.
    pub guarantee: Option<Guarantee>,
}

/// Reads what a clone takes over of a snapshot; for messages that may read the block side.
///
/// # Errors
/// What to wait for, or what cannot be read. Inside: there is no such snapshot.
pub fn read_source(
    parent: &FlexibleVolume,
    access: &Access<'_>,
    name: &str,
    reader: &Reader<'_>,
) -> Progress<Result<CloneSource, AggregateError>> {
    let (volume, space) = (parent.front.id, &parent.vbn.read(access).space);
    let snapshot = live(space, name).map(|at| &space.snapshots[at]);
    // One that the consistency point under way makes is not whole yet.
    let whole = snapshot.and_then(|one| Some((one, one.snapshot_table?)));
    let Some((snapshot, (table, table_blocks))) = whole else {
        return Ok(Err(AggregateError::Refused(format!("there is no snapshot '{name}'"))));
    };
    let root = snapshot.root();
    let record = |inode| read_record(&root, volume, InodeNumber(inode), reader);
    let active_map = record(metafile::ACTIVE_MAP)?.ok_or(Stop::Damaged(Pvbn(0)))?;
    let mut discarded = [InodeRecord::zeroed(); DISCARDED_TREES.len()];
    for (tree, inode) in discarded.iter_mut().zip(DISCARDED_TREES) {
        *tree = match inode {
            metafile::SNAPSHOT_TABLE => metafile_record(&table, table_blocks),
            _ => record(inode)?.unwrap_or(*tree),
        };
    }
    let base = CloneBase {
        parent: U32::new(volume.get()),
        snapshot: U32::new(snapshot.id.get()),
        identity: snapshot.identity,
        reserved: U64::ZERO,
        active_map,
        discarded,
    };
    Ok(Ok(CloneSource {
        snapshot: snapshot.name.clone(),
        base,
        inode_file: snapshot.inode_file,
        orphans: read_orphans(volume, &root, reader)?,
        used_blocks: snapshot.used_blocks,
        used_inodes: snapshot.used_inodes,
        quotas: QuotaFile::load(&root, volume, reader)?,
    }))
}

/// The snapshots that a request takes away, in the order of the list.
#[must_use]
pub fn lost_snapshots(
    parent: &FlexibleVolume,
    access: &Access<'_>,
    request: &SnapshotRequest,
) -> Vec<units::SnapshotId> {
    let space = &parent.vbn.read(access).space;
    let lost: Vec<usize> = match request {
        SnapshotRequest::Restore(name) => {
            live(space, name).map_or(Vec::new(), |at| newer(space, at))
        }
        // One that is not there is refused when the request is looked at.
        other => deleted(space, other).unwrap_or_default(),
    };
    lost.into_iter().map(|at| space.snapshots[at].id).collect()
}

/// Whether the snapshot is there that has this identity, and stays.
fn has_snapshot(parent: &FlexibleVolume, access: &Access<'_>, identity: SnapshotUuid) -> bool {
    let side = parent.vbn.read(access);
    let mut snapshots = side.space.snapshots.iter();
    let at = snapshots.position(|one| one.identity == identity && !one.deleting);
    at.is_some_and(|at| !side.requests.will_lose(&side.space, at))
}

impl NewClones<'_> {
    fn check(&self, side: &BlockSide, parent: VolumeId) -> Result<(), AggregateError> {
        side.changeable_slot_of(parent)?;
        if side.ancestors_of(parent).count() >= ANCESTORS_MAX {
            return Err(AggregateError::Refused(format!(
                "the volume is a clone of a clone, {ANCESTORS_MAX} times: no more are made of it"
            )));
        }
        check_new(side, self.names, self.exports)
    }

    /// The record of a clone: a volume like its parent.
    fn record(
        &self,
        (name, volume): (&str, VolumeId),
        (parent, size_blocks): (&VolumeRecord, u64),
        scope: &FreezeScope<'_, '_>,
        entropy: &dyn Entropy,
    ) -> VolumeRecord {
        let now = scope.aggregate.parts.clock.wall();
        let mut record = new_record(name, (VOLUME_FLEXIBLE, volume), now, entropy);
        record.container_inode = U64::new(container_inode(volume).get());
        record.size_blocks = U64::new(size_blocks);
        set_rules(&mut record, self.exports);
        Tiering::of(parent).store(&mut record);
        Reallocation::of(parent).store(&mut record);
        record.set_autogrow_max_blocks(AutogrowMax::of(parent).0);
        record.set_snapshots_kept(SnapshotSchedule::of(parent).0);
        SnapshotAutodelete::of(parent).store(&mut record);
        self.guarantee.unwrap_or_else(|| Guarantee::of(parent)).store(&mut record);
        record.scan_started = I64::new(now.get());
        if parent.features.has(&QUOTAS) {
            record.features.set(&QUOTAS);
        }
        for feature in [&ACLS, &QUOTA_TREES] {
            if parent.features.has(feature) {
                record.features.set(feature);
            }
        }
        if !mutation::broken(Rule::CloneUnwritten) {
            record.clone_base = self.source.base;
        }
        record
    }
}

/// Makes clones of a snapshot of `parent`, all or none; part of a freeze's action. They come in the
/// order of their names.
///
/// # Errors
/// Why they cannot be.
pub fn create(
    scope: &mut FreezeScope<'_, '_>,
    parent: &FlexibleVolume,
    new: &NewClones<'_>,
    entropy: &dyn Entropy,
) -> Result<Vec<(VolumeRecord, Arc<FlexibleVolume>)>, AggregateError> {
    let number = parent.front.id;
    new.check(scope.block_side(), number)?;
    if let Some(damage) = parent.front.damage() {
        return Err(AggregateError::Refused(format!("the volume is read-only: {damage}")));
    }
    if !has_snapshot(parent, scope.access, new.source.base.identity) {
        let name = &new.source.snapshot;
        return Err(AggregateError::Refused(format!("there is no snapshot '{name}'")));
    }
    let cost = 2 * VOLUME_OVERHEAD_BLOCKS * new.names.len() as u64;
    if !scope.aggregate.parts.shared.budget.promise(cost, Spender::Common) {
        return Err(AggregateError::Full);
    }
    let side = scope.block_side();
    let Some(slot) = side.slot_of(number) else { unreachable!("it was looked at above") };
    let parent_record = side.table[slot].record;
    let mut made = Vec::with_capacity(new.names.len());
    for name in new.names {
        let volume = VolumeId(scope.block_side().next_volume);
        let of = (&parent_record, parent.size_blocks());
        let record = new.record((name, volume), of, scope, entropy);
        scope.add_clone(record, number);
        let clone = begin(scope, (volume, parent), new.source);
        made.push((record, clone));
    }
    guarantees::settle(scope.aggregate, scope.access);
    Ok(made)
}

/// Whether the room of these clones can be guaranteed; part of a freeze's action. What a clone has
/// inherited it may come to write over, so it counts as lacking.
///
/// # Errors
/// It cannot, or the parent is gone.
pub fn check_guarantee(
    scope: &mut FreezeScope<'_, '_>,
    parent: &FlexibleVolume,
    new: &NewClones<'_>,
    patience: &mut Patience,
) -> Result<Acted, AggregateError> {
    let side = scope.block_side();
    new.check(side, parent.front.id)?;
    let slot = side.changeable_slot_of(parent.front.id)?;
    let guarantee = new.guarantee.unwrap_or_else(|| Guarantee::of(&side.table[slot].record));
    let wanted = (parent.size_blocks(), new.names.len());
    lifecycle::check_new_room(scope, guarantee, wanted, patience)
}

/// A clone of which nothing is on media yet.
fn begin(
    scope: &mut FreezeScope<'_, '_>,
    (volume, parent): (VolumeId, &FlexibleVolume),
    source: &CloneSource,
) -> Arc<FlexibleVolume> {
    let aggregate = scope.aggregate;
    let (numbers, next_generation) = {
        let logical = parent.front.logical.read(scope.access);
        (parent.vbn.read(scope.access).space.size_blocks, logical.next_generation)
    };
    let affinities = FrontAffinities::new(&aggregate.parts.scheduler, aggregate.parts.affinity);
    let mut logical = Logical::empty(volume, &affinities.stripes, shared_of(aggregate));
    logical.inode_file = Root::of(&source.inode_file);
    logical.used_inodes = source.used_inodes;
    logical.shared.used_inodes.store(source.used_inodes, Ordering::Relaxed);
    logical.orphans = source.orphans.clone().into();
    logical.shared.quotas.set_counting(source.quotas.is_counting());
    // The parent has given this to no file yet. It also makes the clone dirty: its first image is
    // written.
    logical.renumber(next_generation);
    let mut space = Space::<DualPointer>::new(volume, numbers);
    space.used_blocks = source.used_blocks;
    space.active_blocks = source.used_blocks;
    space.inode_file = root_of(&source.inode_file);
    space.quotas = source.quotas;
    space.active_map = MapFile::of(volume, metafile::ACTIVE_MAP, &source.base.active_map);
    space.base = Base::of(&source.base, DiscardPlace::default());
    space.forget_areas();
    let front = Front::new(volume, affinities, logical);
    let flexible = FlexibleVolume::new(aggregate, front, space, (parent.size_blocks(), None));
    flexible.set_born(scope.access);
    aggregate.add_member(Arc::clone(&flexible) as _);
    flexible
}
