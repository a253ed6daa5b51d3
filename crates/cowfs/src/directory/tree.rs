//! Reading the tree: the way down to a cookie, finding a name, walking in the order of cookies.
//!
//! Invariants: a block is handed on only after it was validated against the bounds and the level
//! that its parent gives; whole, unless it is known to have been validated whole before. A descent
//! takes at most `LEVEL_MAX + 1` blocks, a walk only goes up in cookies; so both end on any bytes.

use std::ops::ControlFlow;

use super::node::{NodeEdit, entry_of, format_root, root_of};
use super::{DirectoryBlocks, DirectoryError, Entry, Member, Outcome};
use ondisk::directory::{
    COLLISION_BITS, COLLISION_MAX, COOKIE_LIMIT, COOKIE_MIN, DirectoryContent, DirectoryDamage,
    DirectoryNode, DirectoryProblem, DirectoryRecord, DirectoryRoot, HASH_SIPHASH_1_3, LEVEL_MAX,
    is_entry_name,
};
use units::{BlockRef, Fbn};

/// A name hash; tests put in weak ones.
pub type HashFunction = fn([u64; 2], &[u8]) -> u64;

/// A directory's blocks and how its names are hashed.
pub struct Tree<'a, B> {
    pub blocks: &'a mut B,
    pub hash: HashFunction,
}

/// A node on the way down.
#[derive(Clone, Copy, Default)]
pub struct Step {
    /// The node.
    pub fbn: Fbn,
    /// Of a branch: which child was taken.
    pub index: usize,
    /// Least cookie beneath the node.
    pub lower: u64,
    /// One above the greatest cookie that may lie beneath the node.
    pub upper: u64,
}

/// The way from the root to a leaf.
#[derive(Clone, Copy)]
pub struct Path {
    steps: [Step; LEVEL_MAX as usize + 1],
    length: usize,
}

impl Path {
    /// The nodes from the root to the leaf.
    pub fn steps(&self) -> &[Step] {
        &self.steps[..self.length]
    }

    /// The leaf.
    pub fn leaf(&self) -> Step {
        self.steps[self.length - 1]
    }

    fn push(&mut self, step: Step) {
        self.steps[self.length] = step;
        self.length += 1;
    }
}

/// The cookies that a name may have.
#[derive(Clone, Copy)]
pub struct CookieRange {
    pub first: u64,
    pub last: u64,
}

/// Where a name is, or could be.
pub enum Search {
    /// Record `index` of the leaf that `path` leads to.
    Found { path: Path, index: usize, entry: Entry },
    /// Nowhere. `free` is the lowest cookie in its range that is not taken; `path` leads to the
    /// last leaf of the range, which comes with it.
    Absent { free: Option<u64>, path: Path, leaf: BlockRef },
}

impl<'a, B: DirectoryBlocks> Tree<'a, B> {
    pub fn new(blocks: &'a mut B, hash: HashFunction) -> Self {
        Self { blocks, hash }
    }

    pub fn create(&mut self, this: Member, parent: Member, hash_seed: [u64; 2]) -> Outcome<(), B> {
        assert_eq!(self.blocks.size_blocks(), 0, "a directory is made in an empty file");
        assert!(this.inode.get() != 0 && parent.inode.get() != 0);
        let root = DirectoryRoot {
            this: this.into(),
            parent: parent.into(),
            hash_seed: hash_seed.map(Into::into),
            hash_algorithm: HASH_SIPHASH_1_3.into(),
            ..DirectoryRoot::default()
        };
        format_root(self.blocks.write(Fbn(0))?, &root);
        Ok(())
    }

    /// Block 0, validated, and its fields for the whole directory.
    pub fn open(&mut self) -> Outcome<(BlockRef, DirectoryRoot), B> {
        let missing = DirectoryDamage { fbn: Fbn(0), problem: DirectoryProblem::Magic(0) };
        let size_blocks = self.blocks.size_blocks();
        if size_blocks == 0 {
            return Err(missing.into());
        }
        let block = self.blocks.read(Fbn(0))?;
        let node = DirectoryNode::view(&block, Fbn(0))?;
        self.validate(&node, 0, COOKIE_LIMIT)?;
        let root = *node.root.ok_or(missing)?;
        Ok((block, root))
    }

    /// Changes the fields of block 0, which was opened before.
    pub fn edit_root(&mut self, edit: impl FnOnce(&mut DirectoryRoot)) -> Outcome<(), B> {
        edit(root_of(self.blocks.write(Fbn(0))?));
        Ok(())
    }

    /// A node other than the root, validated against what its parent says of it.
    pub fn load(&mut self, fbn: Fbn, level: u8, lower: u64, upper: u64) -> Outcome<BlockRef, B> {
        let size_blocks = self.blocks.size_blocks();
        let damaged = |problem| DirectoryDamage { fbn, problem };
        if fbn.get() == 0 || fbn.get() >= size_blocks {
            return Err(damaged(DirectoryProblem::Pointer(fbn.get() as u32)).into());
        }
        let block = self.blocks.read(fbn)?;
        let node = DirectoryNode::view(&block, fbn)?;
        if matches!(node.content, DirectoryContent::Free) {
            return Err(damaged(DirectoryProblem::Kind(node.header.kind)).into());
        }
        if node.header.level != level {
            return Err(damaged(DirectoryProblem::Level(node.header.level)).into());
        }
        self.validate(&node, lower, upper)?;
        Ok(block)
    }

    fn validate(
        &mut self,
        node: &DirectoryNode<'_>,
        lower: u64,
        upper: u64,
    ) -> Result<(), DirectoryDamage> {
        let (fbn, size_blocks) = (node.fbn(), self.blocks.size_blocks());
        if self.blocks.is_validated(fbn) {
            return node.validate_place(lower, upper, size_blocks);
        }
        node.validate(lower, upper, size_blocks)?;
        self.blocks.set_validated(fbn);
        Ok(())
    }

    /// The way to the leaf in whose range `cookie` lies, and the leaf; from the opened root.
    pub fn descend(&mut self, root: &BlockRef, cookie: u64) -> Outcome<(Path, BlockRef), B> {
        assert!(cookie < COOKIE_LIMIT);
        let mut path = Path { steps: Default::default(), length: 0 };
        let mut block = BlockRef::clone(root);
        let mut step = Step { fbn: Fbn(0), index: 0, lower: 0, upper: COOKIE_LIMIT };
        loop {
            let node = DirectoryNode::view(&block, step.fbn)?;
            let DirectoryContent::Branch(children) = node.content else {
                path.push(step);
                return Ok((path, block));
            };
            // The first key is the lower bound, which is not above the cookie.
            step.index = children.partition_point(|child| child.key.get() <= cookie) - 1;
            path.push(step);
            let child = children[step.index];
            let upper = children.get(step.index + 1).map_or(step.upper, |next| next.key.get());
            let (fbn, lower) = (Fbn(child.fbn.get().into()), child.key.get());
            block = self.load(fbn, node.header.level - 1, lower, upper)?;
            step = Step { fbn, index: 0, lower, upper };
        }
    }

    /// The cookies that `name` may have.
    pub fn cookie_range(&self, root: &DirectoryRoot, name: &[u8]) -> CookieRange {
        let hash = (self.hash)(root.hash_seed.map(|word| word.get()), name);
        // Without the sign bit and the bits of the collision number.
        let prefix = hash >> 1 >> COLLISION_BITS << COLLISION_BITS;
        CookieRange { first: prefix.max(COOKIE_MIN), last: prefix | COLLISION_MAX }
    }

    /// Looks for `name` in all leaves that its cookie's range touches: nearly always one.
    pub fn find(
        &mut self,
        block: &BlockRef,
        root: &DirectoryRoot,
        name: &[u8],
    ) -> Outcome<Search, B> {
        let range = self.cookie_range(root, name);
        let (mut from, mut free) = (range.first, range.first);
        loop {
            let (path, leaf) = self.descend(block, from)?;
            let node = DirectoryNode::view(&leaf, path.leaf().fbn)?;
            let records = leaf_records(&node);
            let start = records.partition_point(|record| record.cookie.get() < from);
            for (index, record) in records.iter().enumerate().skip(start) {
                if record.cookie.get() > range.last {
                    break;
                }
                if node.name(record) == name {
                    return Ok(Search::Found { path, index, entry: entry_of(record) });
                }
                if record.cookie.get() == free {
                    free += 1;
                }
            }
            if path.leaf().upper > range.last {
                let free = (free <= range.last).then_some(free);
                return Ok(Search::Absent { free, path, leaf });
            }
            from = path.leaf().upper;
        }
    }

    pub fn lookup(&mut self, name: &[u8]) -> Outcome<Option<Entry>, B> {
        if !is_entry_name(name) {
            return Ok(None);
        }
        let (block, root) = self.open()?;
        match self.find(&block, &root, name)? {
            Search::Found { entry, .. } => Ok(Some(entry)),
            Search::Absent { .. } => Ok(None),
        }
    }

    pub fn replace(&mut self, name: &[u8], entry: Entry) -> Outcome<Option<Entry>, B> {
        assert_entry(entry);
        if !is_entry_name(name) {
            return Err(DirectoryError::BadName);
        }
        let (block, root) = self.open()?;
        let found = self.find(&block, &root, name)?;
        drop(block); // so that the write need not copy what nobody else holds
        let Search::Found { path, index, entry: old } = found else {
            return Ok(None);
        };
        let fbn = path.leaf().fbn;
        NodeEdit::new(self.blocks.write(fbn)?, fbn).set_entry(index, entry);
        Ok(Some(old))
    }

    pub fn scan(
        &mut self,
        after_cookie: u64,
        mut visit: impl FnMut(u64, &[u8], Entry) -> ControlFlow<()>,
    ) -> Outcome<bool, B> {
        let mut from = after_cookie.saturating_add(1).max(COOKIE_MIN);
        let (block, _) = self.open()?;
        while from < COOKIE_LIMIT {
            let (path, leaf) = self.descend(&block, from)?;
            let node = DirectoryNode::view(&leaf, path.leaf().fbn)?;
            let records = leaf_records(&node);
            let start = records.partition_point(|record| record.cookie.get() < from);
            for record in &records[start..] {
                if visit(record.cookie.get(), node.name(record), entry_of(record)).is_break() {
                    return Ok(false);
                }
            }
            from = path.leaf().upper;
        }
        Ok(true)
    }
}

/// The records of the node at the end of a descent.
pub fn leaf_records<'a>(node: &DirectoryNode<'a>) -> &'a [DirectoryRecord] {
    match node.content {
        DirectoryContent::Leaf(records) => records,
        DirectoryContent::Branch(_) | DirectoryContent::Free => {
            unreachable!("a descent ends at a leaf")
        }
    }
}

/// What the format cannot store is a bug of the caller.
pub fn assert_entry(entry: Entry) {
    assert!(entry.member.inode.get() != 0, "inode 0 is never a file");
    assert!(entry.kind != 0, "kind 0 is never a file's");
}
