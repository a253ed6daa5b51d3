//! The store: its rooms, put together, and which of them answers which call.

use crate::block_store::BlockStore;
use crate::disk_administration::DiskAdministration;
use crate::error::{RaidError, StoreError};
use crate::io::{ChecksumMemory, Io};
use crate::layout::{DiskPlace, DiskRegion, Geometry, Layout, TetrisId};
use crate::membership::{Fill, GroupState, LogPlace, Members, log_places, numbers};
use crate::partial_parity_log::{PartialParityLog, PartialParityNote};
use crate::patrol::{Patrol, ScrubDone, ScrubOrder, UseQuery};
use crate::repair::Repair;
use crate::request::{
    BlockRead, BlockWrite, FailureHook, GrowDone, NewDisk, NewGroup, ReadDone, ReplaceDone,
    RunDone, RunProofs, SuperblocksDone, SyncDone, WriteHook,
};
use crate::resizing::Resizing;
use crate::status::Status;
use media::{Device, Zeroing};
use ondisk::log_copies::LogCopies;
use platform::{Disk, DiskError};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use units::{AggregateUuid, Block, BlockRef, DiskUuid, Pvbn, Timestamp};

/// An aggregate's blocks.
pub struct Store {
    members: Arc<Members>,
    io: Arc<Io>,
    repair: Arc<Repair>,
    patrol: Arc<Patrol>,
    resizing: Arc<Resizing>,
}

impl Store {
    pub(crate) fn new(
        layout: Layout,
        groups: Vec<GroupState>,
        (spares, leftovers): (Vec<Arc<Device>>, Vec<Arc<Device>>),
        journal: Arc<dyn PartialParityLog>,
    ) -> Self {
        let repair = Arc::new_cyclic(|repair: &Weak<Repair>| {
            let filler: Weak<dyn Fill> = Weak::clone(repair) as _;
            let members = Arc::new(Members::new(layout, groups, spares, filler));
            let io = Arc::new(Io::new(Arc::clone(&members), journal));
            Repair::new(members, io)
        });
        let (members, io) = repair.lower_rooms();
        let patrol = Arc::new(Patrol::new(Arc::clone(&members), Arc::clone(&io)));
        let rooms = (Arc::clone(&members), Arc::clone(&io), Arc::clone(&patrol));
        let resizing = Arc::new(Resizing::new(rooms, leftovers));
        Self { members, io, repair, patrol, resizing }
    }

    /// The aggregate's identity and name, from the labels.
    #[must_use]
    pub fn aggregate(&self) -> (AggregateUuid, String) {
        let Some(label) = self.members.common_label() else { unreachable!("a store has a disk") };
        (label.aggregate, label.name().unwrap_or_default().to_owned())
    }
}

#[cfg(test)]
impl Store {
    /// Has what is queued for a tetris written, and nothing flushed.
    pub(crate) fn start_batch_of(&self, tetris: TetrisId) {
        self.io.start_batch(tetris);
    }
}

impl BlockStore for Store {
    fn geometry(&self) -> Arc<Geometry> {
        self.members.geometry()
    }

    fn share_checksum_memory(&self, memory: &Arc<ChecksumMemory>) {
        self.io.share_checksum_memory(memory);
    }

    fn open_tetris(&self, tetris: TetrisId, expected_blocks: u32) {
        self.io.open_tetris(tetris, expected_blocks);
    }

    fn write(&self, write: BlockWrite) {
        self.io.write(write);
    }

    fn sync(&self, done: SyncDone) {
        self.io.sync(done);
    }

    fn discard_unit_regions(&self, group: u32) -> Option<u64> {
        self.io.discard_unit_regions(group)
    }

    fn discard(&self, regions: &[DiskRegion]) {
        self.io.discard(regions);
    }

    fn read(&self, read: BlockRead, done: ReadDone) {
        self.io.read(read, done);
    }

    fn read_run(&self, first: Pvbn, proofs: RunProofs, done: RunDone) {
        self.io.read_run(first, proofs, done);
    }

    fn write_superblock(&self, slot: usize, block: BlockRef, done: SyncDone) {
        self.members.write_superblock(slot, &block, done);
    }

    fn adopt_superblock(
        &self,
        slot: usize,
        block: BlockRef,
        is_whole: fn(&Block) -> bool,
        done: SyncDone,
    ) {
        self.members.adopt_superblock(slot, block, is_whole, done);
    }

    fn read_superblocks(&self, done: SuperblocksDone) {
        self.members.read_superblocks(done);
    }

    fn recover_stripes(&self, notes: Vec<PartialParityNote>, done: SyncDone) {
        self.io.recover_stripes(notes, done);
    }

    fn watch_failure(&self, hook: FailureHook) {
        self.members.watch_failure(hook);
    }

    fn watch_writes(&self, hook: WriteHook) {
        self.io.watch_writes(hook);
    }

    fn remains(&self) -> Weak<dyn Any + Send + Sync> {
        // Every room holds it, and so does every request.
        let members: Arc<dyn Any + Send + Sync> = Arc::clone(&self.members) as _;
        Arc::downgrade(&members)
    }

    fn abandon(&self) {
        self.members.abandon();
        self.patrol.abandon();
        self.io.abandon();
    }
}

impl DiskAdministration for Store {
    fn replace_disk(
        &self,
        place: DiskPlace,
        disk: Arc<dyn Disk>,
        identity: DiskUuid,
        rate: Option<u64>,
        done: ReplaceDone,
    ) {
        self.members.replace_disk(place, disk, (identity, rate), done);
    }

    fn hold_filling(&self, place: DiskPlace, is_held: bool) -> bool {
        self.repair.hold(place, is_held)
    }

    fn limit_filling(&self, place: DiskPlace, rate: Option<u64>) -> bool {
        self.repair.limit(place, rate)
    }

    fn fail_disk(&self, place: DiskPlace, done: ReplaceDone) {
        self.members.fail_disk(place, done);
    }

    fn add_disks(&self, group: u32, disks: Vec<NewDisk>, zeroing: &Arc<Zeroing>, done: GrowDone) {
        self.resizing.add_disks((group, disks), zeroing, done);
    }

    fn add_groups(&self, groups: Vec<NewGroup>, done: GrowDone) {
        self.resizing.add_groups(groups, done);
    }

    fn remove_group(&self, group: u32, done: GrowDone) {
        self.resizing.remove_group(group, done);
    }

    fn check_replacement(&self, place: DiskPlace, disk: &dyn Disk) -> Result<(), RaidError> {
        self.members.check_replacement(place, disk)
    }

    fn return_disk(&self, disk: Arc<dyn Disk>, rate: Option<u64>, done: ReplaceDone) {
        self.members.return_disk(disk, rate, done);
    }

    fn add_spare(&self, disk: Arc<dyn Disk>, identity: DiskUuid, done: ReplaceDone) {
        self.members.add_spare(disk, identity, done);
    }

    fn remove_spare(&self, identity: DiskUuid, done: ReplaceDone) {
        self.members.remove_spare(identity, done);
    }

    fn take_spare(
        &self,
        place: DiskPlace,
        identity: DiskUuid,
        rate: Option<u64>,
        done: ReplaceDone,
    ) {
        self.members.take_spare(place, (identity, rate), done);
    }

    fn resume(&self) {
        self.resizing.resume_removals();
        self.repair.resume();
        self.patrol.go_on();
    }

    fn scrub(&self, order: ScrubOrder, wall: Timestamp, done: ScrubDone) {
        self.patrol.order(order, wall, done);
    }

    fn log_copies(&self) -> LogCopies {
        self.members.log_copies()
    }

    fn set_log_copies(&self, whole: &[u64], done: SyncDone) {
        self.members.write_log_copies(whole, done);
    }

    fn note_log_failure(&self, cause: &DiskError) {
        if log_places(&self.members).iter().any(|place| place.disk.name() == cause.disk()) {
            self.members.fail_store(StoreError::LogFailed { cause: cause.clone() });
        }
    }

    fn log_places(&self) -> Vec<LogPlace> {
        log_places(&self.members)
    }

    fn tick(&self, monotonic_nanoseconds: u64, wall: Timestamp) {
        self.io.tick();
        self.repair.tick(monotonic_nanoseconds);
        self.members.go_on_after_log();
        self.patrol.tick(monotonic_nanoseconds, wall);
        self.members.tick_health(monotonic_nanoseconds);
        self.patrol.go_on();
    }

    fn save_errors(&self, done: SyncDone) {
        self.members.save_errors(done);
    }

    fn clear_errors(&self, place: DiskPlace, done: ReplaceDone) {
        self.members.clear_errors(place, done);
    }

    fn number_disks(&self, numbers: &BTreeMap<DiskUuid, u32>, done: SyncDone) {
        numbers::number_disks(&self.members, numbers, done);
    }

    fn forget_retired(&self, name: &str) -> bool {
        self.members.forget_retired(name)
    }

    fn status(&self) -> Status {
        // In this order: one that leaves meanwhile is seen once at least.
        let spares = self.members.spares();
        let mut leaving_disks = self.members.leaving_spares();
        let numbers = numbers::numbers(&self.members);
        let report = self.members.report();
        leaving_disks.extend(self.resizing.leaving_disks());
        Status {
            groups: report.groups,
            fillings: report.fillings,
            spares,
            leaving_disks,
            retired: report.retired,
            waits_for_superblock: report.waits_for_superblock,
            numbers,
            counters: self.io.counters(),
            scrub: self.patrol.status(),
        }
    }

    fn set_use_query(&self, query: UseQuery) {
        self.patrol.set_use_query(query);
    }
}
