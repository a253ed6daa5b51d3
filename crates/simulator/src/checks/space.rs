//! Whether space is what it must be: nothing promised at rest, and no refusal while there is room.
//!
//! What is in use the independent reader counts ([`crate::checks::media`]); here it is about
//! promises (decision 9), which are in memory only. If a promise were never taken back the room
//! would shrink without anything being in use; if one were too small, or not taken, a consistency
//! point would fail.

use crate::machine::Machine;
use crate::machine::logs::is_neighbours;
use crate::seed::finding::Finding;
use cowfs::budget::Budget;
use dblade::VolumeKind;
use std::sync::atomic::Ordering;

/// An operation is refused for want of room only when less than this is left: what the largest one
/// of the simulator may come to cost, data and the worst case of metadata.
const REFUSAL_BLOCKS_MAX: u64 = 256;

/// Consistency points until nothing is promised: background work promises, too, and what it did is
/// in the next one.
const POINTS_MAX: u32 = 4;

/// At rest, after consistency points, nothing is promised to anybody.
///
/// # Errors
/// [`Finding::Space`].
pub fn check_promises(machine: &mut Machine<'_>) -> Result<(), Finding> {
    for _ in 0..POINTS_MAX {
        if promises_kept(machine).is_ok() {
            return Ok(());
        }
        machine.consistency_point()?;
        machine.settle()?;
    }
    promises_kept(machine)
}

fn promises_kept(machine: &Machine<'_>) -> Result<(), Finding> {
    no_budget(machine, Budget::has_promises, "is at rest and has promises that nobody keeps")
}

/// Nothing was promised that is not there: the consistency point to come finds room for all of it.
///
/// # Errors
/// [`Finding::Space`].
pub fn check_room(machine: &Machine<'_>) -> Result<(), Finding> {
    no_budget(machine, Budget::is_overdrawn, "has promised more than is free")
}

/// No block was lost where nothing damages any. A load whose block was freed meanwhile loses none.
///
/// # Errors
/// [`Finding::Media`].
pub fn check_lost(machine: &Machine<'_>) -> Result<(), Finding> {
    let plan = &machine.plan;
    let is_damaged = plan.fault.is_some() || !plan.lost_disks.is_empty() || plan.has_outages;
    let is_damaged = is_damaged || plan.is_damaged;
    let Some(aggregate) = machine.aggregate().filter(|_| !is_damaged) else { return Ok(()) };
    match aggregate.statistics.lost_blocks.load(Ordering::Relaxed) {
        0 => Ok(()),
        lost => Err(Finding::Media(format!("{lost} blocks were lost, and none was damaged"))),
    }
}

/// No volume's budget, nor the aggregate's, is what `is_wrong` says.
fn no_budget(
    machine: &Machine<'_>,
    is_wrong: fn(&Budget) -> bool,
    wrong: &str,
) -> Result<(), Finding> {
    let check = |what: &str, budget: &Budget| match is_wrong(budget) {
        true => Err(Finding::Space(format!("{what} {wrong}: {budget:?}"))),
        false => Ok(()),
    };
    let volumes = machine.engine.volumes();
    for served in volumes.iter().filter(|served| !is_neighbours(&served.name())) {
        let own = match &served.kind {
            VolumeKind::Flexible(volume) => &volume.front.shared.budget,
            VolumeKind::Traditional(volume) => &volume.front.shared.budget,
        };
        check(&format!("volume {}", served.name()), own)?;
    }
    match machine.aggregate() {
        Some(aggregate) => check("the aggregate", &aggregate.parts.shared.budget),
        None => Ok(()),
    }
}

/// A refusal for want of room is right only if there is none.
///
/// # Errors
/// [`Finding::Space`].
pub fn check_refusal(machine: &Machine<'_>, volume: &str) -> Result<(), Finding> {
    let Some(served) = machine.engine.volume_named(volume) else { return Ok(()) };
    // Delayed frees are no reason: they would have been waited for. A volume that may still grow
    // must not refuse either.
    let available = served.available_blocks() + served.delayed_blocks();
    let growth = served.autogrow_max().0.saturating_sub(served.size_blocks());
    let available = available.max(growth.min(served.aggregate.parts.shared.budget.free_blocks()));
    // A volume's first change since a freeze pays for its maps as well.
    let overhead = match &served.kind {
        VolumeKind::Flexible(volume) => volume.front.shared.overhead.of_scan(u64::MAX),
        VolumeKind::Traditional(_) => 0,
    };
    if available > REFUSAL_BLOCKS_MAX + overhead {
        let text = format!("volume {volume} has room for {available} blocks and refuses");
        return Err(Finding::Space(text));
    }
    Ok(())
}
