//! An independent, read-only reader and checker of media (docs/testing.md, section 6).
//!
//! It reads the disks by the formats in `ondisk` and shares no code with what writes them: labels,
//! identities, pointers, buftrees, free maps, directories are read here anew. So a bug in the
//! engine does not hide itself.
//!
//! ```text
//! disks -> array (labels, groups) -> medium (a block, proved) -> walker (buftrees of an image)
//!     -> image (metafiles) -> space (maps) , namespace (names) , tree (files by path) ; parity
//! ```
//!
//! Invariants:
//! - Nothing is written, not even a repair or a label.
//! - No bytes on media make it panic or go on for ever.
//! - Memory grows with the blocks in use, not with the size of disks or volumes.
//! - *Architecture Invariant:* no engine crate above `raid` is a dependency, and of `raid` only the
//!   geometry is used.
//!
//! The media must be at rest, or at least a consistency point behind what is being written: the
//! check sees the image of the newest superblock. After a crash, stripes that were noted in the log
//! may have wrong parity until the aggregate was mounted once.
//!
//! Fails: [`InspectError`] when nothing can be said; everything else is a [`Finding`].

#![forbid(unsafe_code)]

mod array;
mod check;
mod directory;
mod error;
mod families;
mod fault;
mod filesystem;
mod finding;
mod format;
mod hash;
mod image;
mod medium;
mod names;
mod namespace;
mod open;
mod parity;
mod pump;
mod quotas;
mod report;
mod scope;
mod slots;
mod space;
mod stripe;
mod top_areas;
mod tree;
mod vbn_set;
mod walker;

#[cfg(test)]
mod tests;

pub use error::InspectError;
pub use fault::{DirectoryFault, EntryFault, IdentityFault, OrphanFault, SlotFault, SnapshotFault};
pub use finding::{Blocks, Finding, ImageName, Place};
pub use hash::ContentHasher;
pub use report::{FINDINGS_MAX, HeldSpace, Names, Report, SnapshotSpace, Totals};
pub use scope::{Progress, Scope, Watch};

use array::Array;
use medium::Medium;
use ondisk::damage::Damage;
use ondisk::root::Superblock;
use ondisk::xattr::Xattrs;
use platform::Disk;
use pump::Pump;
use std::sync::Arc;
use units::{Block, Timestamp};
use walker::Walker;

/// A file of an image, as [`Inspector::tree`] shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImageFile {
    /// Its path: empty for the root directory, else each name after a slash.
    pub path: Vec<u8>,
    /// Its inode.
    pub inode: u64,
    /// Which of the inode's files.
    pub generation: u32,
    /// One of `ondisk::inode::KIND_*`.
    pub kind: u8,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub links: u32,
    /// Length in bytes.
    pub size: u64,
    /// Major and minor number, of device nodes.
    pub device: (u32, u32),
    /// Last read.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change.
    pub ctime: Timestamp,
    /// Creation.
    pub birth: Timestamp,
    /// [`ContentHasher`] of a regular file or symbolic link; else 0.
    pub content: u64,
    /// Of a symbolic link: where it leads.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub xattrs: Xattrs,
}

/// The reader of one aggregate's disks.
pub struct Inspector<'a> {
    medium: Medium<'a>,
    superblock: Superblock,
}

impl<'a> Inspector<'a> {
    /// Reads labels and superblocks of an aggregate's disks, in any order; one disk of each group
    /// with parity may be missing. `drive` makes the disks get on with their requests; it is called
    /// until the answers are there.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn open(
        disks: Vec<Arc<dyn Disk>>,
        drive: &'a mut dyn FnMut(),
    ) -> Result<Self, InspectError> {
        Self::open_with(disks, Pump::Drive(drive))
    }

    /// The same for disks that get on by themselves.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn open_blocking(disks: Vec<Arc<dyn Disk>>) -> Result<Self, InspectError> {
        Self::open_with(disks, Pump::Condition)
    }

    fn open_with(disks: Vec<Arc<dyn Disk>>, mut pump: Pump<'a>) -> Result<Self, InspectError> {
        let array = Array::open(disks, &mut pump)?;
        let mut medium = Medium::new(array, pump);
        let superblock = open::superblock(&mut medium)?;
        medium.cp = superblock.cp();
        Ok(Self { medium, superblock })
    }

    /// The superblock whose image is looked at.
    #[must_use]
    pub const fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Looks for a newer superblock: after more was written.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn refresh(&mut self) -> Result<(), InspectError> {
        self.superblock = open::superblock(&mut self.medium)?;
        self.medium.cp = self.superblock.cp();
        Ok(())
    }

    /// Looks at the image of this superblock from now on, of which the caller knows that nothing
    /// is overwritten, whatever is written beside it.
    ///
    /// # Errors
    /// [`InspectError::Superblock`] if it is none of this aggregate.
    pub fn pin(&mut self, superblock: &Block) -> Result<(), InspectError> {
        let found = Superblock::from_block(superblock).map_err(InspectError::Superblock)?;
        if found.aggregate != self.medium.array.aggregate {
            let damage = Damage::Field { structure: "superblock", field: "aggregate" };
            return Err(InspectError::Superblock(damage));
        }
        (self.superblock, self.medium.cp) = (found, found.cp());
        Ok(())
    }

    /// Blocks that the aggregate has in use, as its superblock counts them.
    #[must_use]
    pub const fn used_blocks(&self) -> u64 {
        self.superblock.root.used_blocks.get()
    }

    /// Checks everything that must hold of media at rest.
    ///
    /// # Errors
    /// [`InspectError::Stalled`] if the disks stop answering.
    pub fn check(&mut self) -> Result<Report, InspectError> {
        self.check_scope(Scope::AT_REST, None)
    }

    /// Checks what `scope` says, and tells `watch` how far it has come.
    ///
    /// # Errors
    /// [`InspectError::Stalled`] if the disks stop answering, [`InspectError::GivenUp`] if `watch`
    /// says so.
    pub fn check_scope(
        &mut self,
        scope: Scope,
        watch: Option<Watch<'a>>,
    ) -> Result<Report, InspectError> {
        (self.medium.scope, self.medium.watch) = (scope, watch);
        let checked = check::check(&mut self.medium, &self.superblock);
        (self.medium.scope, self.medium.watch) = (Scope::AT_REST, None);
        checked?;
        Ok(std::mem::take(&mut self.medium.report))
    }

    /// How many disks of groups with parity are missing: what they hold is read from parity.
    #[must_use]
    pub fn missing_disks(&self) -> usize {
        self.medium.array.missing_disks()
    }

    /// All files of a volume's active image or of a snapshot, in the order of their paths.
    ///
    /// # Errors
    /// [`InspectError`]; damage that parity makes good is none.
    pub fn tree(
        &mut self,
        volume: &str,
        snapshot: Option<&str>,
    ) -> Result<Vec<ImageFile>, InspectError> {
        let fs = tree::find_volume(&mut self.medium, &self.superblock, volume)?;
        let mut walker = Walker::new(&mut self.medium, &fs);
        match snapshot {
            None => tree::files(&mut walker, fs.active(), &fs.root.inode_file),
            Some(name) => {
                let record = tree::find_snapshot(&mut walker, volume, name)?;
                let image = fs.snapshot(record.snapshot.get());
                tree::files(&mut walker, image, &record.inode_file)
            }
        }
    }

    /// A hash of a snapshot's whole image: it never changes as long as the snapshot is there.
    ///
    /// # Errors
    /// [`InspectError`].
    pub fn snapshot_digest(&mut self, volume: &str, snapshot: &str) -> Result<u64, InspectError> {
        let fs = tree::find_volume(&mut self.medium, &self.superblock, volume)?;
        let mut walker = Walker::new(&mut self.medium, &fs);
        let record = tree::find_snapshot(&mut walker, volume, snapshot)?;
        let image = fs.snapshot(record.snapshot.get());
        tree::digest(&mut walker, image, &record.inode_file)
    }
}
