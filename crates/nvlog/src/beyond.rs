//! Looks beyond the end of a half's chain: whether records that were durable are missing there.
//!
//! A batch is sent to the disk only when all before it are durable. So behind the last batch of a
//! chain lies at most one batch of the same life, torn or whole, and it begins right there. A
//! header further on, of a batch that no committed consistency point holds, was written when the
//! chain was longer: what lies between has rotted, or was never written though the disk said so.
//! The last batch of all has nothing behind it; if that rots nobody can tell it from a torn one.
//!
//! Blocks of the half that cannot be read here were needed by nobody, and are passed over.

use crate::scan::HalfScan;
use platform::Disk;
use std::sync::Arc;

/// Blocks that are looked at behind the end of a chain: more than a batch has in all but the
/// largest logs, and few enough to be read in a moment.
const LOOK_BLOCKS_MAX: u64 = 4096;
/// Blocks that are read at once.
const READ_BLOCKS: u64 = 256;

/// What lies behind the chains of both halves: the number of the first record that is missing.
pub(crate) type BeyondDone = Box<dyn FnOnce([HalfScan; 2], Option<u64>) + Send>;

/// Looks behind the ends of both halves.
pub(crate) fn look_beyond(disk: &Arc<dyn Disk>, scans: [HalfScan; 2], done: BeyondDone) {
    Looking { disk: Arc::clone(disk), scans, half: 0, at: 1, missing: None, done }.next();
}

struct Looking {
    disk: Arc<dyn Disk>,
    scans: [HalfScan; 2],
    half: usize,
    /// Blocks behind the end of the chain.
    at: u64,
    missing: Option<u64>,
    done: BeyondDone,
}

impl Looking {
    fn next(mut self) {
        let Some(scan) = self.scans.get(self.half) else {
            return (self.done)(self.scans, self.missing);
        };
        let end = scan.blocks_left().min(LOOK_BLOCKS_MAX);
        if self.at >= end {
            (self.half, self.at) = (self.half + 1, 1);
            return self.next();
        }
        let count = (end - self.at).min(READ_BLOCKS);
        let block = scan.end_on_disk() + self.at;
        let disk = Arc::clone(&self.disk);
        let read = move |result: Result<Vec<units::BlockRef>, _>| {
            if let (Ok(blocks), Some(scan)) = (result, self.scans.get(self.half)) {
                let is_later = (block..).zip(&blocks).any(|(at, block)| scan.is_later(at, block));
                if is_later {
                    self.missing = Some(self.missing.unwrap_or(u64::MAX).min(scan.next_sequence()));
                }
            }
            self.at += count;
            self.next();
        };
        disk.read(block, count as usize, Box::new(read));
    }
}
