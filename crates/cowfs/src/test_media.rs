//! Blocks in memory for tests: trees are written here by cleaners, and every read waits once.
//!
//! Invariants: nothing is freed, so all images that were made stay whole.

use crate::buftree::Root;
use crate::cache::BufferCache;
use crate::cleaner::{FileCleaner, Sink, SinkMark};
use crate::pointer::{BlockPlace, Pointer};
use crate::reader::{HeldBlocks, LoadRequest, Progress, Reader, Stop, Wait};
use ondisk::pointer::{DualPointer, PhysicalPointer};
use std::cell::Cell;
use std::collections::HashMap;
use units::{BlockRef, Pvbn, Vvbn};

/// A pointer format that a test can make addresses of.
pub trait Addressed: Pointer {
    fn at(number: u64, check: u32) -> Self;
}

impl Addressed for DualPointer {
    fn at(number: u64, checksum: u32) -> Self {
        Self { vvbn: Vvbn(number), pvbn: Pvbn(number), flags: 0, checksum }
    }
}

impl Addressed for PhysicalPointer {
    fn at(number: u64, check: u32) -> Self {
        Self::new(Pvbn(number), check as u16)
    }
}

/// See the module.
#[derive(Default)]
pub struct Media {
    /// The number given last.
    pub next: u64,
    /// By number; a block that is taken out is damaged.
    pub blocks: HashMap<u64, BlockRef>,
    /// Blocks that were loaded.
    pub loads: Cell<usize>,
}

impl Media {
    /// Serves the loads that somebody waits for.
    pub fn serve(&self, requests: &[LoadRequest], held: &HeldBlocks) {
        self.loads.set(self.loads.get() + requests.len());
        for request in requests {
            held.put(request, self.blocks.get(&request.pvbn.0).cloned());
        }
    }

    /// Runs until nothing is waited for.
    pub fn run<T>(&self, mut work: impl FnMut(&Reader<'_>) -> Progress<T>) -> T {
        let (cache, held) = (BufferCache::new(0), HeldBlocks::default());
        loop {
            match work(&Reader { cache: &cache, held: &held }) {
                Ok(done) => return done,
                Err(Stop::Wait(Wait::Load(requests))) => self.serve(&requests, &held),
                Err(stop) => panic!("{stop:?}"),
            }
        }
    }

    /// Writes a file's changes; the new root.
    pub fn clean<P: Addressed>(&mut self, mut cleaner: FileCleaner<P>) -> Root<P> {
        let (cache, held) = (BufferCache::new(0), HeldBlocks::default());
        loop {
            match cleaner.run(&Reader { cache: &cache, held: &held }, self) {
                Ok((root, _)) => return root,
                Err(Stop::Wait(Wait::Load(requests))) => self.serve(&requests, &held),
                Err(stop) => panic!("{stop:?}"),
            }
        }
    }
}

impl<P: Addressed> Sink<P> for Media {
    fn prepare(&mut self, _: usize) -> Progress<()> {
        Ok(())
    }

    fn place(&mut self, block: BlockRef, place: BlockPlace) -> P {
        self.next += 1;
        let check = P::check_of(&block, place.content);
        self.blocks.insert(self.next, block);
        P::at(self.next, check)
    }

    fn free(&mut self, _: P) {}

    fn mark(&self) -> SinkMark {
        SinkMark::default()
    }

    fn revert(&mut self, _: &SinkMark) {
        unreachable!("nothing is damaged here")
    }

    fn unplace(&mut self, _: Vec<P>) {
        unreachable!("nothing is placed before")
    }

    fn is_lost(&self, _: Pvbn) -> bool {
        true
    }
}
