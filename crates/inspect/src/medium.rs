//! Blocks by PVBN, proved three ways: by the pointer's check, by the checksum in the tree, by the
//! identity beside the block.
//!
//! Invariants: a block that is handed out has the content that its pointer names, if need be from
//! parity; memory is bounded by two caches that are dropped when they are full. Each block that is
//! damaged is told once.

use crate::array::{Array, Stretch};
use crate::error::InspectError;
use crate::fault::IdentityFault;
use crate::finding::{Finding, Place};
use crate::format::{Content, tree_checksum};
use crate::pump::Pump;
use crate::report::Report;
use crate::scope::{Progress, Scope, Watch};
use crate::stripe::Solver;
use ondisk::identity::{
    BlockIdentity, BlockOwner, ChecksumBlock, REGION_BLOCKS, REGION_DATA_BLOCKS, crc32c,
};
use raid::{Location, TetrisId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;
use units::{Block, BlockRef, CpNumber, Pvbn};

/// The row of checksum blocks in a tetris.
pub(crate) const CHECKSUM_ROW: usize = REGION_DATA_BLOCKS;
/// Blocks that are kept for the images that share them: 64 MiB.
const CACHED_BLOCKS_MAX: usize = 16_384;
/// Checksum blocks that are kept: 64 MiB, the identities of 4 GiB.
const CACHED_CHECKSUMS_MAX: usize = 16_384;

/// How often media that are being written are looked at before something is called wrong.
const LIVE_TRIES: usize = 5;

/// A block to be read and proved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Want {
    pub at: Place,
    pub pvbn: Pvbn,
    /// The low 16 bits of its CRC32C.
    pub check: u16,
    /// Its checksum in the tree.
    pub tree: Option<(u32, Content)>,
    /// What its identity must say, if that is to be checked now.
    pub owner: Option<BlockOwner>,
    /// It will be read again.
    pub keep: bool,
}

/// A row of a tetris.
pub(crate) type Row = (TetrisId, usize);

/// See the module.
pub(crate) struct Medium<'a> {
    pub array: Array,
    pub pump: Pump<'a>,
    /// The superblock's consistency point.
    pub cp: CpNumber,
    pub report: Report,
    pub scope: Scope,
    pub progress: Progress,
    pub watch: Option<Watch<'a>>,
    /// Rows with damage that was told: their parity cannot be right.
    pub damaged_rows: FxHashSet<Row>,
    told: FxHashSet<Pvbn>,
    solver: Solver,
    blocks: FxHashMap<Pvbn, BlockRef>,
    checksums: FxHashMap<(TetrisId, usize), Option<BlockRef>>,
}

impl<'a> Medium<'a> {
    pub fn new(array: Array, pump: Pump<'a>) -> Self {
        Self {
            array,
            pump,
            cp: CpNumber(0),
            report: Report::default(),
            scope: Scope::AT_REST,
            progress: Progress::default(),
            watch: None,
            damaged_rows: FxHashSet::default(),
            told: FxHashSet::default(),
            solver: Solver::default(),
            blocks: FxHashMap::default(),
            checksums: FxHashMap::default(),
        }
    }

    /// Forgets what was found and read, so that the next check sees the media anew.
    pub fn begin(&mut self) {
        self.report = Report::default();
        self.progress = Progress::default();
        self.damaged_rows.clear();
        self.told.clear();
        self.blocks.clear();
        self.checksums.clear();
    }

    /// Tells how far the check has come.
    ///
    /// # Errors
    /// [`InspectError::GivenUp`] if it is not to go on.
    pub fn tell_progress(&mut self) -> Result<(), InspectError> {
        let goes_on = self.watch.as_mut().is_none_or(|watch| watch(&self.progress));
        if goes_on { Ok(()) } else { Err(InspectError::GivenUp) }
    }

    /// The blocks that are wanted; `None` where one is lost.
    pub fn fetch(&mut self, wants: &[Want]) -> Result<Vec<Option<BlockRef>>, InspectError> {
        self.progress.blocks += wants.iter().filter(|want| want.owner.is_some()).count() as u64;
        self.tell_progress()?;
        let places: Vec<Option<Location>> = wants
            .iter()
            .map(|want| self.array.geometry.locate(want.pvbn).filter(|_| want.pvbn != Pvbn(0)))
            .collect();
        let direct = self.read_direct(wants, &places)?;
        let mut fetched = Vec::with_capacity(wants.len());
        for ((want, place), direct) in wants.iter().zip(places).zip(direct) {
            let Some(place) = place else {
                self.report.add(Finding::BeyondEnd { at: want.at, vbn: want.pvbn.get() });
                fetched.push(None);
                continue;
            };
            let block = match direct {
                Some(block) if is_right(want, &block) => Some(block),
                _ => self.made_good(want, place)?,
            };
            if let (Some(block), Some(owner)) = (&block, &want.owner) {
                self.check_identity(want.pvbn, place, block, owner)?;
            }
            if let (Some(block), true) = (&block, want.keep) {
                if self.blocks.len() >= CACHED_BLOCKS_MAX {
                    self.blocks.clear();
                }
                self.blocks.insert(want.pvbn, Arc::clone(block));
            }
            fetched.push(block);
        }
        Ok(fetched)
    }

    /// Reads what the disks have, and the checksum blocks beside it, with as few requests as may
    /// be.
    fn read_direct(
        &mut self,
        wants: &[Want],
        places: &[Option<Location>],
    ) -> Result<Vec<Option<BlockRef>>, InspectError> {
        let mut direct: Vec<Option<BlockRef>> =
            wants.iter().map(|want| self.blocks.get(&want.pvbn).cloned()).collect();
        let mut devices: Vec<(Stretch, Vec<usize>)> = Vec::new();
        let mut order: Vec<usize> = (0..wants.len()).filter(|at| direct[*at].is_none()).collect();
        order.sort_unstable_by_key(|at| wants[*at].pvbn);
        for at in order {
            let Some(place) = places[at] else { continue };
            let block = self.array.geometry.device_block(place.tetris(), place.row());
            match devices.last_mut() {
                Some((stretch, users))
                    if (stretch.group, stretch.disk) == (place.group, self.member(place))
                        && stretch.block + stretch.count as u64 == block =>
                {
                    stretch.count += 1;
                    users.push(at);
                }
                _ => {
                    let disk = self.member(place);
                    let stretch = Stretch { group: place.group, disk, block, count: 1 };
                    devices.push((stretch, vec![at]));
                }
            }
        }
        let stretches: Vec<Stretch> = devices.iter().map(|(stretch, _)| *stretch).collect();
        let read = self.array.read(&stretches, &mut self.pump)?;
        for ((_, users), blocks) in devices.into_iter().zip(read) {
            for (user, block) in users.into_iter().zip(blocks) {
                direct[user] = block;
            }
        }
        let proved = wants.iter().zip(places).filter(|(want, _)| want.owner.is_some());
        let needed: Vec<(TetrisId, usize)> = proved
            .filter_map(|(_, place)| place.map(|place| (place.tetris(), self.member(place))))
            .collect();
        self.load_checksums(needed)?;
        Ok(direct)
    }

    /// The disk's index in its group.
    fn member(&self, place: Location) -> usize {
        self.array.geometry.group(place.group).member(place.disk)
    }

    fn load_checksums(&mut self, mut needed: Vec<(TetrisId, usize)>) -> Result<(), InspectError> {
        if self.checksums.len() + needed.len() > CACHED_CHECKSUMS_MAX {
            self.checksums.clear();
        }
        needed.sort_unstable();
        needed.dedup();
        needed.retain(|key| !self.checksums.contains_key(key));
        let stretches: Vec<Stretch> = needed
            .iter()
            .map(|(tetris, disk)| Stretch {
                group: tetris.group,
                disk: *disk,
                block: self.array.geometry.device_block(*tetris, CHECKSUM_ROW),
                count: 1,
            })
            .collect();
        let read = self.array.read(&stretches, &mut self.pump)?;
        for ((tetris, disk), blocks) in needed.into_iter().zip(read) {
            let block = match blocks.into_iter().next().flatten() {
                Some(block) => Some(block),
                None => {
                    if self.array.is_present(tetris.group, disk) {
                        self.tell_unreadable(tetris, disk, CHECKSUM_ROW);
                    }
                    self.reconstruct(tetris, disk, CHECKSUM_ROW, |_| true)?
                }
            };
            self.checksums.insert((tetris, disk), block);
        }
        Ok(())
    }

    fn tell_unreadable(&mut self, tetris: TetrisId, disk: usize, row: usize) {
        let block = self.array.geometry.device_block(tetris, row);
        if self.damaged_rows.insert((tetris, row)) {
            self.report.add(Finding::Unreadable { group: tetris.group, disk, block });
        }
    }

    /// A block that the disk does not have as it should be.
    fn made_good(
        &mut self,
        want: &Want,
        place: Location,
    ) -> Result<Option<BlockRef>, InspectError> {
        let (tetris, row, member) = (place.tetris(), place.row(), self.member(place));
        let is_wanted = |block: &Block| is_right(want, block);
        let mut good = self.reconstruct(tetris, member, row, is_wanted)?;
        for _ in 1..self.tries() {
            // The stripe may be on its way to the disks, or the block be repaired just now.
            if let Some(block) = self.read_again(tetris, member, row)?.filter(|at| is_wanted(at)) {
                return Ok(Some(block));
            }
            if good.is_some() {
                break;
            }
            self.pump.pause();
            good = self.reconstruct(tetris, member, row, is_wanted)?;
        }
        if good.is_some() && !self.array.is_present(place.group, self.member(place)) {
            self.report.totals.degraded_reads += 1;
            return Ok(good);
        }
        if self.told.insert(want.pvbn) {
            let (at, pvbn, repairable) = (want.at, want.pvbn, good.is_some());
            self.report.add(Finding::Damaged { at, pvbn, repairable });
            self.damaged_rows.insert((place.tetris(), place.row()));
        }
        Ok(good)
    }

    /// How often something is looked at before it is called wrong.
    const fn tries(&self) -> usize {
        if self.scope.is_live { LIVE_TRIES } else { 1 }
    }

    /// What a disk has in a row now.
    fn read_again(
        &mut self,
        tetris: TetrisId,
        disk: usize,
        row: usize,
    ) -> Result<Option<BlockRef>, InspectError> {
        let block = self.array.geometry.device_block(tetris, row);
        let stretch = Stretch { group: tetris.group, disk, block, count: 1 };
        let read = self.array.read(&[stretch], &mut self.pump)?;
        Ok(read.into_iter().flatten().next().flatten())
    }

    /// The block as it follows from the other disks: from all that can be read, or else without
    /// one of them, which is damaged then.
    fn reconstruct(
        &mut self,
        tetris: TetrisId,
        disk: usize,
        row: usize,
        is_right: impl Fn(&Block) -> bool,
    ) -> Result<Option<BlockRef>, InspectError> {
        let group = self.array.geometry.group(tetris.group).clone();
        if group.kind.parity_disks() == 0 {
            return Ok(None);
        }
        let block = self.array.geometry.device_block(tetris, row);
        let stretches: Vec<Stretch> = (0..group.disks())
            .map(|disk| Stretch { group: tetris.group, disk, block, count: 1 })
            .collect();
        let read = self.array.read(&stretches, &mut self.pump)?;
        let blocks: Vec<Option<BlockRef>> =
            read.into_iter().map(|blocks| blocks.into_iter().next().flatten()).collect();
        let without = |left_out: Option<usize>| -> Vec<Option<&BlockRef>> {
            let known = blocks.iter().enumerate();
            known.map(|(at, block)| block.as_ref().filter(|_| Some(at) != left_out)).collect()
        };
        for left_out in std::iter::once(None).chain((0..group.disks()).map(Some)) {
            let found =
                self.solver.solve(&without(left_out), group.data_disks(), disk - group.member(0));
            if let Some(found) = found.filter(|found| is_right(found)) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The identity beside a block.
    pub fn identity(&mut self, pvbn: Pvbn) -> Result<Option<BlockIdentity>, InspectError> {
        let Some(place) = self.array.geometry.locate(pvbn) else { return Ok(None) };
        let key = (place.tetris(), self.member(place));
        self.load_checksums(vec![key])?;
        let block = self.checksums.get(&key).and_then(Option::as_ref);
        Ok(block.and_then(|block| ChecksumBlock::view(block).identities.get(place.row()).copied()))
    }

    fn check_identity(
        &mut self,
        pvbn: Pvbn,
        place: Location,
        block: &Block,
        expected: &BlockOwner,
    ) -> Result<(), InspectError> {
        let mut fault = self.fault_of_identity(pvbn, block, expected)?;
        for _ in 1..self.tries() {
            if fault.is_none() {
                break;
            }
            self.pump.pause();
            self.checksums.remove(&(place.tetris(), self.member(place)));
            fault = self.fault_of_identity(pvbn, block, expected)?;
        }
        if let Some(fault) = fault
            && self.told.insert(pvbn)
        {
            self.damaged_rows.insert((place.tetris(), CHECKSUM_ROW));
            self.report.add(Finding::Identity { pvbn, fault });
        }
        Ok(())
    }

    fn fault_of_identity(
        &mut self,
        pvbn: Pvbn,
        block: &Block,
        expected: &BlockOwner,
    ) -> Result<Option<IdentityFault>, InspectError> {
        Ok(match self.identity(pvbn)? {
            Some(identity) => identity_fault(&identity, pvbn, block, expected, self.cp),
            None => Some(IdentityFault::Unreadable),
        })
    }

    /// Reads a whole region of a disk.
    pub fn read_regions(
        &mut self,
        tetris: TetrisId,
    ) -> Result<Vec<Vec<Option<BlockRef>>>, InspectError> {
        let block = self.array.geometry.device_block(tetris, 0);
        let disks = self.array.geometry.group(tetris.group).disks();
        let stretches: Vec<Stretch> = (0..disks)
            .map(|disk| Stretch { group: tetris.group, disk, block, count: REGION_BLOCKS })
            .collect();
        self.array.read(&stretches, &mut self.pump)
    }
}

fn is_right(want: &Want, block: &Block) -> bool {
    let whole = crc32c(block);
    whole & 0xffff == u32::from(want.check)
        && want.tree.is_none_or(|(checksum, content)| match content {
            Content::Data => whole == checksum,
            _ => tree_checksum(block, content) == checksum,
        })
}

fn identity_fault(
    identity: &BlockIdentity,
    pvbn: Pvbn,
    block: &Block,
    expected: &BlockOwner,
    cp: CpNumber,
) -> Option<IdentityFault> {
    if let Err(damage) = identity.validate() {
        return Some(IdentityFault::Damaged(damage));
    }
    let found = identity.owner();
    if identity.pvbn() != pvbn {
        return Some(IdentityFault::Elsewhere(identity.pvbn()));
    }
    if !found.is_same_place(expected) {
        return Some(IdentityFault::Owner { found, expected: *expected });
    }
    if identity.standard_checksum() != crc32c(block) {
        return Some(IdentityFault::Content);
    }
    (found.cp > cp).then_some(IdentityFault::Future(found.cp))
}
