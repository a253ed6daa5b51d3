//! Why a server could not be started. What goes wrong on a connection ends that connection and
//! is no error of the server.

use std::io;
use std::net::SocketAddr;
use thiserror::Error;

/// Why a server could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The address cannot be listened on: in use, not of this machine, or a privileged port.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
    /// The operating system refused a thread, an epoll instance or an event descriptor.
    #[error("cannot start the server on {address}: {source}")]
    Start {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the operating system said.
        source: io::Error,
    },
}
