//! Consistency points: the whole aggregate from one image to the next (FlexVol section 2, decision
//! 8).
//!
//! ```text
//! Idle -> Freezing -> CleaningMembers -> CleaningAggregate -> Syncing -> Sealing -> Committing
//! -> Idle
//! ```
//!
//! - *Freezing* (Aggregate affinity, so nothing else runs): administrators' actions, then every
//!   volume sets its changes aside; the log switches halves.
//! - *CleaningMembers* (each in its Volume VBN affinity, in parallel with operations).
//! - *CleaningAggregate* (Aggregate VBN affinity): container maps, volume table, free map.
//! - *Syncing*: all blocks durable.
//! - *Sealing*: the superblock on every disk, durable. This is the commit.
//! - *Committing* (Aggregate affinity): new roots are published, the log's half is retired, freed
//!   blocks may be used again.
//!
//! Invariants: one at a time. A failure on the way leaves the last superblock as it was and takes
//! the aggregate out of service.

use crate::aggregate::{Aggregate, settle_budget};
use crate::backend::PhysicalBackend;
use crate::block_side::{AggregateCleaning, BlockSide, FileFacts};
use crate::error::AggregateError;
use crate::member::{Cleaning, Member, MemberCleaned, Published};
use crate::refill::reopen_stock;
use crate::relocate::Placing;
use crate::relocate::cool::Tiers;
use affinity::{Access, Outcome, Waker};
use cowfs::image::{FileWork, ImageCleaner, ImageFacts};
use cowfs::reader::{HeldBlocks, Reader, Stop};
use ondisk::pointer::PhysicalPointer;
use ondisk::root::Superblock;
use platform::Clock;
use platform::mutation::{self, Rule};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{CpNumber, Pvbn, Timestamp, VolumeId};
use zerocopy::little_endian::{I64, U16, U32};

/// Called when a consistency point has committed, or cannot.
pub type CpDone = Box<dyn FnOnce(Result<(), AggregateError>) + Send>;
/// Done at a freeze.
pub type Action = Box<dyn FnMut(&mut FreezeScope<'_, '_>) -> Result<Acted, AggregateError> + Send>;

/// What an action came to.
#[derive(Clone, Debug)]
pub enum Acted {
    /// It is carried out.
    Done,
    /// There is no room now, and a commit may make some: it is to be called at the next freeze.
    /// It has changed nothing, and fails with this if no commit comes.
    PutOff(AggregateError),
}

/// What an action works on: the whole aggregate, with nothing else running.
pub struct FreezeScope<'a, 'run> {
    /// The aggregate.
    pub aggregate: &'a Arc<Aggregate>,
    /// Opens all its cells.
    pub access: &'a mut Access<'run>,
}

impl FreezeScope<'_, '_> {
    /// The aggregate's own file system.
    pub fn block_side(&mut self) -> &mut BlockSide {
        self.aggregate.block_side.write(self.access)
    }
}

/// What members learn at a freeze.
#[derive(Clone, Copy, Debug)]
pub struct FreezeContext {
    /// The consistency point.
    pub cp: CpNumber,
    /// The time.
    pub time: Timestamp,
}

/// The states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// None is running.
    Idle,
    /// See the module.
    Freezing,
    /// See the module.
    CleaningMembers,
    /// See the module.
    CleaningAggregate,
    /// See the module.
    Syncing,
    /// See the module.
    Sealing,
    /// See the module.
    Committing,
    /// Out of service.
    Failed,
}

/// The legal changes of state.
pub const TRANSITIONS: &[(Phase, Phase)] = &[
    (Phase::Idle, Phase::Freezing),
    (Phase::Freezing, Phase::Idle),
    (Phase::Freezing, Phase::CleaningMembers),
    (Phase::CleaningMembers, Phase::CleaningAggregate),
    (Phase::CleaningAggregate, Phase::Syncing),
    (Phase::Syncing, Phase::Sealing),
    (Phase::Sealing, Phase::Committing),
    (Phase::Committing, Phase::Idle),
];

/// The state of an aggregate's consistency points.
pub(crate) struct ConsistencyPoint {
    phase: Phase,
    committed: CpNumber,
    running_cp: CpNumber,
    superblock_slot: usize,
    requested: bool,
    forced: bool,
    stopping: bool,
    actions: Vec<(Action, CpDone)>,
    waiting: Vec<CpDone>,
    /// Messages that wait for room: woken at each step that makes some.
    room: Vec<Waker>,
    running: Vec<CpDone>,
    pub members: BTreeMap<VolumeId, Arc<dyn Member>>,
    cleaning_members: usize,
    cleaned: Vec<MemberCleaned>,
    traditional: Option<(ImageFacts, Vec<FileWork<PhysicalPointer>>)>,
    failure: Option<AggregateError>,
    started_nanoseconds: u64,
}

impl ConsistencyPoint {
    pub fn new(committed: CpNumber, superblock_slot: usize) -> Self {
        Self {
            phase: Phase::Idle,
            committed,
            running_cp: committed,
            superblock_slot,
            requested: false,
            forced: false,
            stopping: false,
            actions: Vec::new(),
            waiting: Vec::new(),
            room: Vec::new(),
            running: Vec::new(),
            members: BTreeMap::new(),
            cleaning_members: 0,
            cleaned: Vec::new(),
            traditional: None,
            failure: None,
            started_nanoseconds: 0,
        }
    }

    pub const fn phase(&self) -> Phase {
        self.phase
    }

    pub const fn committed(&self) -> CpNumber {
        self.committed
    }

    pub fn failure(&self) -> Option<AggregateError> {
        self.failure.clone()
    }

    pub fn is_due(&self) -> bool {
        self.requested || self.phase != Phase::Idle
    }

    pub fn request(&mut self, action: Option<(Action, CpDone)>, done: Option<CpDone>) {
        self.requested = true;
        self.actions.extend(action);
        self.waiting.extend(done);
    }

    /// Goes on to the next state, and tells whoever traces it when: `stroop bench nfs` draws the
    /// phases beside what clients saw meanwhile. False, and nothing is changed, if the aggregate
    /// has failed: a consistency point that was under way ends where it is.
    #[must_use]
    fn advance(&mut self, to: Phase, clock: &dyn Clock) -> bool {
        if self.phase == Phase::Failed {
            return false;
        }
        assert!(
            TRANSITIONS.contains(&(self.phase, to)),
            "a consistency point does not go from {:?} to {to:?}",
            self.phase
        );
        self.phase = to;
        tracing::debug!(phase = ?to, nanoseconds = clock.monotonic_nanoseconds(), "phase");
        true
    }
}

impl Aggregate {
    /// Begins a consistency point if one is asked for and none runs.
    pub(crate) fn start_consistency_point(self: &Arc<Self>) {
        let refused = {
            let mut state = self.state.lock();
            if let Some(failure) = state.failure() {
                let mut refused = std::mem::take(&mut state.waiting);
                refused.extend(state.actions.drain(..).map(|(_, done)| done));
                Some((refused, failure))
            } else if state.phase != Phase::Idle
                || !state.requested
                || !state.advance(Phase::Freezing, &*self.parts.clock)
            {
                return;
            } else {
                state.requested = false;
                state.started_nanoseconds = self.parts.clock.monotonic_nanoseconds();
                None
            }
        };
        if let Some((refused, failure)) = refused {
            refused.into_iter().for_each(|done| done(Err(failure.clone())));
            return;
        }
        let this = Arc::clone(self);
        let message = move |access: &mut Access<'_>| {
            this.freeze(access);
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.affinity, Box::new(message));
    }

    /// Commits once more, marking the superblock clean: everything logged is in the image.
    pub fn stop(self: &Arc<Self>, done: CpDone) {
        {
            let mut state = self.state.lock();
            state.stopping = true;
            state.forced = true;
            state.request(None, Some(done));
        }
        self.start_consistency_point();
    }

    /// Makes the next consistency point write a superblock though nothing changed.
    pub fn force(&self) {
        self.state.lock().forced = true;
    }

    fn freeze(self: &Arc<Self>, access: &mut Access<'_>) {
        let (actions, waiting, forced) = {
            let mut state = self.state.lock();
            if state.phase == Phase::Failed {
                return;
            }
            let actions = std::mem::take(&mut state.actions);
            (actions, std::mem::take(&mut state.waiting), std::mem::take(&mut state.forced))
        };
        let mut running = waiting;
        let mut changed = forced;
        let mut put_off = Vec::new();
        for (mut action, done) in actions {
            let mut scope = FreezeScope { aggregate: self, access };
            match action(&mut scope) {
                Ok(Acted::Done) => running.push(done),
                Ok(Acted::PutOff(why)) => {
                    put_off.push((action, done, why));
                    continue;
                }
                Err(error) => done(Err(error)),
            }
            changed = true;
        }
        let cp = self.filling();
        let context = FreezeContext { cp, time: self.parts.clock.wall() };
        let members: Vec<_> = self.state.lock().members.values().map(Arc::clone).collect();
        let mut jobs = Vec::new();
        let mut traditional = None;
        for member in members {
            match member.freeze(access, &context) {
                Cleaning::Nothing => continue,
                Cleaning::Flexible(affinity, message) => jobs.push((affinity, message)),
                Cleaning::Traditional(facts, work) => traditional = Some((facts, work)),
            }
            changed = true;
        }
        changed |= self.promise_moves(access);
        changed |= self.block_side.read(access).is_dirty();
        if !changed {
            self.parts.shared.budget.clear();
            let outcome = self.advance(Phase::Idle);
            self.wake_for_room();
            running.into_iter().for_each(|done| done(outcome.clone()));
            // No commit comes that could make room.
            let failure = outcome.err();
            put_off.into_iter().for_each(|(_, done, why)| {
                done(Err(failure.clone().unwrap_or(why)));
            });
            return self.start_consistency_point();
        }
        self.switch_log(cp);
        self.parts.shared.budget.freeze();
        let stock = self.block_side.read(access).relocation.in_stock();
        reopen_stock(&*self.parts.store, self.pool.in_stock());
        reopen_stock(&*self.parts.store, stock);
        {
            let mut state = self.state.lock();
            state.running = running;
            // Actions that were put off come before actions that were asked for meanwhile.
            state.actions.splice(..0, put_off.into_iter().map(|(action, done, _)| (action, done)));
            state.running_cp = cp;
            state.traditional = traditional;
            state.cleaning_members = jobs.len();
        }
        if self.advance(Phase::CleaningMembers).is_err() {
            return self.refuse_running();
        }
        // The log has an empty half.
        self.wake_for_room();
        if jobs.is_empty() {
            return self.begin_aggregate();
        }
        for (affinity, message) in jobs {
            self.parts.scheduler.send(affinity, message);
        }
    }

    /// Operations from now on belong to the next consistency point.
    ///
    /// The first one after a start with something to replay retires both halves of the log, which
    /// may both hold records; it runs before clients are served, so nothing is logged beside it.
    fn switch_log(&self, cp: CpNumber) {
        self.parts.journal.set_cp(cp);
        if !self.parts.log.can_switch() {
            let recovering = self.statistics.consistency_points.load(Ordering::Relaxed) == 0;
            assert!(recovering, "the other half of the log is retired");
            return;
        }
        if let Err(full) = self.parts.log.switch_half(cp.next()) {
            unreachable!("the log can switch: {full}");
        }
        self.set_filling(cp.next());
    }

    /// A member's image is clean.
    pub fn member_cleaned(self: &Arc<Self>, cleaned: MemberCleaned) {
        let last = {
            let mut state = self.state.lock();
            state.cleaned.push(cleaned);
            state.cleaning_members -= 1;
            state.cleaning_members == 0
        };
        if last && !self.is_failed() {
            self.begin_aggregate();
        }
    }

    fn running_cp(&self) -> CpNumber {
        self.state.lock().running_cp
    }

    /// Goes on to the next state.
    fn advance(&self, to: Phase) -> Result<(), AggregateError> {
        let mut state = self.state.lock();
        match state.advance(to, &*self.parts.clock) {
            true => Ok(()),
            false => Err(state.failure().unwrap_or(AggregateError::Stopping)),
        }
    }

    /// The aggregate failed while a consistency point took those in who wait for it.
    fn refuse_running(&self) {
        let (refused, failure) = {
            let mut state = self.state.lock();
            let mut refused = std::mem::take(&mut state.running);
            refused.extend(state.actions.drain(..).map(|(_, done)| done));
            (refused, state.failure())
        };
        let error = failure.unwrap_or(AggregateError::Stopping);
        refused.into_iter().for_each(|done| done(Err(error.clone())));
    }

    fn begin_aggregate(self: &Arc<Self>) {
        if self.advance(Phase::CleaningAggregate).is_err() {
            return;
        }
        let (this, held) = (Arc::clone(self), HeldBlocks::default());
        let message = move |access: &mut Access<'_>| this.clean_aggregate(access, &held);
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    fn clean_aggregate(
        self: &Arc<Self>,
        access: &mut Access<'_>,
        stock_held: &HeldBlocks,
    ) -> Outcome {
        if self.is_failed() {
            return Outcome::Done;
        }
        let cp = self.running_cp();
        let side = self.block_side.write(access);
        if side.cleaning.is_none() {
            let reader = Reader { cache: &self.parts.cache, held: stock_held };
            let BlockSide { relocation, refill, space, .. } = &mut *side;
            let store = &*self.parts.store;
            let stocked = relocation.take_stock(refill, space, store, &self.pool, &reader);
            if let Err(stop) = stocked {
                return self.stop_cleaning(stop, stock_held);
            }
            let cleaned = self.take_cleaned(side, cp);
            if let Err(stop) = self.count_objects(side, &cleaned, &reader) {
                side.cleaned = Some(cleaned);
                return self.stop_cleaning(stop, stock_held);
            }
            side.cleaning = Some(self.begin_cleaning(side, cleaned, cp));
        }
        let Some(mut cleaning) = side.cleaning.take() else { unreachable!("set above") };
        let reader = Reader { cache: &self.parts.cache, held: &cleaning.held };
        let mut backend = PhysicalBackend {
            store: &*self.parts.store,
            cache: &self.parts.cache,
            pool: &self.pool,
            refill: &mut side.refill,
            cp,
            clock: &*self.parts.clock,
            scores_nanoseconds: &self.statistics.group_scores_nanoseconds,
        };
        let outcome = cleaning.cleaner.run(&mut side.space, &mut backend, &reader);
        let held = cleaning.held.clone();
        match outcome {
            Ok(()) => {
                let superblock = self.superblock(side, &cleaning.cleaner, cp);
                side.file_facts = FileFacts::of(&superblock.root);
                let written = cleaning.cleaner.written();
                self.statistics.blocks_written.fetch_add(written, Ordering::Relaxed);
                side.cleaning = Some(cleaning);
                self.sync(cp, superblock);
                Outcome::Done
            }
            Err(stop) => {
                side.cleaning = Some(cleaning);
                self.stop_cleaning(stop, &held)
            }
        }
    }

    fn stop_cleaning(self: &Arc<Self>, stop: Stop, held: &HeldBlocks) -> Outcome {
        match stop {
            Stop::Wait(wait) => return self.suspend(wait, held),
            Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn) => {
                let what = "a metafile of the aggregate";
                self.fail(AggregateError::Unreadable { what, pvbn });
            }
            Stop::Contradiction(problem) => {
                self.fail(AggregateError::Contradiction { what: "the aggregate's image", problem });
            }
            Stop::NoSpace | Stop::Quarantined(_) => {
                unreachable!("cleaning neither asks for promises nor for content")
            }
        }
        Outcome::Done
    }

    /// What the consistency point changes in container maps; the same until the cleaning begins.
    fn take_cleaned(&self, side: &mut BlockSide, cp: CpNumber) -> Vec<MemberCleaned> {
        if let Some(cleaned) = side.cleaned.take() {
            return cleaned;
        }
        let mut cleaned = std::mem::take(&mut self.state.lock().cleaned);
        for pvbn in self.pool.drain_used() {
            side.space.take(pvbn.get());
        }
        for member in &mut cleaned {
            member.wasted.drain(..).for_each(|pvbn| side.space.free(pvbn.get()));
            if member.is_damaged && !mutation::broken(Rule::VolumeDamageUnmarked) {
                side.quarantine(member.volume);
            }
        }
        let BlockSide { relocation, space, containers, .. } = &mut *side;
        let (store, pool) = (&*self.parts.store, &self.pool);
        relocation.note(&cleaned);
        relocation.place(&mut Placing { space, store, pool, containers, cp }, &mut cleaned);
        cleaned
    }

    fn begin_cleaning(
        &self,
        side: &mut BlockSide,
        cleaned: Vec<MemberCleaned>,
        cp: CpNumber,
    ) -> AggregateCleaning {
        let traditional = self.state.lock().traditional.take();
        let mut work = side.work(cleaned);
        let facts = match traditional {
            Some((facts, files)) => {
                work.extend(files);
                facts
            }
            None => side.facts(cp),
        };
        let rewritten = side.relocation.take_rewritten();
        let cleaner = ImageCleaner::new(facts, work, &side.space).with_rewritten(rewritten);
        AggregateCleaning { cleaner, held: HeldBlocks::default() }
    }

    fn superblock(
        &self,
        side: &BlockSide,
        cleaner: &ImageCleaner<PhysicalPointer>,
        cp: CpNumber,
    ) -> Superblock {
        let mut superblock = Superblock::new();
        superblock.clean = U16::new(u16::from(self.state.lock().stopping));
        superblock.aggregate = self.parts.identity.aggregate;
        superblock.log = self.parts.identity.log;
        superblock.set_cp(cp);
        superblock.time = I64::new(self.parts.clock.wall().get());
        superblock.next_volume = U32::new(side.next_volume);
        superblock.traditional = U32::new(u32::from(side.traditional));
        side.settings.store(&mut superblock);
        superblock.root = cleaner.root(&side.space);
        superblock
    }

    /// Makes the image durable, then the superblock.
    fn sync(self: &Arc<Self>, cp: CpNumber, superblock: Superblock) {
        if self.advance(Phase::Syncing).is_err() {
            return;
        }
        if mutation::broken(Rule::LogRetiredEarly) {
            self.parts.log.retire(cp);
        }
        if mutation::broken(Rule::SuperblockBeforeBlocks) {
            self.write_superblock(cp, &superblock);
            return self.parts.store.sync(Box::new(|_| ()));
        }
        let this = Arc::clone(self);
        self.parts.store.sync(Box::new(move |outcome| match outcome {
            Ok(()) => this.write_superblock(cp, &superblock),
            Err(error) => this.fail(error.into()),
        }));
    }

    /// Makes the superblock durable: the commit.
    fn write_superblock(self: &Arc<Self>, cp: CpNumber, superblock: &Superblock) {
        let last_slot = {
            let mut state = self.state.lock();
            if !state.advance(Phase::Sealing, &*self.parts.clock) {
                return;
            }
            state.superblock_slot
        };
        // Never the slot of the last one: it must survive a torn write.
        let is_kept = mutation::broken(Rule::SuperblockSlotKept);
        let slot = if is_kept { last_slot } else { 1 - last_slot };
        let block = Arc::new(superblock.to_block());
        self.pins.note_superblock(cp, &block);
        let this = Arc::clone(self);
        self.parts.store.write_superblock(
            slot,
            block,
            Box::new(move |outcome| match outcome {
                Ok(()) => this.begin_commit(cp, slot),
                Err(error) => this.fail(error.into()),
            }),
        );
    }

    fn begin_commit(self: &Arc<Self>, cp: CpNumber, slot: usize) {
        {
            let mut state = self.state.lock();
            if !state.advance(Phase::Committing, &*self.parts.clock) {
                return;
            }
            state.superblock_slot = slot;
        }
        let this = Arc::clone(self);
        let message = move |access: &mut Access<'_>| {
            this.commit(access, cp);
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.affinity, Box::new(message));
    }

    fn commit(self: &Arc<Self>, access: &mut Access<'_>, cp: CpNumber) {
        if self.is_failed() {
            return;
        }
        let side = self.block_side.write(access);
        let Some(mut cleaning) = side.cleaning.take() else {
            unreachable!("a commit follows a cleaning")
        };
        let cleaned = cleaning.cleaner.take_cleaned();
        let given_up = cleaning.cleaner.take_given_up();
        side.publish(&cleaned);
        let freed = self.freed(side);
        // No space is below this one.
        drop(side.space.drain_released());
        side.refill.note_commit();
        self.count_picks(side);
        self.count_areas(side);
        self.loads.note_freed(&freed);
        self.reclaim(side, &freed);
        self.relocated(side, &freed);
        *self.tiers.write() = Tiers::of(side);
        self.send_forget(freed);
        self.note_leaving(side);
        self.end_leaving(side);
        settle_budget(&self.parts.shared, side, &self.parts.store.geometry());
        self.statistics.used_blocks.store(side.space.used_blocks, Ordering::Relaxed);
        self.statistics.active_blocks.store(side.space.active_blocks, Ordering::Relaxed);
        let mut again = side.is_dirty() || side.space.has_snapshot_work();
        let inode_file = side.space.inode_file.0;
        let members: Vec<_> = self.state.lock().members.values().map(Arc::clone).collect();
        for member in members {
            let published = Published { cleaned: &cleaned, inode_file, given_up: &given_up };
            again |= member.publish(access, &published);
        }
        // Before the commit is told to anyone: what replay would apply is in the image. After the
        // members know what the image lacks: operations that wait for the log are answered now.
        self.parts.log.retire(cp);
        self.set_filling(self.parts.log.active_cp());
        if again {
            // Whatever goes on in the background frees blocks.
            self.parts.shared.budget.note_frees();
        }
        let running = {
            let mut state = self.state.lock();
            if !state.advance(Phase::Idle, &*self.parts.clock) {
                // Who waited was told.
                return;
            }
            state.committed = cp;
            state.requested |= again || !state.actions.is_empty();
            let now = self.parts.clock.monotonic_nanoseconds();
            let duration = now.saturating_sub(state.started_nanoseconds);
            self.statistics.last_cp_nanoseconds.store(duration, Ordering::Relaxed);
            std::mem::take(&mut state.running)
        };
        self.statistics.consistency_points.fetch_add(1, Ordering::Relaxed);
        self.wake_for_room();
        running.into_iter().for_each(|done| done(Ok(())));
        self.start_consistency_point();
    }

    /// Takes blocks out of the cache that nothing points at any more: their memory is worth more to
    /// others. The message comes before every refill that could give their numbers again.
    fn send_forget(self: &Arc<Self>, freed: Vec<u64>) {
        let this = Arc::clone(self);
        let message = move |_: &mut Access<'_>| {
            let gone = freed.iter().filter(|_| !mutation::broken(Rule::CacheEntryKept));
            gone.for_each(|pvbn| this.parts.cache.remove(Pvbn(*pvbn)));
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    /// Has a message run again at the next step that makes room: a freeze empties half of the log,
    /// a commit gives back memory and space. So it waits for what is left of a consistency point,
    /// not for a whole one. Who waits is woken in the order of arrival at the engine, and keeps its
    /// place if it has to wait again (`affinity`'s `state`): what comes later to the same affinity
    /// does not take the room away.
    pub(crate) fn wait_for_room(self: &Arc<Self>, waker: Waker) {
        {
            let mut state = self.state.lock();
            state.room.push(waker);
            state.requested |= state.phase == Phase::Idle;
        }
        self.start_consistency_point();
        if self.is_failed() {
            self.wake_for_room();
        }
    }

    pub(crate) fn wake_for_room(&self) {
        let waiting = std::mem::take(&mut self.state.lock().room);
        Waker::wake_all(waiting);
    }

    /// Takes the aggregate out of service: nothing more is written, everything waiting fails. What
    /// was answered and still gathers for the log goes there: the log is another disk. The first
    /// failure counts.
    pub fn fail(self: &Arc<Self>, error: AggregateError) {
        let (waiting, error, is_first) = {
            let mut state = self.state.lock();
            let is_first = state.failure.is_none();
            state.phase = Phase::Failed;
            let error = state.failure.get_or_insert(error).clone();
            let mut waiting = std::mem::take(&mut state.running);
            waiting.append(&mut state.waiting);
            waiting.extend(state.actions.drain(..).map(|(_, done)| done));
            (waiting, error, is_first)
        };
        self.failed.store(true, Ordering::Release);
        if is_first {
            tracing::error!(aggregate = %self.parts.identity.name, %error, "out of service");
            self.parts.log.push();
            self.let_go_of_memory();
        }
        waiting.into_iter().for_each(|done| done(Err(error.clone())));
        self.wake_for_room();
        Waker::wake_all(self.pool.end_refill());
    }

    /// Lets go of everything that waits: the world that would have ended it is gone (a simulated
    /// power cut). What waits holds the aggregate, and the aggregate holds what waits.
    pub fn abandon(&self) {
        let forgotten = {
            let mut state = self.state.lock();
            let fresh = ConsistencyPoint::new(state.committed, state.superblock_slot);
            std::mem::replace(&mut *state, fresh)
        };
        drop(forgotten);
        drop(self.pool.end_refill());
        self.loads.abandon();
        self.parts.log.abandon();
        self.parts.store.abandon();
    }
}

/// The states and their changes in the language of Graphviz.
#[must_use]
pub fn dot() -> String {
    let mut text = String::from("digraph consistency_point {\n");
    for (from, to) in TRANSITIONS {
        text.push_str(&format!("    {from:?} -> {to:?};\n"));
    }
    text.push_str("}\n");
    text
}
