//! The allocator of a server whose memory has a hard cap: blocks from slabs of their own, all else
//! from the allocator below.
//!
//! The bytes of a block are a page of memory: an allocation of 4,096 bytes aligned to as many, for
//! which general allocators take up to twice as much, and of which they keep freed ones here and
//! there, for each thread. Blocks are most of a server's memory, so here they are packed one behind
//! another (`slab.rs`). What shares a block, two counts and its address, is a small allocation that
//! comes and goes with each block: it has a slab, too, and a layout that hardly anything else has.
//!
//! So the memory that blocks take is the largest number of them that lived at one time, and
//! [`BlockAllocator::live_blocks_nearly`] tells whoever keeps blocks for later when to let go of
//! them.
//!
//! The system clears a page when it is touched first, which takes longer than copying a block into
//! it. [`BlockAllocator::populate`] has that done ahead of time, a chunk at each call: what is
//! carved then comes from chunks whose pages are there.
//!
//! Invariants: layouts tell what came from which slab, and what from below.
//!
//! Fails: as allocators do, with a null pointer when the system has no memory left.

use crate::linux::slab::{CHUNK_BYTES, Slab};
use std::alloc::{GlobalAlloc, Layout};
use std::ptr;
use units::Block;

/// The bytes of a block.
const BYTES: Layout = Block::LAYOUT;
/// What `Arc` allocates for a shared block: two counts, and where its bytes are.
const COUNTS: Layout = Layout::new::<([usize; 2], Block)>();
/// Slots of counts: two in a line of the processor's cache.
const COUNTS_SLOT_BYTES: usize = 32;

const _: () = assert!(COUNTS.align() == 16, "the layout of a box of three words, too");
const _: () = assert!(BYTES.size() == 4096 && BYTES.align() == 4096);
const _: () = assert!(COUNTS.size() <= COUNTS_SLOT_BYTES && COUNTS.align() <= COUNTS_SLOT_BYTES);

/// Bytes of memory that a block takes with all that belongs to it.
pub const BLOCK_FOOTPRINT_BYTES: u64 = (BYTES.size() + COUNTS_SLOT_BYTES) as u64;

/// Gives the memory of a block back to the system until the block is written to; it is all zeros
/// then. Where pages are larger than a block nothing is given back.
pub fn release_memory(block: &mut Block) {
    let bytes = block.bytes_mut();
    bytes.fill(0);
    // SAFETY: the bytes are ours alone, whole pages where the system takes the advice at all, and
    // private memory: what is given back reads as zeros, as it does now.
    unsafe { libc::madvise(bytes.as_mut_ptr().cast(), bytes.len(), libc::MADV_DONTNEED) };
}

/// See the module.
pub struct BlockAllocator<A> {
    below: A,
    bytes: Slab,
    counts: Slab,
}

impl<A> BlockAllocator<A> {
    /// An allocator over `below`, without memory.
    pub const fn new(below: A) -> Self {
        Self { below, bytes: Slab::new(BYTES.size()), counts: Slab::new(COUNTS_SLOT_BYTES) }
    }

    /// Blocks that live now, give or take some hundred: for whoever asks at each block.
    pub fn live_blocks_nearly(&self) -> u64 {
        self.bytes.live_nearly()
    }

    /// Blocks that live now, wherever they are.
    pub fn live_blocks(&self) -> u64 {
        self.bytes.live()
    }

    /// The most blocks that lived at one time.
    pub fn peak_blocks(&self) -> u64 {
        self.bytes.peak()
    }

    /// Maps a chunk and has its pages populated, unless chunks for `blocks_max` blocks are mapped
    /// already, or the system has no memory left. Whether it did: the caller asks again then.
    ///
    /// One call takes the time that the system needs to clear 2 MiB.
    pub fn populate(&self, blocks_max: u64) -> bool {
        self.bytes.populate(blocks_max)
    }

    /// Bytes of chunks that are populated and not carved yet.
    pub fn populated_bytes(&self) -> u64 {
        self.bytes.populated_chunks() * CHUNK_BYTES as u64
    }

    /// Where allocations of this layout come from, if not from below.
    fn slab(&self, layout: Layout) -> Option<&Slab> {
        match layout {
            BYTES => Some(&self.bytes),
            COUNTS => Some(&self.counts),
            _ => None,
        }
    }
}

// SAFETY: a slot has the size and the alignment of its slab's layout, belongs to its owner from
// `take` to `give`, and layouts tell slots from what the allocator below gave out.
unsafe impl<A: GlobalAlloc> GlobalAlloc for BlockAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.slab(layout) {
            Some(slab) => slab.take(),
            // SAFETY: the caller's promises are passed on.
            None => unsafe { self.below.alloc(layout) },
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above; the pointer came from where its layout says, and is given back once.
        unsafe {
            match self.slab(layout) {
                Some(slab) => slab.give(pointer),
                None => self.below.dealloc(pointer, layout),
            }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(slab) = self.slab(layout) else {
            // SAFETY: as above.
            return unsafe { self.below.alloc_zeroed(layout) };
        };
        let slot = slab.take();
        if !slot.is_null() {
            // SAFETY: the slot is ours and as large as the layout says.
            unsafe { slot.write_bytes(0, layout.size()) };
        }
        slot
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else {
            return ptr::null_mut();
        };
        if self.slab(layout).is_none() && self.slab(new).is_none() {
            // SAFETY: as above.
            return unsafe { self.below.realloc(pointer, layout, size) };
        }
        // SAFETY: both are valid layouts; what is copied fits in either.
        unsafe {
            let fresh = self.alloc(new);
            if !fresh.is_null() {
                fresh.copy_from_nonoverlapping(pointer, layout.size().min(size));
                self.dealloc(pointer, layout);
            }
            fresh
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::System;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts what it is asked for.
    struct Counting(AtomicUsize);

    // SAFETY: everything is passed on.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            self.0.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as promised by the caller.
            unsafe { System.alloc(layout) }
        }
        unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
            // SAFETY: as promised by the caller.
            unsafe { System.dealloc(pointer, layout) }
        }
    }

    #[test]
    fn released_memory_is_not_there_and_reads_as_zeros() {
        let mut block = Block::zeroed();
        block.bytes_mut().fill(7);
        let is_resident = |block: &mut Block| {
            let mut page = 0_u8;
            let start = block.bytes_mut().as_mut_ptr().cast();
            // SAFETY: asks about one mapped page, and gets one byte.
            assert_eq!(unsafe { libc::mincore(start, BYTES.size(), &raw mut page) }, 0);
            page & 1 == 1
        };
        // Where pages are larger than a block nothing is given back.
        // SAFETY: asks for a number.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        assert!(is_resident(&mut block));
        release_memory(&mut block);
        assert_eq!(is_resident(&mut block), page_bytes as usize > BYTES.size());
        assert!(block.bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_shared_block_takes_nothing_from_below() {
        let allocator = BlockAllocator::new(Counting(AtomicUsize::new(0)));
        // `Arc` promises no layout; if it changes, counts quietly come from below.
        let counts = Layout::new::<(AtomicUsize, AtomicUsize, Block)>();
        // SAFETY: each is allocated and freed with one layout.
        unsafe {
            let shared = allocator.alloc(counts);
            assert_eq!(allocator.live_blocks(), 0);
            let bytes = allocator.alloc_zeroed(Block::LAYOUT);
            assert_eq!((allocator.live_blocks(), *bytes), (1, 0));
            allocator.dealloc(bytes, Block::LAYOUT);
            allocator.dealloc(shared, counts);
        }
        assert_eq!((allocator.live_blocks(), allocator.peak_blocks()), (0, 1));
        assert_eq!(allocator.below.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_grows_into_a_slot_or_out_of_one_keeps_its_content() {
        let allocator = BlockAllocator::new(System);
        let of = |bytes: usize| Layout::from_size_align(bytes, COUNTS.align()).unwrap();
        // SAFETY: each is used by its layout, and freed by the last.
        unsafe {
            let mut pointer = allocator.alloc(of(8));
            pointer.write_bytes(7, 8);
            for (from, to) in [(8, COUNTS.size()), (COUNTS.size(), 100), (100, COUNTS.size())] {
                pointer = allocator.realloc(pointer, of(from), to);
                assert_eq!((*pointer, *pointer.add(7)), (7, 7), "{from} to {to}");
            }
            allocator.dealloc(pointer, COUNTS);
        }
        assert_eq!(allocator.counts.live(), 0);
    }
}
