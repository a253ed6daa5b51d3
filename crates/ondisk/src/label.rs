//! The label of a disk: which aggregate, RAID group and place in it the disk has.
//!
//! Two copies, in the disk's first and last block. A change writes one, flushes, writes the other:
//! the valid copy with the highest `sequence` counts.
//!
//! Invariants:
//! - `members[disk_index] == disk`; the first `disks_in_group` members are set and the others zero.
//! - A base once given, `data_regions` and `log_regions` never change: block numbers, and the place
//!   of the log, follow from them.
//! - What is `removed` stays so: of labels that know of different groups the one that knows of more
//!   was written later. The numbers of removed groups are never given again: the first that is free
//!   is the sum of `removed_blocks` and of what the groups have.
//! - A spare has no place: no members, no RAID kind. What is on it counts for nothing until a label
//!   says that it is a member.
//! - `missing` has a bit for each member that has missed writes: its content is old, whatever it
//!   says of itself. `rebuilding` has one for those of them that are being written anew: of these
//!   the first `rebuilt_regions` regions are as good as any other disk's.
//!
//! Fails: [`DiskLabel::validate`] tells [`Damage`]; no bytes whatever panic.

use crate::damage::Damage;
use crate::features::{
    DISK_NUMBERS, DOUBLE_PARITY, FeatureScope, FeatureSet, LOG_COPIES, LOG_ON_DISKS,
    REMOVED_GROUPS, TRIPLE_PARITY,
};
use crate::identity::crc32c_of_bytes;
use crate::log_copies::LogCopies;
use crate::medium::Medium;
use crate::scrub::ScrubRecord;
use crate::versions::FORMAT_VERSION;
use std::fmt;
use std::mem::{offset_of, size_of};
use units::{AggregateUuid, BLOCK_SIZE, Block, DiskUuid};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "STROOPDL".
pub const LABEL_MAGIC: u64 = u64::from_le_bytes(*b"STROOPDL");

/// Disks of a group. A bit each in `missing`; larger groups would rebuild for days.
pub const GROUP_DISKS_MAX: usize = 32;
/// Groups of an aggregate: 1,024 groups of 32 disks is more than a node can be attached to.
pub const GROUPS_MAX: u32 = 1024;
/// Regions of a disk in which a copy of the log may be: more than the largest log has (16 GiB).
pub const LOG_REGIONS_MAX: u64 = 1 << 20;
/// Bytes of an aggregate's name.
pub const AGGREGATE_NAME_BYTES_MAX: usize = 64;

const STRUCTURE: &str = "disk label";

/// How a group protects its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RaidKind {
    /// Not at all: each group is one disk.
    None,
    /// One dedicated parity disk.
    Raid4,
    /// Two: row and diagonal parity.
    Dp,
    /// Three: row, diagonal and anti-diagonal parity.
    Tp,
}

impl RaidKind {
    /// The number on disk.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::None => 1,
            Self::Raid4 => 2,
            Self::Dp => 3,
            Self::Tp => 4,
        }
    }

    /// The kind of a number on disk.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::None),
            2 => Some(Self::Raid4),
            3 => Some(Self::Dp),
            4 => Some(Self::Tp),
            _ => None,
        }
    }

    /// Parity disks of a group.
    #[must_use]
    pub const fn parity_disks(self) -> usize {
        match self {
            Self::None => 0,
            Self::Raid4 => 1,
            Self::Dp => 2,
            Self::Tp => 3,
        }
    }
}

impl fmt::Display for RaidKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::None => "none",
            Self::Raid4 => "raid4",
            Self::Dp => "dp",
            Self::Tp => "tp",
        })
    }
}

/// What a disk does in its group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DiskRole {
    /// Holds data.
    Data,
    /// Holds parity; a group's parity disks are its first: row, diagonal, anti-diagonal.
    Parity,
    /// Waits for the place of another, or is being filled with what that holds. It is no member of
    /// a group, and nothing on it counts.
    Spare,
}

impl DiskRole {
    /// The number on disk.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Parity => 2,
            Self::Spare => 3,
        }
    }

    /// The role of a number on disk.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Data),
            2 => Some(Self::Parity),
            3 => Some(Self::Spare),
            _ => None,
        }
    }
}

impl fmt::Display for DiskRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Data => "data",
            Self::Parity => "parity",
            Self::Spare => "spare",
        })
    }
}

/// Why a disk that works should be replaced.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Sickness {
    /// Too many blocks could not be read.
    Unreadable,
    /// Too many blocks were not what was written.
    Rotten,
    /// It failed too often, or did not answer.
    Unreliable,
}

impl Sickness {
    /// The number on disk.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Unreadable => 1,
            Self::Rotten => 2,
            Self::Unreliable => 3,
        }
    }

    /// That of a number on disk; 0 is none.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Unreadable),
            2 => Some(Self::Rotten),
            3 => Some(Self::Unreliable),
            _ => None,
        }
    }
}

impl fmt::Display for Sickness {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Unreadable => "too many of its blocks could not be read",
            Self::Rotten => "too many of its blocks were not what was written",
            Self::Unreliable => "it went out of use too often",
        })
    }
}

/// A disk's label.
#[derive(Clone, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct DiskLabel {
    /// [`LABEL_MAGIC`].
    pub magic: U64,
    /// The version of the format; never moves.
    pub version: U16,
    /// Zero.
    pub reserved_a: U16,
    /// Standard CRC32C of the block with this field zero.
    pub checksum: U32,
    /// The disk's identity.
    pub disk: DiskUuid,
    /// The aggregate's identity.
    pub aggregate: AggregateUuid,
    /// The aggregate's name, filled up with zeros.
    pub aggregate_name: [u8; AGGREGATE_NAME_BYTES_MAX],
    /// When the disk was labelled, in nanoseconds since 1970.
    pub created_nanoseconds: I64,
    /// How often the label was changed; of two copies the higher counts.
    pub sequence: U64,
    /// The size of the data area in regions of 64 blocks; equal in all disks of a group.
    pub data_regions: U64,
    /// Zero.
    pub reserved_e: U64,
    /// Which group of the aggregate.
    pub group_index: U32,
    /// How many groups the aggregate has, removed ones among them; the labels of the first group
    /// that is left count.
    pub groups_count: U32,
    /// Which disk of the group.
    pub disk_index: U16,
    /// How many disks the group has, parity included.
    pub disks_in_group: U16,
    /// A bit for each member whose content is old.
    pub missing: U32,
    /// [`RaidKind`].
    pub raid_kind: u8,
    /// [`DiskRole`].
    pub role: u8,
    /// 1 if the disk is rotational.
    pub rotational: u8,
    /// The number of [`Medium`]; 0 in labels of a version before 3.
    pub medium: u8,
    /// The size of an erase block or zone in bytes; 0 where the medium has none.
    pub medium_unit_bytes: U32,
    /// The identities of all disks of the group, in order.
    pub members: [DiskUuid; GROUP_DISKS_MAX],
    /// A bit for each member that is being rebuilt; they are missing as well.
    pub rebuilding: U32,
    /// Zero.
    pub reserved_d: U32,
    /// How many regions of this disk are rebuilt, if it is being rebuilt; of a spare, how many are
    /// copied.
    pub rebuilt_regions: U64,
    /// The first PVBN of each member, zero for parity disks: disks that joined later have ranges
    /// apart from the others'.
    pub bases: [U64; GROUP_DISKS_MAX],
    /// What was last scrubbed; of all labels the highest serial counts.
    pub scrub: ScrubRecord,
    /// Blocks of this disk that could not be read, since it was labelled or cleared.
    pub read_errors: U32,
    /// Writes that this disk did not do, since then.
    pub write_errors: U32,
    /// Blocks of this disk that failed their proof, since then.
    pub checksum_errors: U32,
    /// Why this disk should be replaced though it works: the number of [`Sickness`], or 0.
    pub sickness: U32,
    /// Zero.
    pub reserved_c: [u8; 16],
    /// The spare that is being filled to take a place in this group; zero if none is. A spare that
    /// its group's labels name here has copied what its own label says, any other nothing.
    pub replacement: DiskUuid,
    /// What consistency points up to this one wrote is on all members that are `away`.
    pub trusted_cp: U64,
    /// A bit for each missing member that went, or was not there, and has not failed: it may be
    /// taken back.
    pub away: U32,
    /// A bit for each of those that holds what it held: what it may have lost, and what it missed,
    /// has been written since by consistency points after `trusted_cp`, and those are complete.
    pub settled: U32,
    /// Block numbers that groups had which were removed.
    pub removed_blocks: U64,
    /// A bit for each group that was removed, the first in the lowest bit of the first byte. A
    /// spare says of no group that it was.
    pub removed: [u8; GROUPS_MAX as usize / 8],
    /// What the disk's content uses.
    pub features: FeatureSet,
    /// Which copies of the log have everything; of all labels the highest serial counts.
    pub log_copies: LogCopies,
    /// Regions behind the data area in which a copy of the log may be; equal in all disks of a
    /// group, 0 where the log is elsewhere.
    pub log_regions: U64,
    /// The number in the short name that the disk's node gave it: 3 of `d3`. 0 if it has none.
    pub short_number: U32,
    /// The disk that got the number. A label that was made from another disk's has the number of
    /// that one, which is not its own.
    pub numbered_disk: DiskUuid,
    /// Zero.
    pub reserved_f: [u8; 2588],
}

const _: () = {
    assert!(size_of::<DiskLabel>() == BLOCK_SIZE);
    // Read before the version is known.
    assert!(offset_of!(DiskLabel, version) == 8);
    assert!(offset_of!(DiskLabel, checksum) == 12);
    assert!(offset_of!(DiskLabel, medium_unit_bytes) == 164);
    assert!(offset_of!(DiskLabel, members) == 168);
    assert!(offset_of!(DiskLabel, scrub) == 952);
    assert!(offset_of!(DiskLabel, read_errors) == 1016);
    assert!(offset_of!(DiskLabel, replacement) == 1048);
    assert!(offset_of!(DiskLabel, removed_blocks) == 1080);
    assert!(offset_of!(DiskLabel, features) == 1216);
    assert!(offset_of!(DiskLabel, log_copies) == 1432);
    assert!(offset_of!(DiskLabel, log_regions) == 1480);
    assert!(offset_of!(DiskLabel, short_number) == 1488);
};

impl DiskLabel {
    /// A label of zeros but for magic and version, to be filled in.
    #[must_use]
    pub fn empty() -> Self {
        let mut label = Self::new_zeroed();
        label.magic = U64::new(LABEL_MAGIC);
        label.version = U16::new(FORMAT_VERSION);
        label
    }

    /// The label of the same disk as a spare, with nothing beyond the first sector: a power cut
    /// that meets its erasure leaves all of it or nothing.
    #[must_use]
    pub fn in_one_sector(&self) -> Self {
        let mut label = Self::empty();
        label.disk = self.disk;
        label.aggregate = self.aggregate;
        label.aggregate_name = self.aggregate_name;
        label.created_nanoseconds = self.created_nanoseconds;
        label.sequence = self.sequence;
        label.data_regions = self.data_regions;
        label.group_index = self.group_index;
        label.groups_count = self.groups_count;
        label.role = DiskRole::Spare.number();
        label.rotational = self.rotational;
        label.medium = self.medium;
        label.medium_unit_bytes = self.medium_unit_bytes;
        label
    }

    /// Whether the block says that it is a label, right or wrong.
    #[must_use]
    pub fn is_claimed_by(block: &Block) -> bool {
        block.bytes().starts_with(&LABEL_MAGIC.to_le_bytes())
    }

    /// What this build lacks to read the block, if a newer build wrote it as a label of the disk
    /// that has this label. A label of an unknown version counts as this disk's.
    #[must_use]
    pub fn lacking_for(&self, block: &Block) -> Option<Damage> {
        let Ok(other) = Self::read_from_bytes(block.bytes()) else {
            unreachable!("a label is as large as a block")
        };
        let damage = other.validate().err().filter(Damage::is_of_newer_build)?;
        let has_unknown_layout = matches!(damage, Damage::Version { .. });
        (has_unknown_layout || other.disk == self.disk).then_some(damage)
    }

    /// The label in a block.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_block(block: &Block) -> Result<Self, Damage> {
        let Ok(label) = Self::read_from_bytes(block.bytes()) else {
            unreachable!("a label is as large as a block")
        };
        label.validate()?;
        Ok(label)
    }

    /// The block to be written.
    #[must_use]
    pub fn to_block(&self) -> Block {
        let mut label = self.clone();
        label.version = U16::new(FORMAT_VERSION);
        label.features = label.features_in_use();
        label.checksum = U32::new(label.computed_checksum());
        assert_eq!(label.validate(), Ok(()), "a label is valid when it is written");
        Block::from_prefix(label.as_bytes())
    }

    /// The features that it has, those included that follow from other fields.
    #[must_use]
    pub fn features_in_use(&self) -> FeatureSet {
        let mut features = self.features;
        match self.kind() {
            Some(RaidKind::Dp) => features.set(&DOUBLE_PARITY),
            Some(RaidKind::Tp) => features.set(&TRIPLE_PARITY),
            Some(RaidKind::None | RaidKind::Raid4) | None => (),
        }
        if self.removed_blocks.get() != 0 {
            features.set(&REMOVED_GROUPS);
        }
        if self.log_copies.count.get() != 0 {
            features.set(&LOG_COPIES);
        }
        if self.log_regions.get() != 0 {
            features.set(&LOG_ON_DISKS);
        }
        if self.short_number.get() != 0 {
            features.set(&DISK_NUMBERS);
        }
        features
    }

    fn computed_checksum(&self) -> u32 {
        let mut label = self.clone();
        label.checksum = U32::ZERO;
        crc32c_of_bytes(label.as_bytes())
    }

    /// Whether every field holds what it can hold.
    ///
    /// # Errors
    /// The first that does not.
    pub fn validate(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: STRUCTURE, field });
        if self.magic.get() != LABEL_MAGIC {
            return wrong("magic");
        }
        let (found, computed) = (self.checksum.get(), self.computed_checksum());
        if found != computed {
            return Err(Damage::Checksum { structure: STRUCTURE, found, computed });
        }
        Damage::unless_read(STRUCTURE, self.version.get())?;
        self.features.validate(FeatureScope::Disk, STRUCTURE)?;
        let rotational = self.rotational & !1;
        let reserved = [
            rotational.as_bytes(),
            self.reserved_a.as_bytes(),
            self.reserved_e.as_bytes(),
            self.reserved_d.as_bytes(),
            &self.reserved_c,
            &self.reserved_f,
        ];
        self.features.check_reserved(FeatureScope::Disk, STRUCTURE, &reserved)?;
        if self.name().is_none_or(str::is_empty) {
            return wrong("aggregate_name");
        }
        if self.group_index.get() >= self.groups_count.get() || self.groups_count.get() > GROUPS_MAX
        {
            return wrong("group_index");
        }
        if self.data_regions.get() == 0 || self.data_regions.get() >> 48 != 0 {
            return wrong("data_regions");
        }
        if self.log_regions.get() > LOG_REGIONS_MAX {
            return wrong("log_regions");
        }
        if self.rebuilt_regions.get() > self.data_regions.get() {
            return wrong("rebuilt_regions");
        }
        if self.medium().is_none() {
            return wrong("medium");
        }
        if self.sickness.get() != 0 && self.sickness().is_none() {
            return wrong("sickness");
        }
        self.scrub.validate()?;
        self.log_copies.validate()?;
        self.validate_removed()?;
        match self.disk_role() {
            Some(DiskRole::Spare) => self.validate_spare(),
            _ => self.validate_member(),
        }
    }

    /// Of removed groups there are fewer than groups, and each had blocks.
    fn validate_removed(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: STRUCTURE, field });
        let mut beyond = self.groups_count.get()..GROUPS_MAX;
        if beyond.any(|group| self.is_removed(group)) {
            return wrong("removed");
        }
        let blocks = self.removed_blocks.get();
        if (blocks == 0) != (self.removed == [0; GROUPS_MAX as usize / 8]) || blocks >> 48 != 0 {
            return wrong("removed_blocks");
        }
        Ok(())
    }

    /// A spare has no group: a place, if it is being filled for one, and no say in who has which.
    fn validate_spare(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: STRUCTURE, field });
        if self.disk.is_nil() {
            return wrong("disk");
        }
        if usize::from(self.disk_index.get()) >= GROUP_DISKS_MAX {
            return wrong("disk_index");
        }
        if self.raid_kind != 0 || self.disks_in_group.get() != 0 {
            return wrong("raid_kind");
        }
        if self.members != [DiskUuid::NIL; GROUP_DISKS_MAX] {
            return wrong("members");
        }
        if self.removed_blocks.get() != 0 {
            return wrong("removed_blocks");
        }
        Ok(())
    }

    fn validate_member(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: STRUCTURE, field });
        let (index, count) = (self.disk_index.get(), self.disks_in_group.get());
        if index >= count || usize::from(count) > GROUP_DISKS_MAX {
            return wrong("disk_index");
        }
        let (Some(kind), Some(role)) = (self.kind(), self.disk_role()) else {
            return wrong("raid_kind");
        };
        if usize::from(count) <= kind.parity_disks() {
            return wrong("disks_in_group");
        }
        let is_parity = usize::from(index) < kind.parity_disks();
        if is_parity != (role == DiskRole::Parity) {
            return wrong("role");
        }
        if u64::from(self.missing.get()) >> count != 0 {
            return wrong("missing");
        }
        if self.rebuilding.get() & !self.missing.get() != 0 {
            return wrong("rebuilding");
        }
        if self.away.get() & !self.missing.get() != 0 {
            return wrong("away");
        }
        if self.settled.get() & !self.away.get() != 0 {
            return wrong("settled");
        }
        let last_set =
            |(at, member): (usize, &DiskUuid)| member.is_nil() == (at >= usize::from(count));
        if !self.members.iter().enumerate().all(last_set)
            || self.members.get(usize::from(index)) != Some(&self.disk)
        {
            return wrong("members");
        }
        if self.data_regions.get() == 0 || self.data_regions.get() >> 48 != 0 {
            return wrong("data_regions");
        }
        if !self.are_bases_possible(kind) {
            return wrong("bases");
        }
        if self.is_removed(self.group_index.get()) {
            return wrong("removed");
        }
        Ok(())
    }

    /// Data disks have a base, of which only that of the aggregate's first is zero; nobody else
    /// has.
    fn are_bases_possible(&self, kind: RaidKind) -> bool {
        let first_data = kind.parity_disks();
        let data = first_data..usize::from(self.disks_in_group.get());
        self.bases.iter().map(|base| base.get()).enumerate().all(|(at, base)| {
            let is_first = self.group_index.get() == 0 && at == first_data;
            (base == 0) == (is_first || !data.contains(&at)) && base >> 48 == 0
        })
    }

    /// The first PVBNs of the group's data disks.
    pub fn data_bases(&self) -> impl Iterator<Item = u64> {
        let parity_disks = self.kind().map_or(0, RaidKind::parity_disks);
        let data = parity_disks..usize::from(self.disks_in_group.get());
        self.bases.iter().take(data.end).skip(data.start).map(|base| base.get())
    }

    /// The aggregate's name; `None` if it is not text.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let end = self.aggregate_name.iter().position(|byte| *byte == 0);
        let (name, rest) = self.aggregate_name.split_at(end.unwrap_or(AGGREGATE_NAME_BYTES_MAX));
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        std::str::from_utf8(name).ok()
    }

    /// Sets the aggregate's name; false if it does not fit.
    #[must_use]
    pub fn set_name(&mut self, name: &str) -> bool {
        let Some(field) = self.aggregate_name.get_mut(..name.len()) else { return false };
        field.copy_from_slice(name.as_bytes());
        if let Some(rest) = self.aggregate_name.get_mut(name.len()..) {
            rest.fill(0);
        }
        true
    }

    /// How the group protects its data.
    #[must_use]
    pub fn kind(&self) -> Option<RaidKind> {
        RaidKind::from_number(self.raid_kind)
    }

    /// What the disk does in its group.
    #[must_use]
    pub fn disk_role(&self) -> Option<DiskRole> {
        DiskRole::from_number(self.role)
    }

    /// What the disk's medium is; `None` if the number or the unit is none that there is.
    #[must_use]
    pub const fn medium(&self) -> Option<Medium> {
        Medium::from_fields(self.medium, self.medium_unit_bytes.get())
    }

    /// Sets what the disk's medium is.
    pub fn set_medium(&mut self, medium: Medium) {
        let (number, unit_bytes) = medium.fields();
        self.medium = number;
        self.medium_unit_bytes = U32::new(unit_bytes);
        self.rotational = u8::from(medium.is_rotational());
    }

    /// Why the disk should be replaced, if it should.
    #[must_use]
    pub const fn sickness(&self) -> Option<Sickness> {
        Sickness::from_number(self.sickness.get())
    }

    /// Forgets the errors of the disk: it is another, or they do not count any more.
    pub fn clear_errors(&mut self) {
        self.read_errors = U32::ZERO;
        self.write_errors = U32::ZERO;
        self.checksum_errors = U32::ZERO;
        self.sickness = U32::ZERO;
    }

    /// The number in the disk's short name, if it has one.
    #[must_use]
    pub fn number(&self) -> Option<u32> {
        let is_its = self.numbered_disk == self.disk && self.short_number.get() != 0;
        is_its.then(|| self.short_number.get())
    }

    /// Sets the number in the disk's short name.
    pub fn set_number(&mut self, number: u32) {
        self.short_number = U32::new(number);
        self.numbered_disk = self.disk;
    }

    /// Takes the number of the disk's own label, which this one is to replace.
    pub const fn keep_number(&mut self, own: &Self) {
        self.short_number = own.short_number;
        self.numbered_disk = own.numbered_disk;
    }

    /// Whether a group was removed.
    #[must_use]
    pub fn is_removed(&self, group: u32) -> bool {
        let byte = self.removed.get(group as usize / 8);
        byte.is_some_and(|byte| byte >> (group % 8) & 1 == 1)
    }

    /// Notes that a group was removed.
    pub fn set_removed(&mut self, group: u32) {
        if let Some(byte) = self.removed.get_mut(group as usize / 8) {
            *byte |= 1 << (group % 8);
        }
    }

    /// Whether the member at `index` has missed writes.
    #[must_use]
    pub fn is_missing(&self, index: usize) -> bool {
        index < GROUP_DISKS_MAX && self.missing.get() >> index & 1 == 1
    }

    /// Whether the disk waits for a place, and has none.
    #[must_use]
    pub fn is_spare(&self) -> bool {
        self.disk_role() == Some(DiskRole::Spare)
    }

    /// Whether the member at `index` went and has not failed.
    #[must_use]
    pub fn is_away(&self, index: usize) -> bool {
        index < GROUP_DISKS_MAX && self.away.get() >> index & 1 == 1
    }

    /// Whether the member at `index`, which went, holds what it held.
    #[must_use]
    pub fn is_settled(&self, index: usize) -> bool {
        index < GROUP_DISKS_MAX && self.settled.get() >> index & 1 == 1
    }

    /// Whether the member at `index` is being rebuilt.
    #[must_use]
    pub fn is_rebuilding(&self, index: usize) -> bool {
        index < GROUP_DISKS_MAX && self.rebuilding.get() >> index & 1 == 1
    }
}

impl fmt::Display for DiskLabel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind().map_or_else(|| "?".to_owned(), |kind| kind.to_string());
        let role = self.disk_role().map_or_else(|| "?".to_owned(), |role| role.to_string());
        if self.is_spare() {
            let (name, aggregate) = (self.name().unwrap_or("?"), self.aggregate);
            return write!(
                formatter,
                "spare of aggregate '{name}' ({aggregate}), {} regions",
                self.data_regions
            );
        }
        write!(
            formatter,
            "{} disk {} of {} in {} group {} of aggregate '{}' ({}), {} regions, first {}",
            role,
            self.disk_index,
            self.disks_in_group,
            kind,
            self.group_index,
            self.name().unwrap_or("?"),
            self.aggregate,
            self.data_regions,
            units::Pvbn(self.data_bases().next().unwrap_or(0)),
        )?;
        match self.medium() {
            Some(Medium::Unrecorded) => Ok(()),
            Some(medium) => write!(formatter, ", {medium}"),
            None => formatter.write_str(", medium ?"),
        }
    }
}

impl fmt::Debug for DiskLabel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "DiskLabel({self})")
    }
}

#[cfg(test)]
mod tests;
