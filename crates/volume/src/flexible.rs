//! A flexible volume: its two sides, what administrators ask of it at a freeze, and what it may
//! spend.
//!
//! Invariants: the block side changes by the volume's cleaning and at freezes and commits only.

use crate::damage::VolumeDamage;
use crate::delayed::{DelayedBefore, DelayedShare};
use crate::format::{numbers_of, slack_blocks};
use crate::front::Front;
use crate::load::snapshot_views;
use crate::snapshots::{Birth, Requests, SnapshotInfo, SnapshotRequest, check_not_held, deleted};
use crate::under_way::{Cleaned, VolumeCleaning};
use affinity::{Access, Outcome, Partition};
use aggregate::{Acted, Aggregate, AggregateError, AutogrowMax, Container, SnapshotAutodelete};
use cowfs::budget::{
    GROWTH_COST_BLOCKS, ReclaimTurn, Spender, VOLUME_OVERHEAD_BLOCKS, snapshot_blocks,
};
use cowfs::free_map::VBNS_PER_BLOCK;
use cowfs::reader::{HeldBlocks, Reader, Stop};
use cowfs::space::{SCAN_BLOCKS_PER_CP, Space};
use ondisk::pointer::DualPointer;
use ondisk::records::SNAPSHOTS_PER_BLOCK;
use ondisk::root::VOL_INFO_VVBN;
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use units::{Schedule, VolumeId, Vvbn};

/// Areas that one message counts, each a block of the free map.
const AREAS_PER_MESSAGE: u64 = 64;
/// Blocks of maps that a restore is expected to write again, where maps are longer: of a large thin
/// volume most are holes.
const RESTORED_MAP_BLOCKS: u64 = 16;

/// See the module.
pub struct FlexibleVolume {
    /// The logical side.
    pub front: Front<DualPointer>,
    /// The block side.
    pub(crate) vbn: Partition<VbnSide>,
    pub(crate) aggregate: Weak<Aggregate>,
    pub(crate) this: Weak<Self>,
    size_blocks: AtomicU64,
    /// The size whose room may be promised: a volume that grows has more when that has committed.
    settled_size_blocks: AtomicU64,
    autogrow_max_blocks: AtomicU64,
    /// The sizes before and after growth that nobody was told of.
    untold_growth: Mutex<Option<(u64, u64)>>,
    autodelete: Mutex<SnapshotAutodelete>,
    /// Names of snapshots that went by themselves and that nobody was told of.
    pub(crate) untold_deletions: Mutex<Vec<String>>,
    pub(crate) used_blocks: AtomicU64,
    pub(crate) active_blocks: AtomicU64,
    /// Blocks in its container map.
    pub(crate) owned_blocks: AtomicU64,
    /// See [`Self::is_discarding`].
    pub(crate) is_discarding: AtomicBool,
    pub(crate) delayed_share: DelayedShare,
    /// The volume is damaged, its container says so, and what was in memory beyond the last commit
    /// is gone.
    pub(crate) is_left_out: AtomicBool,
}

pub(crate) struct VbnSide {
    pub space: Space<DualPointer>,
    /// Of a clone: its container as of the last commit.
    pub container: Option<Box<Container>>,
    pub requests: Requests<DualPointer>,
    pub cleaning: Option<VolumeCleaning>,
    pub finished: Option<Cleaned>,
    /// The volume is larger than the last image says.
    pub is_larger: bool,
    /// An administrator made the volume smaller since the last freeze.
    pub is_smaller: bool,
    /// The size from which the volume grows by itself with the running consistency point.
    pub grows_from: Option<u64>,
    /// A restore or a hold waits for the next freeze.
    pub is_snapshot_needed: bool,
    /// Snapshots that go by themselves with the running consistency point.
    pub autodeleted: Vec<String>,
    /// It is a clone that no image has yet. The first is to be small: background work comes later.
    pub is_born: bool,
    /// Background work waits for the next consistency point.
    pub is_put_off: bool,
    /// It is a clone whose trees to let go of found no room at the last freeze.
    pub is_stuck: bool,
    /// It has the last of the aggregate's room.
    pub reclaim_turn: Option<ReclaimTurn>,
    /// The running consistency point has room to count inodes for quotas: how far that had come.
    pub counted_before: Option<u64>,
    /// A message counts free numbers of areas.
    pub is_counting: bool,
    /// Delayed frees when the consistency point began.
    pub delayed_before: DelayedBefore,
}

impl VbnSide {
    /// A commit has this container. Only a clone asks it which blocks are its own.
    pub fn note_container(&mut self, container: Option<&Container>) {
        let of_clone = container.filter(|_| self.space.base.is_some());
        self.container = of_clone.map(|container| Box::new(*container));
    }
}

impl FlexibleVolume {
    /// A volume over its two sides. `size_blocks` is the size that users see. The container is that
    /// of the last commit, if one has the volume.
    #[must_use]
    pub fn new(
        aggregate: &Arc<Aggregate>,
        front: Front<DualPointer>,
        mut space: Space<DualPointer>,
        (size_blocks, container): (u64, Option<&Container>),
    ) -> Arc<Self> {
        if !aggregate.parts.tuning.reads_top_areas {
            space.forget_areas();
        }
        let used_blocks = AtomicU64::new(space.used_blocks);
        let active_blocks = AtomicU64::new(space.active_blocks);
        let shared = Arc::clone(&front.shared.aggregate);
        let is_discarding = AtomicBool::new(space.has_trees_to_discard());
        let delayed_share = DelayedShare::new(shared, space.delayed_blocks);
        settle(&front, &space, size_blocks);
        front.shared.overhead.set_numbers(space.size_blocks);
        let mut side = VbnSide {
            space,
            container: None,
            requests: Requests::default(),
            cleaning: None,
            finished: None,
            is_larger: false,
            is_smaller: false,
            grows_from: None,
            is_snapshot_needed: false,
            autodeleted: Vec::new(),
            is_born: false,
            is_put_off: false,
            is_stuck: false,
            reclaim_turn: None,
            counted_before: None,
            is_counting: false,
            delayed_before: DelayedBefore::default(),
        };
        side.note_container(container);
        Arc::new_cyclic(|this| Self {
            vbn: Partition::new(front.affinities.vbn, side),
            front,
            aggregate: Arc::downgrade(aggregate),
            this: Weak::clone(this),
            size_blocks: AtomicU64::new(size_blocks),
            settled_size_blocks: AtomicU64::new(size_blocks),
            autogrow_max_blocks: AtomicU64::new(0),
            untold_growth: Mutex::default(),
            autodelete: Mutex::default(),
            untold_deletions: Mutex::default(),
            used_blocks,
            active_blocks,
            owned_blocks: AtomicU64::new(container.map_or(0, |container| container.blocks)),
            is_discarding,
            delayed_share,
            is_left_out: AtomicBool::new(false),
        })
    }

    /// The block side of a new volume of `size_blocks` user-visible blocks.
    #[must_use]
    pub fn format_space(volume: VolumeId, size_blocks: u64) -> Space<DualPointer> {
        let mut space = Space::new(volume, size_blocks + slack_blocks(size_blocks));
        // Number 0 marks holes; the vol_info block keeps its number for ever.
        space.claim(Vvbn(0));
        space.claim(VOL_INFO_VVBN);
        space
    }

    /// The size that users see.
    #[must_use]
    pub fn size_blocks(&self) -> u64 {
        self.size_blocks.load(Ordering::Relaxed)
    }

    /// The least size that the volume may shrink to: what its images use, what is on its way out of
    /// them, and what was promised to operations. Deleting still works at that size.
    pub(crate) fn least_size_blocks(&self) -> u64 {
        let promised = self.front.shared.budget.promised_blocks();
        self.used_blocks() + self.delayed_blocks() + promised
    }

    /// Gives the volume another size that users see; part of a freeze's action. One that shrinks
    /// keeps its block numbers, and has less room at once. One that grows is part of this
    /// consistency point, and has more room when that has committed: what is promised out of the
    /// new room could not be replayed on the image before.
    ///
    /// # Errors
    /// [`AggregateError::Full`] if there is no room for the image.
    pub(crate) fn resize(
        &self,
        access: &mut Access<'_>,
        size_blocks: u64,
    ) -> Result<(), AggregateError> {
        let side = self.vbn.write(access);
        let shared = &self.front.shared;
        if size_blocks < self.size_blocks() {
            let (free, reserve) = room(&side.space, size_blocks);
            shared.budget.resize(free, reserve);
            side.is_smaller = true;
        } else {
            if !shared.accounts().take(GROWTH_COST_BLOCKS, Spender::Free) {
                return Err(AggregateError::Full);
            }
            side.is_larger = true;
            let numbers = numbers_of(size_blocks);
            if side.space.size_blocks < numbers {
                side.space.grow(numbers);
                shared.overhead.set_numbers(side.space.size_blocks);
            }
        }
        self.size_blocks.store(size_blocks, Ordering::Relaxed);
        if size_blocks < self.settled_size_blocks.load(Ordering::Relaxed) {
            self.settle_size();
        }
        Ok(())
    }

    /// The size that the volume grows to by itself where room is short; 0: it does not.
    #[must_use]
    pub fn autogrow_max(&self) -> AutogrowMax {
        AutogrowMax(self.autogrow_max_blocks.load(Ordering::Relaxed))
    }

    /// What its record says. A volume that is larger, because an older build has made it so, or
    /// because it was resized since, does not become smaller.
    pub fn set_autogrow_max(&self, maximum: AutogrowMax) {
        let blocks = if maximum.0 == 0 { 0 } else { maximum.0.max(self.size_blocks()) };
        self.autogrow_max_blocks.store(blocks, Ordering::Relaxed);
        self.note_growth();
    }

    /// All the room that the volume has by its size may be promised.
    pub(crate) fn settle_size(&self) {
        self.settled_size_blocks.store(self.size_blocks(), Ordering::Relaxed);
        self.note_growth();
    }

    /// A consistency point has committed in which the volume grew by itself from this size.
    pub(crate) fn note_grown(&self, from: u64) {
        let mut untold = self.untold_growth.lock();
        // Several growths that follow each other are told as one.
        let first = untold.filter(|(_, to)| *to == from).map_or(from, |(first, _)| first);
        *untold = Some((first, self.size_blocks()));
    }

    /// The sizes between which the volume has grown by itself since the last call, as of the last
    /// commit.
    #[must_use]
    pub fn take_growth(&self) -> Option<(u64, u64)> {
        self.untold_growth.lock().take()
    }

    /// Which snapshots are deleted where room is short.
    #[must_use]
    pub fn autodelete(&self) -> SnapshotAutodelete {
        *self.autodelete.lock()
    }

    /// What its record says.
    pub fn set_autodelete(&self, which: SnapshotAutodelete) {
        *self.autodelete.lock() = which;
        let is_on = which != SnapshotAutodelete::Off;
        self.front.shared.may_delete_snapshot.store(is_on, Ordering::Relaxed);
    }

    /// The names of snapshots that went by themselves since the last call, in the order in which
    /// they went, as of the last commit.
    #[must_use]
    pub fn take_autodeleted(&self) -> Vec<String> {
        std::mem::take(&mut *self.untold_deletions.lock())
    }

    /// The record may not be changed now: nobody waits for growth until the next commit.
    pub(crate) fn forgo_growth(&self) {
        self.front.shared.growth_blocks.store(0, Ordering::Relaxed);
    }

    fn note_growth(&self) {
        let settled = self.settled_size_blocks.load(Ordering::Relaxed);
        let left = self.autogrow_max().0.saturating_sub(settled);
        self.front.shared.growth_blocks.store(left, Ordering::Relaxed);
    }

    /// Whether it is a clone that has trees of its base to let go of, as of the last commit: it
    /// puts off new snapshots.
    #[must_use]
    pub fn is_discarding(&self) -> bool {
        self.is_discarding.load(Ordering::Relaxed)
    }

    /// It is a clone that no image has yet.
    pub(crate) fn set_born(&self, access: &mut Access<'_>) {
        self.vbn.write(access).is_born = true;
    }

    /// Block numbers in use by the active image and snapshots, as of the last commit.
    #[must_use]
    pub fn used_blocks(&self) -> u64 {
        self.used_blocks.load(Ordering::Relaxed)
    }

    /// Block numbers in use by the active image, as of the last commit.
    #[must_use]
    pub fn active_blocks(&self) -> u64 {
        self.active_blocks.load(Ordering::Relaxed)
    }

    /// Blocks that the aggregate has for this volume alone, as of the last commit. Block numbers
    /// that are in use or delayed beyond these are of inherited blocks, which an ancestor has.
    #[must_use]
    pub fn owned_blocks(&self) -> u64 {
        self.owned_blocks.load(Ordering::Relaxed)
    }

    /// Blocks in use or delayed that a clone has inherited, as of the last commit.
    #[must_use]
    pub fn inherited_blocks(&self) -> u64 {
        // Number 0 counts as in use, and is no block.
        let numbers = (self.used_blocks() + self.delayed_blocks()).saturating_sub(1);
        numbers.saturating_sub(self.owned_blocks())
    }

    /// Block numbers of delayed frees, as of the last commit: no image uses them, and their blocks
    /// are in use in the aggregate.
    #[must_use]
    pub fn delayed_blocks(&self) -> u64 {
        self.delayed_share.blocks()
    }

    /// Takes a request for snapshots in; part of a freeze's action.
    ///
    /// # Errors
    /// Why it cannot be met.
    pub fn accept(
        &self,
        access: &mut Access<'_>,
        request: &SnapshotRequest,
        birth: Birth,
    ) -> Result<Acted, AggregateError> {
        if let Some(damage) = self.front.damage() {
            return Err(AggregateError::Refused(format!("the volume is read-only: {damage}")));
        }
        let side = self.vbn.write(access);
        side.requests.check(&side.space, request)?;
        let is_creation = matches!(request, SnapshotRequest::Create(_));
        if is_creation && side.space.has_trees_to_discard() {
            // A snapshot would keep what the clone is letting go of. If that does not go on it is
            // for want of room, which others may have been given.
            let full = AggregateError::Full;
            return if side.is_stuck { Err(full) } else { Ok(Acted::PutOff(full)) };
        }
        if let put_off @ Acted::PutOff(_) = self.promise(side, request)? {
            let needs = matches!(request, SnapshotRequest::Restore(_) | SnapshotRequest::Hold(_));
            side.is_snapshot_needed |= needs;
            return Ok(put_off);
        }
        side.requests.accept(&mut side.space, request, birth);
        let restoring = side.requests.restore.is_some();
        let views = snapshot_views(&side.space.snapshots);
        let logical = self.front.logical.write(access);
        logical.suspended |= restoring;
        logical.snapshots = views;
        Ok(Acted::Done)
    }

    /// Promises what a request comes to write. What makes room has the reserve, and waits where
    /// many such requests come at once.
    fn promise(
        &self,
        side: &mut VbnSide,
        request: &SnapshotRequest,
    ) -> Result<Acted, AggregateError> {
        let shared = &self.front.shared;
        let size_blocks = side.space.size_blocks;
        let kept = snapshot_blocks(size_blocks);
        let (numbers, cost, spender) = match request {
            SnapshotRequest::Create(_) => (kept, 2 * VOLUME_OVERHEAD_BLOCKS, Spender::Common),
            SnapshotRequest::Hold(_) => (0, VOLUME_OVERHEAD_BLOCKS, Spender::Common),
            SnapshotRequest::Delete(_) | SnapshotRequest::Release(_) => {
                (0, VOLUME_OVERHEAD_BLOCKS, Spender::Reclaim)
            }
            SnapshotRequest::DeleteThrough(..) => {
                let going = deleted(&side.space, request)?;
                let of = |at: Option<&usize>| at.map_or(0, |at| at / SNAPSHOTS_PER_BLOCK);
                // One block of the table is in the overhead.
                let more = (of(going.last()) - of(going.first())) as u64;
                (0, VOLUME_OVERHEAD_BLOCKS + 3 * more, Spender::Reclaim)
            }
            SnapshotRequest::Restore(_) => {
                // How much of the maps there is to write again is known at the switch.
                let maps = 2 * size_blocks.div_ceil(VBNS_PER_BLOCK);
                let again = shared.overhead.of_rewritten(maps.min(RESTORED_MAP_BLOCKS));
                (kept, 2 * VOLUME_OVERHEAD_BLOCKS + again, Spender::Restore)
            }
        };
        let makes_room = spender != Spender::Common;
        if makes_room && mutation::broken(Rule::RestoresUnpromised) {
            return Ok(Acted::Done);
        }
        let (own, accounts) = (&shared.budget, shared.accounts());
        // Nobody else shares the volume's own reserve.
        let of_own = if makes_room { Spender::Reclaim } else { spender };
        let (could_be, why) = if !own.promise(numbers, of_own) {
            let could_be = own.could_promise(numbers, of_own);
            let waits = match could_be {
                // What others were promised is mostly more than they come to use. If it is not, the
                // volume is asked to grow at the next freeze, or to delete a snapshot.
                true => shared.growth_blocks.load(Ordering::Relaxed) > 0,
                false => {
                    shared.ask_to_grow(numbers, of_own)
                        || is_own_creation(request) && shared.ask_for_deletion()
                }
            };
            if waits {
                return Ok(Acted::PutOff(AggregateError::VolumeFull));
            }
            (could_be, AggregateError::VolumeFull)
        } else if accounts.take(cost, spender) || makes_room && self.promise_in_turn(side, cost) {
            return Ok(Acted::Done);
        } else {
            own.forgo(numbers);
            (accounts.could_take(cost, of_own), AggregateError::Full)
        };
        let is_put_off = makes_room && (could_be || shared.may_gain_room());
        if is_put_off { Ok(Acted::PutOff(why)) } else { Err(why) }
    }

    /// Promises blocks out of the last of the aggregate's room, if it is the volume's turn.
    fn promise_in_turn(&self, side: &mut VbnSide, blocks: u64) -> bool {
        let shared = &self.front.shared.aggregate;
        let turn = side.reclaim_turn.take().or_else(|| shared.reclaim_turns.take());
        let is_granted = turn.is_some() && shared.budget.promise(blocks, Spender::Reclaim);
        // To the end of the work on its deleted snapshots.
        side.reclaim_turn = turn.filter(|_| is_granted || side.space.has_snapshot_work());
        is_granted
    }

    /// How many map blocks of background work the aggregate has room for now. Many volumes may have
    /// such work at once, and what it writes was promised to nobody.
    pub(crate) fn scan_blocks(&self, side: &mut VbnSide) -> u64 {
        let shared = &self.front.shared;
        let accounts = shared.accounts();
        // What makes no room has no reserve.
        let makes_room = side.space.has_snapshot_work();
        let spender = if makes_room { Spender::Free } else { Spender::Common };
        let fits = |blocks: &u64| accounts.take(shared.overhead.of_scan(*blocks), spender);
        if let Some(blocks) = [SCAN_BLOCKS_PER_CP, 1].into_iter().find(fits) {
            return blocks;
        }
        // What goes on may have taken the room: one volume has its own.
        let deletes = side.space.snapshots.iter().any(|snapshot| snapshot.deleting);
        let is_granted = deletes && self.promise_in_turn(side, shared.overhead.of_scan(1));
        u64::from(is_granted)
    }

    /// Whether no snapshot stands in the way of the volume's deletion; for a freeze's action. None
    /// does in a damaged volume, which takes no release.
    ///
    /// # Errors
    /// An administrator holds one.
    pub fn check_no_holds(&self, access: &Access<'_>) -> Result<(), AggregateError> {
        if self.front.damage().is_some() {
            return Ok(());
        }
        let space = &self.vbn.read(access).space;
        check_not_held(space, &(0..space.snapshots.len()).collect::<Vec<_>>())
    }

    /// The snapshots that are not being deleted; for messages that may read the block side.
    #[must_use]
    pub fn snapshots(&self, access: &Access<'_>) -> Vec<SnapshotInfo> {
        SnapshotInfo::of_kept(&self.vbn.read(access).space)
    }

    /// Lets go of everything dirty: the volume is being deleted. Part of a freeze's action.
    pub fn discard(&self, access: &mut Access<'_>) {
        self.vbn.write(access).reclaim_turn = None;
        self.front.logical.write(access).discard();
    }

    /// Counts free numbers of areas, some at a time.
    pub(crate) fn send_count(self: &Arc<Self>, aggregate: &Arc<Aggregate>) {
        let (this, of, held) = (Arc::clone(self), Arc::clone(aggregate), HeldBlocks::default());
        let message = move |access: &mut Access<'_>| this.count_areas(&of, access, &held);
        aggregate.parts.scheduler.send(self.front.affinities.vbn, Box::new(message));
    }

    fn count_areas(
        self: &Arc<Self>,
        aggregate: &Arc<Aggregate>,
        access: &mut Access<'_>,
        held: &HeldBlocks,
    ) -> Outcome {
        let side = self.vbn.write(access);
        // While maps change the commit to come goes on.
        let is_quiet = side.cleaning.is_none() && side.finished.is_none();
        let is_quiet = is_quiet && !self.front.is_read_only();
        side.is_counting &= is_quiet && !aggregate.is_failed();
        if !side.is_counting {
            return Outcome::Done;
        }
        let reader = Reader { cache: &aggregate.parts.cache, held };
        match side.space.count_areas(AREAS_PER_MESSAGE, &reader) {
            Ok(()) if side.space.wants_count() => self.send_count(aggregate),
            Ok(()) => side.is_counting = false,
            Err(Stop::Wait(wait)) => return aggregate.suspend(wait, held),
            Err(stop) => {
                // The allocator will come by, and has to say more.
                side.is_counting = false;
                tracing::warn!(volume = %self.front.id, %stop, "areas are not counted");
            }
        }
        Outcome::Done
    }

    /// The volume was read-only before the start: its container says so.
    pub fn set_left_out(&self) {
        self.is_left_out.store(true, Ordering::Relaxed);
        self.front.set_damage(VolumeDamage::Known);
    }

    /// A newer build wrote the volume, for this reason. It stays as it is: nothing on media says
    /// that it is read-only.
    pub fn set_not_understood(&self, lacking: VolumeDamage) {
        self.is_left_out.store(true, Ordering::Relaxed);
        self.front.set_damage(lacking);
    }

    /// The block side is another from now on.
    pub(crate) fn replace_space(&self, side: &mut VbnSide, space: Space<DualPointer>) {
        self.used_blocks.store(space.used_blocks, Ordering::Relaxed);
        self.active_blocks.store(space.active_blocks, Ordering::Relaxed);
        self.delayed_share.set(space.delayed_blocks);
        side.space = space;
        self.settle(side);
    }

    /// Nothing was promised for the volume, and nobody waits for room in it.
    pub(crate) fn settle(&self, side: &VbnSide) {
        settle(&self.front, &side.space, self.size_blocks());
        self.settle_size();
        self.front.shared.reclaiming.store(false, Ordering::Relaxed);
    }
}

/// Whether a request is for a snapshot that others may be deleted for. One of a schedule is taken
/// where there is room.
fn is_own_creation(request: &SnapshotRequest) -> bool {
    let is_own = |name: &String| Schedule::of_name(name).is_none();
    matches!(request, SnapshotRequest::Create(name) if is_own(name))
}

/// Nothing was promised for the volume.
pub(crate) fn settle(front: &Front<DualPointer>, space: &Space<DualPointer>, size_blocks: u64) {
    let (free, reserve) = room(space, size_blocks);
    front.shared.budget.settle(free, reserve);
    front.shared.reclaiming.store(space.has_snapshot_work(), Ordering::Relaxed);
}

/// What is free for a volume of this size, and how much of it is reserved. A volume that has shrunk
/// has more numbers than it may use.
fn room(space: &Space<DualPointer>, size_blocks: u64) -> (u64, u64) {
    let beyond = space.size_blocks.saturating_sub(numbers_of(size_blocks));
    (space.unused_blocks().saturating_sub(beyond), slack_blocks(size_blocks))
}
