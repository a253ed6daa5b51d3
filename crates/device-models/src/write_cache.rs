//! The memory in front of a drive's platters: it takes writes in any order and puts them down in
//! that of their addresses.
//!
//! A host that has many requests under way does not say in which order they are to be done, and
//! they come as they happen to. A drive with memory for some of them sorts them: when it is full
//! the head sweeps upwards from where it is, from run to run, and begins anew below.
//!
//! Invariants:
//! - What is written goes down after it came, once, and by the next flush at the latest; but of
//!   what is written twice before that only the later goes down.
//! - No more blocks wait when a write is over than the memory has room for.

use std::collections::BTreeSet;

/// The blocks that wait.
pub struct WriteCache {
    blocks_max: u64,
    waiting: BTreeSet<u64>,
    /// Behind what went down last.
    head: u64,
}

impl WriteCache {
    /// Nothing waits; with room for nothing nothing ever does.
    #[must_use]
    pub const fn new(blocks_max: u64) -> Self {
        Self { blocks_max, waiting: BTreeSet::new(), head: 0 }
    }

    /// Whether a block waits.
    #[must_use]
    pub fn contains(&self, block: u64) -> bool {
        self.waiting.contains(&block)
    }

    /// Blocks that wait.
    #[must_use]
    pub fn waiting_blocks(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// The host writes; `down` is told what goes to the platters: the first block, and how many.
    pub fn write(&mut self, block: u64, count: u64, mut down: impl FnMut(u64, u64)) {
        if self.blocks_max == 0 {
            return down(block, count);
        }
        self.waiting.extend(block..block + count);
        while self.waiting_blocks() > self.blocks_max {
            self.put_down(&mut down);
        }
    }

    /// All that waits is to go down.
    pub fn flush(&mut self, mut down: impl FnMut(u64, u64)) {
        while !self.waiting.is_empty() {
            self.put_down(&mut down);
        }
    }

    /// Puts down the run that the head comes to next.
    fn put_down(&mut self, down: &mut impl FnMut(u64, u64)) {
        let above = self.waiting.range(self.head..).next();
        let Some(first) = above.or_else(|| self.waiting.first()).copied() else { return };
        let end = (first..).find(|block| !self.waiting.remove(block)).unwrap_or(u64::MAX);
        self.head = end;
        down(first, end - first);
    }
}
