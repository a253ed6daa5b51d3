//! Cleaning the files of a volume by several messages at once (Waffinity section 4.2): each has a
//! share of the dirty inodes and runs in a Volume Range affinity of its own, beside client
//! operations and beside one another.
//!
//! VVBNs for all that it may come to place are reserved for a share before it begins; PVBNs it
//! reserves from the aggregate's pool as it goes. It acquires both one by one, and forfeits what is
//! left.
//!
//! Invariants: the block side does not change while shares are cleaned; it takes over what they
//! took and freed when the last is done.

use crate::backend::{DualBackend, Holdings};
use aggregate::Aggregate;
use cowfs::cleaner::{Sink, SinkMark};
use cowfs::image::Backend;
use cowfs::image::ImageFiles;
use cowfs::pointer::{BlockPlace, Pointer};
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use ondisk::pointer::DualPointer;
use platform::stage::{self, Stage};
use platform::sync::Mutex;
use std::collections::VecDeque;
use units::{BlockRef, CpNumber, Pvbn, Vvbn};

/// Shares that are being cleaned, and those that were.
pub(crate) struct Shares(Mutex<State>);

struct State {
    left: usize,
    done: Vec<Share>,
    /// Why one of them could not be cleaned.
    failure: Option<Stop>,
}

impl Shares {
    /// So many.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self(Mutex::new(State { left: count, done: Vec::new(), failure: None }))
    }

    /// A share is done, or cannot be cleaned; whether it was the last.
    #[must_use]
    pub fn end(&self, share: Share, failure: Option<Stop>) -> bool {
        let mut state = self.0.lock();
        state.done.push(share);
        state.failure = state.failure.take().or(failure);
        state.left -= 1;
        state.left == 0
    }

    /// Why they were not all cleaned.
    #[must_use]
    pub fn take_failure(&self) -> Option<Stop> {
        self.0.lock().failure.take()
    }

    /// What came of all of them.
    #[must_use]
    pub fn take(&self) -> Vec<Share> {
        std::mem::take(&mut self.0.lock().done)
    }
}

/// A share of the files.
pub(crate) struct Share {
    pub files: ImageFiles<DualPointer>,
    pub held: HeldBlocks,
    pub holdings: Holdings,
    pub numbers: Numbers,
    /// Blocks that were written.
    pub written: u64,
}

/// VVBNs of a share.
#[derive(Default)]
pub(crate) struct Numbers {
    /// Reserved.
    pub free: VecDeque<Vvbn>,
    /// Acquired.
    pub taken: Vec<Vvbn>,
    /// Those that the image uses no more.
    pub freed: Vec<Vvbn>,
}

impl Share {
    /// One with the VVBNs that it may come to take.
    pub fn new(files: ImageFiles<DualPointer>, numbers: Vec<Vvbn>) -> Self {
        let (held, holdings) = (HeldBlocks::default(), Holdings::default());
        let numbers = Numbers { free: numbers.into(), ..Numbers::default() };
        Self { files, held, holdings, numbers, written: 0 }
    }

    /// Does the work.
    ///
    /// # Errors
    /// What to wait for; then run again.
    pub fn run(&mut self, aggregate: &Aggregate, cp: CpNumber) -> Progress<()> {
        let _stage = stage::enter(Stage::Clean);
        let reader = Reader { cache: &aggregate.parts.cache, held: &self.held };
        let backend = DualBackend { aggregate, holdings: &mut self.holdings, cp };
        let (numbers, written) = (&mut self.numbers, &mut self.written);
        let outcome = self.files.run(&reader, &mut ShareSink { backend, numbers, written });
        if !matches!(outcome, Err(Stop::Wait(_))) {
            let Holdings { used, reserved, .. } = &mut self.holdings;
            aggregate.pool.forfeit(std::mem::take(used), std::mem::take(reserved).into_iter());
        }
        outcome
    }
}

/// Takes the blocks of a share.
struct ShareSink<'a> {
    backend: DualBackend<'a>,
    numbers: &'a mut Numbers,
    written: &'a mut u64,
}

impl Sink<DualPointer> for ShareSink<'_> {
    fn prepare(&mut self, count: usize) -> Progress<()> {
        if self.numbers.free.len() < count {
            return Err(Stop::Contradiction("files take more block numbers than they may"));
        }
        self.backend.reserve(count)
    }

    fn place(&mut self, block: BlockRef, place: BlockPlace) -> DualPointer {
        let Some(vvbn) = self.numbers.free.pop_front() else {
            panic!("block numbers were not reserved")
        };
        self.numbers.taken.push(vvbn);
        *self.written += 1;
        self.backend.write_at(vvbn, block, place)
    }

    fn place_again(&mut self, old: DualPointer, block: BlockRef, place: BlockPlace) -> DualPointer {
        *self.written += 1;
        self.backend.write_elsewhere(old, block, place)
    }

    fn free(&mut self, pointer: DualPointer) {
        self.numbers.freed.push(pointer.vbn());
    }

    fn mark(&self) -> SinkMark {
        let Numbers { taken, freed, .. } = &*self.numbers;
        SinkMark { placed: taken.len(), freed: freed.len(), below: self.backend.told() }
    }

    fn revert(&mut self, mark: &SinkMark) {
        self.numbers.freed.truncate(mark.freed);
        let undone = self.numbers.taken.split_off(mark.placed);
        *self.written -= undone.len() as u64;
        undone.into_iter().rev().for_each(|vvbn| self.numbers.free.push_front(vvbn));
        self.backend.waste(mark.below);
    }

    fn unplace(&mut self, placed: Vec<DualPointer>) {
        debug_assert!(placed.is_empty(), "a volume's files place their blocks here");
    }

    fn is_lost(&self, pvbn: Pvbn) -> bool {
        self.backend.is_lost(pvbn)
    }
}
