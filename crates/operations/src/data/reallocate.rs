//! Read reallocation: blocks of a file that lie scattered are made dirty as they are, so that the
//! next consistency point writes them anew, in order. They keep their numbers in the volume, so no
//! snapshot holds a second copy.
//!
//! Invariants: neither content nor attributes change, and nothing is logged: after a crash the
//! blocks are where they were. What is dirty already is left alone: it is about to be written
//! anyway. Blocks that lie in order already, as far as their pointers' hints tell, are left alone,
//! whoever asked.
//!
//! Fails: [`Stop::Wait`] for blocks, and for room when too much is dirty: reallocation can wait.

use cowfs::budget::Spender;
use cowfs::buftree::Walk;
use cowfs::logical::{Logical, Overlaid, overlaid};
use cowfs::overlay::Stripe;
use cowfs::pointer::Pointer;
use cowfs::reader::{Progress, Reader, Stop, Wait};
use cowfs::scatter::Runs;
use cowfs::transaction::{BlockCost, inode_cost, promise};
use ondisk::pointer::PhysicalPointer;
use std::ops::Range;
use units::{BlockNumber, BlockRef, Fbn, Generation, InodeNumber, Pvbn};

/// Block numbers that one node of a container map has.
const NUMBERS_PER_NODE: u64 = PhysicalPointer::FANOUT;

/// Blocks of a file that lie scattered, as far as a reader has seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scattered {
    /// The file.
    pub inode: InodeNumber,
    /// Which of those that have had its number.
    pub generation: Generation,
    /// The blocks.
    pub blocks: Range<Fbn>,
}

/// Has the next consistency point write blocks anew, all of one stripe, if they are scattered, or
/// anyway; how many blocks that writes, nodes of the container map included. Only blocks that
/// `is_near` accepts are, where they lie on disks.
///
/// # Errors
/// See the module.
pub fn reallocate<P: Pointer>(
    logical: &Logical<P>,
    stripe: &mut Stripe,
    reader: &Reader<'_>,
    (scattered, anyway): (&Scattered, bool),
    is_near: impl Fn(Pvbn) -> bool,
) -> Progress<u64> {
    let number = scattered.inode;
    let Some(inode) = logical.in_memory(number, scattered.generation) else { return Ok(0) };
    let is_dirty = {
        let shared = inode.shared.lock();
        if shared.attributes.quarantined {
            return Ok(0);
        }
        shared.dirty
    };
    if inode.root.depth == 0 {
        return Ok(0);
    }
    let key = logical.key(number);
    let mut walk = Walk::new(&inode.root, &key, *reader);
    let mut pointers = Vec::new();
    for fbn in scattered.blocks.start.until(scattered.blocks.end) {
        if matches!(overlaid(inode, number, fbn, stripe), Overlaid::Below) {
            let pointer = walk.find(fbn)?;
            if !pointer.is_hole() && is_near(pointer.pvbn()) {
                pointers.push((fbn, pointer));
            }
        }
    }
    let places: Vec<_> = pointers.iter().map(|(fbn, pointer)| (*fbn, pointer.pvbn())).collect();
    if pointers.is_empty() || !anyway && !Runs::of_file(&places).is_scattered() {
        return Ok(0);
    }
    let blocks = load(&pointers, reader, |fbn| key.place(0, fbn.get()))?;
    if logical.shared.aggregate.dirty.is_half_full() {
        return Err(Stop::Wait(Wait::Room));
    }
    let mut cost = BlockCost::default();
    let dirty_file = stripe.active.get(&number);
    for (fbn, _) in &blocks {
        cost.add::<P>(dirty_file, number, *fbn);
    }
    let promised = cost.blocks() + inode_cost(&logical.inode_file, number, is_dirty);
    // Nothing below takes it back: the blocks become dirty.
    let _kept = promise(&logical.shared, promised, Spender::Common)?;
    let mut nodes: Vec<u64> =
        pointers.iter().map(|(_, pointer)| pointer.vbn().get() / NUMBERS_PER_NODE).collect();
    nodes.sort_unstable();
    nodes.dedup();
    let mut added = 0;
    for (fbn, block) in blocks {
        added += u64::from(stripe.put_reallocated(number, fbn, block));
    }
    logical.shared.aggregate.dirty.add(added);
    if !std::mem::replace(&mut inode.shared.lock().dirty, true) {
        logical.shared.aggregate.dirty.add_inode();
        stripe.dirtied.push(number);
    }
    Ok(added + nodes.len() as u64)
}

/// All of the blocks; or a wait for those that are not in memory, all at once.
fn load<P: Pointer>(
    pointers: &[(Fbn, P)],
    reader: &Reader<'_>,
    place: impl Fn(Fbn) -> cowfs::pointer::BlockPlace,
) -> Progress<Vec<(Fbn, BlockRef)>> {
    let each = pointers.iter().map(|(fbn, pointer)| {
        let block = reader.block(pointer, place(*fbn))?;
        Ok((*fbn, block))
    });
    cowfs::reader::all(each)
}
