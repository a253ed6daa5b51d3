//! A request in a ring's entry that has no reply yet, and the way of the reply back to the ring.
//!
//! Invariants: every entry that a thread gave to a request comes back through its outbox, once.
//! Whoever puts an entry there wakes the thread if it sleeps, and only then.
//!
//! Fails: the kernel refuses a reply to a mount that has ended. If the thread has ended, too, the
//! reply goes with the outbox.

use super::entry::Entry;
use super::kernel;
use crate::abi::OutHeader;
use crate::device::Device;
use crate::errno::Errno;
use platform::sync::Mutex;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Where replies wait for the ring's thread.
pub(super) struct Outbox {
    state: Mutex<State>,
    counter: Arc<OwnedFd>,
}

#[derive(Default)]
struct State {
    answered: Vec<Entry>,
    is_asleep: bool,
    /// The connection has ended.
    is_over: bool,
}

impl Outbox {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { state: Mutex::default(), counter: kernel::counter()? }))
    }

    /// What wakes the thread.
    pub(super) fn counter(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.counter)
    }

    /// Takes what has come into `into`, which is empty. From here on the thread must be woken. True
    /// if the connection has ended.
    pub(super) fn take_before_sleep(&self, into: &mut Vec<Entry>) -> bool {
        let mut state = self.state.lock();
        std::mem::swap(&mut state.answered, into);
        state.is_asleep = true;
        state.is_over
    }

    /// Takes what has come, by a thread that does not sleep.
    pub(super) fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.state.lock().answered)
    }

    /// The thread is awake, and will look.
    pub(super) fn is_awake(&self) {
        self.state.lock().is_asleep = false;
    }

    /// Whether the reply to a request is here already.
    pub(super) fn has(&self, slot: usize) -> bool {
        self.state.lock().answered.iter().any(|entry| entry.slot == slot)
    }

    /// The connection has ended. What waits for replies is not waited for.
    pub(super) fn end(&self) {
        self.state.lock().is_over = true;
        self.wake();
    }

    /// False if the connection has ended. The thread gets the reply all the same: an event loop
    /// that failed tells of an end, too, and whether there is one the kernel knows best.
    fn put(&self, entry: Entry) -> bool {
        let mut state = self.state.lock();
        let is_over = state.is_over;
        state.answered.push(entry);
        let wake = std::mem::take(&mut state.is_asleep);
        drop(state);
        if wake {
            self.wake();
        }
        !is_over
    }

    #[expect(clippy::host_endian_bytes, reason = "the kernel's counters are in the host's order")]
    fn wake(&self) {
        // The counter does not overflow in the life of a machine: it is written once per sleep.
        let written = rustix::io::write(&self.counter, &1_u64.to_ne_bytes());
        assert!(written.is_ok(), "an event counter takes a one: {written:?}");
    }
}

/// See the module.
pub(crate) struct Pending {
    /// None once answered.
    entry: Option<Entry>,
    unique: u64,
    outbox: Arc<Outbox>,
    device: Arc<Device>,
}

impl Pending {
    /// The request with the kernel's number `unique` in `entry`.
    pub(super) fn new(
        entry: Entry,
        unique: u64,
        outbox: &Arc<Outbox>,
        device: &Arc<Device>,
    ) -> Self {
        let (outbox, device) = (Arc::clone(outbox), Arc::clone(device));
        Self { entry: Some(entry), unique, outbox, device }
    }

    /// By which the kernel is told what is no reply.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Replies. False if nobody waits for it any more.
    pub(crate) fn send(mut self, header: OutHeader, body: &[IoSlice<'_>]) -> bool {
        let Some(mut entry) = self.entry.take() else { unreachable!("it is answered once") };
        entry.put_reply(header, body);
        self.outbox.put(entry)
    }
}

impl Drop for Pending {
    /// Nobody answered, and a process in the kernel waits.
    fn drop(&mut self) {
        if let Some(mut entry) = self.entry.take() {
            let length = size_of::<OutHeader>() as u32;
            let header = OutHeader { length, error: -Errno::IO.0, unique: self.unique };
            entry.put_reply(header, &[]);
            self.outbox.put(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_memory::RequestMemory;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    const HEADER: OutHeader = OutHeader { length: 16, error: 0, unique: 9 };

    struct Waits {
        outbox: Arc<Outbox>,
        device: Arc<Device>,
    }

    impl Waits {
        fn new() -> Self {
            let kind = SocketType::SEQPACKET;
            let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::empty(), None).unwrap();
            let device = Arc::new(Device::from_descriptor(pair.0));
            Self { outbox: Outbox::new().unwrap(), device }
        }

        fn pending(&self, slot: usize) -> Pending {
            let memory = RequestMemory::new(1 << 20);
            let entry = Entry::new(slot, 0, 64, &Arc::new(memory.reserve(64).unwrap()));
            Pending::new(entry, 9, &self.outbox, &self.device)
        }

        /// Whether the thread was woken, if it sleeps.
        fn is_woken(&self) -> bool {
            let counter = self.outbox.counter();
            let mut asked = [PollFd::new(&*counter, PollFlags::IN)];
            poll(&mut asked, Some(&Timespec::default())).unwrap() == 1
        }

        fn taken(&self) -> (Vec<usize>, bool) {
            let mut taken = Vec::new();
            let is_over = self.outbox.take_before_sleep(&mut taken);
            (taken.iter().map(|entry| entry.slot).collect(), is_over)
        }
    }

    #[test]
    fn replies_wake_a_thread_that_sleeps() {
        let waits = Waits::new();
        let (first, second, third) = (waits.pending(1), waits.pending(2), waits.pending(3));
        assert!(first.send(HEADER, &[]) && !waits.is_woken(), "it is awake, and will look");
        assert!(waits.outbox.has(1) && !waits.outbox.has(2));
        assert_eq!(waits.taken(), (vec![1], false));
        assert!(!waits.is_woken());
        assert!(second.send(HEADER, &[]) && waits.is_woken());
        // A reply that nobody made is an error, and comes back all the same.
        drop(third);
        assert_eq!(waits.taken(), (vec![2, 3], false));
    }

    #[test]
    fn a_reply_that_is_lost_is_an_error() {
        let waits = Waits::new();
        drop(waits.pending(1));
        let mut taken = waits.outbox.take();
        let (head, _) = taken[0].parts();
        let lost = OutHeader { length: 16, error: -Errno::IO.0, unique: 9 };
        assert_eq!(&head[..16], zerocopy::IntoBytes::as_bytes(&lost));
    }

    #[test]
    fn at_the_end_nobody_hears_replies_but_the_thread_has_them() {
        let waits = Waits::new();
        let (early, late) = (waits.pending(1), waits.pending(2));
        assert!(early.send(HEADER, &[]));
        assert_eq!(waits.taken(), (vec![1], false));
        waits.outbox.end();
        assert!(waits.is_woken());
        assert!(!late.send(HEADER, &[]));
        assert_eq!(waits.taken(), (vec![2], true));
    }
}
