//! The whole directory checked at once, for tests, `inspect` and `repair`.
//!
//! Beyond what every read checks: each name's hash agrees with its cookie, each block of the file
//! is in the tree or on the free list and nowhere twice, and the header's totals are true.
//!
//! Fails: `DirectoryError::Damaged` with the first thing found.

use super::hash::name_hash;
use super::tree::{HashFunction, Tree};
use super::{DirectoryBlocks, DirectoryDamage, DirectoryProblem, Outcome};
use ondisk::directory::{COOKIE_LIMIT, DirectoryContent, DirectoryNode, DirectoryRoot};
use units::{BlockRef, Fbn};

/// What a directory consists of.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DirectorySummary {
    /// Entries.
    pub entries: u64,
    /// Leaves, the root included if it is one.
    pub leaves: u64,
    /// Branches, the root included if it is one.
    pub branches: u64,
    /// Blocks on the free list.
    pub free_blocks: u64,
    /// Levels of branches above the leaves.
    pub levels: u8,
}

/// Checks every block of a directory.
///
/// # Errors
/// [`super::DirectoryError`].
pub fn verify<B: DirectoryBlocks>(blocks: &mut B) -> Outcome<DirectorySummary, B> {
    verify_with(blocks, name_hash)
}

pub(super) fn verify_with<B: DirectoryBlocks>(
    blocks: &mut B,
    hash: HashFunction,
) -> Outcome<DirectorySummary, B> {
    let mut tree = Tree::new(blocks, hash);
    let (block, root) = tree.open()?;
    let size_blocks = tree.blocks.size_blocks();
    let totals = DirectoryDamage {
        fbn: Fbn(0),
        problem: DirectoryProblem::Totals {
            entries: root.entry_count.get(),
            free: root.free_count.get(),
        },
    };
    // Indexed by block; a block number was checked against the file's size before it gets here.
    let mut seen = vec![false; usize::try_from(size_blocks).map_err(|_| totals)?];
    let mut summary = DirectorySummary {
        levels: DirectoryNode::view(&block, Fbn(0))?.header.level,
        ..DirectorySummary::default()
    };
    let mut waiting = vec![(block, Fbn(0), COOKIE_LIMIT)];
    while let Some((block, fbn, upper)) = waiting.pop() {
        mark(&mut seen, fbn)?;
        tree.visit(&root, (&block, fbn, upper), &mut summary, &mut waiting)?;
    }
    let mut free = root.free_head.get();
    while free != 0 {
        mark(&mut seen, Fbn(free.into()))?;
        free = tree.next_free(free)?;
        summary.free_blocks += 1;
    }
    let is_true = summary.entries == root.entry_count.get()
        && summary.free_blocks == u64::from(root.free_count.get())
        && seen.iter().all(|&seen| seen);
    if is_true { Ok(summary) } else { Err(totals.into()) }
}

fn mark(seen: &mut [bool], fbn: Fbn) -> Result<(), DirectoryDamage> {
    let damaged = DirectoryDamage { fbn, problem: DirectoryProblem::Pointer(fbn.get() as u32) };
    let slot = usize::try_from(fbn.get()).ok().and_then(|index| seen.get_mut(index));
    let slot = slot.ok_or(damaged)?;
    if std::mem::replace(slot, true) { Err(damaged) } else { Ok(()) }
}

impl<B: DirectoryBlocks> Tree<'_, B> {
    fn visit(
        &mut self,
        root: &DirectoryRoot,
        (block, fbn, upper): (&BlockRef, Fbn, u64),
        summary: &mut DirectorySummary,
        waiting: &mut Vec<(BlockRef, Fbn, u64)>,
    ) -> Outcome<(), B> {
        let node = DirectoryNode::view(block, fbn)?;
        match node.content {
            DirectoryContent::Leaf(records) => {
                summary.leaves += 1;
                summary.entries += records.len() as u64;
                for (index, record) in (0_u16..).zip(records) {
                    let range = self.cookie_range(root, node.name(record));
                    if !(range.first..=range.last).contains(&record.cookie.get()) {
                        let problem = DirectoryProblem::Record(index);
                        return Err(DirectoryDamage { fbn, problem }.into());
                    }
                }
            }
            DirectoryContent::Branch(children) => {
                summary.branches += 1;
                for (index, child) in children.iter().enumerate() {
                    let end = children.get(index + 1).map_or(upper, |next| next.key.get());
                    let at = Fbn(child.fbn.get().into());
                    let level = node.header.level - 1;
                    waiting.push((self.load(at, level, child.key.get(), end)?, at, end));
                }
            }
            DirectoryContent::Free => unreachable!("loaded blocks are nodes"),
        }
        Ok(())
    }
}
