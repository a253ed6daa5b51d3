//! Metrics over HTTP, on a port of its own: `/metrics` for Prometheus, `/healthz` and `/readyz` for
//! whoever watches the server.
//!
//! It answers GET and HEAD of these three paths, and nothing else. It takes no commands, and knows
//! no file, no client and no secret: it shows what a [`Source`] says.
//!
//! | path | answer |
//! | --- | --- |
//! | `/metrics` | the metrics; 503 while the server starts or stops |
//! | `/healthz` | 200 with the health and the codes of its checks; 503 if that takes too long |
//! | `/readyz` | 200 while clients are served, 503 while the server starts or stops |
//!
//! Invariants:
//! - Everything has a limit ([`limits`]): connections, bytes of a request, the time of a
//!   connection and of a look at the source, and the texts that are in memory at a time.
//! - The source is looked at by one thread at a time, and at most once in
//!   [`limits::Limits::fresh_for`], however many ask.
//! - Whoever reads slowly, or says nothing, keeps nobody out: his connection ends at its time, and
//!   before when another comes and there is no room.
//!
//! Fails: [`MetricsServerError`] if it cannot listen; a source that does not answer is 503.

#![forbid(unsafe_code)]

mod answers;
pub mod limits;
mod listener;
mod looks;
mod room;

pub use listener::{MetricsServer, MetricsServerError};

/// What there is to show.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Look {
    /// All metrics, as text for Prometheus.
    pub metrics: String,
    /// The health: a word, then a line for each check that does not pass.
    pub health: String,
}

/// Where it is looked at. May take a while; it is called on a thread of its own.
pub trait Source: Send + Sync {
    /// What there is now.
    fn look(&self) -> Look;
}
