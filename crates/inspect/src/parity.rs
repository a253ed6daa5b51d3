//! The parity of every stripe that has a block in use, and of the checksum blocks beside them.
//!
//! Invariants: where a block of a stripe was found damaged its parity cannot be right and is not
//! told again. Groups that lack a disk have no parity left to check.

use crate::error::InspectError;
use crate::finding::Finding;
use crate::medium::{CHECKSUM_ROW, Medium};
use crate::stripe::parity_of;
use crate::vbn_set::VbnSet;
use raid::TetrisId;
use std::collections::BTreeMap;
use units::{Block, BlockRef, Pvbn};

/// Checks the stripes of all blocks in `used`.
pub(crate) fn check(medium: &mut Medium<'_>, used: &VbnSet) -> Result<(), InspectError> {
    let mut rows: BTreeMap<TetrisId, u64> = BTreeMap::new();
    for pvbn in used.iter().filter(|pvbn| *pvbn != 0) {
        if let Some(place) = medium.array.geometry.locate(Pvbn(pvbn)) {
            *rows.entry(place.tetris()).or_default() |= 1 << place.row() | 1 << CHECKSUM_ROW;
        }
    }
    for (tetris, rows) in rows {
        let group = medium.array.geometry.group(tetris.group);
        if group.kind.parity_disks() > 0 && medium.array.is_whole(tetris.group) {
            check_tetris(medium, tetris, rows)?;
        }
    }
    Ok(())
}

fn check_tetris(medium: &mut Medium<'_>, tetris: TetrisId, rows: u64) -> Result<(), InspectError> {
    let data_disks = medium.array.geometry.group(tetris.group).data_disks();
    let disks = medium.read_regions(tetris)?;
    for row in (0..=CHECKSUM_ROW).filter(|row| rows >> row & 1 == 1) {
        if medium.damaged_rows.contains(&(tetris, row)) {
            continue;
        }
        let blocks: Vec<Option<&BlockRef>> =
            disks.iter().map(|blocks| blocks.get(row).and_then(Option::as_ref)).collect();
        medium.report.totals.stripes += 1;
        let unreadable = blocks.iter().position(Option::is_none);
        if let Some(disk) = unreadable {
            let block = medium.array.geometry.device_block(tetris, row);
            medium.report.add(Finding::Unreadable { group: tetris.group, disk, block });
        } else if !is_true(&blocks, data_disks) {
            let (group, region) = (tetris.group, tetris.region);
            medium.report.add(Finding::Parity { group, region, row });
        }
    }
    Ok(())
}

/// Whether a row's parity blocks, before its data blocks, are what they must be.
fn is_true(row: &[Option<&BlockRef>], data_disks: usize) -> bool {
    let blocks: Vec<&Block> = row.iter().flatten().map(|block| &***block).collect();
    let (parity, data) = blocks.split_at(blocks.len() - data_disks);
    let columns: Vec<&Block> = parity.first().into_iter().chain(data).copied().collect();
    parity.iter().enumerate().all(|(which, block)| parity_of(which, &columns) == **block)
}
