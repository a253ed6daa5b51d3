//! A request in a ring's entry that has no reply yet, and the way of the reply back to the ring.
//!
//! Invariants: every entry that a thread gave to a request comes back through its outbox, once.
//! Whoever puts an entry there wakes the thread if it sleeps, and only then.
//!
//! Fails: a reply to a mount that has ended is dropped.

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

    fn put(&self, entry: Entry) -> bool {
        let mut state = self.state.lock();
        if state.is_over {
            return false;
        }
        state.answered.push(entry);
        let wake = std::mem::take(&mut state.is_asleep);
        drop(state);
        if wake {
            self.wake();
        }
        true
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
