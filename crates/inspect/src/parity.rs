//! The parity of every stripe that has a block in use, and of the checksum blocks beside them.
//!
//! Invariants: where a block of a stripe was found damaged its parity cannot be right and is not
//! told again. Groups that lack a disk have no parity left to check. A tetris that was written
//! after the superblock is left out: the server died in its first consistency point after a clean
//! stop, and its next start makes parity right from the log.

use crate::error::InspectError;
use crate::finding::Finding;
use crate::medium::{CHECKSUM_ROW, Medium};
use crate::stripe::parity_of;
use crate::vbn_set::VbnSet;
use ondisk::identity::ChecksumBlock;
use raid::TetrisId;
use std::collections::BTreeMap;
use units::{Block, BlockRef, CpNumber, Pvbn};

/// Checks the stripes of all blocks in `used`.
pub(crate) fn check(medium: &mut Medium<'_>, used: &VbnSet) -> Result<(), InspectError> {
    let mut rows: BTreeMap<TetrisId, u64> = BTreeMap::new();
    for pvbn in used.iter().filter(|pvbn| *pvbn != 0) {
        if let Some(place) = medium.array.geometry.locate(Pvbn(pvbn)) {
            *rows.entry(place.tetris()).or_default() |= 1 << place.row() | 1 << CHECKSUM_ROW;
        }
    }
    rows.retain(|tetris, _| {
        let group = medium.array.geometry.group(tetris.group);
        group.kind.parity_disks() > 0 && medium.array.is_whole(tetris.group)
    });
    let stripes = rows.values().map(|rows| u64::from(rows.count_ones()));
    medium.progress.stripes_total = stripes.sum();
    for (tetris, rows) in rows {
        check_tetris(medium, tetris, rows)?;
        medium.progress.stripes += u64::from(rows.count_ones());
        medium.tell_progress()?;
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
        } else if !is_true(&blocks, data_disks) && !is_newer(&disks, medium.cp) {
            let (group, region) = (tetris.group, tetris.region);
            medium.report.add(Finding::Parity { group, region, row });
        }
    }
    Ok(())
}

/// Whether anything in a tetris was written after a consistency point, as its identities tell.
fn is_newer(disks: &[Vec<Option<BlockRef>>], cp: CpNumber) -> bool {
    let checksums = disks.iter().filter_map(|blocks| blocks.get(CHECKSUM_ROW)?.as_ref());
    let mut identities = checksums.flat_map(|block| ChecksumBlock::view(block).identities.iter());
    identities.any(|identity| identity.validate().is_ok() && identity.owner().cp > cp)
}

/// Whether a row's parity blocks, before its data blocks, are what they must be.
fn is_true(row: &[Option<&BlockRef>], data_disks: usize) -> bool {
    let blocks: Vec<&Block> = row.iter().flatten().map(|block| &***block).collect();
    let (parity, data) = blocks.split_at(blocks.len() - data_disks);
    let columns: Vec<&Block> = parity.first().into_iter().chain(data).copied().collect();
    parity.iter().enumerate().all(|(which, block)| parity_of(which, &columns) == **block)
}
