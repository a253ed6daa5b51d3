//! Extended attributes: kept as one list (`ondisk::xattr`) in an inode of its own, the *holder*,
//! which the file's inode names and which goes with the file.
//!
//! Invariants: a holder holds at least one attribute; it has the kind `KIND_ATTRIBUTES` and no
//! name.
//!
//! Fails: as `file_service::rules::xattrs` refuse; `NoAttribute`, `Exists`, `AttributeTooLarge`,
//! `NoSpace`.

use crate::mutation::{prefix, reference};
use crate::view::View;
use crate::{Executed, Files, Mutation, OperationStop, Outcome, Query, Record, Scoped};
use cowfs::directory::Member;
use cowfs::inode::InodeAttributes;
use cowfs::pointer::Pointer;
use cowfs::transaction::Transaction;
use file_service::rules::xattrs::{CAPABILITY, check_get, check_names_room, check_set, is_listed};
use file_service::{FsError, XattrSetMode, calls};
use ondisk::damage::Damage;
use ondisk::inode::KIND_ATTRIBUTES;
use ondisk::operation::{KIND_REMOVE_XATTR, KIND_SET_XATTR, RemoveXattrRecord, SetXattrRecord};
use ondisk::xattr::{self, Xattrs};
use std::sync::Arc;
use units::{
    BLOCK_SIZE, BLOCK_SIZE_U64, Block, BlockRef, Fbn, Generation, InodeNumber, SnapshotId,
    Timestamp,
};

/// Most bytes of a file's extended attributes together: 64 of the largest. A change rewrites the
/// list and has it in memory whole; other file systems stop far earlier.
pub const XATTRS_BYTES_MAX: u64 = 4 << 20;

impl Query for Scoped<calls::GetXattr> {
    type Reply = Vec<u8>;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Vec<u8>> {
        let mut view = View::open(files, self.call.file)?;
        let attributes = view.file(self.call.file)?;
        check_get(&self.scope.caller, &attributes, &self.call.name)?;
        let mut list = load_from(&mut view, self.call.file.inode)?;
        list.remove(&self.call.name).ok_or_else(|| FsError::NoAttribute.into())
    }
}

impl Query for Scoped<calls::ListXattrs> {
    type Reply = Vec<Vec<u8>>;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Vec<Vec<u8>>> {
        let mut view = View::open(files, self.call.file)?;
        view.file(self.call.file)?;
        let names = load_from(&mut view, self.call.file.inode)?.into_keys();
        Ok(names.filter(|name| is_listed(&self.scope.caller, name)).collect())
    }
}

impl Mutation for Scoped<calls::SetXattr> {
    type Reply = ();

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<()>> {
        let found = files.open(self.call.file)?;
        check_set(&self.scope.caller, &found.attributes, &self.call.name, self.call.value.len())?;
        let mut list = load(files.transaction, found.inode)?;
        let there = list.contains_key(&self.call.name);
        match self.call.mode {
            XattrSetMode::Create if there => return Err(FsError::Exists.into()),
            XattrSetMode::Replace if !there => return Err(FsError::NoAttribute.into()),
            XattrSetMode::Either | XattrSetMode::Create | XattrSetMode::Replace => {}
        }
        if !there {
            let names_bytes = list.keys().map(|name| name.len() + 1).sum();
            check_names_room(names_bytes, &self.call.name)?;
        }
        list.insert(self.call.name.clone(), self.call.value.clone());
        if xattr::encoded_size(&list) as u64 > XATTRS_BYTES_MAX {
            return Err(FsError::AttributeTooLarge.into());
        }
        let now = self.scope.now;
        files.transaction.now = now;
        let (inode, generation) = store(files.transaction, found.inode, &list, None)?;
        files.transaction.edit(found.inode)?.touch(now);
        let record = SetXattrRecord {
            prefix: prefix(files.environment.volume, now),
            file: reference(found.inode, found.state.generation),
            holder: reference(inode, generation),
            value_size: (self.call.value.len() as u32).into(),
            name_size: (self.call.name.len() as u16).into(),
            reserved: 0.into(),
        };
        let record = Record::new(KIND_SET_XATTR, &record, &[&self.call.name, &self.call.value]);
        Ok(Executed::storing((), record))
    }
}

impl Mutation for Scoped<calls::RemoveXattr> {
    type Reply = ();

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<()>> {
        let found = files.open(self.call.file)?;
        check_set(&self.scope.caller, &found.attributes, &self.call.name, 0)?;
        if !remove(files.transaction, found.inode, &self.call.name)? {
            return Err(FsError::NoAttribute.into());
        }
        files.transaction.edit(found.inode)?.touch(self.scope.now);
        let record = RemoveXattrRecord {
            prefix: prefix(files.environment.volume, self.scope.now),
            file: reference(found.inode, found.state.generation),
            name_size: (self.call.name.len() as u16).into(),
            reserved: [0; 6],
        };
        let record = Record::new(KIND_REMOVE_XATTR, &record, &[&self.call.name]);
        Ok(Executed::freeing((), record))
    }
}

/// Removes a program's capabilities, whose content or owner changes; whether there were any.
///
/// # Errors
/// What to wait for, or damage.
pub(crate) fn drop_capability<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
) -> Outcome<bool> {
    remove(transaction, inode, CAPABILITY)
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

fn holder_of(state: &InodeAttributes) -> Option<InodeNumber> {
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

/// A file's extended attributes in the image of a view.
fn load_from<P: Pointer>(view: &mut View<'_, '_, P>, inode: InodeNumber) -> Outcome<Xattrs> {
    if view.image == SnapshotId::DIRECTORY {
        return Ok(Xattrs::new());
    }
    let holder = view.look(inode, |state, _| holder_of(state))?.flatten();
    let Some(holder) = holder else { return Ok(Xattrs::new()) };
    let size = view.look(holder, |state, _| (state.kind == KIND_ATTRIBUTES).then_some(state.size));
    let size = size?.flatten().ok_or(OperationStop::Dangling { inode: holder })?;
    let count = block_count(holder, size)?;
    let blocks = view.blocks(holder, Fbn(0), count)?;
    decode(holder, size, &blocks)
}

fn block_count(holder: InodeNumber, size: u64) -> Outcome<u64> {
    if size > XATTRS_BYTES_MAX {
        let damage = Damage::Field { structure: "extended attributes", field: "size" };
        return Err(OperationStop::Content { inode: holder, damage });
    }
    Ok(size.div_ceil(BLOCK_SIZE_U64))
}

fn decode(holder: InodeNumber, size: u64, blocks: &[Option<BlockRef>]) -> Outcome<Xattrs> {
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
    chosen: Option<(InodeNumber, Generation)>,
) -> Outcome<(InodeNumber, Generation)> {
    let (holder, generation) = match holder(transaction, inode)? {
        Some(holder) => (holder.inode, holder.generation),
        None => {
            let made = transaction.create(KIND_ATTRIBUTES, 0, chosen)?;
            // Below INODES_MAX, which 32 bits hold.
            transaction.edit(inode)?.attributes_inode = made.0.get() as u32;
            made
        }
    };
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
