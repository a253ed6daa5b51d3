//! Which blocks of an aggregate its image reaches: a walk of each tree, one file block at a time.
//!
//! Invariants: the walk does not ask the free map. It finds a block that two places of the image
//! name.

use crate::block_side::side::BlockSide;
use crate::containers::container_key;
use cowfs::buftree::{self, FileKey, Root};
use cowfs::content::Content;
use cowfs::free_map::{is_set, runs_of};
use cowfs::logical::inode_file_key;
use cowfs::reader::{Progress, Reader};
use ondisk::pointer::PhysicalPointer;
use std::collections::{BTreeMap, BTreeSet};
use units::{BlockNumber, Fbn, InodeNumber, Pvbn, VolumeId, Vvbn};

/// What an image reaches.
#[derive(Debug, Default)]
pub struct BlocksInUse {
    /// All blocks, of volumes and of the aggregate itself.
    pub all: BTreeSet<Pvbn>,
    /// Entries of container maps.
    pub entries: BTreeMap<(VolumeId, Vvbn), PhysicalPointer>,
}

/// Walks all trees of the last commit; call it while no consistency point runs.
///
/// # Errors
/// What to wait for; then call again.
///
/// # Panics
/// If two places of the image name one block.
pub fn find_blocks(side: &BlockSide, reader: &Reader<'_>) -> Progress<BlocksInUse> {
    let mut found = BlocksInUse::default();
    let own = VolumeId(0);
    let space = &side.space;
    let maps = [&space.active_map, &space.summary_map, &space.delayed_map];
    let mut files: Vec<(Root<PhysicalPointer>, FileKey)> =
        maps.map(|map| (map.root, map.key)).into();
    let key = |inode| FileKey { volume: own, inode: InodeNumber(inode), content: Content::Data };
    files.push((space.inode_file.0, inode_file_key(own)));
    files.push((space.top_areas.root, key(ondisk::root::metafile::TOP_AREAS)));
    files.push((side.table_file.0, key(ondisk::root::metafile::VOLUME_TABLE)));
    for (root, key) in files {
        found.add_file(&root, &key, reader, |_, _| ())?;
    }
    for (volume, container) in &side.containers {
        let mut entries = Vec::new();
        let note = |fbn: Fbn, pointer| entries.push(((*volume, fbn.in_volume()), pointer));
        found.add_file(&container.root, &container_key(*volume), reader, note)?;
        found.entries.extend(entries);
    }
    Ok(found)
}

impl BlocksInUse {
    /// Compares the free map, and what is counted, with what the image reaches.
    ///
    /// # Errors
    /// What to wait for; then call again.
    ///
    /// # Panics
    /// If a block is in use that nothing reaches, or free that something does; or a count is wrong.
    pub fn check_space(&self, side: &BlockSide, reader: &Reader<'_>) -> Progress<()> {
        let space = &side.space;
        for (index, part) in runs_of(Pvbn(0)..Pvbn(space.size_blocks)) {
            let map = space.active_map.read(index, reader)?;
            for pvbn in part.start.until(part.end) {
                let is_reached = pvbn == Pvbn(0) || self.all.contains(&pvbn);
                assert_eq!(is_set(&map, pvbn), is_reached, "{pvbn} is in use, and is reached");
            }
        }
        assert_eq!(space.used_blocks, self.all.len() as u64 + 1);
        assert_eq!(space.active_blocks, space.used_blocks);
        for (volume, container) in &side.containers {
            let of_volume = self.entries.keys().filter(|(of, _)| of == volume);
            assert_eq!(container.blocks, of_volume.count() as u64, "{volume}");
        }
        Ok(())
    }

    /// Blocks of `before` at which the next image has placed another block of a volume.
    #[must_use]
    pub fn reused_of(&self, before: &Self) -> Vec<Pvbn> {
        let old = |at: &(VolumeId, Vvbn)| before.entries.get(at).map(|one| one.pvbn);
        let placed = self.entries.iter().filter(|(at, one)| old(at) != Some(one.pvbn));
        let numbers = placed.map(|(_, one)| one.pvbn);
        numbers.filter(|pvbn| before.all.contains(pvbn)).collect()
    }

    fn add_file(
        &mut self,
        root: &Root<PhysicalPointer>,
        key: &FileKey,
        reader: &Reader<'_>,
        mut note: impl FnMut(Fbn, PhysicalPointer),
    ) -> Progress<()> {
        let (mut numbers, mut leaves, mut from) = (BTreeSet::new(), BTreeSet::new(), Fbn(0));
        while let Some(fbn) = buftree::next_present(root, key, from, Fbn(u64::MAX), reader)? {
            buftree::numbers(root, key, fbn, reader, &mut numbers)?;
            let pointer = buftree::find(root, key, fbn, reader)?;
            assert!(leaves.insert(pointer.pvbn), "{} is named twice by {key:?}", pointer.pvbn);
            note(fbn, pointer);
            from = Fbn(fbn.get() + 1);
        }
        for number in numbers {
            assert!(self.all.insert(number), "{number} of {key:?} is another's too");
        }
        Ok(())
    }
}
