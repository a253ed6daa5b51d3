//! Features: what an image uses that not every build has (decision 34).
//!
//! Labels, superblocks, volume records and log headers have a [`FeatureSet`] each. A bit of it
//! stands for a feature in [`FEATURES`]. Beside the bits lie the names, so a build that lacks a
//! feature can say which one.
//!
//! | a build that lacks a feature of the class | does |
//! | --- | --- |
//! | compatible | everything; it keeps the bit |
//! | read-only compatible | of a volume: serves it read-only; of anything else: as the next |
//! | incompatible | refuses the disk, the aggregate, the volume or the log |
//!
//! A container map is the aggregate's. Whatever features a volume has, an older build may move its
//! blocks to other places of the aggregate.
//!
//! Invariants: a feature's bit is durable before anything on disk depends on the feature, or in the
//! same write.
//! No bit is ever used for another feature.
//!
//! Fails: [`FeatureSet::validate`] tells [`Damage::Feature`].

use crate::damage::Damage;
pub use crate::feature_name::{FEATURE_NAME_BYTES_MAX, FeatureName};
use std::fmt;
use std::mem::size_of;
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The structure whose set has the bit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FeatureScope {
    /// A disk's label.
    Disk,
    /// A superblock.
    Aggregate,
    /// A volume's record.
    Volume,
    /// A log's header.
    Log,
}

impl fmt::Display for FeatureScope {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Disk => "disk",
            Self::Aggregate => "aggregate",
            Self::Volume => "volume",
            Self::Log => "log",
        })
    }
}

/// What a build must not do that lacks the feature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FeatureClass {
    /// Nothing is forbidden.
    Compatible,
    /// It must not write.
    ReadOnlyCompatible,
    /// It must not read.
    Incompatible,
}

impl FeatureClass {
    /// All classes.
    pub const ALL: [Self; 3] = [Self::Compatible, Self::ReadOnlyCompatible, Self::Incompatible];

    /// The number on disk.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Compatible => 1,
            Self::ReadOnlyCompatible => 2,
            Self::Incompatible => 3,
        }
    }
}

impl fmt::Display for FeatureClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Compatible => "compatible",
            Self::ReadOnlyCompatible => "read-only compatible",
            Self::Incompatible => "incompatible",
        })
    }
}

/// A feature of the format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feature {
    /// Which structure has the bit.
    pub scope: FeatureScope,
    /// Which of its words.
    pub class: FeatureClass,
    /// Which bit of the word.
    pub bit: u8,
    /// The name that users see, at most [`FEATURE_NAME_BYTES_MAX`] bytes.
    pub name: &'static str,
    /// When it came.
    pub date: &'static str,
    /// What an image has that uses it.
    pub meaning: &'static str,
}

/// The group has two parity disks.
pub const DOUBLE_PARITY: Feature = Feature {
    scope: FeatureScope::Disk,
    class: FeatureClass::Incompatible,
    bit: 0,
    name: "double-parity",
    date: "2026-11",
    meaning: "the group has row parity and diagonal parity",
};
/// The group has three parity disks.
pub const TRIPLE_PARITY: Feature = Feature {
    scope: FeatureScope::Disk,
    class: FeatureClass::Incompatible,
    bit: 1,
    name: "triple-parity",
    date: "2026-11",
    meaning: "the group has row, diagonal and anti-diagonal parity",
};
/// Groups were removed.
pub const REMOVED_GROUPS: Feature = Feature {
    scope: FeatureScope::Disk,
    class: FeatureClass::Incompatible,
    bit: 2,
    name: "removed-groups",
    date: "2026-11",
    meaning: "groups left the aggregate, and their block numbers are not given again",
};
/// The log has, or had, more than its first copy.
pub const LOG_COPIES: Feature = Feature {
    scope: FeatureScope::Disk,
    class: FeatureClass::Incompatible,
    bit: 3,
    name: "log-copies",
    date: "2026-11",
    meaning: "the log has copies, and the label says which of them have everything",
};
/// The log is on the aggregate's own disks. A build that lacks the feature would make another one.
pub const LOG_ON_DISKS: Feature = Feature {
    scope: FeatureScope::Disk,
    class: FeatureClass::Incompatible,
    bit: 4,
    name: "log-on-disks",
    date: "2026-11",
    meaning: "the disks have a place for the log behind their data",
};
/// The disk has a short name. A build that lacks the feature gives it none and keeps the number.
pub const DISK_NUMBERS: Feature = Feature {
    scope: FeatureScope::Disk,
    class: FeatureClass::Compatible,
    bit: 0,
    name: "disk-numbers",
    date: "2026-11",
    meaning: "the label has the number in the disk's short name",
};
/// Blocks were moved.
pub const MOVED_BLOCKS: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Incompatible,
    bit: 0,
    name: "moved-blocks",
    date: "2026-11",
    meaning: "blocks were moved, so places in pointers are hints and the container map is true",
};
/// The volume has a policy of tiering.
pub const TIERING: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::ReadOnlyCompatible,
    bit: 0,
    name: "tiering",
    date: "2026-11",
    meaning: "cold blocks move to object stores, and the container map counts their ages",
};

/// The volume is offline. A build that lacks the feature would serve it.
pub const OFFLINE: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Incompatible,
    bit: 1,
    name: "offline",
    date: "2026-11",
    meaning: "an administrator took the volume offline, and nobody is served until he says so",
};

/// Files have access control lists. A build that lacks the feature would let in whom they keep out,
/// and make files without what they are to inherit.
pub const ACLS: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Incompatible,
    bit: 2,
    name: "acls",
    date: "2026-11",
    meaning: "files have access control lists, which decide who may do what",
};

/// The volume is in the recovery queue. A build that lacks the feature would serve it, under a name
/// that another volume may have by now.
pub const RECOVERY_QUEUE: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Incompatible,
    bit: 3,
    name: "recovery-queue",
    date: "2026-11",
    meaning: "an administrator deleted the volume, which is kept for a while",
};

/// Reads of the volume reallocate nothing. A build that lacks the feature never reallocates.
pub const REALLOCATION: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Compatible,
    bit: 0,
    name: "reallocation",
    date: "2026-11",
    meaning: "an administrator turned read reallocation off",
};

/// The volume grows by itself. A build that lacks the feature leaves it as large as it is.
pub const AUTOGROW: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Compatible,
    bit: 1,
    name: "autogrow",
    date: "2026-11",
    meaning: "the volume grows by itself where room is short, up to a largest size",
};

/// Snapshots of the volume are taken by a schedule. A build that lacks the feature takes none.
pub const SNAPSHOT_SCHEDULE: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Compatible,
    bit: 2,
    name: "snapshot-schedule",
    date: "2026-11",
    meaning: "snapshots are taken by a schedule, and the older ones of them are deleted",
};

/// Snapshots of the volume are deleted where room is short. A build that lacks the feature deletes
/// none.
pub const SNAPSHOT_AUTODELETE: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Compatible,
    bit: 3,
    name: "snapshot-autodelete",
    date: "2026-11",
    meaning: "the oldest snapshots are deleted where room is short",
};

/// The volume is a clone that is being split from its parent. A build that lacks the feature does
/// not go on with that.
pub const CLONE_SPLIT: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Compatible,
    bit: 4,
    name: "clone-split",
    date: "2026-11",
    meaning: "the blocks that the clone inherited are being copied",
};

/// Its aggregate keeps room for the volume. A build that lacks the feature keeps none.
pub const VOLUME_GUARANTEE: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Compatible,
    bit: 5,
    name: "volume-guarantee",
    date: "2026-11",
    meaning: "the aggregate keeps room for what the volume lacks of its size",
};

/// The volume counts what owners use. A build that lacks the feature would not.
pub const QUOTAS: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::ReadOnlyCompatible,
    bit: 1,
    name: "quotas",
    date: "2026-11",
    meaning: "the volume counts what users and groups use, and may have limits for it",
};

/// Directories are quota trees. A build that lacks the feature would not know what counts to them.
pub const QUOTA_TREES: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Incompatible,
    bit: 5,
    name: "quota-trees",
    date: "2026-12",
    meaning: "directories are quota trees, and inodes say which one they count to",
};

/// Snapshots are held. A build that lacks the feature would delete them.
pub const SNAPSHOT_HOLDS: Feature = Feature {
    scope: FeatureScope::Volume,
    class: FeatureClass::Incompatible,
    bit: 4,
    name: "snapshot-holds",
    date: "2026-11",
    meaning: "an administrator held snapshots, which are not deleted before he releases them",
};

/// There are clones. A build that lacks the feature would free what they share with their parents,
/// and would not find the blocks that they share.
pub const CLONES: Feature = Feature {
    scope: FeatureScope::Aggregate,
    class: FeatureClass::Incompatible,
    bit: 0,
    name: "clones",
    date: "2026-11",
    meaning: "volumes are clones, whose container maps have holes where their parents' have blocks",
};

/// All features. Append only.
pub const FEATURES: &[Feature] = &[
    DOUBLE_PARITY,
    TRIPLE_PARITY,
    REMOVED_GROUPS,
    MOVED_BLOCKS,
    TIERING,
    LOG_COPIES,
    OFFLINE,
    LOG_ON_DISKS,
    DISK_NUMBERS,
    ACLS,
    REALLOCATION,
    CLONES,
    RECOVERY_QUEUE,
    AUTOGROW,
    SNAPSHOT_HOLDS,
    SNAPSHOT_SCHEDULE,
    SNAPSHOT_AUTODELETE,
    CLONE_SPLIT,
    VOLUME_GUARANTEE,
    QUOTAS,
    QUOTA_TREES,
];

/// The features of a class that this build has.
fn known_bits(scope: FeatureScope, class: FeatureClass) -> u64 {
    let of_class = FEATURES.iter().filter(|one| one.scope == scope && one.class == class);
    of_class.fold(0, |bits, feature| bits | 1 << feature.bit)
}

/// Names in a set. A feature that is set when all are taken is known by its bit alone.
pub const FEATURE_NAMES_MAX: usize = 8;

/// The features that a structure's content uses.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct FeatureSet {
    /// Bits of compatible features.
    pub compatible: U64,
    /// Bits of read-only compatible features.
    pub read_only_compatible: U64,
    /// Bits of incompatible features.
    pub incompatible: U64,
    /// The names of the features that are set.
    pub names: [FeatureName; FEATURE_NAMES_MAX],
}

const _: () = {
    assert!(size_of::<FeatureSet>() == 216);
};

impl FeatureSet {
    /// No features.
    #[must_use]
    pub fn empty() -> Self {
        Self::new_zeroed()
    }

    const fn word(&self, class: FeatureClass) -> &U64 {
        match class {
            FeatureClass::Compatible => &self.compatible,
            FeatureClass::ReadOnlyCompatible => &self.read_only_compatible,
            FeatureClass::Incompatible => &self.incompatible,
        }
    }

    fn word_mut(&mut self, class: FeatureClass) -> &mut U64 {
        match class {
            FeatureClass::Compatible => &mut self.compatible,
            FeatureClass::ReadOnlyCompatible => &mut self.read_only_compatible,
            FeatureClass::Incompatible => &mut self.incompatible,
        }
    }

    /// Whether the feature is in use.
    #[must_use]
    pub fn has(&self, feature: &Feature) -> bool {
        self.word(feature.class).get() >> feature.bit & 1 == 1
    }

    /// Notes that the feature is in use.
    pub fn set(&mut self, feature: &Feature) {
        self.set_named(feature.class, feature.bit, feature.name);
    }

    /// Notes that a feature is in use, which this build may not have.
    pub fn set_named(&mut self, class: FeatureClass, bit: u8, name: &str) {
        let word = self.word_mut(class);
        if word.get() >> bit & 1 == 1 {
            return;
        }
        *word = U64::new(word.get() | 1 << bit);
        if let Some(entry) = self.names.iter_mut().find(|entry| entry.class == 0) {
            *entry = FeatureName::of(class.number(), bit, name);
        }
    }

    /// Notes that the feature is in use no longer: no content depends on it.
    pub fn clear(&mut self, feature: &Feature) {
        let word = self.word_mut(feature.class);
        *word = U64::new(word.get() & !(1 << feature.bit));
        let is_its = |entry: &&mut FeatureName| {
            (entry.class, entry.bit) == (feature.class.number(), feature.bit)
        };
        self.names.iter_mut().filter(is_its).for_each(|entry| *entry = FeatureName::new_zeroed());
    }

    /// The features that this build lacks, whatever they forbid.
    pub fn lacking(
        &self,
        scope: FeatureScope,
    ) -> impl Iterator<Item = (FeatureClass, FeatureName)> + '_ {
        let lacks = move |class, name: &FeatureName| known_bits(scope, class) >> name.bit & 1 == 0;
        self.in_use().filter(move |(class, name)| lacks(*class, name))
    }

    /// The features that are set, as the set names them; a feature without a name is known by its
    /// bit.
    pub fn in_use(&self) -> impl Iterator<Item = (FeatureClass, FeatureName)> + '_ {
        FeatureClass::ALL.into_iter().flat_map(move |class| {
            let word = self.word(class).get();
            let bits = (0..u64::BITS as u8).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| (class, self.name_of(class, bit)))
        })
    }

    fn name_of(&self, class: FeatureClass, bit: u8) -> FeatureName {
        let is_it = |entry: &&FeatureName| (entry.class, entry.bit) == (class.number(), bit);
        let unnamed = FeatureName { class: class.number(), bit, name: [0; FEATURE_NAME_BYTES_MAX] };
        self.names.iter().find(is_it).copied().unwrap_or(unnamed)
    }

    /// The first feature of a class that this build lacks.
    fn unknown(&self, scope: FeatureScope, class: FeatureClass) -> Option<FeatureName> {
        let unknown = self.word(class).get() & !known_bits(scope, class);
        (unknown != 0).then(|| self.name_of(class, unknown.trailing_zeros() as u8))
    }

    /// An error if reserved bytes are in use, in the structure that has this set. The bytes may
    /// belong to a feature that this build lacks, so with such a feature there is none.
    ///
    /// # Errors
    /// [`Damage::Reserved`].
    pub fn check_reserved(
        &self,
        scope: FeatureScope,
        structure: &'static str,
        fields: &[&[u8]],
    ) -> Result<(), Damage> {
        let is_lacking =
            FeatureClass::ALL.iter().any(|class| self.unknown(scope, *class).is_some());
        if is_lacking { Ok(()) } else { Damage::unless_zero(structure, fields) }
    }

    /// A feature that this build lacks and that forbids it to read.
    #[must_use]
    pub fn forbids_reading(&self, scope: FeatureScope) -> Option<FeatureName> {
        self.unknown(scope, FeatureClass::Incompatible)
    }

    /// A feature that this build lacks and that forbids it to write.
    #[must_use]
    pub fn forbids_writing(&self, scope: FeatureScope) -> Option<FeatureName> {
        let reading = self.forbids_reading(scope);
        reading.or_else(|| self.unknown(scope, FeatureClass::ReadOnlyCompatible))
    }

    /// Whether this build may use a structure that has this set. Nothing but a volume is opened
    /// without being written, so a read-only compatible feature of anything else is as an
    /// incompatible one. A volume's features cost that volume alone, so whoever opens it asks.
    ///
    /// # Errors
    /// [`Damage::Feature`] with a feature that this build lacks, [`Damage::Field`] if the names are
    /// none.
    pub fn validate(&self, scope: FeatureScope, structure: &'static str) -> Result<(), Damage> {
        if scope != FeatureScope::Volume
            && let Some(feature) = self.forbids_writing(scope)
        {
            return Err(Damage::Feature { structure, feature });
        }
        let is_right = |entry: &FeatureName| match entry.class {
            0 => entry.bit == 0 && entry.name == [0; FEATURE_NAME_BYTES_MAX],
            1..=3 => entry.bit < u64::BITS as u8 && entry.text().is_some(),
            _ => false,
        };
        if !self.names.iter().all(is_right) {
            return Err(Damage::Field { structure, field: "features" });
        }
        Ok(())
    }
}

impl fmt::Display for FeatureSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (_, name) in self.in_use() {
            write!(formatter, "{separator}{name}")?;
            separator = ", ";
        }
        Ok(())
    }
}

impl fmt::Debug for FeatureSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "FeatureSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_feature_has_a_name_and_a_bit_of_its_own() {
        let mut bits = BTreeSet::new();
        let mut names = BTreeSet::new();
        for feature in FEATURES {
            assert!(bits.insert((feature.scope, feature.class, feature.bit)), "{}", feature.name);
            assert!(names.insert(feature.name), "{}", feature.name);
            assert!(feature.name.len() <= FEATURE_NAME_BYTES_MAX, "{}", feature.name);
            let mut set = FeatureSet::empty();
            set.set(feature);
            set.set(feature);
            assert!(set.has(feature));
            assert_eq!(set.validate(feature.scope, "it"), Ok(()));
            assert_eq!(set.to_string(), feature.name);
        }
    }

    #[test]
    fn a_feature_that_is_not_used_any_more_leaves_no_trace() {
        let mut set = FeatureSet::empty();
        set.set(&MOVED_BLOCKS);
        set.set(&OFFLINE);
        set.clear(&OFFLINE);
        let mut only = FeatureSet::empty();
        only.set(&MOVED_BLOCKS);
        assert_eq!(set, only);
        set.clear(&OFFLINE);
        set.clear(&MOVED_BLOCKS);
        assert_eq!(set, FeatureSet::empty());
    }

    #[test]
    fn a_build_refuses_what_it_lacks_by_name() {
        for scope in
            [FeatureScope::Disk, FeatureScope::Aggregate, FeatureScope::Volume, FeatureScope::Log]
        {
            let mut set = FeatureSet::empty();
            set.set_named(FeatureClass::Compatible, 63, "harmless");
            assert_eq!(set.validate(scope, "it"), Ok(()));
            assert_eq!(set.forbids_writing(scope), None);
            set.set_named(FeatureClass::ReadOnlyCompatible, 62, "counted");
            let forbids = set.forbids_writing(scope).map(|name| name.to_string());
            assert_eq!(forbids.as_deref(), Some("counted"));
            assert_eq!(set.validate(scope, "it").is_ok(), scope == FeatureScope::Volume);
            assert_eq!(set.forbids_reading(scope), None);
            set.set_named(FeatureClass::Incompatible, 61, "folded");
            let forbids = set.forbids_reading(scope).map(|name| name.to_string());
            assert_eq!(forbids.as_deref(), Some("folded"));
            assert_eq!(set.forbids_writing(scope), set.forbids_reading(scope));
        }
        let mut set = FeatureSet::empty();
        set.set_named(FeatureClass::Incompatible, 61, "folded");
        let refused = set.validate(FeatureScope::Disk, "disk label").unwrap_err().to_string();
        assert_eq!(
            refused,
            "disk label: uses the feature 'folded', which this build of Stroop lacks; a newer \
             build wrote it"
        );
        for scope in [FeatureScope::Aggregate, FeatureScope::Log] {
            assert!(set.validate(scope, "it").is_err());
        }
    }

    #[test]
    fn a_feature_beyond_the_names_is_known_by_its_bit() {
        let mut set = FeatureSet::empty();
        (0..9).for_each(|bit| set.set_named(FeatureClass::Incompatible, bit, "named"));
        let last = set.in_use().last().map(|(_, name)| name.to_string());
        assert_eq!(last.as_deref(), Some("bit 8 of class 3"));
    }

    #[test]
    fn names_that_are_none_are_damage() {
        let named = |entry: FeatureName| {
            let mut set = FeatureSet::empty();
            set.names[0] = entry;
            set.validate(FeatureScope::Disk, "it")
        };
        let good = FeatureName::of(1, 1, "good");
        assert_eq!(named(good), Ok(()));
        let wrong = Err(Damage::Field { structure: "it", field: "features" });
        assert_eq!(named(FeatureName { class: 4, ..good }), wrong);
        assert_eq!(named(FeatureName { class: 0, ..good }), wrong);
        assert_eq!(named(FeatureName { bit: 64, ..good }), wrong);
        assert_eq!(named(FeatureName { name: [0xff; FEATURE_NAME_BYTES_MAX], ..good }), wrong);
    }
}
