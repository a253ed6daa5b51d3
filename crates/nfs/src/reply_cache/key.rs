//! What names a call for the cache.
//!
//! Invariants: two calls of one client that differ have different keys, but for checksums that meet
//! by chance or by that client's will.

use platform::mutation::{self, Rule};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use twox_hash::XxHash3_64;

/// Names a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(super) client: IpAddr,
    xid: u32,
    length: usize,
    content: u64,
    pub(super) is_write: bool,
}

impl Key {
    /// The key of a call of `client` whose record, from the number on, is `record`.
    ///
    /// The checksum is XXH3 because it is taken of the data of every WRITE: 0.2 us for 4 KiB, where
    /// a CRC takes 0.6 us on processors without AVX-512. A client that looks for two calls of the
    /// same checksum harms itself only.
    pub(crate) fn new(client: IpAddr, xid: u32, record: &[u8], is_write: bool) -> Self {
        if mutation::broken(Rule::XidAnswersAnother) {
            return Self { client, xid, length: 0, content: 0, is_write };
        }
        let content = XxHash3_64::oneshot(record);
        Self { client, xid, length: record.len(), content, is_write }
    }

    /// All of it, to be hashed where nothing compares keys after that.
    pub(super) fn whole(&self) -> impl Hash + use<> {
        let Self { client, xid, length, content, is_write } = *self;
        (client, xid, length, content, is_write)
    }
}

impl Hash for Key {
    /// The checksum and the number tell most calls apart, and each word costs: the rest is left to
    /// the comparison.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.content);
        state.write_u32(self.xid);
    }
}
