//! Stretches of a disk that are made to hold zeros.
//!
//! What holds zeros already is read and left alone: thin storage stays thin, and flash is not worn.
//! What cannot be read is written.
//!
//! Fails: with the first error of a write, or when it is stopped; some of the stretch holds zeros
//! then.

use crate::error::MediaError;
use ondisk::identity::REGION_BLOCKS;
use platform::completion::gather;
use platform::sync::Mutex;
use platform::{Disk, DiskError};
use std::ops::Range;
use std::sync::Arc;
use units::{BlockRef, zero_block};

/// Blocks that are looked at and zeroed at a time.
const PIECE_BLOCKS: u64 = REGION_BLOCKS as u64;
/// Pieces of one disk under way at once.
const PIECES_AT_A_TIME: u64 = 8;

/// Receives the end of zeroing.
pub type ZeroDone = Box<dyn FnOnce(Result<(), MediaError>) + Send>;

/// How far zeroing has come, for those who watch it, or end it.
#[derive(Default, Debug)]
pub struct Zeroing(Mutex<Progress>);

#[derive(Default, Debug)]
struct Progress {
    blocks: u64,
    zeroed_blocks: u64,
    is_stopped: bool,
}

impl Zeroing {
    /// Blocks that hold zeros, and all that have to, of all stretches that were begun.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let progress = self.0.lock();
        (progress.zeroed_blocks, progress.blocks)
    }

    /// Has it end early, as failed.
    pub fn stop(&self) {
        self.0.lock().is_stopped = true;
    }

    /// False if it is to end.
    fn advance(&self, blocks: u64) -> bool {
        let mut progress = self.0.lock();
        progress.zeroed_blocks += blocks;
        !progress.is_stopped
    }
}

/// Has a stretch of a disk hold zeros, durably.
pub fn zero(disk: &Arc<dyn Disk>, stretch: Range<u64>, progress: &Arc<Zeroing>, done: ZeroDone) {
    progress.0.lock().blocks += stretch.end.saturating_sub(stretch.start);
    let flushed = Arc::clone(disk);
    let parts =
        gather(
            PIECES_AT_A_TIME as usize,
            move |results: Vec<Result<(), MediaError>>| match results
                .into_iter()
                .collect::<Result<Vec<()>, _>>()
            {
                Ok(_) => flushed.flush(Box::new(|result| done(result.map_err(MediaError::from)))),
                Err(error) => done(Err(error)),
            },
        );
    for (first, part) in (0..).zip(parts) {
        let pieces = Pieces {
            disk: Arc::clone(disk),
            at: stretch.start + first * PIECE_BLOCKS,
            end: stretch.end,
            progress: Arc::clone(progress),
        };
        pieces.go_on(Box::new(part));
    }
}

/// One piece after another, every eighth.
struct Pieces {
    disk: Arc<dyn Disk>,
    at: u64,
    end: u64,
    progress: Arc<Zeroing>,
}

impl Pieces {
    fn go_on(self, done: ZeroDone) {
        if self.at >= self.end {
            return done(Ok(()));
        }
        let (disk, at) = (Arc::clone(&self.disk), self.at);
        let count = PIECE_BLOCKS.min(self.end - at) as usize;
        let looked = move |found: Result<Vec<BlockRef>, DiskError>| {
            if found.is_ok_and(|blocks| blocks.iter().all(|block| block.is_zero())) {
                return self.finish(count, done);
            }
            let same = Arc::clone(&self.disk);
            let written = move |result| match result {
                Ok(()) => self.finish(count, done),
                Err(error) => done(Err(MediaError::from(error))),
            };
            same.write(at, vec![zero_block(); count], Box::new(written));
        };
        disk.read(at, count, Box::new(looked));
    }

    fn finish(mut self, count: usize, done: ZeroDone) {
        if !self.progress.advance(count as u64) {
            return done(Err(MediaError::Stopped { disk: self.disk.name().to_owned() }));
        }
        self.at += PIECE_BLOCKS * PIECES_AT_A_TIME;
        self.go_on(done);
    }
}
