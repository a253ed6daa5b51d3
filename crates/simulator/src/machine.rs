//! The node under test: a simulated world, and an engine on it between a start and a power cut.
//!
//! Invariants: everything that happens, happens in [`Machine::step`] or in a call to the engine,
//! on one thread, and follows from the seed.
//!
//! Fails: [`Finding::Stalled`] when something waits and nothing is left to run, however much time
//! passes; [`Finding::Endless`] after [`STEPS_MAX`] steps; [`Finding::PowerCut`] when the moment
//! has come that [`Machine::arm`] was told.

use crate::choices::{Choices, Purpose};
use crate::clock::ClockOfDay;
use crate::cut::{Cut, choose_fate, phase_name};
use crate::damage::Damages;
use crate::finding::Finding;
use crate::growth::Growing;
use crate::log_faults::LogFaults;
use crate::losses::Losses;
use crate::neighbours::SharedLogs;
use crate::online_check::OnlineCheck;
use crate::overlap::Overlap;
use crate::plan::{Fault, Plan};
use crate::removal::Removals;
use crate::schedule::Chooser;
use crate::scrubs::Ordered;
use crate::sickness::{PASSING_NANOSECONDS, Remembered};
use crate::slots::SlotFaults;
use crate::tiering::Tierings;
use crate::trace::Trace;
use aggregate::{Aggregate, Phase};
use dblade::{Configuration, CreateAggregate, Engine, LogProvider, Recovery, Service};
use platform::Disk;
use platform::disk::DiskOpener;
use platform::simulated::{Fate, FaultRates, SimulatedWorld};
use platform::sync::Mutex;
use platform::watched::Watch;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The aggregate's name, and its volume's if it is traditional.
pub const AGGREGATE: &str = "a1";
/// The name of the log's disk.
pub const LOG_DISK: &str = "log";
/// More steps than a seed can need by far: most take some ten thousand.
const STEPS_MAX: u64 = 2_000_000;
/// A request may take this long; one that has waited for half of it is next, so that the most
/// unfair schedule makes no disk fail.
const DISK_TIMEOUT_NANOSECONDS: u64 = 60_000_000_000;
/// How often time may pass while a request is under way, before its disk counts as failed.
const PASSES_OF_A_REQUEST: u64 = 1000;
/// A step takes up to this long, about what an SSD takes.
const STEP_NANOSECONDS_MAX: u64 = 100_000;
/// Times that time may pass without anything to run before what waits is called stalled.
const IDLE_MAX: u32 = 20;

/// Finds the logs in a world: the first aggregate's, and those of its neighbours.
pub struct Logs(pub SimulatedWorld, pub SharedLogs);

impl LogProvider for Logs {
    fn create(&self, aggregate: [u8; 16]) -> Result<Arc<dyn Disk>, String> {
        let name = self.1.lock().create(aggregate);
        self.0.open(name.as_deref().unwrap_or(LOG_DISK)).map_err(|error| error.to_string())
    }

    fn open(&self, aggregate: [u8; 16]) -> Result<Arc<dyn Disk>, String> {
        let name = self.1.lock().find(&aggregate);
        self.0.open(name.as_deref().unwrap_or(LOG_DISK)).map_err(|error| error.to_string())
    }
}

/// An answer that will come.
pub type Promise<T> = Arc<Mutex<Option<T>>>;

/// See the module.
pub struct Machine<'a> {
    /// What the seed is like.
    pub plan: Plan,
    /// Who runs next, what completes next.
    pub choices: Choices,
    /// What happened.
    pub trace: &'a mut Trace,
    /// The world.
    pub world: SimulatedWorld,
    /// The engine of the present start.
    pub engine: Arc<Engine>,
    /// It as a file service.
    pub service: Arc<Service>,
    /// The power went while stripes were being written, with a disk that damages blocks: where both
    /// meet there are two failures in one stripe, and parity makes good one.
    pub may_have_lost: bool,
    chooser: Chooser,
    overlap: Overlap,
    /// The clock of day.
    pub clock: ClockOfDay,
    /// Gives requests to disks their time.
    pub watch: Arc<Watch>,
    cut: Option<Cut>,
    /// What was asked of the scrub last, if it is not answered.
    pub scrub: Option<Ordered>,
    /// Disks that have gone.
    pub losses: Losses,
    /// Disks that join.
    pub growing: Growing,
    /// Groups that leave.
    pub removals: Removals,
    /// What may lie in objects.
    pub tierings: Tierings,
    /// Blocks that nothing makes good.
    pub damages: Damages,
    log_fails: bool,
    /// An image that is pinned.
    pub online_check: Option<OnlineCheck>,
    /// What is wrong with the log's disk.
    pub log_faults: LogFaults,
    /// Superblock slots that cannot be read at a start.
    pub slots: SlotFaults,
    /// The logs of neighbours.
    pub(crate) logs: SharedLogs,
    /// The neighbour whose disks are gone.
    pub(crate) dead_neighbour: Option<usize>,
    /// What was known of the disks before a clean stop.
    pub(crate) errors_at_stop: Remembered,
}

impl<'a> Machine<'a> {
    /// A world with disks and an engine without an aggregate.
    #[must_use]
    pub fn new(seed: u64, salt: u64, plan: Plan, trace: &'a mut Trace) -> Self {
        let world = SimulatedWorld::new(seed);
        for disk in 0..plan.disks {
            world.add_disk(&disk_name(disk), plan.disk_blocks);
        }
        world.add_disk(LOG_DISK, plan.log_blocks);
        let logs = SharedLogs::default();
        let engine = start(&world, &logs, &plan);
        let service = Arc::new(Service(Arc::clone(&engine)));
        trace.meet(plan.messages.name());
        trace.meet(plan.requests.name());
        let overlap = Overlap::new(Choices::of(seed, Purpose::Overlap, salt), plan.overlap_percent);
        overlap.watch(&world, &engine);
        let watch = Watch::new(Arc::new(world.clone()), DISK_TIMEOUT_NANOSECONDS);
        Self {
            watch,
            choices: Choices::of(seed, Purpose::Schedule, salt),
            chooser: Chooser::new(plan.messages, plan.requests),
            plan,
            trace,
            world,
            engine,
            service,
            may_have_lost: false,
            overlap,
            clock: ClockOfDay::new(seed, salt),
            cut: None,
            scrub: None,
            losses: Losses::default(),
            growing: Growing::default(),
            removals: Removals::default(),
            tierings: Tierings::default(),
            damages: Damages::default(),
            log_fails: false,
            online_check: None,
            log_faults: LogFaults::default(),
            slots: SlotFaults::default(),
            logs,
            dead_neighbour: None,
            errors_at_stop: Remembered::default(),
        }
    }

    /// Starts a new engine, as after a restart.
    pub fn start(&mut self) {
        self.release_log();
        self.online_check = None;
        self.engine = start(&self.world, &self.logs, &self.plan);
        self.service = Arc::new(Service(Arc::clone(&self.engine)));
        self.overlap.watch(&self.world, &self.engine);
    }

    /// From now on the faulty disk has its fault.
    pub fn begin_fault(&mut self) {
        let Some((disk, fault)) = self.plan.fault else { return };
        self.trace.meet(fault.name());
        let name = if fault == Fault::Log { LOG_DISK.to_owned() } else { disk_name(disk) };
        self.log_fails |= fault == Fault::Log;
        self.world.set_fault_rates(&name, fault.rates());
    }

    /// Faults that do not last are over: the log's, and that of a disk that forgets.
    pub fn end_fault(&mut self) {
        let Some((disk, fault)) = self.plan.fault else { return };
        match fault {
            Fault::Log => {
                self.log_fails = false;
                self.world.set_fault_rates(LOG_DISK, FaultRates::default());
            }
            Fault::Forgets => {
                self.world.set_fault_rates(&disk_name(disk), FaultRates::default());
            }
            _ => {}
        }
    }

    /// Whether the log's disk has refused anything, or may.
    #[must_use]
    pub const fn log_fails(&self) -> bool {
        self.log_fails
    }

    /// Makes the aggregate.
    pub fn create_aggregate(&mut self, force: bool) -> Result<(), Finding> {
        let disks = (0..self.plan.disks).filter_map(|disk| self.world.disk(&disk_name(disk)));
        let request = CreateAggregate {
            name: AGGREGATE.to_owned(),
            disks: disks.map(|disk| self.watch.over(disk)).collect(),
            kind: self.plan.kind,
            group_size: self.plan.disks,
            force,
            traditional: self.plan.is_traditional,
            media: None,
        };
        let promise = promise(|done| self.engine.create_aggregate(request, done));
        self.wait("create aggregate", &promise)?.map_err(|error| Finding::Refused {
            request: "create aggregate".to_owned(),
            error: error.to_string(),
        })
    }

    /// Begins to open the aggregate.
    #[must_use]
    pub fn open_aggregate(&self) -> Promise<Result<Recovery, dblade::EngineError>> {
        promise(|done| self.engine.open_aggregate(self.disks(), done))
    }

    /// The aggregate, when it is open.
    #[must_use]
    pub fn aggregate(&self) -> Option<Arc<Aggregate>> {
        self.engine.aggregate_named(AGGREGATE)
    }

    /// Where the consistency point is.
    #[must_use]
    pub fn phase(&self) -> Option<Phase> {
        self.aggregate().map(|aggregate| aggregate.phase())
    }

    /// Runs a message or completes a request, as the seed chooses; false if there is neither.
    pub fn step(&mut self) -> bool {
        self.trace.step += 1;
        let prefers_io = self.choices.chance(self.plan.io_percent);
        let found = (prefers_io && self.complete_io())
            || self.run_message()
            || (!prefers_io && self.complete_io());
        self.trace.fold(u64::from(found));
        let overlapped = self.overlap.take_count();
        if overlapped > 0 {
            self.trace.fold(overlapped);
            self.trace.meet_times("schedule: a message in the middle of another", overlapped);
        }
        found
    }

    fn run_message(&mut self) -> bool {
        let Self { choices, chooser, engine, .. } = self;
        let mut choice = 0;
        let mut choose = |ready: &[affinity::AffinityId]| {
            choice = chooser.message(ready, choices);
            choice
        };
        let ran = engine.scheduler().run_one_of(&mut choose);
        self.trace.fold(choice as u64);
        ran
    }

    fn complete_io(&mut self) -> bool {
        let count = self.world.pending_count();
        if count == 0 {
            return false;
        }
        let world = &self.world;
        let choice = match world.longest_wait() {
            // A disk that does not hang answers before it counts as failed, however unfair.
            Some((oldest, nanoseconds)) if nanoseconds > DISK_TIMEOUT_NANOSECONDS / 2 => oldest,
            _ => self.chooser.request(count, || world.pending(), &mut self.choices),
        };
        self.world.advance(1 + self.choices.below(STEP_NANOSECONDS_MAX));
        self.trace.fold((count as u64) << 32 | choice as u64);
        self.trace.remark(|| match self.world.pending().get(choice) {
            Some(io) => {
                format!("{:?} of {} at {}, {} blocks", io.kind, io.disk, io.block, io.count)
            }
            None => String::new(),
        });
        self.world.complete_one(choice)
    }

    /// A step; if there is nothing to do, time passes and the engine's timer runs.
    pub fn drive(&mut self) {
        if !self.step() {
            self.pass_time();
        }
    }

    /// Time passes, as long as the timer of consistency points at most, and the timer runs.
    pub fn pass_time(&mut self) {
        self.release_log();
        let mut nanoseconds = self.choices.below(2 * self.plan.cp_interval_nanoseconds);
        if self.world.held_count() > 0 && self.world.pending_count() == 0 {
            // Nothing happens but that a disk does not answer.
            nanoseconds += DISK_TIMEOUT_NANOSECONDS / 2;
        }
        if self.world.pending_count() > 0 {
            // A disk that does not hang answers long before it counts as failed.
            nanoseconds = nanoseconds.min(DISK_TIMEOUT_NANOSECONDS / PASSES_OF_A_REQUEST);
        }
        let is_idle = self.world.pending_count() == 0 && self.world.held_count() == 0;
        if self.has_sick_disk() && is_idle {
            nanoseconds += PASSING_NANOSECONDS;
        }
        self.trace.fold(nanoseconds);
        self.world.advance(nanoseconds);
        self.set_clock();
        self.watch.expire();
        self.engine.tick();
    }

    /// Drives until `is_over`, which `waiting` describes.
    pub fn drive_until(
        &mut self,
        waiting: &str,
        mut is_over: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Finding> {
        let mut idle = 0;
        while !is_over(self) {
            if self.step() {
                idle = 0;
            } else {
                self.pass_time();
                idle += 1;
            }
            self.check_progress(idle, || waiting.to_owned())?;
        }
        Ok(())
    }

    /// Whether the machine gets on: `idle` is how often in a row there was nothing to run.
    pub fn check_progress(
        &mut self,
        idle: u32,
        waiting: impl FnOnce() -> String,
    ) -> Result<(), Finding> {
        if let Some(violation) = self.overlap.take_violation() {
            return Err(Finding::Exclusion(violation));
        }
        if self.is_cut_due() {
            return Err(Finding::PowerCut);
        }
        self.note_outage()?;
        if idle > IDLE_MAX {
            return Err(Finding::Stalled { waiting: waiting() });
        }
        if self.trace.step > STEPS_MAX {
            return Err(Finding::Endless { steps: STEPS_MAX, waiting: waiting() });
        }
        Ok(())
    }

    /// Drives until the promise is kept.
    pub fn wait<T>(&mut self, what: &str, promise: &Promise<T>) -> Result<T, Finding> {
        let mut value = None;
        self.drive_until(what, |_| {
            value = promise.lock().take();
            value.is_some()
        })?;
        let Some(value) = value else { unreachable!("it was driven until the value was there") };
        Ok(value)
    }

    /// Runs what is left to run, background work included.
    pub fn settle(&mut self) -> Result<(), Finding> {
        while self.step() {
            self.check_progress(0, || "background work".to_owned())?;
        }
        Ok(())
    }

    /// A consistency point of everything up to now.
    pub fn consistency_point(&mut self) -> Result<(), Finding> {
        let Some(aggregate) = self.aggregate() else {
            return Err(self.refused("consistency point", "the aggregate is not open"));
        };
        let committed = promise(|done| aggregate.request_consistency_point(Some(done)));
        let outcome = self.wait("consistency point", &committed)?;
        match outcome {
            Ok(()) => Ok(()),
            Err(error) => Err(self.refused("consistency point", &error.to_string())),
        }
    }

    /// A request of management was refused: with a log that fails that is right, and only a
    /// restart helps. Nor is it wrong while too many disks are gone.
    pub fn refused(&mut self, request: &str, error: &str) -> Finding {
        if let Err(outage) = self.note_outage() {
            return outage;
        }
        if self.log_fails {
            return Finding::PowerCut;
        }
        Finding::Refused { request: request.to_owned(), error: error.to_owned() }
    }

    /// Something cannot be read: with a log that fails that is right if the aggregate went out of
    /// service, as blocks that move may have it do while nobody asks for anything.
    pub fn excused(&self, finding: Finding) -> Finding {
        let is_failed = self.aggregate().is_some_and(|aggregate| aggregate.is_failed());
        let is_excuse = self.log_fails && is_failed && finding.is_known_loss();
        if is_excuse { Finding::PowerCut } else { finding }
    }

    /// The power is to go at this moment, or not at all.
    pub fn arm(&mut self, cut: Option<Cut>) {
        self.cut = cut;
    }

    fn is_cut_due(&mut self) -> bool {
        let Some(cut) = self.cut else { return false };
        let step = self.trace.step;
        match cut {
            Cut::At(at) => step >= at,
            Cut::AtBoundary(boundary) => self.world.counters().boundaries >= boundary,
            Cut::InPhase { phase, after, steps } => {
                let is_there = step >= after && self.phase() == Some(phase);
                if is_there {
                    self.cut = Some(Cut::At(step + steps));
                }
                is_there && steps == 0
            }
        }
    }

    /// The power goes, and takes of what is not flushed what the seed chose.
    pub fn cut_power(&mut self, choices: &mut Choices) {
        let phase = self.phase();
        let fate = choose_fate(choices, phase, |choices| self.disk_to_seal(choices));
        self.power_cut(fate);
        self.note_sealed(fate);
    }

    /// The power goes.
    pub fn power_cut(&mut self, fate: Fate) {
        self.end(&format!("power cut, {fate:?}"), |world| world.power_cut_with(fate));
    }

    /// The process dies: what was written is there at the next start, flushed or not.
    pub fn kill(&mut self) {
        self.trace.meet("kill: the process dies and the machine goes on");
        self.end("process killed", SimulatedWorld::kill);
    }

    fn end(&mut self, how: &str, end: impl FnOnce(&SimulatedWorld)) {
        self.cut = None;
        self.remember_members();
        self.forget_requests_for_disks();
        self.forget_growth();
        self.forget_removal();
        let pending = self.world.pending();
        let phase = self.phase();
        if let Some(phase) = phase {
            self.trace.meet(phase_name(phase));
        }
        if pending.iter().any(|io| &*io.disk == LOG_DISK) {
            self.trace.meet("cut: with a log write under way");
        }
        self.count_stores();
        self.trace.power_cuts += 1;
        let damages = self.plan.fault.is_some_and(|(_, fault)| fault.damages());
        self.may_have_lost |= damages && phase != Some(Phase::Idle);
        // A block and its identity that are both lost leave the pair that was there before, which
        // proves itself.
        self.may_have_lost |= self.world.counters().lost_writes > 1;
        let count = pending.len();
        self.trace.note(format!("{how} in {phase:?} with {count} requests"));
        self.world.set_submit_hook(None);
        self.engine.halt();
        end(&self.world);
    }

    /// What the engine's store has counted since its start.
    fn count_stores(&mut self) {
        let Some(aggregate) = self.aggregate() else { return };
        let counters = aggregate.parts.store.status().counters;
        let moved = aggregate.statistics.moved_blocks.load(Ordering::Relaxed);
        let returned = aggregate.statistics.returned_blocks.load(Ordering::Relaxed);
        let shares = aggregate.statistics.cleaned_shares.load(Ordering::Relaxed);
        self.trace.meet_times("consistency point: files cleaned in shares", shares);
        let frees = aggregate.statistics.frees.sum();
        self.trace.meet_times("frees: delayed", frees.delayed);
        self.trace.meet_times("frees: pages cleared", frees.pages);
        let emptied = aggregate.statistics.emptied_areas.load(Ordering::Relaxed);
        let out = aggregate.statistics.emptying_moved_blocks.load(Ordering::Relaxed);
        let own = aggregate.statistics.emptying_rewritten_blocks.load(Ordering::Relaxed);
        let trace = &mut self.trace;
        trace.meet_times("areas: emptied", emptied);
        trace.meet_times("areas: blocks moved out of them", out);
        trace.meet_times("areas: the aggregate's own blocks in them written again", own);
        trace.meet_times("relocation: blocks moved", moved);
        trace.meet_times("relocation: blocks moved back", returned);
        trace.meet_times("store: blocks repaired from parity", counters.repaired_blocks);
        trace.meet_times("store: blocks not repaired", counters.damaged_blocks);
        trace.meet_times("store: partial tetris writes", counters.partial_tetris_writes);
        trace.meet_times("store: stripes of which old parity was read", counters.modified_stripes);
    }

    /// What the world has counted in the whole life.
    pub fn count_world(&mut self) {
        self.count_stores();
        let counters = self.world.counters();
        for (what, times) in [
            ("world: unflushed writes kept", counters.kept_at_cuts),
            ("world: unflushed writes lost", counters.lost_at_cuts),
            ("world: unflushed writes torn", counters.torn_at_cuts),
            ("world: latent errors", counters.latent_errors),
            ("world: bits flipped", counters.flipped_bits),
            ("world: acknowledged writes lost", counters.lost_writes),
            ("world: writes misdirected", counters.misdirected_writes),
            ("world: writes refused", counters.refused_writes),
            ("world: blocks discarded", counters.discarded_blocks),
        ] {
            self.trace.meet_times(what, times);
        }
    }
}

impl Drop for Machine<'_> {
    /// Lets go of what waits in the engine, which else would keep itself in memory.
    fn drop(&mut self) {
        self.world.set_submit_hook(None);
        if !std::thread::panicking() {
            self.engine.halt();
            self.world.power_cut();
        }
    }
}

fn start(world: &SimulatedWorld, logs: &SharedLogs, plan: &Plan) -> Arc<Engine> {
    Engine::new(Configuration {
        clock: Arc::new(world.clone()),
        entropy: Arc::new(world.clone()),
        logs: Arc::new(Logs(world.clone(), Arc::clone(logs))),
        memory_bytes: plan.memory_bytes,
        cp_interval_nanoseconds: plan.cp_interval_nanoseconds,
        tuning: plan.tuning,
    })
}

pub(crate) fn disk_name(disk: usize) -> String {
    format!("disk{disk}")
}

/// Starts a call whose answer is kept.
pub fn promise<T: Send + 'static>(call: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> Promise<T> {
    let promise: Promise<T> = Arc::default();
    let place = Arc::clone(&promise);
    call(Box::new(move |value| *place.lock() = Some(value)));
    promise
}
