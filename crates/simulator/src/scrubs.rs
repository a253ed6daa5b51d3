//! Scrubs that are started, paused, resumed and stopped under load; and one at the end of a life
//! with a disk that damages what it holds, after which nothing is wrong any more.
//!
//! Invariants: an order is refused only because of what the scrub is doing already. After a scrub
//! that ran to its end over a whole group, without faults meanwhile, the independent reader finds
//! nothing: no block in use, no identity, no parity is wrong, unread ones included. Nor does the
//! scrub tell of damage that it could not repair: blocks that crashes left belong to nobody.

use crate::finding::Finding;
use crate::life::Life;
use crate::machine::{AGGREGATE, Machine, Promise, disk_name, promise};
use crate::media::inspect_media;
use aggregate::AggregateError;
use dblade::EngineError;
use ondisk::label::RaidKind;
use ondisk::scrub::ScrubPhase;
use platform::simulated::FaultRates;
use raid::{RaidError, ScrubOrder};

/// Rates that scrubs are started with, in bytes a second: a tetris in a while, some at once, all.
const RATES: [Option<u64>; 4] = [None, None, Some(1 << 20), Some(1 << 32)];

/// An order that is not answered yet.
pub type Ordered = Promise<Result<(), EngineError>>;

impl Machine<'_> {
    /// Something is asked of the scrub.
    pub fn change_scrub(&mut self) {
        if self.scrub.is_some() {
            return;
        }
        let rate = self.choices.pick(&RATES);
        let order = match self.choices.below(8) {
            0..3 => ScrubOrder::Start { rate },
            3 => ScrubOrder::Stop,
            4..6 => ScrubOrder::Pause,
            _ => ScrubOrder::Resume { rate },
        };
        self.order_scrub(order);
    }

    fn order_scrub(&mut self, order: ScrubOrder) {
        self.trace.note(format!("scrub: {order:?}"));
        self.scrub = Some(promise(|done| self.engine.scrub(AGGREGATE, order, done)));
    }

    /// Takes in how an order was answered.
    pub fn poll_scrub(&mut self) -> Result<(), Finding> {
        let Some(outcome) = self.scrub.as_ref().and_then(|one| one.lock().take()) else {
            return Ok(());
        };
        self.scrub = None;
        match outcome {
            Ok(()) => self.trace.meet("scrub: order obeyed"),
            Err(EngineError::Aggregate(AggregateError::Raid(
                RaidError::ScrubUnderWay | RaidError::ScrubPaused | RaidError::NoScrub,
            ))) => self.trace.meet("scrub: order refused"),
            Err(error) => return Err(self.refused("scrub", &error.to_string())),
        }
        Ok(())
    }

    fn scrub_phase(&self) -> Option<ScrubPhase> {
        let aggregate = self.aggregate()?;
        let scrub = aggregate.parts.store.status().scrub;
        Some(scrub.phase)
    }

    /// A scrub from its beginning to its end, which finds nothing that is beyond repair.
    fn scrub_whole(&mut self) -> Result<(), Finding> {
        self.consistency_point()?;
        self.stop_scrub()?;
        self.scrub_must(ScrubOrder::Start { rate: None })?;
        self.drive_until("a scrub", |machine| machine.scrub_phase() != Some(ScrubPhase::Running))?;
        self.settle()?;
        let Some(aggregate) = self.aggregate() else { return Ok(()) };
        let scrub = aggregate.parts.store.status().scrub;
        self.trace.meet_times("scrub: blocks repaired at the end of a life", scrub.repaired());
        if scrub.damaged == 0 {
            return Ok(());
        }
        let found: Vec<String> = scrub.findings.iter().map(ToString::to_string).collect();
        let what = "damage that a scrub tells at the end of a life".to_owned();
        Err(Finding::Listing { what, expected: "none".to_owned(), found: found.join(", ") })
    }

    /// Has no scrub run or be paused.
    pub fn stop_scrub(&mut self) -> Result<(), Finding> {
        if matches!(self.scrub_phase(), Some(ScrubPhase::Running | ScrubPhase::Paused)) {
            self.scrub_must(ScrubOrder::Stop)?;
        }
        Ok(())
    }

    /// Has the scrub do this, and waits until it did.
    fn scrub_must(&mut self, order: ScrubOrder) -> Result<(), Finding> {
        self.order_scrub(order);
        self.drive_until("an order to the scrub", |machine| {
            machine.scrub.as_ref().is_none_or(|answer| answer.lock().is_some())
        })?;
        self.poll_scrub()
    }
}

impl Life<'_> {
    /// At the end of a life: what the faulty disk has damaged, read or unread, a scrub makes good;
    /// and of what crashes left it tells nothing, of some of the lives.
    pub(crate) fn scrub_at_end(&mut self) -> Result<(), Finding> {
        let is_looked_at = self.events.chance(25);
        let machine = &mut self.machine;
        if machine.is_damaged() {
            // It would tell of what was damaged on purpose.
            return Ok(());
        }
        let Some((disk, _)) = machine.plan.fault.filter(|(_, fault)| fault.damages()) else {
            return if is_looked_at { machine.scrub_whole() } else { Ok(()) };
        };
        machine.world.set_fault_rates(&disk_name(disk), FaultRates::default());
        let counters = machine.world.counters();
        // With two writes lost, a block and its identity, what was there before proves itself.
        let is_repairable = !machine.may_have_lost
            && counters.lost_writes <= 1
            && counters.misdirected_writes <= 1
            && machine.plan.kind != RaidKind::None;
        let aggregate = machine.aggregate();
        let is_whole =
            aggregate.is_some_and(|aggregate| !aggregate.parts.store.status().is_degraded());
        if !is_repairable || !is_whole {
            machine.trace.meet("scrub: not judged, too much was damaged");
            return Ok(());
        }
        machine.scrub_whole()?;
        machine.trace.meet("scrub: judged at the end of a life");
        inspect_media(machine)
    }
}
