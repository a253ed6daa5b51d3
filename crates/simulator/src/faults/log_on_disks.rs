//! A log on the aggregate's own disks, which has no disk of its own: whatever happens to the disks
//! happens to the log.
//!
//! - What was acknowledged survives as many disks as the group can do without, if they go one after
//!   the other: a disk goes only while every other copy has everything ([`may_lose_copy`]). A start
//!   relies on one copy until its consistency point is durable.
//! - At rest as many copies have everything as there may be: one more than disks of a group may
//!   fail, on disks in use. The disks of a group that leaves are no places any more: the log goes
//!   to the disks that stay, however few these are. It survives all that the aggregate survives.
//!
//! Invariants: the log has no fault of its own in such a life, and the node has no other aggregate.

use crate::machine::Machine;
use crate::plan::{Fault, Plan};
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use crate::seed::lives::Lives;
use aggregate::Aggregate;
use dblade::{CopyState, CopyStatus};
use raid::LogPlace;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Of 100 lives whose log may be on the disks, those in which it is.
const LIVES_PERCENT: u64 = 25;
/// Of as many looks one has the copies mended.
const LOOKS_MAX: u64 = 20;
/// A disk that failed is tried again after a while, which passes.
const RETRY_NANOSECONDS: u64 = 11_000_000_000;

/// See the module.
#[derive(Default)]
pub struct LogOnDisks(Option<Choices>);

impl LogOnDisks {
    /// That of a seed, whose plan has room for it then.
    #[must_use]
    pub fn choose(seed: u64, lives: &Lives, plan: &mut Plan, has_other: bool) -> Self {
        let mut choices = Choices::of(seed, Purpose::LogOnDisks, lives.reduction.salt);
        let is_wanted = choices.chance(LIVES_PERCENT) || lives.log_on_disks;
        let has_fault = plan.fault.is_some_and(|(_, fault)| fault == Fault::Log);
        if !is_wanted || has_fault || has_other || lives.log_faults || lives.log_copies {
            return Self(None);
        }
        plan.put_log_on_disks();
        Self(Some(choices))
    }

    /// Whether the log of this life is there.
    #[must_use]
    pub const fn is_any(&self) -> bool {
        self.0.is_some()
    }

    /// Copies that were lost are made on other disks.
    pub fn change(&mut self, machine: &Machine<'_>) {
        if self.0.as_mut().is_some_and(|choices| choices.below(LOOKS_MAX) == 0) {
            mend(machine);
        }
    }

    /// At rest: there are as many copies as there should be.
    pub fn rest(&self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        if !self.is_any() || machine.aggregate().is_none() {
            return Ok(());
        }
        machine.settle()?;
        for _ in 0..2 {
            mend(machine);
            machine.settle()?;
            machine.consistency_point()?;
            machine.settle()?;
        }
        let Some(aggregate) = machine.aggregate() else { return Ok(()) };
        let expected = copies_expected(&aggregate);
        let places = aggregate.parts.store.log_places();
        let is_in_use =
            |disk: &str| places.iter().any(|place| place.is_lasting && place.disk.name() == disk);
        let copies = aggregate.parts.log.copies();
        let counts = |copy: &&CopyStatus| copy.state == CopyState::Whole && is_in_use(&copy.disk);
        if aggregate.is_failed() || copies.iter().filter(counts).count() >= expected {
            return Ok(());
        }
        Err(Finding::Listing {
            what: "copies of the log on the disks".to_owned(),
            expected: format!("{expected} that have everything"),
            found: format!("{copies:?}"),
        })
    }
}

/// How many copies of the log there are to be: one more than disks may fail of a group that stays,
/// as far as such groups have disks in use.
fn copies_expected(aggregate: &Aggregate) -> usize {
    let leaving = aggregate.evacuation().map(|leaving| leaving.group);
    let places = aggregate.parts.store.log_places();
    let stays = |place: &&LogPlace| place.is_lasting && Some(place.place.group) != leaving;
    let disks = places.iter().filter(stays).count();
    let geometry = aggregate.parts.store.geometry();
    let groups = (0..).zip(geometry.groups());
    let staying = groups.filter(|(number, group)| !group.is_removed() && Some(*number) != leaving);
    let failing = staying.map(|(_, group)| group.kind.parity_disks()).max().unwrap_or(0);
    disks.min(failing + 1)
}

/// Whether the log can do without any disk: it is elsewhere, or has all its copies, and the labels
/// name them.
pub fn may_lose_copy(machine: &Machine<'_>) -> bool {
    if !machine.plan.is_log_on_disks {
        return true;
    }
    let Some(aggregate) = machine.aggregate() else { return false };
    let log = &aggregate.parts.log;
    let is_whole = |copy: &CopyStatus| copy.state == CopyState::Whole;
    let whole = log.copies().iter().filter(|copy| is_whole(copy)).count();
    let is_named = Arc::new(AtomicBool::default());
    let named = Arc::clone(&is_named);
    log.when_copies_named(Box::new(move |_| named.store(true, Ordering::Relaxed)));
    whole > 1 && whole >= copies_expected(&aggregate) && is_named.load(Ordering::Relaxed)
}

fn mend(machine: &Machine<'_>) {
    // Disks that have something to do would seem to hang.
    if machine.world.pending_count() == 0 {
        machine.world.advance(RETRY_NANOSECONDS);
    }
    machine.engine.mend_logs();
}
