//! The changes that operations and replay both make, once everything is decided: files come to be,
//! lose their names, change their size and content.
//!
//! Invariants: nothing here asks for permission or chooses anything. The last block of a file is
//! zero beyond the file's end, and no block lies beyond it.

use crate::attributes::take_over_state;
use crate::holder::Holder;
use crate::lists::NewLists;
use crate::{Outcome, directory_file, file, holder};
use cowfs::directory::{self, Entry, Member};
use cowfs::pointer::Pointer;
use cowfs::reader::{Progress, Stop, Wait};
use cowfs::transaction::Transaction;
use ondisk::inode::{KIND_DIRECTORY, KIND_REGULAR, KIND_SYMLINK};
use ondisk::operation::FileState;
use platform::mutation::{self, Rule};
use std::ops::Range;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, Block, BlockNumber, Fbn, InodeNumber, Timestamp};

/// A file up to this size is freed by the operation that removes it; the blocks of a larger one are
/// freed in the background, so that no consistency point has to walk large trees at once.
pub const FREE_AT_ONCE_BYTES_MAX: u64 = 4 << 20;

/// A file that has an inode, but nothing in it yet.
pub struct NewFile<'n> {
    pub member: Member,
    pub kind: u8,
    pub state: FileState,
    pub device: (u32, u32),
    pub create_verifier: u64,
    /// Of a directory.
    pub hash_seed: [u64; 2],
    /// Of a symbolic link.
    pub text: &'n [u8],
    /// Access control lists.
    pub lists: NewLists,
}

/// Fills a new file and enters it in its directory; what holds its access control lists, if it has
/// any. `chosen` is the holder that it must be, in replay.
///
/// # Errors
/// What to wait for, `Exists`, or damage.
pub fn make<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    (parent, name): (Member, &[u8]),
    (new, chosen): (&NewFile<'_>, Option<Holder>),
    now: Timestamp,
) -> Outcome<Option<Holder>> {
    let inode = new.member.inode;
    let is_directory = new.kind == KIND_DIRECTORY;
    let tree = match mutation::broken(Rule::TreeNotInherited) {
        true => 0,
        false => transaction.attributes(parent.inode)?.map_or(0, |parent| parent.tree),
    };
    let state = transaction.edit(inode)?;
    take_over_state(state, &new.state);
    state.tree = tree;
    state.birth = now;
    state.device = new.device;
    state.create_verifier = new.create_verifier;
    state.links = if is_directory { 2 } else { 1 };
    match new.kind {
        KIND_DIRECTORY => directory_file::with(transaction, inode, |blocks| {
            directory::create(blocks, new.member, parent, new.hash_seed)
        })?,
        KIND_SYMLINK => {
            state.size = new.text.len() as u64;
            transaction.put(inode, Fbn(0), Block::shared(new.text))?;
        }
        KIND_REGULAR => state.size = new.state.size.get(),
        _ => {}
    }
    add_name(transaction, parent.inode, name, Entry { member: new.member, kind: new.kind }, now)?;
    if is_directory {
        transaction.edit(parent.inode)?.links += 1;
    }
    new.lists.give(transaction, inode, chosen)
}

/// Fills a new regular file that has no name: an orphan, which counts to a quota tree, or to 0. For
/// the rest, as [`make`].
///
/// # Errors
/// What to wait for.
pub fn make_unnamed<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    (inode, decided, tree): (InodeNumber, &FileState, u32),
    (lists, chosen): (&NewLists, Option<Holder>),
    now: Timestamp,
) -> Outcome<Option<Holder>> {
    let state = transaction.edit(inode)?;
    take_over_state(state, decided);
    state.tree = tree;
    state.birth = now;
    state.links = 0;
    transaction.add_orphan(inode)?;
    lists.give(transaction, inode, chosen)
}

/// Gives a file one more name; its first takes it off the orphan list.
///
/// # Errors
/// What to wait for, `Exists`, or damage.
pub fn link<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    parent: InodeNumber,
    name: &[u8],
    entry: Entry,
    now: Timestamp,
) -> Outcome<()> {
    let inode = entry.member.inode;
    add_name(transaction, parent, name, entry, now)?;
    let state = transaction.edit(inode)?;
    let is_first = state.links == 0;
    state.links += 1;
    state.touch(now);
    if is_first {
        transaction.remove_orphan(inode)?;
    }
    Ok(())
}

/// Enters a name.
///
/// # Errors
/// What to wait for, `Exists`, or damage.
pub fn add_name<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    parent: InodeNumber,
    name: &[u8],
    entry: Entry,
    now: Timestamp,
) -> Outcome<()> {
    directory_file::with(transaction, parent, |blocks| directory::insert(blocks, name, entry))?;
    transaction.edit(parent)?.touch_content(now);
    Ok(())
}

/// Removes a name and takes the link from its file; the link of a directory to its parent, too.
///
/// # Errors
/// What to wait for, or damage.
pub fn remove_name<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    parent: InodeNumber,
    name: &[u8],
    victim: InodeNumber,
    now: Timestamp,
) -> Outcome<()> {
    directory_file::with(transaction, parent, |blocks| directory::remove(blocks, name))?;
    transaction.edit(parent)?.touch_content(now);
    unlink(transaction, parent, victim, now)
}

/// Takes one name from a file, and the file away with its last name unless somebody holds it.
///
/// # Errors
/// What to wait for.
pub fn unlink<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    parent: InodeNumber,
    victim: InodeNumber,
    now: Timestamp,
) -> Outcome<()> {
    let state = transaction.edit(victim)?;
    let is_directory = state.kind == KIND_DIRECTORY;
    // An empty directory loses its own `.` with its name.
    state.links = if is_directory { 0 } else { state.links.saturating_sub(1) };
    state.touch(now);
    let state = state.clone();
    if is_directory {
        let links = &mut transaction.edit(parent)?.links;
        *links = links.saturating_sub(1);
    }
    if state.links > 0 {
        return Ok(());
    }
    let held = file::is_held(transaction, victim, &state) || transaction.logical().replaying;
    if held || state.size > FREE_AT_ONCE_BYTES_MAX {
        transaction.add_orphan(victim)?;
    } else {
        free(transaction, victim)?;
    }
    Ok(())
}

/// Frees a file with its extended attributes.
///
/// # Errors
/// What to wait for.
pub fn free<P: Pointer>(transaction: &mut Transaction<'_, P>, inode: InodeNumber) -> Outcome<()> {
    if let Some(holder) = holder::holder(transaction, inode)? {
        transaction.free(holder.inode)?;
    }
    transaction.free(inode)?;
    Ok(())
}

/// Sets a regular file's size; what is cut off is gone, what is added is a hole.
///
/// # Errors
/// What to wait for.
pub fn resize<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
    size: u64,
) -> Progress<()> {
    let before = transaction.edit(inode)?.size;
    transaction.check_content(inode)?;
    if size < before {
        let keep = size.div_ceil(BLOCK_SIZE_U64);
        if !mutation::broken(Rule::TruncationKeepsTail) {
            zero_part(transaction, inode, size, keep * BLOCK_SIZE_U64)?;
        }
        transaction.punch(inode, Fbn(keep), Fbn::END)?;
    }
    transaction.edit(inode)?.size = size;
    Ok(())
}

/// Makes bytes `start..end` read as zeros: whole blocks become a hole.
///
/// # Errors
/// What to wait for.
pub fn zero_range<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
    start: u64,
    end: u64,
) -> Progress<()> {
    // Nothing lies beyond the file's last block.
    let size = transaction.edit(inode)?.size;
    let end = end.min(size.next_multiple_of(BLOCK_SIZE_U64));
    if start >= end {
        return Ok(());
    }
    let (first, last) = (start.div_ceil(BLOCK_SIZE_U64), end / BLOCK_SIZE_U64);
    if last < first {
        return zero_part(transaction, inode, start, end);
    }
    zero_part(transaction, inode, start, first * BLOCK_SIZE_U64)?;
    zero_part(transaction, inode, last * BLOCK_SIZE_U64, end)?;
    transaction.punch(inode, Fbn(first), Fbn(last))
}

/// Zeroes bytes of one block, if there is such a block.
fn zero_part<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
    start: u64,
    end: u64,
) -> Progress<()> {
    let fbn = Fbn(start / BLOCK_SIZE_U64);
    if start < end && transaction.read(inode, fbn)?.is_some() {
        let (low, high) = part(fbn, start, end);
        transaction.modify(inode, fbn)?[low..high].fill(0);
    }
    Ok(())
}

/// Writes bytes; the size and the times are the caller's business.
///
/// # Errors
/// What to wait for.
pub fn write<P: Pointer>(
    transaction: &mut Transaction<'_, P>,
    inode: InodeNumber,
    offset: u64,
    bytes: &[u8],
) -> Progress<()> {
    let end = offset + bytes.len() as u64;
    let blocks = touched(offset, end);
    // Both ends may be parts of blocks that are not in memory: one wait for the two.
    let mut missing = Vec::new();
    for fbn in [blocks.start.get(), blocks.end.get().saturating_sub(1)].map(Fbn) {
        let (low, high) = part(fbn, offset, end);
        if high - low < BLOCK_SIZE {
            match transaction.read(inode, fbn) {
                Err(Stop::Wait(Wait::Load(requests))) => missing.extend(requests),
                other => drop(other?),
            }
        }
    }
    if !missing.is_empty() {
        missing.dedup();
        return Err(Stop::Wait(Wait::Load(missing)));
    }
    let mut rest = bytes;
    for fbn in blocks.start.until(blocks.end) {
        let (low, high) = part(fbn, offset, end);
        let (now, later) = rest.split_at(high - low);
        if now.len() == BLOCK_SIZE {
            transaction.put(inode, fbn, Block::shared(now))?;
        } else {
            transaction.modify(inode, fbn)?[low..high].copy_from_slice(now);
        }
        rest = later;
    }
    assert!(rest.is_empty(), "every byte has its block");
    Ok(())
}

/// The file blocks that bytes `start..end` touch.
pub fn touched(start: u64, end: u64) -> Range<Fbn> {
    let first = Fbn(start / BLOCK_SIZE_U64);
    if start < end { first..Fbn(end.div_ceil(BLOCK_SIZE_U64)) } else { first..first }
}

/// The part of block `fbn` that lies in bytes `start..end`, as offsets within the block.
pub fn part(fbn: Fbn, start: u64, end: u64) -> (usize, usize) {
    let base = fbn.get() * BLOCK_SIZE_U64;
    let low = start.saturating_sub(base).min(BLOCK_SIZE_U64);
    let high = end.saturating_sub(base).min(BLOCK_SIZE_U64);
    (low as usize, high as usize)
}
