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
use dblade::{Guarantee, VolumeKind, room_blocks_max};
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
    no_budget(machine, Budget::has_promises, "is at rest and has promises that nobody keeps")?;
    for served in machine.engine.volumes() {
        let VolumeKind::Flexible(volume) = &served.kind else { continue };
        let room = &volume.front.shared.guaranteed;
        if room.promised_blocks() > 0 && !is_neighbours(&served.name()) {
            let name = served.name();
            let text = format!("volume {name} is at rest, and its own room is promised: {room:?}");
            return Err(Finding::Space(text));
        }
    }
    Ok(())
}

/// Nothing was promised that is not there: the consistency point to come finds room for all of it.
///
/// # Errors
/// [`Finding::Space`].
pub fn check_room(machine: &Machine<'_>) -> Result<(), Finding> {
    no_budget(machine, Budget::is_overdrawn, "has promised more than is free")
}

/// At rest the aggregate keeps for each volume with a guarantee what it lacks of its size, and for
/// no other volume anything.
///
/// # Errors
/// [`Finding::Space`].
pub fn check_guarantees(machine: &mut Machine<'_>) -> Result<(), Finding> {
    let Some(aggregate) = machine.aggregate() else { return Ok(()) };
    let mut volumes = machine.engine.volumes();
    volumes.retain(|served| !is_neighbours(&served.name()) && served.damage().is_none());
    let (mut all, mut guaranteed) = (0, 0);
    for served in volumes {
        let wanted = match served.guarantee() {
            Guarantee::Volume if served.queued().is_none() => {
                // Its blocks, and a node of its container map for each 512 of them.
                let owned = served.owned_blocks();
                let whole = room_blocks_max(served.size_blocks());
                whole.saturating_sub(owned + owned.div_ceil(512))
            }
            Guarantee::Volume | Guarantee::None => 0,
        };
        let kept = served.guaranteed_blocks();
        let is_short = kept < wanted && aggregate.guarantee_lacking_blocks() > 0;
        if kept != wanted && !is_short {
            let text = format!("volume {} lacks {wanted} blocks, {kept} are kept", served.name());
            return Err(Finding::Space(text));
        }
        all += kept;
        guaranteed += u64::from(wanted > 0);
    }
    let told = aggregate.parts.shared.budget.guaranteed_blocks();
    if told < all {
        return Err(Finding::Space(format!("{told} blocks are kept for all, {all} for each")));
    }
    machine.trace.meet_times("guarantees: volumes at rest that have one", guaranteed);
    if aggregate.guarantee_lacking_blocks() > 0 {
        machine.trace.meet("guarantees: room is lacking");
    }
    Ok(())
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
    let own = match &served.kind {
        // Whatever other volumes have written.
        VolumeKind::Flexible(volume) if served.guarantee() == Guarantee::Volume => {
            let is_lacking = served.aggregate.guarantee_lacking_blocks() > 0;
            let own = volume.front.shared.budget.free_blocks().min(served.size_blocks());
            if is_lacking { served.available_blocks() } else { own }
        }
        _ => served.available_blocks(),
    };
    let available = own + served.delayed_blocks();
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
