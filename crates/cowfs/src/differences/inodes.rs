//! The inodes that differ between two images: the two inode files walked together.
//!
//! Invariants: the state advances by whole batches of inode blocks. An inode's bytes are validated
//! before anything is taken from them.
//!
//! Fails: an inode block that cannot be read counts with all its inodes as unreadable, an inode
//! that is not valid alone. A block that leads to inode blocks ends the walk
//! ([`Stop::Damaged`]).

use super::changes::{ChangedFile, Image, Which, is_same_file, is_unchanged};
use crate::buftree::{self, next_different};
use crate::logical::{inode_file_key, record_at};
use crate::pointer::Pointer;
use crate::reader::{Progress, Reader, Stop, all, unless_damaged};
use ondisk::inode::{
    INODE_SIZE, INODES_PER_BLOCK, InodeRecord, KIND_ATTRIBUTES, KIND_CONTAINER, KIND_FREE,
    KIND_METAFILE,
};
use ondisk::root::metafile;
use units::{BlockRef, Fbn, InodeNumber, zero_block};

/// Blocks of the inode files that are loaded together, of each image.
const BLOCKS_AT_ONCE: usize = 32;

/// How far the walk has come.
#[derive(Default)]
pub struct InodeWalk {
    /// Inode blocks before this one are compared.
    next: Fbn,
}

/// What a step found.
#[derive(Default)]
pub struct Compared {
    pub files: Vec<ChangedFile>,
    pub unreadable: u64,
    /// Blocks that were read.
    pub blocks: usize,
}

impl InodeWalk {
    /// Compares some inode blocks; `None` when all are compared.
    ///
    /// # Errors
    /// What to wait for; then call again. Or why it cannot go on.
    pub fn go_on<P: Pointer>(
        &mut self,
        images: &[Image<P>; 2],
        reader: &Reader<'_>,
    ) -> Progress<Option<Compared>> {
        let places = self.next_places(images, reader)?;
        let Some(last) = places.last() else { return Ok(None) };
        let each = places.iter().flat_map(|fbn| images.iter().map(move |image| (image, *fbn)));
        let blocks = all(each.map(|(image, fbn)| unless_damaged(block(image, fbn, reader))))?;
        let mut compared = Compared { blocks: blocks.len(), ..Compared::default() };
        for (fbn, pair) in places.iter().zip(blocks.chunks_exact(2)) {
            match pair {
                [Some(old), Some(new)] => compared.add(*fbn, old, new)?,
                _ => compared.unreadable += INODES_PER_BLOCK as u64,
            }
        }
        self.next = last.offset(1);
        Ok(Some(compared))
    }

    /// The next inode blocks that differ. What is found without a wait is enough.
    fn next_places<P: Pointer>(
        &self,
        [old, new]: &[Image<P>; 2],
        reader: &Reader<'_>,
    ) -> Progress<Vec<Fbn>> {
        let key = inode_file_key(new.volume);
        let (mut places, mut from) = (Vec::new(), self.next);
        while places.len() < BLOCKS_AT_ONCE {
            let roots = (&old.inode_file, &new.inode_file);
            match next_different(roots.0, roots.1, &key, from, Fbn::END, reader) {
                Ok(Some(fbn)) => {
                    places.push(fbn);
                    from = fbn.offset(1);
                }
                Ok(None) => break,
                Err(Stop::Wait(_)) if !places.is_empty() => break,
                Err(stop) => return Err(stop),
            }
        }
        Ok(places)
    }
}

impl Compared {
    /// Compares the inodes of a block.
    fn add(&mut self, fbn: Fbn, old: &BlockRef, new: &BlockRef) -> Progress<()> {
        for slot in 0..INODES_PER_BLOCK {
            let inode = InodeNumber(fbn.get() * INODES_PER_BLOCK as u64 + slot as u64);
            let bytes = slot * INODE_SIZE..(slot + 1) * INODE_SIZE;
            if inode.get() < metafile::ROOT_DIRECTORY || old[bytes.clone()] == new[bytes] {
                continue;
            }
            let (old, new) = (record_at(old, slot), record_at(new, slot));
            match unless_damaged(validate(&old).and_then(|()| validate(&new)))? {
                Some(()) => self.compare(inode, &old, &new),
                None => self.unreadable += 1,
            }
        }
        Ok(())
    }

    fn compare(&mut self, inode: InodeNumber, old: &InodeRecord, new: &InodeRecord) {
        let is_both = is_file(old) && is_file(new) && is_same_file(old, new);
        if is_both {
            if !is_unchanged(old, new) {
                self.files.push(ChangedFile::of_both(inode, old, new));
            }
            return;
        }
        for (which, record) in [(Which::Old, old), (Which::New, new)] {
            if is_file(record) {
                self.files.push(ChangedFile::of_one(inode, which, record));
            }
        }
    }
}

/// A block of an image's inode file; inodes that were never used are zero.
fn block<P: Pointer>(image: &Image<P>, fbn: Fbn, reader: &Reader<'_>) -> Progress<BlockRef> {
    let key = inode_file_key(image.volume);
    let found = buftree::read(&image.inode_file, &key, fbn, reader)?;
    Ok(found.unwrap_or_else(zero_block))
}

fn validate(record: &InodeRecord) -> Progress<()> {
    record.validate().map_err(|damage| Stop::of_damage(damage, units::Pvbn(0)))
}

/// Whether it is a file that somebody can see.
fn is_file(record: &InodeRecord) -> bool {
    let is_hidden =
        matches!(record.kind, KIND_FREE | KIND_ATTRIBUTES | KIND_METAFILE | KIND_CONTAINER);
    !is_hidden && record.links.get() > 0
}
