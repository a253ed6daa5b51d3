//! One call at a time to somebody else's program: what a server asks of its clients (callbacks of
//! lock managers, notices of a restart) and of its own machine (rpcbind).
//!
//! Calls block their thread until the answer comes or patience ends, so they are made on threads
//! of their own. However the other side dawdles, a call over UDP takes no longer than some eight
//! seconds, and one over a stream no longer than some fourteen.
//!
//! Invariants: a call over UDP is sent again with the same number, so that the other side may know
//! it again; replies to other calls are passed over.
//!
//! Fails: [`CallError`].

use crate::message::{AUTH_BYTES_MAX, AuthSys, CallHeader, Credential};
use crate::record;
use crate::xdr::{Reader, Writer, XdrError};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use thiserror::Error;

/// How long each sending of a datagram is waited for.
const DATAGRAM_PATIENCE: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_millis(700), Duration::from_millis(1000)];
/// How long a connection, and then an answer over it, is waited for.
const STREAM_PATIENCE: Duration = Duration::from_secs(2);
/// How long the last bytes of an answer are waited for that comes in many pieces.
const READ_PATIENCE_MIN: Duration = Duration::from_millis(20);
/// Pieces of an answer, and of those to other calls before it, at most.
const READS_MAX: usize = 256;
/// Longest answer that is read.
const REPLY_BYTES_MAX: usize = 64 << 10;
/// Replies to other calls that are passed over before the answer is given up.
const STRAY_REPLIES_MAX: usize = 4;

/// Why there is no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// Nobody is there, or does not answer in time.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The answer is none.
    #[error("the answer makes no sense: {0}")]
    Garbage(#[from] XdrError),
    /// The other side refuses.
    #[error("the call was refused (status {0})")]
    Refused(u32),
    /// The program is not there.
    #[error("program {program} is not registered there")]
    NotRegistered {
        /// The program.
        program: u32,
    },
}

/// What is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Procedure {
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
}

/// The next call's number, which nobody else can guess: whoever could would answer in the name of
/// the one that is called over UDP.
fn next_xid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static KEYED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let hash = KEYED.hash_one(NEXT.fetch_add(1, Ordering::Relaxed));
    u32::try_from(hash >> 32).unwrap_or_default()
}

/// A call's bytes, with the record mark's place in front.
fn encode(procedure: Procedure, xid: u32, arguments: &[u8]) -> Writer {
    let Procedure { program, version, procedure } = procedure;
    let mut writer = Writer::with_capacity(arguments.len() + 128);
    writer.u32(0);
    let credential = Credential::Sys(AuthSys::new(0, 0, &[]));
    CallHeader { xid, program, version, procedure, credential }.write(&mut writer);
    writer.fixed(arguments);
    writer.overwrite_u32(0, record::mark(writer.len() - 4));
    writer
}

/// The results in a reply to call `xid`; `None` if it answers another.
fn decode(xid: u32, reply: &[u8]) -> Result<Option<Vec<u8>>, CallError> {
    let mut reader = Reader::new(reply);
    if (reader.u32()?, reader.u32()?) != (xid, 1) {
        return Ok(None);
    }
    if reader.u32()? != 0 {
        return Err(CallError::Refused(reader.u32()?));
    }
    reader.u32()?;
    reader.opaque(AUTH_BYTES_MAX)?;
    match reader.u32()? {
        0 => Ok(Some(reader.rest().to_vec())),
        status => Err(CallError::Refused(status)),
    }
}

/// How long the next bytes of an answer are waited for: half as long each time, so that all of it
/// takes no longer than twice [`STREAM_PATIENCE`] and [`READS_MAX`] times the least.
struct Patience {
    next: Duration,
    reads: usize,
}

impl Patience {
    const fn new() -> Self {
        Self { next: STREAM_PATIENCE, reads: 0 }
    }

    /// # Errors
    /// `TimedOut` if there were too many reads.
    fn take(&mut self) -> io::Result<Duration> {
        self.reads += 1;
        if self.reads > READS_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let patience = self.next;
        self.next = (patience / 2).max(READ_PATIENCE_MIN);
        Ok(patience)
    }
}

/// A connection of which each read is waited for so long.
trait Patient: Read + Write {
    fn set_patience(&self, patience: Duration) -> io::Result<()>;
}

impl Patient for TcpStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

impl Patient for UnixStream {
    fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))
    }
}

/// Reads all of `buffer`, if it comes in time.
fn read_all(
    socket: &mut impl Patient,
    mut buffer: &mut [u8],
    patience: &mut Patience,
) -> io::Result<()> {
    while !buffer.is_empty() {
        socket.set_patience(patience.take()?)?;
        match socket.read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => buffer = buffer.get_mut(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Calls over UDP.
///
/// # Errors
/// [`CallError`].
pub fn call_datagram(
    address: SocketAddr,
    procedure: Procedure,
    arguments: &[u8],
) -> Result<Vec<u8>, CallError> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    let xid = next_xid();
    let call = encode(procedure, xid, arguments);
    let call = call.bytes().get(4..).unwrap_or_default();
    let mut buffer = vec![0; REPLY_BYTES_MAX];
    let mut last = io::ErrorKind::TimedOut.into();
    for patience in DATAGRAM_PATIENCE {
        socket.set_read_timeout(Some(patience))?;
        if let Err(error) = socket.send(call) {
            last = error;
            continue;
        }
        for _ in 0..STRAY_REPLIES_MAX {
            let length = match socket.recv(&mut buffer) {
                Ok(length) => length,
                // Not waiting longer for one who is not there.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Err(error.into());
                }
                Err(error) => {
                    last = error;
                    break;
                }
            };
            if let Some(results) = decode(xid, buffer.get(..length).unwrap_or_default())? {
                return Ok(results);
            }
        }
    }
    Err(last.into())
}

/// Calls over a TCP connection made for it.
///
/// # Errors
/// [`CallError`].
pub fn call_stream(
    address: SocketAddr,
    procedure: Procedure,
    arguments: &[u8],
) -> Result<Vec<u8>, CallError> {
    let socket = TcpStream::connect_timeout(&address, STREAM_PATIENCE)?;
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(STREAM_PATIENCE))?;
    call_over(socket, procedure, arguments)
}

/// Calls over a Unix socket.
///
/// # Errors
/// [`CallError`].
pub fn call_local(
    path: &Path,
    procedure: Procedure,
    arguments: &[u8],
) -> Result<Vec<u8>, CallError> {
    let socket = UnixStream::connect(path)?;
    socket.set_write_timeout(Some(STREAM_PATIENCE))?;
    call_over(socket, procedure, arguments)
}

fn call_over(
    mut socket: impl Patient,
    procedure: Procedure,
    arguments: &[u8],
) -> Result<Vec<u8>, CallError> {
    const LAST: u32 = 1 << 31;
    let (xid, mut patience) = (next_xid(), Patience::new());
    socket.write_all(encode(procedure, xid, arguments).bytes())?;
    for _ in 0..STRAY_REPLIES_MAX {
        let mut reply = Vec::new();
        loop {
            let mut mark = [0; 4];
            read_all(&mut socket, &mut mark, &mut patience)?;
            let mark = u32::from_be_bytes(mark);
            let length = (mark & !LAST) as usize;
            if reply.len() + length > REPLY_BYTES_MAX {
                let length_max = REPLY_BYTES_MAX;
                return Err(XdrError::TooLong { length, length_max }.into());
            }
            let start = reply.len();
            reply.resize(start + length, 0);
            read_all(&mut socket, reply.get_mut(start..).unwrap_or_default(), &mut patience)?;
            if mark & LAST != 0 {
                break;
            }
        }
        if let Some(results) = decode(xid, &reply)? {
            return Ok(results);
        }
    }
    Err(io::Error::from(io::ErrorKind::InvalidData).into())
}
