//! Removing: one record out of one leaf, and then the tree as small as is cheap.
//!
//! A leaf that would be empty is freed at once. A node that is a quarter full or less is merged
//! with a neighbour under the same parent if both together fill three quarters of a block at
//! most; the gap between the two numbers keeps inserts and removes at the border from splitting
//! and merging by turns. A root with one child takes the child's content if that is half full at
//! most. So an emptied directory is one block.
//!
//! Invariants: as for inserts; cookies of others never change.

use super::node::{NodeEdit, capacity, used_bytes};
use super::tree::{Path, Search, Step, Tree};
use super::{DirectoryBlocks, Entry, Outcome};
use ondisk::directory::{DirectoryContent, DirectoryNode, LEVEL_MAX, NODE_START, is_entry_name};
use units::{BLOCK_SIZE, Fbn};

/// A node with fewer bytes than this looks for a neighbour to merge with.
const LOW_BYTES: usize = (BLOCK_SIZE - NODE_START) / 4;
/// Two nodes with more bytes than this are not merged.
const MERGED_BYTES_MAX: usize = (BLOCK_SIZE - NODE_START) / 4 * 3;
/// Most changes of shape for one remove: each takes a block away from the path.
const SHRINKS_MAX: usize = 2 * (LEVEL_MAX as usize + 1);

impl<B: DirectoryBlocks> Tree<'_, B> {
    pub fn remove(&mut self, name: &[u8]) -> Outcome<Option<Entry>, B> {
        if !is_entry_name(name) {
            return Ok(None);
        }
        let (block, root) = self.open()?;
        let found = self.find(&block, &root, name)?;
        drop(block); // so that the write need not copy what nobody else holds
        let Search::Found { path, index, entry } = found else {
            return Ok(None);
        };
        let Step { fbn, lower, .. } = path.leaf();
        let leaf = self.blocks.read(fbn)?;
        let node = DirectoryNode::view(&leaf, fbn)?;
        let is_last = node.header.count.get() == 1;
        let record_bytes = super::node::RECORD_SIZE + name.len();
        let is_low = used_bytes(&node) - record_bytes < LOW_BYTES;
        drop(leaf);
        self.edit_root(|root| root.entry_count -= 1)?; // not 0: validated against the records
        let is_root = path.steps().len() == 1;
        if is_last && !is_root {
            self.remove_node(&path, path.steps().len() - 1)?;
        } else {
            NodeEdit::new(self.blocks.write(fbn)?, fbn).remove_record(index);
        }
        if is_low && !is_root {
            self.shrink(lower)?;
        }
        Ok(Some(entry))
    }

    /// Merges what can be merged on the way to `cookie`.
    fn shrink(&mut self, cookie: u64) -> Outcome<(), B> {
        for _ in 0..SHRINKS_MAX {
            let block = self.open()?.0;
            let (path, _) = self.descend(&block, cookie)?;
            drop(block);
            let mut changed = false;
            for depth in (1..path.steps().len()).rev() {
                if self.merge(&path, depth)? {
                    changed = true;
                    break;
                }
            }
            if !changed && !self.pull_root_up(&path)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes the node at `depth` out of its parent, with the parent if it was the only child.
    fn remove_node(&mut self, path: &Path, depth: usize) -> Outcome<(), B> {
        let Some(above) = depth.checked_sub(1) else {
            NodeEdit::format(self.blocks.write(Fbn(0))?, Fbn(0), 0);
            return self.free_all();
        };
        let (node, parent) = (path.steps()[depth], path.steps()[above]);
        let block = self.blocks.read(parent.fbn)?;
        let children = DirectoryNode::view(&block, parent.fbn)?.header.count.get();
        drop(block);
        if children == 1 {
            self.remove_node(path, above)?;
            if above == 0 {
                return Ok(()); // all blocks but the root's are gone
            }
        } else {
            if parent.index == 0 {
                self.extend_second_child(parent)?;
            }
            let block = self.blocks.write(parent.fbn)?;
            NodeEdit::new(block, parent.fbn).remove_child(parent.index);
        }
        self.free(node.fbn)
    }

    /// The first child of a branch goes, and the second takes its range over: the branches on the
    /// left edge beneath begin where the first began, because a branch's first key is its bound.
    fn extend_second_child(&mut self, parent: Step) -> Outcome<(), B> {
        let mut block = self.blocks.read(parent.fbn)?;
        let (mut fbn, mut index, mut upper) = (parent.fbn, 1, parent.upper);
        loop {
            let node = DirectoryNode::view(&block, fbn)?;
            let DirectoryContent::Branch(children) = node.content else { return Ok(()) };
            let (child, level) = (children[index], node.header.level - 1);
            if level == 0 {
                return Ok(()); // a leaf may hold less than its range
            }
            upper = children.get(index + 1).map_or(upper, |next| next.key.get());
            fbn = Fbn(child.fbn.get().into());
            block = self.load(fbn, level, child.key.get(), upper)?;
            NodeEdit::new(self.blocks.write(fbn)?, fbn).set_first_key(parent.lower);
            index = 0;
        }
    }

    /// Merges the node at `depth`, if it is low, with a neighbour, if they fit. Whether it did.
    fn merge(&mut self, path: &Path, depth: usize) -> Outcome<bool, B> {
        let (node, parent) = (path.steps()[depth], path.steps()[depth - 1]);
        let block = self.blocks.read(node.fbn)?;
        let bytes = used_bytes(&DirectoryNode::view(&block, node.fbn)?);
        if bytes >= LOW_BYTES {
            return Ok(false);
        }
        drop(block);
        let parent_block = self.blocks.read(parent.fbn)?;
        let view = DirectoryNode::view(&parent_block, parent.fbn)?;
        let DirectoryContent::Branch(children) = view.content else {
            unreachable!("a parent on a way down is a branch")
        };
        for right in [parent.index + 1, parent.index] {
            let Some(left) = right.checked_sub(1).filter(|_| right < children.len()) else {
                continue;
            };
            let neighbour = if right == parent.index { left } else { right };
            let upper = children.get(neighbour + 1).map_or(parent.upper, |next| next.key.get());
            let (fbn, lower) =
                (Fbn(children[neighbour].fbn.get().into()), children[neighbour].key.get());
            let block = self.load(fbn, view.header.level - 1, lower, upper)?;
            if bytes + used_bytes(&DirectoryNode::view(&block, fbn)?) > MERGED_BYTES_MAX {
                continue;
            }
            let (left_fbn, right_fbn) =
                (Fbn(children[left].fbn.get().into()), Fbn(children[right].fbn.get().into()));
            drop(block);
            drop(parent_block);
            self.merge_pair(left_fbn, right_fbn)?;
            NodeEdit::new(self.blocks.write(parent.fbn)?, parent.fbn).remove_child(right);
            self.free(right_fbn)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn merge_pair(&mut self, left: Fbn, right: Fbn) -> Outcome<(), B> {
        let source = self.blocks.read(right)?;
        let node = DirectoryNode::view(&source, right)?;
        NodeEdit::new(self.blocks.write(left)?, left).append(&node, 0);
        Ok(())
    }

    /// Gives the root its only child's content, if there is one that is half full at most. Whether
    /// it did.
    fn pull_root_up(&mut self, path: &Path) -> Outcome<bool, B> {
        let [root, child, ..] = path.steps() else {
            return Ok(false);
        };
        let block = self.blocks.read(root.fbn)?;
        let children = DirectoryNode::view(&block, root.fbn)?.header.count.get();
        drop(block);
        let block = self.blocks.read(child.fbn)?;
        let node = DirectoryNode::view(&block, child.fbn)?;
        if children != 1 || used_bytes(&node) > capacity(root.fbn) / 2 {
            return Ok(false);
        }
        let level = node.header.level;
        NodeEdit::format(self.blocks.write(root.fbn)?, root.fbn, level).append(&node, 0);
        drop(block);
        if level == 0 {
            self.free_all()?
        } else {
            self.free(child.fbn)?
        }
        Ok(true)
    }
}
