//! Disks that wait for a place.
//!
//! Invariants: a spare carries a label that says so and belongs to one aggregate; nothing is
//! written to it but labels until it is given a place, and by whoever takes it away from those that
//! wait: administrators and the node itself may want one at the same moment.

use crate::error::RaidError;
use crate::layout::{DiskPlace, GroupGeometry, check_size};
use crate::membership::Members;
use crate::membership::status::SpareStatus;
use crate::request::ReplaceDone;
use media::{Device, DeviceLayout, MediaError, Profile, regions_of};
use ondisk::label::{DiskLabel, DiskRole};
use platform::Disk;
use std::sync::Arc;
use units::DiskUuid;

impl Members {
    /// The label of some member.
    pub(crate) fn common_label(&self) -> Option<DiskLabel> {
        let layout = self.layout();
        let mut members = layout.groups.iter().flat_map(|group| &group.members);
        members.find_map(|member| member.device()).map(|device| device.label())
    }

    /// The label of a disk that waits for a place.
    pub(super) fn spare_label(
        &self,
        disk: &dyn Disk,
        identity: DiskUuid,
    ) -> Result<DiskLabel, RaidError> {
        let common = self.common_label().ok_or(RaidError::NoDisks)?;
        let mut label = DiskLabel::empty();
        label.disk = identity;
        label.aggregate = common.aggregate;
        label.aggregate_name = common.aggregate_name;
        label.created_nanoseconds = common.created_nanoseconds;
        label.sequence = common.sequence;
        label.groups_count = (self.layout().groups.len() as u32).into();
        label.data_regions = regions_of(disk.size_blocks()).into();
        label.role = DiskRole::Spare.number();
        label.set_medium(Profile::of(disk).medium());
        Ok(label)
    }

    pub(crate) fn add_spare(
        self: &Arc<Self>,
        disk: Arc<dyn Disk>,
        identity: DiskUuid,
        done: ReplaceDone,
    ) {
        let label = self.check_useful(&*disk).and_then(|()| self.spare_label(&*disk, identity));
        let label = match label {
            Ok(label) => label,
            Err(error) => return done(Err(error)),
        };
        let members = Arc::clone(self);
        let labelled = move |device: Result<Device, MediaError>| {
            done(match device {
                Ok(device) => {
                    members.spares.lock().push(Arc::new(device));
                    Ok(())
                }
                Err(error) => Err(error.into()),
            });
        };
        media::initialize(disk, label, Box::new(labelled));
    }

    /// Refuses a disk that is too small for any place.
    fn check_useful(&self, disk: &dyn Disk) -> Result<(), RaidError> {
        let geometry = self.geometry();
        let groups = geometry.groups().iter().filter(|group| !group.is_removed());
        let least = groups.map(GroupGeometry::layout).min_by_key(DeviceLayout::blocks);
        least.map_or(Ok(()), |least| check_size(disk, least))
    }

    fn find_spare(&self, identity: DiskUuid) -> Result<Arc<Device>, RaidError> {
        let spares = self.spares.lock();
        let found = spares.iter().find(|device| device.label().disk == identity);
        found.cloned().ok_or(RaidError::NoSuchSpare { identity })
    }

    /// Takes a spare away from those that wait; `false` if another was faster. Whoever is told
    /// `true` is the only one to write a label to it. It is shown among the leaving ones if it
    /// `is_leaving`, without a moment in which it is shown nowhere.
    fn take_away(&self, device: &Arc<Device>, is_leaving: bool) -> bool {
        let mut spares = self.spares.lock();
        let Some(at) = spares.iter().position(|known| Arc::ptr_eq(known, device)) else {
            return false;
        };
        if is_leaving {
            self.leaving_spares.lock().push(device.name().to_owned());
        }
        spares.remove(at);
        true
    }

    pub(crate) fn remove_spare(self: &Arc<Self>, identity: DiskUuid, done: ReplaceDone) {
        match self.find_spare(identity) {
            Ok(device) if self.take_away(&device, false) => {
                device.erase_label(Box::new(|result| done(result.map_err(RaidError::from))));
            }
            Ok(_) => done(Err(RaidError::NoSuchSpare { identity })),
            Err(error) => done(Err(error)),
        }
    }

    pub(crate) fn take_spare(
        self: &Arc<Self>,
        place: DiskPlace,
        (identity, rate): (DiskUuid, Option<u64>),
        done: ReplaceDone,
    ) {
        let device = match self.find_spare(identity) {
            Ok(device) => device,
            Err(error) => return done(Err(error)),
        };
        if let Some(failure) = self.failure() {
            return done(Err(failure.into()));
        }
        let disk = Arc::clone(device.disk());
        if let Err(error) = self.check_replacement(place, &*disk) {
            return done(Err(error));
        }
        let name = device.name().to_owned();
        if !self.take_away(&device, true) {
            return done(Err(RaidError::NoSuchSpare { identity }));
        }
        let (members, free) = (Arc::clone(self), Arc::clone(&disk));
        let answer = move |members: &Self, result: Result<(), RaidError>| {
            // It has a place by now, or is a spare again, or nobody's.
            members.leaving_spares.lock().retain(|leaving| *leaving != name);
            done(result);
        };
        let taken = move |result: Result<(), RaidError>| match result {
            Err(RaidError::InUse { .. } | RaidError::Copying { .. }) => {
                // Another was faster: it waits again. Its label may say that it has the place.
                let same = Arc::clone(&members);
                let added = move |again: Result<(), RaidError>| answer(&same, again.and(result));
                members.add_spare(free, identity, Box::new(added));
            }
            result => answer(&members, result),
        };
        self.replace_disk(place, disk, (identity, rate), Box::new(taken));
    }

    pub(crate) fn spares(&self) -> Vec<SpareStatus> {
        let spares = self.spares.lock().clone();
        let status = |device: &Arc<Device>| {
            let label = device.label();
            SpareStatus {
                name: device.name().to_owned(),
                identity: label.disk,
                regions: label.data_regions.get(),
                media: device.profile(),
            }
        };
        spares.iter().map(status).collect()
    }
}
