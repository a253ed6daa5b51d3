//! The places for copies of the log behind the data of an aggregate's disks.
//!
//! Invariants: a place is a disk only as long as the disk has its place in the group, be it that it
//! missed writes: then every call fails as if the disk were gone, because it may be somebody
//! else's. A place keeps no disk open.
//! A disk that does not write the log has failed for the group, too, before the log hears of it.
//! Whoever has a copy of the log on a disk keeps its place alive: until it lets go of it no other
//! disk that was filled beside takes the place.
//!
//! Fails: as the disk does.

use crate::layout::DiskPlace;
use crate::membership::{Members, Standing};
use media::Device;
use platform::disk::is_in_range;
use platform::sync::Mutex;
use platform::{Disk, DiskError, ReadDone, WriteDone};
use std::ops::Range;
use std::sync::{Arc, Weak};
use units::BlockRef;

/// A place for a copy of the log.
#[derive(Clone)]
pub struct LogPlace {
    /// Which disk it is.
    pub place: DiskPlace,
    /// The place, as a disk of the same name.
    pub disk: Arc<dyn Disk>,
    /// Whether the disk holds all that it should, and no other is about to have its place. What it
    /// holds of the log does not depend on that.
    pub is_lasting: bool,
}

/// The places for copies of the log on disks that are there, in the order of the disks.
pub(crate) fn log_places(members: &Arc<Members>) -> Vec<LogPlace> {
    let geometry = members.geometry();
    let place = |(group, member, device): (u32, usize, Arc<Device>)| {
        let blocks = geometry.group(group).layout().log_blocks();
        let place = DiskPlace { group, member };
        if blocks.is_empty() {
            return None;
        }
        let disk = Arc::new(LogDisk {
            name: device.name().to_owned(),
            members: Arc::downgrade(members),
            device: Arc::downgrade(&device),
            place,
            blocks,
        });
        members.log_disks.add(&disk);
        let is_lasting = standing(members, place) == Some(Standing::Online);
        Some(LogPlace { place, disk, is_lasting })
    };
    let groups = members.layout().groups.clone();
    let disks = (0..).zip(&groups).flat_map(|(group, disks)| {
        let disks = disks.members.iter().enumerate();
        disks.filter_map(move |(at, member)| Some((group, at, member.device()?)))
    });
    disks.filter_map(place).collect()
}

fn standing(members: &Members, DiskPlace { group, member }: DiskPlace) -> Option<Standing> {
    let state = members.state.lock();
    state.groups.get(group as usize).map(|disks| disks.standing(member))
}

/// The places that somebody has a copy of the log in.
#[derive(Default)]
pub(crate) struct LogDisks(Mutex<Vec<(DiskPlace, Weak<LogDisk>)>>);

impl LogDisks {
    fn add(&self, disk: &Arc<LogDisk>) {
        let mut disks = self.0.lock();
        disks.retain(|(_, disk)| disk.strong_count() > 0);
        disks.push((disk.place, Arc::downgrade(disk)));
    }

    /// Whether somebody may have a copy of the log on the disk that has this place, or had it.
    pub(crate) fn is_on(&self, place: DiskPlace) -> bool {
        self.0.lock().iter().any(|(of, disk)| *of == place && disk.strong_count() > 0)
    }
}

/// What is behind the data of a disk.
pub(crate) struct LogDisk {
    name: String,
    members: Weak<Members>,
    device: Weak<Device>,
    place: DiskPlace,
    blocks: Range<u64>,
}

impl LogDisk {
    /// The disk, and its block of this number of the place's; an error if it has lost its place.
    fn locate(&self, block: u64, count: usize) -> Result<(Arc<dyn Disk>, u64), DiskError> {
        let (members, device) = (self.members.upgrade(), self.device.upgrade());
        let DiskPlace { group, member } = self.place;
        let seated = members.zip(device).filter(|(members, device)| {
            is_in_range(block, count, self.size_blocks())
                && members.is_taken_by((group, member), device)
        });
        let gone = || DiskError::Gone { disk: self.name.clone() };
        let (_, device) = seated.ok_or_else(gone)?;
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
