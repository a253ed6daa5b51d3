//! Directories: a B+tree of names in the directory's own file, ordered by a stable 64-bit cookie.
//!
//! An entry's cookie is the upper 55 bits of its name's keyed hash and a collision number
//! (`ondisk::directory`). The tree is ordered by cookie, so that one descent finds a name, and a
//! listing that goes on from a cookie sees each entry that is there throughout exactly once,
//! however much is inserted, removed, split or merged between its pages.
//!
//! The tree lives in block 0 as long as it fits; then block 0 keeps the root node, and leaves and
//! branches take further blocks. Blocks that are emptied go to a free list in the file or, at its
//! end, are cut off; a directory that is emptied is one block again.
//!
//! Invariants:
//! - Nothing is believed that was not validated: every block is checked against the bounds and the
//!   level that its parent gives each time it is read, and whole the first time. Nothing but this
//!   module changes a directory's blocks, and it leaves them valid.
//! - An entry keeps its cookie until it is removed; [`replace`] keeps it, too.
//! - An operation changes at most [`BLOCKS_CHANGED_MAX`] blocks.
//! - Operations may fail after they changed blocks: the caller drops a failed transaction whole.
//!
//! Fails: [`DirectoryError`]. A damaged block is reported, never a panic, never an endless loop: a
//! child's level is below its parent's, and a walk only goes to higher cookies.

mod hash;
mod insert;
mod node;
mod remove;
mod space;
#[cfg(test)]
mod tests;
mod tree;
mod verify;

use std::ops::ControlFlow;

use ondisk::directory::{DirectoryMember, LEVEL_MAX};
use thiserror::Error;
use units::{Block, BlockRef, Fbn, Generation, InodeNumber, MemberNumber};

pub use ondisk::directory::{DirectoryDamage, DirectoryProblem, NAME_BYTES_MAX, is_entry_name};
pub use verify::{DirectorySummary, verify};

use tree::Tree;

/// Most blocks that one operation changes, for reservations: on each level a node and a neighbour
/// that is split off, merged or takes a range over, and the free-list blocks trimmed at the file's
/// end.
pub const BLOCKS_CHANGED_MAX: u64 = 2 * (LEVEL_MAX as u64 + 1) + 2;

/// Most blocks that one insert adds to the file: one for each level, and one for a new root.
pub const BLOCKS_ADDED_MAX: u64 = LEVEL_MAX as u64 + 1;

/// The blocks of one directory's file, within a transaction.
pub trait DirectoryBlocks {
    /// What the caller must wait for when a block is not in memory.
    type Wait;

    /// The file's length in blocks.
    fn size_blocks(&self) -> u64;

    /// A block below `size_blocks`.
    ///
    /// # Errors
    /// [`DirectoryError::Wait`] if it must be loaded first.
    fn read(&mut self, fbn: Fbn) -> Result<BlockRef, DirectoryError<Self::Wait>>;

    /// A block with its current content, to be changed. `fbn == size_blocks` extends the file by a
    /// block of zeros.
    ///
    /// # Errors
    /// [`DirectoryError::Wait`] if it must be loaded first, [`DirectoryError::Full`] if the file
    /// cannot grow.
    fn write(&mut self, fbn: Fbn) -> Result<&mut Block, DirectoryError<Self::Wait>>;

    /// Cuts the file to `size_blocks`.
    fn truncate(&mut self, size_blocks: u64);

    /// Whether a block of this file and image was validated whole before, and changed by this
    /// module only since.
    fn is_validated(&self, _fbn: Fbn) -> bool {
        false
    }

    /// Notes that a block was validated whole.
    fn set_validated(&mut self, _fbn: Fbn) {}
}

/// Why a directory operation did not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum DirectoryError<W> {
    /// A block must be loaded; then the operation is to be run again from the start.
    #[error("a block of the directory is not in memory")]
    Wait(W),
    /// A block is not what it should be.
    #[error(transparent)]
    Damaged(#[from] DirectoryDamage),
    /// The directory has its most entries or levels, or 255 names of one hash prefix.
    #[error("the directory is full")]
    Full,
    /// The name is taken.
    #[error("the name exists")]
    Exists,
    /// The name is none that an entry can have: see [`is_entry_name`].
    #[error("not a name for an entry")]
    BadName,
}

/// A file of a volume (decision 14: a directory entry may lead to another member of a group).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Member {
    /// Which member of the group of volumes: [`MemberNumber::ITSELF`] is the directory's own.
    pub number: MemberNumber,
    /// The inode; never 0.
    pub inode: InodeNumber,
    /// Which of the inode's files.
    pub generation: Generation,
}

/// What a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// The file.
    pub member: Member,
    /// The code of its kind as in its inode, for listings; never 0, not interpreted here.
    pub kind: u8,
}

/// An entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its cookie: a listing after it goes on with the next entry.
    pub cookie: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// What the name leads to.
    pub entry: Entry,
}

/// A stretch of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// Entries in the order of their cookies; without `.` and `..`, whose cookies are 1 and 2.
    pub entries: Vec<Listed>,
    /// Whether no entry follows. If not, `entries` is not empty.
    pub end: bool,
}

impl Member {
    /// A file of the directory's own volume.
    #[must_use]
    pub const fn of_this_volume(inode: InodeNumber, generation: Generation) -> Self {
        Self { number: MemberNumber::ITSELF, inode, generation }
    }
}

impl From<DirectoryMember> for Member {
    fn from(member: DirectoryMember) -> Self {
        Self {
            number: MemberNumber(member.number.get()),
            inode: InodeNumber(member.inode.get()),
            generation: Generation(member.generation.get()),
        }
    }
}

impl From<Member> for DirectoryMember {
    fn from(member: Member) -> Self {
        Self {
            number: member.number.get().into(),
            generation: member.generation.get().into(),
            inode: member.inode.get().into(),
        }
    }
}

type Outcome<T, B> = Result<T, DirectoryError<<B as DirectoryBlocks>::Wait>>;

/// Makes an empty directory `this` in an empty file. `hash_seed` must be random, so that nobody
/// can choose names that collide, and must be the same when the operation is replayed.
///
/// # Errors
/// [`DirectoryError`].
///
/// # Panics
/// If the file has blocks.
pub fn create<B: DirectoryBlocks>(
    blocks: &mut B,
    this: Member,
    parent: Member,
    hash_seed: [u64; 2],
) -> Outcome<(), B> {
    Tree::new(blocks, hash::name_hash).create(this, parent, hash_seed)
}

/// What `name` leads to.
///
/// # Errors
/// [`DirectoryError`].
pub fn lookup<B: DirectoryBlocks>(blocks: &mut B, name: &[u8]) -> Outcome<Option<Entry>, B> {
    Tree::new(blocks, hash::name_hash).lookup(name)
}

/// Adds a name, and returns its cookie.
///
/// # Errors
/// [`DirectoryError::Exists`] if the name is taken; others.
///
/// # Panics
/// If the entry's inode or kind is 0.
pub fn insert<B: DirectoryBlocks>(blocks: &mut B, name: &[u8], entry: Entry) -> Outcome<u64, B> {
    Tree::new(blocks, hash::name_hash).insert(name, entry)
}

/// Removes a name, and returns what it led to.
///
/// # Errors
/// [`DirectoryError`].
pub fn remove<B: DirectoryBlocks>(blocks: &mut B, name: &[u8]) -> Outcome<Option<Entry>, B> {
    Tree::new(blocks, hash::name_hash).remove(name)
}

/// Lets a name lead elsewhere, and returns what it led to; changes nothing if it is not there.
///
/// # Errors
/// [`DirectoryError`].
///
/// # Panics
/// If the entry's inode or kind is 0.
pub fn replace<B: DirectoryBlocks>(
    blocks: &mut B,
    name: &[u8],
    entry: Entry,
) -> Outcome<Option<Entry>, B> {
    Tree::new(blocks, hash::name_hash).replace(name, entry)
}

/// Up to `entries_max` entries whose cookies are above `after_cookie`. Stops early before a block
/// that is not in memory if it has entries already.
///
/// # Errors
/// [`DirectoryError`].
pub fn list<B: DirectoryBlocks>(
    blocks: &mut B,
    after_cookie: u64,
    entries_max: usize,
) -> Outcome<Listing, B> {
    let mut entries = Vec::new();
    let scanned = scan(blocks, after_cookie, |cookie, name, entry| {
        if entries.len() >= entries_max {
            return ControlFlow::Break(());
        }
        entries.push(Listed { cookie, name: name.to_vec(), entry });
        ControlFlow::Continue(())
    });
    match scanned {
        Ok(end) => Ok(Listing { entries, end }),
        Err(DirectoryError::Wait(_)) if !entries.is_empty() => Ok(Listing { entries, end: false }),
        Err(error) => Err(error),
    }
}

/// Shows `visit` the entries whose cookies are above `after_cookie` in their order, until it
/// breaks off. Whether the end was reached.
///
/// # Errors
/// [`DirectoryError`], after any number of entries.
pub fn scan<B: DirectoryBlocks>(
    blocks: &mut B,
    after_cookie: u64,
    visit: impl FnMut(u64, &[u8], Entry) -> ControlFlow<()>,
) -> Outcome<bool, B> {
    Tree::new(blocks, hash::name_hash).scan(after_cookie, visit)
}

/// How many entries there are, `.` and `..` not counted.
///
/// # Errors
/// [`DirectoryError`].
pub fn entry_count<B: DirectoryBlocks>(blocks: &mut B) -> Outcome<u64, B> {
    Ok(Tree::new(blocks, hash::name_hash).open()?.1.entry_count.get())
}

/// Whether there are no entries but `.` and `..`.
///
/// # Errors
/// [`DirectoryError`].
pub fn is_empty<B: DirectoryBlocks>(blocks: &mut B) -> Outcome<bool, B> {
    Ok(entry_count(blocks)? == 0)
}

/// What `..` leads to.
///
/// # Errors
/// [`DirectoryError`].
pub fn parent<B: DirectoryBlocks>(blocks: &mut B) -> Outcome<Member, B> {
    Ok(Tree::new(blocks, hash::name_hash).open()?.1.parent.into())
}

/// What `.` leads to.
///
/// # Errors
/// [`DirectoryError`].
pub fn this<B: DirectoryBlocks>(blocks: &mut B) -> Outcome<Member, B> {
    Ok(Tree::new(blocks, hash::name_hash).open()?.1.this.into())
}

/// Lets `..` lead elsewhere, when the directory was moved.
///
/// # Errors
/// [`DirectoryError`].
pub fn set_parent<B: DirectoryBlocks>(blocks: &mut B, parent: Member) -> Outcome<(), B> {
    let mut tree = Tree::new(blocks, hash::name_hash);
    tree.open()?;
    tree.edit_root(|root| root.parent = parent.into())
}
