//! The engine that all disks of a process share: it owns the threads on which I/O happens.
//!
//! Durable writes have a lane of their own, with blocking calls: a client waits for each, and on a
//! ring one would stand behind the image's writes and their completions, and end on one more thread
//! of the kernel's before its flush.
//!
//! Invariants: every transfer that was submitted is finished, also when the engine is dropped
//! meanwhile; the threads end after the last.

use crate::linux::transfer::{Call, Progress, Transfer};
use crate::linux::uring::UringQueue;
use crate::linux::window::WriteWindow;
use crate::sync::{Condvar, Mutex};
use crate::thread;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Threads of the engine without io_uring. A request occupies one for its whole life, so this is
/// the queue depth; more would help an array of disks, but io_uring is the answer there.
const THREADS_COUNT: usize = 8;
/// Threads of the lane for durable writes. A log has one such write under way: while one thread
/// tells those who waited for a batch, the other writes the next.
const DURABLE_THREADS_COUNT: usize = 2;
/// Rings: completions (checksums, parity) run on the ring's thread, so more than one.
const RINGS_COUNT_MIN: usize = 2;
/// With 16 cores, eight read four times as much as two from many fast disks, and the cores are what
/// is busy then (`stroop bench model`).
const RINGS_COUNT_MAX: usize = 8;

/// Blocks that go to one ring before the next has its turn: small requests that come together are
/// handed to the kernel together, which costs a device one notice.
const RING_TURN_BLOCKS: usize = 8;

/// How an engine reaches the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoEngineKind {
    /// io_uring if the kernel allows it, else threads.
    Automatic,
    /// io_uring.
    Uring,
    /// A few threads with blocking calls.
    Threads,
}

enum Backend {
    Rings { rings: Vec<Arc<UringQueue>>, next: AtomicUsize },
    Threads(Arc<ThreadQueue>),
}

/// Performs the I/O of [`crate::linux::FileDisk`]s.
pub struct IoEngine {
    backend: Backend,
    durable: Arc<ThreadQueue>,
    /// By the number of the device.
    windows: Mutex<BTreeMap<u64, Arc<WriteWindow>>>,
}

impl IoEngine {
    /// Starts an engine.
    ///
    /// # Errors
    /// When threads cannot be started, or [`IoEngineKind::Uring`] is asked for and refused.
    pub fn start(kind: IoEngineKind) -> io::Result<Arc<Self>> {
        let backend = match kind {
            IoEngineKind::Uring => start_rings()?,
            IoEngineKind::Threads => start_threads()?,
            IoEngineKind::Automatic => start_rings().or_else(|_| start_threads())?,
        };
        let durable = ThreadQueue::start("io-durable", DURABLE_THREADS_COUNT)?;
        Ok(Arc::new(Self { backend, durable, windows: Mutex::default() }))
    }

    /// What it turned out to be.
    #[must_use]
    pub fn kind(&self) -> IoEngineKind {
        match self.backend {
            Backend::Rings { .. } => IoEngineKind::Uring,
            Backend::Threads(_) => IoEngineKind::Threads,
        }
    }

    /// The window that all disks of a device share.
    pub(super) fn window(&self, device: u64) -> Arc<WriteWindow> {
        Arc::clone(self.windows.lock().entry(device).or_default())
    }

    pub(super) fn submit(&self, transfer: Transfer) {
        transfer.begin();
        if transfer.is_durable_write() {
            return self.durable.submit(transfer);
        }
        let Some(transfer) = transfer.admit() else { return };
        match &self.backend {
            Backend::Rings { rings, next } => {
                rings[turn(next, transfer.block_count()) % rings.len()].submit(transfer);
            }
            Backend::Threads(queue) => queue.submit(transfer),
        }
    }
}

impl Drop for IoEngine {
    fn drop(&mut self) {
        // No join: the last owner may be a completion, on the very thread.
        self.durable.stop();
        match &self.backend {
            Backend::Rings { rings, .. } => rings.iter().for_each(|ring| ring.stop()),
            Backend::Threads(queue) => queue.stop(),
        }
    }
}

/// Whose turn it is to take a request of so many blocks: a large one is a turn of its own.
fn turn(next: &AtomicUsize, blocks: usize) -> usize {
    next.fetch_add(blocks.clamp(1, RING_TURN_BLOCKS), Ordering::Relaxed) / RING_TURN_BLOCKS
}

/// Threads on which completions of disks run, where so many threads can run at the same time: half
/// as many, for what completions do is half of the work of a read or less.
#[must_use]
pub fn completion_threads_count(parallelism: usize) -> usize {
    (parallelism / 2).clamp(RINGS_COUNT_MIN, RINGS_COUNT_MAX).min(parallelism)
}

fn start_rings() -> io::Result<Backend> {
    let count = completion_threads_count(thread::parallelism());
    let mut rings: Vec<Arc<UringQueue>> = Vec::new();
    for index in 0..count {
        match UringQueue::start(index) {
            Ok(ring) => rings.push(ring),
            Err(error) => {
                rings.iter().for_each(|ring| ring.stop());
                return Err(error);
            }
        }
    }
    Ok(Backend::Rings { rings, next: AtomicUsize::new(0) })
}

fn start_threads() -> io::Result<Backend> {
    Ok(Backend::Threads(ThreadQueue::start("io", THREADS_COUNT)?))
}

#[derive(Default)]
struct Waiting {
    transfers: VecDeque<Transfer>,
    stopping: bool,
}

#[derive(Default)]
struct ThreadQueue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl ThreadQueue {
    fn start(name: &str, threads_count: usize) -> io::Result<Arc<Self>> {
        let queue = Arc::new(Self::default());
        for index in 0..threads_count {
            let worker = Arc::clone(&queue);
            let started = thread::spawn_prompt(&format!("{name}-{index}"), move || worker.run());
            if let Err(error) = started {
                queue.stop();
                return Err(error);
            }
        }
        Ok(queue)
    }

    fn submit(&self, transfer: Transfer) {
        self.waiting.lock().transfers.push_back(transfer);
        self.changed.notify_one();
    }

    fn stop(&self) {
        self.waiting.lock().stopping = true;
        self.changed.notify_all();
    }

    fn take(&self) -> Option<Transfer> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(transfer) = waiting.transfers.pop_front() {
                return Some(transfer);
            }
            if waiting.stopping {
                return None;
            }
            self.changed.wait(&mut waiting);
        }
    }

    fn run(&self) {
        let _guard = AbortOnPanic;
        while let Some(mut transfer) = self.take() {
            let result = loop {
                if transfer.is_empty() {
                    break Ok(());
                }
                let answer = perform(&transfer.next_call());
                if let Progress::Over(result) = transfer.advance(answer) {
                    break result;
                }
            };
            // What waited for room in the device goes first: telling may take a while.
            transfer.release().into_iter().for_each(|admitted| self.submit(admitted));
            transfer.finish(result);
        }
    }
}

/// The system call itself: bytes moved, or a negative error number.
fn perform(call: &Call) -> i64 {
    // SAFETY: the descriptor and the buffers belong to the transfer that made the call, which is
    // alive and untouched until this returns.
    let answer = unsafe {
        match *call {
            Call::Read { descriptor, vectors, count, offset } => {
                libc::preadv(descriptor, vectors, count as i32, offset as libc::off_t)
            }
            Call::Write { descriptor, vectors, count, offset, flags } => {
                let offset = offset as libc::off_t;
                libc::pwritev2(descriptor, vectors, count as i32, offset, flags)
            }
            Call::Flush { descriptor } => libc::fdatasync(descriptor) as isize,
        }
    };
    if answer >= 0 {
        return answer as i64;
    }
    -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// Ends the process when its thread panics: whoever waits for a completion would wait for ever.
pub(super) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_requests_go_to_a_ring_together_and_large_ones_in_turns() {
        let turns = |blocks: usize| {
            let next = AtomicUsize::new(0);
            (0..16).map(|_| turn(&next, blocks) % 2).collect::<Vec<_>>()
        };
        assert_eq!(turns(1), [[0; 8], [1; 8]].concat());
        for blocks in [8, 16, 64, 256] {
            assert_eq!(turns(blocks), [0, 1].repeat(8), "{blocks} blocks");
        }
    }
}
