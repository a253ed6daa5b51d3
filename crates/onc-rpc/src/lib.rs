//! ONC remote procedure calls (RFC 5531): record marking, call and reply headers, XDR (RFC 4506), a
//! server that keeps many calls of one connection in flight, and calls to others.
//!
//! The layers, lowest first:
//!
//! | module | does |
//! | --- | --- |
//! | [`xdr`] | reads and writes XDR over byte slices, with limits |
//! | [`record`] | cuts a byte stream into records (RFC 5531 section 11) |
//! | [`message`] | call headers, credentials, the reply headers |
//! | [`outgoing`] | replies with payloads that are not copied |
//! | [`server`] | listener, connections, outgoing queues |
//! | [`dialogue`] | a connection without a socket, for tests, fuzzing and counting instructions |
//! | [`datagram`] | the same services over UDP, for the small programs that are called so |
//! | [`client`] | one call at a time to somebody else, over UDP, TCP or a Unix socket |
//! | [`rpcbind`] | where a program is to be found, and saying where ours are |
//!
//! A program (NFS, MOUNT) implements [`Service`]: it gets each [`Call`] on the connection's reader
//! thread together with a [`Replier`], which it may keep and use later, on any thread.
//!
//! Invariants:
//! - Bytes from the network never panic; every length is checked against a named limit.
//! - Each call gets exactly one reply while its connection lives, or none where the service says so
//!   ([`Replier::withdraw`]). A [`Replier`] that is dropped answers `SYSTEM_ERR`; one whose
//!   connection is gone does nothing.
//! - Memory is bounded for each connection, for each client and in all, from a record's first byte
//!   until the socket has the reply (`account`). Beyond it nothing more is read from the
//!   connection, and clients that have little go first.
//! - Connections are limited for each client and in all, those that the service knows first; those
//!   of which nothing comes are ended (`connections`).
//!
//! Fails: [`RpcError`] when listening is not possible. A connection that breaks the protocol is
//! closed; one that names what the server does not have gets the RPC error that says so.

#![forbid(unsafe_code)]

pub mod client;
pub mod datagram;
pub mod dialogue;
pub mod error;
pub mod message;
pub mod outgoing;
pub mod record;
pub mod rpcbind;
pub mod server;
pub mod xdr;

mod account;
mod connection;
mod connections;
mod poller;

pub use client::CallError;
pub use connections::{Standing, client_of};
pub use datagram::DatagramServer;
pub use dialogue::Dialogue;
pub use error::RpcError;
pub use message::{AuthStatus, AuthSys, CallHeader, Credential, ReplyError};
pub use outgoing::Payload;
pub use record::{Filled, Next, Record, RecordError, RecordReader};
pub use server::{Call, Configuration, REPLY_BYTES_USUAL, Replier, Server, Service};
pub use xdr::{Reader, Writer, XdrError};
