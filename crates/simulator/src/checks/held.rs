//! Whether what the engine says of the space of snapshots is so: what comes back when they are
//! deleted, and that every block of a volume counts once.
//!
//! Invariants: the independent reader has counted in its own way, one set of numbers for each
//! snapshot. Both look at the same consistency point: with one under way, which changes the maps in
//! memory before it commits, nothing is compared.

use crate::machine::Machine;
use crate::machine::logs::is_neighbours;
use crate::seed::finding::Finding;
use aggregate::Phase;
use cowfs::spans::SnapshotSpans;
use dblade::{ServedVolume, VolumeKind};
use inspect::{HeldSpace, Report};
use platform::completion::promise;
use std::sync::Arc;
use units::{CpNumber, VolumeId};

/// Checks what the engine counts of all volumes against what was found on the media. `before` is
/// how far consistency points had got when they began to be read.
///
/// # Errors
/// [`Finding::Space`].
pub fn check_held(
    machine: &mut Machine<'_>,
    (report, before): (&Report, Reached),
) -> Result<(), Finding> {
    let mut volumes = machine.engine.volumes();
    volumes.retain(|served| !is_neighbours(&served.name()) && served.damage().is_none());
    for served in volumes {
        let number = match &served.kind {
            VolumeKind::Flexible(_) => served.environment.volume,
            VolumeKind::Traditional(_) => VolumeId(0),
        };
        let Some(found) = report.held.get(&number) else { continue };
        let engine = Arc::clone(&machine.engine);
        let wanted = Arc::default();
        let spans = promise(|done| engine.snapshot_spans(&served.name(), &wanted, done));
        let spans = machine.wait("count of what snapshots hold", &spans)?;
        if reached(machine) != before || before.is_some_and(|(_, phase)| phase != Phase::Idle) {
            machine.trace.meet("held: a consistency point came in between");
            return Ok(());
        }
        let told = spans.map_err(|error| error.to_string());
        let wrong = told.and_then(|spans| compare(&spans, found).and(sums(&served, &spans)));
        wrong.map_err(|wrong| Finding::Space(format!("volume {}: {wrong}", served.name())))?;
        if found.snapshots.iter().any(|one| one.newest_blocks > one.exclusive_blocks) {
            machine.trace.meet("held: snapshots share what the active image has not");
        }
        if found.inherited_blocks > 0 {
            machine.trace.meet("held: snapshots of a clone have what it inherited");
        }
    }
    Ok(())
}

/// The consistency point that committed last, and the phase of the one under way.
pub type Reached = Option<(CpNumber, Phase)>;

/// How far consistency points have got.
pub fn reached(machine: &Machine<'_>) -> Reached {
    machine.aggregate().map(|aggregate| (aggregate.committed(), aggregate.phase()))
}

/// Whether both have counted the same.
fn compare(spans: &SnapshotSpans, found: &HeldSpace) -> Result<(), String> {
    let mut older = 0;
    let newest = spans.cumulative_blocks().into_iter().map(|with_older| {
        let newest = with_older - older;
        older = with_older;
        newest
    });
    let told = spans.snapshots().iter().zip(spans.exclusive_blocks()).zip(newest);
    let told: Vec<_> = told.map(|((id, exclusive), newest)| (*id, exclusive, newest)).collect();
    let counted = found.snapshots.iter();
    let counted: Vec<_> =
        counted.map(|one| (one.snapshot, one.exclusive_blocks, one.newest_blocks)).collect();
    let told = (told, spans.deleted_blocks, spans.inherited_blocks);
    let counted = (counted, found.deleted_blocks, found.inherited_blocks);
    if told == counted {
        return Ok(());
    }
    Err(format!(
        "its snapshots, each with blocks that it alone has, and blocks that no newer one has; then \
         blocks of deleted ones, and inherited ones: told {told:?}, counted {counted:?}"
    ))
}

/// Whether every block counts once.
fn sums(served: &ServedVolume, spans: &SnapshotSpans) -> Result<(), String> {
    let (used, active) = (served.used_blocks(), served.active_blocks());
    let held = spans.held_blocks() + spans.deleted_blocks;
    if used != active + held + spans.inherited_blocks {
        return Err(format!("{used} blocks in use, {active} by the active image, and {spans:?}"));
    }
    let VolumeKind::Flexible(_) = &served.kind else { return Ok(()) };
    // Number 0 is no block.
    let inherited = served.inherited_blocks();
    let live = (active - 1).checked_sub(inherited.saturating_sub(spans.inherited_blocks));
    let owned = live.map(|live| live + held + served.delayed_blocks());
    if inherited < spans.inherited_blocks || owned != Some(served.owned_blocks()) {
        let owned = served.owned_blocks();
        return Err(format!("{owned} are its own, {inherited} inherited: {active} and {spans:?}"));
    }
    Ok(())
}
