//! Slots of one size, packed one behind another in chunks, for an allocator.
//!
//! A freed slot is the next to be given out, whichever thread asks, so the memory that slots take
//! is the largest number of them that was out at one time, or nearly: the free lists are looked at
//! one after another. Chunks are never given back.
//!
//! Up to [`KEPT_MAX`] free slots of a list are remembered beside the slots, not in them: the memory
//! of a freed slot is seldom in the processor's cache, and neither the thread that frees it nor the
//! thread that takes it next waits for that memory.
//!
//! Invariants: a slot is in one free list or with its owner; no lock is held while memory is asked
//! of the system by anyone but the one who carves; a thread never waits for a lock that it can walk
//! around: a lock holder does a few instructions.
//!
//! Fails: with a null pointer when the system has no memory left.

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bytes asked of the system at once: a huge page.
pub(super) const CHUNK_BYTES: usize = 2 << 20;
/// The smallest page of any processor that Linux runs on.
pub(super) const PAGE_BYTES: usize = 4096;
/// Free lists; a thread uses its own first. More than threads that take slots at one time.
const SHARDS: usize = 16;
/// Free slots that a list remembers beside them: what a few large requests take and give back.
const KEPT_MAX: usize = 512;

/// A free slot that is remembered in itself points at the next.
struct Free {
    next: *mut Free,
}

/// A stack of free slots, or of chunks; what lies in it is touched by whoever holds `busy`.
#[repr(align(128))]
struct Shard {
    busy: AtomicBool,
    /// All that lie in it.
    count: AtomicUsize,
    /// The top of the stack, up to `kept_count`.
    kept: UnsafeCell<[*mut Free; KEPT_MAX]>,
    kept_count: UnsafeCell<usize>,
    /// The rest of it: each points at the next.
    head: UnsafeCell<*mut Free>,
}

/// What of the newest chunk was not given out yet.
struct Carving {
    busy: AtomicBool,
    next: UnsafeCell<*mut u8>,
    left: UnsafeCell<usize>,
}

/// See the module.
pub(super) struct Slab {
    slot_bytes: usize,
    shards: [Shard; SHARDS],
    carving: Carving,
    /// Chunks whose pages are there.
    populated: Shard,
    carved: AtomicU64,
    chunks: AtomicU64,
}

// SAFETY: what the cells hold is touched by the holder of the lock beside it only.
unsafe impl Sync for Slab {}

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
            count: AtomicUsize::new(0),
            kept: UnsafeCell::new([ptr::null_mut(); KEPT_MAX]),
            kept_count: UnsafeCell::new(0),
            head: UnsafeCell::new(ptr::null_mut()),
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
        // No more than `KEPT_MAX` are kept.
        unsafe {
            let kept_count = &mut *self.kept_count.get();
            let top = if let Some(below) = kept_count.checked_sub(1) {
                *kept_count = below;
                (*self.kept.get())[below]
            } else {
                let top = *self.head.get();
                if top.is_null() {
                    return top;
                }
                *self.head.get() = (*top).next;
                top
            };
            self.count.fetch_sub(1, Ordering::Relaxed);
            top
        }
    }

    /// Puts something on the stack. The caller holds `busy`.
    ///
    /// # Safety
    /// `busy` is the caller's, and `free` is free, large enough and aligned for [`Free`].
    unsafe fn push(&self, free: *mut Free) {
        // SAFETY: as the caller promises. No more than `KEPT_MAX` are kept.
        unsafe {
            let kept_count = &mut *self.kept_count.get();
            if *kept_count < KEPT_MAX {
                (*self.kept.get())[*kept_count] = free;
                *kept_count += 1;
            } else {
                (*free).next = *self.head.get();
                *self.head.get() = free;
            }
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

impl Slab {
    /// None yet, of so many bytes each: a multiple of their alignment, which is a page at most,
    /// and room for [`Free`].
    pub const fn new(slot_bytes: usize) -> Self {
        assert!(slot_bytes >= size_of::<Free>() && slot_bytes <= CHUNK_BYTES);
        Self {
            slot_bytes,
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

    const fn slots_of_chunk(&self) -> u64 {
        (CHUNK_BYTES / self.slot_bytes) as u64
    }

    /// Slots that are out now.
    pub fn live(&self) -> u64 {
        let free: usize = self.shards.iter().map(|shard| shard.count.load(Ordering::Relaxed)).sum();
        // The figures are read one after another and may disagree for a moment.
        self.carved.load(Ordering::Relaxed).saturating_sub(free as u64)
    }

    /// The most that were out at one time.
    pub fn peak(&self) -> u64 {
        self.carved.load(Ordering::Relaxed)
    }

    /// Maps a chunk and has its pages populated, unless chunks for so many slots are mapped
    /// already, or the system has no memory left. Whether it did: the caller asks again then.
    ///
    /// One call takes the time that the system needs to clear 2 MiB.
    pub fn populate(&self, slots_max: u64) -> bool {
        if self.chunks.load(Ordering::Relaxed) * self.slots_of_chunk() >= slots_max {
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

    /// Chunks that are populated and not carved yet.
    pub fn populated_chunks(&self) -> u64 {
        self.populated.count.load(Ordering::Relaxed) as u64
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
    pub fn take(&self) -> *mut u8 {
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
            if *self.carving.left.get() < self.slot_bytes {
                let chunk = self.take_chunk();
                if chunk.is_null() {
                    return ptr::null_mut();
                }
                *self.carving.next.get() = chunk;
                *self.carving.left.get() = CHUNK_BYTES;
            }
            let slot = *self.carving.next.get();
            *self.carving.next.get() = slot.add(self.slot_bytes);
            *self.carving.left.get() -= self.slot_bytes;
            self.carved.fetch_add(1, Ordering::Relaxed);
            slot
        }
    }

    /// Takes a slot back.
    ///
    /// # Safety
    /// It came from [`Self::take`] of this, and nobody uses it.
    pub unsafe fn give(&self, slot: *mut u8) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SLOT_BYTES: usize = 4096;
    /// More than one list remembers beside its slots.
    const COUNT: usize = 3 * KEPT_MAX;

    #[test]
    fn slots_are_apart_aligned_and_used_again() {
        let slab = Slab::new(SLOT_BYTES);
        let take = || {
            let slots: Vec<*mut u8> = (0..COUNT).map(|_| slab.take()).collect();
            for (number, slot) in slots.iter().enumerate() {
                assert_eq!(*slot as usize % PAGE_BYTES, 0);
                // SAFETY: the slot is ours.
                unsafe { slot.write_bytes(number as u8, SLOT_BYTES) };
            }
            for (number, slot) in slots.iter().enumerate() {
                // SAFETY: the slot is ours and was written.
                let ends = unsafe { (**slot, *slot.add(SLOT_BYTES - 1)) };
                assert_eq!(ends, (number as u8, number as u8), "slot {number} was written over");
            }
            slots
        };
        let first: HashSet<usize> = take()
            .into_iter()
            .map(|slot| {
                // SAFETY: allocated above.
                unsafe { slab.give(slot) };
                slot as usize
            })
            .collect();
        assert_eq!((first.len(), slab.live()), (COUNT, 0));
        let again = take();
        assert!(again.iter().all(|slot| first.contains(&(*slot as usize))), "memory grew");
        assert_eq!((slab.live(), slab.peak()), (COUNT as u64, COUNT as u64));
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
        let slab = Slab::new(SLOT_BYTES);
        let slots_max = (CHUNK_BYTES / SLOT_BYTES) as u64 + 1;
        assert!(slab.populate(slots_max) && slab.populate(slots_max));
        assert!(!slab.populate(slots_max), "two chunks have room for all of them");
        assert_eq!(slab.populated_chunks(), 2);
        assert_eq!((slab.live(), slab.peak()), (0, 0));
        let slots: Vec<_> = (0..slots_max).map(|_| slab.take()).collect();
        assert_eq!(slab.populated_chunks(), 0);
        for first in [slots[0], slots[CHUNK_BYTES / SLOT_BYTES]] {
            assert_eq!(first as usize % CHUNK_BYTES, 0, "a slot of another chunk");
            assert_eq!(resident_pages(first, CHUNK_BYTES), CHUNK_BYTES / PAGE_BYTES);
        }
        // What is carved without it is there when it is touched.
        let other = Slab::new(SLOT_BYTES);
        let slot = other.take();
        assert_eq!(resident_pages(slot, CHUNK_BYTES), 0);
        // Chunks that were carved count: there is room for one more block, and none after it.
        assert!(!other.populate(slots_max - 1) && other.populate(slots_max));
    }

    #[test]
    fn threads_share_what_any_of_them_frees() {
        const THREADS: usize = 4;
        const HELD: usize = 64;
        let slab: &'static Slab = Box::leak(Box::new(Slab::new(SLOT_BYTES)));
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let body = move || {
                    let (mut held, mut state) = (Vec::new(), number as u64 + 1);
                    for _ in 0..20_000 {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        if held.len() < HELD && state >> 63 == 0 {
                            let slot = slab.take().cast::<u64>();
                            // SAFETY: the slot is ours.
                            unsafe { *slot = state };
                            held.push((slot as usize, state));
                        } else if let Some((slot, mark)) = held.pop() {
                            // SAFETY: allocated above; ours until now.
                            unsafe {
                                assert_eq!(*(slot as *mut u64), mark, "somebody else has it");
                                slab.give(slot as *mut u8);
                            }
                        }
                    }
                    for (slot, _) in held {
                        // SAFETY: allocated above.
                        unsafe { slab.give(slot as *mut u8) };
                    }
                };
                crate::thread::spawn("allocating", body).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(slab.live(), 0);
        // A thread that finds a list locked looks again before it grows.
        assert!(slab.peak() <= (THREADS * HELD) as u64, "{}", slab.peak());
    }
}
