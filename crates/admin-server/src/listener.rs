//! The socket and its connections.
//!
//! Invariants: one thread accepts; the accepting thread and every connection end at `stop`, which
//! waits for calls that have begun; the socket's file is removed at the end.

use crate::CONNECTIONS_MAX;
use crate::connection::{admit, refuse, serve};
use crate::served::Served;
use admin_api::{AdminError, Code};
use platform::sync::{Condvar, Mutex};
use platform::thread::{JoinHandle, spawn};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Longest path of a Unix socket: `sun_path` less its closing NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// How long a stop waits for one more of the calls under way to end. One may hang with a journal or
/// a disk, and the other aggregates are to have their last consistency points all the same.
const CALLS_END_MAX: Duration = Duration::from_secs(30);

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminServerError {
    /// Somebody listens there.
    #[error("a server is already listening on {}", socket.display())]
    InUse {
        /// The socket.
        socket: PathBuf,
    },
    /// Something else than a socket has the path.
    #[error("{} exists and is not a socket; move it away or choose another path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Linux has no room for the path.
    #[error("{} is too long for a socket; at most {SOCKET_PATH_BYTES_MAX} bytes", path.display())]
    PathTooLong {
        /// The path.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {error}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        error: io::Error,
    },
}

/// What the threads share.
struct Shared {
    served: Served,
    /// Open connections.
    open: Mutex<Open>,
    /// Signalled when a connection ends.
    ended: Condvar,
}

#[derive(Default)]
struct Open {
    /// By number.
    streams: BTreeMap<u64, Arc<UnixStream>>,
    next: u64,
}

/// A running server.
pub struct AdminServer {
    socket: PathBuf,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
    /// Closing this end wakes the acceptor.
    wake: Option<UnixStream>,
}

impl AdminServer {
    /// Listens on `socket` and answers for the node.
    ///
    /// # Errors
    /// [`AdminServerError`], with nothing left behind.
    pub fn start(socket: &Path, served: Served) -> Result<Self, AdminServerError> {
        let listener = bind(socket)?;
        let io =
            |action| move |error| AdminServerError::Io { action, path: socket.to_owned(), error };
        let (wake, woken) = UnixStream::pair().map_err(io("watch"))?;
        let (open, ended) = (Mutex::new(Open::default()), Condvar::new());
        let shared = Arc::new(Shared { served, open, ended });
        let accepting = Arc::clone(&shared);
        let acceptor = spawn("admin-accept", move || accept_all(&listener, &woken, &accepting))
            .map_err(io("start a thread for"))?;
        let (acceptor, wake) = (Some(acceptor), Some(wake));
        Ok(Self { socket: socket.to_owned(), shared, acceptor, wake })
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Takes no more requests, waits for those that have begun unless they hang, and removes the
    /// socket.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        // The socket goes first: whoever comes now learns at once that nobody is there.
        if let Err(error) = fs::remove_file(&self.socket) {
            tracing::warn!(socket = %self.socket.display(), %error, "cannot remove the socket");
        }
        drop(self.wake.take());
        if acceptor.join().is_err() {
            tracing::error!("the thread that accepts admin connections panicked");
        }
        let mut open = self.shared.open.lock();
        for stream in open.streams.values() {
            // Reading ends, so that the connection's loop does; answers still go out.
            let _ = stream.shutdown(Shutdown::Read);
        }
        while !open.streams.is_empty() {
            if self.shared.ended.wait_for(&mut open, CALLS_END_MAX).timed_out() {
                let calls = open.streams.len();
                tracing::warn!(
                    calls,
                    "administrators' calls hang; nobody waits for them any longer"
                );
                return;
            }
        }
    }
}

impl Drop for AdminServer {
    fn drop(&mut self) {
        self.end();
    }
}

fn bind(socket: &Path) -> Result<UnixListener, AdminServerError> {
    let path = || socket.to_owned();
    if socket.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        return Err(AdminServerError::PathTooLong { path: path() });
    }
    let io = |action| move |error| AdminServerError::Io { action, path: path(), error };
    match fs::symlink_metadata(socket) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(AdminServerError::NotASocket { path: path() });
        }
        Ok(_) => match UnixStream::connect(socket) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Nobody listens: a server that was killed left it.
                fs::remove_file(socket).map_err(io("remove the stale socket"))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Connected, or too busy to answer: somebody is there either way.
            Ok(_) | Err(_) => return Err(AdminServerError::InUse { socket: path() }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io("look at")(error)),
    }
    let listener = UnixListener::bind(socket).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => AdminServerError::InUse { socket: path() },
        _ => io("listen on")(error),
    })?;
    fs::set_permissions(socket, Permissions::from_mode(0o600)).map_err(io("protect"))?;
    listener.set_nonblocking(true).map_err(io("listen on"))?;
    Ok(listener)
}

/// Accepts until the other end of `woken` is closed.
fn accept_all(listener: &UnixListener, woken: &UnixStream, shared: &Arc<Shared>) {
    loop {
        let mut waiting = [PollFd::new(listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut waiting, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                return tracing::error!(%error, "admin connections are no longer accepted");
            }
        }
        let [_, stop] = &waiting;
        if !stop.revents().is_empty() {
            return;
        }
        match listener.accept() {
            Ok((stream, _)) => begin(stream, shared),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept an admin connection");
                // Out of descriptors, say. The connection stays in the queue, so poll would return
                // at once; wait on the stop signal alone for a moment instead of spinning.
                let pause = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
                let mut stop = [PollFd::new(woken, PollFlags::IN)];
                let _ = poll(&mut stop, Some(&pause));
            }
        }
    }
}

fn begin(stream: UnixStream, shared: &Arc<Shared>) {
    let peer = match admit(&stream) {
        Ok(peer) => peer,
        Err(error) => {
            tracing::warn!(%error, "an admin connection was refused");
            return turn_away(&stream, error);
        }
    };
    let stream = Arc::new(stream);
    let registered = {
        let mut open = shared.open.lock();
        if open.streams.len() >= CONNECTIONS_MAX {
            None
        } else {
            let number = open.next;
            open.next += 1;
            open.streams.insert(number, Arc::clone(&stream));
            Some(Registered { number, shared: Arc::clone(shared) })
        }
    };
    let busy = |cause: String| {
        AdminError::new(Code::Failed, "cannot serve this connection", "")
            .because(cause)
            .try_next("try again in a moment")
    };
    let Some(registered) = registered else {
        return turn_away(&stream, busy(format!("{CONNECTIONS_MAX} connections are open")));
    };
    let served = Arc::clone(&stream);
    let started = spawn("admin", move || {
        serve(&served, peer, &registered.shared.served);
        drop(registered);
    });
    if let Err(error) = started {
        turn_away(&stream, busy(error.to_string()));
    }
}

/// Answers a client before it asked. The answer is small enough for the socket's buffer, so this
/// cannot wait for a client that does not read.
fn turn_away(stream: &UnixStream, error: AdminError) {
    refuse(stream, error);
    let _ = stream.shutdown(Shutdown::Both);
}

/// Takes a connection off the list when its thread ends, however it ends.
struct Registered {
    number: u64,
    shared: Arc<Shared>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.open.lock().streams.remove(&self.number);
        self.shared.ended.notify_all();
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
