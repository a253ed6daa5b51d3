//! The places for copies of the log behind the data of an aggregate's disks.
//!
//! Invariants: a place is a disk only as long as the disk is a member that can be used. Then every
//! call fails as if the disk were gone: the disk may be somebody else's. A place keeps no disk
//! open.
//! A disk that does not write the log has failed for the group, too, before the log hears of it.
//!
//! Fails: as the disk does.

use crate::layout::DiskPlace;
use crate::membership::Members;
use media::Device;
use platform::disk::is_in_range;
use platform::{Disk, DiskError, ReadDone, WriteDone};
use std::ops::Range;
use std::sync::{Arc, Weak};
use units::BlockRef;

/// A place for a copy of the log, on a disk in use.
#[derive(Clone)]
pub struct LogPlace {
    /// Which disk it is.
    pub place: DiskPlace,
    /// The place, as a disk of the same name.
    pub disk: Arc<dyn Disk>,
}

/// The places for copies of the log on disks in use, in the order of the disks.
pub(crate) fn log_places(members: &Arc<Members>) -> Vec<LogPlace> {
    let geometry = members.geometry();
    let place = |(group, member, device): (u32, usize, Arc<Device>)| {
        let blocks = geometry.group(group).layout().log_blocks();
        let place = DiskPlace { group, member };
        if blocks.is_empty() || !is_in_use(members, place, &device) {
            return None;
        }
        let disk = LogDisk {
            name: device.name().to_owned(),
            members: Arc::downgrade(members),
            device: Arc::downgrade(&device),
            place,
            blocks,
        };
        Some(LogPlace { place, disk: Arc::new(disk) })
    };
    members.devices().into_iter().filter_map(place).collect()
}

/// Whether a disk has this place, and nothing that it should hold is missing on it.
fn is_in_use(members: &Members, place: DiskPlace, device: &Arc<Device>) -> bool {
    let DiskPlace { group, member } = place;
    let state = members.state.lock();
    let standing = state.groups.get(group as usize).map(|disks| disks.standing(member));
    standing.is_some_and(|standing| !standing.is_missing())
        && members.is_taken_by((group, member), device)
}

/// What is behind the data of a disk.
struct LogDisk {
    name: String,
    members: Weak<Members>,
    device: Weak<Device>,
    place: DiskPlace,
    blocks: Range<u64>,
}

impl LogDisk {
    /// The disk, and its block of this number of the place's; an error if it is no member any more.
    fn locate(&self, block: u64, count: usize) -> Result<(Arc<dyn Disk>, u64), DiskError> {
        let (members, device) = (self.members.upgrade(), self.device.upgrade());
        let in_use = members.zip(device).filter(|(members, device)| {
            is_in_range(block, count, self.size_blocks()) && is_in_use(members, self.place, device)
        });
        let gone = || DiskError::Gone { disk: self.name.clone() };
        let (_, device) = in_use.ok_or_else(gone)?;
        Ok((Arc::clone(device.disk()), self.blocks.start + block))
    }

    /// `done`, after the group was told what the disk did not do.
    fn told(&self, done: WriteDone) -> WriteDone {
        let (members, device) = (self.members.clone(), self.device.clone());
        let DiskPlace { group, member } = self.place;
        Box::new(move |result| {
            if let (Err(error), Some((members, device))) =
                (&result, members.upgrade().zip(device.upgrade()))
            {
                members.fail_writing((group, member), &device, error.clone().into());
            }
            done(result);
        })
    }
}

impl Disk for LogDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_blocks(&self) -> u64 {
        self.blocks.end - self.blocks.start
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        match self.locate(block, count) {
            Ok((disk, block)) => disk.read(block, count, done),
            Err(error) => done(Err(error)),
        }
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        match self.locate(block, blocks.len()) {
            Ok((disk, block)) => disk.write(block, blocks, self.told(done)),
            Err(error) => done(Err(error)),
        }
    }

    fn flush(&self, done: WriteDone) {
        match self.locate(0, 0) {
            Ok((disk, _)) => disk.flush(self.told(done)),
            Err(error) => done(Err(error)),
        }
    }

    fn write_durable(self: Arc<Self>, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        match self.locate(block, blocks.len()) {
            Ok((disk, block)) => disk.write_durable(block, blocks, self.told(done)),
            Err(error) => done(Err(error)),
        }
    }
}
