//! Inserting: one record into one leaf, after as many splits as it takes.
//!
//! A split is one change of shape: a node that is full gives its upper half to a new block, whose
//! key goes into a parent that has room; a root that is full moves whole into a new block and
//! becomes a branch with that one child. After each change the way down is taken anew, which
//! costs little at one split in some forty inserts, and leaves no case to get wrong.
//!
//! Invariants: cookies of others never change; the tree is valid after every change of shape.

use super::node::{CHILD_SIZE, NodeEdit, RECORD_SIZE, has_room, used_bytes};
use super::tree::{Path, Search, Tree, assert_entry, leaf_records};
use super::{DirectoryBlocks, DirectoryError, Entry, Outcome};
use ondisk::directory::{
    DIRECTORY_ENTRIES_MAX, DirectoryContent, DirectoryNode, LEVEL_MAX, is_entry_name,
};
use units::Fbn;

/// Most changes of shape for one insert: every level split, the root moved down once before.
const SPLITS_MAX: usize = 2 * (LEVEL_MAX as usize + 1);

impl<B: DirectoryBlocks> Tree<'_, B> {
    pub fn insert(&mut self, name: &[u8], entry: Entry) -> Outcome<u64, B> {
        assert_entry(entry);
        if !is_entry_name(name) {
            return Err(DirectoryError::BadName);
        }
        let (block, root) = self.open()?;
        let (cookie, path, leaf) = match self.find(&block, &root, name)? {
            Search::Found { .. } => return Err(DirectoryError::Exists),
            Search::Absent { free, path, leaf } => (free.ok_or(DirectoryError::Full)?, path, leaf),
        };
        if root.entry_count.get() >= DIRECTORY_ENTRIES_MAX {
            return Err(DirectoryError::Full);
        }
        let step = path.leaf();
        let mut way = if (step.lower..step.upper).contains(&cookie) {
            (path, leaf)
        } else {
            self.descend(&block, cookie)?
        };
        drop(block); // so that the writes need not copy what nobody else holds
        for _ in 0..SPLITS_MAX {
            let (path, leaf) = way;
            let fbn = path.leaf().fbn;
            let node = DirectoryNode::view(&leaf, fbn)?;
            let has_room = has_room(&node, RECORD_SIZE + name.len());
            let index = leaf_records(&node).partition_point(|record| record.cookie.get() < cookie);
            drop(leaf);
            if has_room {
                let mut edit = NodeEdit::new(self.blocks.write(fbn)?, fbn);
                edit.insert_record(index, cookie, name, entry);
                self.edit_root(|root| root.entry_count += 1)?;
                return Ok(cookie);
            }
            self.split(&path, path.steps().len() - 1)?;
            let block = self.open()?.0;
            way = self.descend(&block, cookie)?;
        }
        unreachable!("each split makes room for good, and there are only so many levels")
    }

    /// Splits the node at `depth` of `path`, or an ancestor that has no room for another child.
    fn split(&mut self, path: &Path, depth: usize) -> Outcome<(), B> {
        let steps = path.steps();
        let Some(above) = depth.checked_sub(1) else {
            return self.push_root_down();
        };
        let parent = self.blocks.read(steps[above].fbn)?;
        if !has_room(&DirectoryNode::view(&parent, steps[above].fbn)?, CHILD_SIZE) {
            return self.split(path, above);
        }
        drop(parent);
        let left_fbn = steps[depth].fbn;
        let left = self.blocks.read(left_fbn)?;
        let node = DirectoryNode::view(&left, left_fbn)?;
        let (kept, key, item_size) = split_point(&node);
        let right_fbn = self.allocate()?;
        NodeEdit::format(self.blocks.write(right_fbn)?, right_fbn, node.header.level)
            .append(&node, kept);
        drop(left);
        NodeEdit::new(self.blocks.write(left_fbn)?, left_fbn).keep(kept, item_size);
        let parent = self.blocks.write(steps[above].fbn)?;
        NodeEdit::new(parent, steps[above].fbn).insert_child(
            steps[above].index + 1,
            key,
            right_fbn,
        );
        Ok(())
    }

    /// Moves the root's content into a block of its own, one level below a new root.
    fn push_root_down(&mut self) -> Outcome<(), B> {
        let root = self.blocks.read(Fbn(0))?;
        let node = DirectoryNode::view(&root, Fbn(0))?;
        let level = node.header.level;
        if level >= LEVEL_MAX {
            return Err(DirectoryError::Full);
        }
        let fbn = self.allocate()?;
        NodeEdit::format(self.blocks.write(fbn)?, fbn, level).append(&node, 0);
        drop(root);
        NodeEdit::format(self.blocks.write(Fbn(0))?, Fbn(0), level + 1).insert_child(0, 0, fbn);
        Ok(())
    }
}

/// How many items the lower half keeps, the least cookie or key of the upper half, and the size of
/// an item. Both halves have one item at least: whatever has no room has two.
fn split_point(node: &DirectoryNode<'_>) -> (usize, u64, usize) {
    match node.content {
        DirectoryContent::Leaf(records) => {
            let half = used_bytes(node) / 2;
            let mut lower_bytes = 0;
            let kept = records.iter().position(|record| {
                lower_bytes += RECORD_SIZE + usize::from(record.name_length);
                lower_bytes > half
            });
            let kept = kept.unwrap_or(0).clamp(1, records.len() - 1);
            (kept, records[kept].cookie.get(), RECORD_SIZE)
        }
        DirectoryContent::Branch(children) => {
            let kept = children.len() / 2;
            (kept, children[kept].key.get(), CHILD_SIZE)
        }
        DirectoryContent::Free => unreachable!("a free block is never on a way down"),
    }
}
