//! The directory file's blocks: taken from the free list or from the file's end.
//!
//! Invariants: `free_count` is the length of the list that begins at `free_head`; a block is on
//! the list or in the tree, never both (a block that is taken must be marked free, so that a
//! damaged list cannot hand out a live block).

use super::node::NodeEdit;
use super::tree::Tree;
use super::{DirectoryBlocks, DirectoryDamage, DirectoryError, DirectoryProblem, Outcome};
use ondisk::directory::{DIRECTORY_BLOCKS_MAX, DirectoryContent, DirectoryNode};
use units::Fbn;

/// Most free blocks at the file's end that one free cuts off, so that its cost stays small.
const TRIM_BLOCKS_MAX: usize = 8;

impl<B: DirectoryBlocks> Tree<'_, B> {
    /// A block for a new node; its content is to be overwritten.
    pub fn allocate(&mut self) -> Outcome<Fbn, B> {
        let (_, root) = self.open()?;
        let (head, count) = (root.free_head.get(), root.free_count.get());
        if head == 0 {
            let fbn = Fbn(self.blocks.size_blocks());
            return if fbn.get() < DIRECTORY_BLOCKS_MAX {
                Ok(fbn)
            } else {
                Err(DirectoryError::Full)
            };
        }
        self.pop(head, count)
    }

    /// Takes the first block, `head`, off the free list of `count` blocks.
    fn pop(&mut self, head: u32, count: u32) -> Outcome<Fbn, B> {
        let next = self.next_free(head)?;
        let count = count.saturating_sub(1);
        if (next == 0) != (count == 0) {
            let problem = DirectoryProblem::Pointer(next);
            return Err(DirectoryDamage { fbn: Fbn(head.into()), problem }.into());
        }
        self.edit_root(|root| {
            root.free_head = next.into();
            root.free_count = count.into();
        })?;
        Ok(Fbn(head.into()))
    }

    /// The free block that follows free block `fbn`; 0 at the end.
    pub fn next_free(&mut self, fbn: u32) -> Outcome<u32, B> {
        let (size_blocks, fbn) = (self.blocks.size_blocks(), Fbn(fbn.into()));
        if fbn.get() >= size_blocks {
            let problem = DirectoryProblem::Pointer(fbn.get() as u32);
            return Err(DirectoryDamage { fbn, problem }.into());
        }
        let block = self.blocks.read(fbn)?;
        let node = DirectoryNode::view(&block, fbn)?;
        if !matches!(node.content, DirectoryContent::Free) {
            let problem = DirectoryProblem::Kind(node.header.kind);
            return Err(DirectoryDamage { fbn, problem }.into());
        }
        node.validate(0, 0, size_blocks)?;
        Ok(node.header.next_free.get())
    }

    /// Gives back a block that is out of the tree.
    pub fn free(&mut self, fbn: Fbn) -> Outcome<(), B> {
        assert!(fbn.get() != 0, "block 0 is the directory itself");
        if fbn.get() + 1 != self.blocks.size_blocks() {
            let (_, root) = self.open()?;
            let head = root.free_head.get();
            NodeEdit::format_free(self.blocks.write(fbn)?, fbn, head);
            let number = fbn.get() as u32; // below DIRECTORY_BLOCKS_MAX, which is 2^28
            return self.edit_root(|root| {
                root.free_head = number.into();
                root.free_count += 1;
            });
        }
        self.blocks.truncate(fbn.get());
        for _ in 0..TRIM_BLOCKS_MAX {
            let (_, root) = self.open()?;
            let (head, count) = (root.free_head.get(), root.free_count.get());
            if head == 0 || u64::from(head) + 1 != self.blocks.size_blocks() {
                break;
            }
            let last = self.pop(head, count)?;
            self.blocks.truncate(last.get());
        }
        Ok(())
    }

    /// Gives back every block but the root's, which is a leaf now.
    pub fn free_all(&mut self) -> Outcome<(), B> {
        self.edit_root(|root| {
            root.free_head = 0.into();
            root.free_count = 0.into();
        })?;
        self.blocks.truncate(1);
        Ok(())
    }
}
