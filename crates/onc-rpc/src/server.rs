//! The server: a listener, one reader thread per connection, one poller thread for slow clients.
//!
//! Invariants: see the crate. [`Server::stop`] returns when no thread of the server is left; calls
//! that are still in flight in the service then are answered into the void.
//!
//! Fails: [`RpcError`] from [`Server::start`]. Later failures concern one connection and end it.

use crate::connection::{Admission, Connection, Memory, Outlet};
use crate::datagram::ReturnAddress;
use crate::error::RpcError;
use crate::message::{self, CallHeader, HeaderError, ReplyError};
use crate::outgoing::{Payload, Reply};
use crate::poller::Poller;
use crate::record::{Record, RecordError, RecordReader};
use crate::xdr::{Reader, Writer};
use platform::round::Round;
use platform::sync::{Condvar, Mutex};
use platform::thread::JoinHandle;
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Connections at the same time. Each has a thread; 64 clients with 16 connections each fit.
pub const CONNECTIONS_MAX: usize = 1024;
/// How long an idle connection lasts before TCP asks whether its client is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// How long accepting pauses when the system has no descriptors or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server listens on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Configuration {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Largest call: the largest WRITE and the headers around it.
    pub record_bytes_max: usize,
    /// What calls and replies may take, over all connections: beyond it those that have a call in
    /// flight are not read from.
    pub in_flight_bytes_max: usize,
}

/// A call, on its connection's reader thread.
pub struct Call<'a> {
    /// Its header.
    pub header: CallHeader,
    /// Its arguments.
    pub arguments: Reader<'a>,
    /// The record that the arguments lie in, to keep parts of it.
    pub record: Record<'a>,
}

/// What a server serves: one or more RPC programs.
pub trait Service: Send + Sync + 'static {
    /// What is remembered of a connection, on its reader thread.
    type Session: Send;

    /// A client connected.
    fn open(&self, peer: SocketAddr) -> Self::Session;

    /// A datagram came from a client; it is a session of its own.
    fn open_datagram(&self, peer: SocketAddr) -> Self::Session {
        self.open(peer)
    }

    /// A call came in. Must not block; the reply may be sent now or later, from any thread.
    fn dispatch(&self, session: &mut Self::Session, call: Call<'_>, replier: Replier);
}

impl<S: Service> Service for Arc<S> {
    type Session = S::Session;

    fn open(&self, peer: SocketAddr) -> S::Session {
        (**self).open(peer)
    }

    fn open_datagram(&self, peer: SocketAddr) -> S::Session {
        (**self).open_datagram(peer)
    }

    fn dispatch(&self, session: &mut S::Session, call: Call<'_>, replier: Replier) {
        (**self).dispatch(session, call, replier);
    }
}

/// How a reply goes back.
enum Way {
    Connection(Arc<Connection>),
    Datagram(ReturnAddress),
}

/// The right and duty to answer one call.
pub struct Replier {
    way: Way,
    xid: u32,
    promised: usize,
    answered: bool,
}

impl Replier {
    /// The way back for a call that came as a datagram.
    pub(crate) const fn for_datagram(xid: u32, address: ReturnAddress) -> Self {
        Self { way: Way::Datagram(address), xid, promised: 0, answered: false }
    }

    /// Says that the reply will carry about this many bytes, so that the connection's memory stays
    /// bounded while the call is in flight.
    pub fn expect_bytes(&mut self, bytes: usize) {
        if let Way::Connection(connection) = &self.way {
            connection.promise(bytes);
            self.promised += bytes;
        }
    }

    /// A writer that holds the header of a successful reply; the results go behind it.
    #[must_use]
    pub fn begin(&self, capacity: usize) -> Writer {
        let mut writer = Writer::with_capacity(capacity + 28);
        writer.u32(0); // the record mark's place
        message::write_success(&mut writer, self.xid);
        writer
    }

    /// Sends what [`Self::begin`] began.
    pub fn send(mut self, writer: Writer, payload: Option<Box<dyn Payload>>) {
        self.finish(writer, payload);
    }

    /// Refuses the call.
    pub fn fail(mut self, error: ReplyError) {
        self.finish_error(error);
    }

    /// Sends no reply: another copy of the same call gets it. The call's place among those in
    /// flight is free then.
    pub fn withdraw(mut self) {
        self.answered = true;
        if let Way::Connection(connection) = &self.way {
            connection.withdraw(self.promised);
        }
    }

    /// Sends no reply and ends the connection: nothing more is read from it.
    pub fn hang_up(self) {
        if let Way::Connection(connection) = &self.way {
            connection.close();
        }
        self.withdraw();
    }

    fn finish_error(&mut self, error: ReplyError) {
        let mut writer = Writer::with_capacity(40);
        writer.u32(0);
        message::write_error(&mut writer, self.xid, error);
        self.finish(writer, None);
    }

    fn finish(&mut self, writer: Writer, payload: Option<Box<dyn Payload>>) {
        self.answered = true;
        match &self.way {
            Way::Connection(connection) => {
                connection.answer(Reply::new(writer, payload), self.promised);
            }
            Way::Datagram(address) => address.send(&Reply::new(writer, payload)),
        }
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        if !self.answered {
            self.finish_error(ReplyError::SystemError);
        }
    }
}

struct Connections {
    open: HashMap<u64, Arc<Connection>>,
    /// Reader threads that have not ended; at most one more than `open` for each that is ending.
    readers: usize,
}

struct Shared<S> {
    service: S,
    record_bytes_max: usize,
    poller: Arc<Poller>,
    memory: Arc<Memory>,
    connections: Mutex<Connections>,
    /// A reader ended, or the server is stopping.
    changed: Condvar,
    stopping: AtomicBool,
}

/// A running server; stops when dropped.
pub struct Server<S: Service> {
    shared: Arc<Shared<S>>,
    listener: Arc<TcpListener>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl<S: Service> Server<S> {
    /// Listens and serves.
    ///
    /// # Errors
    /// [`RpcError`].
    pub fn start(configuration: &Configuration, service: S) -> Result<Self, RpcError> {
        let address = configuration.address;
        let listen = |source| RpcError::Listen { address, source };
        let start = |source| RpcError::Start { address, source };
        let listener = Arc::new(TcpListener::bind(address).map_err(listen)?);
        let local_address = listener.local_addr().map_err(listen)?;
        let shared = Arc::new(Shared {
            service,
            record_bytes_max: configuration.record_bytes_max,
            poller: Arc::new(Poller::new().map_err(start)?),
            memory: Arc::new(Memory::new(configuration.in_flight_bytes_max)),
            connections: Mutex::new(Connections { open: HashMap::new(), readers: 0 }),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
        });
        let mut server =
            Self { shared, listener, address: local_address, threads: Vec::with_capacity(2) };
        // If the second spawn fails, dropping `server` stops the first thread.
        let shared = Arc::clone(&server.shared);
        let poll = move || {
            shared.poller.run(|id| shared.connections.lock().open.get(&id).map(Arc::clone));
        };
        server.threads.push(platform::thread::spawn("rpc-poller", poll).map_err(start)?);
        let (shared, listener) = (Arc::clone(&server.shared), Arc::clone(&server.listener));
        let accept = move || accept_all(&shared, &listener);
        server.threads.push(platform::thread::spawn("rpc-accept", accept).map_err(start)?);
        Ok(server)
    }

    /// The address that is listened on, with the port that the system chose.
    #[must_use]
    pub const fn local_address(&self) -> SocketAddr {
        self.address
    }

    /// What calls and replies take now.
    #[must_use]
    pub fn in_flight_bytes(&self) -> usize {
        self.shared.memory.bytes()
    }

    /// The service.
    #[must_use]
    pub fn service(&self) -> &S {
        &self.shared.service
    }

    /// Closes the listener and all connections, and waits for the server's threads.
    pub fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // On Linux this wakes a thread that is blocked in accept().
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        self.shared.poller.stop();
        {
            let mut connections = self.shared.connections.lock();
            self.shared.changed.notify_all();
            connections.open.values().for_each(|connection| connection.close());
            while connections.readers > 0 {
                self.shared.changed.wait(&mut connections);
            }
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the RPC server panicked");
            }
        }
    }
}

impl<S: Service> Drop for Server<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn accept_all<S: Service>(shared: &Arc<Shared<S>>, listener: &TcpListener) {
    for id in 0.. {
        let accepted = listener.accept();
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        let result = accepted.and_then(|(socket, peer)| serve(shared, id, socket, peer));
        if let Err(error) = result {
            tracing::warn!(%error, "cannot accept a connection");
            let mut connections = shared.connections.lock();
            if !shared.stopping.load(Ordering::SeqCst) {
                shared.changed.wait_for(&mut connections, ACCEPT_PAUSE);
            }
        }
    }
}

/// Starts the reader of a new connection.
fn serve<S: Service>(
    shared: &Arc<Shared<S>>,
    id: u64,
    socket: TcpStream,
    peer: SocketAddr,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(&socket, true)?;
    rustix::net::sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
    let socket = Arc::new(socket);
    let outlet = Outlet::Socket(Arc::clone(&socket), Arc::clone(&shared.poller));
    let connection = Arc::new(Connection::new(id, outlet, Arc::clone(&shared.memory)));
    {
        let mut connections = shared.connections.lock();
        if connections.open.len() >= CONNECTIONS_MAX {
            tracing::warn!(%peer, limit = CONNECTIONS_MAX, "too many connections");
            return Ok(());
        }
        if shared.stopping.load(Ordering::SeqCst) {
            return Ok(());
        }
        connections.open.insert(id, Arc::clone(&connection));
        connections.readers += 1;
    }
    // In the order in which they are accepted.
    let mut session = shared.service.open(peer);
    let ending = Ending { shared: Arc::clone(shared), connection, id };
    platform::thread::spawn("rpc-reader", move || {
        let Ending { shared, connection, .. } = &ending;
        let records = RecordReader::new(&*socket, shared.record_bytes_max);
        let error = read_calls(&shared.service, connection, &mut session, records);
        tracing::debug!(%peer, %error, "connection ended");
    })?;
    Ok(())
}

/// Takes a connection out of the server when its reader ends, in whatever way.
struct Ending<S: Service> {
    shared: Arc<Shared<S>>,
    connection: Arc<Connection>,
    id: u64,
}

impl<S: Service> Drop for Ending<S> {
    fn drop(&mut self) {
        self.connection.close();
        let mut connections = self.shared.connections.lock();
        connections.open.remove(&self.id);
        connections.readers -= 1;
        self.shared.changed.notify_all();
    }
}

/// Dispatches the calls of a connection until their stream ends.
pub(crate) fn read_calls<S: Service, R: Read>(
    service: &S,
    connection: &Arc<Connection>,
    session: &mut S::Session,
    mut records: RecordReader<R>,
) -> RecordError {
    loop {
        let mut held = connection.hold();
        let round = Round::open();
        let result = loop {
            let record = match records.next_buffered() {
                Ok(Some(record)) => record,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            if !admit(connection, record.bytes().len(), &mut held, &round)
                || !dispatch(service, session, connection, record)
            {
                break Err(RecordError::Closed);
            }
        };
        // What the calls left to be done once for all, then the replies that are there.
        drop(round);
        if held {
            connection.release();
        }
        if let Err(error) = result.and_then(|()| records.fill()) {
            return error;
        }
    }
}

/// Waits until a call of `bytes` may be dispatched; false when the connection is closed.
fn admit(connection: &Connection, bytes: usize, held: &mut bool, round: &Round) -> bool {
    loop {
        match connection.admit(*held, bytes) {
            Admission::Dispatch => return true,
            Admission::Closed => return false,
            Admission::WriteFirst => connection.release(),
            Admission::Wait => {
                // Room may depend on what the calls before left to the end of the round.
                round.run();
                if *held {
                    connection.release();
                }
                connection.wait_for_room();
            }
        }
        *held = connection.hold();
    }
}

/// Dispatches one call that was admitted; false when the record is no call.
fn dispatch<S: Service>(
    service: &S,
    session: &mut S::Session,
    connection: &Arc<Connection>,
    record: Record<'_>,
) -> bool {
    let mut arguments = Reader::new(record.bytes());
    let way = Way::Connection(Arc::clone(connection));
    // Admitting it has counted it.
    let promised = record.bytes().len();
    let replier = |xid| Replier { way, xid, promised, answered: false };
    match CallHeader::read(&mut arguments) {
        Ok(header) => {
            let replier = replier(header.xid);
            service.dispatch(session, Call { header, arguments, record }, replier);
            true
        }
        Err(HeaderError::Reply { xid, error }) => {
            replier(xid).fail(error);
            true
        }
        Err(HeaderError::NotACall) => false,
    }
}

#[cfg(test)]
mod tests;
