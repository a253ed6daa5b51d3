//! Serves a node's [`Administration`](admin_api::Administration) on a Unix socket of this machine.
//!
//! Messages are those of `admin_api::frame`. Every connection has a thread of its own, because
//! calls block; requests of one connection are answered in order.
//!
//! Architecture invariant: this crate knows no call by name and nothing of the engine.
//!
//! Invariants:
//! - Only root and the server's own user are heard: the socket's mode is 0600, and the peer's
//!   credentials are checked as well, because a mode can be changed and is set after the bind.
//! - A socket on which somebody listens is never taken over; one that a dead server left is.
//! - A change is handed to the [`Audit`] before its client has the answer.
//! - A call that has begun is finished and answered before [`AdminServer::stop`] returns.
//! - At most [`CONNECTIONS_MAX`] connections, none idle for longer than [`IDLE_MAX`].
//!
//! Fails: [`AdminServerError`] at the start. Later nothing that a client sends is more than the
//! loss of its own connection.

#![forbid(unsafe_code)]

mod audit;
mod connection;
mod listener;
mod served;

pub use audit::{Audit, Change, Peer};
pub use listener::{AdminServer, AdminServerError};
pub use served::Served;

use std::time::Duration;

/// Connections at a time. Each is a thread; people and scripts need a handful.
pub const CONNECTIONS_MAX: usize = 64;

/// How long a connection may stay without a request, and how long a client may take to read an
/// answer: long enough for a person at a prompt, short enough that dead clients do not add up.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
