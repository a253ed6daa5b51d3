//! Emptying allocation areas (FreeSpace section 3.3.1): the blocks that are in use in an area near
//! the top of its group's heap go elsewhere, so that there are always a few areas that are empty
//! as a whole and are filled in full stripes.
//!
//! 1. *Choose*: the best area that is not empty, while its group has fewer empty ones than wanted.
//!    It is taken out of the heap: nothing is placed in it meanwhile.
//! 2. *Read* some of the blocks that the free map says are in use. The identity beside each says
//!    whose it is.
//! 3. *Match* them with the trees of the last commit ([`owned`]): a volume's block moves as every
//!    block that is relocated does, with one change of the container map; a block of the
//!    aggregate's own image is written again where it stands in its tree, elsewhere, as everything
//!    that is written.
//! 4. The next consistency point does both; what it frees is empty when it has committed.
//!
//! Invariants:
//! - What is moved is the block that the tree names, by its place and its check.
//! - An area is gone through once: what cannot be moved of it stays.
//! - No consistency point begins for the sake of this, unless a group is to leave: each takes one
//!   batch along.
//!
//! Fails: what cannot be read stays where it is, and so do numbers of the area that were given
//! before. Without room nothing moves; who looks for free blocks and finds none takes the area
//! back.

mod owned;

use super::plan::{Entries, Move, Placed, Placing, Relocation};
use super::read::{Found, Wanted, read_all};
use crate::aggregate::Aggregate;
use crate::block_side::BlockSide;
use crate::refill::{Cursor, Refill};
use affinity::{Access, Outcome};
use cowfs::budget::{Spender, VOLUME_OVERHEAD_BLOCKS};
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use ondisk::features::MOVED_BLOCKS;
use ondisk::pointer::PhysicalPointer;
use platform::mutation::{self, Rule};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{InodeNumber, Pvbn, VolumeId};

/// Blocks of an area that a consistency point takes along at most: 4 MiB.
const BATCH_BLOCKS: u64 = 1024;
/// Blocks that each of a batch may cost: [`AreaBatch::cost_blocks`] is no more for each.
const COST_PER_BLOCK: u64 = 8;
/// Blocks of a tree that are written with one that is written again: those on the way to it.
const PATH_BLOCKS: u64 = 4;

/// What is being emptied, and how far that is.
#[derive(Default)]
pub(super) struct AreaCleaning {
    area: Option<Emptying>,
    stage: Stage,
    /// Blocks of the aggregate's metafiles that the running consistency point writes again.
    rewritten: Vec<MetafileBlock>,
    /// There was no room for all of the last batch: no consistency point is begun for the next.
    lacks_room: bool,
}

/// A file of the aggregate, and a block of it.
pub(super) type MetafileBlock = (InodeNumber, u64);

struct Emptying {
    group: u32,
    area: u32,
    /// All used blocks before this one were moved, or cannot be.
    from: Cursor,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    /// A message looks at the area, or blocks are read, or matched.
    Looking,
    /// They were read, and are matched after the commit to come.
    Found(FoundBlocks),
    /// The next consistency point takes them.
    Ready(AreaBatch),
    /// The running one has; where the area goes on, if that was all of them.
    Placed(Vec<Placed>, Option<Cursor>),
}

/// Blocks of the area that were read.
struct FoundBlocks {
    blocks: Vec<(Pvbn, Found)>,
    /// What follows them.
    next: Cursor,
}

/// What empties a part of an area.
pub(super) struct AreaBatch {
    moves: Vec<Move>,
    /// Entries of container maps that are written again as they are: the nodes that have them move.
    kept: Vec<((VolumeId, u64), PhysicalPointer)>,
    /// Blocks of metafiles that are written again.
    rewritten: Vec<MetafileBlock>,
    /// Slots of the volume table that are.
    slots: BTreeSet<usize>,
    next: Cursor,
    is_promised: bool,
}

impl AreaBatch {
    const fn new(next: Cursor) -> Self {
        Self {
            moves: Vec::new(),
            kept: Vec::new(),
            rewritten: Vec::new(),
            slots: BTreeSet::new(),
            next,
            is_promised: false,
        }
    }

    fn volumes(&self) -> BTreeSet<VolumeId> {
        let kept = self.kept.iter().map(|((volume, _), _)| *volume);
        self.moves.iter().map(|one| one.volume).chain(kept).collect()
    }

    fn is_empty(&self) -> bool {
        self.own_blocks() == 0 && self.moves.is_empty()
    }

    /// Blocks of the aggregate's own image.
    fn own_blocks(&self) -> u64 {
        (self.kept.len() + self.rewritten.len() + self.slots.len()) as u64
    }

    /// Blocks that a consistency point may take for it.
    fn cost_blocks(&self) -> u64 {
        let node = |one: &Move| (one.volume, one.vvbn / PhysicalPointer::FANOUT);
        let nodes: BTreeSet<_> = self.moves.iter().map(node).collect();
        // The blocks and what is freed, and each node of a container map with one above it; of each
        // volume the record, the container's inode, and the ways to them.
        2 * (self.moves.len() + nodes.len()) as u64
            + PATH_BLOCKS * (self.own_blocks() + self.volumes().len() as u64)
            + VOLUME_OVERHEAD_BLOCKS
    }
}

impl AreaCleaning {
    pub(super) const fn is_running(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Numbers that the running consistency point needs for it.
    pub(super) fn promised(&self) -> usize {
        match &self.stage {
            Stage::Ready(batch) if batch.is_promised => batch.moves.len(),
            _ => 0,
        }
    }

    pub(super) fn take_promised(&mut self) -> Option<AreaBatch> {
        match std::mem::take(&mut self.stage) {
            Stage::Ready(batch) if batch.is_promised => Some(batch),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// A consistency point has committed: what it has moved of the area.
    pub(super) fn take_placed(&mut self) -> Vec<Placed> {
        match std::mem::take(&mut self.stage) {
            Stage::Placed(placed, next) => {
                if let (Some(area), Some(next)) = (&mut self.area, next) {
                    area.from = next;
                }
                placed
            }
            other => {
                self.stage = other;
                Vec::new()
            }
        }
    }
}

impl Relocation {
    /// Places what empties a part of an area.
    pub(super) fn place_area(
        &mut self,
        batch: AreaBatch,
        to: &mut Placing<'_>,
        entries: &mut Entries,
    ) {
        if !mutation::broken(Rule::OwnBlocksStay) {
            self.areas.rewritten = batch.rewritten;
        }
        self.keep(batch.kept.into_iter(), to, entries);
        let (placed, is_whole) = self.place_moves(batch.moves, to, entries);
        self.areas.lacks_room = !is_whole;
        self.areas.stage = Stage::Placed(placed, is_whole.then_some(batch.next));
    }

    /// Blocks of the aggregate's metafiles that the running consistency point is to write again.
    pub(crate) fn take_rewritten(&mut self) -> Vec<MetafileBlock> {
        std::mem::take(&mut self.areas.rewritten)
    }
}

impl Aggregate {
    /// Goes on after a commit.
    pub(super) fn clean_areas(self: &Arc<Self>, side: &mut BlockSide) {
        // A traditional volume's pointers are the only ones to its blocks: nothing can move.
        if side.traditional {
            return;
        }
        match std::mem::take(&mut side.relocation.areas.stage) {
            Stage::Idle => self.empty_next(side),
            Stage::Found(found) => {
                side.relocation.areas.stage = Stage::Looking;
                self.send_match(found);
            }
            other => side.relocation.areas.stage = other,
        }
    }

    /// Goes on with the area, or with the next one.
    fn empty_next(self: &Arc<Self>, side: &mut BlockSide) {
        let BlockSide { relocation, refill, settings, .. } = side;
        let areas = &mut relocation.areas;
        areas.area = areas.area.take().filter(|one| refill.is_emptying(one.group, one.area));
        if areas.area.is_none() {
            let wanted = if settings.leaves_areas { 0 } else { self.parts.tuning.empty_areas };
            let next = refill.begin_emptying(wanted);
            areas.area = next.map(|(group, area, from)| Emptying { group, area, from });
        }
        if areas.area.is_some() {
            areas.stage = Stage::Looking;
            self.send_area_look();
        }
    }

    fn send_area_look(self: &Arc<Self>) {
        let (this, held) = (Arc::clone(self), HeldBlocks::default());
        let message = move |access: &mut Access<'_>| match this.look_at_area(access, &held) {
            Ok(()) => Outcome::Done,
            Err(Stop::Wait(wait)) => this.suspend(wait, &held),
            Err(stop) => this.give_area_up(access, &stop),
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    /// Blocks that there is room to move.
    fn batch_blocks(&self, refill: &Refill) -> u64 {
        let free = self.parts.shared.budget.free_blocks();
        // Object stores have room that nothing of this may take.
        let free = refill.near_free_blocks().map_or(free, |near| free.min(near));
        let room = free.saturating_sub(2 * VOLUME_OVERHEAD_BLOCKS);
        BATCH_BLOCKS.min(room / COST_PER_BLOCK)
    }

    /// Has the next used blocks of the area read.
    fn look_at_area(self: &Arc<Self>, access: &mut Access<'_>, held: &HeldBlocks) -> Progress<()> {
        let side = self.block_side.write(access);
        // While maps change the commit to come goes on. Nor is anything moved in an aggregate that
        // is being closed: it waits for each request to a disk that hangs.
        let is_quiet = !side.is_image_cleaned() && !self.is_failed();
        let batch_blocks = if is_quiet { self.batch_blocks(&side.refill) } else { 0 };
        let BlockSide { relocation, refill, space, .. } = &mut *side;
        let areas = &mut relocation.areas;
        let area = areas.area.as_ref().filter(|one| refill.is_emptying(one.group, one.area));
        let Some(&Emptying { group, area, from }) = area.filter(|_| batch_blocks > 0) else {
            areas.stage = Stage::Idle;
            return Ok(());
        };
        let reader = Reader { cache: &self.parts.cache, held };
        let (used, next) =
            refill.used_blocks(group, area, from, batch_blocks as usize, space, &reader)?;
        if used.is_empty() {
            refill.end_emptying(group, area);
            self.statistics.emptied_areas.fetch_add(1, Ordering::Relaxed);
            areas.area = None;
            areas.stage = Stage::Idle;
            self.empty_next(side);
            self.end_leaving(side);
            return Ok(());
        }
        let this = Arc::clone(self);
        let wanted = used.iter().map(|pvbn| Wanted::any(*pvbn)).collect();
        read_all(self, wanted, move |found| {
            let blocks = used.into_iter().zip(found).collect();
            this.send_match(FoundBlocks { blocks, next });
        });
        Ok(())
    }

    fn send_match(self: &Arc<Self>, found: FoundBlocks) {
        let (this, held, mut found) = (Arc::clone(self), HeldBlocks::default(), Some(found));
        let message = move |access: &mut Access<'_>| {
            let side = this.block_side.write(access);
            let Some(blocks) = found.take() else { unreachable!("a message runs to its end once") };
            if side.is_image_cleaned() {
                // The trees are about to change.
                side.relocation.areas.stage = Stage::Found(blocks);
                return Outcome::Done;
            }
            match this.match_found(side, &blocks, &held) {
                Ok(batch) => this.take_batch(side, batch),
                Err(Stop::Wait(wait)) => {
                    found = Some(blocks);
                    return this.suspend(wait, &held);
                }
                Err(stop) => return this.give_area_up(access, &stop),
            }
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    /// What was matched waits for the next consistency point.
    fn take_batch(self: &Arc<Self>, side: &mut BlockSide, batch: AreaBatch) {
        let areas = &mut side.relocation.areas;
        if batch.is_empty() {
            if let Some(area) = &mut areas.area {
                area.from = batch.next;
            }
            areas.stage = Stage::Looking;
            return self.send_area_look();
        }
        areas.stage = Stage::Ready(batch);
        let group = areas.area.as_ref().map(|area| area.group);
        let is_leaving = group.is_some() && group == side.settings.leaving_group;
        if is_leaving && !areas.lacks_room {
            self.request_consistency_point(None);
        }
    }

    fn give_area_up(self: &Arc<Self>, access: &mut Access<'_>, stop: &Stop) -> Outcome {
        let side = self.block_side.write(access);
        tracing::warn!(aggregate = %self.parts.identity.name, %stop, "an area is not emptied");
        side.relocation.areas.stage = Stage::Idle;
        if let Some(area) = side.relocation.areas.area.take() {
            side.refill.end_emptying(area.group, area.area);
        }
        Outcome::Done
    }

    /// At a freeze: promises room for what empties a part of an area; whether there is something.
    pub(super) fn promise_area(&self, side: &mut BlockSide) -> bool {
        let BlockSide { relocation, refill, .. } = &mut *side;
        let AreaCleaning { area, stage, .. } = &relocation.areas;
        let Stage::Ready(batch) = stage else { return false };
        let is_wanted = area.as_ref().is_some_and(|one| refill.is_emptying(one.group, one.area));
        let cost = batch.cost_blocks();
        let has_room = is_wanted && self.parts.shared.budget.promise(cost, Spender::Common);
        relocation.areas.lacks_room = is_wanted && !has_room;
        if !has_room {
            relocation.areas.stage = Stage::Idle;
            return false;
        }
        let Stage::Ready(batch) = &mut relocation.areas.stage else { unreachable!("seen above") };
        batch.is_promised = true;
        let rewritten = &self.statistics.emptying_rewritten_blocks;
        rewritten.fetch_add(batch.own_blocks(), Ordering::Relaxed);
        // A node that is written again leaves its entries as they are.
        let moved: BTreeSet<VolumeId> = batch.moves.iter().map(|one| one.volume).collect();
        let slots = batch.slots.clone();
        for volume in moved {
            let Some(slot) = side.slot_of(volume) else { continue };
            if !side.table[slot].record.features.has(&MOVED_BLOCKS) {
                side.table[slot].record.features.set(&MOVED_BLOCKS);
                side.dirty_slots.insert(slot);
            }
            self.moved_volumes.write().insert(volume);
        }
        let known = side.table.len();
        side.dirty_slots.extend(slots.into_iter().filter(|slot| *slot < known));
        true
    }
}
