//! Disks of the model: content in memory, and the time that a device would take.
//!
//! A device moves bytes one request after another at its bandwidth, and each request takes its
//! latency beside that. At most `depth` requests are in it at a time; others wait their turn.
//!
//! Invariants: a request completes at a moment that follows from those before it alone; what is
//! read is what was written last. Blocks that are read are copied into memory of their own, as a
//! device writes them into memory, so that whoever proves them meets as many bytes.
//!
//! Fails: as [`MemoryDisk`] does.

use super::world::{Event, Lane, World};
use crate::memory::{Completions, MemoryDisk};
use platform::sync::Mutex;
use platform::{Disk, DiskError, ReadDone, WriteDone};
use std::collections::VecDeque;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Block, BlockRef};

/// What a device can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Medium {
    /// Bytes a second that it reads.
    pub read_bandwidth: u64,
    /// Bytes a second that it writes.
    pub write_bandwidth: u64,
    /// Nanoseconds that a request takes beside moving its bytes; a flush takes as long.
    pub latency_nanoseconds: u64,
    /// Requests that it has at a time.
    pub depth: usize,
}

impl Medium {
    /// A flash drive on PCIe 3.
    pub const NVME: Self = Self {
        read_bandwidth: 3_000_000_000,
        write_bandwidth: 2_000_000_000,
        latency_nanoseconds: 80_000,
        depth: 128,
    };
    /// A flash drive on SATA.
    pub const SATA: Self = Self {
        read_bandwidth: 530_000_000,
        write_bandwidth: 500_000_000,
        latency_nanoseconds: 120_000,
        depth: 32,
    };
}

/// The requests that are in a device.
#[derive(Default)]
struct Pipe {
    /// When the bytes of all requests so far are moved.
    moved: u64,
    /// When the last requests are over, in order.
    ends: VecDeque<u64>,
    /// Time in which bytes were moved.
    busy: u64,
}

impl Pipe {
    /// Puts a request in; the moment at which it is over.
    fn put(&mut self, now: u64, bytes: u64, bandwidth: u64, medium: &Medium) -> u64 {
        while self.ends.front().is_some_and(|end| *end <= now) {
            self.ends.pop_front();
        }
        let place = self.ends.len().checked_sub(medium.depth);
        let admitted = place.and_then(|place| self.ends.get(place)).copied().unwrap_or(now);
        let moving = bytes * 1_000_000_000 / bandwidth;
        self.moved = self.moved.max(now).max(admitted) + moving;
        self.busy += moving;
        let end = self.moved + medium.latency_nanoseconds;
        self.ends.push_back(end);
        end
    }

    /// The moment at which all requests are over that are in it.
    fn drained(&self, now: u64) -> u64 {
        self.ends.back().copied().unwrap_or(now).max(now)
    }
}

/// See the module.
pub(super) struct ModelDisk {
    world: Arc<World>,
    medium: Medium,
    content: Arc<MemoryDisk>,
    /// Of the content, which completes at once.
    completions: Arc<Completions>,
    pipe: Mutex<Pipe>,
}

impl ModelDisk {
    pub fn new(world: &Arc<World>, name: String, size_bytes: u64, medium: Medium) -> Arc<Self> {
        let completions = Arc::new(Completions::default());
        let content = MemoryDisk::new(name, size_bytes / BLOCK_SIZE_U64, &completions);
        let (world, pipe) = (Arc::clone(world), Mutex::default());
        Arc::new(Self { world, medium, content, completions, pipe })
    }

    /// Time in which it moved bytes since the last call.
    pub fn take_busy(&self) -> u64 {
        std::mem::take(&mut self.pipe.lock().busy)
    }

    fn tell(&self, end: u64, lane: Lane, done: impl FnOnce() + Send + 'static) {
        self.world.note(end, Event::Ready(lane, Box::new(done)));
    }

    /// Does a request of the content, and gives what came of it.
    fn at_once<T: Send + 'static>(&self, request: impl FnOnce(Kept<T>)) -> T {
        let slot: Arc<Mutex<Option<T>>> = Arc::default();
        let same = Arc::clone(&slot);
        request(Box::new(move |result| *same.lock() = Some(result)));
        assert!(self.completions.run_one(), "the content has completed");
        let Some(result) = slot.lock().take() else { unreachable!("the completion has run") };
        result
    }

    fn put_write(&self, block: u64, blocks: Vec<BlockRef>) -> (u64, Result<(), DiskError>) {
        let bytes = blocks.len() as u64 * BLOCK_SIZE_U64;
        let bandwidth = self.medium.write_bandwidth;
        let end = self.pipe.lock().put(self.world.moment(), bytes, bandwidth, &self.medium);
        (end, self.at_once(|done| self.content.write(block, blocks, done)))
    }
}

type Kept<T> = Box<dyn FnOnce(T) + Send>;

impl Disk for ModelDisk {
    fn name(&self) -> &str {
        self.content.name()
    }

    fn size_blocks(&self) -> u64 {
        self.content.size_blocks()
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        self.world.aside(|| {
            let (bytes, bandwidth) = (count as u64 * BLOCK_SIZE_U64, self.medium.read_bandwidth);
            let end = self.pipe.lock().put(self.world.moment(), bytes, bandwidth, &self.medium);
            let read = self.at_once(|done| self.content.read(block, count, done));
            let world = Arc::clone(&self.world);
            self.tell(end, Lane::Completions, move || {
                let copy = |block: &BlockRef| Block::shared(block.bytes());
                done(world.aside(|| read.map(|blocks| blocks.iter().map(copy).collect())));
            });
        });
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.world.aside(|| {
            let (end, written) = self.put_write(block, blocks);
            self.tell(end, Lane::Completions, move || done(written));
        });
    }

    fn flush(&self, done: WriteDone) {
        self.world.aside(|| {
            let drained = self.pipe.lock().drained(self.world.moment());
            let end = drained + self.medium.latency_nanoseconds;
            self.tell(end, Lane::Completions, move || done(Ok(())));
        });
    }

    fn write_durable(self: Arc<Self>, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.world.aside(|| {
            let (end, written) = self.put_write(block, blocks);
            let end = end + self.medium.latency_nanoseconds;
            self.tell(end, Lane::Log, move || done(written));
        });
    }
}
