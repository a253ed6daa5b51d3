//! The cleaning: members write their images, then the aggregate writes its own.
//!
//! Invariants: the aggregate's image is begun when the last member has ended.
//!
//! Fails: a metafile that cannot be read, or contradicts itself, takes the aggregate out of
//! service.

use super::sealing;
use crate::block_side::backend::PhysicalBackend;
use crate::block_side::side::{AggregateCleaning, BlockSide, FileFacts};
use crate::containers::{MemberCleaned, OwnFiles};
use crate::error::AggregateError;
use crate::relocating::count;
use crate::relocation::moves::Placing;
use crate::service::aggregate::Aggregate;
use crate::service::state::Phase;
use affinity::{Access, Outcome};
use cowfs::image::ImageCleaner;
use cowfs::reader::{HeldBlocks, Reader, Stop};
use ondisk::features::MOVED_BLOCKS;
use platform::mutation::{self, Rule};
use platform::stage::{self, Stage};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::CpNumber;

impl Aggregate {
    /// A member's image is clean.
    pub fn member_cleaned(self: &Arc<Self>, cleaned: MemberCleaned) {
        let last = {
            let mut state = self.state.lock();
            state.cleaned.push(cleaned);
            state.cleaning_members -= 1;
            state.cleaning_members == 0
        };
        if last && !self.is_failed() {
            begin(self);
        }
    }
}

/// Begins to write the aggregate's own image.
pub(crate) fn begin(aggregate: &Arc<Aggregate>) {
    if aggregate.advance(Phase::CleaningAggregate).is_err() {
        return;
    }
    let (this, held) = (Arc::clone(aggregate), HeldBlocks::default());
    let message = move |access: &mut Access<'_>| clean(&this, access, &held);
    aggregate.parts.scheduler.send(aggregate.parts.vbn_affinity, Box::new(message));
}

fn clean(aggregate: &Arc<Aggregate>, access: &mut Access<'_>, stock_held: &HeldBlocks) -> Outcome {
    if aggregate.is_failed() {
        return Outcome::Done;
    }
    let _stage = stage::enter(Stage::CleanAggregate);
    let cp = aggregate.running_cp();
    let side = aggregate.block_side.write(access);
    if side.cleaning.is_none() {
        let reader = Reader { cache: &aggregate.parts.cache, held: stock_held };
        let BlockSide { relocation, refill, space, .. } = &mut *side;
        let store = &*aggregate.parts.store;
        let stocked = relocation.take_stock(refill, space, store, &aggregate.pool, &reader);
        if let Err(stop) = stocked {
            return stop_cleaning(aggregate, stop, stock_held);
        }
        let geometry = store.geometry();
        let cleaned = take_cleaned(aggregate, side, cp);
        if let Err(stop) = count::count_objects(&geometry, side, &cleaned, &reader) {
            side.cleaned = Some(cleaned);
            return stop_cleaning(aggregate, stop, stock_held);
        }
        side.cleaning = Some(begin_cleaning(side, cleaned, cp));
    }
    let Some(mut cleaning) = side.cleaning.take() else { unreachable!("set above") };
    let reader = Reader { cache: &aggregate.parts.cache, held: &cleaning.held };
    let mut backend = PhysicalBackend {
        store: &*aggregate.parts.store,
        cache: &aggregate.parts.cache,
        pool: &aggregate.pool,
        refill: &mut side.refill,
        cp,
        clock: &*aggregate.parts.clock,
        scores_nanoseconds: &aggregate.statistics.group_scores_nanoseconds,
    };
    let outcome = cleaning.cleaner.run(&mut side.space, &mut backend, &reader);
    let held = cleaning.held.clone();
    match outcome {
        Ok(()) => {
            let superblock = sealing::superblock(aggregate, side, &cleaning.cleaner, cp);
            side.file_facts = FileFacts::of(&superblock.root);
            let written = cleaning.cleaner.written();
            aggregate.statistics.blocks_written.fetch_add(written, Ordering::Relaxed);
            side.cleaning = Some(cleaning);
            sealing::sync(aggregate, cp, superblock);
            Outcome::Done
        }
        Err(stop) => {
            side.cleaning = Some(cleaning);
            stop_cleaning(aggregate, stop, &held)
        }
    }
}

fn stop_cleaning(aggregate: &Arc<Aggregate>, stop: Stop, held: &HeldBlocks) -> Outcome {
    match stop {
        Stop::Wait(wait) => return aggregate.suspend(wait, held),
        Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn) => {
            let what = "a metafile of the aggregate";
            aggregate.fail(AggregateError::Unreadable { what, pvbn });
        }
        Stop::Contradiction(problem) => {
            aggregate
                .fail(AggregateError::Contradiction { what: "the aggregate's image", problem });
        }
        Stop::OtherBuild(damage) => {
            aggregate.fail(AggregateError::other_build("a metafile of the aggregate", damage));
        }
        Stop::NoSpace | Stop::OverQuota | Stop::Quarantined(_) => {
            unreachable!("cleaning neither asks for promises nor for content")
        }
    }
    Outcome::Done
}

/// What the consistency point changes in container maps; the same until the cleaning begins.
fn take_cleaned(aggregate: &Aggregate, side: &mut BlockSide, cp: CpNumber) -> Vec<MemberCleaned> {
    if let Some(cleaned) = side.cleaned.take() {
        return cleaned;
    }
    let mut cleaned = std::mem::take(&mut aggregate.state.lock().cleaned);
    for pvbn in aggregate.pool.drain_used() {
        side.space.take(pvbn);
    }
    for member in &mut cleaned {
        member.wasted.drain(..).for_each(|pvbn| side.space.free(pvbn));
        if member.is_damaged && !mutation::broken(Rule::VolumeDamageUnmarked) {
            side.quarantine(member.volume);
        }
        note_reallocated(aggregate, side, member);
    }
    let BlockSide { relocation, space, containers, .. } = &mut *side;
    let (store, pool) = (&*aggregate.parts.store, &aggregate.pool);
    relocation.note(&cleaned);
    relocation.place(&mut Placing { space, store, pool, containers, cp }, &mut cleaned);
    cleaned
}

/// Blocks of a volume lie elsewhere under their numbers. Its own pointers know; those of snapshots
/// have wrong hints from the commit on, so that readers have to ask the container map.
fn note_reallocated(aggregate: &Aggregate, side: &mut BlockSide, member: &MemberCleaned) {
    let blocks = member.reallocated.blocks();
    aggregate.statistics.reallocated_blocks.fetch_add(blocks, Ordering::Relaxed);
    let slot = side.slot_of(member.volume).filter(|_| blocks > 0 && member.has_snapshots);
    let Some(slot) = slot.filter(|_| !mutation::broken(Rule::ReallocationUnsaid)) else { return };
    if side.table[slot].record.features.has(&MOVED_BLOCKS) {
        return;
    }
    side.table[slot].record.features.set(&MOVED_BLOCKS);
    side.dirty_slots.insert(slot);
    aggregate.moved_volumes.write().insert(member.volume);
}

fn begin_cleaning(
    side: &mut BlockSide,
    mut cleaned: Vec<MemberCleaned>,
    cp: CpNumber,
) -> AggregateCleaning {
    let own: Option<OwnFiles> = cleaned.iter_mut().find_map(|member| member.files.take());
    let mut work = side.work(cleaned);
    let facts = match own {
        Some(OwnFiles { facts, work: files }) => {
            work.extend(files);
            facts
        }
        None => side.facts(cp),
    };
    let rewritten = side.relocation.take_rewritten();
    let cleaner = ImageCleaner::new(facts, work, &side.space).with_rewritten(rewritten);
    AggregateCleaning { cleaner, held: HeldBlocks::default() }
}
