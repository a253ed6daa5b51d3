//! Clones that the operator has split from their parents.
//!
//! The end of a split is nobody's call. So splits are let go on to their ends, where they begin and
//! after each start, before anything is asked of what they change.
//!
//! Invariants: only a clone that was to be split becomes a volume like others.

use super::expected::{Expected, ExpectedVolume};
use crate::machine::Machine;
use crate::seed::finding::Finding;
use admin_api::{CloneSplit, Code};
use platform::completion::promise;

/// Consistency points until a split has ended that has room.
const POINTS_MAX: u32 = 32;

impl Expected {
    pub(super) fn split(&mut self, wanted: &CloneSplit) -> Result<(), Code> {
        let clone = self.volume(&wanted.name)?;
        // One that is under way has ended by now.
        if clone.clone_of.is_none() || wanted.stop {
            return Err(Code::Conflict);
        }
        clone.is_split = true;
        Ok(())
    }

    /// Which clones that were to be split are volumes like others now.
    fn note_whole(&mut self, is_clone: impl Fn(u32) -> bool) {
        let kept = self.deleted.values_mut().map(|kept| &mut kept.volume);
        let to_split = self.volumes.values_mut().chain(kept).filter(|one| one.is_split);
        let whole = to_split.filter(|one| !is_clone(one.number));
        whole.for_each(|ExpectedVolume { clone_of, .. }| *clone_of = None);
    }
}

/// Splits go on to their ends, or are ended if there is no room for them.
pub(super) fn settle(
    machine: &mut Machine<'_>,
    expected: &mut Expected,
    after: Option<&mut Expected>,
) -> Result<(), Finding> {
    for _ in 0..POINTS_MAX {
        let Some(aggregate) = machine.aggregate() else { return Ok(()) };
        if aggregate.splits().is_empty() {
            break;
        }
        aggregate.force();
        machine.consistency_point()?;
        machine.settle()?;
    }
    end_splits(machine)?;
    let volumes = machine.engine.volumes();
    let is_clone = |number: u32| {
        let mut clones = volumes.iter().filter(|one| one.origin().is_some());
        clones.any(|clone| clone.environment.volume.get() == number)
    };
    expected.note_whole(is_clone);
    after.into_iter().for_each(|after| after.note_whole(is_clone));
    Ok(())
}

fn end_splits(machine: &mut Machine<'_>) -> Result<(), Finding> {
    let Some(aggregate) = machine.aggregate() else { return Ok(()) };
    for split in aggregate.splits() {
        machine.trace.meet("operator: a split has no room");
        let ended = promise(|done| aggregate::splitting::stop(&aggregate, split.clone, done));
        // It may have ended meanwhile.
        let _ended: Result<(), aggregate::AggregateError> =
            machine.wait("end of a split", &ended)?;
    }
    machine.settle()
}
