//! Many calls of one connection under way: calls are sent without waiting, and a thread takes the
//! answers in, so that neither side ever waits for the other to read.
//!
//! Invariants: answers come in the order in which the server gave them; whoever sent a call tells
//! by its number which one is answered. After the first error there is nothing more to receive.
//!
//! Fails: [`NfsFailure`] when the connection is lost or an answer has no header of success.

use crate::request::Request;
use crate::{Answer, NfsFailure, results};
use platform::thread::{JoinHandle, spawn};
use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// The bit of a record's mark that says that it is the last fragment.
const LAST_FRAGMENT: u32 = 1 << 31;
/// Longest answer that is taken for one: a transfer and what is around it.
const REPLY_BYTES_MAX: u32 = 2 << 20;

/// The number of a call, and its results behind the header.
pub type Reply = (u32, Vec<u8>);

/// A connection.
pub struct Pipeline {
    socket: TcpStream,
    replies: Receiver<Answer<Reply>>,
    reader: Option<JoinHandle<()>>,
}

impl Pipeline {
    /// Connects.
    ///
    /// # Errors
    /// Of the connection.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let source = socket.try_clone()?;
        let (tell, replies) = channel();
        let reader = spawn("nfs-replies", move || receive_all(source, &tell))?;
        Ok(Self { socket, replies, reader: Some(reader) })
    }

    /// Sends a call.
    ///
    /// # Errors
    /// Of the connection.
    pub fn send(&mut self, xid: u32, request: &Request) -> io::Result<()> {
        self.socket.write_all(&request.record(xid))
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn receive(&mut self) -> Answer<Reply> {
        self.replies.recv().unwrap_or_else(|_| Err(gone()))
    }

    /// Waits for the next answer, but no longer than this.
    ///
    /// # Errors
    /// [`NfsFailure`].
    pub fn receive_within(&mut self, time: Duration) -> Answer<Option<Reply>> {
        match self.replies.recv_timeout(time) {
            Ok(reply) => reply.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}

fn gone() -> NfsFailure {
    NfsFailure::Connection(io::ErrorKind::ConnectionReset.into())
}

fn receive_all(source: TcpStream, tell: &Sender<Answer<Reply>>) {
    let mut source = BufReader::with_capacity(256 << 10, source);
    loop {
        let reply = receive_one(&mut source);
        let is_last = reply.is_err();
        if tell.send(reply).is_err() || is_last {
            return;
        }
    }
}

fn receive_one(source: &mut BufReader<TcpStream>) -> Answer<Reply> {
    let mut mark = [0; 4];
    source.read_exact(&mut mark)?;
    let mark = u32::from_be_bytes(mark);
    let length = mark & !LAST_FRAGMENT;
    if mark & LAST_FRAGMENT == 0 || length > REPLY_BYTES_MAX {
        return Err(NfsFailure::Malformed("a reply of one fragment"));
    }
    let mut reply = vec![0; length as usize];
    source.read_exact(&mut reply)?;
    let (xid, results) = results::take_header(&reply)?;
    let header = reply.len() - results.len();
    reply.drain(..header);
    Ok((xid, reply))
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both); // it may be gone already
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
