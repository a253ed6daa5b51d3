//! What the independent reader says of the media.

use crate::checks::held::{check_held, reached};
use crate::machine::Machine;
use crate::seed::finding::Finding;
use inspect::{Inspector, Report};

/// How often media are read again at most.
const READS_AGAIN_MAX: u32 = 3;

/// Checks the media of a node at rest, after a consistency point: everything accounted for once,
/// all identities and parity true. Not with a disk that damages what it holds: the engine repairs a
/// block when it reads it, and the reader finds those that the engine has not read.
///
/// # Errors
/// [`Finding::Media`] with everything that is wrong.
pub fn check_media(machine: &mut Machine<'_>) -> Result<(), Finding> {
    if machine.plan.fault.is_some_and(|(_, fault)| fault.damages()) {
        return Ok(());
    }
    inspect_media(machine)
}

/// What is on the media, and whether a consistency point came in between, because a spare has taken
/// a place, say: what is read from parity may be of two moments then.
fn read_media(machine: &mut Machine<'_>) -> Result<(Report, bool), Finding> {
    let (disks, step, before) = (machine.disks(), machine.trace.step, reached(machine));
    let mut drive = || machine.drive();
    let report = Inspector::open(disks, &mut drive).and_then(|mut inspector| inspector.check());
    machine.trace.step = step;
    let report = report.map_err(|error| Finding::Media(error.to_string()))?;
    Ok((report, reached(machine) != before))
}

/// What is on the media of a node that comes to rest.
///
/// # Errors
/// [`Finding::Media`] if they cannot be read.
pub(crate) fn report_of_media(machine: &mut Machine<'_>) -> Result<Report, Finding> {
    let (mut report, mut is_disturbed) = read_media(machine)?;
    for _ in 0..READS_AGAIN_MAX {
        if report.is_clean() || !is_disturbed {
            break;
        }
        machine.trace.meet("media: read again after a consistency point in between");
        machine.settle()?;
        (report, is_disturbed) = read_media(machine)?;
    }
    Ok(report)
}

/// The same as [`check_media`], whatever disks do.
///
/// # Errors
/// [`Finding::Media`] with everything that is wrong.
pub fn inspect_media(machine: &mut Machine<'_>) -> Result<(), Finding> {
    let before = reached(machine);
    let report = report_of_media(machine)?;
    if machine.damages.is_any() {
        return machine.damages.check_media(&report, machine.plan.is_traditional);
    }
    if !report.is_clean() {
        return Err(Finding::Media(report.to_string()));
    }
    check_held(machine, (&report, before))
}
