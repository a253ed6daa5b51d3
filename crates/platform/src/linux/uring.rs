//! A ring of io_uring and the thread that drives it.
//!
//! The thread sleeps in the kernel until a request completes or its event counter is written.
//! Submitters write the counter only while it sleeps. From Linux 6.1 on the kernel ends requests
//! when the thread asks, and not by interrupting it; each write of the counter wakes its poll then,
//! and nobody reads it.
//!
//! Invariants: at most [`RING_ENTRIES`] - 1 transfers are in the kernel, one entry is for the
//! counter's poll; a transfer is not touched while the kernel has it; only the thread submits to
//! the ring and reaps it.

use crate::DiskError;
use crate::linux::engine::AbortOnPanic;
use crate::linux::transfer::{Call, Progress, Transfer};
use crate::round;
use crate::stage::{self, Stage};
use crate::sync::Mutex;
use crate::thread;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Requests in the kernel at a time: keeps an SSD busy, and beyond it waiting costs no more here
/// than there.
const RING_ENTRIES: u32 = 256;
const TRANSFERS_MAX: usize = RING_ENTRIES as usize - 1;
/// Marks the completion of the counter's poll.
const WAKE: u64 = u64::MAX;

#[derive(Default)]
struct Waiting {
    transfers: VecDeque<Transfer>,
    asleep: bool,
    stopping: bool,
}

/// Where submitters leave transfers for a ring's thread.
pub(super) struct UringQueue {
    waiting: Mutex<Waiting>,
    counter: OwnedFd,
}

impl UringQueue {
    /// Starts a thread, which sets up its ring.
    pub(super) fn start(index: usize) -> io::Result<Arc<Self>> {
        let counter = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let queue = Arc::new(Self { waiting: Mutex::new(Waiting::default()), counter });
        let (same, (sender, receiver)) = (Arc::clone(&queue), channel());
        let body = move || {
            let _guard = AbortOnPanic;
            match Driver::new(same) {
                Ok(driver) => {
                    let _told = sender.send(Ok(()));
                    driver.run();
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        };
        thread::spawn_prompt(&format!("io-ring-{index}"), body)?;
        let started = receiver.recv().map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe));
        started.flatten().map(|()| queue)
    }

    /// The thread is woken at the end of the caller's round, for all that the round submits. Until
    /// then the thread counts as asleep, so that another thread that submits wakes it in time.
    pub(super) fn submit(self: &Arc<Self>, transfer: Transfer) {
        let asleep = {
            let mut waiting = self.waiting.lock();
            waiting.transfers.push_back(transfer);
            waiting.asleep
        };
        if asleep {
            let queue = Arc::clone(self);
            round::at_end(move || queue.wake_if_asleep());
        }
    }

    fn wake_if_asleep(&self) {
        if std::mem::take(&mut self.waiting.lock().asleep) {
            self.wake();
        }
    }

    pub(super) fn stop(&self) {
        self.waiting.lock().stopping = true;
        self.wake();
    }

    #[expect(clippy::host_endian_bytes, reason = "the kernel's counters are in the host's order")]
    fn wake(&self) {
        // The counter does not overflow in the life of a machine: it is written once per sleep.
        let written = rustix::io::write(&self.counter, &1_u64.to_ne_bytes());
        assert!(written.is_ok(), "an event counter takes a one: {written:?}");
    }
}

struct Driver {
    ring: IoUring,
    /// Whether its counter's poll goes on after a wake-up. The counter is not read then.
    polls_on: bool,
    queue: Arc<UringQueue>,
    slots: Vec<Option<Transfer>>,
    free: Vec<usize>,
    ready: VecDeque<Transfer>,
    poll_armed: bool,
}

impl Driver {
    fn new(queue: Arc<UringQueue>) -> io::Result<Self> {
        let (ring, polls_on) = new_ring()?;
        Ok(Self {
            ring,
            polls_on,
            queue,
            slots: std::iter::repeat_with(|| None).take(TRANSFERS_MAX).collect(),
            free: (0..TRANSFERS_MAX).rev().collect(),
            ready: VecDeque::new(),
            poll_armed: false,
        })
    }

    fn run(mut self) {
        let mut ended: Vec<(Transfer, Result<(), DiskError>)> = Vec::new();
        loop {
            let stopping = self.take_waiting();
            let is_idle = self.ready.is_empty() && self.free.len() == TRANSFERS_MAX;
            if stopping && is_idle && ended.is_empty() {
                return;
            }
            self.arm_poll();
            self.enter_ready(&mut ended);
            let submitting = stage::enter(Stage::Submit);
            let submitted = self.ring.submit_and_wait(usize::from(ended.is_empty()));
            drop(submitting);
            match submitted {
                Ok(_) => {}
                // EBUSY and EAGAIN: the kernel wants completions reaped first.
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                    ) => {}
                Err(error) => panic!("io_uring does not answer: {error}"),
            }
            self.queue.waiting.lock().asleep = false;
            // Owners are told while the kernel has what was ready: some do long work.
            for (transfer, result) in ended.drain(..) {
                transfer.finish(result);
            }
            self.reap(&mut ended);
        }
    }

    /// Takes what was submitted; from here on submitters must wake this thread.
    fn take_waiting(&mut self) -> bool {
        let mut waiting = self.queue.waiting.lock();
        self.ready.append(&mut waiting.transfers);
        waiting.asleep = true;
        waiting.stopping
    }

    fn arm_poll(&mut self) {
        if self.poll_armed {
            return;
        }
        let descriptor = types::Fd(self.queue.counter.as_raw_fd());
        let poll = opcode::PollAdd::new(descriptor, libc::POLLIN as u32).multi(self.polls_on);
        self.push(&poll.build().user_data(WAKE));
        self.poll_armed = true;
    }

    /// Hands ready transfers to the ring while there is room; those that need no call have ended.
    fn enter_ready(&mut self, ended: &mut Vec<(Transfer, Result<(), DiskError>)>) {
        while let Some(slot) = self.free.last().copied() {
            let Some(mut transfer) = self.ready.pop_front() else { break };
            if transfer.is_empty() {
                self.ready.extend(transfer.release());
                ended.push((transfer, Ok(())));
                continue;
            }
            self.free.pop();
            let entry = entry_for(&transfer.next_call()).user_data(slot as u64);
            self.slots[slot] = Some(transfer);
            self.push(&entry);
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the descriptor and the buffers that the entry names belong to a transfer in
        // `slots` (or to the queue), where they stay until its completion was seen.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "there are no more transfers than entries");
    }

    /// Takes the kernel's answers.
    fn reap(&mut self, ended: &mut Vec<(Transfer, Result<(), DiskError>)>) {
        while let Some(entry) = self.ring.completion().next() {
            let (token, result) = (entry.user_data(), entry.result());
            if token == WAKE {
                assert!(result >= 0, "the counter cannot be polled: {result}");
                self.poll_armed = cqueue::more(entry.flags());
                if !self.polls_on {
                    let mut value = [0; 8];
                    // Resets the counter. Would-block means that it was reset already.
                    let _reset = rustix::io::read(&self.queue.counter, &mut value);
                }
                continue;
            }
            let slot = token as usize;
            let Some(mut transfer) = self.slots.get_mut(slot).and_then(Option::take) else {
                unreachable!("the kernel answers what it was asked, once")
            };
            self.free.push(slot);
            match transfer.advance(i64::from(result)) {
                Progress::Again => self.ready.push_front(transfer),
                Progress::Over(result) => {
                    self.ready.extend(transfer.release());
                    ended.push((transfer, result));
                }
            }
        }
    }
}

/// A ring for the thread that asks for it, and whether polls may go on after an event: the kernel
/// that knows how to wait with what has ended knows that, too.
fn new_ring() -> io::Result<(IoUring, bool)> {
    let deferring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        // What has ended is seen by a call that does not wait, too.
        .setup_taskrun_flag()
        .build(RING_ENTRIES);
    match deferring {
        // The kernel does not know how.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Ok((IoUring::new(RING_ENTRIES)?, false))
        }
        ring => Ok((ring?, true)),
    }
}

fn entry_for(call: &Call) -> squeue::Entry {
    match *call {
        Call::Read { descriptor, vectors, count, offset } => {
            opcode::Readv::new(types::Fd(descriptor), vectors, count).offset(offset).build()
        }
        Call::Write { descriptor, vectors, count, offset, flags } => {
            opcode::Writev::new(types::Fd(descriptor), vectors, count)
                .offset(offset)
                .rw_flags(flags)
                .build()
        }
        Call::Flush { descriptor } => {
            opcode::Fsync::new(types::Fd(descriptor)).flags(types::FsyncFlags::DATASYNC).build()
        }
    }
}
