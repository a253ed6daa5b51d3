//! Disks in memory, whose completions run when somebody runs them.
//!
//! Loads that write [`COMMON_BYTE`] everywhere have parity of that or of zeros too. Blocks of it
//! share one block in memory and zeros take none: a disk takes what its metadata takes.
//!
//! Invariants: what is read is what was written last; a completion never runs before the call
//! returns, but on a thread that runs [`Completions::work`] or [`Completions::run_one`], and they
//! run in the order in which they came if one thread does.

use media::DATA_START;
use ondisk::identity::REGION_BLOCKS;
use platform::disk::is_in_range;
use platform::sync::{Condvar, Mutex};
use platform::{Disk, DiskError, ReadDone, WriteDone};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use units::{BLOCK_SIZE, Block, BlockRef, zero_block};

/// What blocks consist of that take no memory.
pub(crate) const COMMON_BYTE: u8 = 0x5a;

type Completion = Box<dyn FnOnce() + Send>;

/// Completions of several disks.
#[derive(Default)]
pub(crate) struct Completions {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Completion>,
    is_over: bool,
}

impl Completions {
    fn push(&self, completion: impl FnOnce() + Send + 'static) {
        self.queue.lock().waiting.push_back(Box::new(completion));
        self.changed.notify_one();
    }

    /// Runs completions until the end is called, and all that came before.
    pub fn work(&self) {
        while let Some(completion) = self.next() {
            completion();
        }
    }

    /// Runs the oldest completion; whether there was one.
    pub fn run_one(&self) -> bool {
        let next = self.queue.lock().waiting.pop_front();
        next.is_some_and(|completion| {
            completion();
            true
        })
    }

    fn next(&self) -> Option<Completion> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(completion) = queue.waiting.pop_front() {
                return Some(completion);
            }
            if queue.is_over {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }

    pub fn end(&self) {
        self.queue.lock().is_over = true;
        self.changed.notify_all();
    }
}

/// See the module.
pub(crate) struct MemoryDisk {
    name: String,
    /// `None` for zeros.
    content: Mutex<Vec<Option<BlockRef>>>,
    size_blocks: u64,
    common: BlockRef,
    completions: Arc<Completions>,
    written_blocks: AtomicU64,
    written_regions: AtomicU64,
    read_blocks: AtomicU64,
}

impl MemoryDisk {
    /// A disk of zeros.
    pub fn new(name: String, size_blocks: u64, completions: &Arc<Completions>) -> Arc<Self> {
        Arc::new(Self {
            name,
            content: Mutex::new(vec![None; size_blocks as usize]),
            size_blocks,
            common: Block::shared(&[COMMON_BYTE; BLOCK_SIZE]),
            completions: Arc::clone(completions),
            written_blocks: AtomicU64::new(0),
            written_regions: AtomicU64::new(0),
            read_blocks: AtomicU64::new(0),
        })
    }

    /// Blocks and regions that were written since the last call. A region counts when its checksum
    /// block is written: once for each tetris on the first disk of a group, whose parity, or data
    /// without parity, changes with any block of it.
    pub fn take_written(&self) -> (u64, u64) {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        (take(&self.written_blocks), take(&self.written_regions))
    }

    /// Blocks that were read since the last call.
    pub fn take_read(&self) -> u64 {
        self.read_blocks.swap(0, Ordering::Relaxed)
    }

    fn count(&self, block: u64, count: u64) {
        // The checksum block is a region's last.
        let regions = |end: u64| end.saturating_sub(DATA_START) / REGION_BLOCKS as u64;
        self.written_blocks.fetch_add(count, Ordering::Relaxed);
        self.written_regions.fetch_add(regions(block + count) - regions(block), Ordering::Relaxed);
    }

    fn kept(&self, block: BlockRef) -> Option<BlockRef> {
        if *block == *self.common {
            return Some(Arc::clone(&self.common));
        }
        (!block.is_zero()).then_some(block)
    }

    fn outside(&self, block: u64) -> DiskError {
        let (disk, size_blocks) = (self.name.clone(), self.size_blocks);
        DiskError::OutOfRange { disk, block, size_blocks }
    }
}

impl Disk for MemoryDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_blocks(&self) -> u64 {
        self.size_blocks
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        if !is_in_range(block, count, self.size_blocks) {
            let error = self.outside(block);
            return self.completions.push(move || done(Err(error)));
        }
        self.read_blocks.fetch_add(count as u64, Ordering::Relaxed);
        let read: Vec<BlockRef> = {
            let content = self.content.lock();
            let found = &content[block as usize..block as usize + count];
            found.iter().map(|kept| kept.clone().unwrap_or_else(zero_block)).collect()
        };
        self.completions.push(move || done(Ok(read)));
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        if !is_in_range(block, blocks.len(), self.size_blocks) {
            let error = self.outside(block);
            return self.completions.push(move || done(Err(error)));
        }
        self.count(block, blocks.len() as u64);
        {
            let mut content = self.content.lock();
            let places = content.iter_mut().skip(block as usize);
            places.zip(blocks).for_each(|(place, block)| *place = self.kept(block));
        }
        self.completions.push(move || done(Ok(())));
    }

    fn flush(&self, done: WriteDone) {
        self.completions.push(move || done(Ok(())));
    }
}
