//! What the layers above see: blocks by PVBN.
//!
//! All calls return at once; completions run on the thread of the last disk completion that they
//! waited for, and before the call returns when they need not wait (a block that is still
//! queued). Callers hold no lock that a completion takes.

use crate::error::RaidError;
use crate::journal::StripeNote;
use crate::layout::{DiskPlace, DiskRegion, Geometry, TetrisId};
use crate::patrol::{ScrubDone, ScrubOrder, UseQuery};
use crate::proof::Proof;
use crate::request::{
    BlockRead, BlockWrite, FailureHook, GrowDone, NewDisk, NewGroup, ReadDone, ReplaceDone,
    RunDone, SuperblocksDone, SyncDone,
};
use crate::status::Status;
use media::Zeroing;
use platform::Disk;
use std::any::Any;
use std::sync::{Arc, Weak};
use units::{Block, BlockRef, Pvbn, Timestamp};

/// Blocks by PVBN.
pub trait BlockStore: Send + Sync {
    /// Which PVBN lies where.
    fn geometry(&self) -> Arc<Geometry>;

    /// Announces that `expected_blocks` more blocks of the tetris will be written: it goes to disk
    /// with the last of them. Without, or short of them, it goes at `sync`.
    fn open_tetris(&self, tetris: TetrisId, expected_blocks: u32);

    /// Queues a block. What fails is told by `sync`. The block's former content must not be in use.
    ///
    /// # Panics
    /// If the PVBN is 0 or beyond the end, or its group was removed.
    fn write(&self, write: BlockWrite);

    /// Makes all writes durable that were queued before.
    fn sync(&self, done: SyncDone);

    /// How many regions of a disk of the group give their room back together when all of them are
    /// discarded, counted from the disk's first; `None` if nothing comes of a [`Self::discard`].
    fn discard_unit_regions(&self, group: u32) -> Option<u64>;

    /// Lets go of regions in which no block is in use, nor given to anybody who may write it: the
    /// disks may give their room back. Blocks that are written after the call stay.
    ///
    /// # Panics
    /// If a group has parity.
    fn discard(&self, regions: &[DiskRegion]);

    /// Reads a block and proves it; repairs it where it can.
    fn read(&self, read: BlockRead, done: ReadDone);

    /// Reads consecutive blocks of one disk with one request, as many as there are proofs.
    fn read_run(&self, first: Pvbn, proofs: Vec<Proof>, done: RunDone);

    /// Writes a superblock slot on every disk, and makes it durable.
    ///
    /// # Panics
    /// If there is no such slot.
    fn write_superblock(&self, slot: usize, block: BlockRef, done: SyncDone);

    /// Has every disk in use have, durably, a superblock that was read from some. A disk gets it in
    /// its other slot, too, if `is_whole` says that this slot holds no superblock.
    ///
    /// # Panics
    /// If there is no such slot.
    fn adopt_superblock(
        &self,
        slot: usize,
        block: BlockRef,
        is_whole: fn(&Block) -> bool,
        done: SyncDone,
    );

    /// Reads all slots of all disks that hold what their places must: not of disks that are being
    /// filled, whose superblocks may be old.
    fn read_superblocks(&self, done: SuperblocksDone);

    /// After a crash and before any write: makes noted stripes whole again. `notes` are those that
    /// were not forgotten, in order.
    fn recover_stripes(&self, notes: Vec<StripeNote>, done: SyncDone);

    /// Gives the place of a disk to another, whose content may be lost, and fills it in the
    /// background: at once the place of a missing disk; that of one in use once it is filled, and
    /// until then both are written. Answers when the labels name it.
    fn replace_disk(
        &self,
        place: DiskPlace,
        disk: Arc<dyn Disk>,
        identity: [u8; 16],
        done: ReplaceDone,
    );

    /// Takes a disk out of use, as if it had failed, if the group can do without it. Answers when
    /// the labels say so.
    fn fail_disk(&self, place: DiskPlace, done: ReplaceDone);

    /// Gives a group data disks more, whose content may be lost: they are zeroed first, as
    /// `zeroing` tells. Nothing is rewritten. Answers when the labels name them; from then on the
    /// geometry has their blocks, which nobody uses.
    fn add_disks(&self, group: u32, disks: Vec<NewDisk>, zeroing: &Arc<Zeroing>, done: GrowDone);

    /// Gives the aggregate groups more, of disks whose content may be lost. Answers when the labels
    /// of all groups count them.
    fn add_groups(&self, groups: Vec<NewGroup>, done: GrowDone);

    /// Takes a group out, in which no block is in use nor will be: its numbers are nobody's from
    /// then on, and its disks can be given to anybody. Answers when they can; the caller vouches
    /// that the last consistency point uses no block of the group, and that none is given to
    /// anybody who may write it. What is refused may be asked again after the next one.
    fn remove_group(&self, group: u32, done: GrowDone);

    /// Whether a disk is large enough for a place.
    fn check_replacement(&self, place: DiskPlace, disk: &dyn Disk) -> Result<(), RaidError>;

    /// Takes a member back that went, by its label, and writes what it missed. Answers when the
    /// labels name it.
    fn return_disk(&self, disk: Arc<dyn Disk>, done: ReplaceDone);

    /// Labels a disk, whose content may be lost, as a spare.
    fn add_spare(&self, disk: Arc<dyn Disk>, identity: [u8; 16], done: ReplaceDone);

    /// Lets go of a spare: its label is erased.
    fn remove_spare(&self, identity: [u8; 16], done: ReplaceDone);

    /// Gives a place to a spare, as `replace_disk` does to another disk.
    fn take_spare(&self, place: DiskPlace, identity: [u8; 16], done: ReplaceDone);

    /// After recovery: takes back what is there again, lets go of disks of removed groups, and goes
    /// on with rebuilding and scrubbing what was interrupted.
    fn resume(&self);

    /// Asks something of the scrub. Answers when the labels say it.
    fn scrub(&self, order: ScrubOrder, wall: Timestamp, done: ScrubDone);

    /// To be called several times a second, with the monotonic time and that of day: how fast
    /// background work may go, and does, is told by it.
    fn tick(&self, monotonic_nanoseconds: u64, wall: Timestamp);

    /// Has the labels take in what errors there were: before a stop. They do so now and then at
    /// ticks.
    fn save_errors(&self, done: SyncDone);

    /// Forgets the errors of a disk in use: it is not sick any more. Answers when its label says
    /// so.
    fn clear_errors(&self, place: DiskPlace, done: ReplaceDone);

    /// Forgets a disk that was replaced for being sick; false if there is none of that name.
    fn forget_retired(&self, name: &str) -> bool;

    /// What is well and what is not.
    fn status(&self) -> Status;

    /// Has `hook` called when it is certain that no `sync` will succeed any more: at once if it is
    /// already. Of several hooks the last one set is called.
    fn watch_failure(&self, hook: FailureHook);

    /// Has a scrub that finds damage ask whose it is. Of several the last one set is asked.
    fn set_use_query(&self, query: UseQuery);

    /// Alive as long as the store or a request to one of its disks is.
    fn remains(&self) -> Weak<dyn Any + Send + Sync>;

    /// Lets go of everyone who waits, unanswered: their world is gone (a simulated power cut). They
    /// hold what holds the store.
    fn abandon(&self) {}
}
