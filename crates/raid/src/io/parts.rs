//! What goes to which disk of a tetris: requests for rows next to one another.
//!
//! Invariant: what is written in a tetris reaches the disk that has a place and the one that is
//! being filled beside it, if that holds the region; a disk that takes a place meanwhile misses
//! nothing.
//!
//! Fails: a disk that does not write is given up (`membership/failure.rs`).

use crate::io::Io;
use crate::layout::{Missing, TetrisId};
use crate::stripe::{Answer, Column};
use media::Device;
use platform::DiskError;
use platform::completion::{Sender, gather};
use std::sync::Arc;
use units::BlockRef;

/// A request of a disk for some rows.
struct Part {
    member: usize,
    device: Arc<Device>,
    row: usize,
    blocks: Vec<BlockRef>,
}

impl Io {
    /// Writes columns to the disks of a group that are in use. Disks that fail are given up.
    pub(crate) fn write_columns(
        self: &Arc<Self>,
        tetris: TetrisId,
        missing: Missing,
        columns: &[Column],
        done: Sender<()>,
    ) {
        let parts = self.parts_of(tetris, missing, columns);
        self.write_parts(tetris, parts, done);
    }

    /// The same, and all of a column to a disk that is being filled.
    pub(crate) fn write_columns_and_fill(
        self: &Arc<Self>,
        (tetris, missing): (TetrisId, Missing),
        columns: &[Column],
        (member, filled, column): (usize, &Arc<Device>, &Column),
        done: Sender<()>,
    ) {
        let mut parts = self.parts_of(tetris, missing, columns);
        parts.extend(parts_of_column(member, filled, column));
        self.write_parts(tetris, parts, done);
    }

    /// Where columns go: to the disks that are in use, and to those that are being filled beside
    /// them if they hold the region already.
    fn parts_of(&self, tetris: TetrisId, missing: Missing, columns: &[Column]) -> Vec<Part> {
        let group = self.members.group(tetris.group);
        let copies = self.members.copies_with(tetris);
        // After that: a disk takes a place before it is called a copy no more.
        let mut parts = Vec::new();
        for (member, column) in columns.iter().enumerate() {
            let own = group.device(member, missing).into_iter();
            let copy = copies.iter().filter(|(place, _)| *place == member).map(|(_, copy)| copy);
            for device in own.chain(copy.cloned()) {
                parts.extend(parts_of_column(member, &device, column));
            }
        }
        parts
    }

    fn write_parts(self: &Arc<Self>, tetris: TetrisId, parts: Vec<Part>, done: Sender<()>) {
        let places: Vec<_> =
            parts.iter().map(|part| (part.member, Arc::clone(&part.device))).collect();
        {
            let counters = &mut self.state.lock().counters;
            counters.device_writes += parts.len() as u64;
            counters.device_blocks +=
                parts.iter().map(|part| part.blocks.len() as u64).sum::<u64>();
        }
        let io = Arc::clone(self);
        let dones = gather(parts.len(), move |results: Vec<Result<(), DiskError>>| {
            for ((member, device), result) in places.into_iter().zip(results) {
                if let Err(error) = result {
                    io.members.fail_writing((tetris.group, member), &device, error.into());
                }
            }
            done(());
        });
        let geometry = self.members.geometry();
        for (part, done) in parts.into_iter().zip(dones) {
            let block = geometry.device_block(tetris, part.row);
            part.device.disk().write(block, part.blocks, done);
        }
    }

    /// Forgets the checksum blocks of a tetris, which are being written or have been.
    pub(crate) fn forget_names(&self, tetris: TetrisId) {
        let mut state = self.state.lock();
        state.cache.forget(tetris);
        state.cache.advance_generation(tetris);
    }

    /// Blocks that were wrong are right again.
    pub(crate) fn count_repaired(&self, blocks: u64) {
        self.state.lock().counters.repaired_blocks += blocks;
    }

    /// What was found wrong with blocks, and made good or not.
    pub(crate) fn count_damage(&self, answer: &Answer) {
        let counters = &mut self.state.lock().counters;
        counters.repaired_blocks += answer.repaired_blocks;
        counters.damaged_blocks += answer.damaged_blocks;
    }
}

/// The requests that write a column to a disk.
fn parts_of_column(
    member: usize,
    device: &Arc<Device>,
    column: &Column,
) -> impl Iterator<Item = Part> {
    column.rows().runs().map(move |(row, count)| {
        let blocks = (row..row + count).filter_map(|row| column.get(row).cloned());
        Part { member, device: Arc::clone(device), row, blocks: blocks.collect() }
    })
}
