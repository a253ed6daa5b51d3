//! Scrubs that are started, paused, resumed and stopped under load; and one at the end of a life
//! with a disk that damages what it holds, after which nothing is wrong any more.
//!
//! Invariants: an order is refused only because of what the scrub is doing already. After a scrub
//! that ran to its end over a whole group, without faults meanwhile, the independent reader finds
//! nothing: no block in use, no identity, no parity is wrong, unread ones included. Nor does the
//! scrub tell of damage that it could not repair: blocks that crashes left belong to nobody.
//!
//! But for one case, in which the scrub may tell and must not repair: the parity disk of RAID-4 has
//! rotten parity, and beside it the parity of the identities cannot be read. Nothing then tells
//! that from a write, block and identity, which a data disk lost, and of which parity is the only
//! copy. What the reader finds is what the scrub told, and no more.

use crate::checks::media::{inspect_media, report_of_media};
use crate::machine::{AGGREGATE, Machine, disk_name};
use crate::seed::finding::Finding;
use aggregate::AggregateError;
use dblade::EngineError;
use inspect::Finding as MediaFinding;
use ondisk::identity::{REGION_BLOCKS, REGION_DATA_BLOCKS};
use ondisk::label::RaidKind;
use ondisk::scrub::ScrubPhase;
use platform::completion::{Promise, promise};
use platform::simulated::FaultRates;
use raid::{RaidError, ScrubFinding, ScrubOrder, TetrisId};
use std::collections::{BTreeMap, BTreeSet};

/// Rates that scrubs are started with, in bytes a second: a tetris in a while, some at once, all.
const RATES: [Option<u64>; 4] = [None, None, Some(1 << 20), Some(1 << 32)];

/// See the module.
#[derive(Default)]
pub struct Scrubs {
    /// An order that is not answered yet.
    order: Option<Promise<Result<(), EngineError>>>,
}

impl Scrubs {
    /// Something is asked of the scrub.
    pub fn change(&mut self, machine: &mut Machine<'_>) {
        if self.order.is_some() {
            return;
        }
        let rate = machine.choices.pick(&RATES);
        let order = match machine.choices.below(8) {
            0..3 => ScrubOrder::Start { rate },
            3 => ScrubOrder::Stop,
            4..6 => ScrubOrder::Pause,
            _ => ScrubOrder::Resume { rate },
        };
        self.order(machine, order);
    }

    fn order(&mut self, machine: &mut Machine<'_>, order: ScrubOrder) {
        machine.trace.note(format!("scrub: {order:?}"));
        self.order = Some(promise(|done| machine.engine.scrub(AGGREGATE, order, done)));
    }

    /// The engine that was asked is no more.
    pub fn forget(&mut self) {
        self.order = None;
    }

    /// Takes in how an order was answered.
    pub fn poll(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let Some(outcome) = self.order.as_ref().and_then(|one| one.lock().take()) else {
            return Ok(());
        };
        self.order = None;
        match outcome {
            Ok(()) => machine.trace.meet("scrub: order obeyed"),
            Err(EngineError::Aggregate(AggregateError::Raid(
                RaidError::ScrubUnderWay | RaidError::ScrubPaused | RaidError::NoScrub,
            ))) => machine.trace.meet("scrub: order refused"),
            Err(error) => return Err(machine.refused("scrub", &error.to_string())),
        }
        Ok(())
    }

    /// A scrub from its beginning to its end; what it tells of as beyond repair.
    fn scrub_whole(&mut self, machine: &mut Machine<'_>) -> Result<Vec<ScrubFinding>, Finding> {
        machine.consistency_point()?;
        self.stop(machine)?;
        self.must(machine, ScrubOrder::Start { rate: None })?;
        machine.drive_until("a scrub", |machine| phase(machine) != Some(ScrubPhase::Running))?;
        machine.settle()?;
        let Some(aggregate) = machine.aggregate() else { return Ok(Vec::new()) };
        let scrub = aggregate.parts.store.status().scrub;
        machine.trace.meet_times("scrub: blocks repaired at the end of a life", scrub.repaired());
        if scrub.damaged as usize > scrub.findings.len() {
            // More than it names.
            return Err(told(&scrub.findings));
        }
        Ok(scrub.findings)
    }

    /// After a start without notes of stripes.
    pub(crate) fn await_parity(machine: &mut Machine<'_>) -> Result<(), Finding> {
        machine.drive_until("a scrub", |machine| phase(machine) != Some(ScrubPhase::Running))?;
        machine.settle()
    }

    /// Has no scrub run or be paused.
    pub fn stop(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        if matches!(phase(machine), Some(ScrubPhase::Running | ScrubPhase::Paused)) {
            self.must(machine, ScrubOrder::Stop)?;
        }
        Ok(())
    }

    /// Has the scrub do this, and waits until it did.
    fn must(&mut self, machine: &mut Machine<'_>, order: ScrubOrder) -> Result<(), Finding> {
        self.order(machine, order);
        machine.drive_until("an order to the scrub", |_| {
            self.order.as_ref().is_none_or(|answer| answer.lock().is_some())
        })?;
        self.poll(machine)
    }

    /// At the end of a life: what the faulty disk has damaged, read or unread, a scrub makes good;
    /// and of what crashes left it tells nothing, of some of the lives: those that are looked at.
    pub(crate) fn judge(
        &mut self,
        machine: &mut Machine<'_>,
        is_looked_at: bool,
    ) -> Result<(), Finding> {
        if machine.damages.is_any() {
            // It would tell of what was damaged on purpose.
            return Ok(());
        }
        let Some((disk, _)) = machine.plan.fault.filter(|(_, fault)| fault.damages()) else {
            let findings = if is_looked_at { self.scrub_whole(machine)? } else { Vec::new() };
            return if findings.is_empty() { Ok(()) } else { Err(told(&findings)) };
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
        let findings = self.scrub_whole(machine)?;
        machine.trace.meet("scrub: judged at the end of a life");
        check_scrubbed(machine, &findings)
    }
}

/// What a scrub should not have to tell.
fn told(findings: &[ScrubFinding]) -> Finding {
    let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let what = "damage that a scrub tells at the end of a life".to_owned();
    Finding::Listing { what, expected: "none".to_owned(), found: found.join(", ") }
}

/// What a scrub told, and the reader of the media finds after it, is nothing; or what it may
/// leave alone.
fn check_scrubbed(machine: &mut Machine<'_>, findings: &[ScrubFinding]) -> Result<(), Finding> {
    if findings.is_empty() {
        return inspect_media(machine);
    }
    let doubtful = rows_of(findings).filter(|_| machine.plan.kind == RaidKind::Raid4);
    let doubtful = doubtful.ok_or_else(|| told(findings))?;
    let found = report_of_media(machine)?.findings;
    for tetris in doubtful.keys() {
        if !found.contains(&unreadable_identities(*tetris)) {
            return Err(told(findings));
        }
    }
    let is_told = |finding: &&MediaFinding| match finding {
        MediaFinding::Parity { group, region, row } => {
            let tetris = TetrisId { group: *group, region: *region };
            doubtful.get(&tetris).is_some_and(|rows| rows.contains(row))
        }
        other => doubtful.keys().any(|tetris| **other == unreadable_identities(*tetris)),
    };
    let others: Vec<_> = found.iter().filter(|finding| !is_told(finding)).collect();
    if !others.is_empty() {
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        return Err(Finding::Media(others.join("\n")));
    }
    machine.trace.meet("scrub: told of rotten parity beside identities that cannot be read");
    Ok(())
}

/// The rows of which a scrub tells; `None` if it tells of anything else.
fn rows_of(findings: &[ScrubFinding]) -> Option<BTreeMap<TetrisId, BTreeSet<usize>>> {
    let mut rows: BTreeMap<TetrisId, BTreeSet<usize>> = BTreeMap::new();
    for finding in findings {
        let ScrubFinding::Row { tetris, row } = finding else { return None };
        rows.entry(*tetris).or_default().insert(*row);
    }
    Some(rows)
}

/// What the reader of the media says of a parity disk of RAID-4 that cannot read what it has of the
/// identities of a tetris.
const fn unreadable_identities(TetrisId { group, region }: TetrisId) -> MediaFinding {
    let block = media::DATA_START + region * REGION_BLOCKS as u64 + REGION_DATA_BLOCKS as u64;
    MediaFinding::Unreadable { group, disk: 0, block }
}

/// What the scrub is doing.
fn phase(machine: &Machine<'_>) -> Option<ScrubPhase> {
    let aggregate = machine.aggregate()?;
    Some(aggregate.parts.store.status().scrub.phase)
}
