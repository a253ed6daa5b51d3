//! The limits of the server.

use std::time::Duration;

/// Bytes of a request with its headers: a scraper sends some hundred. The least that hyper takes.
pub const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Headers of a request.
pub const HEADERS_MAX: usize = 64;
/// Texts in memory at a time: the newest, and one that somebody still reads.
pub const TEXTS_MAX: usize = 2;

/// Limits that tests set otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time: a few scrapers and whoever looks by hand. One more ends the
    /// connection that has waited longest for its request.
    pub connections_max: usize,
    /// How long a connection may last, from its beginning to the last byte of its answer: as long
    /// as Prometheus waits by default.
    pub connection_max: Duration,
    /// How long a request is waited for.
    pub request_max: Duration,
    /// How long an answer of the source is waited for.
    pub look_max: Duration,
    /// How long an answer of the source is shown to others: nobody scrapes more often.
    pub fresh_for: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 16,
            connection_max: Duration::from_secs(10),
            request_max: Duration::from_secs(5),
            look_max: Duration::from_secs(5),
            fresh_for: Duration::from_secs(1),
        }
    }
}
