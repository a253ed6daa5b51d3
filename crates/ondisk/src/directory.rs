//! Blocks of a directory file: a B+tree ordered by cookie, rooted in the file's block 0.
//!
//! Every block begins with a [`DirectoryBlockHeader`]. Block 0 goes on with a [`DirectoryRoot`] and
//! holds the tree's root node in what is left of it, so that a small directory is one block; every
//! other block is a node or lies on the free list.
//!
//! ```text
//! block 0     | header 32 | root 96 | records ->        <- names |
//! leaf        | header 32 | records ->                  <- names |
//! branch      | header 32 | children ->                          |
//! free        | header 32 (next_free) |                          |
//! ```
//!
//! Invariants, all of them checked by [`DirectoryNode::view`] (in constant time: what must hold so
//! that the block can be read at all) and [`DirectoryNode::validate`] (linear: order and content;
//! [`DirectoryNode::validate_place`] is what of it the parent has a say in):
//! - Cookies of a leaf, keys of a branch ascend strictly and lie within the bounds that the parent
//!   gives; a branch's first key equals its lower bound.
//! - Names fill `names_start..BLOCK_SIZE` without a gap, the first record's name last, so that
//!   neither an overlap nor a leak can exist, and a split cuts them in one place.
//! - A cookie is `prefix << COLLISION_BITS | collision`; it is at least [`COOKIE_MIN`] and below
//!   [`COOKIE_LIMIT`], and its collision number is at most [`COLLISION_MAX`].
//! - A child's level is its parent's less one; a leaf's level is 0. So a descent ends.
//! - Only the root may be empty.
//!
//! Fails: [`DirectoryDamage`] names the block and what is wrong; no bytes whatever panic.

use crate::versions;
use std::fmt;
use std::mem::{offset_of, size_of};

use thiserror::Error;
use units::{BLOCK_SIZE, Block, Fbn};
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// "SDIR".
pub const DIRECTORY_MAGIC: u32 = u32::from_le_bytes(*b"SDIR");

/// [`DirectoryRoot::hash_algorithm`]: SipHash-1-3 of the name, keyed with the hash seed.
pub const HASH_SIPHASH_1_3: u16 = 1;

/// Longest name in bytes (POSIX `NAME_MAX`); a record counts it in one byte.
pub const NAME_BYTES_MAX: usize = 255;

/// Highest level of a root. The narrowest branch a split leaves holds 165 children and the poorest
/// leaf 7 entries, so level 4 reaches 5 * 10^9 entries; two more levels allow for what deletes
/// thin.
pub const LEVEL_MAX: u8 = 6;

/// Most blocks of a directory: 1 TiB, far beyond [`DIRECTORY_ENTRIES_MAX`] entries of any length,
/// and well within the 32 bits of a child pointer.
pub const DIRECTORY_BLOCKS_MAX: u64 = 1 << 28;

/// Most entries: more than ten times the size to design for (10^7), while two names of one hash
/// prefix stay rare (2^53 pairs / 2^55 prefixes, 1/4 expected in a full directory).
pub const DIRECTORY_ENTRIES_MAX: u64 = 1 << 27;

/// Low bits of a cookie that tell apart entries whose hash prefix is the same.
pub const COLLISION_BITS: u32 = 8;
/// Highest collision number; one less than fits, so that no cookie is `i64::MAX`, which some
/// clients take for the end of a directory.
pub const COLLISION_MAX: u64 = (1 << COLLISION_BITS) - 2;
/// Lowest cookie of an entry: 0 is the start of a listing, 1 and 2 are `.` and `..`.
pub const COOKIE_MIN: u64 = 3;
/// All cookies are below this, so that they are positive as an `i64` (Linux `telldir`).
pub const COOKIE_LIMIT: u64 = 1 << 63;

/// What a block is: [`DirectoryBlockHeader::kind`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DirectoryBlockKind {
    /// Entries.
    Leaf = 1,
    /// Keys and children.
    Branch = 2,
    /// On the free list.
    Free = 3,
}

/// The first bytes of every block of a directory.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Default)]
#[repr(C)]
pub struct DirectoryBlockHeader {
    /// [`DIRECTORY_MAGIC`].
    pub magic: U32,
    /// The version of the format ([`crate::versions`]).
    pub version: U16,
    /// A [`DirectoryBlockKind`].
    pub kind: u8,
    /// Levels below this node: 0 in a leaf.
    pub level: u8,
    /// Records or children.
    pub count: U16,
    /// First byte of the names within the block; [`BLOCK_SIZE`] when there are none.
    pub names_start: U16,
    /// The block's own number within the directory.
    pub fbn: U32,
    /// Of a free block: the next one, 0 at the end of the list.
    pub next_free: U32,
    /// Zero.
    pub reserved: [u8; 12],
}

/// What block 0 says of the whole directory.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Default)]
#[repr(C)]
pub struct DirectoryRoot {
    /// The directory itself.
    pub this: DirectoryMember,
    /// What `..` is; of a root directory, itself.
    pub parent: DirectoryMember,
    /// Key of the name hash; never changes.
    pub hash_seed: [U64; 2],
    /// Entries, `.` and `..` not counted.
    pub entry_count: U64,
    /// First block of the free list, 0 if it is empty.
    pub free_head: U32,
    /// Length of the free list.
    pub free_count: U32,
    /// [`HASH_SIPHASH_1_3`].
    pub hash_algorithm: U16,
    /// Zero.
    pub reserved: [u8; 30],
}

/// The file that an entry leads to (decision 14).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Default)]
#[repr(C)]
pub struct DirectoryMember {
    /// 0: the directory's own volume; else the number of a member of the group of volumes.
    pub number: U32,
    /// Generation.
    pub generation: U32,
    /// Inode; never 0.
    pub inode: U64,
}

/// One entry of a leaf; its name lies at the end of the block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Default)]
#[repr(C)]
pub struct DirectoryRecord {
    /// The cookie.
    pub cookie: U64,
    /// The file.
    pub member: DirectoryMember,
    /// First byte of the name within the block.
    pub name_offset: U16,
    /// Bytes of the name, at least one.
    pub name_length: u8,
    /// The code of the file's kind as in its inode; never 0, not interpreted here.
    pub kind: u8,
}

/// One child of a branch.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Default)]
#[repr(C)]
pub struct DirectoryChild {
    /// No cookie beneath the child is below this one.
    pub key: U64,
    /// The child's block.
    pub fbn: U32,
}

/// Where records or children begin in a block other than 0.
pub const NODE_START: usize = size_of::<DirectoryBlockHeader>();
/// Where they begin in block 0.
pub const ROOT_NODE_START: usize = NODE_START + size_of::<DirectoryRoot>();

const _: () = {
    assert!(size_of::<DirectoryBlockHeader>() == 32);
    assert!(size_of::<DirectoryRoot>() == 96);
    assert!(size_of::<DirectoryMember>() == 16);
    assert!(size_of::<DirectoryRecord>() == 28);
    assert!(size_of::<DirectoryChild>() == 12);
    assert!(offset_of!(DirectoryBlockHeader, version) == 4); // never moves: read first
    assert!(offset_of!(DirectoryBlockHeader, fbn) == 12);
    assert!(NAME_BYTES_MAX == u8::MAX as usize);
    assert!(BLOCK_SIZE <= u16::MAX as usize);
    // A leaf that is split in half must have room for any one entry in either half.
    assert!(BLOCK_SIZE - ROOT_NODE_START > 4 * (size_of::<DirectoryRecord>() + NAME_BYTES_MAX));
};

/// A block of a directory that cannot be what it claims to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("directory block {fbn}: {problem}")]
pub struct DirectoryDamage {
    /// The block.
    pub fbn: Fbn,
    /// What is wrong with it.
    pub problem: DirectoryProblem,
}

/// What is wrong with a block of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum DirectoryProblem {
    /// Not a directory's block.
    #[error("magic is {0:#010x}")]
    Magic(u32),
    /// Of an unknown version.
    #[error("{}", versions::refusal(*.0))]
    Version(u16),
    /// Of an unknown kind, or one that cannot stand here.
    #[error("kind {0} is not expected")]
    Kind(u8),
    /// The block belongs elsewhere.
    #[error("claims to be block {0}")]
    Misplaced(u32),
    /// The level does not follow from the parent's or from the kind.
    #[error("level {0} is not expected")]
    Level(u8),
    /// More records, children or names than fit, or none where there must be one.
    #[error("{count} items and names from {names_start} do not fit")]
    Count {
        /// Records or children.
        count: u16,
        /// Where the names begin.
        names_start: u16,
    },
    /// A cookie or key is out of order or out of bounds.
    #[error("cookie or key {0:#x} is out of place")]
    Order(u64),
    /// A record has an impossible file, kind or name.
    #[error("record {0} is impossible")]
    Record(u16),
    /// A name holds a slash or NUL.
    #[error("a name holds a forbidden byte")]
    NameBytes,
    /// A pointer leads out of the file or to block 0.
    #[error("pointer to block {0}")]
    Pointer(u32),
    /// Bytes are in use that are zero in everything that this build writes.
    #[error("reserved bytes are in use; a newer build of Stroop wrote them")]
    Reserved,
    /// The name hash is of an unknown algorithm.
    #[error("hash algorithm {0} is not known")]
    HashAlgorithm(u16),
    /// Numbers of entries or free blocks that contradict the tree.
    #[error("its counts of {entries} entries and {free} free blocks are wrong")]
    Totals {
        /// Entries by the header.
        entries: u64,
        /// Free blocks by the header.
        free: u32,
    },
}

impl DirectoryProblem {
    /// Whether a build wrote the block that this one does not read: nothing is broken.
    #[must_use]
    pub const fn is_of_another_build(&self) -> bool {
        matches!(self, Self::Version(_) | Self::Reserved | Self::HashAlgorithm(_))
    }
}

/// What a node holds.
#[derive(Clone, Copy)]
pub enum DirectoryContent<'a> {
    /// Entries in the order of their cookies.
    Leaf(&'a [DirectoryRecord]),
    /// Children in the order of their keys.
    Branch(&'a [DirectoryChild]),
    /// Nothing: the block is free.
    Free,
}

/// A block of a directory, read in place.
#[derive(Clone, Copy)]
pub struct DirectoryNode<'a> {
    /// The whole block, for the names.
    pub block: &'a Block,
    /// Its header.
    pub header: &'a DirectoryBlockHeader,
    /// Of block 0: what it says of the directory.
    pub root: Option<&'a DirectoryRoot>,
    /// Records or children.
    pub content: DirectoryContent<'a>,
}

/// Where records or children begin in block `fbn`.
#[must_use]
pub const fn node_start(fbn: Fbn) -> usize {
    if fbn.0 == 0 { ROOT_NODE_START } else { NODE_START }
}

/// Whether `name` can be an entry's: 1 to 255 bytes without slash and NUL, not `.` or `..`.
#[must_use]
pub fn is_entry_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && !has_forbidden_byte(name)
        && name != b"."
        && name != b".."
}

fn has_forbidden_byte(names: &[u8]) -> bool {
    // Lanes without a branch, which the compiler turns into vector code: every read pays for this.
    let (chunks, rest) = names.as_chunks::<32>();
    let mut found = [0_u8; 32];
    for chunk in chunks {
        for (lane, &byte) in found.iter_mut().zip(chunk) {
            *lane |= u8::from(byte == 0) | u8::from(byte == b'/');
        }
    }
    found != [0; 32] || rest.iter().any(|&byte| byte == 0 || byte == b'/')
}

impl<'a> DirectoryNode<'a> {
    /// Reads `block` as block `fbn` of a directory: all that must hold to take it apart, in
    /// constant time.
    ///
    /// # Errors
    /// [`DirectoryDamage`].
    pub fn view(block: &'a Block, fbn: Fbn) -> Result<Self, DirectoryDamage> {
        use DirectoryProblem as Problem;
        let bytes: &'a [u8] = block.bytes();
        let damaged = |problem| DirectoryDamage { fbn, problem };
        let (header, rest) =
            DirectoryBlockHeader::ref_from_prefix(bytes).map_err(|_| damaged(Problem::Magic(0)))?;
        if header.magic.get() != DIRECTORY_MAGIC {
            return Err(damaged(Problem::Magic(header.magic.get())));
        }
        if !versions::is_read(header.version.get()) {
            return Err(damaged(Problem::Version(header.version.get())));
        }
        if u64::from(header.fbn.get()) != fbn.get() {
            return Err(damaged(Problem::Misplaced(header.fbn.get())));
        }
        let (root, rest) = if fbn.get() == 0 {
            let (root, rest) = DirectoryRoot::ref_from_prefix(rest)
                .map_err(|_| damaged(Problem::Magic(header.magic.get())))?;
            (Some(root), rest)
        } else {
            (None, rest)
        };
        let content = Self::content(header, root.is_some(), rest).map_err(damaged)?;
        Ok(Self { block, header, root, content })
    }

    fn content(
        header: &DirectoryBlockHeader,
        is_root: bool,
        rest: &'a [u8],
    ) -> Result<DirectoryContent<'a>, DirectoryProblem> {
        let (count, names_start) = (header.count.get(), header.names_start.get());
        let misfit = DirectoryProblem::Count { count, names_start };
        if header.kind == DirectoryBlockKind::Free as u8 {
            return if is_root {
                Err(DirectoryProblem::Kind(header.kind))
            } else {
                Ok(DirectoryContent::Free)
            };
        }
        if header.level > LEVEL_MAX {
            return Err(DirectoryProblem::Level(header.level));
        }
        let names_length = BLOCK_SIZE.checked_sub(usize::from(names_start)).ok_or(misfit)?;
        let items_length = rest.len().checked_sub(names_length).ok_or(misfit)?;
        let items = rest.get(..items_length).ok_or(misfit)?;
        if header.kind == DirectoryBlockKind::Leaf as u8 {
            if header.level != 0 {
                return Err(DirectoryProblem::Level(header.level));
            }
            let (records, _) =
                <[DirectoryRecord]>::ref_from_prefix_with_elems(items, usize::from(count))
                    .map_err(|_| misfit)?;
            if records.is_empty() && !is_root {
                return Err(misfit);
            }
            return Ok(DirectoryContent::Leaf(records));
        }
        if header.kind != DirectoryBlockKind::Branch as u8 {
            return Err(DirectoryProblem::Kind(header.kind));
        }
        if header.level == 0 {
            return Err(DirectoryProblem::Level(0));
        }
        let (children, _) =
            <[DirectoryChild]>::ref_from_prefix_with_elems(items, usize::from(count))
                .map_err(|_| misfit)?;
        if children.is_empty() || names_length != 0 {
            return Err(misfit);
        }
        Ok(DirectoryContent::Branch(children))
    }

    /// The block's own number.
    #[must_use]
    pub fn fbn(&self) -> Fbn {
        Fbn(u64::from(self.header.fbn.get()))
    }

    /// The name of `record`; empty if it reaches out of the block, which `validate` refuses.
    #[must_use]
    pub fn name(&self, record: &DirectoryRecord) -> &'a [u8] {
        let start = usize::from(record.name_offset.get());
        let end = start + usize::from(record.name_length);
        self.block.bytes().get(start..end).unwrap_or_default()
    }

    /// Checks everything that can be checked within the block: its cookies or keys must lie in
    /// `lower..upper`, its pointers below `size_blocks`.
    ///
    /// # Errors
    /// [`DirectoryDamage`].
    pub fn validate(
        &self,
        lower: u64,
        upper: u64,
        size_blocks: u64,
    ) -> Result<(), DirectoryDamage> {
        let checked = match self.content {
            DirectoryContent::Leaf(records) => self.validate_leaf(records, lower, upper),
            DirectoryContent::Branch(children) => {
                validate_branch(children, lower, upper, size_blocks)
            }
            DirectoryContent::Free => check_pointer(self.header.next_free.get(), size_blocks, true),
        };
        checked
            .and_then(|()| self.validate_reserved())
            .and_then(|()| self.root.map_or(Ok(()), |root| self.validate_root(root, size_blocks)))
            .map_err(|problem| DirectoryDamage { fbn: self.fbn(), problem })
    }

    fn validate_reserved(&self) -> Result<(), DirectoryProblem> {
        let is_zero = self.header.reserved == [0; 12]
            && self.root.is_none_or(|root| root.reserved == [0; 30]);
        if is_zero { Ok(()) } else { Err(DirectoryProblem::Reserved) }
    }

    /// Checks, in constant time, what can be wrong with a block that was validated before and is
    /// what it was, or was changed by what keeps a block valid: that it is not where its parent
    /// says now.
    ///
    /// # Errors
    /// [`DirectoryDamage`].
    pub fn validate_place(
        &self,
        lower: u64,
        upper: u64,
        size_blocks: u64,
    ) -> Result<(), DirectoryDamage> {
        let (first, last, is_exact) = match self.content {
            DirectoryContent::Leaf(records) => {
                let cookie = |record: Option<&DirectoryRecord>| {
                    record.map_or(lower, |record| record.cookie.get())
                };
                (cookie(records.first()), cookie(records.last()), false)
            }
            DirectoryContent::Branch(children) => {
                let key =
                    |child: Option<&DirectoryChild>| child.map_or(lower, |child| child.key.get());
                (key(children.first()), key(children.last()), true)
            }
            DirectoryContent::Free => (lower, lower, false),
        };
        let checked = if first < lower || last >= upper || (is_exact && first != lower) {
            Err(DirectoryProblem::Order(first))
        } else {
            self.root.map_or(Ok(()), |root| self.validate_root(root, size_blocks))
        };
        checked.map_err(|problem| DirectoryDamage { fbn: self.fbn(), problem })
    }

    fn validate_leaf(
        &self,
        records: &[DirectoryRecord],
        lower: u64,
        upper: u64,
    ) -> Result<(), DirectoryProblem> {
        let names_start = usize::from(self.header.names_start.get());
        let mut least = lower.max(COOKIE_MIN);
        let mut name_end = BLOCK_SIZE;
        // A fold without a branch, because every descent pays for it; the culprit is found
        // afterwards.
        let mut sound = true;
        for record in records {
            let cookie = record.cookie.get();
            sound &= (cookie >= least) & is_cookie(cookie, upper);
            least = cookie.wrapping_add(1);
            sound &= is_record(record, name_end);
            name_end = usize::from(record.name_offset.get());
        }
        if !sound {
            return Err(find_wrong_record(records, lower, upper));
        }
        if name_end != names_start {
            let (count, names_start) = (self.header.count.get(), self.header.names_start.get());
            return Err(DirectoryProblem::Count { count, names_start });
        }
        let names = self.block.bytes().get(names_start..).unwrap_or_default();
        if has_forbidden_byte(names) { Err(DirectoryProblem::NameBytes) } else { Ok(()) }
    }

    fn validate_root(
        &self,
        root: &DirectoryRoot,
        size_blocks: u64,
    ) -> Result<(), DirectoryProblem> {
        if root.hash_algorithm.get() != HASH_SIPHASH_1_3 {
            return Err(DirectoryProblem::HashAlgorithm(root.hash_algorithm.get()));
        }
        check_pointer(root.free_head.get(), size_blocks, true)?;
        let (entries, free) = (root.entry_count.get(), root.free_count.get());
        let totals = DirectoryProblem::Totals { entries, free };
        if (free == 0) != (root.free_head.get() == 0) || u64::from(free) >= size_blocks {
            return Err(totals);
        }
        let agrees = match self.content {
            DirectoryContent::Leaf(records) => entries == records.len() as u64,
            DirectoryContent::Branch(_) | DirectoryContent::Free => {
                (1..=DIRECTORY_ENTRIES_MAX).contains(&entries)
            }
        };
        if agrees { Ok(()) } else { Err(totals) }
    }
}

fn is_cookie(cookie: u64, upper: u64) -> bool {
    (cookie < upper) & (cookie & ((1 << COLLISION_BITS) - 1) <= COLLISION_MAX)
}

fn is_record(record: &DirectoryRecord, name_end: usize) -> bool {
    let start = usize::from(record.name_offset.get());
    (start + usize::from(record.name_length) == name_end)
        & (record.name_length != 0)
        & (record.member.inode.get() != 0)
        & (record.kind != 0)
}

/// Which of a leaf's records is wrong, and how.
fn find_wrong_record(records: &[DirectoryRecord], lower: u64, upper: u64) -> DirectoryProblem {
    let mut least = lower.max(COOKIE_MIN);
    let mut name_end = BLOCK_SIZE;
    for (index, record) in (0_u16..).zip(records) {
        let cookie = record.cookie.get();
        if cookie < least || !is_cookie(cookie, upper) {
            return DirectoryProblem::Order(cookie);
        }
        if !is_record(record, name_end) {
            return DirectoryProblem::Record(index);
        }
        least = cookie.wrapping_add(1);
        name_end = usize::from(record.name_offset.get());
    }
    unreachable!("called for records that were found wrong")
}

fn validate_branch(
    children: &[DirectoryChild],
    lower: u64,
    upper: u64,
    size_blocks: u64,
) -> Result<(), DirectoryProblem> {
    let first = children.first().map_or(lower, |child| child.key.get());
    let last = children.last().map_or(lower, |child| child.key.get());
    // A fold without a branch, because every descent pays for it; the culprit is found afterwards.
    let sound = children.iter().fold(true, |sound, child| {
        sound & (child.fbn.get() != 0) & (u64::from(child.fbn.get()) < size_blocks)
    });
    let ascends = children
        .iter()
        .zip(children.iter().skip(1))
        .fold(true, |ascends, (child, next)| ascends & (child.key.get() < next.key.get()));
    if first == lower && last < upper && sound && ascends {
        return Ok(());
    }
    if first != lower {
        return Err(DirectoryProblem::Order(first));
    }
    let mut least = lower;
    for child in children {
        let key = child.key.get();
        if key < least || key >= upper {
            return Err(DirectoryProblem::Order(key));
        }
        least = key + 1;
        check_pointer(child.fbn.get(), size_blocks, false)?;
    }
    Ok(())
}

fn check_pointer(fbn: u32, size_blocks: u64, may_be_zero: bool) -> Result<(), DirectoryProblem> {
    let good = if fbn == 0 { may_be_zero } else { u64::from(fbn) < size_blocks };
    if good { Ok(()) } else { Err(DirectoryProblem::Pointer(fbn)) }
}

impl fmt::Display for DirectoryMember {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}.{}", self.number, self.inode, self.generation)
    }
}

impl fmt::Display for DirectoryRoot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "directory {} parent {} entries {} free {} from block {}",
            self.this, self.parent, self.entry_count, self.free_count, self.free_head
        )
    }
}

impl fmt::Display for DirectoryNode<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header;
        if let Some(root) = self.root {
            writeln!(formatter, "{root}")?;
        }
        match self.content {
            DirectoryContent::Leaf(records) => {
                writeln!(formatter, "block {} leaf, {} entries", header.fbn, header.count)?;
                for record in records {
                    let name = self.name(record).escape_ascii();
                    let (cookie, kind) = (record.cookie.get(), record.kind);
                    writeln!(formatter, "  {cookie:#018x} {} kind {kind} {name}", record.member)?;
                }
            }
            DirectoryContent::Branch(children) => {
                let (fbn, level) = (header.fbn, header.level);
                writeln!(formatter, "block {fbn} branch of level {level}, {}", header.count)?;
                for child in children {
                    writeln!(formatter, "  {:#018x} block {}", child.key.get(), child.fbn)?;
                }
            }
            DirectoryContent::Free => {
                writeln!(formatter, "block {} free, next {}", header.fbn, header.next_free)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::versions::FORMAT_VERSION;

    fn leaf(names: &[&str]) -> Block {
        let mut block = Block::zeroed();
        let mut end = BLOCK_SIZE;
        for (index, name) in names.iter().enumerate() {
            end -= name.len();
            block[end..end + name.len()].copy_from_slice(name.as_bytes());
            let record = DirectoryRecord {
                cookie: U64::new(10 * (index as u64 + 1)),
                member: DirectoryMember { inode: U64::new(7), ..DirectoryMember::default() },
                name_offset: U16::new(end as u16),
                name_length: name.len() as u8,
                kind: 1,
            };
            let at = NODE_START + index * size_of::<DirectoryRecord>();
            record.write_to_prefix(&mut block[at..]).unwrap();
        }
        let header = DirectoryBlockHeader {
            magic: U32::new(DIRECTORY_MAGIC),
            version: U16::new(FORMAT_VERSION),
            kind: DirectoryBlockKind::Leaf as u8,
            count: U16::new(names.len() as u16),
            names_start: U16::new(end as u16),
            fbn: U32::new(3),
            ..DirectoryBlockHeader::default()
        };
        header.write_to_prefix(&mut block[..]).unwrap();
        block
    }

    fn check(block: &Block) -> Result<(), DirectoryProblem> {
        DirectoryNode::view(block, Fbn(3))
            .and_then(|node| node.validate(0, COOKIE_LIMIT, 9))
            .map_err(|damage| damage.problem)
    }

    #[test]
    fn a_sound_leaf_is_read_and_shown() {
        let block = leaf(&["alpha", "b", "gamma"]);
        assert_eq!(check(&block), Ok(()));
        let node = DirectoryNode::view(&block, Fbn(3)).unwrap();
        let DirectoryContent::Leaf(records) = node.content else { unreachable!() };
        let names: Vec<_> = records.iter().map(|record| node.name(record)).collect();
        assert_eq!(names, [&b"alpha"[..], b"b", b"gamma"]);
        assert!(node.to_string().contains("0/7.0 kind 1 gamma"), "{node}");
    }

    #[test]
    fn each_wrong_field_is_refused() {
        use DirectoryProblem as Problem;
        let sound = leaf(&["alpha", "b", "gamma"]);
        let broken = |at: usize, value: u8| {
            let mut block = sound.clone();
            assert_ne!(block[at], value);
            block[at] = value;
            check(&block).unwrap_err()
        };
        let record = |index: usize, field: usize| NODE_START + 28 * index + field;
        assert!(matches!(broken(0, 0), Problem::Magic(_)));
        assert_eq!(broken(4, 2), Problem::Version(2));
        assert_eq!(broken(31, 1), Problem::Reserved);
        assert_eq!(broken(6, 9), Problem::Kind(9));
        assert_eq!(broken(7, 1), Problem::Level(1));
        assert!(matches!(broken(8, 0), Problem::Count { count: 0, .. }));
        assert!(matches!(broken(9, 0xff), Problem::Count { .. }));
        assert!(matches!(broken(11, 0xff), Problem::Count { .. }));
        assert_eq!(broken(12, 4), Problem::Misplaced(4));
        assert_eq!(broken(record(1, 0), 10), Problem::Order(10));
        assert_eq!(broken(record(0, 0), 2), Problem::Order(2));
        assert_eq!(broken(record(2, 0), 0xff), Problem::Order(0xff));
        assert!(matches!(broken(record(2, 7), 0x80), Problem::Order(_)));
        assert_eq!(broken(record(1, 16), 0), Problem::Record(1));
        assert_eq!(broken(record(1, 24), 0), Problem::Record(1));
        assert_eq!(broken(record(2, 26), 0), Problem::Record(2));
        assert_eq!(broken(record(2, 27), 0), Problem::Record(2));
        assert_eq!(broken(BLOCK_SIZE - 1, b'/'), Problem::NameBytes);
        assert_eq!(broken(BLOCK_SIZE - 1, 0), Problem::NameBytes);
    }

    #[test]
    fn a_block_that_lies_elsewhere_is_refused_though_it_is_sound() {
        let block = leaf(&["alpha", "b", "gamma"]);
        let node = DirectoryNode::view(&block, Fbn(3)).unwrap();
        let place = |lower, upper| node.validate_place(lower, upper, 9);
        assert_eq!((place(10, 31), place(0, COOKIE_LIMIT)), (Ok(()), Ok(())));
        for (lower, upper) in [(11, 31), (10, 30), (0, 10), (31, 40)] {
            let problem = DirectoryProblem::Order(10);
            assert_eq!(place(lower, upper), Err(DirectoryDamage { fbn: Fbn(3), problem }));
            assert!(node.validate(lower, upper, 9).is_err());
        }
    }

    #[test]
    fn names_of_entries() {
        assert!(is_entry_name(b"a") && is_entry_name(&[b'x'; 255]) && is_entry_name(b"..."));
        for wrong in [&b""[..], b".", b"..", b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(!is_entry_name(wrong));
        }
    }
}
