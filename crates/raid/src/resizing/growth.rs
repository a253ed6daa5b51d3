//! Making an aggregate larger while it is in service: disks that join a group, and groups
//! (FreeSpace section 3.1: the mapping of block numbers is kept on creation and growth).
//!
//! What joins takes the block numbers behind the last, so nothing is rewritten. A data disk that
//! joins holds zeros: they change no parity, whichever rows it meets (see `stripe/parity.rs`). So
//! before it is labelled every block of its data area that is not zero is written. The disks of a
//! new group may hold anything, like those of a new aggregate.
//!
//! Order: zeros, the new disks' labels, which count for nothing yet; the layout in memory; then the
//! labels of the groups, of which one is enough. A crash before leaves disks that nobody knows, one
//! after it a larger aggregate. The new numbers are used only after the answer.
//!
//! Invariants: labels of new disks have a lower sequence than any of their group, until all of them
//! are written. A group grows while nothing is under way in it.
//!
//! Fails: [`RaidError`], with nothing changed but the new disks.

use crate::error::RaidError;
use crate::io::Io;
use crate::layout::{
    Geometry, Group, GroupGeometry, Layout, Seat, check_distinct, check_size, new_place,
};
use crate::membership::Told;
use crate::request::{GrowDone, NewDisk, NewGroup};
use crate::resizing::Resizing;
use media::{DATA_START, Device, MediaError, Profile, Zeroing, regions_of};
use ondisk::features::FeatureSet;
use ondisk::identity::REGION_BLOCKS;
use ondisk::label::{DiskLabel, GROUP_DISKS_MAX, GROUPS_MAX, RaidKind};
use ondisk::log_copies::LogCopies;
use ondisk::pointer::BLOCK_NUMBER_MAX;
use ondisk::scrub::ScrubRecord;
use platform::Disk;
use platform::completion::gather;
use std::sync::Arc;
use zerocopy::FromZeros;

/// A layout that is to take the place of the store's, and the disks it adds.
struct Growth {
    layout: Layout,
    added: Vec<Added>,
    /// Groups that are not in the store's layout.
    new_groups: usize,
}

/// A disk that is added, and its place.
struct Added {
    group: u32,
    member: usize,
    disk: Arc<dyn Disk>,
    profile: Profile,
}

impl Resizing {
    pub(crate) fn add_disks(
        self: &Arc<Self>,
        (group, disks): (u32, Vec<NewDisk>),
        zeroing: &Arc<Zeroing>,
        done: GrowDone,
    ) {
        self.grow(zeroing, done, move |layout| layout.with_disks(group, disks));
    }

    pub(crate) fn add_groups(self: &Arc<Self>, groups: Vec<NewGroup>, done: GrowDone) {
        self.grow(&Arc::default(), done, move |layout| layout.with_groups(groups));
    }

    fn grow(
        self: &Arc<Self>,
        zeroing: &Arc<Zeroing>,
        done: GrowDone,
        plan: impl FnOnce(&Layout) -> Result<Growth, RaidError> + Send + 'static,
    ) {
        let Some(done) = self.begin_change(done) else { return };
        let (resizing, zeroing) = (Arc::clone(self), Arc::clone(zeroing));
        // What labels of new disks say of removed groups those of members say already.
        self.members.tell_all(Box::new(move |told| {
            let told = told.map_err(RaidError::from);
            match told.and_then(|()| plan(&resizing.members.layout())) {
                Ok(growth) => resizing.zero_disks(growth, &zeroing, done),
                Err(error) => done(Err(error)),
            }
        }));
    }

    fn zero_disks(self: &Arc<Self>, growth: Growth, zeroing: &Arc<Zeroing>, done: GrowDone) {
        let known_groups = growth.layout.groups.len() - growth.new_groups;
        let joining = growth.added.iter().filter(|added| (added.group as usize) < known_groups);
        let work: Vec<(Arc<dyn Disk>, u64)> = joining
            .map(|added| {
                let regions = growth.layout.geometry.group(added.group).regions;
                (Arc::clone(&added.disk), regions * REGION_BLOCKS as u64)
            })
            .collect();
        let resizing = Arc::clone(self);
        let parts = gather(work.len(), move |results: Vec<Result<(), MediaError>>| {
            match results.into_iter().collect::<Result<Vec<()>, _>>() {
                Ok(_) => resizing.label_disks(growth, done),
                Err(error) => done(Err(error.into())),
            }
        });
        for ((disk, blocks), part) in work.into_iter().zip(parts) {
            media::zero(&disk, DATA_START..DATA_START + blocks, zeroing, Box::new(part));
        }
    }

    fn label_disks(self: &Arc<Self>, growth: Growth, done: GrowDone) {
        let Some((_, _, known)) = self.members.devices().into_iter().next() else {
            return done(Err(RaidError::NoDisks));
        };
        let mut common = known.label();
        // Whoever is a member already knows better, until the labels of all say the same.
        common.sequence = 0.into();
        Told::default().write_to(&mut common);
        common.rebuilt_regions = 0.into();
        common.scrub = ScrubRecord::new_zeroed();
        common.log_copies = LogCopies::first_alone();
        // Nothing of the new disk's content uses what the member's does.
        common.features = FeatureSet::empty();
        common.reserved_f.fill(0);
        let labels: Vec<(Arc<dyn Disk>, DiskLabel)> = growth
            .added
            .iter()
            .map(|added| (Arc::clone(&added.disk), growth.label(added, &common)))
            .collect();
        let resizing = Arc::clone(self);
        let parts = gather(labels.len(), move |results: Vec<Result<Device, MediaError>>| {
            match results.into_iter().collect::<Result<Vec<_>, _>>() {
                Ok(devices) => resizing.join(growth, devices, done),
                Err(error) => done(Err(error.into())),
            }
        });
        for ((disk, label), part) in labels.into_iter().zip(parts) {
            media::initialize(disk, label, part);
        }
    }

    fn join(self: &Arc<Self>, growth: Growth, devices: Vec<Device>, done: GrowDone) {
        for (added, device) in growth.added.iter().zip(devices) {
            let member = &growth.layout.groups[added.group as usize].members[added.member];
            member.set_seat(Seat { device: Some(Arc::new(device)), ..member.seat() });
        }
        let before = self.members.layout().groups.len() as u32;
        let joined = growth.added.iter().map(|added| added.group).find(|group| *group < before);
        let Some(group) = joined else {
            return self.take_layout(growth, done);
        };
        let resizing = Arc::clone(self);
        let job = move |io: &Arc<Io>| {
            resizing.take_layout(growth, done);
            io.open_group(group);
        };
        self.io.close_group(group, Box::new(job));
    }

    fn take_layout(self: &Arc<Self>, growth: Growth, done: GrowDone) {
        self.io.add_groups(growth.new_groups);
        self.members.grow(growth.layout, growth.new_groups);
        self.members.tell_all(Box::new(|result| done(result.map_err(RaidError::from))));
    }
}

impl Growth {
    fn label(&self, added: &Added, common: &DiskLabel) -> DiskLabel {
        let mut label = self.layout.label(added.group, added.member, common);
        label.set_medium(added.profile.medium());
        label
    }
}

impl Layout {
    fn with_disks(&self, group: u32, disks: Vec<NewDisk>) -> Result<Growth, RaidError> {
        let Some(place) = self.groups.get(group as usize) else {
            return Err(RaidError::NoSuchGroup { group, count: self.groups.len() });
        };
        if place.members.is_empty() {
            return Err(RaidError::RemovedGroup { group });
        }
        if place.kind == RaidKind::None {
            return Err(RaidError::FixedGroup { group });
        }
        let (kind, count) = (place.kind, place.members.len() + disks.len());
        if count > GROUP_DISKS_MAX || disks.is_empty() {
            let (minimum, maximum) = (place.members.len() + 1, GROUP_DISKS_MAX);
            return Err(RaidError::DiskCount { kind, count, minimum, maximum });
        }
        check_distinct(disks.iter().map(|new| new.disk.name()))?;
        let mut places = self.geometry.groups().to_vec();
        let layout = places[group as usize].layout();
        disks.iter().try_for_each(|new| check_size(&*new.disk, layout))?;
        places[group as usize].extend(disks.len(), self.geometry.end());
        let mut grown = Group {
            kind,
            data_disks: place.data_disks,
            members: place.members.iter().map(Arc::clone).collect(),
        };
        let first = grown.members.len();
        let mut added = Vec::new();
        for (member, NewDisk { disk, identity, profile }) in (first..).zip(disks) {
            grown.push(Seat::empty(identity));
            added.push(Added { group, member, disk, profile });
        }
        let mut groups = self.groups.clone();
        groups[group as usize] = Arc::new(grown);
        Ok(Growth { layout: self.grown(places, groups)?, added, new_groups: 0 })
    }

    fn with_groups(&self, new: Vec<NewGroup>) -> Result<Growth, RaidError> {
        let (count, maximum) = (self.groups.len() + new.len(), GROUPS_MAX as usize);
        if count > maximum {
            return Err(RaidError::GroupCount { count, maximum });
        }
        check_distinct(new.iter().flat_map(|group| &group.disks).map(|new| new.disk.name()))?;
        let mut places = self.geometry.groups().to_vec();
        let mut groups = self.groups.clone();
        let (mut added, mut base, new_groups) = (Vec::new(), self.geometry.end(), new.len());
        for NewGroup { kind, disks } in new {
            let group = groups.len() as u32;
            let sizes = disks.iter().map(|new| new.disk.size_blocks());
            let regions = sizes.map(regions_of).min().unwrap_or(0);
            let is_object = disks.iter().any(|new| new.profile == Profile::Object);
            let log_regions = self.geometry.log_regions_of_another(regions, is_object);
            let mut place = new_place(kind, disks.len(), (regions, log_regions), base)?;
            place.medium = GroupGeometry::medium_of(disks.iter().map(|new| new.profile));
            base = base.offset(place.blocks());
            places.push(place);
            let seats = disks.iter().map(|new| Seat::empty(new.identity));
            groups.push(Arc::new(Group::new(kind, seats)));
            let disks = disks.into_iter().enumerate();
            added.extend(disks.map(|(member, new)| Added {
                group,
                member,
                disk: new.disk,
                profile: new.profile,
            }));
        }
        Ok(Growth { layout: self.grown(places, groups)?, added, new_groups })
    }

    fn grown(
        &self,
        places: Vec<GroupGeometry>,
        groups: Vec<Arc<Group>>,
    ) -> Result<Self, RaidError> {
        let geometry = Geometry::with_gaps(places, self.geometry.removed_blocks());
        let geometry = geometry.filter(|all| all.end().get() <= BLOCK_NUMBER_MAX);
        let geometry = Arc::new(geometry.ok_or(RaidError::Ranges)?);
        Ok(Self { geometry, groups })
    }
}
