//! Scrubs that are started, paused, resumed and stopped under load; and one at the end of a life
//! with a disk that damages what it holds, after which nothing is wrong any more.
//!
//! Invariants: an order is refused only because of what the scrub is doing already. After a scrub
//! that ran to its end over a whole group, without faults meanwhile, the independent reader finds
//! nothing: no block in use, no identity, no parity is wrong, unread ones included.

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
    /// At the end of a life: what the faulty disk has damaged, read or unread, a scrub makes good.
    pub(crate) fn scrub_at_end(&mut self) -> Result<(), Finding> {
        let machine = &mut self.machine;
        let Some((disk, _)) = machine.plan.fault.filter(|(_, fault)| fault.damages()) else {
            return Ok(());
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
        machine.consistency_point()?;
        if matches!(machine.scrub_phase(), Some(ScrubPhase::Running | ScrubPhase::Paused)) {
            machine.scrub_must(ScrubOrder::Stop)?;
        }
        machine.scrub_must(ScrubOrder::Start { rate: None })?;
        machine
            .drive_until("a scrub", |machine| machine.scrub_phase() != Some(ScrubPhase::Running))?;
        machine.settle()?;
        if let Some(aggregate) = machine.aggregate() {
            let repaired = aggregate.parts.store.status().scrub.repaired();
            machine.trace.meet_times("scrub: blocks repaired at the end of a life", repaired);
        }
        machine.trace.meet("scrub: judged at the end of a life");
        inspect_media(machine)
    }
}
