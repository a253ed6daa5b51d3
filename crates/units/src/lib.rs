//! The vocabulary of addresses and numbers that every other crate speaks.
//!
//! One newtype per address space, so that a block number of a volume can never be used where a
//! block number of an aggregate is meant (FlexVol section 3.1, figure 2):
//!
//! | type | counts | within |
//! | --- | --- | --- |
//! | [`Fbn`] | 4 KiB blocks | a file |
//! | [`Vvbn`] | 4 KiB blocks | a volume's container file |
//! | [`Pvbn`] | 4 KiB blocks | an aggregate |
//! | [`Dbn`] | 4 KiB blocks | a disk |
//!
//! Code that serves several spaces is generic over [`BlockNumber`], which all four are.
//!
//! Invariants: no arithmetic crosses two address spaces; conversions are spelled out by name; no
//! type here knows how anything is stored.

#![deny(unsafe_code)]

mod block;
pub mod calendar;
mod identities;
mod numbers;
mod schedules;
mod shell;
mod size;

pub use block::{BLOCK_SIZE, BLOCK_SIZE_U64, Block, BlockRef, UnwrittenBlock, zero_block};
pub use identities::{
    AggregateUuid, DiskUuid, IncarnationUuid, LogUuid, NodeUuid, ObjectRangeUuid, SnapshotUuid,
    VolumeUuid,
};
pub use numbers::{
    BlockNumber, CpNumber, Dbn, Fbn, Generation, InodeNumber, MemberNumber, Pvbn, SnapshotId,
    Timestamp, VolumeId, Vvbn,
};
pub use schedules::Schedule;
pub use shell::shell_word;
pub use size::{ByteSize, ParseByteSizeError};
