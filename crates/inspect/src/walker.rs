//! Walks the buftrees of one file system.
//!
//! Invariants: within one image (from one [`Walker::begin`] to the next) no block is entered twice,
//! so every walk ends, on any bytes. A block that several images share is proved once; later its
//! pointers are compared with the first.
//!
//! Fails: what is wrong becomes findings of the report; [`InspectError`] only when the disks do not
//! answer.

use crate::error::InspectError;
use crate::filesystem::{FileSystem, INODE_FILE, Tree};
use crate::finding::{Finding, ImageName, Place};
use crate::format::{Content, Link};
use crate::medium::{Medium, Want};
use crate::vbn_set::VbnSet;
use ondisk::inode::{DEPTH_MAX, INODE_SIZE, INODES_PER_BLOCK, InodeRecord};
use rustc_hash::{FxHashMap, FxHasher};
use std::collections::BTreeMap;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use units::{Block, BlockRef};
use zerocopy::FromBytes;

/// Blocks that are read at once.
const BATCH_BLOCKS: usize = 256;

/// What to do with a file's own blocks.
pub(crate) enum Leaves<'v> {
    /// Prove them.
    Prove,
    /// Prove them, and show their content.
    Read(&'v mut dyn FnMut(u64, &BlockRef)),
    /// They are a volume's blocks: only note their pointers.
    Note(&'v mut dyn FnMut(u64, &Link)),
}

/// What a walk saw of a file.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Extent {
    /// Data blocks in its tree.
    pub blocks: u64,
    /// One more than the last of them.
    pub end: u64,
}

/// Inodes in use by number.
pub(crate) type Inodes = BTreeMap<u64, InodeRecord>;

/// Block numbers whose proofs lie together.
const PROOF_BLOCKS: u64 = 64;

/// What the first pointer to each block said of it: four bytes, which two different blocks have in
/// common once in four thousand million.
#[derive(Default)]
struct Proofs(FxHashMap<u64, Box<[u32; PROOF_BLOCKS as usize]>>);

impl Proofs {
    /// Zero if the block was not proved.
    fn get(&self, vbn: u64) -> u32 {
        let proofs = self.0.get(&(vbn / PROOF_BLOCKS));
        proofs.map_or(0, |proofs| proofs[(vbn % PROOF_BLOCKS) as usize])
    }

    fn set(&mut self, vbn: u64, proof: u32) {
        let fresh = || Box::new([0; PROOF_BLOCKS as usize]);
        let proofs = self.0.entry(vbn / PROOF_BLOCKS).or_insert_with(fresh);
        proofs[(vbn % PROOF_BLOCKS) as usize] = proof;
    }

    /// What a pointer says of a block.
    fn proof(link: &Link, at: &Place) -> u32 {
        let mut hasher = FxHasher::default();
        (link.check, at.inode, at.level, at.index).hash(&mut hasher);
        let hash = hasher.finish();
        ((hash >> 32) as u32 ^ hash as u32).max(1)
    }
}

/// See the module.
pub(crate) struct Walker<'m, 'a, 'f> {
    pub medium: &'m mut Medium<'a>,
    pub fs: &'f FileSystem,
    /// Blocks of the image walked so far.
    pub reached: VbnSet,
    /// Nothing that leads to other blocks was lost since the last [`Walker::begin`].
    pub is_whole: bool,
    proved: Proofs,
}

impl<'m, 'a, 'f> Walker<'m, 'a, 'f> {
    pub fn new(medium: &'m mut Medium<'a>, fs: &'f FileSystem) -> Self {
        let (reached, proved) = (VbnSet::default(), Proofs::default());
        Self { medium, fs, reached, is_whole: true, proved }
    }

    /// Begins another image, or another walk of the same; what the last one reached.
    pub fn begin(&mut self) -> VbnSet {
        self.is_whole = true;
        std::mem::take(&mut self.reached)
    }

    pub fn tell(&mut self, finding: Finding) {
        self.medium.report.add(finding);
    }

    /// Blocks of the file system's space that a pointer was proved to.
    pub fn is_proved(&self, vbn: u64) -> bool {
        self.proved.get(vbn) != 0
    }

    /// Walks a file's tree.
    pub fn walk(
        &mut self,
        image: ImageName,
        tree: &Tree,
        mut leaves: Leaves<'_>,
    ) -> Result<Extent, InspectError> {
        let mut extent = Extent::default();
        if tree.depth == 0 {
            if let Leaves::Read(show) = &mut leaves
                && tree.payload != [0; ondisk::inode::PAYLOAD_SIZE]
            {
                show(0, &Arc::new(Block::from_prefix(&tree.payload)));
            }
            return Ok(extent);
        }
        let level = tree.depth.min(DEPTH_MAX) - 1;
        self.walk_node(image, tree, level, 0, &tree.payload, &mut leaves, &mut extent)?;
        Ok(extent)
    }

    /// Walks below the pointers in `bytes`, which are to blocks at `level`, the first of them with
    /// the number `first` among that level's.
    #[expect(clippy::too_many_arguments, reason = "a recursion's own state")]
    fn walk_node(
        &mut self,
        image: ImageName,
        tree: &Tree,
        level: u8,
        first: u64,
        bytes: &[u8],
        leaves: &mut Leaves<'_>,
        extent: &mut Extent,
    ) -> Result<(), InspectError> {
        let links = self.fs.format.links(bytes);
        let place = |index: u64| Place { image, inode: tree.inode, level, index };
        let mut sound = Vec::with_capacity(links.len());
        let span = self.fs.format.span(level);
        for (entry, link) in links {
            let index = first + entry;
            if !tree.wants(index, span) {
                continue;
            }
            if self.is_sound(&link, place(index)) {
                sound.push((index, link));
            }
        }
        if level == 0 {
            for (index, _) in &sound {
                extent.blocks += 1;
                extent.end = extent.end.max(index + 1);
            }
            if let Leaves::Note(note) = leaves {
                sound.iter().for_each(|(index, link)| note(*index, link));
                return Ok(());
            }
        }
        let needs_content = level > 0 || matches!(leaves, Leaves::Read(_));
        for batch in sound.chunks(BATCH_BLOCKS) {
            let blocks = self.fetch(tree, batch, place, needs_content)?;
            for ((index, _), block) in batch.iter().zip(blocks) {
                let Some(block) = block else {
                    self.is_whole &= !needs_content;
                    continue;
                };
                if level > 0 {
                    let below = index * (self.fs.format.span(1));
                    self.walk_node(image, tree, level - 1, below, block.bytes(), leaves, extent)?;
                } else if let Leaves::Read(show) = leaves {
                    show(*index, &block);
                }
            }
        }
        Ok(())
    }

    /// Whether a pointer leads to a block that this walk may enter.
    fn is_sound(&mut self, link: &Link, at: Place) -> bool {
        if !link.is_sound {
            self.tell(Finding::BadPointer { at });
        }
        if link.vbn == 0 {
            return false;
        }
        if link.vbn >= self.fs.root.size_blocks.get() {
            self.tell(Finding::BeyondEnd { at, vbn: link.vbn });
            return false;
        }
        if !self.reached.insert(link.vbn) {
            self.tell(Finding::ReachedTwice { at, vbn: link.vbn });
            return false;
        }
        true
    }

    /// Proves blocks, and reads those that are needed.
    fn fetch(
        &mut self,
        tree: &Tree,
        batch: &[(u64, Link)],
        place: impl Fn(u64) -> Place,
        needs_content: bool,
    ) -> Result<Vec<Option<BlockRef>>, InspectError> {
        let mut wants: Vec<(usize, Want)> = Vec::with_capacity(batch.len());
        for (slot, (index, link)) in batch.iter().enumerate() {
            let at = place(*index);
            let content = tree.content_at(at.level);
            let is_new = self.note_proof(link, &at);
            if !is_new && !needs_content {
                continue;
            }
            match self.fs.want(link, at, content, needs_content) {
                Ok((want, finding)) => {
                    if is_new {
                        finding.into_iter().for_each(|finding| self.medium.report.add(finding));
                    }
                    let owner = want.owner.filter(|_| is_new);
                    wants.push((slot, Want { owner, ..want }));
                }
                Err(finding) if is_new => self.tell(finding),
                Err(_) => {}
            }
        }
        let only: Vec<Want> = wants.iter().map(|(_, want)| *want).collect();
        let fetched = self.medium.fetch(&only)?;
        let mut blocks = vec![None; batch.len()];
        for ((slot, _), block) in wants.into_iter().zip(fetched) {
            blocks[slot] = block;
        }
        Ok(blocks)
    }

    /// Whether a block is seen for the first time; tells if it was another block then.
    fn note_proof(&mut self, link: &Link, at: &Place) -> bool {
        let proof = Proofs::proof(link, at);
        match self.proved.get(link.vbn) {
            0 => {
                self.proved.set(link.vbn, proof);
                true
            }
            first => {
                if first != proof {
                    self.tell(Finding::SharedDiffers { at: *at, vbn: link.vbn });
                }
                false
            }
        }
    }

    /// Walks an inode file: the inodes in use.
    pub fn inodes(
        &mut self,
        image: ImageName,
        record: &InodeRecord,
    ) -> Result<(Inodes, Extent), InspectError> {
        let tree = Tree::of(INODE_FILE, Content::Inodes, record);
        let mut inodes = Inodes::new();
        let mut damaged = Vec::new();
        let mut take = |fbn: u64, block: &BlockRef| {
            let first = fbn * INODES_PER_BLOCK as u64;
            for (number, bytes) in (first..).zip(block.chunks_exact(INODE_SIZE)) {
                let Ok(record) = InodeRecord::read_from_bytes(bytes) else { continue };
                match record.validate() {
                    Ok(()) if record.is_free() => {}
                    Ok(()) => {
                        inodes.insert(number, record);
                    }
                    Err(damage) => {
                        damaged.push(Finding::InodeDamaged { image, inode: number, damage });
                    }
                }
            }
        };
        let extent = self.walk(image, &tree, Leaves::Read(&mut take))?;
        damaged.into_iter().for_each(|finding| self.tell(finding));
        Ok((inodes, extent))
    }
}
