//! Services over UDP: one thread that takes a datagram, dispatches it and takes the next.
//!
//! Only small programs are called so (NLM, NSM): a reply is one datagram, and one that is too large
//! for that is not sent. Calls that are lost are the client's to repeat.
//!
//! Invariants: each datagram is one call and at most one reply; what is no call is dropped, and so
//! is a call while [`CALLS_IN_FLIGHT_MAX`] others are not answered.
//! [`DatagramServer::stop`] returns when its thread has ended.
//!
//! Fails: [`RpcError`] from [`DatagramServer::start`].

use crate::error::RpcError;
use crate::message::{CallHeader, HeaderError};
use crate::outgoing::Reply;
use crate::record::Record;
use crate::server::{Call, Replier, Service};
use crate::xdr::Reader;
use platform::thread::JoinHandle;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Longest datagram that is taken, and sent.
const DATAGRAM_BYTES_MAX: usize = 32 << 10;

/// Calls that are dispatched and not answered, of all clients. More than clients of locks have
/// under way: with what each keeps of the arguments, half a megabyte.
const CALLS_IN_FLIGHT_MAX: usize = 256;

/// Where the reply to a datagram goes.
pub(crate) struct ReturnAddress {
    socket: Arc<UdpSocket>,
    peer: SocketAddr,
    /// Counted for as long as the call is not answered.
    in_flight: Arc<AtomicUsize>,
}

impl Drop for ReturnAddress {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReturnAddress {
    pub(crate) fn send(&self, reply: &Reply) {
        let bytes = reply.to_datagram();
        if bytes.len() > DATAGRAM_BYTES_MAX {
            tracing::debug!(peer = %self.peer, "a reply of {} bytes is no datagram", bytes.len());
            return;
        }
        if let Err(error) = self.socket.send_to(&bytes, self.peer) {
            tracing::debug!(peer = %self.peer, %error, "a reply was not sent");
        }
    }
}

/// A running server; stops when dropped.
pub struct DatagramServer {
    socket: Arc<UdpSocket>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DatagramServer {
    /// Listens on `address` and serves.
    ///
    /// # Errors
    /// [`RpcError`].
    pub fn start<S: Service>(address: SocketAddr, service: S) -> Result<Self, RpcError> {
        let socket = UdpSocket::bind(address);
        let socket = Arc::new(socket.map_err(|source| RpcError::Listen { address, source })?);
        let stopping = Arc::new(AtomicBool::new(false));
        let (receiving, ending) = (Arc::clone(&socket), Arc::clone(&stopping));
        let body = move || serve(&service, &receiving, &ending);
        let thread = platform::thread::spawn_prompt("rpc-datagrams", body)
            .map_err(|source| RpcError::Start { address, source })?;
        Ok(Self { socket, stopping, thread: Some(thread) })
    }

    /// Stops, and waits for the thread.
    pub fn stop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        // On Linux this wakes a thread that is blocked in recvfrom(), though the call says that the
        // socket is not connected.
        let _ = rustix::net::shutdown(&*self.socket, rustix::net::Shutdown::Both);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread for datagrams panicked");
        }
    }
}

impl Drop for DatagramServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve<S: Service>(service: &S, socket: &Arc<UdpSocket>, stopping: &AtomicBool) {
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let in_flight = Arc::new(AtomicUsize::new(0));
    loop {
        let received = socket.recv_from(&mut buffer);
        if stopping.load(Ordering::SeqCst) {
            return;
        }
        // An error is about a datagram that was sent before: its receiver is gone.
        let Ok((length, peer)) = received else { continue };
        let record = Record::of(buffer.get(..length).unwrap_or_default());
        let mut arguments = Reader::new(record.bytes());
        if in_flight.load(Ordering::Relaxed) >= CALLS_IN_FLIGHT_MAX {
            continue; // its client asks again
        }
        in_flight.fetch_add(1, Ordering::Relaxed);
        let back =
            ReturnAddress { socket: Arc::clone(socket), peer, in_flight: Arc::clone(&in_flight) };
        match CallHeader::read(&mut arguments) {
            Ok(header) => {
                let replier = Replier::for_datagram(header.xid, back);
                let call = Call { header, arguments, record };
                service.dispatch(&mut service.open_datagram(peer), call, replier);
            }
            Err(HeaderError::Reply { xid, error }) => Replier::for_datagram(xid, back).fail(error),
            Err(HeaderError::NotACall) => {}
        }
    }
}
