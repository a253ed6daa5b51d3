//! The node under test: a simulated world, and an engine on it between a start and a power cut.
//!
//! Invariants: everything that happens, happens in [`Machine::step`] or in a call to the engine,
//! on one thread, and follows from the seed.
//!
//! The machine knows facts about its world (which disks are there, what was damaged, whether the
//! log is to be trusted) and nothing of who brings them about: faults, management, tenants and
//! lives stand above it. Its files stand on one another in this order:
//!
//! | part | what it does |
//! | --- | --- |
//! | `clock`, [`cut`], `damages`, [`logs`], [`overlap`], [`schedule`] | parts |
//! | this file | what the machine is made of, and starts |
//! | [`disks`], [`outage`] | which disks are there |
//! | `steps` | one step at a time, and driving |
//! | `requests`, `ends` | requests to the engine; power cuts and kills |

pub mod clock;
pub mod cut;
pub mod damages;
pub mod disks;
mod ends;
pub mod logs;
pub mod outage;
pub mod overlap;
mod requests;
pub mod schedule;
mod steps;

use crate::plan::{Fault, Plan};
use crate::seed::choices::{Choices, Purpose};
use crate::seed::trace::Trace;
use aggregate::{Aggregate, Phase};
use clock::ClockOfDay;
use cut::Cut;
use damages::Damages;
use dblade::{Configuration, Engine, LostLog, Service};
use disks::Disks;
use logs::{LOG_DISK, Logs, SharedLogs};
use outage::Outage;
use overlap::Overlap;
use platform::simulated::{FaultRates, SimulatedWorld};
use platform::watched::Watch;
use schedule::Chooser;
use std::sync::Arc;

/// The aggregate's name, and its volume's if it is traditional.
pub const AGGREGATE: &str = "a1";
/// A request may take this long; one that has waited for half of it is next, so that the most
/// unfair schedule makes no disk fail.
const DISK_TIMEOUT_NANOSECONDS: u64 = 60_000_000_000;

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
    /// Disks that are gone, hang or refuse writes.
    pub(crate) disks: Disks,
    outage: Outage,
    /// Blocks that nothing makes good.
    pub damages: Damages,
    log_fails: bool,
    log_hangs: bool,
    /// The log's disk may have lost records that were acknowledged.
    pub log_is_suspect: bool,
    /// What the next start does if the log is lost and needed.
    pub if_log_is_lost: LostLog,
    /// The logs of neighbours.
    pub(crate) logs: SharedLogs,
    /// The neighbour whose disks are gone.
    pub(crate) dead_neighbour: Option<usize>,
}

impl<'a> Machine<'a> {
    /// A world with disks and an engine without an aggregate.
    #[must_use]
    pub fn new(seed: u64, salt: u64, plan: Plan, trace: &'a mut Trace) -> Self {
        let world = SimulatedWorld::new(seed);
        for disk in 0..plan.disks {
            world.add_disk(&disk_name(disk), plan.disk_blocks);
        }
        if !plan.is_log_on_disks {
            world.add_disk(LOG_DISK, plan.log_blocks);
        }
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
            disks: Disks::default(),
            outage: Outage::default(),
            damages: Damages::default(),
            log_fails: false,
            log_hangs: false,
            log_is_suspect: false,
            if_log_is_lost: LostLog::Refused,
            logs,
            dead_neighbour: None,
        }
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

    /// Whether the log's disk answers nothing.
    #[must_use]
    pub const fn log_hangs(&self) -> bool {
        self.log_hangs
    }

    /// The log's disk answers nothing, from now on.
    pub fn hang_log(&mut self) {
        self.log_hangs = true;
        self.trace.note("the log hangs".to_owned());
        self.trace.meet("log: hangs");
        self.world.set_hung(LOG_DISK, true);
    }

    /// It answers, late: nothing else is left to do, or the node starts.
    pub fn release_log(&mut self) {
        if std::mem::take(&mut self.log_hangs) {
            self.trace.note("the log answers".to_owned());
            self.world.set_hung(LOG_DISK, false);
        }
    }

    /// Starts a new engine, as after a restart.
    pub fn start(&mut self) {
        self.release_log();
        self.engine = start(&self.world, &self.logs, &self.plan);
        self.service = Arc::new(Service(Arc::clone(&self.engine)));
        self.overlap.watch(&self.world, &self.engine);
    }

    /// The aggregate, when it is open.
    #[must_use]
    pub fn aggregate(&self) -> Option<Arc<Aggregate>> {
        self.engine.aggregate_named(AGGREGATE)
    }

    /// Whether any block of a volume has been damaged, perhaps while the volume was made.
    pub(crate) fn has_damaged(&self, volume: &str) -> bool {
        let served = self.engine.volume_named(volume);
        served.is_some_and(|served| self.damages.is_of(served.environment.volume))
    }

    /// Where the consistency point is.
    #[must_use]
    pub fn phase(&self) -> Option<Phase> {
        self.aggregate().map(|aggregate| aggregate.phase())
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
        logs: Arc::new(Logs::new(world, logs, plan.log_blocks_on_disks())),
        memory_bytes: plan.memory_bytes,
        cp_interval_nanoseconds: plan.cp_interval_nanoseconds,
        tuning: plan.tuning,
    })
}

pub(crate) fn disk_name(disk: usize) -> String {
    format!("disk{disk}")
}
