//! The inode that holds a file's extended attributes, the *holder*: one list (`ondisk::xattr`), in
//! an inode of its own that the file's inode names and that goes with the file.
//!
//! Invariants: a holder holds at least one attribute; it has the kind `KIND_ATTRIBUTES` and no
//! name.
//!
//! Fails: what to wait for; `Dangling`; damage; no inodes left.

use crate::{OperationStop, Outcome};
use cowfs::directory::Member;
use cowfs::inode::InodeAttributes;
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::rules::xattrs::CAPABILITY;
use ondisk::damage::Damage;
use ondisk::inode::KIND_ATTRIBUTES;
use ondisk::xattr::{self, Xattrs};
use std::sync::Arc;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, Block, BlockRef, Fbn, Generation, InodeNumber, Timestamp};

/// Which inode it is.
pub type Holder = (InodeNumber, Generation);

/// Most bytes of a file's extended attributes together: 64 of the largest. A change rewrites the
/// list and has it in memory whole; other file systems stop far earlier.
pub const XATTRS_BYTES_MAX: u64 = 4 << 20;

/// Removes a program's capabilities, whose content or owner changes; whether there were any.
///
/// # Errors
/// What to wait for, or damage.
pub(crate) fn drop_capability<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
) -> Outcome<bool> {
    let had_one = remove(transaction, inode, CAPABILITY)?;
    if !had_one {
        note_capability(transaction, inode, false);
    }
    Ok(had_one)
}

/// Notes in memory whether a file may have capabilities. That it has none is known of what is
/// there now, whatever becomes of the transaction; that it may, is true in any case.
fn note_capability<P: Pointer>(
    transaction: &Transaction<'_, P>,
    inode: InodeNumber,
    may_have: bool,
) {
    if let Some(found) = transaction.logical().inodes.get(&inode) {
        found.shared.lock().lacks_capability = !may_have;
    }
}

/// Removes an attribute; whether it was there.
///
/// # Errors
/// What to wait for, or damage.
pub(crate) fn remove<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
    name: &[u8],
) -> Outcome<bool> {
    let mut list = load(transaction, inode)?;
    if list.remove(name).is_none() {
        return Ok(false);
    }
    if !list.is_empty() {
        store(transaction, inode, &list, None)?;
    } else if let Some(holder) = holder(transaction, inode)? {
        transaction.free(holder.inode)?;
        transaction.edit(inode)?.attributes_inode = 0;
    }
    Ok(true)
}

/// The file that holds a file's extended attributes.
///
/// # Errors
/// What to wait for; `Dangling`.
pub(crate) fn holder<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
) -> Outcome<Option<Member>> {
    let state = transaction.attributes(inode)?.ok_or(OperationStop::Dangling { inode })?;
    let Some(holder) = holder_of(&state) else { return Ok(None) };
    let found = transaction.attributes(holder)?;
    let found = found.filter(|found| found.kind == KIND_ATTRIBUTES);
    let generation = found.ok_or(OperationStop::Dangling { inode: holder })?.generation;
    Ok(Some(Member::of_this_volume(holder, generation)))
}

pub(crate) fn holder_of(state: &InodeAttributes) -> Option<InodeNumber> {
    (state.attributes_inode != 0).then(|| InodeNumber(u64::from(state.attributes_inode)))
}

/// A file's extended attributes in the active image.
///
/// # Errors
/// What to wait for, or damage.
pub(crate) fn load<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
) -> Outcome<Xattrs> {
    let Some(holder) = holder(transaction, inode)? else { return Ok(Xattrs::new()) };
    let holder = holder.inode;
    let state = transaction.attributes(holder)?;
    let size = state.map_or(0, |state| state.size);
    let count = block_count(holder, size)?;
    let blocks = transaction.read_range(holder, Fbn(0), count)?;
    decode(holder, size, &blocks)
}

pub(crate) fn block_count(holder: InodeNumber, size: u64) -> Outcome<u64> {
    if size > XATTRS_BYTES_MAX {
        let damage = Damage::Field { structure: "extended attributes", field: "size" };
        return Err(OperationStop::Content { inode: holder, damage });
    }
    Ok(size.div_ceil(BLOCK_SIZE_U64))
}

pub(crate) fn decode(
    holder: InodeNumber,
    size: u64,
    blocks: &[Option<BlockRef>],
) -> Outcome<Xattrs> {
    let mut bytes = Vec::with_capacity(blocks.len() * BLOCK_SIZE);
    for block in blocks {
        match block {
            Some(block) => bytes.extend_from_slice(block.bytes()),
            None => bytes.resize(bytes.len() + BLOCK_SIZE, 0),
        }
    }
    bytes.truncate(size as usize);
    xattr::parse(&bytes).map_err(|damage| OperationStop::Content { inode: holder, damage })
}

/// Replaces a file's extended attributes, which are not none, and says which inode holds them.
/// `chosen` is the holder that a new one must be, in replay.
///
/// # Errors
/// What to wait for; no inodes left.
pub(crate) fn store<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
    list: &Xattrs,
    chosen: Option<Holder>,
) -> Outcome<Holder> {
    let (holder, generation) = match holder(transaction, inode)? {
        Some(holder) => (holder.inode, holder.generation),
        None => {
            let made = transaction.create(KIND_ATTRIBUTES, 0, chosen)?;
            // Below INODES_MAX, which 32 bits hold.
            transaction.edit(inode)?.attributes_inode = made.0.get() as u32;
            made
        }
    };
    if list.contains_key(CAPABILITY) {
        note_capability(transaction, inode, true);
    }
    let bytes = xattr::encode(list);
    let before = transaction.edit(holder)?.size_blocks();
    let old = transaction.read_range(holder, Fbn(0), before)?;
    let count = bytes.len().div_ceil(BLOCK_SIZE) as u64;
    for (index, chunk) in bytes.chunks(BLOCK_SIZE).enumerate() {
        let new = Block::from_prefix(chunk);
        let same = old.get(index).and_then(Option::as_ref).is_some_and(|old| **old == new);
        if !same {
            transaction.put(holder, Fbn(index as u64), Arc::new(new))?;
        }
    }
    if count < before {
        transaction.punch(holder, Fbn(count), Fbn::END)?;
    }
    let now: Timestamp = transaction.now;
    let state = transaction.edit(holder)?;
    state.size = bytes.len() as u64;
    state.touch_content(now);
    Ok((holder, generation))
}
