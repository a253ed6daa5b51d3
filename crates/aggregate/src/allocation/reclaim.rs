//! Where room may be given back to disks that take it: object stores, which are paid for by what
//! they hold (FreeSpace section 3.1).
//!
//! A commit notes which *units* of disks it has freed blocks in; a unit is what a disk gives back
//! together (all blocks of an object). That they were free before does not matter; so the room of a
//! unit is given back when its last block is freed, whatever the disk remembers of earlier
//! discards.
//!
//! Invariants:
//! - A block is discarded exactly when it might be given again: the free map of the last commit
//!   says it is free, snapshots included, no consistency point has it in hand, and nobody was
//!   handed it. An older superblock is no more in danger than by blocks that are written again: the
//!   last one is durable on every disk.
//! - What somebody reads now stays until it was read: such a unit waits for the next commit.

use cowfs::free_map::{is_set, runs_of};
use cowfs::reader::{Progress, Reader};
use cowfs::space::Space;
use ondisk::identity::REGION_DATA_BLOCKS;
use ondisk::pointer::PhysicalPointer;
use platform::mutation::{self, Rule};
use raid::{BlockStore, DiskRegion, Geometry, Location, TetrisId};
use std::collections::BTreeSet;
use std::ops::Range;
use units::{BlockNumber, Pvbn};

/// Regions of a disk that give their room back together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Unit {
    group: u32,
    disk: usize,
    /// The first region, and the one after the last.
    regions: (u64, u64),
}

/// Where room may be given back.
#[derive(Default)]
pub struct Reclaim {
    /// To be looked at.
    pub(crate) waiting: BTreeSet<Unit>,
    /// To be looked at after the next commit: somebody reads there.
    pub(crate) put_off: BTreeSet<Unit>,
    /// A message looks.
    pub(crate) is_running: bool,
}

impl Reclaim {
    /// A commit has freed these blocks, in order. Whether a message must be sent.
    pub(crate) fn note(&mut self, store: &dyn BlockStore, freed: &[Pvbn]) -> bool {
        let geometry = store.geometry();
        let groups = 0..geometry.groups().len() as u32;
        let units: Vec<Option<u64>> = groups.map(|at| store.discard_unit_regions(at)).collect();
        if units.iter().all(Option::is_none) {
            return false;
        }
        self.waiting.append(&mut self.put_off);
        let mut last = None;
        for pvbn in freed {
            let unit = geometry.locate(*pvbn).and_then(|at| unit_of(&geometry, &units, at));
            if unit != last {
                self.waiting.extend(unit);
                last = unit;
            }
        }
        !self.waiting.is_empty() && !std::mem::replace(&mut self.is_running, true)
    }
}

fn unit_of(geometry: &Geometry, units: &[Option<u64>], at: Location) -> Option<Unit> {
    let regions = units.get(at.group as usize).copied().flatten()?;
    let first = at.tetris().region / regions * regions;
    let end = first.saturating_add(regions).min(geometry.group(at.group).regions);
    Some(Unit { group: at.group, disk: at.disk, regions: (first, end) })
}

impl Unit {
    pub(crate) fn disk_regions(self) -> impl Iterator<Item = DiskRegion> {
        let Self { group, disk, regions: (first, end) } = self;
        (first..end).map(move |region| DiskRegion { disk, tetris: TetrisId { group, region } })
    }
}

/// The blocks of a region.
pub(crate) fn blocks_of(geometry: &Geometry, region: DiskRegion) -> Option<Range<Pvbn>> {
    let DiskRegion { disk, tetris } = region;
    let location = Location { group: tetris.group, disk, stripe: tetris.stripe(0) };
    let first = geometry.pvbn(location)?;
    Some(first..first.offset(REGION_DATA_BLOCKS as u64))
}

/// Whether nothing is in a region, nor may come into it.
pub(crate) fn is_free(
    region: DiskRegion,
    geometry: &Geometry,
    space: &mut Space<PhysicalPointer>,
    reader: &Reader<'_>,
) -> Progress<bool> {
    let Some(blocks) = blocks_of(geometry, region) else { return Ok(false) };
    for (index, part) in runs_of(blocks) {
        let map = space.in_use(index, reader)?;
        // Number 0 is never a block, and no reason to keep what is beside it.
        let is_free = |pvbn| pvbn == Pvbn(0) || !is_set(&map, pvbn) && space.is_givable(pvbn);
        if !part.start.until(part.end).all(is_free) {
            return Ok(mutation::broken(Rule::DiscardUnchecked));
        }
    }
    Ok(true)
}
