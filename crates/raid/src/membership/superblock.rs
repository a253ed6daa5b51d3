//! Superblocks: the same one on every disk.
//!
//! A disk votes at a start if it holds what its place must. A disk that is being filled may have
//! superblocks of another time: the first superblock that it gets goes to all of its slots, before
//! the labels call the disk whole.
//!
//! Invariant: an old superblock of a disk that came back is never read as a vote.

use crate::error::StoreError;
use crate::membership::Members;
use crate::request::{SuperblockCopy, SuperblocksDone, SyncDone};
use media::{Device, MediaError, SUPERBLOCK_SLOTS};
use platform::completion::gather;
use std::sync::Arc;
use units::{Block, BlockRef};

/// A disk with its group and its index in it.
type Place = (u32, usize, Arc<Device>);

/// Receives the end of a superblock's write to one disk.
type WrittenDone = Box<dyn FnOnce(Result<(), MediaError>) + Send>;

impl Members {
    pub(crate) fn write_superblock(
        self: &Arc<Self>,
        slot: usize,
        block: &BlockRef,
        done: SyncDone,
    ) {
        assert!(slot < SUPERBLOCK_SLOTS, "superblock slot {slot}");
        // A disk that is not there keeps its old superblock, and must not speak again.
        self.write_all_labels();
        self.write_superblock_to(self.devices(), slot, block, done);
    }

    fn write_superblock_to(
        self: &Arc<Self>,
        devices: Vec<Place>,
        slot: usize,
        block: &BlockRef,
        done: SyncDone,
    ) {
        let written_cp = {
            let mut state = self.state.lock();
            state.superblocks_under_way += 1;
            state.points.written
        };
        let places = devices.clone();
        let members = Arc::clone(self);
        let parts = gather(devices.len(), move |results: Vec<Result<(), MediaError>>| {
            for ((group, member, device), result) in places.into_iter().zip(results) {
                match result {
                    Ok(()) => members.has_superblock((group, member), device),
                    Err(error) => members.fail_writing((group, member), &device, error),
                }
            }
            members.state.lock().superblocks_under_way -= 1;
            members.settle(written_cp);
            members.finish_sync(done);
        });
        for ((group, member, device), part) in devices.iter().zip(parts) {
            if self.has_old_superblocks((*group, *member), device) {
                write_all_slots(Arc::clone(device), slot, Arc::clone(block), part);
            } else {
                device.write_superblock(slot, Arc::clone(block), part);
            }
        }
    }

    /// Has every disk in use have a superblock that was found on some, durably. Where a disk has it
    /// nothing is written over it: a write that is torn must not take the last good copy.
    ///
    /// Then the other slot of a disk is written, too, if it is not whole. The next superblock goes
    /// there, perhaps with the number of the one that was torn: if it were torn as well, the two
    /// halves could pass for one superblock.
    pub(crate) fn adopt_superblock(
        self: &Arc<Self>,
        slot: usize,
        block: BlockRef,
        is_whole: fn(&Block) -> bool,
        done: SyncDone,
    ) {
        // A disk that is not there may have a newer one, and must not speak again.
        self.write_all_labels();
        let devices = self.devices();
        let places = devices.clone();
        let members = Arc::clone(self);
        let parts = gather(devices.len(), move |found: Vec<Result<BlockRef, MediaError>>| {
            let lacks = |((group, member, device), found): &((u32, usize, _), Result<_, _>)| {
                let has_it = found.as_ref().is_ok_and(|found: &BlockRef| *found == block);
                !has_it || members.has_old_superblocks((*group, *member), device)
            };
            let lacking = places.into_iter().zip(found).filter(lacks);
            let lacking = lacking.map(|(place, _)| place).collect();
            let again = Arc::clone(&members);
            // What was found may be in the volatile memory of a disk only.
            let flushed = move |outcome: Result<(), StoreError>| match outcome {
                Ok(()) => {
                    let (last, same) = (Arc::clone(&again), Arc::clone(&block));
                    let written = move |outcome: Result<(), StoreError>| match outcome {
                        Ok(()) => last.replace_torn(1 - slot, same, is_whole, done),
                        Err(error) => done(Err(error)),
                    };
                    again.write_superblock_to(lacking, slot, &block, Box::new(written));
                }
                Err(error) => done(Err(error)),
            };
            members.flush(Box::new(flushed));
        });
        for ((_, _, device), part) in devices.iter().zip(parts) {
            device.read_superblock(slot, part);
        }
    }

    /// Writes a superblock to a slot of the disks on which that is not whole.
    fn replace_torn(
        self: &Arc<Self>,
        slot: usize,
        block: BlockRef,
        is_whole: fn(&Block) -> bool,
        done: SyncDone,
    ) {
        let devices = self.devices();
        let (members, places) = (Arc::clone(self), devices.clone());
        let parts = gather(devices.len(), move |found: Vec<Result<BlockRef, MediaError>>| {
            let is_torn = |found: &Result<BlockRef, MediaError>| {
                found.as_ref().is_ok_and(|found| !is_whole(found))
            };
            let torn = places.into_iter().zip(found).filter(|(_, found)| is_torn(found));
            let torn = torn.map(|(place, _)| place).collect();
            members.write_superblock_to(torn, slot, &block, done);
        });
        for ((_, _, device), part) in devices.iter().zip(parts) {
            device.read_superblock(slot, part);
        }
    }

    /// Whether the slots of a disk may have superblocks of another time.
    fn has_old_superblocks(&self, (group, member): (u32, usize), device: &Arc<Device>) -> bool {
        let state = self.state.lock();
        let mut filled = state.groups[group as usize].fillings_at(member);
        filled.any(|filled| filled.is_of(device) && !filled.has_superblock)
    }

    /// The disks that hold what their places must.
    fn voters(&self) -> Vec<Arc<Device>> {
        let groups = 0..self.layout().groups.len() as u32;
        let of_group = |group| {
            let missing = self.state.lock().groups[group as usize].missing_or_filled();
            let place = self.group(group);
            let own = |member| place.device(member, missing);
            (0..place.members.len()).filter_map(own).collect::<Vec<_>>()
        };
        groups.flat_map(of_group).collect()
    }

    pub(crate) fn read_superblocks(self: &Arc<Self>, done: SuperblocksDone) {
        let voters = self.voters();
        let slots = 0..SUPERBLOCK_SLOTS;
        let places: Vec<_> = voters
            .iter()
            .flat_map(|device| slots.clone().map(|slot| (Arc::clone(device), slot)))
            .collect();
        let names: Vec<_> =
            places.iter().map(|(device, slot)| (device.name().to_owned(), *slot)).collect();
        let parts = gather(places.len(), move |results: Vec<Result<BlockRef, MediaError>>| {
            let copies = names.into_iter().zip(results);
            let copies = copies.map(|((disk, slot), result)| SuperblockCopy {
                disk,
                slot,
                block: result.ok(),
            });
            done(copies.collect());
        });
        for ((device, slot), part) in places.iter().zip(parts) {
            device.read_superblock(*slot, part);
        }
    }
}

/// Writes a superblock to all slots of a disk, to `last` after the others.
fn write_all_slots(device: Arc<Device>, last: usize, block: BlockRef, done: WrittenDone) {
    let others: Vec<usize> = (0..SUPERBLOCK_SLOTS).filter(|slot| *slot != last).collect();
    let (same, copy) = (Arc::clone(&device), Arc::clone(&block));
    let parts = gather(others.len(), move |results: Vec<Result<(), MediaError>>| {
        match results.into_iter().collect::<Result<Vec<()>, _>>() {
            Ok(_) => same.write_superblock(last, copy, done),
            Err(error) => done(Err(error)),
        }
    });
    for (slot, part) in others.into_iter().zip(parts) {
        device.write_superblock(slot, Arc::clone(&block), part);
    }
}
