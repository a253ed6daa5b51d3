//! The server: a listener, one reader thread per connection, one poller thread for slow clients,
//! which also looks once a second for connections of which nothing comes.
//!
//! Invariants: see the crate. A call is dispatched when the memory for it and for its reply was
//! taken from its client's account ([`Service::reply_bytes`]). [`Server::stop`] returns when no
//! thread of the server is left; calls that are still in flight in the service then are answered
//! into the void.
//!
//! Fails: [`RpcError`] from [`Server::start`]. Later failures concern one connection and end it.

use crate::connection::{Admission, Connection, Outlet};
use crate::connections::{Connections, Places, Standing};
use crate::datagram::ReturnAddress;
use crate::error::RpcError;
use crate::message::{self, CallHeader, HeaderError, ReplyError};
use crate::outgoing::{Payload, Reply};
use crate::poller::Poller;
use crate::record::{Filled, Next, Record, RecordError, RecordReader};
use crate::xdr::{Reader, Writer};
use platform::Clock;
use platform::round::Round;
use platform::sync::{Condvar, Mutex};
use platform::thread::JoinHandle;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long an idle connection lasts before TCP asks whether its client is still there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
/// How long TCP sends without an acknowledgement, to a client that is gone, before it gives up:
/// minutes less than by itself.
const UNACKNOWLEDGED_MILLISECONDS_MAX: u32 = 60_000;
/// How long a reader waits for more before it gives back its large buffer.
const LARGE_BUFFER_IDLE: Duration = Duration::from_secs(10);
/// What a reply takes that has neither data nor a list: two handles, four sets of attributes.
pub const REPLY_BYTES_USUAL: usize = 640;
/// Largest record of a stranger: there is nothing that he may write.
const STRANGER_RECORD_BYTES_MAX: usize = 64 << 10;
/// The largest calls that fit into a server's memory at once: a client gets half of what calls
/// have, and must have room for one.
const CALLS_MIN: usize = 4;
/// How long accepting pauses when the system has no descriptors or memory for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server listens on.
#[derive(Clone)]
pub struct Configuration {
    /// The address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Largest call: the largest WRITE and the headers around it.
    pub record_bytes_max: usize,
    /// What connections, calls and replies may take, over all connections. At least four of the
    /// largest calls fit, whatever it says.
    pub in_flight_bytes_max: usize,
    /// For connections of which nothing comes.
    pub clock: Arc<dyn Clock>,
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

    /// Whether there is anything here for a client at `address`.
    fn standing(&self, address: IpAddr) -> Standing {
        let _ = address;
        Standing::Known
    }

    /// At most what the reply to a call takes: so much memory is taken before it is dispatched.
    /// Whatever the arguments are; they may be garbage.
    fn reply_bytes(&self, header: &CallHeader, arguments: Reader<'_>) -> usize {
        let _ = (header, arguments);
        REPLY_BYTES_USUAL
    }

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

    fn standing(&self, address: IpAddr) -> Standing {
        (**self).standing(address)
    }

    fn reply_bytes(&self, header: &CallHeader, arguments: Reader<'_>) -> usize {
        (**self).reply_bytes(header, arguments)
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
    /// What was taken for the call from its client's account.
    charged: usize,
    answered: bool,
}

impl Replier {
    /// The way back for a call that came as a datagram.
    pub(crate) const fn for_datagram(xid: u32, address: ReturnAddress) -> Self {
        Self { way: Way::Datagram(address), xid, charged: 0, answered: false }
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
            connection.withdraw(self.charged);
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
                connection.answer(Reply::new(writer, payload), self.charged);
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

struct Shared<S> {
    service: S,
    record_bytes_max: usize,
    poller: Arc<Poller>,
    connections: Mutex<Connections>,
    clock: Arc<dyn Clock>,
    /// A reader ended, or the server is stopping.
    changed: Condvar,
    stopping: AtomicBool,
}

impl<S: Service> Shared<S> {
    /// Ends the connections of which nothing comes.
    fn look(&self) {
        let now = self.clock.monotonic_nanoseconds();
        let closing = self.connections.lock().look(now);
        closing.into_iter().for_each(|connection| connection.close());
    }
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
        // A call of the largest size has a small reply, and the other way round.
        let call_bytes_max = configuration.record_bytes_max + REPLY_BYTES_USUAL;
        let bytes_max = configuration.in_flight_bytes_max.max(CALLS_MIN * 2 * call_bytes_max);
        let (places, limits) = Places::within(bytes_max, call_bytes_max);
        let shared = Arc::new(Shared {
            service,
            record_bytes_max: configuration.record_bytes_max,
            poller: Arc::new(Poller::new().map_err(start)?),
            connections: Mutex::new(Connections::new(places, limits)),
            clock: Arc::clone(&configuration.clock),
            changed: Condvar::new(),
            stopping: AtomicBool::new(false),
        });
        let mut server =
            Self { shared, listener, address: local_address, threads: Vec::with_capacity(2) };
        // If the second spawn fails, dropping `server` stops the first thread.
        let shared = Arc::clone(&server.shared);
        let poll = move || {
            let find = |id| shared.connections.lock().find(id);
            shared.poller.run(&*shared.clock, find, || shared.look());
        };
        server.threads.push(platform::thread::spawn_prompt("rpc-poller", poll).map_err(start)?);
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
        self.shared.connections.lock().bytes()
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
            connections.all().for_each(|connection| connection.close());
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
    let standing = shared.service.standing(peer.ip().to_canonical());
    let socket = Arc::new(socket);
    let outlet = Outlet::Socket(Arc::clone(&socket), Arc::clone(&shared.poller));
    let now = shared.clock.monotonic_nanoseconds();
    let opened = {
        let mut connections = shared.connections.lock();
        if shared.stopping.load(Ordering::SeqCst) {
            return Ok(());
        }
        let connect = |account| Connection::new(id, outlet, account);
        connections.open(id, (standing, peer.ip()), now, connect)
    };
    let Ok((connection, given_up)) = opened else { return Ok(()) };
    let ending = Ending { shared: Arc::clone(shared), connection, id };
    given_up.into_iter().for_each(|connection| connection.close());
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(LARGE_BUFFER_IDLE))?;
    rustix::net::sockopt::set_socket_keepalive(&socket, true)?;
    rustix::net::sockopt::set_tcp_keepidle(&socket, KEEPALIVE_IDLE)?;
    rustix::net::sockopt::set_tcp_user_timeout(&socket, UNACKNOWLEDGED_MILLISECONDS_MAX)?;
    let record_bytes_max = match standing {
        Standing::Known => shared.record_bytes_max,
        Standing::Stranger => shared.record_bytes_max.min(STRANGER_RECORD_BYTES_MAX),
    };
    // In the order in which they are accepted.
    let mut session = shared.service.open(peer);
    platform::thread::spawn_prompt("rpc-reader", move || {
        let Ending { shared, connection, .. } = &ending;
        let records = RecordReader::new(&*socket, record_bytes_max);
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
        self.shared.connections.lock().remove(self.id);
        self.shared.changed.notify_all();
    }
}

/// Dispatches the calls of a connection until their stream ends. The connection may get another
/// stream, so what the reader of this one held is given back.
pub(crate) fn read_calls<S: Service, R: Read>(
    service: &S,
    connection: &Arc<Connection>,
    session: &mut S::Session,
    mut records: RecordReader<R>,
) -> RecordError {
    let error = dispatch_all(service, connection, session, &mut records);
    connection.give_back(records.held_bytes());
    error
}

fn dispatch_all<S: Service, R: Read>(
    service: &S,
    connection: &Arc<Connection>,
    session: &mut S::Session,
    records: &mut RecordReader<R>,
) -> RecordError {
    loop {
        let mut held = connection.hold();
        let round = Round::open();
        let result = loop {
            let record = match records.next_buffered() {
                Ok(Next::Record(record)) => record,
                Ok(Next::More) => break Ok(()),
                Ok(Next::Room(bytes)) => {
                    if !admit(connection, (bytes, false), &mut held, &round) {
                        break Err(RecordError::Closed);
                    }
                    records.grant();
                    continue;
                }
                Err(error) => break Err(error),
            };
            let mut arguments = Reader::new(record.bytes());
            let header = CallHeader::read(&mut arguments);
            let reply_bytes = match &header {
                Ok(header) => service.reply_bytes(header, arguments.clone()),
                Err(_) => REPLY_BYTES_USUAL,
            };
            // A large record has its memory already.
            let copied_bytes = if record.granted_bytes() > 0 { 0 } else { record.bytes().len() };
            let bytes = copied_bytes + reply_bytes;
            if !admit(connection, (bytes, true), &mut held, &round) {
                break Err(RecordError::Closed);
            }
            let replier = |xid| Replier {
                way: Way::Connection(Arc::clone(connection)),
                xid,
                charged: bytes + record.granted_bytes(),
                answered: false,
            };
            match header {
                Ok(header) => {
                    let replier = replier(header.xid);
                    service.dispatch(session, Call { header, arguments, record }, replier);
                }
                Err(HeaderError::Reply { xid, error }) => replier(xid).fail(error),
                Err(HeaderError::NotACall) => {
                    connection.withdraw(bytes + record.granted_bytes());
                    break Err(RecordError::Closed);
                }
            }
        };
        // What the calls left to be done once for all, then the replies that are there.
        drop(round);
        if held {
            connection.release();
        }
        if let Err(error) = result {
            return error;
        }
        connection.note_position(records.position());
        match records.fill(|bytes| connection.take_for_buffer(bytes)) {
            Ok(Filled::Some) => {}
            Ok(Filled::Nothing) => connection.give_back(records.shrink()),
            Err(error) => return error,
        }
    }
}

/// Waits until a call, or a record that is being received, may have `bytes`; false when the
/// connection is closed.
fn admit(
    connection: &Connection,
    (bytes, is_call): (usize, bool),
    held: &mut bool,
    round: &Round,
) -> bool {
    let mut has_waited = false;
    loop {
        match connection.admit(*held, bytes, is_call) {
            Admission::Dispatch => {
                if has_waited {
                    connection.wake_next();
                }
                return true;
            }
            Admission::Closed => return false,
            Admission::WriteFirst => connection.release(),
            Admission::Wait => {
                // Room may depend on what the calls before left to the end of the round.
                round.run();
                if *held {
                    connection.release();
                }
                connection.wait_for_room(bytes);
                has_waited = true;
            }
        }
        *held = connection.hold();
    }
}

#[cfg(test)]
mod tests;
