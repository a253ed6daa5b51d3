//! Table records: a volume's entry in its aggregate's volume table (what FlexVol section 3.1 calls
//! the RAID file), and a snapshot's entry in its volume's snapshot table.
//!
//! Invariants: a record whose `state` is zero is empty. Names are UTF-8 without NUL, zero padded.
//!
//! Fails: `validate` names the field.

use crate::damage::Damage;
use crate::features::{
    AUTOGROW, CLONE_SPLIT, FeatureScope, FeatureSet, OFFLINE, RECOVERY_QUEUE, SNAPSHOT_AUTODELETE,
    SNAPSHOT_SCHEDULE, VOLUME_GUARANTEE,
};
use crate::inode::InodeRecord;
use crate::root::DISCARDED_TREES;
use std::borrow::Cow;
use std::fmt;
use units::{BLOCK_SIZE, Block, SnapshotUuid, VolumeId, VolumeUuid};
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longest name of a volume or snapshot, in bytes.
pub const NAME_SIZE_MAX: usize = 64;
/// Export rules of a volume at most: they lie in its record.
pub const EXPORT_RULES_MAX: usize = 64;

/// `state` of an empty record.
pub const STATE_EMPTY: u8 = 0;
/// `state` of a volume or snapshot in use. A volume that is offline has the feature
/// [`OFFLINE`] beside it.
pub const STATE_ONLINE: u8 = 1;
/// `state` of a volume or snapshot that is being deleted in the background.
pub const STATE_DELETING: u8 = 2;

/// `kind` of a volume in a container file.
pub const VOLUME_FLEXIBLE: u8 = 1;
/// `kind` of the volume that is the aggregate's own file system.
pub const VOLUME_TRADITIONAL: u8 = 2;

/// `tiering` of a volume whose blocks stay where they were written.
pub const TIERING_NONE: u8 = 0;
/// `tiering` of a volume of which everything moves to object stores, if its aggregate has any.
pub const TIERING_ALL: u8 = 1;
/// `tiering` of a volume of which cold blocks move there that only snapshots hold.
pub const TIERING_SNAPSHOT_ONLY: u8 = 2;
/// `tiering` of a volume of which all cold blocks move there.
pub const TIERING_AUTO: u8 = 3;
/// `reallocation` of a volume of which a file that is read in order and lies scattered is written
/// anew in order, in the background.
pub const REALLOCATION_AUTO: u8 = 0;
/// `reallocation` of a volume without read reallocation.
pub const REALLOCATION_OFF: u8 = 1;
/// `guarantee` of a volume that takes room of its aggregate as it needs it.
pub const GUARANTEE_NONE: u8 = 0;
/// `guarantee` of a volume for which its aggregate keeps as much room as its whole size lacks.
pub const GUARANTEE_VOLUME: u8 = 1;
/// `snapshot_autodelete` of a volume whose snapshots stay where room is short.
pub const AUTODELETE_OFF: u8 = 0;
/// `snapshot_autodelete` of a volume whose schedules' snapshots are deleted where room is short.
pub const AUTODELETE_SCHEDULED: u8 = 1;
/// `snapshot_autodelete` of a volume of which the other snapshots are deleted, too, after those.
pub const AUTODELETE_ALL: u8 = 2;
/// Days that a block must not be read for to be cold, at least: two, as scans of a few hours'
/// period tell no less apart.
pub const COOLING_DAYS_MIN: u16 = 2;
/// And at most: half a year.
pub const COOLING_DAYS_MAX: u16 = 183;

/// An NFS export rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct ExportRuleRecord {
    /// The network, IPv6 or IPv4-mapped.
    pub address: [u8; 16],
    /// Leading bits of `address` that must match.
    pub prefix_bits: u8,
    /// 1: changes are refused.
    pub read_only: u8,
    /// 0: nobody is squashed, 1: root, 2: everybody.
    pub squash: u8,
    /// 1 when the rule is in use.
    pub used: u8,
    /// `EXPORT_` bits.
    pub flags: u8,
    /// Reserved; zero.
    pub reserved: [u8; 3],
    /// The user of anonymous requests, if [`EXPORT_ANONYMOUS`] is set; else 65,534.
    pub anonymous_uid: U32,
    /// The group of anonymous requests, in the same way.
    pub anonymous_gid: U32,
}

/// Leading bits of an IPv4-mapped address that are not the IPv4 address.
pub const EXPORT_MAPPED_BITS: u8 = 96;

impl ExportRuleRecord {
    /// Whether this build knows all that the rule says. One of a newer build is neither guessed at
    /// nor lost: it may forbid what a rule behind it allows.
    #[must_use]
    pub fn is_understood(&self) -> bool {
        let mapped = std::net::Ipv6Addr::from(self.address).to_ipv4_mapped();
        let bits_min = if mapped.is_some() { EXPORT_MAPPED_BITS } else { 0 };
        let has_network =
            self.flags & EXPORT_EVERY_CLIENT != 0 || (bits_min..=128).contains(&self.prefix_bits);
        let is_known = self.used == 1 && self.read_only <= 1 && self.squash <= 2;
        is_known && has_network && self.flags & !EXPORT_FLAGS == 0 && self.reserved == [0; 3]
    }
}

/// `flags` of an export rule: it names user and group of anonymous requests.
pub const EXPORT_ANONYMOUS: u8 = 1;
/// `flags` of an export rule: calls must come from a port below 1024.
pub const EXPORT_SECURE_PORTS: u8 = 2;
/// `flags` of an export rule: `.snapshot` is not shown.
pub const EXPORT_HIDE_SNAPSHOTS: u8 = 4;
/// `flags` of an export rule: for clients of both families; the address is zero.
pub const EXPORT_EVERY_CLIENT: u8 = 8;
/// Bits of `flags` that there are. A build that knows fewer must not guess at a rule.
pub const EXPORT_FLAGS: u8 = 15;

const VOLUME_PADDING_BYTES: usize = BLOCK_SIZE
    - 128
    - EXPORT_RULES_MAX * 32
    - 32
    - size_of::<FeatureSet>()
    - size_of::<CloneBase>()
    - 48;

/// A volume's record: one block of the volume table.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct VolumeRecord {
    /// [`STATE_ONLINE`], [`STATE_DELETING`] or [`STATE_EMPTY`].
    pub state: u8,
    /// [`VOLUME_FLEXIBLE`] or [`VOLUME_TRADITIONAL`].
    pub kind: u8,
    /// Bytes of `name` in use.
    pub name_size: U16,
    /// The volume's number.
    pub volume: U32,
    /// The inode of its container file in the aggregate, or 0.
    pub container_inode: U64,
    /// The size that users see, in blocks.
    pub size_blocks: U64,
    /// Creation, nanoseconds since the epoch.
    pub created: I64,
    /// Its name.
    pub name: [u8; NAME_SIZE_MAX],
    /// Which of its blocks are to lie in object stores: [`TIERING_NONE`], [`TIERING_ALL`],
    /// [`TIERING_SNAPSHOT_ONLY`] or [`TIERING_AUTO`].
    pub tiering: u8,
    /// Whether files that lie scattered are written anew when they are read in order:
    /// [`REALLOCATION_AUTO`] or [`REALLOCATION_OFF`].
    pub reallocation: u8,
    /// Days until a block is cold, [`COOLING_DAYS_MIN`] to [`COOLING_DAYS_MAX`]; 0: as the policy
    /// has it.
    pub cooling_days: U16,
    /// Reserved; zero.
    pub reserved_b: U32,
    /// When the last temperature scan began, nanoseconds since the epoch: the one under way if
    /// there is one.
    pub scan_started: I64,
    /// The lowest-level node of its container map that the temperature scan under way goes on with;
    /// 0 when none is.
    pub scan_next: U64,
    /// Its blocks that lie in object stores.
    pub object_blocks: U64,
    /// Its export rules, in order.
    pub exports: [ExportRuleRecord; EXPORT_RULES_MAX],
    /// Its identity: no other volume has it, in whatever aggregate.
    pub identity: VolumeUuid,
    /// The key of the codes that prove its file handles (decision 35).
    pub handle_key: [u8; 16],
    /// What the volume's content uses.
    pub features: FeatureSet,
    /// The snapshot that a clone began with; all zero in a volume that is no clone.
    pub clone_base: CloneBase,
    /// When an administrator deleted the volume, if it is in the recovery queue: nanoseconds since
    /// the epoch. Else zero, and so is `purge_after`.
    pub deleted: I64,
    /// From when on a volume of the recovery queue is purged.
    pub purge_after: I64,
    /// The size in blocks that the volume grows to by itself where room is short; 0: it does not.
    pub autogrow_max_blocks: U64,
    /// How many hourly, daily, weekly and monthly snapshots are kept; 0: none of these is taken.
    pub snapshots_kept: [U16; SCHEDULES],
    /// [`AUTODELETE_OFF`], [`AUTODELETE_SCHEDULED`] or [`AUTODELETE_ALL`].
    pub snapshot_autodelete: u8,
    /// [`GUARANTEE_NONE`] or [`GUARANTEE_VOLUME`].
    pub guarantee: u8,
    /// Reserved; zero.
    pub reserved_c: [u8; 6],
    /// Blocks that the clone had inherited when its split from its parent began; 0: none is under
    /// way.
    pub split_blocks: U64,
    /// Zero.
    pub padding: [u8; VOLUME_PADDING_BYTES],
}

/// Schedules of snapshots: hourly, daily, weekly, monthly.
pub const SCHEDULES: usize = 4;
/// Snapshots of all schedules that a volume keeps at most.
pub const SNAPSHOTS_KEPT_MAX: u32 = 1000;

/// Stands between the name and the number of a deleted volume.
pub const QUEUE_SEPARATOR: char = '~';

/// What a volume of this name is called once it is deleted: `NAME~NUMBER`. No other volume has
/// the number, and `~` is in no name that a user gives.
#[must_use]
pub fn queue_title(name: &str, volume: VolumeId) -> String {
    format!("{name}{QUEUE_SEPARATOR}{}", volume.get())
}

/// The snapshot that a clone began with (FlexVol section 4.2), its *base*.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct CloneBase {
    /// The number of the parent volume, which is less than the clone's; 0: the volume is no clone.
    pub parent: U32,
    /// The number of the base among the parent's snapshots.
    pub snapshot: U32,
    /// The identity of the base.
    pub identity: SnapshotUuid,
    /// Reserved; zero.
    pub reserved: U64,
    /// The inode of the base's free map.
    pub active_map: InodeRecord,
    /// The inodes of the base's trees that a clone lets go of, in the order of
    /// [`DISCARDED_TREES`].
    pub discarded: [InodeRecord; DISCARDED_TREES.len()],
}

impl CloneBase {
    /// Whether the volume is a clone.
    #[must_use]
    pub fn is_some(&self) -> bool {
        self.parent.get() != 0
    }

    /// # Errors
    /// The first field that cannot be right for the clone `volume`.
    fn validate(&self, volume: u32) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: "volume record", field });
        if !self.is_some() {
            return Damage::unless_zero("volume record", &[self.as_bytes()]);
        }
        // So no volume is its own ancestor.
        if self.parent.get() >= volume {
            return wrong("clone_base.parent");
        }
        if matches!(self.snapshot.get(), 0 | u32::MAX) {
            return wrong("clone_base.snapshot");
        }
        if self.identity.is_nil() {
            return wrong("clone_base.identity");
        }
        self.active_map.validate()?;
        self.discarded.iter().try_for_each(InodeRecord::validate)?;
        Damage::unless_zero("volume record", &[self.reserved.as_bytes()])
    }
}

const _: () = {
    assert!(size_of::<CloneBase>() == 1312);
    assert!(size_of::<ExportRuleRecord>() == 32);
    assert!(size_of::<VolumeRecord>() == BLOCK_SIZE);
    assert!(std::mem::offset_of!(VolumeRecord, exports) == 128);
    assert!(std::mem::offset_of!(VolumeRecord, identity) == 128 + EXPORT_RULES_MAX * 32);
};

impl VolumeRecord {
    /// An empty record.
    #[must_use]
    pub fn empty() -> Self {
        <Self as zerocopy::FromZeros>::new_zeroed()
    }

    /// The record in `block`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_block(block: &Block) -> Result<Self, Damage> {
        let record = Self::read_from_bytes(block.bytes().as_slice())
            .map_err(|_| Damage::Field { structure: "volume record", field: "size" })?;
        record.validate()?;
        Ok(record)
    }

    /// The block for media.
    #[must_use]
    pub fn to_block(&self) -> Block {
        Block::from_prefix(self.as_bytes())
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        name_of(&self.name, self.name_size).unwrap_or("")
    }

    /// The name by which the volume is found among all of its aggregate: its own, or that of a
    /// deleted one ([`queue_title`]), whose own name is free.
    #[must_use]
    pub fn title(&self) -> Cow<'_, str> {
        match self.is_queued() || self.state == STATE_DELETING {
            true => Cow::Owned(queue_title(self.name(), VolumeId(self.volume.get()))),
            false => Cow::Borrowed(self.name()),
        }
    }

    /// The volume grows by itself up to this size; 0: it does not.
    pub fn set_autogrow_max_blocks(&mut self, size_blocks: u64) {
        self.autogrow_max_blocks = U64::new(size_blocks);
        match size_blocks {
            0 => self.features.clear(&AUTOGROW),
            _ => self.features.set(&AUTOGROW),
        }
    }

    /// So many hourly, daily, weekly and monthly snapshots are kept.
    pub fn set_snapshots_kept(&mut self, kept: [u16; SCHEDULES]) {
        self.snapshots_kept = kept.map(U16::new);
        match kept.iter().all(|count| *count == 0) {
            true => self.features.clear(&SNAPSHOT_SCHEDULE),
            false => self.features.set(&SNAPSHOT_SCHEDULE),
        }
    }

    /// Where room is short these snapshots are deleted: one of the values of the field.
    pub fn set_snapshot_autodelete(&mut self, which: u8) {
        self.snapshot_autodelete = which;
        match which {
            AUTODELETE_OFF => self.features.clear(&SNAPSHOT_AUTODELETE),
            _ => self.features.set(&SNAPSHOT_AUTODELETE),
        }
    }

    /// Its aggregate keeps this room for it: one of the values of the field.
    pub fn set_guarantee(&mut self, guarantee: u8) {
        self.guarantee = guarantee;
        match guarantee {
            GUARANTEE_NONE => self.features.clear(&VOLUME_GUARANTEE),
            _ => self.features.set(&VOLUME_GUARANTEE),
        }
    }

    /// The clone is being split from its parent, and had inherited so many blocks at the beginning;
    /// 0: it is not.
    pub fn set_split_blocks(&mut self, blocks: u64) {
        self.split_blocks = U64::new(blocks);
        match blocks {
            0 => self.features.clear(&CLONE_SPLIT),
            _ => self.features.set(&CLONE_SPLIT),
        }
    }

    /// The volume that it is a clone of, if it is one. A record of a newer build may say anything:
    /// a number that is not less than the volume's own is none.
    #[must_use]
    pub fn parent(&self) -> Option<VolumeId> {
        let (parent, own) = (self.clone_base.parent.get(), self.volume.get());
        (1..own).contains(&parent).then_some(VolumeId(parent))
    }

    /// Whether an administrator took the volume offline.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.features.has(&OFFLINE)
    }

    /// Whether the volume was deleted and is kept in the recovery queue.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.features.has(&RECOVERY_QUEUE)
    }

    /// # Errors
    /// The first field that cannot be right.
    pub fn validate(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: "volume record", field });
        if self.state == STATE_EMPTY {
            return Ok(());
        }
        if self.state > STATE_DELETING {
            return wrong("state");
        }
        // Whatever a newer build has written into it, it costs this volume alone.
        self.features.validate(FeatureScope::Volume, "volume record")?;
        let is_unread = self.features.forbids_reading(FeatureScope::Volume).is_some();
        if !is_unread && !matches!(self.kind, VOLUME_FLEXIBLE | VOLUME_TRADITIONAL) {
            return wrong("kind");
        }
        if self.features.forbids_writing(FeatureScope::Volume).is_none() {
            self.validate_policies()?;
        }
        if name_of(&self.name, self.name_size).is_none() {
            return wrong("name");
        }
        if self.size_blocks.get() > crate::pointer::BLOCK_NUMBER_MAX {
            return wrong("size_blocks");
        }
        if self.object_blocks.get() > crate::pointer::BLOCK_NUMBER_MAX {
            return wrong("object_blocks");
        }
        if self.kind == VOLUME_FLEXIBLE && self.container_inode.get() == 0 {
            return wrong("container_inode");
        }
        if self.identity.is_nil() {
            return wrong("identity");
        }
        if !is_unread {
            self.clone_base.validate(self.volume.get())?;
            self.validate_queued()?;
        }
        let rules = self.exports.each_ref().map(|rule| rule.reserved.as_slice());
        self.features.check_reserved(FeatureScope::Volume, "volume record", &rules)?;
        let reserved = [self.reserved_b.as_bytes(), &self.reserved_c, &self.padding];
        self.features.check_reserved(FeatureScope::Volume, "volume record", &reserved)
    }

    fn validate_queued(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: "volume record", field });
        let (deleted, purge_after) = (self.deleted.get(), self.purge_after.get());
        match self.is_queued() {
            true if self.kind != VOLUME_FLEXIBLE => wrong("kind"),
            true if purge_after < deleted => wrong("purge_after"),
            false if deleted != 0 => wrong("deleted"),
            false if purge_after != 0 => wrong("purge_after"),
            _ => Ok(()),
        }
    }

    /// What nobody looks at in a volume that is not written.
    fn validate_policies(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: "volume record", field });
        if self.tiering > TIERING_AUTO {
            return wrong("tiering");
        }
        if self.reallocation > REALLOCATION_OFF {
            return wrong("reallocation");
        }
        let days = self.cooling_days.get();
        if days != 0 && !(COOLING_DAYS_MIN..=COOLING_DAYS_MAX).contains(&days) {
            return wrong("cooling_days");
        }
        let autogrow_max = self.autogrow_max_blocks.get();
        if self.features.has(&AUTOGROW) != (autogrow_max != 0)
            || autogrow_max > crate::pointer::BLOCK_NUMBER_MAX
        {
            return wrong("autogrow_max_blocks");
        }
        let kept: u32 = self.snapshots_kept.iter().map(|count| u32::from(count.get())).sum();
        if self.features.has(&SNAPSHOT_SCHEDULE) != (kept != 0) || kept > SNAPSHOTS_KEPT_MAX {
            return wrong("snapshots_kept");
        }
        let autodelete = self.snapshot_autodelete;
        if self.features.has(&SNAPSHOT_AUTODELETE) != (autodelete != AUTODELETE_OFF)
            || autodelete > AUTODELETE_ALL
        {
            return wrong("snapshot_autodelete");
        }
        if self.features.has(&VOLUME_GUARANTEE) != (self.guarantee != GUARANTEE_NONE)
            || self.guarantee > GUARANTEE_VOLUME
        {
            return wrong("guarantee");
        }
        let split_blocks = self.split_blocks.get();
        if self.features.has(&CLONE_SPLIT) != (split_blocks != 0)
            || split_blocks > crate::pointer::BLOCK_NUMBER_MAX
            || split_blocks != 0 && !self.clone_base.is_some()
        {
            return wrong("split_blocks");
        }
        if self.scan_next.get() > crate::pointer::BLOCK_NUMBER_MAX {
            return wrong("scan_next");
        }
        Ok(())
    }
}

impl fmt::Display for VolumeRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "volume {} '{}' state {} kind {} container {} size {} blocks",
            self.volume,
            self.name(),
            self.state,
            self.kind,
            self.container_inode,
            self.size_blocks
        )
    }
}

/// A snapshot's record; four to a block of the snapshot table.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct SnapshotRecord {
    /// [`STATE_ONLINE`], [`STATE_DELETING`] or [`STATE_EMPTY`].
    pub state: u8,
    /// `SNAPSHOT_` bits.
    pub flags: u8,
    /// Bytes of `name` in use.
    pub name_size: U16,
    /// The snapshot's number.
    pub snapshot: U32,
    /// The consistency point whose image it is.
    pub cp: U64,
    /// Creation, nanoseconds since the epoch.
    pub created: I64,
    /// Blocks of the summary map below this index include this snapshot's map; the others do
    /// not yet.
    pub merged_blocks: U64,
    /// While deleting: blocks of the free map below this index have been released.
    pub released_blocks: U64,
    /// Blocks in use by the image.
    pub used_blocks: U64,
    /// Its name.
    pub name: [u8; NAME_SIZE_MAX],
    /// Inodes in use in the image.
    pub used_inodes: U64,
    /// Its identity: no other snapshot has it, but its copies in mirrors of the volume.
    pub identity: SnapshotUuid,
    /// Reserved; zero.
    pub reserved_b: [u8; 120],
    /// The inode of the image's inode file.
    pub inode_file: InodeRecord,
    /// The inode of the snapshot table as it was when the snapshot was made: its blocks are in the
    /// image's free map. All zero in that table itself, which cannot name its own blocks.
    pub snapshot_table: InodeRecord,
    /// Reserved; zero.
    pub reserved_c: [u8; 256],
}

/// `flags` of a snapshot that is not deleted before an administrator releases it. The volume has
/// the feature [`SNAPSHOT_HOLDS`](crate::features::SNAPSHOT_HOLDS).
pub const SNAPSHOT_HELD: u8 = 1;
/// Bits of `flags` of a snapshot that there are.
pub const SNAPSHOT_FLAGS: u8 = SNAPSHOT_HELD;

/// Snapshot records in a block.
pub const SNAPSHOTS_PER_BLOCK: usize = BLOCK_SIZE / size_of::<SnapshotRecord>();

const _: () = {
    assert!(size_of::<SnapshotRecord>() == 1024);
    assert!(std::mem::offset_of!(SnapshotRecord, inode_file) == 256);
    assert!(std::mem::offset_of!(SnapshotRecord, snapshot_table) == 512);
};

impl SnapshotRecord {
    /// An empty record.
    #[must_use]
    pub fn empty() -> Self {
        <Self as zerocopy::FromZeros>::new_zeroed()
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        name_of(&self.name, self.name_size).unwrap_or("")
    }

    /// # Errors
    /// The first field that cannot be right.
    pub fn validate(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: "snapshot record", field });
        if self.state == STATE_EMPTY {
            return Ok(());
        }
        if self.state > STATE_DELETING {
            return wrong("state");
        }
        if name_of(&self.name, self.name_size).is_none() {
            return wrong("name");
        }
        if matches!(self.snapshot.get(), 0 | u32::MAX) {
            return wrong("snapshot");
        }
        if self.identity.is_nil() {
            return wrong("identity");
        }
        let flags = self.flags & !SNAPSHOT_FLAGS;
        let reserved = [flags.as_bytes(), &self.reserved_b, &self.reserved_c];
        Damage::unless_zero("snapshot record", &reserved)?;
        self.inode_file.validate()?;
        self.snapshot_table.validate()
    }
}

impl fmt::Display for SnapshotRecord {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "snapshot {} '{}' state {} cp {} merged {} released {}",
            self.snapshot,
            self.name(),
            self.state,
            self.cp,
            self.merged_blocks,
            self.released_blocks
        )
    }
}

fn name_of(name: &[u8; NAME_SIZE_MAX], size: U16) -> Option<&str> {
    let bytes = name.get(..usize::from(size.get()))?;
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// `name` as a record stores it: the padded bytes and the size.
///
/// # Errors
/// [`Damage::Field`] if it is too long.
pub fn name_field(name: &str) -> Result<([u8; NAME_SIZE_MAX], U16), Damage> {
    let mut field = [0; NAME_SIZE_MAX];
    let target =
        field.get_mut(..name.len()).ok_or(Damage::Field { structure: "record", field: "name" })?;
    target.copy_from_slice(name.as_bytes());
    let size = u16::try_from(name.len())
        .map_err(|_| Damage::Field { structure: "record", field: "name" })?;
    Ok((field, U16::new(size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::{FeatureClass, REALLOCATION};

    fn record() -> VolumeRecord {
        let mut record = VolumeRecord::empty();
        (record.state, record.kind) = (STATE_ONLINE, VOLUME_FLEXIBLE);
        (record.volume, record.container_inode) = (U32::new(1), U64::new(65));
        record.identity = VolumeUuid([1; 16]);
        record
    }

    /// A newer build's record refused the whole aggregate, and not by the feature's name.
    #[test]
    fn regression_new_values_in_a_record_belong_to_the_feature_that_is_lacking() {
        type Change = fn(&mut VolumeRecord);
        let unread: [Change; 1] = [|record| record.kind = 3];
        let unwritten: [Change; 6] = [
            |record| record.guarantee = GUARANTEE_VOLUME + 1,
            |record| record.snapshot_autodelete = AUTODELETE_ALL + 1,
            |record| record.tiering = TIERING_AUTO + 1,
            |record| record.reallocation = REALLOCATION_OFF + 1,
            |record| record.cooling_days = U16::new(1),
            |record| record.scan_next = U64::new(u64::MAX),
        ];
        let unused: [Change; 3] = [
            |record| record.exports[3].reserved[1] = 1,
            |record| record.reserved_c[5] = 1,
            |record| record.padding[9] = 1,
        ];
        let (reading, writing) = (FeatureClass::Incompatible, FeatureClass::ReadOnlyCompatible);
        let allowed = |class| {
            let mut changes: Vec<Change> = unused.to_vec();
            changes.extend(unwritten.iter().filter(|_| class != FeatureClass::Compatible));
            changes.extend(unread.iter().filter(|_| class == reading));
            changes
        };
        for class in [FeatureClass::Compatible, writing, reading] {
            for change in [&unread[..], &unwritten, &unused].concat() {
                let mut newer = record();
                change(&mut newer);
                assert!(newer.validate().is_err(), "without a feature it is not read");
            }
            for change in allowed(class) {
                let mut newer = record();
                newer.features.set_named(class, 40, "later");
                change(&mut newer);
                assert_eq!(newer.validate(), Ok(()), "{class:?}");
            }
        }
        let mut newer = record();
        newer.features.set_named(reading, 40, "later");
        newer.container_inode = U64::new(0);
        assert!(newer.validate().is_err(), "whose blocks are whose must be known");
    }

    #[test]
    fn a_reallocation_that_does_not_exist_is_damage() {
        let validated = |reallocation| VolumeRecord { reallocation, ..record() }.validate();
        assert_eq!(validated(REALLOCATION_AUTO), Ok(()));
        assert_eq!(validated(REALLOCATION_OFF), Ok(()));
        let wrong = Damage::Field { structure: "volume record", field: "reallocation" };
        for damaged in [2, u8::MAX] {
            assert_eq!(validated(damaged), Err(wrong));
        }
    }

    #[test]
    fn a_largest_size_comes_with_its_feature() {
        let mut record = record();
        record.set_autogrow_max_blocks(5000);
        assert_eq!((record.validate(), record.features.has(&AUTOGROW)), (Ok(()), true));
        let wrong = Damage::Field { structure: "volume record", field: "autogrow_max_blocks" };
        record.autogrow_max_blocks = U64::new(0);
        assert_eq!(record.validate(), Err(wrong));
        record.set_autogrow_max_blocks(crate::pointer::BLOCK_NUMBER_MAX + 1);
        assert_eq!(record.validate(), Err(wrong));
        record.set_autogrow_max_blocks(0);
        assert_eq!((record.validate(), record.features), (Ok(()), FeatureSet::empty()));
        record.autogrow_max_blocks = U64::new(5000);
        assert_eq!(record.validate(), Err(wrong));
    }

    /// The byte was reserved: a build without the feature takes it for damage if the feature's bit
    /// is not set, and serves the volume if it is.
    #[test]
    fn the_feature_of_reallocation_forbids_an_older_build_nothing() {
        let mut record = record();
        record.features.set(&REALLOCATION);
        assert_eq!(record.validate(), Ok(()));
        assert_eq!(REALLOCATION.class, FeatureClass::Compatible);
        assert_eq!(record.features.forbids_writing(FeatureScope::Volume), None);
        assert_eq!(record.features.to_string(), "reallocation");
    }
}
