//! The limits of an object disk, each with its reason.
//!
//! Invariant: nothing in this crate grows without one of these.

use std::time::Duration;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64};

/// Blocks of a data object: 4 MiB, 16 regions. Larger ones make a partial change dearer, smaller
/// ones cost more requests; stores charge by the request.
pub(crate) const BLOCKS_PER_OBJECT: u32 = 1024;
/// Changes that are kept in memory before writers wait.
const DIRTY_BYTES_MAX: u64 = 256 << 20;
/// Fewer are of no use: an object is collected while another is put.
const DIRTY_BYTES_MIN: u64 = 8 << 20;
/// Puts at a time: enough to fill a fast line at the latency of a bucket.
const UPLOADS_MAX: usize = 8;
/// Gets at a time that readers wait for.
const READS_MAX: usize = 64;
/// How often a request is tried that the store did not answer with a reason.
const ATTEMPTS_MAX: u32 = 4;
/// The pause before the second attempt; it doubles each time.
const PAUSE: Duration = Duration::from_millis(200);
/// How long one attempt may take, with the retries below it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);
/// How often the store's client repeats a request after a server error, and for how long.
pub(crate) const CLIENT_RETRIES_MAX: usize = 8;
pub(crate) const CLIENT_RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long the client waits for one answer, and for a connection.
pub(crate) const CLIENT_ANSWER_SECONDS_MAX: u64 = 30;
pub(crate) const CLIENT_CONNECT_SECONDS_MAX: u64 = 5;
/// How long a lease holds without being renewed: outlasts a short failure of the network.
const LEASE_NANOSECONDS: i64 = 30_000_000_000;
/// How often it is renewed: three times within its life.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);
/// How far the clocks of two machines may be apart: a lease is taken over this much late.
pub(crate) const CLOCK_SKEW_NANOSECONDS: i64 = 10_000_000_000;
/// How often taking a lease is tried while others write it, too.
pub(crate) const LEASE_ATTEMPTS_MAX: u32 = 8;
/// Objects of which discarded blocks are known: 8 MiB of bitmaps. Of others nothing is reclaimed
/// until their blocks are discarded again.
const DISCARDED_OBJECTS_MAX: usize = 65_536;
/// Objects whose version is known: a put of another one asks the store first.
const VERSIONS_MAX: usize = 65_536;
/// How long opening a disk waits for its last owner in this process to end what is under way.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(120);
/// Threads on which requests and completions run.
pub(crate) const THREADS_COUNT: usize = 2;
/// Threads for blocking calls: files of a directory are read and written on them.
pub(crate) const BLOCKING_THREADS_MAX: usize = 16;
/// Bytes of a text of somebody else's in an error.
pub(crate) const REASON_BYTES_MAX: usize = 200;
/// Of the memory of a server, this share is for changes that wait to be put.
const MEMORY_SHARE: u64 = 16;

/// What an operator or a test may choose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Changes that are kept in memory before writers wait, in bytes.
    pub dirty_bytes_max: u64,
    /// Puts and deletions at a time.
    pub uploads_max: usize,
    /// Gets at a time.
    pub reads_max: usize,
    /// How often a request is tried that got no answer.
    pub attempts_max: u32,
    /// The pause before the second attempt; it doubles each time.
    pub pause: Duration,
    /// How long one attempt may take.
    pub request_timeout: Duration,
    /// How long a lease holds, in nanoseconds.
    pub lease_nanoseconds: i64,
    /// How often a lease is renewed.
    pub renewal_interval: Duration,
    /// Objects of which discarded blocks are known.
    pub discarded_objects_max: usize,
    /// Objects whose version is known.
    pub versions_max: usize,
}

/// What holds where memory is no concern.
pub const LIMITS_DEFAULT: Limits = Limits {
    dirty_bytes_max: DIRTY_BYTES_MAX,
    uploads_max: UPLOADS_MAX,
    reads_max: READS_MAX,
    attempts_max: ATTEMPTS_MAX,
    pause: PAUSE,
    request_timeout: REQUEST_TIMEOUT,
    lease_nanoseconds: LEASE_NANOSECONDS,
    renewal_interval: RENEWAL_INTERVAL,
    discarded_objects_max: DISCARDED_OBJECTS_MAX,
    versions_max: VERSIONS_MAX,
};

impl Limits {
    /// The limits of each disk in a server that may take `cap_bytes` of memory.
    #[must_use]
    pub fn within(cap_bytes: u64) -> Self {
        let dirty_bytes_max = (cap_bytes / MEMORY_SHARE).clamp(DIRTY_BYTES_MIN, DIRTY_BYTES_MAX);
        // Each put may hold its object's old content beside the new.
        let objects = dirty_bytes_max / (u64::from(BLOCKS_PER_OBJECT) * BLOCK_SIZE_U64);
        let uploads_max = usize::try_from(objects).unwrap_or(UPLOADS_MAX).clamp(2, UPLOADS_MAX);
        Self { dirty_bytes_max, uploads_max, ..LIMITS_DEFAULT }
    }
}

/// Memory that a disk with these limits may take beside its blocks, in bytes: the old contents of
/// objects that are put, and what readers wait for.
#[must_use]
pub fn memory_bytes_of(limits: &Limits) -> u64 {
    (limits.uploads_max * BLOCKS_PER_OBJECT as usize * BLOCK_SIZE) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_memory_within_bounds() {
        let small = Limits::within(64 << 20);
        assert_eq!((small.dirty_bytes_max, small.uploads_max), (8 << 20, 2));
        assert_eq!(memory_bytes_of(&small), 8 << 20);
        let large = Limits::within(1 << 40);
        assert_eq!((large.dirty_bytes_max, large.uploads_max), (256 << 20, 8));
    }
}
