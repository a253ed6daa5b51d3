//! Superblocks: the same one on every disk.

use crate::block_store::{SuperblockCopy, SuperblocksDone, SyncDone};
use crate::store::Inner;
use media::{MediaError, SUPERBLOCK_SLOTS};
use platform::completion::gather;
use std::sync::Arc;
use units::BlockRef;

impl Inner {
    pub(crate) fn write_superblock(
        self: &Arc<Self>,
        slot: usize,
        block: &BlockRef,
        done: SyncDone,
    ) {
        assert!(slot < SUPERBLOCK_SLOTS, "superblock slot {slot}");
        // A disk that is not there keeps its old superblock, and must not speak again.
        self.write_all_labels();
        let written_cp = {
            let mut state = self.state.lock();
            state.superblocks_under_way += 1;
            state.points.written
        };
        let devices = self.devices();
        let places = devices.clone();
        let inner = Arc::clone(self);
        let parts = gather(devices.len(), move |results: Vec<Result<(), MediaError>>| {
            for ((group, member, device), result) in places.into_iter().zip(results) {
                match result {
                    Ok(()) => inner.has_superblock((group, member), device),
                    Err(error) => inner.fail_writing((group, member), &device, error),
                }
            }
            inner.state.lock().superblocks_under_way -= 1;
            inner.settle(written_cp);
            inner.finish_sync(done);
        });
        for ((_, _, device), part) in devices.iter().zip(parts) {
            device.write_superblock(slot, Arc::clone(block), part);
        }
    }

    pub(crate) fn read_superblocks(self: &Arc<Self>, done: SuperblocksDone) {
        let devices = self.devices();
        let slots = 0..SUPERBLOCK_SLOTS;
        let places: Vec<_> = devices
            .iter()
            .flat_map(|(_, _, device)| slots.clone().map(|slot| (Arc::clone(device), slot)))
            .collect();
        let names: Vec<_> =
            places.iter().map(|(device, slot)| (device.name().to_owned(), *slot)).collect();
        let parts = gather(places.len(), move |results: Vec<Result<BlockRef, MediaError>>| {
            let copies = names.into_iter().zip(results).filter_map(|((disk, slot), result)| {
                result.ok().map(|block| SuperblockCopy { disk, slot, block })
            });
            done(copies.collect());
        });
        for ((device, slot), part) in places.iter().zip(parts) {
            device.read_superblock(*slot, part);
        }
    }
}
