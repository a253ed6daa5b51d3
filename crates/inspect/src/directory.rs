//! Reads a whole directory: an own walk of the B+tree in its file (format: `ondisk::directory`).
//!
//! Beyond each block's own validity: levels and bounds follow from the parents, every name is where
//! its hash says and stands once, every block is in the tree or on the free list and nowhere twice,
//! the totals are true.
//!
//! Invariants: a block is entered once, so the walk ends on any bytes.
//!
//! Fails: with the first fault; then the entries found before it are handed out, too.

use crate::fault::DirectoryFault;
use crate::hash::name_hash;
use ondisk::directory::{
    COLLISION_BITS, COLLISION_MAX, COOKIE_LIMIT, COOKIE_MIN, DIRECTORY_BLOCKS_MAX,
    DirectoryContent, DirectoryDamage, DirectoryMember, DirectoryNode, DirectoryProblem,
    DirectoryRoot,
};
use std::collections::{BTreeMap, BTreeSet};
use units::{BLOCK_SIZE_U64, BlockRef, Fbn};

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub name: Vec<u8>,
    pub member: u32,
    pub inode: u64,
    pub generation: u32,
    pub kind: u8,
}

/// A directory, as far as it could be read.
#[derive(Default)]
pub(crate) struct Directory {
    pub root: Option<DirectoryRoot>,
    /// In the order of their cookies.
    pub entries: Vec<Entry>,
    pub fault: Option<DirectoryFault>,
}

struct Reading<'b> {
    blocks: &'b BTreeMap<u64, BlockRef>,
    size_blocks: u64,
    used: BTreeSet<u64>,
    /// Names with the hash prefix of the last cookie.
    prefix: u64,
    names: BTreeSet<Vec<u8>>,
}

/// A node to be visited.
struct Visit {
    fbn: u64,
    /// The level that it must have; none is said of the root's.
    level: Option<u8>,
    lower: u64,
    upper: u64,
}

/// Reads the directory in these blocks of its file.
pub(crate) fn read(blocks: &BTreeMap<u64, BlockRef>, size_bytes: u64) -> Directory {
    let mut directory = Directory::default();
    directory.fault = read_into(blocks, size_bytes, &mut directory).err();
    directory
}

fn read_into(
    blocks: &BTreeMap<u64, BlockRef>,
    size_bytes: u64,
    directory: &mut Directory,
) -> Result<(), DirectoryFault> {
    let size_blocks = size_bytes / BLOCK_SIZE_U64;
    let is_whole = size_bytes == size_blocks * BLOCK_SIZE_U64;
    if !is_whole || size_blocks == 0 || size_blocks > DIRECTORY_BLOCKS_MAX {
        return Err(DirectoryFault::Size(size_bytes));
    }
    if let Some(missing) = (0..size_blocks).find(|fbn| !blocks.contains_key(fbn)) {
        return Err(DirectoryFault::Missing(missing));
    }
    let (used, names) = (BTreeSet::new(), BTreeSet::new());
    let mut reading = Reading { blocks, size_blocks, used, prefix: u64::MAX, names };
    let mut waiting = vec![Visit { fbn: 0, level: None, lower: 0, upper: COOKIE_LIMIT }];
    while let Some(visit) = waiting.pop() {
        reading.visit(&visit, directory, &mut waiting)?;
    }
    let Some(root) = directory.root else {
        unreachable!("block 0 was visited first, and gives the root or an error")
    };
    let free_count = reading.walk_free_list(root.free_head.get())?;
    let entries = directory.entries.len() as u64;
    for (recorded, counted) in
        [(root.entry_count.get(), entries), (root.free_count.get().into(), free_count)]
    {
        if recorded != counted {
            return Err(DirectoryFault::Totals { recorded, counted });
        }
    }
    match (0..size_blocks).find(|fbn| !reading.used.contains(fbn)) {
        Some(lost) => Err(DirectoryFault::Lost(lost)),
        None => Ok(()),
    }
}

fn damaged(fbn: u64, problem: DirectoryProblem) -> DirectoryFault {
    DirectoryFault::Block(DirectoryDamage { fbn: Fbn(fbn), problem })
}

impl Reading<'_> {
    fn node(&mut self, fbn: u64) -> Result<DirectoryNode<'_>, DirectoryFault> {
        let block = self.blocks.get(&fbn).ok_or(DirectoryFault::Missing(fbn))?;
        if !self.used.insert(fbn) {
            return Err(DirectoryFault::Twice(fbn));
        }
        DirectoryNode::view(block, Fbn(fbn)).map_err(DirectoryFault::Block)
    }

    fn visit(
        &mut self,
        visit: &Visit,
        directory: &mut Directory,
        waiting: &mut Vec<Visit>,
    ) -> Result<(), DirectoryFault> {
        let Visit { fbn, level, lower, upper } = *visit;
        let size_blocks = self.size_blocks;
        self.node(fbn)?;
        // Looked up again: the node above borrows all of the reading.
        let block = self.blocks.get(&fbn).ok_or(DirectoryFault::Missing(fbn))?;
        let node = DirectoryNode::view(block, Fbn(fbn)).map_err(DirectoryFault::Block)?;
        if level.is_some_and(|level| level != node.header.level) {
            return Err(damaged(fbn, DirectoryProblem::Level(node.header.level)));
        }
        node.validate(lower, upper, size_blocks).map_err(DirectoryFault::Block)?;
        if let Some(root) = node.root {
            directory.root = Some(*root);
        }
        let Some(root) = directory.root else {
            return Err(damaged(fbn, DirectoryProblem::Kind(node.header.kind)));
        };
        match node.content {
            DirectoryContent::Leaf(records) => {
                for record in records {
                    let name = node.name(record);
                    self.check_name(&root, record.cookie.get(), name)?;
                    directory.entries.push(entry(name, &record.member, record.kind));
                }
            }
            DirectoryContent::Branch(children) => {
                let ends = children.iter().skip(1).map(|next| next.key.get());
                let ends: Vec<u64> = ends.chain(std::iter::once(upper)).collect();
                let level = Some(node.header.level.saturating_sub(1));
                for (child, upper) in children.iter().zip(ends).rev() {
                    let (fbn, lower) = (child.fbn.get().into(), child.key.get());
                    waiting.push(Visit { fbn, level, lower, upper });
                }
            }
            DirectoryContent::Free => {
                return Err(damaged(fbn, DirectoryProblem::Kind(node.header.kind)));
            }
        }
        Ok(())
    }

    fn check_name(
        &mut self,
        root: &DirectoryRoot,
        cookie: u64,
        name: &[u8],
    ) -> Result<(), DirectoryFault> {
        let hash = name_hash(root.hash_seed.map(|word| word.get()), name);
        let prefix = hash >> 1 >> COLLISION_BITS << COLLISION_BITS;
        let cookies = prefix.max(COOKIE_MIN)..=prefix | COLLISION_MAX;
        if !cookies.contains(&cookie) || matches!(name, b"." | b"..") {
            return Err(DirectoryFault::Hash(cookie));
        }
        if self.prefix != prefix {
            self.prefix = prefix;
            self.names.clear();
        }
        if !self.names.insert(name.to_vec()) {
            return Err(DirectoryFault::Duplicate(cookie));
        }
        Ok(())
    }

    fn walk_free_list(&mut self, head: u32) -> Result<u64, DirectoryFault> {
        let (mut fbn, mut count) = (head, 0);
        while fbn != 0 {
            let size_blocks = self.size_blocks;
            let node = self.node(fbn.into())?;
            if !matches!(node.content, DirectoryContent::Free) {
                return Err(damaged(fbn.into(), DirectoryProblem::Kind(node.header.kind)));
            }
            node.validate(0, COOKIE_LIMIT, size_blocks).map_err(DirectoryFault::Block)?;
            fbn = node.header.next_free.get();
            count += 1;
        }
        Ok(count)
    }
}

fn entry(name: &[u8], member: &DirectoryMember, kind: u8) -> Entry {
    Entry {
        name: name.to_vec(),
        member: member.number.get(),
        inode: member.inode.get(),
        generation: member.generation.get(),
        kind,
    }
}
