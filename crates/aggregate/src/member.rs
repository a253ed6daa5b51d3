//! What a consistency point asks of a volume.
//!
//! Invariants: between [`Member::freeze`] and [`Member::publish`] a member has one image; the calls
//! come in that order, both while nothing else of the aggregate runs.

use crate::backend::ContainerUpdate;
use crate::consistency_point::FreezeContext;
use affinity::{Access, AffinityId, Message};
use cowfs::image::{FileWork, GivenUp, ImageFacts};
use cowfs::logical::CleanedInode;
use ondisk::pointer::PhysicalPointer;
use units::{InodeNumber, Pvbn, VolumeId};

/// What a freeze found.
pub enum Cleaning {
    /// Nothing changed.
    Nothing,
    /// A flexible volume: this message cleans its image, and ends with
    /// [`crate::Aggregate::member_cleaned`].
    Flexible(AffinityId, Box<dyn Message>),
    /// A traditional volume: its files are the aggregate's.
    Traditional(ImageFacts, Vec<FileWork<PhysicalPointer>>),
}

/// What a flexible volume's cleaning changed in its container.
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
}

impl MemberCleaned {
    /// A volume of which nothing has changed.
    #[must_use]
    pub const fn of(volume: VolumeId) -> Self {
        Self { volume, updates: Vec::new(), wasted: Vec::new(), is_damaged: false }
    }
}

/// A commit, as a member sees it.
pub struct Published<'a> {
    /// The aggregate's cleaned inodes; a traditional volume finds its own among them.
    pub cleaned: &'a [CleanedInode<PhysicalPointer>],
    /// The root of the aggregate's inode file.
    pub inode_file: cowfs::buftree::Root<PhysicalPointer>,
    /// Files that a traditional volume can be without, and is from now on. In an aggregate of
    /// flexible volumes, the containers that are quarantined from now on.
    pub given_up: &'a [GivenUp],
}

/// Receives which block numbers the active image uses, or are delayed frees.
pub type ActiveDone = Box<dyn FnOnce(Vec<bool>) + Send>;

/// A volume, as consistency points know it.
pub trait Member: Send + Sync {
    /// Its number.
    fn id(&self) -> VolumeId;

    /// Sets its changes aside.
    fn freeze(&self, access: &mut Access<'_>, context: &FreezeContext) -> Cleaning;

    /// Which of these block numbers the active image uses or are delayed frees, as far as is known
    /// now; fewer answers than questions if that cannot be told.
    fn find_active(&self, numbers: Vec<u64>, done: ActiveDone);

    /// The aggregate has failed: drops the dirty blocks, which no consistency point will write.
    fn let_go(&self, access: &mut Access<'_>);

    /// Takes the new trees over; whether work is left that wants another consistency point.
    fn publish(&self, access: &mut Access<'_>, published: &Published<'_>) -> bool;
}

/// The inode number of a volume's container in an aggregate of flexible volumes.
#[must_use]
pub const fn container_inode(volume: VolumeId) -> InodeNumber {
    InodeNumber(ondisk::root::metafile::ROOT_DIRECTORY + volume.0 as u64)
}

/// The volume of a container, if an inode of an aggregate of flexible volumes is one.
pub(crate) fn container_of(inode: InodeNumber) -> Option<VolumeId> {
    let volume = inode.get().checked_sub(ondisk::root::metafile::ROOT_DIRECTORY)?;
    u32::try_from(volume).ok().map(VolumeId)
}
