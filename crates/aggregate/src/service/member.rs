//! What a consistency point asks of a volume.
//!
//! Invariants: between [`Member::freeze`] and [`Member::publish`] a member has one image; the calls
//! come in that order, both while nothing else of the aggregate runs.

use affinity::Access;
use cowfs::accounts::GuaranteedRoom;
use cowfs::buftree::Root;
use cowfs::image::GivenUp;
use cowfs::logical::CleanedInode;
use ondisk::pointer::PhysicalPointer;
use units::{CpNumber, Timestamp, VolumeId, Vvbn};

/// What members learn at a freeze.
#[derive(Clone, Copy, Debug)]
pub struct FreezeContext {
    /// The consistency point.
    pub cp: CpNumber,
    /// The time.
    pub time: Timestamp,
}

/// An image that a freeze has set aside, to be written.
pub trait Cleaning: Send {
    /// Begins. It ends, at once or later, with one call of [`crate::Aggregate::member_cleaned`].
    fn begin(self: Box<Self>);
}

/// A commit, as a member sees it.
pub struct Published<'a> {
    /// The aggregate's cleaned inodes; a member without a container finds its own files there.
    pub cleaned: &'a [CleanedInode<PhysicalPointer>],
    /// The root of the aggregate's inode file.
    pub inode_file: Root<PhysicalPointer>,
    /// Of these, files that the aggregate can be without, and is from now on: containers that are
    /// quarantined, or files of a member without a container.
    pub given_up: &'a [GivenUp],
}

/// Receives which block numbers the active image uses, or are delayed frees.
pub type ActiveDone = Box<dyn FnOnce(Vec<bool>) + Send>;

/// Numbers of a clone that it uses and its base has, in order, and the first number that was not
/// looked at; `None` if all were.
pub struct Inherited {
    /// The numbers. Blocks of some of them may be the clone's own.
    pub numbers: Vec<Vvbn>,
    /// Where to go on.
    pub next: Option<Vvbn>,
    /// A map cannot be read: what is behind it is not told.
    pub is_damaged: bool,
}

/// Receives the next numbers of a clone that it may have inherited; `None` if it cannot tell now.
pub type InheritedDone = Box<dyn FnOnce(Option<Inherited>) + Send>;

/// The room that a member takes in its aggregate.
pub struct MemberRoom<'a> {
    /// Blocks that it takes at most: all its numbers, and what its images cost beside. 0: nothing
    /// is guaranteed to it, because it is read-only.
    pub blocks_max: u64,
    /// Its account.
    pub account: &'a GuaranteedRoom,
}

/// A volume, as consistency points know it.
pub trait Member: Send + Sync {
    /// Its number.
    fn id(&self) -> VolumeId;

    /// Sets its changes aside; `None` if there are none.
    fn freeze(&self, access: &mut Access<'_>, context: &FreezeContext)
    -> Option<Box<dyn Cleaning>>;

    /// Which of these block numbers the active image uses or are delayed frees, as far as is known
    /// now; fewer answers than questions if that cannot be told.
    fn find_active(&self, numbers: Vec<Vvbn>, done: ActiveDone);

    /// The next numbers from `from` on, `max` of them at most, that a clone uses and its base has.
    fn find_inherited(&self, _from: Vvbn, _max: usize, done: InheritedDone) {
        done(None);
    }

    /// The room that it takes in the aggregate; `None` for a volume that is the aggregate itself.
    fn room(&self) -> Option<MemberRoom<'_>> {
        None
    }

    /// The aggregate has failed: drops the dirty blocks, which no consistency point will write.
    fn let_go(&self, access: &mut Access<'_>);

    /// Takes the new trees over; whether work is left that wants another consistency point.
    fn publish(&self, access: &mut Access<'_>, published: &Published<'_>) -> bool;
}
