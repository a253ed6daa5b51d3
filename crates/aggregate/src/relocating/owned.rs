//! Whose a block is that lies in an area: from the identity beside it to its place in a tree of the
//! last commit.
//!
//! Invariants: a block counts as found only where a tree names it now; an identity may be older.

use crate::allocation::refill::Tier;
use crate::block_side::side::BlockSide;
use crate::containers::{container_key, container_lookup, container_of};
use crate::relocation::areas::{AreaBatch, FoundBlocks, MetafileBlock};
use crate::relocation::moves::{Found, Move};
use cowfs::buftree::{self, FileKey, Root, span};
use cowfs::content::Content;
use cowfs::logical::{INODE_FILE, inode_file_key};
use cowfs::reader::{Progress, Reader, all};
use ondisk::identity::{BlockOwner, crc32c};
use ondisk::pointer::PhysicalPointer;
use ondisk::root::metafile;
use std::collections::BTreeSet;
use units::{BlockRef, Fbn, InodeNumber, Pvbn, VolumeId};

/// What must be done to have the blocks elsewhere.
///
/// # Errors
/// What to wait for; then call again.
pub(crate) fn match_found(
    side: &BlockSide,
    found: &FoundBlocks,
    reader: &Reader<'_>,
) -> Progress<AreaBatch> {
    let mut batch = AreaBatch::new(found.next);
    let read = found.blocks.iter().filter_map(|(pvbn, found)| Some((*pvbn, found.as_ref()?)));
    all(read.map(|(pvbn, found)| side.match_block(pvbn, found, reader, &mut batch)))?;
    Ok(batch)
}

impl BlockSide {
    fn match_block(
        &self,
        pvbn: Pvbn,
        (block, owner): &(BlockRef, BlockOwner),
        reader: &Reader<'_>,
        batch: &mut AreaBatch,
    ) -> Progress<()> {
        if owner.volume == VolumeId(0) {
            return self.rewrite(pvbn, owner, reader, batch);
        }
        batch.moves.extend(self.move_of(pvbn, (block, owner), reader)?);
        Ok(())
    }

    /// The move of a volume's block, if the container map names it of the volume that it was born
    /// in: that has its entry, whoever shares the block.
    fn move_of(
        &self,
        pvbn: Pvbn,
        (block, owner): (&BlockRef, &BlockOwner),
        reader: &Reader<'_>,
    ) -> Progress<Option<Move>> {
        let (volume, vvbn) = (owner.volume, owner.vvbn);
        let Some(container) = self.containers.get(&volume).filter(|one| one.is_live()) else {
            return Ok(None);
        };
        let from = container_lookup(volume, container, vvbn, reader)?;
        let is_named = from.pvbn == pvbn && from.check == crc32c(block) as u16;
        let found: Found = Some((BlockRef::clone(block), *owner));
        Ok(is_named.then(|| Move { found, ..Move::new((volume, vvbn), from, Tier::Near) }))
    }

    /// Has a block of the aggregate's image written again, if its tree names it.
    fn rewrite(
        &self,
        pvbn: Pvbn,
        owner: &BlockOwner,
        reader: &Reader<'_>,
        batch: &mut AreaBatch,
    ) -> Progress<()> {
        let Some((root, key)) = self.file_of(owner.inode) else { return Ok(()) };
        let first = owner.fbn.get().saturating_mul(span::<PhysicalPointer>(owner.level));
        let end = first.saturating_add(span::<PhysicalPointer>(owner.level));
        // A node moves with any block below it.
        let below = buftree::next_present(&root, &key, Fbn(first), Fbn(end), reader)?;
        let Some(fbn) = below else { return Ok(()) };
        let mut numbers = BTreeSet::new();
        buftree::numbers(&root, &key, fbn, reader, &mut numbers)?;
        if !numbers.contains(&pvbn) {
            return Ok(());
        }
        match container_of(owner.inode) {
            Some(volume) => {
                let Some(container) = self.containers.get(&volume).filter(|one| one.is_live())
                else {
                    return Ok(());
                };
                let vvbn = fbn.in_volume();
                let entry = container_lookup(volume, container, vvbn, reader)?;
                batch.kept.push(((volume, vvbn), entry));
            }
            None if owner.inode.get() == metafile::VOLUME_TABLE => {
                batch.slots.insert(fbn.get() as usize);
            }
            None => {
                let found: MetafileBlock = (owner.inode, fbn);
                batch.rewritten.push(found);
            }
        }
        Ok(())
    }

    /// The tree of a file of the aggregate.
    fn file_of(&self, inode: InodeNumber) -> Option<(Root<PhysicalPointer>, FileKey)> {
        let volume = VolumeId(0);
        if let Some(volume) = container_of(inode) {
            let container = self.containers.get(&volume)?;
            return Some((container.root, container_key(volume)));
        }
        let space = &self.space;
        let root = match inode.get() {
            _ if inode == INODE_FILE => return Some((space.inode_file.0, inode_file_key(volume))),
            metafile::ACTIVE_MAP => space.active_map.root,
            metafile::SUMMARY_MAP => space.summary_map.root,
            metafile::TOP_AREAS => space.top_areas.root,
            metafile::VOLUME_TABLE => self.table_file.0,
            metafile::QUOTAS => space.quotas.root,
            _ => return None,
        };
        Some((root, FileKey { volume, inode, content: Content::Data }))
    }
}
