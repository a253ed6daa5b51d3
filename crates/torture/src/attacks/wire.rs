//! Connections from a chosen address, and calls as bytes that no decent client sends.
//!
//! Fails: [`Failure::Machine`]. That a server ends an attacker's connection is no failure.

use super::target::{HONEST, Target};
use crate::Failure;
use onc_rpc::message::CallHeader;
use onc_rpc::{AuthSys, Credential, Reader, Writer, record};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) const NFS: (u32, u32) = (100_003, 3);
pub(crate) const LOCKS: (u32, u32) = (100_021, 4);
/// A server that does not answer for so long does not serve.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// A server that takes nothing for so long takes no more.
const QUIET: Timespec = Timespec { tv_sec: 0, tv_nsec: 300_000_000 };

/// Connects from an address of this machine.
pub(crate) fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    connect(&socket, &to)?;
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// A number for a call, or for the first of some thousands: no two connections use the same, or the
/// server would take a call for one that is repeated.
pub(crate) fn next_xid(count: u32) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(count, Ordering::Relaxed)
}

/// A call of root's as a record.
pub(crate) fn call(
    (program, version): (u32, u32),
    procedure: u32,
    arguments: impl FnOnce(&mut Writer),
) -> Vec<u8> {
    let xid = next_xid(1);
    let mut writer = Writer::default();
    writer.u32(0);
    let credential = Credential::Sys(AuthSys::new(0, 0, &[]));
    CallHeader { xid, program, version, procedure, credential }.write(&mut writer);
    arguments(&mut writer);
    writer.overwrite_u32(0, record::mark(writer.len() - 4));
    writer.into_bytes()
}

/// The results of the next reply, or the RPC error in it.
pub(crate) fn results(socket: &mut TcpStream) -> io::Result<Result<Vec<u8>, u32>> {
    let mut mark = [0; 4];
    socket.read_exact(&mut mark)?;
    let mut reply = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
    socket.read_exact(&mut reply)?;
    let malformed = |_| io::Error::from(io::ErrorKind::InvalidData);
    let mut reader = Reader::new(&reply);
    // Number, kind, accepted or not, verifier.
    for _ in 0..5 {
        reader.u32().map_err(malformed)?;
    }
    Ok(match reader.u32().map_err(malformed)? {
        0 => Ok(reader.rest().to_vec()),
        error => Err(error),
    })
}

/// The arguments of an NLM call.
pub(crate) struct Lock<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) file: &'a [u8],
    pub(crate) owner: &'a [u8],
}

impl Lock<'_> {
    fn write(&self, writer: &mut Writer) {
        [self.name, self.file, self.owner].iter().for_each(|bytes| writer.opaque(bytes));
        writer.u32(1);
        writer.u64(0);
        writer.u64(0);
    }

    /// TEST for an exclusive lock of all bytes.
    pub(crate) fn test(&self) -> Vec<u8> {
        call(LOCKS, 1, |writer| {
            writer.opaque(b"c");
            writer.bool(true);
            self.write(writer);
        })
    }

    /// LOCK, exclusive, of all bytes, without waiting.
    pub(crate) fn lock(&self) -> Vec<u8> {
        call(LOCKS, 2, |writer| {
            writer.opaque(b"c");
            writer.bool(false);
            writer.bool(true);
            self.write(writer);
            writer.bool(false);
            writer.u32(0);
        })
    }

    /// UNLOCK of all bytes.
    pub(crate) fn unlock(&self) -> Vec<u8> {
        call(LOCKS, 4, |writer| {
            writer.opaque(b"c");
            self.write(writer);
        })
    }

    /// SHARE for reading, which denies nobody anything.
    pub(crate) fn share(&self) -> Vec<u8> {
        self.reservation(20)
    }

    /// UNSHARE.
    pub(crate) fn unshare(&self) -> Vec<u8> {
        self.reservation(21)
    }

    fn reservation(&self, number: u32) -> Vec<u8> {
        call(LOCKS, number, |writer| {
            writer.opaque(b"c");
            [self.name, self.file, self.owner].iter().for_each(|bytes| writer.opaque(bytes));
            writer.u32(0);
            writer.u32(1);
            writer.bool(false);
        })
    }
}

/// The status in the results of an NLM call.
pub(crate) fn lock_status(results: &[u8]) -> Option<u32> {
    let mut reader = Reader::new(results);
    reader.opaque(1024).ok()?;
    reader.u32().ok()
}

/// Whether the program for locks is there.
pub(crate) fn serves_locks(target: &Target) -> Result<bool, Failure> {
    let ask = || {
        let mut socket = connect(HONEST, target.address)?;
        socket.write_all(&call(LOCKS, 0, |_| {}))?;
        results(&mut socket)
    };
    Ok(ask().map_err(Failure::machine("ask for the lock manager"))?.is_ok())
}

/// Sends calls and takes their answers, some at a time; the statuses. Ends where the connection
/// does.
pub(crate) fn ask_all(socket: &mut TcpStream, calls: &[Vec<u8>]) -> Vec<Option<u32>> {
    let mut statuses = Vec::new();
    for some in calls.chunks(32) {
        if socket.write_all(&some.concat()).is_err() {
            break;
        }
        for _ in some {
            match results(socket) {
                Ok(answer) => statuses.push(answer.ok().and_then(|bytes| lock_status(&bytes))),
                Err(_) => return statuses,
            }
        }
    }
    statuses
}

/// Sends to each connection as much of its bytes as the server takes, and reads nothing; the bytes
/// that were sent in all.
pub(crate) fn push_all(streams: &mut [(TcpStream, Vec<u8>)]) -> Result<u64, Failure> {
    let failed = || Failure::machine("send to the server");
    let mut sent = vec![0; streams.len()];
    for (socket, _) in &*streams {
        socket.set_nonblocking(true).map_err(failed())?;
    }
    loop {
        let open = |(at, (_, bytes)): (usize, &(TcpStream, Vec<u8>))| -> Option<usize> {
            (sent[at] < bytes.len()).then_some(at)
        };
        let left: Vec<usize> = streams.iter().enumerate().filter_map(open).collect();
        let mut polled: Vec<PollFd<'_>> =
            left.iter().map(|at| PollFd::new(&streams[*at].0, PollFlags::OUT)).collect();
        let ready = poll(&mut polled, Some(&QUIET)).map_err(io::Error::from).map_err(failed())?;
        if left.is_empty() || ready == 0 {
            return Ok(sent.iter().map(|count| *count as u64).sum());
        }
        let writable = polled.iter().zip(&left).filter(|(poll, _)| !poll.revents().is_empty());
        let writable: Vec<usize> = writable.map(|(_, at)| *at).collect();
        for at in writable {
            let (socket, bytes) = &mut streams[at];
            match socket.write(&bytes[sent[at]..]) {
                Ok(count) => sent[at] += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The server has ended it.
                Err(_) => bytes.truncate(sent[at]),
            }
        }
    }
}
