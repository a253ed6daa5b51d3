//! Giving back the room of freed blocks to disks that take it: object stores, which are paid for by
//! what they hold (FreeSpace section 3.1).
//!
//! A commit notes which *units* of disks it has freed blocks in; a unit is what a disk gives back
//! together (all blocks of an object). A message then looks at each of them: its regions that are
//! free as a whole are discarded. That they were free before does not matter; so the room of a unit
//! is given back when its last block is freed, whatever the disk remembers of earlier discards.
//!
//! Invariants:
//! - A block is discarded exactly when it might be given again: the free map of the last commit
//!   says it is free, snapshots included, no consistency point has it in hand, and nobody was
//!   handed it. An older superblock is no more in danger than by blocks that are written again: the
//!   last one is durable on every disk.
//! - What a message reads now stays until it was read: such a unit waits for the next commit.
//!
//! Fails: never. What was freed just before a crash is given back when something beside it is
//! freed, or written to.

use crate::aggregate::Aggregate;
use crate::block_side::BlockSide;
use affinity::{Access, Outcome};
use cowfs::free_map::{VBNS_PER_BLOCK, is_set};
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use cowfs::space::Space;
use ondisk::identity::REGION_DATA_BLOCKS;
use ondisk::pointer::PhysicalPointer;
use platform::mutation::{self, Rule};
use raid::{BlockStore, DiskRegion, Geometry, Location, TetrisId};
use std::collections::BTreeSet;
use std::sync::Arc;
use units::Pvbn;

/// Units that one message looks at: some milliseconds, for which nothing else is allocated.
const UNITS_PER_MESSAGE: usize = 64;

/// Regions of a disk that give their room back together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Unit {
    group: u32,
    disk: usize,
    /// The first region, and the one after the last.
    regions: (u64, u64),
}

/// Where room may be given back.
#[derive(Default)]
pub struct Reclaim {
    /// To be looked at.
    waiting: BTreeSet<Unit>,
    /// To be looked at after the next commit: somebody reads there.
    put_off: BTreeSet<Unit>,
    /// A message looks.
    is_running: bool,
}

impl Reclaim {
    /// A commit has freed these blocks, in order. Whether a message must be sent.
    fn note(&mut self, store: &dyn BlockStore, freed: &[u64]) -> bool {
        let geometry = store.geometry();
        let groups = 0..geometry.groups().len() as u32;
        let units: Vec<Option<u64>> = groups.map(|at| store.discard_unit_regions(at)).collect();
        if units.iter().all(Option::is_none) {
            return false;
        }
        self.waiting.append(&mut self.put_off);
        let mut last = None;
        for pvbn in freed {
            let unit = geometry.locate(Pvbn(*pvbn)).and_then(|at| unit_of(&geometry, &units, at));
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
    fn disk_regions(self) -> impl Iterator<Item = DiskRegion> {
        let Self { group, disk, regions: (first, end) } = self;
        (first..end).map(move |region| DiskRegion { disk, tetris: TetrisId { group, region } })
    }
}

/// The first block of a region, and how many follow.
fn blocks_of(geometry: &Geometry, region: DiskRegion) -> Option<std::ops::Range<u64>> {
    let DiskRegion { disk, tetris: TetrisId { group, region } } = region;
    let stripe = region * REGION_DATA_BLOCKS as u64;
    let first = geometry.pvbn(Location { group, disk, stripe })?.get();
    Some(first..first + REGION_DATA_BLOCKS as u64)
}

/// Whether nothing is in a region, nor may come into it.
fn is_free(
    region: DiskRegion,
    geometry: &Geometry,
    space: &mut Space<PhysicalPointer>,
    reader: &Reader<'_>,
) -> Progress<bool> {
    let Some(blocks) = blocks_of(geometry, region) else { return Ok(false) };
    for index in blocks.start / VBNS_PER_BLOCK..=(blocks.end - 1) / VBNS_PER_BLOCK {
        let map = space.in_use(index, reader)?;
        let within = (index * VBNS_PER_BLOCK).max(blocks.start)
            ..((index + 1) * VBNS_PER_BLOCK).min(blocks.end);
        // Number 0 is never a block, and no reason to keep what is beside it.
        let is_free = |vbn: u64| vbn == 0 || !is_set(&map, vbn) && space.is_givable(vbn);
        if !within.into_iter().all(is_free) {
            return Ok(mutation::broken(Rule::DiscardUnchecked));
        }
    }
    Ok(true)
}

impl Aggregate {
    /// Looks where blocks were freed, if there are disks that want to know.
    pub(crate) fn reclaim(self: &Arc<Self>, side: &mut BlockSide, freed: &[u64]) {
        if side.reclaim.note(&*self.parts.store, freed) {
            self.send_reclaim();
        }
    }

    fn send_reclaim(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let held = HeldBlocks::default();
        let message = move |access: &mut Access<'_>| match this.look(access, &held) {
            Err(Stop::Wait(wait)) => this.suspend(wait, &held),
            Err(stop) => {
                // The allocator will come by, and has to say more.
                tracing::warn!(aggregate = %this.parts.identity.name, %stop, "nothing is reclaimed");
                this.block_side.write(access).reclaim = Reclaim::default();
                Outcome::Done
            }
            Ok(true) => {
                this.send_reclaim();
                Outcome::Done
            }
            Ok(false) => Outcome::Done,
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    /// Looks at some units; whether more wait.
    fn look(&self, access: &mut Access<'_>, held: &HeldBlocks) -> Progress<bool> {
        let geometry = self.parts.store.geometry();
        let reader = Reader { cache: &self.parts.cache, held };
        let side = self.block_side.write(access);
        let units: Vec<Unit> =
            side.reclaim.waiting.iter().take(UNITS_PER_MESSAGE).copied().collect();
        let mut found = Vec::new();
        for unit in units {
            let mut free = Vec::new();
            for region in unit.disk_regions() {
                if is_free(region, &geometry, &mut side.space, &reader)? {
                    free.push(region);
                }
            }
            found.push((unit, free));
        }
        let under_way = self.loads.places();
        let is_read = |region: &DiskRegion| {
            let blocks = blocks_of(&geometry, *region).unwrap_or_default();
            let at = under_way.partition_point(|pvbn| pvbn.get() < blocks.start);
            under_way.get(at).is_some_and(|pvbn| pvbn.get() < blocks.end)
        };
        let mut discarded = Vec::new();
        for (unit, free) in found {
            side.reclaim.waiting.remove(&unit);
            if free.iter().any(is_read) {
                side.reclaim.put_off.insert(unit);
            } else {
                discarded.extend(free);
            }
        }
        let is_more = !side.reclaim.waiting.is_empty();
        side.reclaim.is_running = is_more;
        if !discarded.is_empty() {
            self.parts.store.discard(&discarded);
        }
        Ok(is_more)
    }
}
