//! The inode file of an image: sixteen inodes to a block, at places that follow from their numbers.
//!
//! Invariants: what is read is of the image whose root is given.
//!
//! Fails: as reading a block does; damage where a record is none.

use crate::buftree::{self, FileKey, Root};
use crate::content::Content;
use crate::inode::position;
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, Stop};
use ondisk::inode::{INODE_SIZE, InodeRecord};
use units::{BlockRef, InodeNumber, Pvbn, VolumeId};
use zerocopy::FromBytes;

/// Inode number under which the blocks of the inode file are identified on media.
pub const INODE_FILE: InodeNumber = InodeNumber(0);

/// The key of a volume's inode file.
#[must_use]
pub const fn inode_file_key(volume: VolumeId) -> FileKey {
    FileKey { volume, inode: INODE_FILE, content: Content::Inodes }
}

/// An inode's record in the image that `inode_file` is the root of; `None` beyond its end.
///
/// # Errors
/// What to wait for.
pub fn read_record<P: Pointer>(
    inode_file: &Root<P>,
    volume: VolumeId,
    inode: InodeNumber,
    reader: &Reader<'_>,
) -> Progress<Option<InodeRecord>> {
    let (fbn, slot) = position(inode);
    let key = inode_file_key(volume);
    let Some(block) = buftree::read(inode_file, &key, fbn, reader)? else { return Ok(None) };
    let record = record_at(&block, slot);
    record.validate().map_err(|damage| Stop::of_damage(damage, Pvbn(0)))?;
    Ok(Some(record))
}

/// The record at `slot` of a block of the inode file.
#[must_use]
pub fn record_at(block: &BlockRef, slot: usize) -> InodeRecord {
    let bytes = &block.bytes()[slot * INODE_SIZE..(slot + 1) * INODE_SIZE];
    let Ok(record) = InodeRecord::read_from_bytes(bytes) else {
        unreachable!("a slot is as large as a record")
    };
    record
}
