//! The ring itself, and the commands that give entries to the kernel.
//!
//! Invariants: an entry is in `lent` from the command that gives it to the kernel until the
//! kernel's answer to that command; only the thread that made the ring uses it.
//!
//! Fails: the kernel refuses a command by an error number as its answer, which ends the entry.

use super::entry::{Entry, PARTS};
use crate::abi::{RingCommand, ring_command};
use crate::device::Device;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use zerocopy::IntoBytes as _;

/// Commands that are submitted at a time: one for each entry of a queue.
const SUBMISSIONS_MAX: u32 = 64;
/// Answers that have room until they are taken: more than a thread has entries, but for many
/// waiting locks. The kernel keeps what has no room.
const ANSWERS_MAX: u32 = 4096;
/// Marks the answers to the poll of the counter that wakes the thread.
const WAKE: u64 = u64::MAX;
/// Where a submission has the number of parts that its address leads to. The crate `io-uring` has
/// no method for it.
const PARTS_AT: usize = 24;
const _: () = assert!(size_of::<squeue::Entry128>() == 128);

/// What the kernel answers.
pub(super) enum Event {
    /// Somebody wrote the counter.
    Woken,
    /// There is a request in the entry.
    Request(Entry),
    /// The connection has ended, and with it an entry, which is freed.
    Ended,
    /// The kernel refuses an entry, which is freed.
    Refused(Errno),
}

pub(super) struct KernelRing {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// By slot: the entries that the kernel has.
    lent: Vec<Option<Entry>>,
    lent_count: usize,
    counter: Arc<OwnedFd>,
    is_polled: bool,
}

/// A counter that wakes a ring's thread.
pub(super) fn counter() -> io::Result<Arc<OwnedFd>> {
    Ok(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
}

impl KernelRing {
    /// The ring of the calling thread, which `counter` wakes.
    pub(super) fn new(counter: Arc<OwnedFd>) -> io::Result<Self> {
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // What has ended is seen by a call that does not wait, too.
            .setup_taskrun_flag()
            .setup_cqsize(ANSWERS_MAX)
            .build(SUBMISSIONS_MAX)?;
        Ok(Self { ring, lent: Vec::new(), lent_count: 0, counter, is_polled: false })
    }

    /// How many entries the kernel has.
    pub(super) fn lent_count(&self) -> usize {
        self.lent_count
    }

    /// Gives a new entry to the kernel, at once.
    pub(super) fn register(&mut self, device: &Device, mut entry: Entry) -> io::Result<()> {
        let (slot, queue) = (entry.slot, entry.queue);
        let places = Some(entry.places());
        let mut submission = command(device, ring_command::REGISTER, (queue, 0), slot, places);
        // SAFETY: a submission has 128 bytes, of which those from 24 on are a number of 32 bits.
        unsafe { (&raw mut submission).byte_add(PARTS_AT).cast::<u32>().write(PARTS as u32) };
        self.push(&submission)?;
        if self.lent.len() <= slot {
            self.lent.resize_with(slot + 1, || None);
        }
        self.lend(entry);
        // If the kernel does not take it now, a later call submits it. The array of places and the
        // parts are the entry's, so they are there still.
        self.enter(0)
    }

    /// Gives an entry back with the reply that is in it, when the ring is entered next.
    pub(super) fn commit(&mut self, device: &Device, entry: Entry) -> io::Result<()> {
        let of = (entry.queue, entry.commit);
        let submission = command(device, ring_command::COMMIT_AND_FETCH, of, entry.slot, None);
        self.push(&submission)?;
        self.lend(entry);
        Ok(())
    }

    fn lend(&mut self, entry: Entry) {
        let slot = entry.slot;
        let place = self.lent.get_mut(slot);
        let Some(place @ None) = place else { unreachable!("an entry has a place of its own") };
        *place = Some(entry);
        self.lent_count += 1;
    }

    fn push(&mut self, submission: &squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: the memory that the submission leads to (the array of places, and the parts
            // that it names) is on the heap and an entry's. The caller puts the entry into `lent`,
            // where it stays until the kernel has answered, however late the submission is taken.
            // The submission about the counter leads to no memory; `self` keeps the counter open.
            if unsafe { self.ring.submission().push(submission) }.is_ok() {
                return Ok(());
            }
            self.enter(0)?;
        }
    }

    /// Submits what was given, and waits until there is an answer.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        if !self.is_polled {
            let counter = types::Fd(self.counter.as_raw_fd());
            let poll = opcode::PollAdd::new(counter, u32::from(PollFlags::IN.bits())).multi(true);
            self.push(&poll.build().user_data(WAKE).into())?;
            self.is_polled = true;
        }
        self.enter(1)
    }

    /// Submits what was given.
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.enter(0)
    }

    fn enter(&mut self, answers_min: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(answers_min) {
            Ok(_) => Ok(()),
            // BUSY, AGAIN: the kernel wants answers to be taken first.
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::BUSY | Errno::AGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes one of the kernel's answers.
    pub(super) fn next(&mut self) -> Option<Event> {
        let answer = self.ring.completion().next()?;
        if answer.user_data() == WAKE {
            self.is_polled = cqueue::more(answer.flags());
            return Some(Event::Woken);
        }
        let lent =
            usize::try_from(answer.user_data()).ok().and_then(|slot| self.lent.get_mut(slot));
        let Some(entry) = lent.and_then(Option::take) else {
            unreachable!("the kernel answers what it was asked, once")
        };
        self.lent_count -= 1;
        Some(match answer.result() {
            0.. => Event::Request(entry),
            code => match Errno::from_raw_os_error(code.saturating_neg()) {
                Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED => Event::Ended,
                error => Event::Refused(error),
            },
        })
    }
}

impl Drop for KernelRing {
    /// What the kernel may still write to is never freed.
    fn drop(&mut self) {
        self.lent.drain(..).flatten().for_each(std::mem::forget);
    }
}

/// A command about an entry of a queue, whose request has a number. A new entry has an array of
/// places, too.
fn command(
    device: &Device,
    kind: u32,
    (queue, commit): (u16, u64),
    slot: usize,
    places: Option<u64>,
) -> squeue::Entry128 {
    let request = RingCommand { commit, queue, ..RingCommand::default() };
    let mut bytes = [0; 80];
    bytes[..size_of::<RingCommand>()].copy_from_slice(request.as_bytes());
    let command = opcode::UringCmd80::new(types::Fd(device.descriptor()), kind).cmd(bytes);
    command.addr(places).build().user_data(slot as u64)
}
