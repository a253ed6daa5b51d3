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
use cowfs::reader::Progress;
use cowfs::transaction::Transaction;
use file_service::rules::xattrs::CAPABILITY;
use ondisk::damage::Damage;
use ondisk::inode::KIND_ATTRIBUTES;
use ondisk::xattr::{self, Sought, Xattrs};
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
    if find(transaction, inode, CAPABILITY)?.is_none() {
        note_capability(transaction, inode, false);
        return Ok(false);
    }
    remove(transaction, inode, CAPABILITY)
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
    let Some((holder, size)) = place(transaction, inode)? else { return Ok(Xattrs::new()) };
    all((holder, size), |count| transaction.read_range(holder, Fbn(0), count))
}

/// One of a file's extended attributes in the active image.
///
/// # Errors
/// What to wait for, or damage.
pub(crate) fn find<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
    name: &[u8],
) -> Outcome<Option<Vec<u8>>> {
    let Some((holder, size)) = place(transaction, inode)? else { return Ok(None) };
    one((holder, size), name, |count| transaction.read_range(holder, Fbn(0), count))
}

/// The holder of a file in the active image, and the bytes of its list.
fn place<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
) -> Outcome<Option<(InodeNumber, u64)>> {
    let Some(holder) = holder(transaction, inode)? else { return Ok(None) };
    let state = transaction.attributes(holder.inode)?;
    Ok(Some((holder.inode, state.map_or(0, |state| state.size))))
}

/// The list of a holder with `size` bytes, of which `read` gets the first blocks.
///
/// # Errors
/// What to wait for, or damage.
pub(crate) fn all(
    (holder, size): (InodeNumber, u64),
    read: impl FnOnce(u64) -> Progress<Vec<Option<BlockRef>>>,
) -> Outcome<Xattrs> {
    let bytes = joined(&read(block_count(holder, size)?)?, size);
    xattr::parse(&bytes).map_err(|damage| OperationStop::Content { inode: holder, damage })
}

/// One attribute in the list of a holder with `size` bytes. No more blocks are read than have to
/// be: whoever gives a file many attributes must not make each look at its access control list
/// dear, which lies before those that users give.
///
/// # Errors
/// What to wait for, or damage.
pub(crate) fn one(
    (holder, size): (InodeNumber, u64),
    name: &[u8],
    mut read: impl FnMut(u64) -> Progress<Vec<Option<BlockRef>>>,
) -> Outcome<Option<Vec<u8>>> {
    let count_max = block_count(holder, size)?;
    let mut count = count_max.min(1);
    loop {
        let bytes = joined(&read(count)?, size);
        let sought = xattr::seek(&bytes, size, name);
        match sought.map_err(|damage| OperationStop::Content { inode: holder, damage })? {
            Sought::Value(value) => return Ok(Some(value.to_vec())),
            Sought::Missing => return Ok(None),
            Sought::Further => count = (count * 2).min(count_max),
        }
    }
}

fn block_count(holder: InodeNumber, size: u64) -> Outcome<u64> {
    if size > XATTRS_BYTES_MAX {
        let damage = Damage::Field { structure: "extended attributes", field: "size" };
        return Err(OperationStop::Content { inode: holder, damage });
    }
    Ok(size.div_ceil(BLOCK_SIZE_U64))
}

/// The bytes of the first blocks of a file with `size` bytes.
fn joined(blocks: &[Option<BlockRef>], size: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(blocks.len() * BLOCK_SIZE);
    for block in blocks {
        match block {
            Some(block) => bytes.extend_from_slice(block.bytes()),
            None => bytes.resize(bytes.len() + BLOCK_SIZE, 0),
        }
    }
    bytes.truncate(size as usize);
    bytes
}

/// Has the holder of a file's extended attributes count to the quotas that the file counts to.
///
/// # Errors
/// What to wait for; `Dangling`.
pub(crate) fn follow<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
) -> Outcome<()> {
    let Some(holder) = holder(transaction, inode)? else { return Ok(()) };
    let owner = transaction.edit(inode)?.owner();
    let found = transaction.attributes(holder.inode)?;
    if found.is_some_and(|found| found.owner() != owner) {
        let state = transaction.edit(holder.inode)?;
        (state.uid, state.gid, state.tree) = (owner.uid, owner.gid, owner.tree);
    }
    Ok(())
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
            follow(transaction, inode)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use file_service::acl::{ACL_ACCESS, ACL_DEFAULT};
    use file_service::rules::xattrs::CAPABILITY;

    #[test]
    fn what_users_attach_makes_no_look_at_a_list_dear() {
        let mut list = Xattrs::new();
        for name in [ACL_ACCESS, ACL_DEFAULT] {
            list.insert(name.to_vec(), vec![1; 100]);
        }
        for number in 0..60 {
            list.insert(format!("user.{number:02}").into_bytes(), vec![2; 64 << 10]);
        }
        let bytes = xattr::encode(&list);
        let holder = (InodeNumber(9), bytes.len() as u64);
        let looked = |name: &[u8]| {
            let mut most = 0;
            let found = one(holder, name, |count| {
                most = count;
                let chunks = bytes.chunks(BLOCK_SIZE).take(count as usize);
                Ok(chunks.map(|chunk| Some(Arc::new(Block::from_prefix(chunk)))).collect())
            });
            (found.unwrap(), most)
        };
        for name in [ACL_ACCESS, ACL_DEFAULT] {
            assert_eq!(looked(name), (list.get(name).cloned(), 1), "blocks for a list");
        }
        let (found, most) = looked(CAPABILITY);
        assert!(found.is_none() && most == 1, "{most} blocks to see that there is none");
        let last = b"user.59";
        assert_eq!(looked(last).0.as_ref(), list.get(last.as_slice()));
        let blocks = bytes.len().div_ceil(BLOCK_SIZE) as u64;
        assert_eq!(looked(b"user.60"), (None, blocks));
    }
}
