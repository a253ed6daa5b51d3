//! The node under test: a simulated world, and an engine on it between a start and a power cut.
//!
//! Invariants: everything that happens, happens in [`Machine::step`] or in a call to the engine,
//! on one thread, and follows from the seed.
//!
//! Fails: [`Finding::Stalled`] when something waits and nothing is left to run, however much time
//! passes; [`Finding::Endless`] after [`STEPS_MAX`] steps.

use crate::choices::Choices;
use crate::finding::Finding;
use crate::plan::{Fault, Plan};
use crate::trace::Trace;
use aggregate::{Aggregate, Phase};
use dblade::{Configuration, CreateAggregate, Engine, LogProvider, Recovery, Service};
use platform::Disk;
use platform::disk::DiskOpener;
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use std::sync::Arc;

/// The aggregate's name, and its volume's if it is traditional.
pub const AGGREGATE: &str = "a1";
const LOG_DISK: &str = "log";
/// More steps than a seed can need by far: most take some ten thousand.
const STEPS_MAX: u64 = 5_000_000;
/// A step takes up to this long, about what an SSD takes.
const STEP_NANOSECONDS_MAX: u64 = 100_000;
/// Times that time may pass without anything to run before what waits is called stalled.
const IDLE_MAX: u32 = 20;

struct Logs(SimulatedWorld);

impl LogProvider for Logs {
    fn create(&self, _: [u8; 16]) -> Result<Arc<dyn Disk>, String> {
        self.0.open(LOG_DISK).map_err(|error| error.to_string())
    }

    fn open(&self, aggregate: [u8; 16]) -> Result<Arc<dyn Disk>, String> {
        self.create(aggregate)
    }
}

/// An answer that will come.
pub type Promise<T> = Arc<Mutex<Option<T>>>;

/// See the module.
pub struct Machine<'a> {
    /// What the seed is like.
    pub plan: Plan,
    /// The seed's choices.
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
    is_gone: bool,
    /// The disk that was gone is there again, with what it had when it went.
    is_back: bool,
}

impl<'a> Machine<'a> {
    /// A world with disks and an engine without an aggregate.
    #[must_use]
    pub fn new(seed: u64, plan: Plan, choices: Choices, trace: &'a mut Trace) -> Self {
        let world = SimulatedWorld::new(seed);
        for disk in 0..plan.disks {
            world.add_disk(&disk_name(disk), plan.disk_blocks);
        }
        world.add_disk(LOG_DISK, plan.log_blocks);
        let engine = start(&world, &plan);
        let service = Arc::new(Service(Arc::clone(&engine)));
        Self {
            plan,
            choices,
            trace,
            world,
            engine,
            service,
            may_have_lost: false,
            is_gone: false,
            is_back: false,
        }
    }

    /// Starts a new engine, as after a restart.
    pub fn start(&mut self) {
        self.engine = start(&self.world, &self.plan);
        self.service = Arc::new(Service(Arc::clone(&self.engine)));
    }

    /// The aggregate's disks.
    #[must_use]
    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let is_there = |disk: &usize| !self.is_gone || Some(*disk) != self.faulty_disk();
        let open = |disk| {
            let disk = self.world.disk(&disk_name(disk));
            disk.map(|disk| disk as Arc<dyn Disk>)
        };
        (0..self.plan.disks).filter(is_there).filter_map(open).collect()
    }

    fn faulty_disk(&self) -> Option<usize> {
        self.plan.fault.map(|(disk, _)| disk)
    }

    /// From now on the faulty disk has its fault.
    ///
    /// A disk that goes is noticed before anything else happens: if it went during the same write
    /// of a stripe as the power, that would be two failures at once, and parity makes good one.
    pub fn begin_fault(&mut self) -> Result<(), Finding> {
        let Some((disk, fault)) = self.plan.fault else { return Ok(()) };
        self.trace.meet(fault.name());
        if fault != Fault::Gone {
            self.world.set_fault_rates(&disk_name(disk), fault.rates());
            return Ok(());
        }
        if self.is_gone || self.is_back {
            return Ok(());
        }
        self.trace.note(format!("disk {disk} is gone"));
        self.world.set_gone(&disk_name(disk), true);
        self.is_gone = true;
        if let Some(aggregate) = self.aggregate() {
            aggregate.force();
        }
        self.consistency_point()
    }

    /// The disk that was gone is there again at the next start; it missed what was written since.
    pub fn end_absence(&mut self) {
        let Some((disk, Fault::Gone)) = self.plan.fault else { return };
        if !self.is_gone {
            return;
        }
        self.trace.meet("fault: disk back, with old content");
        self.trace.note(format!("disk {disk} is back"));
        self.world.set_gone(&disk_name(disk), false);
        self.is_gone = false;
        self.is_back = true;
    }

    /// Makes the aggregate.
    pub fn create_aggregate(&mut self) -> Result<(), Finding> {
        let request = CreateAggregate {
            name: AGGREGATE.to_owned(),
            disks: self.disks(),
            kind: self.plan.kind,
            force: false,
            traditional: self.plan.is_traditional,
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

    /// Runs a message or completes a request, as the seed chooses; false if there is neither.
    pub fn step(&mut self) -> bool {
        self.trace.step += 1;
        let prefers_io = self.choices.chance(self.plan.io_percent);
        let found = (prefers_io && self.complete_io())
            || self.run_message()
            || (!prefers_io && self.complete_io());
        self.trace.fold(u64::from(found));
        found
    }

    fn run_message(&mut self) -> bool {
        let choices = &mut self.choices;
        let mut choice = 0;
        let mut choose = |count: usize| {
            choice = choices.index(count);
            choice
        };
        let ran = self.engine.scheduler().run_one(&mut choose);
        self.trace.fold(choice as u64);
        ran
    }

    fn complete_io(&mut self) -> bool {
        let pending = self.world.pending_count();
        if pending == 0 {
            return false;
        }
        let choice = self.choices.index(pending);
        self.world.advance(1 + self.choices.below(STEP_NANOSECONDS_MAX));
        self.trace.fold((pending as u64) << 32 | choice as u64);
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
        let nanoseconds = self.choices.below(2 * self.plan.cp_interval_nanoseconds);
        self.trace.fold(nanoseconds);
        self.world.advance(nanoseconds);
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
        &self,
        idle: u32,
        waiting: impl FnOnce() -> String,
    ) -> Result<(), Finding> {
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
        let Some(aggregate) = self.aggregate() else { unreachable!("the aggregate is open") };
        let committed = promise(|done| aggregate.request_consistency_point(Some(done)));
        self.wait("consistency point", &committed)?.map_err(|error| Finding::Refused {
            request: "consistency point".to_owned(),
            error: error.to_string(),
        })
    }

    /// The power goes.
    pub fn power_cut(&mut self) {
        let pending = self.world.pending();
        let phase = self.aggregate().map(|aggregate| aggregate.phase());
        if let Some(phase) = phase {
            self.trace.meet(phase_name(phase));
        }
        if pending.iter().any(|io| &*io.disk == LOG_DISK) {
            self.trace.meet("cut: with a log write under way");
        }
        self.trace.power_cuts += 1;
        let damages = self.plan.fault.is_some_and(|(_, fault)| fault != Fault::Gone);
        self.may_have_lost |= damages && phase != Some(Phase::Idle);
        self.trace.note(format!("power cut in {phase:?} with {} requests", pending.len()));
        self.engine.halt();
        self.world.power_cut();
    }
}

impl Drop for Machine<'_> {
    /// Lets go of what waits in the engine, which else would keep itself in memory.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.engine.halt();
            self.world.power_cut();
        }
    }
}

fn start(world: &SimulatedWorld, plan: &Plan) -> Arc<Engine> {
    Engine::new(Configuration {
        clock: Arc::new(world.clone()),
        entropy: Arc::new(world.clone()),
        logs: Arc::new(Logs(world.clone())),
        memory_bytes: plan.memory_bytes,
        cp_interval_nanoseconds: plan.cp_interval_nanoseconds,
    })
}

fn disk_name(disk: usize) -> String {
    format!("disk{disk}")
}

/// Starts a call whose answer is kept.
pub fn promise<T: Send + 'static>(call: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> Promise<T> {
    let promise: Promise<T> = Arc::default();
    let place = Arc::clone(&promise);
    call(Box::new(move |value| *place.lock() = Some(value)));
    promise
}

const fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Idle => "cut: between consistency points",
        Phase::Freezing => "cut: freezing",
        Phase::CleaningMembers => "cut: cleaning volumes",
        Phase::CleaningAggregate => "cut: cleaning the aggregate",
        Phase::Syncing => "cut: syncing",
        Phase::Committing => "cut: committing",
        Phase::Failed => "cut: out of service",
    }
}
