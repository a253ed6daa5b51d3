//! The way to a running server: its admin socket.
//!
//! Invariants: one connection per process, made with the first call; after an error of the stream
//! it is not used again.
//!
//! Fails: `Unreachable` if nobody listens, `Denied` if the socket may not be used, `TimedOut` if no
//! answer came in time (the server goes on with the request).

use admin_api::frame::{FrameError, exchange};
use admin_api::{AdminError, Code, Reply, Request, Transport};
use platform::sync::Mutex;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The least that an answer is waited for: `job wait 1 --wait 0s` waits for no job, and still for
/// the answer that says how far it is.
const ANSWER_WAIT_MIN: Duration = Duration::from_secs(1);

/// A server on this machine.
pub struct SocketTransport {
    socket: PathBuf,
    wait: Duration,
    stream: Mutex<Option<UnixStream>>,
}

impl SocketTransport {
    /// The server that listens on `socket`; each answer is waited for as long as `wait`, and at
    /// least [`ANSWER_WAIT_MIN`].
    #[must_use]
    pub fn new(socket: &Path, wait: Duration) -> Self {
        let wait = wait.max(ANSWER_WAIT_MIN);
        Self { socket: socket.to_owned(), wait, stream: Mutex::new(None) }
    }

    fn connect(&self) -> Result<UnixStream, AdminError> {
        let connected = UnixStream::connect(&self.socket).and_then(|stream| {
            stream.set_read_timeout(Some(self.wait))?;
            stream.set_write_timeout(Some(self.wait))?;
            Ok(stream)
        });
        connected.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &io::Error) -> AdminError {
        let socket = self.socket.display().to_string();
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                AdminError::new(Code::Denied, "cannot use the admin socket", socket)
                    .because("only root and the server's own user may")
                    .try_next("sudo, or the same user as the server")
            }
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                AdminError::new(Code::Unreachable, "cannot reach the server at", socket)
                    .because("no server is listening there")
                    .try_next("stroop serve")
            }
            _ => AdminError::new(Code::Unreachable, "cannot reach the server at", socket)
                .because(error.to_string()),
        }
    }

    fn broken(&self, error: &FrameError) -> AdminError {
        let socket = self.socket.display().to_string();
        match error {
            FrameError::Io(io)
                if matches!(io.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                let waited = u64::try_from(self.wait.as_nanos()).unwrap_or(u64::MAX);
                AdminError::new(Code::TimedOut, "no answer from the server at", socket)
                    .because(format!("waited {}", admin_api::duration::format(waited)))
                    .because("the server goes on with the request")
                    .try_next("stroop status, or a longer --wait")
            }
            _ => AdminError::new(Code::Unreachable, "lost the server at", socket)
                .because(error.to_string())
                .because("the server may have carried out the command or not")
                .try_next("stroop status"),
        }
    }
}

impl Transport for SocketTransport {
    fn call(&self, request: Request) -> Result<Reply, AdminError> {
        let mut held = self.stream.lock();
        let mut stream = match held.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let answer = exchange(&mut stream, &request).map_err(|error| self.broken(&error))?;
        *held = Some(stream);
        answer
    }
}

#[cfg(test)]
mod tests;
