//! What administrators have chosen of an aggregate, as its superblock has it.
//!
//! Invariants: a group that leaves is one of several that could take its blocks.

use ondisk::features::FeatureSet;
use ondisk::root::Superblock;
use platform::mutation::{self, Rule};
use raid::{Geometry, GroupGeometry};

/// What administrators have chosen of an aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The group that is being emptied to leave.
    pub leaving_group: Option<u32>,
    /// Areas are not emptied ahead of being filled.
    pub leaves_areas: bool,
    /// What the aggregate's content uses.
    pub features: FeatureSet,
}

impl Default for Settings {
    fn default() -> Self {
        Self { leaving_group: None, leaves_areas: false, features: FeatureSet::empty() }
    }
}

impl Settings {
    /// As the superblock of an aggregate of `geometry` has them.
    #[must_use]
    pub fn of(superblock: &Superblock, geometry: &Geometry) -> Self {
        let leaving = superblock.leaving_group.get().checked_sub(1);
        // Its disks may have left after the last commit.
        let is_near = |group: &GroupGeometry| !group.is_removed() && !group.is_object();
        let is_there = |group: &u32| {
            let has_others =
                || (0..).zip(geometry.groups()).any(|(at, one)| at != *group && is_near(one));
            geometry.groups().get(*group as usize).is_some_and(is_near) && has_others()
        };
        let leaves_areas = superblock.leaves_areas.get() == 1;
        let leaving_group = leaving.filter(is_there);
        Self { leaving_group, leaves_areas, features: superblock.features }
    }

    /// Has a superblock say it.
    pub fn store(self, superblock: &mut Superblock) {
        superblock.leaving_group.set(self.leaving_group.map_or(0, |group| group + 1));
        superblock.leaves_areas.set(u32::from(self.leaves_areas));
        superblock.features = match mutation::broken(Rule::CompatibleBitDropped) {
            true => FeatureSet::empty(),
            false => self.features,
        };
    }
}
