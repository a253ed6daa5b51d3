//! The superblock slots of every disk: which of them cannot be read, and which disks lack the
//! superblock that the aggregate goes on from.
//!
//! Invariants: what a crash may leave is no finding. A power cut tears at most the slot that was
//! being written, so after a crash a disk is told only when it has no superblock at all. A slot
//! that was never written is all zeros, and no finding.
//!
//! Fails: [`InspectError::Stalled`] when the disks do not answer.

use crate::error::InspectError;
use crate::fault::SlotFault;
use crate::finding::Finding;
use crate::medium::Medium;
use media::SUPERBLOCK_BLOCK;
use ondisk::damage::Damage;
use ondisk::root::{SUPERBLOCK_SLOTS, Superblock};
use platform::completion::gather;
use platform::{Disk, DiskError};
use std::sync::Arc;
use units::{Block, BlockRef};

/// What a slot of a disk gave.
pub(crate) type SlotAnswer = Result<Vec<BlockRef>, DiskError>;

/// Looks at a disk that is being written so many times before it is told: a slot may be torn while
/// it is written.
const LIVE_TRIES: usize = 3;

/// Reads all slots of some disks: those of a disk follow one another.
pub(crate) fn read(
    medium: &mut Medium<'_>,
    disks: &[Arc<dyn Disk>],
) -> Result<Vec<SlotAnswer>, InspectError> {
    let places: Vec<(Arc<dyn Disk>, u64)> = disks
        .iter()
        .flat_map(|disk| (0..SUPERBLOCK_SLOTS).map(move |slot| (Arc::clone(disk), slot)))
        .collect();
    let answers = medium.pump.wait(move |done| {
        let parts = gather(places.len(), move |answers: Vec<SlotAnswer>| done(answers));
        for ((disk, slot), part) in places.into_iter().zip(parts) {
            disk.read(SUPERBLOCK_BLOCK + slot, 1, part);
        }
    });
    answers.ok_or(InspectError::Stalled)
}

/// The superblock in a slot. A superblock of which only one of the two CP numbers is wrong counts
/// as valid, because a start opens its image.
pub(crate) fn superblock_in(block: &Block) -> Result<Superblock, Damage> {
    Superblock::from_block(block).or_else(|_| Superblock::mended(block))
}

/// The slot in which a superblock later than `best` has rotted, where no disk can tell that nothing
/// later was there.
pub(crate) fn rotten(answers: &[SlotAnswer], best: &Superblock) -> Option<usize> {
    let slots = SUPERBLOCK_SLOTS as usize;
    let block =
        |answer: &SlotAnswer| answer.as_ref().ok().and_then(|blocks| blocks.first().cloned());
    let has_rotted = |block: &BlockRef| Superblock::has_rotted(block, best.cp());
    let tells = |slot: usize| {
        answers.chunks(slots).any(|of_disk| {
            let is_own = |block: &BlockRef| {
                superblock_in(block).is_ok_and(|found| found.aggregate == best.aggregate)
            };
            of_disk.iter().filter_map(block).any(|block| is_own(&block))
                && of_disk.get(slot).and_then(block).is_some_and(|block| !has_rotted(&block))
        })
    };
    let rots = |slot: &usize| {
        let mut found = answers.iter().skip(*slot).step_by(slots).filter_map(block);
        found.any(|block| has_rotted(&block))
    };
    (0..slots).filter(rots).find(|slot| !tells(*slot))
}

/// Checks the slots of all disks in use.
pub(crate) fn check(medium: &mut Medium<'_>, newest: &Superblock) -> Result<(), InspectError> {
    for disk in medium.array.disks() {
        let mut faults = Vec::new();
        for _ in 0..LIVE_TRIES {
            let answers = read(medium, std::slice::from_ref(&disk))?;
            faults = faults_of(medium, answers, newest);
            if faults.is_empty() || !medium.scope.is_live {
                break;
            }
            medium.pump.pause();
        }
        for fault in faults {
            let disk = disk.name().to_owned();
            medium.report.add(Finding::Slot { disk, fault });
        }
    }
    Ok(())
}

fn faults_of(medium: &Medium<'_>, answers: Vec<SlotAnswer>, newest: &Superblock) -> Vec<SlotFault> {
    // After a clean stop no slot is being written.
    let is_at_rest = newest.clean.get() == 1 && !medium.scope.is_live;
    let (mut faults, mut has_one, mut has_newest) = (Vec::new(), false, false);
    for (slot, answer) in (0..).zip(answers) {
        let Some(block) = answer.ok().and_then(|blocks| blocks.into_iter().next()) else {
            faults.push(SlotFault::Unreadable(slot));
            continue;
        };
        match superblock_in(&block) {
            Ok(found) => {
                let is_own = found.aggregate == medium.array.aggregate;
                has_one |= is_own;
                has_newest |= is_own && found.cp() >= newest.cp();
            }
            Err(damage) if is_at_rest && !block.is_zero() => {
                faults.push(SlotFault::Damaged(slot, damage));
            }
            // No power cut does that.
            Err(damage) if Superblock::has_rotted(&block, newest.cp()) => {
                faults.push(SlotFault::Damaged(slot, damage));
            }
            Err(_) => {}
        }
    }
    if !has_one || is_at_rest && !has_newest {
        faults.push(SlotFault::Missing(newest.cp()));
    }
    faults
}
