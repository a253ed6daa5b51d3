//! The allocator of a server whose memory has a hard cap: blocks from a slab of their own, all else
//! from the allocator below.
//!
//! A shared block is its 4,096 bytes behind two counts, aligned to 512: an allocation of 4,608
//! bytes, which general allocators round up to 5,120 or 8,192, and of which they keep freed ones
//! here and there, for each thread. Blocks are most of a server's memory, so here they are packed
//! one behind another in chunks, and a freed one is the next to be given out, whichever thread
//! asks.
//! So the memory that blocks take is the largest number of them that lived at one time, and
//! [`BlockAllocator::live_blocks`] is exact: whoever keeps blocks for later lets go of them by it.
//!
//! Chunks are never given back: the number of blocks has a cap, and it is meant to be used.
//!
//! The system clears a page when it is touched first, which takes longer than copying a block into
//! it. [`BlockAllocator::populate`] has that done ahead of time, a chunk at each call: what is
//! carved then comes from chunks whose pages are there.
//!
//! Invariants: a slot is in one free list or with its owner; no lock is held while memory is asked
//! of the system by anyone but the one who carves; a thread never waits for a lock that it can walk
//! around: a lock holder does a few instructions.
//!
//! Fails: as allocators do, with a null pointer when the system has no memory left.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use units::Block;

/// What `Arc` allocates for a block: two counts, and the block at its alignment.
const SLOT: Layout = slot_layout();
/// Bytes asked of the system at once: a huge page, of which hardly half a slot is lost.
const CHUNK_BYTES: usize = 2 << 20;
/// The smallest page of any processor that Linux runs on.
const PAGE_BYTES: usize = 4096;
/// Free lists; a thread uses its own first. More than threads that allocate blocks at one time.
const SHARDS: usize = 16;

const _: () = assert!(SLOT.size() == 4608 && SLOT.align() == 512);
/// Slots in a chunk.
const SLOTS_OF_CHUNK: u64 = (CHUNK_BYTES / SLOT.size()) as u64;

const fn slot_layout() -> Layout {
    let (counts, block) = (Layout::new::<[usize; 2]>(), Layout::new::<Block>());
    match counts.extend(block) {
        Ok((both, _)) => both.pad_to_align(),
        Err(_) => panic!("two counts and a block are not too large for an address space"),
    }
}

/// Bytes of memory that a block takes with all that belongs to it.
pub const BLOCK_FOOTPRINT_BYTES: u64 = SLOT.size() as u64;

/// A free slot points at the next, and so does a chunk that is populated and not carved yet.
struct Free {
    next: *mut Free,
}

/// A stack of free slots, or of chunks; what lies in it is touched by whoever holds `busy`.
#[repr(align(128))]
struct Shard {
    busy: AtomicBool,
    head: UnsafeCell<*mut Free>,
    count: AtomicUsize,
}

/// What of the newest chunk was not given out yet.
struct Carving {
    busy: AtomicBool,
    next: UnsafeCell<*mut u8>,
    left: UnsafeCell<usize>,
}

/// See the module.
pub struct BlockAllocator<A> {
    below: A,
    shards: [Shard; SHARDS],
    carving: Carving,
    /// Chunks whose pages are there.
    populated: Shard,
    carved: AtomicU64,
    chunks: AtomicU64,
}

// SAFETY: what the cells hold is touched by the holder of the lock beside it only.
unsafe impl<A: Sync> Sync for BlockAllocator<A> {}

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The shard that this thread tries first; nothing here allocates or is dropped.
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn first_shard() -> usize {
    let found = SHARD.try_with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    });
    // A thread that is ending has none: any will do.
    found.unwrap_or(0)
}

fn try_lock(busy: &AtomicBool) -> bool {
    !busy.load(Ordering::Relaxed) && !busy.swap(true, Ordering::Acquire)
}

impl Shard {
    const fn new() -> Self {
        Self {
            busy: AtomicBool::new(false),
            head: UnsafeCell::new(ptr::null_mut()),
            count: AtomicUsize::new(0),
        }
    }

    fn unlock(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// The top of the stack; null if there is none. The caller holds `busy`.
    ///
    /// # Safety
    /// `busy` is the caller's.
    unsafe fn pop(&self) -> *mut Free {
        // SAFETY: `busy` is the caller's, and what the stack holds is free: it is ours to read.
        unsafe {
            let top = *self.head.get();
            if !top.is_null() {
                *self.head.get() = (*top).next;
                self.count.fetch_sub(1, Ordering::Relaxed);
            }
            top
        }
    }

    /// Puts something on the stack. The caller holds `busy`.
    ///
    /// # Safety
    /// `busy` is the caller's, and `free` is free, large enough and aligned for [`Free`].
    unsafe fn push(&self, free: *mut Free) {
        // SAFETY: as the caller promises.
        unsafe {
            (*free).next = *self.head.get();
            *self.head.get() = free;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Has the system find and clear all pages of a chunk; whether it had the memory.
fn populate_chunk(chunk: *mut u8) -> bool {
    // SAFETY: the chunk is mapped, writable and nobody else's. Populating changes no contents.
    let answer = unsafe { libc::madvise(chunk.cast(), CHUNK_BYTES, libc::MADV_POPULATE_WRITE) };
    let is_unknown = || io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    if answer == 0 || !is_unknown() {
        return answer == 0;
    }
    // Linux before 5.14 has no such advice: a touch of each page does the same.
    for page in (0..CHUNK_BYTES).step_by(PAGE_BYTES) {
        // SAFETY: as above. Fresh pages hold zeros, so nothing changes.
        unsafe { chunk.add(page).write_volatile(0) };
    }
    true
}

/// A chunk at an address that a huge page can have, and asked to be one: a cache of many small
/// pages would miss the processor's address tables at nearly every block.
fn map_chunk() -> *mut u8 {
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of twice the size has an aligned chunk in it; what is before and behind
    // that is given back, and nobody knows of it. Advice changes no contents.
    unsafe {
        let mapped = libc::mmap(ptr::null_mut(), 2 * CHUNK_BYTES, protection, flags, -1, 0);
        if mapped == libc::MAP_FAILED {
            return ptr::null_mut();
        }
        let before_bytes = mapped.cast::<u8>().align_offset(CHUNK_BYTES);
        let chunk = mapped.cast::<u8>().add(before_bytes);
        if before_bytes > 0 {
            libc::munmap(mapped, before_bytes);
        }
        libc::munmap(chunk.add(CHUNK_BYTES).cast(), CHUNK_BYTES - before_bytes);
        libc::madvise(chunk.cast(), CHUNK_BYTES, libc::MADV_HUGEPAGE);
        chunk
    }
}

impl<A> BlockAllocator<A> {
    /// An allocator over `below`, without memory.
    pub const fn new(below: A) -> Self {
        Self {
            below,
            shards: [const { Shard::new() }; SHARDS],
            carving: Carving {
                busy: AtomicBool::new(false),
                next: UnsafeCell::new(ptr::null_mut()),
                left: UnsafeCell::new(0),
            },
            populated: Shard::new(),
            carved: AtomicU64::new(0),
            chunks: AtomicU64::new(0),
        }
    }

    /// Blocks that live now, wherever they are.
    pub fn live_blocks(&self) -> u64 {
        let free: usize = self.shards.iter().map(|shard| shard.count.load(Ordering::Relaxed)).sum();
        // The figures are read one after another and may disagree for a moment.
        self.carved.load(Ordering::Relaxed).saturating_sub(free as u64)
    }

    /// The most blocks that lived at one time.
    pub fn peak_blocks(&self) -> u64 {
        self.carved.load(Ordering::Relaxed)
    }

    /// Maps a chunk and has its pages populated, unless chunks for `blocks_max` blocks are mapped
    /// already, or the system has no memory left. Whether it did: the caller asks again then.
    ///
    /// One call takes the time that the system needs to clear 2 MiB.
    pub fn populate(&self, blocks_max: u64) -> bool {
        if self.chunks.load(Ordering::Relaxed) * SLOTS_OF_CHUNK >= blocks_max {
            return false;
        }
        let chunk = self.new_chunk();
        if chunk.is_null() {
            return false;
        }
        if !populate_chunk(chunk) {
            // SAFETY: the chunk is mapped, and nobody else knows of it.
            unsafe { libc::munmap(chunk.cast(), CHUNK_BYTES) };
            self.chunks.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        while !try_lock(&self.populated.busy) {
            std::thread::yield_now();
        }
        // SAFETY: `busy` is ours; the chunk is nobody's yet, and larger than `Free`.
        unsafe { self.populated.push(chunk.cast()) };
        self.populated.unlock();
        true
    }

    /// Bytes of chunks that are populated and not carved yet.
    pub fn populated_bytes(&self) -> u64 {
        self.populated.count.load(Ordering::Relaxed) as u64 * CHUNK_BYTES as u64
    }

    /// A chunk that nobody had yet; null without memory.
    fn new_chunk(&self) -> *mut u8 {
        let chunk = map_chunk();
        if !chunk.is_null() {
            self.chunks.fetch_add(1, Ordering::Relaxed);
        }
        chunk
    }

    /// A populated chunk if there is one, else a new one; null without memory.
    fn take_chunk(&self) -> *mut u8 {
        // Who populates holds this for a few instructions; a new chunk costs much more.
        while self.populated.count.load(Ordering::Relaxed) > 0 {
            if try_lock(&self.populated.busy) {
                // SAFETY: `busy` is ours.
                let chunk = unsafe { self.populated.pop() };
                self.populated.unlock();
                if chunk.is_null() {
                    break;
                }
                return chunk.cast();
            }
            std::thread::yield_now();
        }
        self.new_chunk()
    }

    /// A free slot: of this thread's shard, of another's, or a new one; null without memory.
    fn take(&self) -> *mut u8 {
        let first = first_shard();
        loop {
            let mut all_seen = true;
            for step in 0..SHARDS {
                let shard = &self.shards[(first + step) % SHARDS];
                if shard.count.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                if !try_lock(&shard.busy) {
                    all_seen = false;
                    continue;
                }
                // SAFETY: `busy` is ours.
                let slot = unsafe { shard.pop() };
                shard.unlock();
                if !slot.is_null() {
                    return slot.cast();
                }
            }
            // Memory grows only when every free list was seen to be empty.
            if all_seen && try_lock(&self.carving.busy) {
                let slot = self.carve();
                self.carving.busy.store(false, Ordering::Release);
                return slot;
            }
            std::thread::yield_now();
        }
    }

    /// A slot that nobody had yet. The caller holds `carving`.
    fn carve(&self) -> *mut u8 {
        // SAFETY: `carving.busy` is ours; a chunk is mapped for good, and `left` bytes of it from
        // `next` on belong to nobody.
        unsafe {
            if *self.carving.left.get() < SLOT.size() {
                let chunk = self.take_chunk();
                if chunk.is_null() {
                    return ptr::null_mut();
                }
                *self.carving.next.get() = chunk;
                *self.carving.left.get() = CHUNK_BYTES;
            }
            let slot = *self.carving.next.get();
            *self.carving.next.get() = slot.add(SLOT.size());
            *self.carving.left.get() -= SLOT.size();
            self.carved.fetch_add(1, Ordering::Relaxed);
            slot
        }
    }

    /// Takes a slot back.
    fn give(&self, slot: *mut u8) {
        let slot: *mut Free = slot.cast();
        let first = first_shard();
        for step in 0.. {
            let shard = &self.shards[(first + step) % SHARDS];
            if try_lock(&shard.busy) {
                // SAFETY: `busy` is ours; the slot is free, large enough and aligned for `Free`.
                unsafe { shard.push(slot) };
                shard.unlock();
                return;
            }
            if step % SHARDS == SHARDS - 1 {
                std::thread::yield_now();
            }
        }
    }
}

// SAFETY: a slot has the size and the alignment of `SLOT`, belongs to its owner from `take` to
// `give`, and layouts tell slots from what the allocator below gave out.
unsafe impl<A: GlobalAlloc> GlobalAlloc for BlockAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout == SLOT {
            return self.take();
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { self.below.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if layout == SLOT {
            return self.give(pointer);
        }
        // SAFETY: as above; the pointer came from below, as its layout says.
        unsafe { self.below.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout != SLOT {
            // SAFETY: as above.
            return unsafe { self.below.alloc_zeroed(layout) };
        }
        let slot = self.take();
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
        if layout != SLOT && new != SLOT {
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
    use std::collections::HashSet;

    #[test]
    fn a_shared_block_has_the_layout_of_a_slot() {
        // `Arc` promises no layout; if it changes, blocks quietly come from below.
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
        let allocator = BlockAllocator::new(Counting(AtomicUsize::new(0)));
        let arc = Layout::new::<(AtomicUsize, AtomicUsize, Block)>();
        // SAFETY: allocated and freed with one layout.
        unsafe {
            let pointer = allocator.alloc(arc);
            assert_eq!(allocator.live_blocks(), 1);
            allocator.dealloc(pointer, arc);
        }
        assert_eq!((allocator.live_blocks(), allocator.peak_blocks()), (0, 1));
        assert_eq!(allocator.below.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn slots_are_apart_aligned_and_used_again() {
        let allocator = BlockAllocator::new(System);
        let take = || {
            // SAFETY: freed below with the same layout.
            let slots: Vec<*mut u8> = (0..1000).map(|_| unsafe { allocator.alloc(SLOT) }).collect();
            for (number, slot) in slots.iter().enumerate() {
                assert_eq!(*slot as usize % SLOT.align(), 0);
                // SAFETY: the slot is ours.
                unsafe { slot.write_bytes(number as u8, SLOT.size()) };
            }
            for (number, slot) in slots.iter().enumerate() {
                // SAFETY: the slot is ours and was written.
                let ends = unsafe { (**slot, *slot.add(SLOT.size() - 1)) };
                assert_eq!(ends, (number as u8, number as u8), "slot {number} was written over");
            }
            slots
        };
        let first: HashSet<usize> = take()
            .into_iter()
            .map(|slot| {
                // SAFETY: allocated above.
                unsafe { allocator.dealloc(slot, SLOT) };
                slot as usize
            })
            .collect();
        assert_eq!((first.len(), allocator.live_blocks()), (1000, 0));
        let again = take();
        assert!(again.iter().all(|slot| first.contains(&(*slot as usize))), "memory grew");
        assert_eq!((allocator.live_blocks(), allocator.peak_blocks()), (1000, 1000));
    }

    /// Pages of a range that are in memory.
    fn resident_pages(start: *mut u8, bytes: usize) -> usize {
        let mut pages = vec![0_u8; bytes.div_ceil(PAGE_BYTES)];
        // SAFETY: the range is mapped and begins at a page; the vector has a byte for each page.
        let answer = unsafe { libc::mincore(start.cast(), bytes, pages.as_mut_ptr()) };
        assert_eq!(answer, 0);
        pages.iter().filter(|page| **page & 1 == 1).count()
    }

    #[test]
    fn slots_come_from_chunks_that_were_populated() {
        let allocator = BlockAllocator::new(System);
        let blocks_max = SLOTS_OF_CHUNK + 1;
        assert!(allocator.populate(blocks_max) && allocator.populate(blocks_max));
        assert!(!allocator.populate(blocks_max), "two chunks have room for all of them");
        assert_eq!(allocator.populated_bytes(), 2 * CHUNK_BYTES as u64);
        assert_eq!((allocator.live_blocks(), allocator.peak_blocks()), (0, 0));
        // SAFETY: the chunks stay mapped; slots are not given back.
        let slots: Vec<_> = (0..blocks_max).map(|_| unsafe { allocator.alloc(SLOT) }).collect();
        assert_eq!(allocator.populated_bytes(), 0);
        for first in [slots[0], slots[SLOTS_OF_CHUNK as usize]] {
            assert_eq!(first as usize % CHUNK_BYTES, 0, "a slot of another chunk");
            assert_eq!(resident_pages(first, CHUNK_BYTES), CHUNK_BYTES / PAGE_BYTES);
        }
        // What is carved without it is there when it is touched.
        let other = BlockAllocator::new(System);
        // SAFETY: as above.
        let slot = unsafe { other.alloc(SLOT) };
        assert_eq!(resident_pages(slot, CHUNK_BYTES), 0);
        // Chunks that were carved count: there is room for one more block, and none after it.
        assert!(!other.populate(SLOTS_OF_CHUNK) && other.populate(SLOTS_OF_CHUNK + 1));
    }

    #[test]
    fn threads_share_what_any_of_them_frees() {
        const THREADS: usize = 4;
        const HELD: usize = 64;
        let allocator: &'static BlockAllocator<System> =
            Box::leak(Box::new(BlockAllocator::new(System)));
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let body = move || {
                    let (mut held, mut state) = (Vec::new(), number as u64 + 1);
                    for _ in 0..20_000 {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        if held.len() < HELD && state >> 63 == 0 {
                            // SAFETY: freed below with the same layout.
                            let slot = unsafe { allocator.alloc(SLOT) }.cast::<u64>();
                            // SAFETY: the slot is ours.
                            unsafe { *slot = state };
                            held.push((slot as usize, state));
                        } else if let Some((slot, mark)) = held.pop() {
                            // SAFETY: allocated above; ours until now.
                            unsafe {
                                assert_eq!(*(slot as *mut u64), mark, "somebody else has it");
                                allocator.dealloc(slot as *mut u8, SLOT);
                            }
                        }
                    }
                    for (slot, _) in held {
                        // SAFETY: allocated above.
                        unsafe { allocator.dealloc(slot as *mut u8, SLOT) };
                    }
                };
                crate::thread::spawn("allocating", body).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(allocator.live_blocks(), 0);
        // A thread that finds a list locked looks again before it grows.
        assert!(allocator.peak_blocks() <= (THREADS * HELD) as u64, "{}", allocator.peak_blocks());
    }
}
