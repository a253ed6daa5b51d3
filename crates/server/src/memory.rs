//! The node's memory: who may take how much of the configured cap, and who has it.
//!
//! The cap is on what the operating system counts (the resident set), the program's own code
//! included. Nearly all of it is blocks, and those are packed by an allocator of their own and
//! counted exactly ([`BlockAllocator`]): the buffer cache takes what the others leave. What is not
//! blocks has a share and bounds that keep it there: clean inodes, changed ones, log, connections
//! with their calls and replies under way, writes of mounts under way, the locks of clients.
//!
//! Invariants: the shares and the fixed part together are the cap; what one does not use is not
//! lent to another, so that no moment finds more in use than there is. Not counted are two buffers
//! for each event loop of each mount.
//!
//! Fails: below `server::config::MEMORY_BYTES_MIN` the configuration is refused.

use admin_api::{MemoryConsumer, MemoryUse};
use dblade::BlockMemory;
use fuse::request_bytes_of_rings;
use platform::linux::{
    BLOCK_FOOTPRINT_BYTES, BlockAllocator, HeapLimits, limit_heap, release_memory,
};
use platform::sync::Mutex;
use std::alloc::System;
use std::fs;
use units::Block;

/// What is not blocks is small or short-lived, and comes from the system's allocator, told to keep
/// little. Measured beside mimalloc with a cap of 64 MiB: 12 MiB in use instead of 36, since that
/// keeps pages of each size class for each thread.
#[global_allocator]
static ALLOCATOR: BlockAllocator<System> = BlockAllocator::new(System);

/// The program's code, as far as it is used: 15 MiB after the largest load of the tests, and 19 MiB
/// of a build with debug assertions.
const CODE_BYTES: u64 = if cfg!(debug_assertions) { 19 << 20 } else { 16 << 20 };
/// What the program takes before it has done anything: code, threads' stacks, tables of a fixed
/// size, and the allocator's own.
const FIXED_BYTES: u64 = CODE_BYTES + (6 << 20);
/// The share of the cap for what protocols keep: connections, calls, replies.
const FRONT_END_SHARE: u64 = 8;
/// And its bounds: a few of the largest transfers, and more than a fast network needs.
const FRONT_END_BYTES: (u64, u64) = (6 << 20, 128 << 20);
/// The share of the cap for large writes of mounts on this machine that are under way.
const MOUNT_SHARE: u64 = 32;
/// And its bounds: two of the largest, and more than disks do at once. Rings of mounts may have
/// more: they grow with the processors.
const MOUNT_BYTES: (u64, u64) = (5 << 19, 64 << 20);
/// The share of the cap for the locks of clients.
const LOCK_SHARE: u64 = 32;
/// And its bounds: locks of a few thousand programs, and all that the lock manager counts to.
const LOCK_BYTES: (u64, u64) = (2 << 20, 32 << 20);
/// The share of the cap for counting operations by volume.
const METER_SHARE: u64 = 128;
/// And its bounds: some hundred volumes on a few processors, and a thousand on many.
const METER_BYTES: (u64, u64) = (512 << 10, 8 << 20);
/// The share of the cap that is lost between what is allocated and what is used.
const LOSS_SHARE: u64 = 16;

/// Arenas of the system's allocator: two threads seldom meet in one, since each has a cache.
const ARENAS_MAX: usize = 4;
/// The share of the cap that one buffer may take on the heap, which the system gets back late; a
/// larger one is mapped and unmapped, which costs a fault for each of its pages.
const HEAP_BUFFER_SHARE: u64 = 256;
/// And its bounds: where mapping pays, and above the largest transfer.
const HEAP_BUFFER_BYTES: (u64, u64) = (128 << 10, 4 << 20);

/// Who may take how much of a cap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    /// The engine: blocks wherever they are, inodes, what a log half holds.
    pub engine_bytes: u64,
    /// Connections, calls and replies of network protocols.
    pub front_end_bytes: u64,
    /// Large writes of mounts under way.
    pub mount_bytes: u64,
    /// Locks of all front ends.
    pub lock_bytes: u64,
    /// Numbers of operations, by volume.
    pub meter_bytes: u64,
}

impl Shares {
    /// The shares of a cap on this machine.
    pub(crate) fn of(cap_bytes: u64) -> Self {
        Self::with_rings(cap_bytes, request_bytes_of_rings())
    }

    /// The shares of a cap where rings of mounts need so much.
    fn with_rings(cap_bytes: u64, rings_bytes: u64) -> Self {
        let (least, most) = FRONT_END_BYTES;
        let front_end_bytes = (cap_bytes / FRONT_END_SHARE).clamp(least, most);
        let (least, most) = MOUNT_BYTES;
        let mount_bytes = (cap_bytes / MOUNT_SHARE).clamp(least, most.max(rings_bytes));
        let (least, most) = LOCK_BYTES;
        let lock_bytes = (cap_bytes / LOCK_SHARE).clamp(least, most);
        let (least, most) = METER_BYTES;
        let meter_bytes = (cap_bytes / METER_SHARE).clamp(least, most);
        let rest = cap_bytes.saturating_sub(FIXED_BYTES + cap_bytes / LOSS_SHARE);
        let others = front_end_bytes + mount_bytes + lock_bytes + meter_bytes;
        let engine_bytes = rest.saturating_sub(others);
        Self { engine_bytes, front_end_bytes, mount_bytes, lock_bytes, meter_bytes }
    }
}

/// Has the system's allocator give back what it does not need; for processes with a cap.
pub(crate) fn keep_little(cap_bytes: u64) {
    let (least, most) = HEAP_BUFFER_BYTES;
    let mapped_from_bytes = (cap_bytes / HEAP_BUFFER_SHARE).clamp(least, most) as usize;
    limit_heap(HeapLimits {
        arenas_max: ARENAS_MAX,
        mapped_from_bytes,
        // Room for two of the largest buffers on top of a heap: it does not shrink for each.
        kept_bytes: 2 * mapped_from_bytes,
    });
}

/// Blocks that are nobody's, and take no memory: volumes take as much, and it is not counted.
static WITHHELD: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// The memory for blocks, for the engine.
pub(crate) const fn blocks() -> BlockMemory {
    BlockMemory {
        live_blocks: || ALLOCATOR.live_blocks_nearly(),
        block_bytes: BLOCK_BYTES,
        withhold,
        withheld_blocks,
    }
}

/// Withholds so many blocks.
fn withhold(blocks: u64) {
    let mut withheld = WITHHELD.lock();
    withheld.truncate(blocks as usize);
    while (withheld.len() as u64) < blocks {
        let mut block = Block::zeroed();
        release_memory(&mut block);
        withheld.push(block);
    }
}

fn withheld_blocks() -> u64 {
    WITHHELD.lock().len() as u64
}

/// The most blocks that lived at one time.
pub(crate) fn peak_blocks() -> u64 {
    ALLOCATOR.peak_blocks()
}

/// Has a little more of the memory for `blocks_max` blocks populated; whether there is more to do.
pub(crate) fn populate(blocks_max: u64) -> bool {
    ALLOCATOR.populate(blocks_max)
}

/// Memory that one of them takes.
pub(crate) const BLOCK_BYTES: u64 = BLOCK_FOOTPRINT_BYTES;

/// Who has how much now. `cached` and `dirty` count blocks; `meter_bytes` is for counting
/// operations.
pub(crate) fn report(cap_bytes: u64, (cached, dirty): (u64, u64), meter_bytes: u64) -> MemoryUse {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let (used_bytes, peak_bytes) = (field(&status, "VmRSS:"), field(&status, "VmHWM:"));
    let (live, peak) = (ALLOCATOR.live_blocks(), ALLOCATOR.peak_blocks());
    let withheld = withheld_blocks();
    let moving = live.saturating_sub(cached + dirty + withheld);
    let blocks = [("clean", cached), ("dirty", dirty), ("moving", moving), ("volumes", withheld)];
    let mut consumers: Vec<MemoryConsumer> = blocks
        .map(|(name, blocks)| MemoryConsumer::new(name, blocks * BLOCK_BYTES))
        .into_iter()
        .collect();
    let populated_bytes = ALLOCATOR.populated_bytes();
    let spare_bytes = peak.saturating_sub(live) * BLOCK_BYTES + populated_bytes;
    consumers.push(MemoryConsumer::new("spare", spare_bytes));
    consumers.push(MemoryConsumer::new("metrics", meter_bytes));
    // What is withheld stands for what volumes take.
    let blocks_bytes = peak * BLOCK_BYTES + populated_bytes;
    let other = used_bytes.saturating_sub(blocks_bytes + meter_bytes);
    consumers.push(MemoryConsumer::new("other", other));
    MemoryUse { limit_bytes: cap_bytes, used_bytes, peak_bytes, consumers }
}

/// A field of `/proc/self/status`, which are in KiB.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::config::MEMORY_BYTES_MIN;

    #[test]
    fn shares_are_within_the_cap() {
        for cap in [MEMORY_BYTES_MIN, 128 << 20, 1 << 30, 64 << 30] {
            let shares = Shares::with_rings(cap, 0);
            let front_ends = shares.front_end_bytes + shares.mount_bytes;
            let protocols = front_ends + shares.lock_bytes + shares.meter_bytes;
            let sum = shares.engine_bytes + protocols + FIXED_BYTES + cap / LOSS_SHARE;
            assert_eq!(sum, cap);
            assert!(shares.engine_bytes >= cap / 3, "{cap}: {shares:?}");
        }
    }

    #[test]
    fn rings_of_many_processors_have_their_room_in_a_large_cap() {
        let mount_bytes = |cap| Shares::with_rings(cap, 256 << 20).mount_bytes;
        assert_eq!([1 << 30, 64 << 30].map(mount_bytes), [32 << 20, 256 << 20]);
        assert_eq!(Shares::with_rings(64 << 30, 1 << 20).mount_bytes, 64 << 20);
    }

    #[test]
    fn fields_are_read() {
        let status = "Name:\tstroop\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n";
        assert_eq!((field(status, "VmHWM:"), field(status, "VmRSS:")), (2 << 20, 1 << 20));
        assert_eq!(field(status, "VmNothing:"), 0);
    }

    #[test]
    fn consumers_add_up_to_what_is_used() {
        let block = std::sync::Arc::new(units::Block::zeroed());
        let memory = report(1 << 30, (0, 0), 0);
        let sum: u64 = memory.consumers.iter().map(|consumer| consumer.bytes).sum();
        assert!(memory.used_bytes > 0 && memory.peak_bytes >= memory.used_bytes);
        // Figures are read one after another while other tests allocate.
        assert!(sum.abs_diff(memory.used_bytes) < 32 << 20, "{memory:?}");
        assert!(ALLOCATOR.live_blocks() >= 1, "blocks come from the slab");
        drop(block);
    }
}
