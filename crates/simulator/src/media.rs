//! What the independent reader says of the media.

use crate::finding::Finding;
use crate::machine::Machine;
use inspect::Inspector;

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

/// The same, whatever disks do.
///
/// # Errors
/// [`Finding::Media`] with everything that is wrong.
pub fn inspect_media(machine: &mut Machine<'_>) -> Result<(), Finding> {
    let disks = machine.disks();
    let step = machine.trace.step;
    let mut drive = || machine.drive();
    let report = Inspector::open(disks, &mut drive).and_then(|mut inspector| inspector.check());
    machine.trace.step = step;
    let report = report.map_err(|error| Finding::Media(error.to_string()))?;
    if machine.is_damaged() {
        return machine.check_damaged_media(&report);
    }
    if report.is_clean() { Ok(()) } else { Err(Finding::Media(report.to_string())) }
}
