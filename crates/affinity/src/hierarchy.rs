//! The kinds of affinities and their names (Waffinity section 4.2, table 1).
//!
//! Invariants: an [`AffinityId`] is never given out twice, by any scheduler of the process, so a
//! cell of a volume that is gone, or of another scheduler's, opens to nobody by mistake. Whether
//! one affinity covers another is read from the two names alone, without a lock.

use std::fmt;

/// What an affinity protects, and where in the tree it stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum AffinityKind {
    /// Everything: the root.
    Serial,
    /// One aggregate with all its volumes.
    Aggregate,
    /// An aggregate's block maps and other metafiles.
    AggregateVbn,
    /// A range of blocks of an aggregate's metafiles.
    AggregateRange,
    /// One volume.
    Volume,
    /// A volume's user files and directories.
    VolumeLogical,
    /// A set of blocks of a volume's user files.
    Stripe,
    /// A volume's block maps and other metafiles.
    VolumeVbn,
    /// A range of blocks of a volume's metafiles.
    VolumeRange,
}

impl AffinityKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [Self; 9] = [
        Self::Serial,
        Self::Aggregate,
        Self::AggregateVbn,
        Self::AggregateRange,
        Self::Volume,
        Self::VolumeLogical,
        Self::Stripe,
        Self::VolumeVbn,
        Self::VolumeRange,
    ];

    /// The kind one level up; `None` for the root.
    #[must_use]
    pub const fn parent(self) -> Option<Self> {
        match self {
            Self::Serial => None,
            Self::Aggregate => Some(Self::Serial),
            Self::AggregateVbn | Self::Volume => Some(Self::Aggregate),
            Self::AggregateRange => Some(Self::AggregateVbn),
            Self::VolumeLogical | Self::VolumeVbn => Some(Self::Volume),
            Self::Stripe => Some(Self::VolumeLogical),
            Self::VolumeRange => Some(Self::VolumeVbn),
        }
    }
}

/// Levels of the tree: Serial, Aggregate, Volume, VolumeLogical, Stripe.
const DEPTH_MAX: usize = 5;

/// Names one affinity of one scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AffinityId {
    /// The numbers of all affinities from the root down to this one; zero beyond. The root's is
    /// unique in the process, the others' within their scheduler, and none is used again.
    path: [u32; DEPTH_MAX],
    depth: u8,
    kind: AffinityKind,
    /// Where the scheduler keeps its state; used again after a removal, unlike the path.
    slot: u32,
}

impl AffinityId {
    pub(crate) const fn root(scheduler: u32) -> Self {
        let mut path = [0; DEPTH_MAX];
        path[0] = scheduler;
        Self { path, depth: 0, kind: AffinityKind::Serial, slot: 0 }
    }

    /// # Panics
    /// If a `kind` does not belong under this one.
    pub(crate) fn child(self, kind: AffinityKind, number: u32, slot: u32) -> Self {
        assert_eq!(kind.parent(), Some(self.kind), "{kind:?} does not belong under {self}");
        let depth = self.depth + 1;
        let mut path = self.path;
        path[usize::from(depth)] = number;
        Self { path, depth, kind, slot }
    }

    pub(crate) const fn depth(self) -> u8 {
        self.depth
    }

    pub(crate) const fn slot(self) -> u32 {
        self.slot
    }

    /// What it protects.
    #[must_use]
    pub const fn kind(self) -> AffinityKind {
        self.kind
    }

    /// Whether this is `other` or an ancestor of it: whoever runs here may do what is done there.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        // Numbers are unique within a scheduler, so equality at this one's depth is equality of
        // the whole path below the root; the root's number tells the schedulers apart.
        let depth = self.depth as usize;
        self.depth <= other.depth
            && self.path[depth] == other.path[depth]
            && self.path[0] == other.path[0]
    }

    /// Whether this is `other`, an ancestor or a descendant: the two never run at one time.
    #[must_use]
    pub const fn excludes(self, other: Self) -> bool {
        self.covers(other) || other.covers(self)
    }
}

impl fmt::Display for AffinityId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The root's number depends on the schedulers made before: left out, so that what is
        // printed is the same in every run.
        match self.depth {
            0 => write!(formatter, "{:?}", self.kind),
            depth => write!(formatter, "{:?}:{}", self.kind, self.path[usize::from(depth)]),
        }
    }
}

impl fmt::Debug for AffinityId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_who_covers_whom() {
        let root = AffinityId::root(1);
        let aggregate = root.child(AffinityKind::Aggregate, 1, 1);
        let volume = aggregate.child(AffinityKind::Volume, 2, 2);
        let other = aggregate.child(AffinityKind::Volume, 3, 3);
        let logical = volume.child(AffinityKind::VolumeLogical, 4, 4);
        assert!(root.covers(logical) && aggregate.covers(volume) && volume.covers(volume));
        assert!(!logical.covers(volume) && logical.excludes(volume));
        assert!(!volume.excludes(other) && !other.excludes(logical));
        assert!(!AffinityId::root(2).excludes(logical));
        assert!(!AffinityId::root(2).child(AffinityKind::Aggregate, 1, 1).excludes(aggregate));
        assert_eq!(logical.to_string(), "VolumeLogical:4");
    }

    #[test]
    fn every_kind_descends_from_the_root() {
        for kind in AffinityKind::ALL {
            let depth = std::iter::successors(Some(kind), |kind| kind.parent()).count();
            assert!(depth <= DEPTH_MAX, "{kind:?}");
        }
        for (index, kind) in AffinityKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }

    #[test]
    #[should_panic(expected = "does not belong under")]
    fn a_stripe_needs_a_logical_affinity() {
        let _ = AffinityId::root(1).child(AffinityKind::Stripe, 1, 1);
    }
}
