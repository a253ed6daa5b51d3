//! A flexible volume as a member of consistency points.
//!
//! Invariants: see [`aggregate::Member`]. The vol_info block is the last that a cleaning writes;
//! with the container map's change the whole image becomes reachable at once.

use crate::cleaning::{Cleaned, VolumeCleaning};
use crate::damage::VolumeDamage;
use crate::delaying::{DelayedBefore, DelayedShare};
use crate::format::slack_blocks;
use crate::front::Front;
use crate::load::snapshot_views;
use crate::snapshots::{Birth, Requests, RestoreStep, SnapshotInfo, SnapshotRequest};
use affinity::{Access, AffinityId, Message, Outcome, Partition};
use aggregate::{
    Acted, ActiveDone, Aggregate, AggregateError, Cleaning, FreezeContext, Member, MemberCleaned,
    Published, container_inode,
};
use cowfs::budget::{ReclaimTurn, Spender, VOLUME_OVERHEAD_BLOCKS, snapshot_blocks};
use cowfs::cleaner::Leaf;
use cowfs::free_map::{MapFile, VBNS_PER_BLOCK, is_set};
use cowfs::image::{FileWork, ImageFacts};
use cowfs::logical::{Image, Logical};
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use cowfs::space::{SCAN_BLOCKS_PER_CP, Space};
use ondisk::features::FeatureName;
use ondisk::pointer::DualPointer;
use ondisk::root::VOL_INFO_VVBN;
use platform::mutation::{self, Rule};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use units::VolumeId;

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
    this: Weak<Self>,
    size_blocks: u64,
    used_blocks: AtomicU64,
    active_blocks: AtomicU64,
    pub(crate) delayed_share: DelayedShare,
    /// The volume is damaged, its container says so, and what was in memory beyond the last commit
    /// is gone.
    is_left_out: AtomicBool,
}

pub(crate) struct VbnSide {
    pub space: Space<DualPointer>,
    pub requests: Requests<DualPointer>,
    pub cleaning: Option<VolumeCleaning>,
    pub finished: Option<Cleaned>,
    /// Background work waits for the next consistency point.
    is_put_off: bool,
    /// It has the last of the aggregate's room.
    reclaim_turn: Option<ReclaimTurn>,
    /// A message counts free numbers of areas.
    is_counting: bool,
    /// Delayed frees when the consistency point began.
    pub delayed_before: DelayedBefore,
}

impl FlexibleVolume {
    /// A volume over its two sides. `size_blocks` is the size that users see.
    #[must_use]
    pub fn new(
        aggregate: &Arc<Aggregate>,
        front: Front<DualPointer>,
        mut space: Space<DualPointer>,
        size_blocks: u64,
    ) -> Arc<Self> {
        if !aggregate.parts.tuning.reads_top_areas {
            space.forget_areas();
        }
        let used_blocks = AtomicU64::new(space.used_blocks);
        let active_blocks = AtomicU64::new(space.active_blocks);
        let shared = Arc::clone(&front.shared.aggregate);
        let delayed_share = DelayedShare::new(shared, space.delayed_blocks);
        settle(&front, &space, size_blocks);
        front.shared.overhead.set_numbers(space.size_blocks);
        let side = VbnSide {
            space,
            requests: Requests::default(),
            cleaning: None,
            finished: None,
            is_put_off: false,
            reclaim_turn: None,
            is_counting: false,
            delayed_before: DelayedBefore::default(),
        };
        Arc::new_cyclic(|this| Self {
            vbn: Partition::new(front.affinities.vbn, side),
            front,
            aggregate: Arc::downgrade(aggregate),
            this: Weak::clone(this),
            size_blocks,
            used_blocks,
            active_blocks,
            delayed_share,
            is_left_out: AtomicBool::new(false),
        })
    }

    /// The block side of a new volume of `size_blocks` user-visible blocks.
    #[must_use]
    pub fn format_space(volume: VolumeId, size_blocks: u64) -> Space<DualPointer> {
        let mut space = Space::new(volume, size_blocks + slack_blocks(size_blocks));
        // Number 0 marks holes; the vol_info block keeps its number for ever.
        space.claim(0);
        space.claim(VOL_INFO_VVBN);
        space
    }

    /// The size that users see.
    #[must_use]
    pub const fn size_blocks(&self) -> u64 {
        self.size_blocks
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
        if let put_off @ Acted::PutOff(_) = self.promise(side, request)? {
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
            SnapshotRequest::Delete(_) => (0, VOLUME_OVERHEAD_BLOCKS, Spender::Reclaim),
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
        let (own, aggregate) = (&shared.budget, &shared.aggregate.budget);
        // Nobody else shares the volume's own reserve.
        let of_own = if makes_room { Spender::Reclaim } else { spender };
        let (could_be, why) = if !own.promise(numbers, of_own) {
            (own.could_promise(numbers, of_own), AggregateError::VolumeFull)
        } else if aggregate.promise(cost, spender) || makes_room && self.promise_in_turn(side, cost)
        {
            return Ok(Acted::Done);
        } else {
            own.forgo(numbers);
            (aggregate.could_promise(cost, of_own), AggregateError::Full)
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
    fn scan_blocks(&self, side: &mut VbnSide) -> u64 {
        let shared = &self.front.shared;
        let budget = &shared.aggregate.budget;
        let fits = |blocks: &u64| budget.promise(shared.overhead.of_scan(*blocks), Spender::Free);
        if let Some(blocks) = [SCAN_BLOCKS_PER_CP, 1].into_iter().find(fits) {
            return blocks;
        }
        // What goes on may have taken the room: one volume has its own.
        let deletes = side.space.snapshots.iter().any(|snapshot| snapshot.deleting);
        let is_granted = deletes && self.promise_in_turn(side, shared.overhead.of_scan(1));
        u64::from(is_granted)
    }

    /// The snapshots that are not being deleted; for messages that may read the block side.
    #[must_use]
    pub fn snapshots(&self, access: &Access<'_>) -> Vec<SnapshotInfo> {
        let side = self.vbn.read(access);
        let live = side.space.snapshots.iter().filter(|snapshot| !snapshot.deleting);
        live.map(|snapshot| SnapshotInfo {
            id: snapshot.id,
            name: snapshot.name.clone(),
            created: snapshot.created,
            cp: snapshot.cp,
            used_blocks: snapshot.used_blocks,
        })
        .collect()
    }

    /// Lets go of everything dirty: the volume is being deleted. Part of a freeze's action.
    pub fn discard(&self, access: &mut Access<'_>) {
        self.vbn.write(access).reclaim_turn = None;
        self.front.logical.write(access).discard();
    }

    /// Counts free numbers of areas, some at a time.
    fn send_count(self: &Arc<Self>, aggregate: &Arc<Aggregate>) {
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
}

/// The cleaning of a flexible volume begins with a message.
struct FirstMessage {
    aggregate: Arc<Aggregate>,
    affinity: AffinityId,
    message: Box<dyn Message>,
}

impl Cleaning for FirstMessage {
    fn begin(self: Box<Self>) {
        self.aggregate.parts.scheduler.send(self.affinity, self.message);
    }
}

impl FlexibleVolume {
    /// The freeze of a volume that takes no changes: its container is to say so once.
    fn freeze_damaged(&self, access: &mut Access<'_>) -> Option<Box<dyn Cleaning>> {
        if self.is_left_out.load(Ordering::Relaxed) {
            self.front.logical.write(access).freeze_unchanged();
            return None;
        }
        self.vbn.write(access).finished = Some(Cleaned::Damaged);
        Some(self.first_message(|this, aggregate| {
            Box::new(move |_: &mut Access<'_>| {
                let cleaned = MemberCleaned::of(this.front.id);
                aggregate.member_cleaned(MemberCleaned { is_damaged: true, ..cleaned });
                Outcome::Done
            })
        }))
    }

    /// A cleaning that begins with this message of the volume's block side.
    fn first_message(
        &self,
        make: impl FnOnce(Arc<Self>, Arc<Aggregate>) -> Box<dyn Message>,
    ) -> Box<dyn Cleaning> {
        let (Some(this), Some(aggregate)) = (self.this.upgrade(), self.aggregate.upgrade()) else {
            unreachable!("a member is alive while its aggregate freezes")
        };
        let message = make(this, Arc::clone(&aggregate));
        Box::new(FirstMessage { aggregate, affinity: self.front.affinities.vbn, message })
    }

    fn leave_out(&self, access: &mut Access<'_>) {
        self.is_left_out.store(true, Ordering::Relaxed);
        self.vbn.write(access).reclaim_turn = None;
        if let (Some(this), Some(aggregate)) = (self.this.upgrade(), self.aggregate.upgrade()) {
            this.drop_changes(&aggregate, access);
        }
    }

    /// The volume was read-only before the start: its container says so.
    pub fn set_left_out(&self) {
        self.is_left_out.store(true, Ordering::Relaxed);
        self.front.set_damage(VolumeDamage::Known);
    }

    /// A newer build wrote the volume. It stays as it is: nothing on media says that it is
    /// read-only.
    pub fn set_not_understood(&self, feature: FeatureName) {
        self.is_left_out.store(true, Ordering::Relaxed);
        self.front.set_damage(VolumeDamage::Feature(feature));
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
        settle(&self.front, &side.space, self.size_blocks);
        self.front.shared.reclaiming.store(false, Ordering::Relaxed);
    }
}

/// The files of an image with their dirty blocks, in order.
pub(crate) fn file_work<P: Pointer>(image: &mut Image<P>) -> Vec<FileWork<P>> {
    let inodes = std::mem::take(&mut image.inodes);
    let mut work = Vec::with_capacity(inodes.len());
    for inode in inodes {
        let mut leaves = Vec::new();
        for stripe in &image.stripes {
            if let Some(file) = stripe.get(&inode.number) {
                let blocks = file.iter();
                leaves.extend(blocks.map(|(fbn, block)| (fbn, Leaf::Block(Arc::clone(block)))));
            }
        }
        // Runs of each stripe one after another: a sort that merges runs is quick with them.
        leaves.sort_by_key(|leaf: &(u64, Leaf<P>)| leaf.0);
        work.push(FileWork { inode, leaves });
    }
    work
}

/// What an image is, apart from its files.
pub(crate) fn image_facts<P: Pointer>(
    image: &Image<P>,
    requests: &mut Requests<P>,
    context: &FreezeContext,
) -> ImageFacts {
    ImageFacts {
        cp: context.cp,
        next_generation: image.next_generation,
        used_inodes: image.used_inodes,
        orphan_count: image.orphan_count,
        snapshots: std::mem::take(&mut requests.create),
    }
}

/// Makes a restored image the active one; what was in memory is of the image that was left.
pub(crate) fn switch_logical<P: Pointer>(
    logical: &mut Logical<P>,
    image: crate::snapshots::RestoredImage<P>,
) {
    logical.inode_file = image.inode_file.0;
    logical.inodes.clear();
    logical.reaping_inodes = 0;
    logical.orphans = image.orphans.into();
    logical.used_inodes = image.used_inodes;
    logical.shared.used_inodes.store(image.used_inodes, Ordering::Relaxed);
    logical.inode_hint = 0;
    logical.full_map_blocks.clear();
    logical.quarantine.clear();
    logical.discard();
}

fn settle(front: &Front<DualPointer>, space: &Space<DualPointer>, size_blocks: u64) {
    front.shared.budget.settle(space.unused_blocks(), slack_blocks(size_blocks));
    front.shared.reclaiming.store(space.has_snapshot_work(), Ordering::Relaxed);
}

impl Member for FlexibleVolume {
    fn id(&self) -> VolumeId {
        self.front.id
    }

    fn freeze(
        &self,
        access: &mut Access<'_>,
        context: &FreezeContext,
    ) -> Option<Box<dyn Cleaning>> {
        if self.front.is_read_only() {
            return self.freeze_damaged(access);
        }
        let side = self.vbn.write(access);
        let has_work = side.space.has_snapshot_work();
        let scan_blocks_max = if has_work { self.scan_blocks(side) } else { SCAN_BLOCKS_PER_CP };
        let is_put_off = has_work && scan_blocks_max == 0;
        side.is_put_off = is_put_off;
        let wanted =
            side.space.snapshots_changed || has_work && !is_put_off || side.requests.is_pending();
        let is_dirty = self.front.logical.write(access).is_dirty() || wanted;
        let delay_limits = self.begin_delaying(self.vbn.write(access), is_dirty);
        let logical = self.front.logical.write(access);
        let Some(delay_limits) = delay_limits else {
            logical.freeze_unchanged();
            return None;
        };
        let image = logical.freeze();
        let side = self.vbn.write(access);
        let facts = image_facts(&image, &mut side.requests, context);
        let dirty_blocks = image.dirty_blocks;
        let image = (facts, image);
        let limits = (scan_blocks_max, delay_limits);
        side.cleaning = Some(VolumeCleaning::new(image, dirty_blocks, *context, limits));
        Some(self.first_message(|this, aggregate| {
            Box::new(move |access: &mut Access<'_>| this.clean(&aggregate, access))
        }))
    }

    fn find_active(&self, numbers: Vec<u64>, done: ActiveDone) {
        let (Some(this), Some(aggregate)) = (self.this.upgrade(), self.aggregate.upgrade()) else {
            return done(Vec::new());
        };
        if self.front.is_read_only() {
            return done(Vec::new());
        }
        let (held, mut done) = (HeldBlocks::default(), Some(done));
        let scheduler = aggregate.parts.scheduler.clone();
        let message = move |access: &mut Access<'_>| {
            let space = &this.vbn.read(access).space;
            let reader = Reader { cache: &aggregate.parts.cache, held: &held };
            // What is about to be freed is not worth moving either.
            let find = |vvbn: &u64| {
                let index = *vvbn / VBNS_PER_BLOCK;
                let (active, delayed) = (&space.active_map, &space.delayed_map);
                let is_in = |map: &MapFile<_>| Ok(is_set(&*map.read(index, &reader)?, *vvbn));
                Ok(is_in(active)? || is_in(delayed)?)
            };
            let found: Progress<Vec<bool>> = numbers.iter().map(find).collect();
            if let Err(Stop::Wait(wait)) = found {
                return aggregate.suspend(wait, &held);
            }
            if let Some(done) = done.take() {
                done(found.unwrap_or_default());
            }
            Outcome::Done
        };
        scheduler.send(self.front.affinities.vbn, Box::new(message));
    }

    fn let_go(&self, access: &mut Access<'_>) {
        // Messages of the cleaning look whether the aggregate has failed before they go on.
        let side = self.vbn.write(access);
        (side.cleaning, side.finished) = (None, None);
        self.front.logical.write(access).let_go();
    }

    fn publish(&self, access: &mut Access<'_>, published: &Published<'_>) -> bool {
        let container = container_inode(self.front.id);
        let given_up = published.given_up.iter().find(|file| file.inode == container);
        if let Some(file) = given_up {
            self.front.set_damage(VolumeDamage::Unreadable(file.pvbn));
        }
        let side = self.vbn.write(access);
        let finished = match side.finished.take() {
            None if given_up.is_none() => return std::mem::take(&mut side.is_put_off),
            Some(Cleaned::Whole(finished)) if given_up.is_none() => finished,
            Some(_) | None => {
                self.leave_out(access);
                return false;
            }
        };
        side.space.commit();
        let picks = std::mem::take(&mut side.space.picks);
        let frees = std::mem::take(&mut side.space.free_counts);
        let inode_file = side.space.inode_file.0;
        let (overhead, budget) = (&self.front.shared.overhead, &self.front.shared.aggregate.budget);
        let grant = |blocks: u64| budget.promise(overhead.of_rewritten(blocks), Spender::Free);
        let restore = side.requests.take_restore(&mut side.space, grant);
        settle(&self.front, &side.space, self.size_blocks);
        let again = side.space.has_snapshot_work()
            || self.goes_on_clearing(side)
            || side.requests.is_pending();
        let views = snapshot_views(&side.space.snapshots);
        self.used_blocks.store(side.space.used_blocks, Ordering::Relaxed);
        self.active_blocks.store(side.space.active_blocks, Ordering::Relaxed);
        self.delayed_share.set(side.space.delayed_blocks);
        let mut frozen = None;
        let reclaiming = side.space.has_snapshot_work();
        if !reclaiming {
            side.reclaim_turn = None;
        }
        let reaping = self.front.publish(access, reclaiming, |logical| {
            let dirty_blocks = finished.dirty_blocks;
            frozen = Some(logical.publish(&finished.cleaned, inode_file, dirty_blocks));
            logical.snapshots = views;
            match restore {
                RestoreStep::None => {}
                RestoreStep::Switched(image) => switch_logical(logical, *image),
                RestoreStep::Ended => logical.suspended = false,
                RestoreStep::Refused(reason) => {
                    logical.suspended = false;
                    *self.front.refused_restore.lock() = Some(reason);
                }
            }
        });
        self.front.note_given_up(finished.given_up);
        if let Some(aggregate) = self.aggregate.upgrade() {
            aggregate.statistics.volume_picks.add(picks);
            aggregate.statistics.frees.add(frees);
            // There may be very much of it, and nothing else runs now.
            let forget = move |_: &mut Access<'_>| {
                drop(frozen.take());
                Outcome::Done
            };
            aggregate.parts.scheduler.send(self.front.affinities.vbn, Box::new(forget));
            let side = self.vbn.write(access);
            let wants_count = side.space.wants_count();
            if wants_count
                && !std::mem::replace(&mut side.is_counting, true)
                && let Some(this) = self.this.upgrade()
            {
                this.send_count(&aggregate);
            }
        }
        again || reaping
    }
}
