//! A disk with a model beside it: each request is shown to the model, then done by the disk.
//!
//! Invariants: a request is counted once, when it is submitted, before the inner disk sees it; a
//! request past the disk's end is not counted. The model's lock is not held while the inner disk is
//! called.

use platform::disk::is_in_range;
use platform::sync::Mutex;
use platform::{Disk, MediaHints, ReadDone, WriteDone};
use std::sync::Arc;
use units::BlockRef;

/// What a model does with requests: it counts.
pub trait Medium: Send + 'static {
    /// What is counted.
    type Statistics;

    /// Blocks are read.
    fn read(&mut self, block: u64, count: u64);

    /// Blocks are written.
    fn write(&mut self, block: u64, count: u64);

    /// What was written is to be durable.
    fn flush(&mut self);

    /// What the device tells of itself.
    fn hints(&self) -> MediaHints;

    /// What was counted since the start, or since statistics were last taken.
    fn statistics(&self) -> Self::Statistics;

    /// Counts from zero again. What the device remembers (where what lies) stays.
    fn reset_statistics(&mut self);
}

/// A disk, and a model of what its requests cost.
pub struct Modelled<M> {
    inner: Arc<dyn Disk>,
    medium: Mutex<M>,
}

impl<M: Medium> Modelled<M> {
    pub(crate) fn around(inner: Arc<dyn Disk>, medium: M) -> Self {
        Self { inner, medium: Mutex::new(medium) }
    }

    /// What was counted since the start, or since statistics were last taken.
    #[must_use]
    pub fn statistics(&self) -> M::Statistics {
        self.medium.lock().statistics()
    }

    /// The same, and counts from zero again: for the part of a test that is to be measured.
    pub fn take_statistics(&self) -> M::Statistics {
        let mut medium = self.medium.lock();
        let statistics = medium.statistics();
        medium.reset_statistics();
        statistics
    }

    /// Asks the model something, or tells it.
    pub(crate) fn with_medium<T>(&self, call: impl FnOnce(&mut M) -> T) -> T {
        call(&mut self.medium.lock())
    }

    fn count(&self, block: u64, count: usize, call: impl FnOnce(&mut M, u64)) {
        if count > 0 && is_in_range(block, count, self.inner.size_blocks()) {
            call(&mut self.medium.lock(), count as u64);
        }
    }
}

impl<M: Medium> Disk for Modelled<M> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_blocks(&self) -> u64 {
        self.inner.size_blocks()
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        self.count(block, count, |medium, count| medium.read(block, count));
        self.inner.read(block, count, done);
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.count(block, blocks.len(), |medium, count| medium.write(block, count));
        self.inner.write(block, blocks, done);
    }

    fn write_durable(self: Arc<Self>, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.count(block, blocks.len(), |medium, count| {
            medium.write(block, count);
            medium.flush();
        });
        Arc::clone(&self.inner).write_durable(block, blocks, done);
    }

    fn flush(&self, done: WriteDone) {
        self.medium.lock().flush();
        self.inner.flush(done);
    }

    fn hints(&self) -> MediaHints {
        self.medium.lock().hints()
    }
}
