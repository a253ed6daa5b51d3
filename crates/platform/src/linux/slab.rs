//! Slots of one size, packed one behind another in chunks, for an allocator.
//!
//! A freed slot is given out before a new one is, whichever thread asks, so the memory that slots
//! take is the largest number of them that was out at one time, or nearly: the free lists are
//! looked at one after another. Chunks are never given back.
//!
//! Threads that take slots are seldom those that give them back. What two processors write in turns
//! costs each of them as much as a miss of its cache, so a thread takes from its own list and gives
//! to it, moves [`MOVED_MAX`] slots at once from another's list when its own is empty, and tells
//! others how many are free when the number has changed by [`UNTOLD_MAX`].
//!
//! Up to [`KEPT_MAX`] free slots of a list are remembered beside the slots, not in them: the memory
//! of a freed slot is seldom in the processor's cache, and neither the thread that frees it nor the
//! thread that takes it next waits for that memory. Of more than that, one slot remembers as many
//! others as it has room for.
//!
//! Invariants: a slot is in one free list or with its owner; no lock is held while memory is asked
//! of the system by anyone but the one who carves; a thread never waits for a lock: it looks
//! elsewhere, and then again.
//!
//! Fails: with a null pointer when the system has no memory left.

use std::cell::{Cell, UnsafeCell};
use std::io;
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Bytes asked of the system at once: a huge page.
pub(super) const CHUNK_BYTES: usize = 2 << 20;
/// The smallest page of any processor that Linux runs on.
pub(super) const PAGE_BYTES: usize = 4096;
/// Free lists; a thread uses its own first. More than threads that take slots at one time.
const SHARDS: usize = 16;
/// Free slots that a list remembers beside them: what a few large requests take and give back.
const KEPT_MAX: usize = 512;

/// Free slots that go from one list to another at once.
const MOVED_MAX: usize = 64;
/// What a list takes and gives before [`Slab::live_nearly`] hears of it.
const UNTOLD_MAX: isize = 32;

/// What is free and remembered. Whoever holds the list's lock has it.
struct Kept {
    /// A stack, up to `count`.
    slots: [*mut u8; KEPT_MAX],
    count: usize,
    /// A free slot whose memory holds the address of the next such slot, and of as many others as
    /// it has room for; null if there is none.
    packed: *mut *mut u8,
    /// Slots given, less those taken, that nobody was told of.
    untold: isize,
}

/// A stack of free slots, or of chunks.
#[repr(align(128))]
struct Shard {
    busy: AtomicBool,
    /// All that lie in it.
    count: AtomicUsize,
    kept: UnsafeCell<Kept>,
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
    /// What the lists have told of their free slots.
    free_told: AtomicI64,
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

impl Kept {
    /// The top of the stack; null if there is none. A packed slot holds `packed_count` others.
    ///
    /// # Safety
    /// What was pushed is free, with memory for so many addresses and one.
    unsafe fn pop(&mut self, packed_count: usize) -> *mut u8 {
        if let Some(below) = self.count.checked_sub(1) {
            self.count = below;
            return self.slots[below];
        }
        let packed = self.packed;
        if !packed.is_null() {
            // SAFETY: a packed slot holds the next one, and then `packed_count` others.
            let others = unsafe {
                self.packed = (*packed).cast();
                slice::from_raw_parts(packed.add(1), packed_count)
            };
            self.slots[..packed_count].copy_from_slice(others);
            self.count = packed_count;
        }
        packed.cast()
    }

    /// Puts a slot on the stack. If there is no room, it takes `packed_count` others into itself.
    ///
    /// # Safety
    /// It is free, with memory for so many addresses and one.
    unsafe fn push(&mut self, slot: *mut u8, packed_count: usize) {
        if self.count < KEPT_MAX {
            self.slots[self.count] = slot;
            self.count += 1;
            return;
        }
        let packed: *mut *mut u8 = slot.cast();
        self.count -= packed_count;
        // SAFETY: as the caller promises.
        unsafe {
            *packed = self.packed.cast();
            let others = &self.slots[self.count..];
            packed.add(1).copy_from_nonoverlapping(others.as_ptr(), packed_count);
        }
        self.packed = packed;
    }
}

impl Shard {
    const fn new() -> Self {
        Self {
            busy: AtomicBool::new(false),
            count: AtomicUsize::new(0),
            kept: UnsafeCell::new(Kept {
                slots: [ptr::null_mut(); KEPT_MAX],
                count: 0,
                packed: ptr::null_mut(),
                untold: 0,
            }),
        }
    }

    /// What is in it, unless somebody else has it.
    fn try_lock(&self) -> Option<Locked<'_>> {
        // Not `then_some`: what it drops would end the lock of whoever has it.
        try_lock(&self.busy).then(|| Locked(self))
    }
}

/// A list that is ours until this is dropped.
struct Locked<'a>(&'a Shard);

impl Locked<'_> {
    fn kept(&mut self) -> &mut Kept {
        // SAFETY: the lock is ours, and so is this.
        unsafe { &mut *self.0.kept.get() }
    }

    fn len(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Notes that it has so many more. Nobody else writes the number meanwhile.
    fn note(&mut self, change: isize) {
        self.0.count.store(self.len().wrapping_add_signed(change), Ordering::Relaxed);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Release);
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
    /// and room for two addresses.
    pub const fn new(slot_bytes: usize) -> Self {
        assert!(slot_bytes >= 2 * size_of::<*mut u8>() && slot_bytes <= CHUNK_BYTES);
        Self {
            slot_bytes,
            shards: [const { Shard::new() }; SHARDS],
            carving: Carving {
                busy: AtomicBool::new(false),
                next: UnsafeCell::new(ptr::null_mut()),
                left: UnsafeCell::new(0),
            },
            populated: Shard::new(),
            free_told: AtomicI64::new(0),
            carved: AtomicU64::new(0),
            chunks: AtomicU64::new(0),
        }
    }

    const fn slots_of_chunk(&self) -> u64 {
        (CHUNK_BYTES / self.slot_bytes) as u64
    }

    /// Addresses of other slots that a packed one holds, beside that of the next.
    const fn packed_count(&self) -> usize {
        let room = self.slot_bytes / size_of::<*mut u8>() - 1;
        if room < KEPT_MAX { room } else { KEPT_MAX }
    }

    /// Slots that are out now, give or take [`UNTOLD_MAX`] for each list. Asking costs little, and
    /// costs those who take and give hardly anything.
    pub fn live_nearly(&self) -> u64 {
        let free = self.free_told.load(Ordering::Relaxed);
        self.carved.load(Ordering::Relaxed).saturating_add_signed(-free)
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
        loop {
            if let Some(mut populated) = self.populated.try_lock() {
                // SAFETY: the chunk is nobody's yet, and larger than a slot.
                unsafe { populated.kept().push(chunk, self.packed_count()) };
                populated.note(1);
                return true;
            }
            std::thread::yield_now();
        }
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
            if let Some(mut populated) = self.populated.try_lock() {
                // SAFETY: chunks were pushed, larger than slots.
                let chunk = unsafe { populated.kept().pop(self.packed_count()) };
                if chunk.is_null() {
                    break;
                }
                populated.note(-1);
                return chunk;
            }
            std::thread::yield_now();
        }
        self.new_chunk()
    }

    /// A free slot: of this thread's list, of another's, or a new one; null without memory.
    pub fn take(&self) -> *mut u8 {
        let first = first_shard();
        loop {
            let mut own = self.shards[first].try_lock();
            let found = own.as_mut().map_or(ptr::null_mut(), |own| self.pop(own));
            if !found.is_null() {
                return found;
            }
            let mut all_seen = own.is_some();
            for step in 1..SHARDS {
                let shard = &self.shards[(first + step) % SHARDS];
                if shard.count.load(Ordering::Relaxed) == 0 {
                    continue;
                }
                let Some(mut other) = shard.try_lock() else {
                    all_seen = false;
                    continue;
                };
                let found = self.pop(&mut other);
                if found.is_null() {
                    continue;
                }
                if let Some(own) = &mut own {
                    self.move_some(&mut other, own);
                }
                return found;
            }
            drop(own);
            // Memory grows only when every free list was seen to be empty.
            if all_seen && try_lock(&self.carving.busy) {
                let slot = self.carve();
                self.carving.busy.store(false, Ordering::Release);
                return slot;
            }
            std::thread::yield_now();
        }
    }

    /// The top of a list; null if it is empty.
    fn pop(&self, list: &mut Locked<'_>) -> *mut u8 {
        // SAFETY: slots were pushed.
        let slot = unsafe { list.kept().pop(self.packed_count()) };
        if !slot.is_null() {
            list.note(-1);
            self.tell(list, -1);
        }
        slot
    }

    /// Moves up to half of a list to an empty one, so that the lowest address is on top: slots that
    /// lie one behind another are given out one after another.
    fn move_some(&self, from: &mut Locked<'_>, to: &mut Locked<'_>) {
        let count = (from.len() / 2).min(MOVED_MAX);
        let mut moved = [ptr::null_mut(); MOVED_MAX];
        for slot in &mut moved[..count] {
            // SAFETY: slots were pushed, and there are twice as many.
            *slot = unsafe { from.kept().pop(self.packed_count()) };
        }
        moved[..count].sort_unstable_by(|left, right| right.cmp(left));
        for slot in &moved[..count] {
            // SAFETY: the slot is free.
            unsafe { to.kept().push(*slot, self.packed_count()) };
        }
        from.note(-count.cast_signed());
        to.note(count.cast_signed());
    }

    /// One was given to a list or taken from it: `change` more are free.
    fn tell(&self, list: &mut Locked<'_>, change: isize) {
        let untold = &mut list.kept().untold;
        *untold += change;
        if untold.abs() >= UNTOLD_MAX {
            self.free_told.fetch_add(*untold as i64, Ordering::Relaxed);
            *untold = 0;
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
        let first = first_shard();
        for step in 0.. {
            if let Some(mut list) = self.shards[(first + step) % SHARDS].try_lock() {
                // SAFETY: the slot is free and came from here.
                unsafe { list.kept().push(slot, self.packed_count()) };
                list.note(1);
                self.tell(&mut list, 1);
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
        // A thread that finds a list locked looks again before it grows. It may miss slots that go
        // from a list that it has yet to look at to one where it was.
        assert!(slab.peak() <= (THREADS * (HELD + 1)) as u64, "{}", slab.peak());
    }

    /// One thread takes all that another gives, in bursts of more than a list keeps beside slots.
    #[test]
    fn slots_go_from_who_gives_to_who_takes() {
        const ROUNDS: usize = 20;
        for slot_bytes in [2 * size_of::<*mut u8>(), 32, SLOT_BYTES] {
            let slab: &'static Slab = Box::leak(Box::new(Slab::new(slot_bytes)));
            let (to_give, given) = std::sync::mpsc::channel::<Vec<usize>>();
            let (tell, told) = std::sync::mpsc::channel();
            let body = move || {
                for slots in given {
                    // SAFETY: taken below, and used by nobody after that.
                    slots.into_iter().for_each(|slot| unsafe { slab.give(slot as *mut u8) });
                    tell.send(()).unwrap();
                }
            };
            let giver = crate::thread::spawn("giving", body).unwrap();
            for round in 0..ROUNDS {
                let slots: Vec<usize> = (0..COUNT).map(|_| slab.take() as usize).collect();
                let apart: HashSet<&usize> = slots.iter().collect();
                assert_eq!(apart.len(), COUNT, "round {round}: somebody else has it");
                let nearly = slab.live_nearly().abs_diff(COUNT as u64);
                assert!(nearly < 2 * UNTOLD_MAX as u64, "{nearly} more or less than there are");
                for slot in &slots {
                    // SAFETY: the slot is ours.
                    unsafe { (*slot as *mut u8).write_bytes(round as u8, slot_bytes) };
                }
                to_give.send(slots).unwrap();
                told.recv().unwrap();
            }
            drop(to_give);
            giver.join().unwrap();
            assert_eq!((slab.live(), slab.peak()), (0, COUNT as u64));
        }
    }

    /// Threads take and give in bursts, each what another took.
    #[test]
    fn slots_are_with_one_owner_whoever_gives_them_back() {
        const BURST_MAX: usize = 2 * KEPT_MAX;
        type Bursts = crate::sync::Mutex<Vec<Vec<usize>>>;
        for slot_bytes in [32, SLOT_BYTES] {
            let slab: &'static Slab = Box::leak(Box::new(Slab::new(slot_bytes)));
            let bursts: &'static Bursts = Box::leak(Box::default());
            let body = move |number: usize| {
                for round in 0..1000 {
                    let count = 1 + (round * 7919 + number * 131) % BURST_MAX;
                    let slots: Vec<usize> = (0..count).map(|_| slab.take() as usize).collect();
                    for slot in &slots {
                        // SAFETY: the slot is ours, and has room for four words.
                        unsafe { (*slot as *mut [usize; 4]).write([slot + 1; 4]) };
                    }
                    bursts.lock().push(slots);
                    let burst = bursts.lock().pop();
                    for slot in burst.into_iter().flatten() {
                        // SAFETY: taken and written above, by whichever thread; ours now.
                        unsafe {
                            let marks = (slot as *mut [usize; 4]).read();
                            assert_eq!(marks, [slot + 1; 4], "somebody else has it");
                            slab.give(slot as *mut u8);
                        }
                    }
                }
            };
            let threads: Vec<_> = (0..4)
                .map(|number| crate::thread::spawn("allocating", move || body(number)).unwrap())
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(slab.live(), 0);
        }
    }
}
