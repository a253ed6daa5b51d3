//! Temperature: which blocks of a volume are cold, and which have become hot (the policies
//! `snapshot-only` and `auto`; FreeSpace section 3.1).
//!
//! A block's *age* is four bits in its container map entry. So ages need no memory and no file, and
//! a write costs nothing more: it writes the entry anyway, with age zero. A *temperature scan*
//! passes eight times in the days in which a block cools, and raises the age of every block on
//! disks by one. A block of age `AGE_COLD` may move, and its age is not raised any more. Time in
//! which the node is off counts as one scan, and a clock that jumps causes one scan too many.
//!
//! A block that clients read at random and that had to be loaded becomes young again, or moves back
//! to disks. A block that scans and backups read in sequence keeps its age.
//!
//! Invariants:
//! - A scan raises an age once: its position goes into the volume's record with the consistency
//!   point that writes the ages.
//! - Only an entry that no consistency point has changed meanwhile gets an age, as with moves.
//! - Nothing moves to disks that are nearly full.
//!
//! Fails: reads that were not noted yet are forgotten in a crash, and where there are too many. It
//! costs a later move back.

use super::batches;
use crate::block_side::side::BlockSide;
use crate::service::aggregate::Aggregate;
use affinity::{Access, Outcome};
use std::sync::Arc;
use units::{VolumeId, Vvbn};

/// Blocks that were read and not yet noted, at most: 1 MiB. What is beyond that and is wanted again
/// is read again.
const READS_MAX: usize = 1 << 15;

/// Notes that blocks of a volume had to be loaded for a client who reads out of sequence.
pub(crate) fn note_random_reads(aggregate: &Arc<Aggregate>, blocks: &[(VolumeId, Vvbn)]) {
    let must_send = {
        let tiers = aggregate.tiers.read();
        if tiers.cooling.is_empty() {
            return;
        }
        let mut reads = aggregate.reads.lock();
        let cooling = blocks.iter().filter(|(volume, _)| tiers.cooling.contains(volume));
        for (volume, vvbn) in cooling {
            if reads.blocks.len() < READS_MAX {
                reads.blocks.insert((*volume, *vvbn));
            }
        }
        !reads.blocks.is_empty() && !std::mem::replace(&mut reads.is_sent, true)
    };
    if !must_send {
        return;
    }
    let this = Arc::clone(aggregate);
    let message = move |access: &mut Access<'_>| {
        let reads = std::mem::take(&mut *this.reads.lock()).blocks;
        let side = this.block_side.write(access);
        let volumes = &mut side.relocation.volumes;
        let mut room = READS_MAX.saturating_sub(volumes.values().map(|one| one.reads.len()).sum());
        for (volume, vvbn) in reads {
            if let Some(queue) = volumes.get_mut(&volume)
                && room > 0
            {
                room -= usize::from(queue.reads.insert(vvbn));
            }
        }
        batches::go_on(&this, side);
        Outcome::Done
    };
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

/// Begins the temperature scans that it is time for.
pub(crate) fn begin_scans(aggregate: &Arc<Aggregate>, side: &mut BlockSide) {
    let now = aggregate.parts.clock.wall();
    for queue in side.relocation.volumes.values_mut() {
        if queue.tiering.is_cooling() {
            queue.scan.begin_if_due(queue.tiering, now);
        }
    }
    batches::go_on(aggregate, side);
}
