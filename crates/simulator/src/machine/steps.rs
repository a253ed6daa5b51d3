//! The machine's steps: a message runs, a request completes, or time passes; and driving it until
//! something has come.
//!
//! Fails: [`Finding::Stalled`] when something waits and nothing is left to run, however much time
//! passes; [`Finding::Endless`] after [`STEPS_MAX`] steps; [`Finding::PowerCut`] when the moment
//! has come that [`Machine::arm`] was told; [`Finding::Outage`] when too many disks are gone.

use super::cut::Cut;
use super::{DISK_TIMEOUT_NANOSECONDS, Machine};
use crate::seed::finding::Finding;
use platform::completion::Promise;

/// More steps than a seed can need by far: most take some ten thousand.
const STEPS_MAX: u64 = 2_000_000;
/// How often time may pass while a request is under way, before its disk counts as failed.
const PASSES_OF_A_REQUEST: u64 = 1000;
/// A step takes up to this long, about what an SSD takes.
const STEP_NANOSECONDS_MAX: u64 = 100_000;
/// Times that time may pass without anything to run before what waits is called stalled.
const IDLE_MAX: u32 = 20;
/// Time that passes at once in lives with a sick disk while no disk is asked for anything, beside
/// what passes in others: after a few times the engine looks whose place is due.
const SICK_PASSING_NANOSECONDS: u64 = 300_000_000;

impl Machine<'_> {
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
        if self.plan.has_sick_disk() && is_idle {
            nanoseconds += SICK_PASSING_NANOSECONDS;
        }
        self.trace.fold(nanoseconds);
        self.world.advance(nanoseconds);
        self.clock.pass(&self.world, self.trace);
        self.watch.expire();
        self.engine.tick();
        if self.plan.is_log_on_disks {
            self.engine.mend_logs();
        }
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
}
