//! A disk that fails on demand: bad blocks, refused writes and flushes, hanging, being gone.
//!
//! Invariants:
//! - Nothing happens by itself: a [`Failures`] handle says what is wrong from now on.
//! - A block that cannot be read can be read again once it was overwritten, as drives put another
//!   in its place.
//! - A write that meets a block that cannot be written has written those before it.
//! - A completion never runs before the call returns, an error's neither: the inner disk is asked
//!   for nothing, and the error told when it has done that.
//!
//! Fails: as it was told to, with the errors of [`DiskError`].

use crate::ranges::BlockRanges;
use platform::disk::is_in_range;
use platform::sync::Mutex;
use platform::{Disk, DiskError, MediaHints, ReadDone, WriteDone};
use std::ops::Range;
use std::sync::Arc;
use units::BlockRef;

/// Where requests get stuck when a disk hangs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hang {
    /// On the way there: what is submitted from now on has no effect until it is released.
    Requests,
    /// On the way back: it has its effect, and nobody hears of it.
    Completions,
}

enum Request {
    Read { block: u64, count: usize, done: ReadDone },
    Write { block: u64, blocks: Vec<BlockRef>, is_durable: bool, done: WriteDone },
    Flush { done: WriteDone },
}

enum Held {
    Request(Request),
    Completion(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
struct State {
    unreadable: BlockRanges,
    unwritable: BlockRanges,
    refuses_flushes: bool,
    is_gone: bool,
    hang: Option<Hang>,
    held: Vec<Held>,
}

struct Shared {
    inner: Arc<dyn Disk>,
    state: Mutex<State>,
}

/// Says what is wrong with a [`FailingDisk`]. Clones are handles on the same disk.
#[derive(Clone)]
pub struct Failures(Arc<Shared>);

/// A disk that fails on demand. See the module.
pub struct FailingDisk(Arc<Shared>);

impl FailingDisk {
    /// `inner`, with nothing wrong.
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>) -> Self {
        Self(Arc::new(Shared { inner, state: Mutex::default() }))
    }

    /// The handle.
    #[must_use]
    pub fn failures(&self) -> Failures {
        Failures(Arc::clone(&self.0))
    }
}

impl Failures {
    /// Reads that meet one of these blocks give an error, until it was overwritten.
    pub fn make_unreadable(&self, blocks: Range<u64>) {
        self.0.state.lock().unreadable.insert(blocks);
    }

    /// Writes that meet one of these blocks give an error.
    pub fn make_unwritable(&self, blocks: Range<u64>) {
        self.0.state.lock().unwritable.insert(blocks);
    }

    /// Flushes give an error, and so do durable writes, after they were written.
    pub fn refuse_flushes(&self) {
        self.0.state.lock().refuses_flushes = true;
    }

    /// All that is submitted from now on is answered with [`DiskError::Gone`].
    pub fn go(&self) {
        self.0.state.lock().is_gone = true;
    }

    /// Nothing is answered from now on.
    pub fn hang(&self, hang: Hang) {
        self.0.state.lock().hang = Some(hang);
    }

    /// Requests and completions that are stuck.
    #[must_use]
    pub fn held_count(&self) -> usize {
        self.0.state.lock().held.len()
    }

    /// Ends the hanging: what is stuck goes on, in its order, on this thread.
    pub fn release(&self) {
        let held = {
            let mut state = self.0.state.lock();
            state.hang = None;
            std::mem::take(&mut state.held)
        };
        for held in held {
            match held {
                Held::Request(request) => self.0.perform(request),
                Held::Completion(complete) => complete(),
            }
        }
    }

    /// Lets go of what is stuck, unanswered, as when the machine is switched off. The disk still
    /// hangs. What is stuck may hold the disk: a test that does not release must drop.
    pub fn drop_held(&self) {
        let held = std::mem::take(&mut self.0.state.lock().held);
        drop(held);
    }

    /// Nothing is wrong any more, but that a disk that hangs does so until it is released.
    pub fn heal(&self) {
        let mut state = self.0.state.lock();
        let (hang, held) = (state.hang, std::mem::take(&mut state.held));
        *state = State { hang, held, ..State::default() };
    }
}

impl Shared {
    fn submit(self: &Arc<Self>, request: Request) {
        {
            let mut state = self.state.lock();
            if state.hang == Some(Hang::Requests) {
                state.held.push(Held::Request(request));
                return;
            }
        }
        self.perform(request);
    }

    fn perform(self: &Arc<Self>, request: Request) {
        match request {
            Request::Read { block, count, done } => {
                let done = self.stoppable(done);
                match self.check_read(block, count) {
                    Ok(()) => self.inner.read(block, count, done),
                    Err(error) => self.refuse(Box::new(move |_| done(Err(error)))),
                }
            }
            Request::Write { block, blocks, is_durable, done } => {
                self.write(block, blocks, is_durable, self.stoppable(done));
            }
            Request::Flush { done } => {
                let done = self.stoppable(done);
                match self.check_flush() {
                    Ok(()) => self.inner.flush(done),
                    Err(error) => self.refuse(Box::new(move |_| done(Err(error)))),
                }
            }
        }
    }

    fn write(self: &Arc<Self>, block: u64, blocks: Vec<BlockRef>, durable: bool, done: WriteDone) {
        if self.state.lock().is_gone {
            let error = self.gone();
            return self.refuse(Box::new(move |_| done(Err(error))));
        }
        let mut blocks = blocks;
        let mut refusal = None;
        if is_in_range(block, blocks.len(), self.inner.size_blocks()) {
            let end = block + blocks.len() as u64;
            if let Some(bad) = self.state.lock().unwritable.first_in(block..end) {
                blocks.truncate((bad - block) as usize);
                refusal = Some(self.error(bad, "a block that cannot be written"));
            }
        }
        if durable && refusal.is_none() {
            refusal = self.check_flush().err();
        }
        let written = block..block.saturating_add(blocks.len() as u64);
        let is_refused = refusal.is_some();
        let shared = Arc::clone(self);
        let finish: WriteDone = Box::new(move |result| {
            if result.is_ok() {
                shared.state.lock().unreadable.remove(written);
            }
            done(result.and(refusal.map_or(Ok(()), Err)));
        });
        if durable && !is_refused {
            Arc::clone(&self.inner).write_durable(block, blocks, finish);
        } else {
            self.inner.write(block, blocks, finish);
        }
    }

    fn check_read(&self, block: u64, count: usize) -> Result<(), DiskError> {
        let state = self.state.lock();
        if state.is_gone {
            return Err(self.gone());
        }
        if is_in_range(block, count, self.inner.size_blocks())
            && let Some(bad) = state.unreadable.first_in(block..block + count as u64)
        {
            return Err(self.error(bad, "a block that cannot be read"));
        }
        Ok(())
    }

    fn check_flush(&self) -> Result<(), DiskError> {
        let state = self.state.lock();
        if state.is_gone {
            return Err(self.gone());
        }
        if state.refuses_flushes {
            return Err(self.error(0, "a flush that is refused"));
        }
        Ok(())
    }

    fn gone(&self) -> DiskError {
        DiskError::Gone { disk: self.inner.name().to_owned() }
    }

    fn error(&self, block: u64, what: &str) -> DiskError {
        let kind = format!("{what}, on demand");
        DiskError::Io { disk: self.inner.name().to_owned(), block, kind }
    }

    /// Has the inner disk do nothing, for the sake of when and where it tells that it did.
    fn refuse(&self, done: WriteDone) {
        self.inner.write(0, Vec::new(), done);
    }

    /// A completion that gets stuck if the disk hangs when it comes.
    fn stoppable<T: Send + 'static>(
        self: &Arc<Self>,
        done: Box<dyn FnOnce(T) + Send>,
    ) -> Box<dyn FnOnce(T) + Send> {
        let shared = Arc::clone(self);
        Box::new(move |value| {
            {
                let mut state = shared.state.lock();
                if state.hang == Some(Hang::Completions) {
                    state.held.push(Held::Completion(Box::new(move || done(value))));
                    return;
                }
            }
            done(value);
        })
    }
}

impl Disk for FailingDisk {
    fn name(&self) -> &str {
        self.0.inner.name()
    }

    fn size_blocks(&self) -> u64 {
        self.0.inner.size_blocks()
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        self.0.submit(Request::Read { block, count, done });
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.0.submit(Request::Write { block, blocks, is_durable: false, done });
    }

    fn write_durable(self: Arc<Self>, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.0.submit(Request::Write { block, blocks, is_durable: true, done });
    }

    fn flush(&self, done: WriteDone) {
        self.0.submit(Request::Flush { done });
    }

    /// Not through the queue: a disk that hangs takes no room back.
    fn discard(&self, block: u64, count_blocks: u64) {
        let takes = {
            let state = self.0.state.lock();
            state.hang.is_none() && !state.is_gone
        };
        if takes {
            self.0.inner.discard(block, count_blocks);
        }
    }

    fn hints(&self) -> MediaHints {
        self.0.inner.hints()
    }
}
