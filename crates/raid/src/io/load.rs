//! Reads parts of a tetris from the disks that can be read.
//!
//! Fails: what cannot be read is left out. A run that fails is read again block by block, so that
//! one bad block does not hide its neighbours.

use crate::io::Io;
use crate::layout::{Missing, TetrisId};
use crate::stripe::{Column, RowSet};
use media::Device;
use platform::Disk;
use platform::completion::{Sender, gather};
use std::sync::Arc;
use units::BlockRef;

/// Blocks from a run of rows, as far as they could be read.
type Run = Vec<Option<BlockRef>>;

impl Io {
    /// Reads the wanted rows of each disk of the group.
    pub(super) fn load(
        self: &Arc<Self>,
        tetris: TetrisId,
        missing: Missing,
        wants: &[RowSet],
        done: Sender<Vec<Column>>,
    ) {
        let group = self.members.group(tetris.group);
        let mut parts = Vec::new();
        for (member, want) in wants.iter().enumerate() {
            if let Some(device) = group.device(member, missing) {
                let part = |(row, count)| (member, Arc::clone(&device), row, count);
                parts.extend(want.runs().map(part));
            }
        }
        let members = group.members.len();
        let places: Vec<_> = parts.iter().map(|(member, _, row, _)| (*member, *row)).collect();
        let dones = gather(parts.len(), move |runs: Vec<Run>| {
            let mut columns = vec![Column::new(); members];
            for ((member, first), run) in places.into_iter().zip(runs) {
                for (row, block) in (first..).zip(run) {
                    if let Some(block) = block {
                        columns[member].set(row, block);
                    }
                }
            }
            done(columns);
        });
        for ((member, device, row, count), done) in parts.into_iter().zip(dones) {
            self.load_run(tetris, (member, device), (row, count), done);
        }
    }

    fn load_run(
        self: &Arc<Self>,
        tetris: TetrisId,
        (member, device): (usize, Arc<Device>),
        (row, count): (usize, usize),
        done: Sender<Run>,
    ) {
        let disk = Arc::clone(device.disk());
        let at = self.members.geometry().device_block(tetris, row);
        let io = Arc::clone(self);
        let again = Arc::clone(&disk);
        disk.read(
            at,
            count,
            Box::new(move |result| match result {
                Ok(blocks) => done(blocks.into_iter().map(Some).collect()),
                Err(error) if error.is_of_disk() => {
                    io.members.fail_reading((tetris.group, member), &device, error.into());
                    done(vec![None; count]);
                }
                Err(_) if count == 1 => done(vec![None]),
                Err(_) => load_singly(&again, at, count, done),
            }),
        );
    }
}

fn load_singly(disk: &Arc<dyn Disk>, at: u64, count: usize, done: Sender<Run>) {
    let dones = gather(count, done);
    for (block, done) in (at..).zip(dones) {
        disk.read(
            block,
            1,
            Box::new(move |result| {
                done(result.ok().and_then(|blocks| blocks.into_iter().next()));
            }),
        );
    }
}
