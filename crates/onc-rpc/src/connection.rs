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
//! - What a connection makes the server keep is taken from its client's [`Account`] first: the
//!   record that is being received, each call with the reply that it may get, each reply until the
//!   socket has it. A call that does not fit waits, and so does the reading of its connection.
//! - Calls that were dispatched and whose replies are not written yet never exceed
//!   [`CALLS_IN_FLIGHT_MAX`]; once a connection has more than [`CONNECTION_BYTES_MAX`] no further
//!   call is dispatched. So a client that does not read stops being read.
//! - After [`Connection::close`] nothing is queued and nothing is written, and what waited to be
//!   written is gone.
//!
//! Fails: a socket error closes the connection; replies to its calls are dropped from then on.

use crate::account::{Account, Use, Waker};
use crate::outgoing::{Batch, Finished, Reply};
use crate::poller::Poller;
use platform::round;
use platform::stage::{self, Stage};
use platform::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use platform::sync::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

/// Calls of one connection that are dispatched and not answered. The Linux client keeps up to
/// 65,536 slots, but queues in itself beyond what the server reads; 1,024 calls of 4 KiB are more
/// than a fast network holds in a round trip.
pub const CALLS_IN_FLIGHT_MAX: usize = 1024;
/// Bytes that one connection has before reading stops: 16 READs of 1 MiB, and never more than half
/// of what its client may have. Bounds what a connection that does not read its replies can pin.
pub const CONNECTION_BYTES_MAX: usize = 16 << 20;
/// Bytes queued at which the reader writes before it dispatches on.
const HELD_BYTES_MAX: usize = 256 << 10;
/// What a reply may be smaller than its promise before the difference is given back at once and
/// not with the reply: most replies are smaller by less.
const PROMISE_SLACK_BYTES: usize = 1 << 10;
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

struct State {
    queue: VecDeque<Reply>,
    queue_cost_bytes: usize,
    writer: Writer,
    calls_in_flight: usize,
    /// What its client's account is charged: replies not written, calls in flight with what they
    /// promised, the record that is being received.
    charged_bytes: usize,
    reader_waits: bool,
    /// Times that the socket took something after it had been full.
    resumed: u64,
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

/// How a connection is getting on, for whoever ends those that do not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Progress {
    /// The reader's position ([`crate::RecordReader::position`]); `None` while it waits for room.
    pub(crate) position: Option<u64>,
    pub(crate) calls_in_flight: usize,
    /// Of a connection whose socket is full: how often it has taken something after being so.
    pub(crate) is_full_for: Option<u64>,
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
    account: Arc<Account>,
    bytes_max: usize,
    state: Mutex<State>,
    room: Condvar,
    /// Of the reader, where it waits for the account.
    waker: Arc<Waker>,
    is_waiting: AtomicBool,
    position: AtomicU64,
}

impl Connection {
    pub(crate) fn new(id: u64, outlet: Outlet, account: Arc<Account>) -> Self {
        let state = State {
            queue: VecDeque::new(),
            queue_cost_bytes: 0,
            writer: Writer::Idle,
            calls_in_flight: 0,
            charged_bytes: 0,
            reader_waits: false,
            resumed: 0,
            registered: false,
            closed: false,
        };
        let bytes_max = CONNECTION_BYTES_MAX.min(account.bytes_max() / 2);
        Self {
            id,
            outlet,
            account,
            bytes_max,
            state: Mutex::new(state),
            room: Condvar::new(),
            waker: Arc::default(),
            is_waiting: AtomicBool::new(false),
            position: AtomicU64::new(0),
        }
    }

    /// What was written since the last time, if replies go to memory.
    pub(crate) fn take_written(&self) -> Vec<u8> {
        match &self.outlet {
            Outlet::Socket(..) => Vec::new(),
            Outlet::Memory(written) => std::mem::take(&mut written.lock()),
        }
    }

    /// What the client's account is charged for this connection.
    #[cfg(test)]
    pub(crate) fn charged_bytes(&self) -> usize {
        self.state.lock().charged_bytes
    }

    /// Counts a call as in flight, if there is room for `bytes`, or takes them for a record that is
    /// being received. `held`: the reader has the writer's right, and so must write himself what
    /// has piled up.
    pub(crate) fn admit(&self, held: bool, bytes: usize, is_call: bool) -> Admission {
        let mut state = self.state.lock();
        if state.closed {
            Admission::Closed
        } else if held && state.queue_cost_bytes > HELD_BYTES_MAX {
            Admission::WriteFirst
        } else if self.is_full(&state) || self.account.take(bytes, Use::Call).is_err() {
            Admission::Wait
        } else {
            state.calls_in_flight += usize::from(is_call);
            state.charged_bytes += bytes;
            Admission::Dispatch
        }
    }

    /// Blocks the reader until `bytes` may fit or the connection is closed. The caller must not
    /// hold the writer's right.
    pub(crate) fn wait_for_room(&self, bytes: usize) {
        self.is_waiting.store(true, Ordering::Relaxed);
        {
            let mut state = self.state.lock();
            while self.is_full(&state) && !state.closed {
                state.reader_waits = true;
                self.room.wait(&mut state);
            }
            state.reader_waits = false;
        }
        self.account.wait(bytes, &self.waker, || self.state.lock().closed);
        self.is_waiting.store(false, Ordering::Relaxed);
    }

    /// Lets the next one have room that is left, after a wait.
    pub(crate) fn wake_next(&self) {
        self.account.wake_next();
    }

    /// Takes memory for the reader's buffer, if there is plenty.
    pub(crate) fn take_for_buffer(&self, bytes: usize) -> bool {
        let is_taken = self.account.take(bytes, Use::Buffer).is_ok();
        self.state.lock().charged_bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    /// Gives back memory of the reader's buffer.
    pub(crate) fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.credit(&mut self.state.lock(), bytes);
        }
    }

    /// The reader is here in the stream, and waits for more of it.
    pub(crate) fn note_position(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> Progress {
        let state = self.state.lock();
        let is_waiting = state.reader_waits || self.is_waiting.load(Ordering::Relaxed);
        let is_full = matches!(state.writer, Writer::Waiting(_));
        Progress {
            position: (!is_waiting).then(|| self.position.load(Ordering::Relaxed)),
            calls_in_flight: state.calls_in_flight,
            is_full_for: is_full.then_some(state.resumed),
        }
    }

    fn charge(&self, state: &mut State, bytes: usize) {
        state.charged_bytes += bytes;
        self.account.charge(bytes);
    }

    fn credit(&self, state: &mut State, bytes: usize) {
        state.charged_bytes -= bytes;
        // Nothing makes no room: readers that wait would wake each other in a ring.
        if bytes > 0 {
            self.account.give_back(bytes);
        }
    }

    fn is_full(&self, state: &State) -> bool {
        state.calls_in_flight >= CALLS_IN_FLIGHT_MAX || state.charged_bytes > self.bytes_max
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

    /// Queues the reply to a call for which `charged` bytes were taken, and writes it if nobody
    /// else does: with those that the thread queues in the same round.
    pub(crate) fn answer(self: &Arc<Self>, mut reply: Reply, charged: usize) {
        let mut state = self.state.lock();
        if state.closed {
            state.calls_in_flight -= 1;
            self.credit(&mut state, charged);
            return;
        }
        let cost = reply.cost_bytes();
        reply.set_charged(charged);
        if cost > charged {
            self.charge(&mut state, cost - charged);
            reply.set_charged(cost);
        } else if charged - cost > PROMISE_SLACK_BYTES {
            self.credit(&mut state, charged - cost);
            reply.set_charged(cost);
        }
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

    /// Ends a call for which `charged` bytes were taken and that gets no reply.
    pub(crate) fn withdraw(&self, charged: usize) {
        let mut state = self.state.lock();
        state.calls_in_flight -= 1;
        self.credit(&mut state, charged);
        self.wake_reader(&mut state);
    }

    /// Goes on with the leftover: the socket takes bytes again, or is broken.
    pub(crate) fn resume(&self) {
        let mut state = self.state.lock();
        if !matches!(state.writer, Writer::Waiting(_)) {
            assert!(state.closed, "armed only while a batch waits");
            return;
        }
        state.resumed += 1;
        if let Writer::Waiting(batch) = std::mem::replace(&mut state.writer, Writer::Busy) {
            drop(state);
            self.write(batch);
        }
    }

    /// Ends the connection: pending replies are dropped, the reader and the poller wake up.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut state = self.state.lock();
            state.closed = true;
            let queue = std::mem::take(&mut state.queue);
            state.queue_cost_bytes = 0;
            let waiting = match std::mem::replace(&mut state.writer, Writer::Idle) {
                Writer::Waiting(batch) => batch,
                other => {
                    state.writer = other;
                    Batch::default()
                }
            };
            for finished in [Finished::all(&queue), waiting.left()] {
                state.calls_in_flight -= finished.calls;
                self.credit(&mut state, finished.charged_bytes);
            }
            self.room.notify_one();
            (queue, waiting)
        };
        drop(dropped); // payloads are freed outside the lock
        self.waker.wake();
        if let Outlet::Socket(socket, _) = &self.outlet {
            // It may be broken already; then there is nothing left to shut.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Where the account is full, that wakes the reader.
    fn wake_reader(&self, state: &mut State) {
        if state.reader_waits && !self.is_full(state) {
            state.reader_waits = false;
            self.room.notify_one();
        }
    }

    /// Takes the queue for writing, or gives the writer's right back when it is empty.
    fn next_batch(&self, state: &mut State, finished: Finished) -> Batch {
        state.calls_in_flight -= finished.calls;
        self.credit(state, finished.charged_bytes);
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
                    finished.charged_bytes += more.charged_bytes;
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
        let _stage = stage::enter(Stage::Reply);
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
            self.credit(&mut state, finished.charged_bytes);
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
        // Of a closed connection: the record that was being received, and replies that a thread
        // was writing when the socket failed.
        self.account.give_back(self.state.get_mut().charged_bytes);
    }
}
