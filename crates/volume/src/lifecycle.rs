//! The life of a volume: it is made, opened, given another name, other export rules or another
//! size, taken offline, and deleted.
//!
//! What is made, changed or deleted is an action of a freeze, in three steps: *check*, *promise*
//! the space of its first image, *apply*. The volume table is the record of it. Whoever was told
//! that a volume is there, or is gone, finds it so after a crash.
//!
//! Invariants: an action that is refused has promised nothing and changed nothing. A volume that is
//! made or opened is a member of its aggregate; one that is deleted is none.
//!
//! Fails: [`AggregateError`]; opening with what to wait for, or with damage.

use crate::damage::VolumeDamage;
use crate::flexible::FlexibleVolume;
use crate::format::{format_logical, growth_room_blocks, new_room_blocks, slack_blocks};
use crate::front::{Front, FrontAffinities};
use crate::load::{load_flexible, load_logical};
use crate::traditional::TraditionalVolume;
use affinity::AffinityId;
use aggregate::{
    Acted, Aggregate, AggregateError, AutogrowMax, BlockSide, FreezeScope, Guarantee, Patience,
    Reallocation, SnapshotAutodelete, SnapshotSchedule, Tiering, VOLUME_BLOCKS_MAX, VolumeSlot,
    container_inode, guarantees,
};
use cowfs::accounts::GuaranteedRoom;
use cowfs::budget::{Budget, Overhead, Spender, VOLUME_OVERHEAD_BLOCKS};
use cowfs::logical::{Logical, Shared};
use cowfs::reader::{Progress, Reader, Stop};
use cowfs::space::Space;
use ondisk::features::{FeatureScope, OFFLINE};
use ondisk::pointer::{DualPointer, PhysicalPointer};
use ondisk::records::{
    EXPORT_RULES_MAX, ExportRuleRecord, STATE_ONLINE, VOLUME_FLEXIBLE, VOLUME_TRADITIONAL,
    VolumeRecord, name_field,
};
use ondisk::root::FileSystemRoot;
use platform::Entropy;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use units::{Pvbn, Timestamp, VolumeId, VolumeUuid};
use zerocopy::little_endian::{I64, U32, U64};

/// Smallest volume: its metafiles, and some room.
const VOLUME_BLOCKS_MIN: u64 = 256;

/// Flexible volumes to be made, alike but for their names.
#[derive(Clone, Copy, Debug)]
pub struct NewVolumes<'a> {
    /// Their names, no two the same.
    pub names: &'a [String],
    /// The size of each that users see.
    pub size_blocks: u64,
    /// Their export rules.
    pub exports: &'a [ExportRuleRecord],
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

impl NewVolumes<'_> {
    fn check(&self, side: &BlockSide) -> Result<(), AggregateError> {
        let refused = |text: String| Err(AggregateError::Refused(text));
        if side.traditional {
            return refused("the aggregate is a traditional volume and takes no other".to_owned());
        }
        check_size(self.size_blocks)?;
        self.autogrow_max.check(self.size_blocks)?;
        self.schedule.check()?;
        check_new(side, self.names, self.exports)?;
        self.tiering.check().map_err(AggregateError::Refused)
    }

    fn record(
        &self,
        (name, volume): (&str, VolumeId),
        now: Timestamp,
        entropy: &dyn Entropy,
    ) -> VolumeRecord {
        let mut record = new_record(name, (VOLUME_FLEXIBLE, volume), now, entropy);
        record.container_inode = U64::new(container_inode(volume).get());
        record.size_blocks = U64::new(self.size_blocks);
        set_rules(&mut record, self.exports);
        self.tiering.store(&mut record);
        self.reallocation.store(&mut record);
        record.set_autogrow_max_blocks(self.autogrow_max.0);
        record.set_snapshots_kept(self.schedule.0);
        self.autodelete.store(&mut record);
        self.guarantee.store(&mut record);
        record.scan_started = I64::new(now.get());
        record
    }
}

/// Whether the room of new volumes can be guaranteed; part of a freeze's action.
///
/// # Errors
/// It cannot, or they cannot be made.
pub fn check_guarantee(
    scope: &mut FreezeScope<'_, '_>,
    new: &NewVolumes<'_>,
    patience: &mut Patience,
) -> Result<Acted, AggregateError> {
    new.check(scope.block_side())?;
    check_new_room(scope, new.guarantee, (new.size_blocks, new.names.len()), patience)
}

/// The same, of volumes that were looked at.
pub(crate) fn check_new_room(
    scope: &FreezeScope<'_, '_>,
    guarantee: Guarantee,
    (size_blocks, count): (u64, usize),
    patience: &mut Patience,
) -> Result<Acted, AggregateError> {
    if guarantee == Guarantee::None {
        return Ok(Acted::Done);
    }
    guarantees::check_room(scope.aggregate, new_room_blocks(size_blocks, count), patience)
}

/// Makes flexible volumes, all or none, of which `make_root` makes the root directories; part of a
/// freeze's action, in which [`check_guarantee`] comes before. They come in the order of their
/// names.
///
/// # Errors
/// Why they cannot be.
pub fn create_flexible(
    scope: &mut FreezeScope<'_, '_>,
    new: &NewVolumes<'_>,
    entropy: &dyn Entropy,
    mut make_root: impl FnMut(&mut Logical<DualPointer>, Timestamp),
) -> Result<Vec<(VolumeRecord, Arc<FlexibleVolume>)>, AggregateError> {
    let aggregate = Arc::clone(scope.aggregate);
    let side = scope.block_side();
    new.check(side)?;
    // Nothing of a volume is there yet: its first image takes this much.
    let cost = 2 * VOLUME_OVERHEAD_BLOCKS * new.names.len() as u64;
    if !aggregate.parts.shared.budget.promise(cost, Spender::Common) {
        return Err(AggregateError::Full);
    }
    let now = aggregate.parts.clock.wall();
    let create = |name: &String| {
        let volume = VolumeId(side.next_volume);
        let record = new.record((name, volume), now, entropy);
        side.add_volume(record);
        (record, format_flexible(&aggregate, volume, new.size_blocks, &mut make_root))
    };
    let made: Vec<_> = new.names.iter().map(create).collect();
    if let [_, .., (record, _)] = &made[..]
        && mutation::broken(Rule::LastVolumeForgotten)
        && let Some(slot) = side.slot_of(VolumeId(record.volume.get()))
    {
        side.dirty_slots.remove(&slot);
    }
    guarantees::settle(&aggregate, scope.access);
    Ok(made)
}

/// A volume of which nothing is on media yet.
fn format_flexible(
    aggregate: &Arc<Aggregate>,
    volume: VolumeId,
    size_blocks: u64,
    make_root: impl FnOnce(&mut Logical<DualPointer>, Timestamp),
) -> Arc<FlexibleVolume> {
    let now = aggregate.parts.clock.wall();
    let affinities = FrontAffinities::new(&aggregate.parts.scheduler, aggregate.parts.affinity);
    let shared = shared_of(aggregate);
    let mut logical = format_logical::<DualPointer>(volume, &affinities.stripes, shared, now);
    make_root(&mut logical, now);
    let space = FlexibleVolume::format_space(volume, size_blocks);
    let front = Front::new(volume, affinities, logical);
    let flexible = FlexibleVolume::new(aggregate, front, space, (size_blocks, None));
    aggregate.add_member(Arc::clone(&flexible) as _);
    flexible
}

/// Notes the traditional volume of an aggregate that is being made in its volume table.
///
/// # Panics
/// If the aggregate's name is longer than its disks' labels take.
pub fn note_traditional(
    side: &mut BlockSide,
    name: &str,
    now: Timestamp,
    entropy: &dyn Entropy,
) -> VolumeRecord {
    let volume = VolumeId(side.next_volume);
    let record = new_record(name, (VOLUME_TRADITIONAL, volume), now, entropy);
    side.add_volume(record);
    record
}

/// Makes the traditional volume of a new aggregate, of which `make_root` makes the root directory.
pub fn create_traditional(
    aggregate: &Arc<Aggregate>,
    record: &VolumeRecord,
    make_root: impl FnOnce(&mut Logical<PhysicalPointer>, Timestamp),
) -> Arc<TraditionalVolume> {
    let now = aggregate.parts.clock.wall();
    let affinities = FrontAffinities::new(&aggregate.parts.scheduler, aggregate.parts.affinity);
    let shared = shared_of(aggregate);
    let mut logical =
        format_logical::<PhysicalPointer>(VolumeId(0), &affinities.stripes, shared, now);
    make_root(&mut logical, now);
    let front = Front::new(VolumeId(record.volume.get()), affinities, logical);
    join(aggregate, TraditionalVolume::new(aggregate, front))
}

/// Opens a flexible volume as the last commit has it.
///
/// # Errors
/// What to wait for, or what cannot be read.
pub fn open_flexible(
    aggregate: &Arc<Aggregate>,
    side: &BlockSide,
    record: &VolumeRecord,
    reader: &Reader<'_>,
) -> Progress<Arc<FlexibleVolume>> {
    let volume = VolumeId(record.volume.get());
    let Some(container) = side.containers.get(&volume) else {
        return Err(Stop::Damaged(Pvbn(0)));
    };
    let loaded = load_flexible(record, container, reader)?;
    let shared = shared_of(aggregate);
    let logical = |stripes: &[AffinityId], shared: Arc<Shared>| {
        load_logical(volume, &loaded.root, &loaded.space.snapshots, stripes, shared, reader)
    };
    // Affinities are made once everything has been read.
    logical(&[], Arc::clone(&shared))?;
    let affinities = FrontAffinities::new(&aggregate.parts.scheduler, aggregate.parts.affinity);
    let logical = logical(&affinities.stripes, shared)?;
    let front = Front::new(volume, affinities, logical);
    let size_blocks = record.size_blocks.get();
    let known = (size_blocks, Some(container));
    let flexible = FlexibleVolume::new(aggregate, front, loaded.space, known);
    if let Some(feature) = record.features.forbids_writing(FeatureScope::Volume)
        && !mutation::broken(Rule::ReadOnlyFeatureWritten)
    {
        flexible.set_not_understood(VolumeDamage::Feature(feature));
    }
    if container.quarantined {
        flexible.set_left_out();
    }
    aggregate.add_member(Arc::clone(&flexible) as _);
    Ok(flexible)
}

/// Opens the traditional volume of an aggregate whose file system `root` describes.
///
/// # Errors
/// What to wait for, or what cannot be read.
pub fn open_traditional(
    aggregate: &Arc<Aggregate>,
    side: &BlockSide,
    (record, root): (&VolumeRecord, &FileSystemRoot),
    reader: &Reader<'_>,
) -> Progress<Arc<TraditionalVolume>> {
    let shared = shared_of(aggregate);
    let logical = |stripes: &[AffinityId], shared: Arc<Shared>| {
        load_logical(VolumeId(0), root, &side.space.snapshots, stripes, shared, reader)
    };
    // Affinities are made once everything has been read.
    logical(&[], Arc::clone(&shared))?;
    let affinities = FrontAffinities::new(&aggregate.parts.scheduler, aggregate.parts.affinity);
    let logical = logical(&affinities.stripes, shared)?;
    let front = Front::new(VolumeId(record.volume.get()), affinities, logical);
    Ok(join(aggregate, TraditionalVolume::new(aggregate, front)))
}

/// A volume that cannot be opened, for this reason: it is listed, and can be deleted. Its damage
/// costs the other volumes nothing.
#[must_use]
pub fn open_unreadable(
    aggregate: &Arc<Aggregate>,
    (side, record): (&BlockSide, &VolumeRecord),
    damage: VolumeDamage,
) -> Arc<FlexibleVolume> {
    let affinities = FrontAffinities::new(&aggregate.parts.scheduler, aggregate.parts.affinity);
    let (volume, size_blocks) = (VolumeId(record.volume.get()), record.size_blocks.get());
    let logical = Logical::empty(volume, &affinities.stripes, shared_of(aggregate));
    let front = Front::new(volume, affinities, logical);
    front.set_unreadable(damage);
    let space = Space::new(volume, size_blocks + slack_blocks(size_blocks));
    let known = (size_blocks, side.containers.get(&volume));
    let flexible = FlexibleVolume::new(aggregate, front, space, known);
    if damage.lacking().is_some() {
        flexible.set_not_understood(damage);
    }
    aggregate.add_member(Arc::clone(&flexible) as _);
    flexible
}

/// Reads what opening a volume waits for, so that several are read together. What is wrong with a
/// volume is found when it is opened.
///
/// # Errors
/// What to wait for.
pub fn read_ahead(
    aggregate: &Arc<Aggregate>,
    side: &BlockSide,
    VolumeSlot { record }: &VolumeSlot,
    reader: &Reader<'_>,
) -> Progress<()> {
    let volume = VolumeId(record.volume.get());
    let container = side.containers.get(&volume);
    let Some(container) = container.filter(|_| record.state == STATE_ONLINE) else {
        return Ok(());
    };
    let loaded = load_flexible(record, container, reader)?;
    let (root, snapshots) = (&loaded.root, &loaded.space.snapshots);
    load_logical(volume, root, snapshots, &[], shared_of(aggregate), reader).map(drop)
}

/// Replaces a volume's export rules; part of a freeze's action.
///
/// # Errors
/// Why they cannot be.
pub fn set_exports(
    scope: &mut FreezeScope<'_, '_>,
    volume: VolumeId,
    rules: &[ExportRuleRecord],
) -> Result<(), AggregateError> {
    let side = scope.block_side();
    let slot = side.changeable_slot_of(volume)?;
    check_rules(rules)?;
    let record = &mut side.table[slot].record;
    if record.exports.iter().any(|rule| rule.used != 0 && !rule.is_understood()) {
        return Err(AggregateError::Refused(
            "one of its export rules says what this build of Stroop does not know, and would be \
             lost; change them with the build that wrote it, or a later one"
                .to_owned(),
        ));
    }
    set_rules(record, rules);
    side.dirty_slots.insert(slot);
    Ok(())
}

/// Gives a volume another name; part of a freeze's action. Handles name its identity, so nobody who
/// has some notices.
///
/// # Errors
/// Why it cannot have it.
pub fn rename(
    scope: &mut FreezeScope<'_, '_>,
    volume: VolumeId,
    name: &str,
) -> Result<(), AggregateError> {
    let side = scope.block_side();
    let slot = side.changeable_slot_of(volume)?;
    let Ok((bytes, size)) = name_field(name) else {
        return Err(AggregateError::Refused("the name is too long".to_owned()));
    };
    // One that is served under another name than its own may get its own.
    if side.table[slot].record.name() != name && side.name_in_use([name]).is_some() {
        return Err(AggregateError::Refused(format!("volume '{name}' exists")));
    }
    if !mutation::broken(Rule::RenameForgotten) {
        let record = &mut side.table[slot].record;
        (record.name, record.name_size) = (bytes, size);
        side.dirty_slots.insert(slot);
    }
    Ok(())
}

/// Notes that a volume is offline, or not any more; part of a freeze's action. What is in memory of
/// it stays, and so does its work in the background: only clients are turned away.
///
/// # Errors
/// Why it cannot be changed.
pub fn set_offline(
    scope: &mut FreezeScope<'_, '_>,
    volume: VolumeId,
    is_offline: bool,
) -> Result<(), AggregateError> {
    let side = scope.block_side();
    let slot = side.changeable_slot_of(volume)?;
    let record = &mut side.table[slot].record;
    if mutation::broken(Rule::OfflineForgotten) {
        return Ok(());
    }
    match is_offline {
        true => record.features.set(&OFFLINE),
        false => record.features.clear(&OFFLINE),
    }
    side.dirty_slots.insert(slot);
    Ok(())
}

/// Gives a flexible volume another size; part of a freeze's action. It may shrink to what its image
/// and its snapshots use, and what is under way. A largest size that is less than the new size
/// becomes the new size.
///
/// # Errors
/// Why it cannot have it.
pub fn resize(
    scope: &mut FreezeScope<'_, '_>,
    volume: &FlexibleVolume,
    size_blocks: u64,
    patience: &mut Patience,
) -> Result<Acted, AggregateError> {
    check_size(size_blocks)?;
    let slot = scope.block_side().changeable_slot_of(volume.front.id)?;
    if let Some(damage) = volume.front.damage() {
        return Err(AggregateError::Refused(format!("the volume is read-only: {damage}")));
    }
    let least = volume.least_size_blocks();
    if size_blocks < least.min(volume.size_blocks()) {
        return Err(AggregateError::Refused(format!(
            "its files and snapshots use {least} blocks, what is being written or freed included, \
             which is more than {size_blocks}"
        )));
    }
    let room = (slot, size_blocks);
    if let put_off @ Acted::PutOff(_) = check_growth(scope, volume, room, patience)? {
        return Ok(put_off);
    }
    volume.resize(scope.access, size_blocks)?;
    guarantees::settle(scope.aggregate, scope.access);
    if !mutation::broken(Rule::ResizeForgotten) {
        let side = scope.block_side();
        let record = &mut side.table[slot].record;
        record.size_blocks = U64::new(size_blocks);
        // A volume that is to grow is never larger than it grows.
        if (1..size_blocks).contains(&AutogrowMax::of(record).0) {
            record.set_autogrow_max_blocks(size_blocks);
        }
        volume.set_autogrow_max(AutogrowMax::of(record));
        side.dirty_slots.insert(slot);
    }
    Ok(Acted::Done)
}

/// Whether what a volume grows by can be guaranteed, if it has a guarantee.
fn check_growth(
    scope: &mut FreezeScope<'_, '_>,
    volume: &FlexibleVolume,
    (slot, size_blocks): (usize, u64),
    patience: &mut Patience,
) -> Result<Acted, AggregateError> {
    let guarantee = Guarantee::of(&scope.block_side().table[slot].record);
    if guarantee == Guarantee::None || size_blocks <= volume.size_blocks() {
        return Ok(Acted::Done);
    }
    let sizes = (volume.size_blocks(), size_blocks);
    let more = growth_room_blocks(sizes, volume.owned_blocks());
    guarantees::check_room(scope.aggregate, more, patience)
}

/// Deletes a flexible volume: what is in memory of it goes at once, its blocks in the background;
/// part of a freeze's action.
pub fn delete(scope: &mut FreezeScope<'_, '_>, volume: &FlexibleVolume) {
    scope.aggregate.remove_member(volume.front.id);
    volume.discard(scope.access);
    scope.block_side().delete_volume(volume.front.id);
    guarantees::settle(scope.aggregate, scope.access);
}

fn join(aggregate: &Arc<Aggregate>, volume: Arc<TraditionalVolume>) -> Arc<TraditionalVolume> {
    aggregate.add_member(Arc::clone(&volume) as _);
    volume
}

/// The space of a volume, and what it shares with its aggregate.
pub(crate) fn shared_of(aggregate: &Aggregate) -> Arc<Shared> {
    Arc::new(Shared {
        budget: Budget::default(),
        overhead: Overhead::default(),
        guaranteed: GuaranteedRoom::default(),
        aggregate: Arc::clone(&aggregate.parts.shared),
        reclaiming: AtomicBool::new(false),
        growth_blocks: AtomicU64::new(0),
        wants_growth: AtomicBool::new(false),
        may_delete_snapshot: AtomicBool::new(false),
        wants_deletion: AtomicBool::new(false),
        used_inodes: AtomicU64::new(0),
        quotas: Arc::default(),
    })
}

/// The record of a volume that begins to be; its name was checked.
pub(crate) fn new_record(
    name: &str,
    (kind, volume): (u8, VolumeId),
    now: Timestamp,
    entropy: &dyn Entropy,
) -> VolumeRecord {
    let mut record = VolumeRecord::empty();
    let Ok(name) = name_field(name) else { unreachable!("the name was checked") };
    (record.name, record.name_size) = name;
    (record.state, record.kind) = (STATE_ONLINE, kind);
    record.volume = U32::new(volume.get());
    record.created = I64::new(now.get());
    record.identity = VolumeUuid(entropy.next_identity());
    record.handle_key = entropy.next_identity();
    record
}

fn check_size(size_blocks: u64) -> Result<(), AggregateError> {
    if (VOLUME_BLOCKS_MIN..=VOLUME_BLOCKS_MAX).contains(&size_blocks) {
        return Ok(());
    }
    Err(AggregateError::Refused(format!(
        "a volume has {VOLUME_BLOCKS_MIN} to {VOLUME_BLOCKS_MAX} blocks, not {size_blocks}"
    )))
}

/// Whether volumes of these names and export rules may be added.
pub(crate) fn check_new(
    side: &BlockSide,
    names: &[String],
    exports: &[ExportRuleRecord],
) -> Result<(), AggregateError> {
    let refused = |text: String| Err(AggregateError::Refused(text));
    if let Some(name) = side.name_in_use(names.iter().map(String::as_str)) {
        return refused(format!("volume '{name}' exists"));
    }
    let free = side.free_slots();
    if free == 0 {
        return refused("the aggregate has as many volumes as it can have".to_owned());
    }
    if free < names.len() {
        return refused(format!("the aggregate can have {free} volumes more"));
    }
    if names.iter().any(|name| name_field(name).is_err()) {
        return refused("the name is too long".to_owned());
    }
    check_rules(exports)
}

fn check_rules(rules: &[ExportRuleRecord]) -> Result<(), AggregateError> {
    if rules.len() > EXPORT_RULES_MAX {
        return Err(AggregateError::Refused(format!(
            "a volume has {EXPORT_RULES_MAX} export rules at most"
        )));
    }
    Ok(())
}

pub(crate) fn set_rules(record: &mut VolumeRecord, rules: &[ExportRuleRecord]) {
    record.exports = VolumeRecord::empty().exports;
    for (slot, rule) in record.exports.iter_mut().zip(rules) {
        *slot = ExportRuleRecord { used: 1, ..*rule };
    }
}
