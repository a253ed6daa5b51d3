//! A node on simulated disks, driven in the target's own thread.
//!
//! Invariants: everything follows from the world's seed and the calls. Every request is answered,
//! soon, whatever is on the disks.
//!
//! Fails: by a panic when a request is not answered though nothing is left to run, or not within
//! [`STEPS_MAX`] steps.

use dblade::{Configuration, Engine, Service, Tuning};
use platform::Disk;
use platform::completion::promise;
use platform::disk::DiskOpener;
use platform::simulated::SimulatedWorld;
use simulator::machine::logs::{LOG_DISK, Logs, SharedLogs};
use std::cell::Cell;
use std::sync::Arc;

/// Steps of a node's whole life: a hundred times what a sound image takes.
const STEPS_MAX: u64 = 2_000_000;
/// Times that time may pass without anything to run before what waits is called forgotten.
const IDLE_MAX: u32 = 20;
/// Memory of the node: a quarter of it may be dirty.
const MEMORY_BYTES: u64 = 8 << 20;
const CP_INTERVAL_NANOSECONDS: u64 = 10_000_000_000;

/// A node between a start and the end of its power.
pub(crate) struct Node {
    pub(crate) world: SimulatedWorld,
    pub(crate) engine: Arc<Engine>,
    pub(crate) service: Arc<Service>,
    steps: Cell<u64>,
}

impl Node {
    /// An engine without an aggregate.
    pub(crate) fn start(world: &SimulatedWorld) -> Self {
        let engine = Engine::new(Configuration {
            clock: Arc::new(world.clone()),
            entropy: Arc::new(world.clone()),
            logs: Arc::new(Logs::new(world, &SharedLogs::default(), 0)),
            memory_bytes: MEMORY_BYTES,
            cp_interval_nanoseconds: CP_INTERVAL_NANOSECONDS,
            tuning: Tuning::default(),
        });
        let service = Arc::new(Service(Arc::clone(&engine)));
        Self { world: world.clone(), engine, service, steps: Cell::new(0) }
    }

    /// All disks but the log's.
    pub(crate) fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let names = self.world.disk_names().into_iter().filter(|name| &**name != LOG_DISK);
        names.filter_map(|name| self.world.open(&name).ok()).collect()
    }

    /// Runs a message or completes a request; false if there is neither.
    pub(crate) fn step(&self) -> bool {
        self.steps.set(self.steps.get() + 1);
        assert!(self.steps.get() < STEPS_MAX, "no end after {STEPS_MAX} steps");
        let mut first = |_: usize| 0;
        self.engine.scheduler().run_one(&mut first) || self.world.step()
    }

    /// A step; if there is nothing to do, time passes and the engine's timer runs.
    pub(crate) fn drive(&self) {
        if !self.step() {
            self.world.advance(CP_INTERVAL_NANOSECONDS);
            self.engine.tick();
        }
    }

    /// Runs what is left to run.
    pub(crate) fn settle(&self) {
        while self.step() {}
    }

    /// Makes a call and drives until it is answered.
    pub(crate) fn wait<T: Send + 'static>(
        &self,
        what: &str,
        call: impl FnOnce(Box<dyn FnOnce(T) + Send>),
    ) -> T {
        let promise = promise(call);
        let mut idle = 0;
        loop {
            if let Some(value) = promise.lock().take() {
                return value;
            }
            if self.step() {
                idle = 0;
            } else {
                assert!(Arc::strong_count(&promise) > 1, "'{what}' will never be answered");
                assert!(idle < IDLE_MAX, "'{what}' is not answered and nothing is left to run");
                idle += 1;
                self.drive();
            }
        }
    }

    /// A consistency point; whether it could be made.
    pub(crate) fn consistency_point(&self) -> bool {
        self.engine.aggregates().into_iter().all(|aggregate| {
            let point = |done| aggregate.request_consistency_point(Some(done));
            self.wait("a consistency point", point).is_ok()
        })
    }
}

impl Drop for Node {
    /// Lets go of what waits in the engine, which else would keep itself in memory.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.engine.halt();
            self.world.power_cut();
        }
    }
}
