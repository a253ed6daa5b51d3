//! One connection's outgoing side: a queue of replies, and the right to write to the socket, which
//! passes from thread to thread.
//!
//! Whoever queues a reply while nobody writes becomes the writer and writes what is queued, his own
//! reply and those that others queue meanwhile, in gathering writes that never block. A thread with
//! many replies in hand does that once, at the end of its round ([`platform::round`]). The reader
//! holds the right while it dispatches what one read brought in, so that the replies to many
//! pipelined calls leave in one write. When the socket takes no more, the leftover waits for the
//! poller.
//!
//! Invariants:
//! - At most one thread writes at any time; replies leave in the order of the queue.
//! - Over all connections of a server, what calls and replies take is at most what its [`Memory`]
//!   allows, and one call for each connection beyond it: a connection with a call in
//!   flight waits, one without never does, so that none starves behind a client that does not read.
//! - Calls that were dispatched and whose replies are not written yet never exceed
//!   [`CALLS_IN_FLIGHT_MAX`]; once queued and promised bytes exceed [`REPLY_BYTES_MAX`] no further
//!   call is dispatched. So a client that does not read stops being read.
//! - After [`Connection::close`] nothing is queued and nothing is written.
//!
//! Fails: a socket error closes the connection; replies to its calls are dropped from then on.

use crate::outgoing::{Batch, Finished, Reply};
use crate::poller::Poller;
use platform::round;
use platform::sync::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Calls of one connection that are dispatched and not answered. The Linux client keeps up to
/// 65,536 slots, but queues in itself beyond what the server reads; 1,024 calls of 4 KiB are more
/// than a fast network holds in a round trip.
pub const CALLS_IN_FLIGHT_MAX: usize = 1024;
/// Bytes of replies that are queued or promised before reading stops: 16 READs of 1 MiB. Bounds
/// what a client that does not read its replies can pin in memory.
pub const REPLY_BYTES_MAX: usize = 16 << 20;
/// Bytes queued at which the reader writes before it dispatches on.
const HELD_BYTES_MAX: usize = 256 << 10;
/// How often a reader that waits for memory looks whether other connections have given some back:
/// nobody tells it, and its own calls in flight may take for ever.
const MEMORY_LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Gathering writes that a completing thread makes before the poller takes over: an engine's thread
/// must not become the writer of a busy connection for ever.
const WRITES_IN_A_ROW_MAX: usize = 16;

enum Writer {
    /// Nobody writes.
    Idle,
    /// A thread writes, or the reader holds writes back.
    Busy,
    /// The socket was full; the poller will go on with this.
    Waiting(Batch),
}

/// What the calls and replies of all connections of a server take.
#[derive(Debug)]
pub(crate) struct Memory {
    bytes: AtomicUsize,
    bytes_max: usize,
    /// Readers that wait until there is less.
    waiting: AtomicUsize,
}

impl Memory {
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { bytes: AtomicUsize::new(0), bytes_max, waiting: AtomicUsize::new(0) }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }
}

struct State {
    queue: VecDeque<Reply>,
    queue_cost_bytes: usize,
    writer: Writer,
    calls_in_flight: usize,
    /// Cost of all replies not written, and of calls in flight: themselves, and what they promised.
    reply_bytes: usize,
    reader_waits: bool,
    registered: bool,
    closed: bool,
}

/// What the reader is to do before it dispatches a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Dispatch,
    WriteFirst,
    Wait,
    Closed,
}

/// Where replies go.
pub(crate) enum Outlet {
    /// To a client; the poller goes on when its socket was full.
    Socket(Arc<TcpStream>, Arc<Poller>),
    /// To memory, which is never full ([`crate::dialogue`]).
    Memory(Mutex<Vec<u8>>),
}

pub(crate) struct Connection {
    id: u64,
    outlet: Outlet,
    memory: Arc<Memory>,
    state: Mutex<State>,
    room: Condvar,
}

impl Connection {
    pub(crate) fn new(id: u64, outlet: Outlet, memory: Arc<Memory>) -> Self {
        let state = State {
            queue: VecDeque::new(),
            queue_cost_bytes: 0,
            writer: Writer::Idle,
            calls_in_flight: 0,
            reply_bytes: 0,
            reader_waits: false,
            registered: false,
            closed: false,
        };
        Self { id, outlet, memory, state: Mutex::new(state), room: Condvar::new() }
    }

    /// What was written since the last time, if replies go to memory.
    pub(crate) fn take_written(&self) -> Vec<u8> {
        match &self.outlet {
            Outlet::Socket(..) => Vec::new(),
            Outlet::Memory(written) => std::mem::take(&mut written.lock()),
        }
    }

    /// Counts a call of `bytes` as in flight, if there is room for it. `held`: the reader has the
    /// writer's right, and so must write himself what has piled up.
    pub(crate) fn admit(&self, held: bool, bytes: usize) -> Admission {
        let mut state = self.state.lock();
        if state.closed {
            Admission::Closed
        } else if held && state.queue_cost_bytes > HELD_BYTES_MAX {
            Admission::WriteFirst
        } else if self.is_full(&state) {
            Admission::Wait
        } else {
            state.calls_in_flight += 1;
            self.charge(&mut state, bytes);
            Admission::Dispatch
        }
    }

    /// Blocks the reader until a call can be admitted or the connection is closed. The caller must
    /// not hold the writer's right.
    pub(crate) fn wait_for_room(&self) {
        let mut state = self.state.lock();
        while self.is_full(&state) && !state.closed {
            state.reader_waits = true;
            if state.is_full() {
                self.room.wait(&mut state);
            } else {
                self.memory.waiting.fetch_add(1, Ordering::Relaxed);
                self.room.wait_for(&mut state, MEMORY_LOOK_INTERVAL);
                self.memory.waiting.fetch_sub(1, Ordering::Relaxed);
            }
        }
        state.reader_waits = false;
    }

    /// Counts bytes that the reply to a call in flight will have.
    pub(crate) fn promise(&self, bytes: usize) {
        self.charge(&mut self.state.lock(), bytes);
    }

    fn charge(&self, state: &mut State, bytes: usize) {
        state.reply_bytes += bytes;
        self.memory.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn credit(&self, state: &mut State, bytes: usize) {
        state.reply_bytes -= bytes;
        self.memory.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn is_full(&self, state: &State) -> bool {
        state.is_full() || state.calls_in_flight > 0 && self.memory.bytes() > self.memory.bytes_max
    }

    /// Takes the writer's right, if nobody has it.
    pub(crate) fn hold(&self) -> bool {
        let mut state = self.state.lock();
        let free = matches!(state.writer, Writer::Idle);
        if free {
            state.writer = Writer::Busy;
        }
        free
    }

    /// Writes what was queued since [`Self::hold`], and gives the right back.
    pub(crate) fn release(&self) {
        let state = self.state.lock();
        assert!(matches!(state.writer, Writer::Busy), "released without being held");
        self.write_queue(state, Finished::default());
    }

    /// Queues the reply to a call that promised `promised` bytes, and writes it if nobody else
    /// does: with those that the thread queues in the same round.
    pub(crate) fn answer(self: &Arc<Self>, reply: Reply, promised: usize) {
        let mut state = self.state.lock();
        self.credit(&mut state, promised);
        if state.closed {
            state.calls_in_flight -= 1;
            return;
        }
        let cost = reply.cost_bytes();
        self.charge(&mut state, cost);
        state.queue_cost_bytes += cost;
        state.queue.push_back(reply);
        if matches!(state.writer, Writer::Idle) {
            state.writer = Writer::Busy;
            drop(state);
            let this = Arc::clone(self);
            round::at_end(move || this.release());
        } else {
            self.wake_reader(&mut state); // the promise may have been larger than the reply
        }
    }

    /// Ends a call that promised `promised` bytes and gets no reply.
    pub(crate) fn withdraw(&self, promised: usize) {
        let mut state = self.state.lock();
        state.calls_in_flight -= 1;
        self.credit(&mut state, promised);
        self.wake_reader(&mut state);
    }

    /// Goes on with the leftover: the socket takes bytes again, or is broken.
    pub(crate) fn resume(&self) {
        let mut state = self.state.lock();
        if let Writer::Waiting(batch) = std::mem::replace(&mut state.writer, Writer::Busy) {
            drop(state);
            self.write(batch);
        } else {
            unreachable!("armed only while a batch waits, and closing keeps it waiting");
        }
    }

    /// Ends the connection: pending replies are dropped, the reader and the poller wake up.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.closed = true;
            let dropped = std::mem::take(&mut state.queue);
            state.calls_in_flight -= dropped.len();
            let cost = std::mem::take(&mut state.queue_cost_bytes);
            self.credit(&mut state, cost);
            self.room.notify_one();
            dropped
        };
        drop(dropped); // payloads are freed outside the lock
        if let Outlet::Socket(socket, _) = &self.outlet {
            // It may be broken already; then there is nothing left to shut.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Also where the memory of all is full: the reader looks for that by itself.
    fn wake_reader(&self, state: &mut State) {
        if state.reader_waits && !state.is_full() {
            state.reader_waits = false;
            self.room.notify_one();
        }
    }

    /// Takes the queue for writing, or gives the writer's right back when it is empty.
    fn next_batch(&self, state: &mut State, finished: Finished) -> Batch {
        state.calls_in_flight -= finished.calls;
        self.credit(state, finished.cost_bytes);
        self.wake_reader(state);
        state.queue_cost_bytes = 0;
        if state.queue.is_empty() {
            state.writer = Writer::Idle;
        }
        Batch::new(std::mem::take(&mut state.queue))
    }

    fn write_queue(&self, mut state: MutexGuard<'_, State>, finished: Finished) {
        let batch = self.next_batch(&mut state, finished);
        drop(state);
        if !batch.is_empty() {
            self.write(batch);
        }
    }

    /// Writes until the queue is empty or the socket full. The caller has the writer's right.
    fn write(&self, mut batch: Batch) {
        let mut finished = Finished::default();
        for _ in 0..WRITES_IN_A_ROW_MAX {
            match self.send(&batch) {
                Ok(count) => {
                    let more = batch.advance(count);
                    finished.calls += more.calls;
                    finished.cost_bytes += more.cost_bytes;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.close();
                    return;
                }
            }
            if batch.is_empty() {
                batch = self.next_batch(&mut self.state.lock(), finished);
                finished = Finished::default();
                if batch.is_empty() {
                    return;
                }
            }
        }
        self.leave_to_poller(batch, finished);
    }

    fn send(&self, batch: &Batch) -> Result<usize, Errno> {
        match &self.outlet {
            Outlet::Socket(socket, _) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                sendmsg(socket, &batch.slices(), &mut SendAncillaryBuffer::default(), flags)
            }
            Outlet::Memory(written) => {
                let mut written = written.lock();
                let before = written.len();
                batch.slices().iter().for_each(|slice| written.extend_from_slice(slice));
                Ok(written.len() - before)
            }
        }
    }

    fn leave_to_poller(&self, batch: Batch, finished: Finished) {
        let armed = {
            let mut state = self.state.lock();
            state.calls_in_flight -= finished.calls;
            self.credit(&mut state, finished.cost_bytes);
            self.wake_reader(&mut state);
            state.writer = Writer::Waiting(batch);
            let first = !std::mem::replace(&mut state.registered, true);
            match &self.outlet {
                Outlet::Socket(socket, poller) => poller.arm(socket, self.id, first),
                Outlet::Memory(_) => Err(Errno::NOBUFS), // more than a dialogue ever answers
            }
        };
        if armed.is_err() {
            self.close();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Of a closed connection: what waited for the poller was never written.
        let left = std::mem::take(&mut self.state.get_mut().reply_bytes);
        self.memory.bytes.fetch_sub(left, Ordering::Relaxed);
    }
}

impl State {
    fn is_full(&self) -> bool {
        self.calls_in_flight >= CALLS_IN_FLIGHT_MAX || self.reply_bytes > REPLY_BYTES_MAX
    }
}
