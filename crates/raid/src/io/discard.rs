//! Tells disks which regions hold nothing any more, so that storage which is paid for by use gives
//! their room back (FreeSpace section 3.1: aggregates over object stores).
//!
//! Only whole regions of a disk, checksum block included: what is left of a region would contradict
//! identities of blocks that are gone. Only groups without parity, for the stripes of others would
//! have to be written.
//!
//! Invariants: a region is discarded while its tetris is had to itself, and only if no block of it
//! was queued since the caller found it free: what is written after the call stays.
//!
//! Fails: never; a disk that does nothing, or forgets it in a crash, gives nothing back.

use crate::io::Io;
use crate::layout::{DiskRegion, TetrisId};
use crate::stripe::CHECKSUM_ROW;
use media::{RESERVED_END_BLOCKS, regions_of};
use ondisk::identity::REGION_BLOCKS;
use ondisk::label::RaidKind;
use platform::completion::gather;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Io {
    /// How many regions of a disk of the group give their room back together, if any do.
    pub(crate) fn discard_unit_regions(&self, group: u32) -> Option<u64> {
        let group = self.members.group(group);
        if group.kind != RaidKind::None {
            return None;
        }
        let devices = group.members.iter().filter_map(|member| member.device());
        let units = devices.filter_map(|device| device.disk().hints().discard_unit_blocks);
        units.max().map(|blocks| blocks.div_ceil(REGION_BLOCKS as u64).max(1))
    }

    pub(crate) fn discard(self: &Arc<Self>, regions: &[DiskRegion]) {
        let mut tetrises = BTreeSet::new();
        {
            let mut state = self.state.lock();
            for DiskRegion { disk, tetris } in regions {
                assert!(
                    self.members.group(tetris.group).kind == RaidKind::None,
                    "a disk with parity beside it keeps what it has"
                );
                state.tetrises.entry(*tetris).or_default().discarded.insert(*disk);
                tetrises.insert(*tetris);
            }
        }
        let groups: BTreeSet<u32> = tetrises.iter().map(|tetris| tetris.group).collect();
        let io = Arc::clone(self);
        let dones = gather(tetrises.len(), move |_: Vec<()>| io.flush_discards(&groups));
        for (tetris, done) in tetrises.into_iter().zip(dones) {
            let job = move |io: &Arc<Self>| {
                io.discard_regions(tetris);
                io.unlock_tetris(tetris);
                done(());
            };
            self.lock_tetris(tetris, Box::new(job));
        }
    }

    /// The caller has the tetris to itself.
    fn discard_regions(&self, tetris: TetrisId) {
        if self.members.is_over() {
            return;
        }
        let missing = self.members.missing_at(tetris);
        let disks = {
            let mut state = self.state.lock();
            let Some(entry) = state.tetrises.get_mut(&tetris) else {
                unreachable!("a busy tetris is not forgotten")
            };
            let disks = std::mem::take(&mut entry.discarded);
            // What a reader has under way is not what the disk will have.
            state.cache.advance_generation(tetris);
            disks.iter().for_each(|disk| state.cache.forget_disk(tetris, *disk));
            disks
        };
        let (group, geometry) = (self.members.group(tetris.group), self.members.geometry());
        let is_last = tetris.region + 1 == geometry.group(tetris.group).regions;
        for disk in disks {
            let Some(device) = group.device(group.code().member(disk), missing) else { continue };
            let first = geometry.device_block(tetris, 0);
            let mut end = geometry.device_block(tetris, CHECKSUM_ROW) + 1;
            let size_blocks = device.disk().size_blocks();
            if is_last && regions_of(size_blocks) == tetris.region + 1 {
                // Less than a region, in which nothing ever is.
                end = size_blocks - RESERVED_END_BLOCKS;
            }
            device.disk().discard(first, end - first);
        }
    }

    /// Has the room given back now, unless something is on its way: then the flush that ends it
    /// does, and this one would only cut it into pieces.
    fn flush_discards(&self, groups: &BTreeSet<u32>) {
        if self.members.is_over() {
            return;
        }
        let is_idle = {
            let state = self.state.lock();
            state.open_batches.is_empty()
                && state.tetrises.values().all(|tetris| tetris.filling.is_empty())
        };
        if is_idle {
            for (_, _, device) in
                self.members.devices().iter().filter(|(at, ..)| groups.contains(at))
            {
                // Whoever needs it durable flushes again, and is told what fails.
                device.disk().flush(Box::new(|_| ()));
            }
        }
    }
}
