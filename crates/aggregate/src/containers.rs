//! Volumes as the aggregate's own image has them: a slot of the volume table, a container file, and
//! what a consistency point changes in the container map (FlexVol section 3.1).
//!
//! Invariants: the lowest level of a container's tree is its container map, from VVBN to PVBN.

use cowfs::buftree::{self, FileKey, Root, Walk};
use cowfs::content::Content;
use cowfs::image::{FileWork, ImageFacts};
use cowfs::pointer::Pointer;
use cowfs::reader::{Progress, Reader, all};
use cowfs::scatter::Runs;
use ondisk::pointer::PhysicalPointer;
use ondisk::records::VolumeRecord;
use ondisk::root::metafile;
use units::{BlockNumber, InodeNumber, Pvbn, VolumeId, Vvbn};

/// A volume's container file.
#[derive(Clone, Copy, Debug)]
pub struct Container {
    /// Its tree; the lowest level of pointers is the container map.
    pub root: Root<PhysicalPointer>,
    /// Blocks of the volume in it.
    pub blocks: u64,
    /// The volume was deleted; its blocks are being freed.
    pub deleting: bool,
    /// What the volume cannot live without is damaged: it stays as it is, but for its deletion.
    pub quarantined: bool,
    /// The volume that it is a clone of. Where the map has a hole the parent's map may have the
    /// block.
    pub parent: Option<VolumeId>,
}

impl Container {
    /// The container of a new volume, a clone of `parent` if there is one.
    #[must_use]
    pub fn empty(parent: Option<VolumeId>) -> Self {
        Self { root: Root::default(), blocks: 0, deleting: false, quarantined: false, parent }
    }

    /// Whether its entries may change.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        !self.deleting && !self.quarantined
    }
}

/// A slot of the volume table.
#[derive(Clone)]
pub struct VolumeSlot {
    /// What it says.
    pub record: VolumeRecord,
}

/// A change of a container map: a VVBN's block is now here, or nowhere.
pub type ContainerUpdate = (Vvbn, Option<PhysicalPointer>);

/// What a member's cleaning changed.
#[derive(Debug)]
pub struct MemberCleaned {
    /// The volume.
    pub volume: VolumeId,
    /// Its container map's changes.
    pub updates: Vec<ContainerUpdate>,
    /// Blocks that were written for it and are nobody's: free again with the commit.
    pub wasted: Vec<Pvbn>,
    /// What the volume cannot live without cannot be read: it stays as the last commit has it, for
    /// good. There are no updates then.
    pub is_damaged: bool,
    /// Which of the updates only say that a block lies elsewhere.
    pub reallocated: Runs,
    /// The volume has snapshots. Their pointers to reallocated blocks have wrong hints from the
    /// commit on.
    pub has_snapshots: bool,
    /// Its files, if they are the aggregate's own: they are written with the aggregate's image.
    pub files: Option<OwnFiles>,
}

/// Files of a member that has no container, but shares the aggregate's own file system.
#[derive(Debug)]
pub struct OwnFiles {
    /// What the image is, apart from its files.
    pub facts: ImageFacts,
    /// Those that changed.
    pub work: Vec<FileWork<PhysicalPointer>>,
}

impl MemberCleaned {
    /// A volume of which nothing has changed.
    #[must_use]
    pub fn of(volume: VolumeId) -> Self {
        Self {
            volume,
            updates: Vec::new(),
            wasted: Vec::new(),
            is_damaged: false,
            reallocated: Runs::default(),
            has_snapshots: false,
            files: None,
        }
    }
}

/// The inode number of a volume's container in an aggregate of flexible volumes.
#[must_use]
pub const fn container_inode(volume: VolumeId) -> InodeNumber {
    InodeNumber(metafile::ROOT_DIRECTORY + volume.0 as u64)
}

/// The volume of a container, if an inode of an aggregate of flexible volumes is one.
pub(crate) fn container_of(inode: InodeNumber) -> Option<VolumeId> {
    let volume = inode.get().checked_sub(metafile::ROOT_DIRECTORY)?;
    u32::try_from(volume).ok().map(VolumeId)
}

/// The container of a volume as a file of the aggregate.
pub(crate) const fn container_key(volume: VolumeId) -> FileKey {
    FileKey { volume: VolumeId(0), inode: container_inode(volume), content: Content::Data }
}

/// The lowest-level node of a container map that has the entry of a VVBN.
pub(crate) const fn node_of(vvbn: Vvbn) -> u64 {
    vvbn.get() / PhysicalPointer::FANOUT
}

/// The first VVBN whose entry a node has.
pub(crate) const fn first_of(node: u64) -> Vvbn {
    Vvbn(node * PhysicalPointer::FANOUT)
}

/// The VVBNs whose entries a node has.
pub(crate) fn entries_of(node: u64) -> impl Iterator<Item = Vvbn> {
    first_of(node).until(first_of(node + 1))
}

/// The place of a VVBN's block by the volume's own container map: a hole where the block is
/// inherited.
///
/// # Errors
/// What to wait for.
pub fn container_lookup(
    volume: VolumeId,
    container: &Container,
    vvbn: Vvbn,
    reader: &Reader<'_>,
) -> Progress<PhysicalPointer> {
    buftree::find(&container.root, &container_key(volume), vvbn.in_container(), reader)
}

/// Those of a volume's numbers, which are in order, that have a block in its own container map; and
/// how many of its nodes were looked at.
///
/// # Errors
/// What to wait for: all of the nodes that are not in memory.
pub fn owned_among(
    volume: VolumeId,
    container: &Container,
    numbers: &[Vvbn],
    reader: &Reader<'_>,
) -> Progress<(Vec<Vvbn>, usize)> {
    let key = container_key(volume);
    let nodes = numbers.chunk_by(|one, next| node_of(*one) == node_of(*next));
    let owned = nodes.map(|numbers| {
        let mut walk = Walk::new(&container.root, &key, *reader);
        let mut owned = Vec::new();
        for vvbn in numbers {
            if !walk.find(vvbn.in_container())?.is_hole() {
                owned.push(*vvbn);
            }
        }
        Ok(owned)
    });
    let owned = all(owned)?;
    let nodes = owned.len();
    Ok((owned.into_iter().flatten().collect(), nodes))
}
