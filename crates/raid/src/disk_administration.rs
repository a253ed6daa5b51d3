//! What an operator, and who acts for one, has done with an aggregate's disks: replacements,
//! spares, growth, scrubs.
//!
//! The layers that read and write blocks know [`BlockStore`] alone. Completions run like those of
//! that: callers hold no lock that one takes.

use crate::block_store::BlockStore;
use crate::error::RaidError;
use crate::layout::DiskPlace;
use crate::membership::LogPlace;
use crate::patrol::{ScrubDone, ScrubOrder, UseQuery};
use crate::request::{GrowDone, NewDisk, NewGroup, ReplaceDone, SyncDone};
use crate::status::Status;
use media::Zeroing;
use ondisk::log_copies::LogCopies;
use platform::{Disk, DiskError};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{DiskUuid, Timestamp};

/// Disks of an aggregate in service. An answer comes when the labels say what was asked.
pub trait DiskAdministration: Send + Sync {
    /// Gives the place of a disk to another, whose content may be lost, and fills it in the
    /// background: at once the place of a missing disk; that of one in use once it is filled, and
    /// until then both are written. Not more than `rate` bytes of it are filled a second, if there
    /// is such a limit. Answers when the labels name it.
    fn replace_disk(
        &self,
        place: DiskPlace,
        disk: Arc<dyn Disk>,
        identity: DiskUuid,
        rate: Option<u64>,
        done: ReplaceDone,
    );

    /// Has the disk wait that is being filled at a place, or lets it go on; false if none is. What
    /// was begun is ended. It is not kept over a restart: the caller asks again then.
    fn hold_filling(&self, place: DiskPlace, is_held: bool) -> bool;

    /// Sets how many bytes of a disk that is being filled at a place are filled a second; `None` is
    /// no limit. False if none is. It is not kept over a restart: the caller asks again then.
    fn limit_filling(&self, place: DiskPlace, rate: Option<u64>) -> bool;

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

    /// Takes a member back that went, by its label, and writes what it missed, at a rate as for
    /// `replace_disk`. Answers when the labels name it.
    fn return_disk(&self, disk: Arc<dyn Disk>, rate: Option<u64>, done: ReplaceDone);

    /// Labels a disk, whose content may be lost, as a spare.
    fn add_spare(&self, disk: Arc<dyn Disk>, identity: DiskUuid, done: ReplaceDone);

    /// Lets go of a spare: its label is erased.
    fn remove_spare(&self, identity: DiskUuid, done: ReplaceDone);

    /// Gives a place to a spare, as `replace_disk` does to another disk.
    fn take_spare(
        &self,
        place: DiskPlace,
        identity: DiskUuid,
        rate: Option<u64>,
        done: ReplaceDone,
    );

    /// After recovery: takes back what is there again, lets go of disks of removed groups, and goes
    /// on with rebuilding and scrubbing what was interrupted.
    fn resume(&self);

    /// Asks something of the scrub. Answers when the labels say it.
    fn scrub(&self, order: ScrubOrder, wall: Timestamp, done: ScrubDone);

    /// What the labels say of the copies of the log.
    fn log_copies(&self) -> LogCopies;

    /// Has the labels say which copies of the log have everything. Answers when they do. Of calls
    /// that overlap the last one counts.
    fn set_log_copies(&self, whole: &[u64], done: SyncDone);

    /// The places for copies of the log on disks that are there, in the order of the disks. None
    /// where the log is elsewhere.
    fn log_places(&self) -> Vec<LogPlace>;

    /// The log has failed with this error. If that is of a disk in use, writes are not durable any
    /// more.
    fn note_log_failure(&self, cause: &DiskError);

    /// To be called several times a second, with the monotonic time and that of day: how fast
    /// background work may go, and does, is told by it.
    fn tick(&self, monotonic_nanoseconds: u64, wall: Timestamp);

    /// Has the labels take in what errors there were: before a stop. They do so now and then at
    /// ticks.
    fn save_errors(&self, done: SyncDone);

    /// Forgets the errors of a disk in use: it is not sick any more. Answers when its label says
    /// so.
    fn clear_errors(&self, place: DiskPlace, done: ReplaceDone);

    /// Has the labels of disks keep the numbers in their short names. Answers when they do. A disk
    /// that is being filled may have to be asked for again.
    fn number_disks(&self, numbers: &BTreeMap<DiskUuid, u32>, done: SyncDone);

    /// Forgets a disk that was replaced for being sick; false if there is none of that name.
    fn forget_retired(&self, name: &str) -> bool;

    /// What is well and what is not.
    fn status(&self) -> Status;

    /// Has a scrub that finds damage ask whose it is. Of several the last one set is asked.
    fn set_use_query(&self, query: UseQuery);
}

/// A store whose disks are administered, too.
pub trait ManagedStore: BlockStore + DiskAdministration {}

impl<S: BlockStore + DiskAdministration> ManagedStore for S {}
