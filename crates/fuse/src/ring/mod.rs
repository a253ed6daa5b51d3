//! Requests over io_uring (`FUSE_OVER_IO_URING`, Linux 6.14 on), beside those on `/dev/fuse`.
//!
//! The kernel has a queue for each processor that there may be, and puts a request into an entry of
//! the queue of the processor that its program runs on. The command that brings the reply asks for
//! the next request, too: one system call for both. Decision 57 says when this is used.
//!
//! A thread has a ring for the queues of some processors, one if there are enough threads. A reply
//! that is made on another thread waits in an outbox, and wakes the ring's thread. What the kernel
//! tells without waiting for an answer (FORGET, INTERRUPT) stays on `/dev/fuse`, and so does what
//! this side tells the kernel.
//!
//! Invariants:
//! - A thread never waits for the service. It may wait for memory, as event loops do.
//! - An entry is at one place: with the kernel, with the reply to its request, or in the outbox.
//! - A queue has [`ENTRIES_MIN`] entries at least, and one more for each lock that is waited for:
//!   who gives back a lock must get through.
//! - A thread ends when the connection has ended, which an event loop on `/dev/fuse` tells, and the
//!   kernel has none of its entries any more.
//!
//! Fails: where the kernel cannot do it, the connection could not be cut, or there is no memory for
//! it, requests come through `/dev/fuse` as ever. What this side can find out is found out before
//! `INIT` is answered. The kernel may still refuse entries afterwards. If a queue gets none, the
//! kernel goes back to `/dev/fuse` by itself; threads without any entry are event loops there.

mod entry;
#[expect(unsafe_code, reason = "memory that the kernel writes into")]
mod kernel;
mod pending;
mod queues;
mod thread;

pub(crate) use pending::Pending;
pub(crate) use thread::Serving;

use crate::request_memory::RequestMemory;
use crate::session::{PAGE_BYTES, TRANSFER_BYTES_MAX};
use crate::{EndProcessOnPanic, or_cut};
use pending::Outbox;
use platform::thread::{self as threads, JoinHandle, spawn_prompt};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use thread::{RingThread, Share};

/// Most entries of a queue: requests of one processor that are under way at once. The service has
/// that many to keep disks busy with; beyond them the kernel keeps requests.
const ENTRIES_MAX: usize = 32;
/// Fewest entries of a queue. With less memory a mount is better off without rings: programs of a
/// processor would wait for each other.
const ENTRIES_MIN: usize = 4;
/// Most threads: as many as a mount has event loops without rings, for the same reason.
const THREADS_MAX: usize = 8;
/// Smallest transfer: an entry has room for the largest extended attribute, too.
const TRANSFER_BYTES_MIN: u32 = 128 << 10;

/// Rings whose threads wait for the outcome of `INIT`.
pub(crate) struct Rings {
    threads: Vec<Ready>,
}

/// A thread with a ring.
struct Ready {
    go: Sender<Serving>,
    thread: JoinHandle<io::Result<()>>,
    outbox: Arc<Outbox>,
}

/// Ends the threads of a mount's rings, if it has any, when the connection has ended.
#[derive(Clone, Default)]
pub(crate) struct RingEnds(Vec<Arc<Outbox>>);

impl RingEnds {
    /// An event loop on `/dev/fuse` has seen the end.
    pub(crate) fn tell(&self) {
        self.0.iter().for_each(|outbox| outbox.end());
    }
}

/// Whether the kernel offers requests over io_uring: not where it does not know of them.
const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";

/// With so many bytes of [`RequestMemory`] two mounts of this machine have rings; zero if the
/// kernel offers none now.
#[must_use]
pub fn request_bytes_of_rings() -> u64 {
    if !std::fs::read_to_string(ENABLED).is_ok_and(|is| is.trim_end() == "Y") {
        return 0;
    }
    let queues = queues::count().map_or(0, usize::from);
    let least_bytes = ENTRIES_MIN * entry::entry_bytes(TRANSFER_BYTES_MAX as usize) * queues;
    // Mounts reserve half of it.
    2 * 2 * least_bytes as u64
}

impl Rings {
    /// Makes rings for a mount with transfers of this size; none where there cannot be any.
    pub(crate) fn new(memory: &Arc<RequestMemory>, transfer_bytes: u32) -> Option<Self> {
        if transfer_bytes < TRANSFER_BYTES_MIN {
            return None;
        }
        // The kernel counts an entry's payload in its own pages, and would refuse all entries.
        if rustix::param::page_size() != PAGE_BYTES as usize {
            return None;
        }
        let queues = queues::count()?;
        let payload_bytes = transfer_bytes as usize;
        let each_bytes = entry::entry_bytes(payload_bytes) * usize::from(queues);
        let fits = |entries: &usize| memory.reserve(entries * each_bytes);
        let mut counts = (ENTRIES_MIN..=ENTRIES_MAX).rev();
        let least = || Some((ENTRIES_MIN, memory.reserve_least(ENTRIES_MIN * each_bytes)?));
        let most = counts.find_map(|entries| Some((entries, fits(&entries)?)));
        let (entries, reserved) = most.or_else(least)?;
        let reserved = Arc::new(reserved);
        let threads = threads::parallelism().min(usize::from(queues)).min(THREADS_MAX);
        let share = |thread| Share {
            queues: (0..queues).skip(thread).step_by(threads).collect(),
            entries,
            payload_bytes,
            reserved: Arc::clone(&reserved),
            // A thread on the processor of its programs is woken, and wakes them, without a word
            // to another one.
            is_bound: threads == usize::from(queues),
        };
        let threads = (0..threads).map(|thread| Ready::start(thread, share(thread)));
        let threads = threads.collect::<io::Result<_>>().ok()?;
        Some(Self { threads })
    }

    /// How many threads there are.
    pub(crate) fn thread_count(&self) -> usize {
        self.threads.len()
    }

    /// By which event loops tell that the connection has ended.
    pub(crate) fn ends(&self) -> RingEnds {
        RingEnds(self.threads.iter().map(|ready| Arc::clone(&ready.outbox)).collect())
    }

    /// Has the threads serve a mount, whose `INIT` has agreed on it.
    pub(crate) fn start(self, serving: &Serving) -> Vec<JoinHandle<io::Result<()>>> {
        let start = |ready: Ready| {
            let Ok(()) = ready.go.send(serving.clone()) else { unreachable!("it waits for that") };
            ready.thread
        };
        self.threads.into_iter().map(start).collect()
    }
}

impl Ready {
    fn start(number: usize, share: Share) -> io::Result<Self> {
        let outbox = Outbox::new()?;
        let (same, (go, wait), (made, is_made)) = (Arc::clone(&outbox), channel(), channel());
        let body = move || {
            let _guard = EndProcessOnPanic;
            let ring = match RingThread::new(share, same) {
                Ok(ring) => ring,
                Err(error) => {
                    let _told = made.send(Err(error));
                    return Ok(());
                }
            };
            let _told = made.send(Ok(()));
            // Without a word the mount goes without rings.
            let Ok(serving) = wait.recv() else { return Ok(()) };
            or_cut(ring.serve(&serving), serving.connection.as_ref())
        };
        let thread = spawn_prompt(&format!("fuse-ring-{number}"), body)?;
        let made = is_made.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
        made.map(|()| Self { go, thread, outbox })
    }
}
