//! The thread of a ring: takes requests, starts them, and gives replies back.
//!
//! A program that waits for a lock keeps its entry, for as long as it waits. So the thread gives
//! the queue another entry then. A request that came before that entry is not put into it: the
//! kernel does so only when a reply comes. So the thread has the kernel make a request on that
//! queue, which is answered at once.
//!
//! Where the kernel refuses all entries of a thread, the kernel sends requests through `/dev/fuse`.
//! The thread is an event loop there then.
//!
//! Fails: [`std::io::Error`] where the kernel does not let the ring be used any more.

use super::entry::Entry;
use super::kernel::{Event, KernelRing};
use super::pending::{Outbox, Pending};
use super::queues;
use crate::abi::{InHeader, opcode};
use crate::connection::Connection;
use crate::device::Device;
use crate::request::{Buffer, Request};
use crate::request_memory::{MountMemory, Reserved};
use crate::server::Server;
use crate::session;
use std::io;
use std::sync::Arc;
use zerocopy::FromBytes as _;

/// From here on are the numbers of requests that this side had the kernel make.
const RETRIEVE_NUMBERS: u64 = 1 << 63;

/// What a thread serves.
#[derive(Clone)]
pub(crate) struct Serving {
    pub server: Arc<Server>,
    pub device: Arc<Device>,
    pub memory: Arc<MountMemory>,
    /// None if its number could not be read.
    pub connection: Option<Arc<Connection>>,
}

/// A thread's part of the queues.
pub(super) struct Share {
    pub queues: Vec<u16>,
    /// Entries of each queue.
    pub entries: usize,
    pub payload_bytes: usize,
    /// The memory of all entries.
    pub reserved: Arc<Reserved>,
    /// Whether the thread runs on the processor of its queue only.
    pub is_bound: bool,
}

/// A thread that has its ring.
pub(super) struct RingThread {
    share: Share,
    ring: KernelRing,
    outbox: Arc<Outbox>,
    /// Entries that there are.
    slots: usize,
    queues: Vec<Queue>,
}

/// A queue of the kernel.
struct Queue {
    number: u16,
    entries: usize,
    /// Entries whose requests wait for a lock.
    waiting: usize,
}

impl RingThread {
    /// On the thread itself.
    pub(super) fn new(share: Share, outbox: Arc<Outbox>) -> io::Result<Self> {
        queues::may_choose()?;
        let ring = KernelRing::new(outbox.counter())?;
        let queue = |number: &u16| Queue { number: *number, entries: 0, waiting: 0 };
        let queues = share.queues.iter().map(queue).collect();
        Ok(Self { share, ring, outbox, slots: 0, queues })
    }

    /// Until the connection ends.
    pub(super) fn serve(mut self, serving: &Serving) -> io::Result<()> {
        if self.share.is_bound
            && let [queue] = self.share.queues[..]
        {
            // Elsewhere it is slower, and right.
            let _best_effort = queues::bind(queue);
        }
        for _ in 0..self.share.entries {
            for queue in 0..self.queues.len() {
                self.add_entry(queue, &serving.device)?;
            }
        }
        let mut buffer = Arc::new(serving.memory.first());
        let (mut answered, mut has_served, mut is_refused) = (Vec::new(), false, false);
        loop {
            let is_over = self.outbox.take_before_sleep(&mut answered);
            self.give_back(&mut answered, &serving.device)?;
            if is_over && self.ring.lent_count() == 0 {
                return Ok(());
            }
            self.ring.wait()?;
            self.outbox.is_awake();
            while let Some(event) = self.ring.next() {
                match event {
                    // The outbox is looked into anyway.
                    Event::Woken | Event::Ended => {}
                    // A reply that is refused leaves its request in the kernel, unanswered.
                    Event::Refused(error) if has_served => return Err(error.into()),
                    // The kernel sends all requests through `/dev/fuse` then.
                    Event::Refused(_) => is_refused = true,
                    Event::Request(entry) => {
                        has_served = true;
                        buffer = match self.start(entry, buffer, serving)? {
                            Some(buffer) => buffer,
                            // The connection has ended while this waited for memory.
                            None => Arc::new(serving.memory.first()),
                        }
                    }
                }
            }
            if is_refused && !has_served && self.ring.lent_count() == 0 {
                // No request comes over this ring, and `/dev/fuse` needs more than one loop.
                drop((self, buffer));
                return serve_device(serving);
            }
        }
    }

    /// Gives the kernel what was answered.
    fn give_back(&mut self, answered: &mut Vec<Entry>, device: &Device) -> io::Result<()> {
        for mut entry in answered.drain(..) {
            if std::mem::take(&mut entry.waits)
                && let Some(queue) = self.queues.iter_mut().find(|own| own.number == entry.queue)
            {
                queue.waiting -= 1;
            }
            self.ring.commit(device, entry)?;
        }
        Ok(())
    }

    /// Starts the request in an entry; the buffer for the next one.
    fn start(
        &mut self,
        mut entry: Entry,
        buffer: Buffer,
        serving: &Serving,
    ) -> io::Result<Option<Buffer>> {
        let Serving { server, device, memory, .. } = serving;
        if Arc::strong_count(&buffer) > 1 {
            // A write has it still, and this may have to wait: replies made before do not wait
            // with it.
            let mut answered = self.outbox.take();
            self.give_back(&mut answered, device)?;
            self.ring.submit()?;
        }
        let Some(mut buffer) = memory.next(buffer, || !device.is_connected()) else {
            return Ok(None);
        };
        let Some(room) = Arc::get_mut(&mut buffer) else { unreachable!("shared with nobody") };
        let (slot, queue) = (entry.slot, entry.queue);
        let length = entry.take_request(room);
        let unique = entry.commit;
        let header = length.and_then(|_| InHeader::read_from_prefix(room).ok());
        let waits_for = header
            .filter(|(header, _)| header.opcode == opcode::SETLKW)
            .map(|(header, _)| header.node);
        entry.waits = waits_for.is_some();
        let pending = Pending::new(entry, unique, &self.outbox, device);
        if let Some(length) = length
            && let Some(request) = Request::parse(&buffer, length, pending)
        {
            server.dispatch(request);
        }
        if let Some(file) = waits_for {
            self.widen((queue, slot), file, device)?;
        }
        Ok(Some(buffer))
    }

    /// A request of a queue may wait for long for a lock of a file: there has to be an entry for
    /// others.
    fn widen(&mut self, (queue, slot): (u16, usize), file: u64, device: &Device) -> io::Result<()> {
        let place = self.queues.iter().position(|own| own.number == queue);
        let Some((place, own)) = place.and_then(|at| Some((at, self.queues.get_mut(at)?))) else {
            unreachable!("an entry is of a queue of this thread")
        };
        own.waiting += 1;
        if self.outbox.has(slot) || own.entries - own.waiting >= self.share.entries {
            return Ok(());
        }
        self.add_entry(place, device)?;
        // Whether a request came while the kernel had no entry is not known here. The kernel counts
        // its own up from 0, by 2.
        let number = RETRIEVE_NUMBERS | u64::from(queue) << 40 | (self.slots as u64) << 1;
        queues::on(queue, || device.retrieve_nothing(file, number));
        Ok(())
    }

    fn add_entry(&mut self, queue: usize, device: &Device) -> io::Result<()> {
        let Some(queue) = self.queues.get_mut(queue) else { unreachable!("it is one of these") };
        let entry =
            Entry::new(self.slots, queue.number, self.share.payload_bytes, &self.share.reserved);
        self.slots += 1;
        queue.entries += 1;
        self.ring.register(device, entry)
    }
}

/// Serves the mount as an event loop on `/dev/fuse`.
fn serve_device(Serving { server, device, memory, .. }: &Serving) -> io::Result<()> {
    // Where the device cannot be opened again, loops share it.
    let own = device.sibling().map_or_else(|_| Arc::clone(device), Arc::new);
    session::serve(server, &own, memory)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_memory::RequestMemory;
    use crate::tests::service;
    use rustix::pipe::pipe;
    use std::time::Duration;

    /// A pipe knows no commands, so all entries are refused. The loop that is left ends at the end
    /// of the pipe.
    #[test]
    fn a_thread_whose_entries_are_all_refused_is_an_event_loop() {
        let shared = RequestMemory::new(1 << 20);
        let reserved = Arc::new(shared.reserve(1 << 10).unwrap());
        let queues = vec![0];
        let share = Share { queues, entries: 4, payload_bytes: 64, reserved, is_bound: false };
        let Ok(ring) = RingThread::new(share, Outbox::new().unwrap()) else {
            println!("skipped: io_uring cannot be used here");
            return;
        };
        let (reads, writes) = pipe().unwrap();
        let device = Arc::new(Device::from_descriptor(reads));
        let service = service();
        let root = crate::root_of("home", service.as_ref()).unwrap().handle;
        let server = Server::new(service, root, Duration::ZERO.into(), None);
        let memory = MountMemory::new(shared, 4096, 1);
        drop(writes);
        ring.serve(&Serving { server, device, memory, connection: None }).unwrap();
    }
}
