//! Checks of an aggregate beside the server: whoever asked reads the disks, and the server sees to
//! it that nothing which the check reads is written over.
//!
//! Of an aggregate in service the server holds an image back from being overwritten. An aggregate
//! that is out of service stays so until the check ends.
//!
//! Invariants:
//! - A check has a number that no other check has, of any start of the server. So a call for a
//!   check that is over never meets a later one, and a check notices that the server was started
//!   anew.
//! - A check goes on only as long as [`crate::Administration::check_keep`] is called again within
//!   [`CheckBegun::keep_within_ns`], so a reader that died holds nothing. When writers need the
//!   room of an image, they get it, and the check is told.
//! - What a check found means something only if its [`crate::Administration::check_end`] succeeds.
//!
//! Fails: `Usage` if a read is larger than allowed, `Conflict` if the check is over.

use crate::error::{AdminError, Code};
use crate::names::validate_name;
use crate::requests::Validate;
use serde::{Deserialize, Serialize};

/// Blocks that one [`CheckRead`] may ask for: 1 MiB.
pub const CHECK_READ_BLOCKS_MAX: u32 = 256;

/// Names a check that goes on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckKeep {
    /// The aggregate.
    pub aggregate: String,
    /// The number of the check.
    pub number: u64,
}

impl Validate for CheckKeep {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.aggregate)
    }
}

/// An image that is held back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CheckPin {
    /// The consistency point whose image it is.
    pub consistency_point: u64,
    /// Its superblock, a block in hexadecimal.
    pub superblock: String,
}

/// How the aggregate is that a check reads.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckedState {
    /// In service: an image is held back.
    InService(CheckPin),
    /// It failed, and its disks are open in the server still. No consistency point follows, but
    /// blocks may be made good from parity.
    Failed,
    /// It was in service, and was closed because it lost disks. Nobody writes to it.
    Away,
    /// The server could not open it. Nobody writes to it.
    NotOpened,
}

/// How a check begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CheckBegun {
    /// The number of the check.
    pub number: u64,
    /// How the aggregate is.
    pub state: CheckedState,
    /// The disks of the aggregate that the server has open.
    pub disks: Vec<String>,
    /// Disks that could not be read, and why: the aggregate may have been on them.
    pub left_out: Vec<String>,
    /// Disks that another process has: they may be of the aggregate.
    pub busy: Vec<String>,
    /// The check is over unless it is kept again within this time.
    pub keep_within_ns: u64,
}

/// How a check goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CheckHeld {
    /// Freed room that nobody is given because of it.
    pub held_bytes: u64,
}

/// Asks for blocks of a disk that only the server can read: an object range.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRead {
    /// The aggregate.
    pub aggregate: String,
    /// The number of the check.
    pub number: u64,
    /// The disk.
    pub disk: String,
    /// The first block.
    pub block: u64,
    /// How many: at most [`CHECK_READ_BLOCKS_MAX`].
    pub count: u32,
}

impl Validate for CheckRead {
    fn validate(&self) -> Result<(), AdminError> {
        validate_name("aggregate", &self.aggregate)?;
        if (1..=CHECK_READ_BLOCKS_MAX).contains(&self.count) {
            return Ok(());
        }
        let error = AdminError::new(Code::Usage, "cannot read disk", &self.disk);
        Err(error.because(format!("1 to {CHECK_READ_BLOCKS_MAX} blocks can be read at a time")))
    }
}

/// Blocks of a disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CheckBlocks {
    /// The size of the disk in blocks.
    pub size_blocks: u64,
    /// Their bytes in hexadecimal.
    pub data: String,
}

/// Bytes as two hexadecimal digits each.
#[must_use]
pub fn to_hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

/// The bytes of [`to_hexadecimal`]; `None` if it is no such text.
#[must_use]
pub fn from_hexadecimal(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_survive_as_text() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hexadecimal(&to_hexadecimal(&bytes)), Some(bytes));
        assert_eq!(from_hexadecimal("0a0"), None);
        assert_eq!(from_hexadecimal("0g"), None);
    }

    #[test]
    fn a_read_is_limited() {
        let read = |count| CheckRead {
            aggregate: "a1".to_owned(),
            number: 1,
            disk: "d1".to_owned(),
            block: 0,
            count,
        };
        assert!(read(CHECK_READ_BLOCKS_MAX).validate().is_ok());
        for count in [0, CHECK_READ_BLOCKS_MAX + 1] {
            assert_eq!(read(count).validate().unwrap_err().code, Code::Usage);
        }
    }
}
