//! How an aggregate grows in a life, if it does.

use crate::seed::choices::Choices;
use ondisk::label::RaidKind;

/// How an aggregate grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// So many disks join the group.
    Disks(usize),
    /// A group of so many disks joins.
    Group(RaidKind, usize),
    /// An object store joins.
    Objects,
}

impl Growth {
    /// One that an aggregate of this kind may take.
    #[must_use]
    pub fn choose(choices: &mut Choices, kind: RaidKind) -> Self {
        if kind != RaidKind::None && choices.chance(60) {
            return Self::Disks(1 + choices.index(2));
        }
        let kind = choices.pick(&[RaidKind::None, RaidKind::Raid4, kind]);
        match kind {
            RaidKind::None => Self::Group(kind, 1),
            kind => Self::Group(kind, kind.parity_disks() + 1 + choices.index(2)),
        }
    }

    /// The disks that join.
    #[must_use]
    pub const fn disks(self) -> usize {
        match self {
            Self::Disks(count) | Self::Group(_, count) => count,
            Self::Objects => 1,
        }
    }
}
