//! NFSv3 as far as tests and loads use it (RFC 1813), from the client's side.
//!
//! | module | what |
//! | --- | --- |
//! | [`request`] | calls: arguments as bytes, made once and sent as often as it takes |
//! | [`results`] | what the answers say |
//! | [`client`] | one call at a time: [`NfsClient`] |
//! | [`pipeline`] | many calls of one connection under way: [`Pipeline`] |
//!
//! Not a client for files of value: it trusts the server, has no cache and no idea of users other
//! than root. It does not know the server's crates but for the bytes of RPC, so that a server and
//! this client do not share a misreading of RFC 1813.
//!
//! Invariants: a [`Request`] is the same bytes each time it is sent with one number, as the reply
//! caches of servers want it.
//!
//! Fails: [`NfsFailure`]. Servers are killed under this client, so a lost connection is an
//! everyday thing; an answer that RFC 1813 does not allow is [`NfsFailure::Malformed`].

#![forbid(unsafe_code)]

pub mod client;
pub mod pipeline;
pub mod request;
pub mod results;

pub use client::NfsClient;
pub use pipeline::Pipeline;
pub use request::{Creation, Request, Setting};
pub use results::{Attributes, FileKind, Listed, Written};

use std::io;

/// A file handle.
pub type Handle = Vec<u8>;

/// `NFS3ERR_NOENT`.
pub const NOT_FOUND: u32 = 2;
/// `NFS3ERR_EXIST`.
pub const EXISTS: u32 = 17;
/// `NFS3ERR_STALE`.
pub const STALE: u32 = 70;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum NfsFailure {
    /// The server is gone.
    #[error("connection: {0}")]
    Connection(#[from] io::Error),
    /// It answered with this `nfsstat3` or `mountstat3`.
    #[error("NFS status {0}")]
    Status(u32),
    /// Its answer is not what the protocol says.
    #[error("the answer is wrong: {0}")]
    Malformed(&'static str),
}

impl NfsFailure {
    /// The status, if there was an answer.
    #[must_use]
    pub const fn status(&self) -> Option<u32> {
        match self {
            Self::Status(status) => Some(*status),
            Self::Connection(_) | Self::Malformed(_) => None,
        }
    }
}

/// What a call came to.
pub type Answer<T> = Result<T, NfsFailure>;
