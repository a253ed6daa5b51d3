//! What names a call for the cache.
//!
//! Invariants: two calls of one client that differ have different keys, but for checksums that meet
//! by chance or by that client's will.

use platform::mutation::{self, Rule};
use std::net::IpAddr;

/// Names a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
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
    /// The checksum is a CRC because it is taken of the data of every WRITE. Two calls of one
    /// length that differ in 64 bits in a row never have the same one. A client that looks for two
    /// calls of the same checksum harms itself only.
    pub(crate) fn new(client: IpAddr, xid: u32, record: &[u8], is_write: bool) -> Self {
        if mutation::broken(Rule::XidAnswersAnother) {
            return Self { client, xid, length: 0, content: 0, is_write };
        }
        let content = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, record);
        Self { client, xid, length: record.len(), content, is_write }
    }
}
