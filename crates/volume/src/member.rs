//! A flexible volume as a member of consistency points.
//!
//! Invariants: see [`aggregate::Member`].

use crate::damage::VolumeDamage;
use crate::flexible::{FlexibleVolume, settle};
use crate::format::numbers_of;
use crate::load::snapshot_views;
use crate::snapshots::{RestoreStep, RestoredImage};
use crate::under_way::{Cleaned, VolumeCleaning};
use crate::work::image_facts;
use crate::{autodelete, autogrow, quotas, splitting};
use affinity::{Access, AffinityId, Message, Outcome};
use aggregate::{
    ActiveDone, Aggregate, Cleaning, FreezeContext, InheritedDone, Member, MemberCleaned,
    MemberRoom, Published, container_inode,
};
use cowfs::budget::Spender;
use cowfs::free_map::{MapFile, is_set, map_block_of};
use cowfs::logical::{Image, Logical};
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use cowfs::space::SCAN_BLOCKS_PER_CP;
use ondisk::features::ACLS;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{VolumeId, Vvbn};

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

/// The freeze of a volume that takes no changes: its container is to say so once.
fn freeze_damaged(volume: &FlexibleVolume, access: &mut Access<'_>) -> Option<Box<dyn Cleaning>> {
    if volume.is_left_out.load(Ordering::Relaxed) {
        volume.front.logical.write(access).freeze_unchanged();
        return None;
    }
    volume.vbn.write(access).finished = Some(Cleaned::Damaged);
    Some(first_message(volume, |this, aggregate| {
        Box::new(move |_: &mut Access<'_>| {
            let cleaned = MemberCleaned::of(this.front.id);
            aggregate.member_cleaned(MemberCleaned { is_damaged: true, ..cleaned });
            Outcome::Done
        })
    }))
}

/// A cleaning that begins with this message of the volume's block side.
fn first_message(
    volume: &FlexibleVolume,
    make: impl FnOnce(Arc<FlexibleVolume>, Arc<Aggregate>) -> Box<dyn Message>,
) -> Box<dyn Cleaning> {
    let (Some(this), Some(aggregate)) = (volume.this.upgrade(), volume.aggregate.upgrade()) else {
        unreachable!("a member is alive while its aggregate freezes")
    };
    let message = make(this, Arc::clone(&aggregate));
    Box::new(FirstMessage { aggregate, affinity: volume.front.affinities.vbn, message })
}

/// A commit has left the volume out: nothing of it is written from now on.
fn leave_out(volume: &FlexibleVolume, access: &mut Access<'_>) {
    volume.is_left_out.store(true, Ordering::Relaxed);
    volume.vbn.write(access).reclaim_turn = None;
    if let (Some(this), Some(aggregate)) = (volume.this.upgrade(), volume.aggregate.upgrade()) {
        this.drop_changes(&aggregate, access);
    }
}

/// Notes in a volume's record that files of its image have access control lists: in the superblock
/// that the lists come with.
pub(crate) fn note_acls<P: Pointer>(
    aggregate: &Aggregate,
    access: &mut Access<'_>,
    (volume, image): (VolumeId, &Image<P>),
) {
    let has_acl = image.inodes.iter().any(|inode| inode.attributes.has_acl());
    if !has_acl || mutation::broken(Rule::ListsUnnoted) {
        return;
    }
    let side = aggregate.block_side.write(access);
    let Some(slot) = side.slot_of(volume) else { return };
    let features = &mut side.table[slot].record.features;
    if !features.has(&ACLS) {
        features.set(&ACLS);
        side.dirty_slots.insert(slot);
    }
}

/// Makes a restored image the active one; what was in memory is of the image that was left.
fn switch_logical<P: Pointer>(logical: &mut Logical<P>, image: RestoredImage<P>) {
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
    logical.shared.quotas.set_counting(image.quotas.is_counting());
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
            return freeze_damaged(self, access);
        }
        let has_changes = self.front.logical.write(access).is_dirty();
        let side = self.vbn.write(access);
        // An administrator gets the size that he asked for.
        let is_resized = std::mem::take(&mut side.is_smaller) || side.is_larger;
        if !is_resized {
            autogrow::grow_if_short(self, access, has_changes);
        }
        autodelete::delete_if_short(self, access, has_changes);
        let side = self.vbn.write(access);
        let is_born = std::mem::take(&mut side.is_born);
        let has_work = side.space.has_snapshot_work() || side.space.has_trees_to_discard();
        let has_work = has_work && !is_born;
        let scan_blocks_max = match has_work {
            true => self.scan_blocks(side),
            false if is_born => 0,
            false => SCAN_BLOCKS_PER_CP,
        };
        let is_put_off = has_work && scan_blocks_max == 0;
        side.is_put_off = is_put_off;
        if is_put_off {
            autodelete::note_put_off(&self.front.shared, &side.space);
        }
        side.is_stuck = is_put_off && side.space.has_trees_to_discard();
        let has_uncounted = !is_born && quotas::has_work(self, access);
        let counted_portion = quotas::counted_portion(&self.front.shared, has_uncounted);
        let side = self.vbn.write(access);
        side.counted_before = (counted_portion > 0).then_some(side.space.quotas.counted_inodes);
        let wanted = std::mem::take(&mut side.is_larger)
            || side.space.snapshots_changed
            || has_work && !is_put_off
            || counted_portion > 0
            || side.requests.is_pending();
        let is_dirty = has_changes || wanted;
        let delay_limits = self.begin_delaying(self.vbn.write(access), is_dirty);
        let logical = self.front.logical.write(access);
        let Some(delay_limits) = delay_limits else {
            logical.freeze_unchanged();
            return None;
        };
        let mut image = logical.freeze();
        if let Some(aggregate) = self.aggregate.upgrade() {
            note_acls(&aggregate, access, (self.front.id, &image));
        }
        let side = self.vbn.write(access);
        let facts = image_facts(&mut image, &mut side.requests, context, counted_portion);
        let dirty_blocks = image.dirty_blocks;
        let image = (facts, image);
        let limits = (scan_blocks_max, delay_limits);
        side.cleaning = Some(VolumeCleaning::new(image, dirty_blocks, *context, limits));
        Some(first_message(self, |this, aggregate| {
            Box::new(move |access: &mut Access<'_>| this.clean(&aggregate, access))
        }))
    }

    fn find_active(&self, numbers: Vec<Vvbn>, done: ActiveDone) {
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
            let find = |vvbn: &Vvbn| {
                let index = map_block_of(*vvbn);
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

    fn find_inherited(&self, from: Vvbn, max: usize, done: InheritedDone) {
        splitting::find_inherited(self, (from, max), done);
    }

    fn room(&self) -> Option<MemberRoom<'_>> {
        let is_written = !self.front.is_read_only();
        let shared = &self.front.shared;
        let blocks_max = match is_written {
            // The maps of a volume that has shrunk are as large as before.
            true => numbers_of(self.size_blocks()) + 2 * shared.overhead.whole(),
            false => 0,
        };
        Some(MemberRoom { blocks_max, account: &shared.guaranteed })
    }

    fn let_go(&self, access: &mut Access<'_>) {
        // Messages of the cleaning look whether the aggregate has failed before they go on.
        let side = self.vbn.write(access);
        (side.cleaning, side.finished) = (None, None);
        self.front.logical.write(access).let_go();
    }

    fn publish(&self, access: &mut Access<'_>, published: &Published<'_>) -> bool {
        // Who waited for room asks again.
        self.front.shared.wants_growth.store(false, Ordering::Relaxed);
        self.front.shared.wants_deletion.store(false, Ordering::Relaxed);
        let container = container_inode(self.front.id);
        let given_up = published.given_up.iter().find(|file| file.inode == container);
        if let Some(aggregate) = self.aggregate.upgrade()
            && let Some(own) = aggregate.block_side.read(access).containers.get(&self.front.id)
        {
            self.owned_blocks.store(own.blocks, Ordering::Relaxed);
            let own = *own;
            self.vbn.write(access).note_container(Some(&own));
        }
        if let Some(file) = given_up {
            self.front.set_damage(VolumeDamage::Unreadable(file.pvbn));
        }
        let side = self.vbn.write(access);
        let finished = match side.finished.take() {
            None if given_up.is_none() => {
                let is_put_off = std::mem::take(&mut side.is_put_off);
                splitting::end_if_whole(self);
                return is_put_off;
            }
            Some(Cleaned::Whole(finished)) if given_up.is_none() => finished,
            Some(_) | None => {
                leave_out(self, access);
                return false;
            }
        };
        side.space.commit();
        self.front.shared.quotas.note_passed(std::mem::take(&mut side.space.quotas_passed));
        let picks = std::mem::take(&mut side.space.picks);
        let frees = std::mem::take(&mut side.space.free_counts);
        let inode_file = side.space.inode_file.0;
        let (overhead, accounts) = (&self.front.shared.overhead, self.front.shared.accounts());
        let grant = |blocks: u64| accounts.take(overhead.of_rewritten(blocks), Spender::Free);
        let restore = side.requests.take_restore(&mut side.space, grant);
        settle(&self.front, &side.space, self.size_blocks());
        self.settle_size();
        if let Some(from) = side.grows_from.take() {
            self.note_grown(from);
        }
        self.untold_deletions.lock().append(&mut side.autodeleted);
        let is_discarding = side.space.has_trees_to_discard();
        self.is_discarding.store(is_discarding, Ordering::Relaxed);
        let again = side.space.has_snapshot_work()
            || is_discarding
            || self.goes_on_clearing(side)
            || side.requests.is_pending();
        let counted = (side.counted_before.take(), side.space.quotas.counted_inodes);
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
        splitting::end_if_whole(self);
        if let Some(aggregate) = self.aggregate.upgrade() {
            aggregate.statistics.volume_picks.add(picks);
            aggregate.statistics.frees.add(frees);
            // There may be very much of it, and nothing else runs now.
            let forget = move |_: &mut Access<'_>| {
                drop(frozen.take());
                Outcome::Done
            };
            aggregate.parts.scheduler.send(self.front.affinities.vbn, Box::new(forget));
            quotas::go_on(&aggregate, self.front.affinities.vbn, counted.0, counted.1);
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
