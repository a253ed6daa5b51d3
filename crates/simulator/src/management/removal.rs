//! Groups of disks that leave an aggregate under load: emptied, taken out, or kept after all.
//!
//! Invariants: what was answered goes on after every start. A group that has left stays away, and
//! everything that was in it is in others. A group that leaves while there is room for what it has
//! has left after some consistency points, at the end of a life.

use crate::checks::media::inspect_media;
use crate::machine::{AGGREGATE, Machine};
use crate::management::scrubs::Scrubs;
use crate::plan::Growth;
use crate::seed::finding::Finding;
use aggregate::AggregateError;
use dblade::EngineError;
use platform::completion::{Promise, promise};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Of 100 requests while a group leaves, those that have it stay.
const KEEP_PERCENT: u64 = 20;
/// Consistency points in which a group has left: each takes up to 4 MiB along, and what could not
/// be moved at first is gone through again.
const POINTS_MAX: u32 = 64;
/// Room in the other groups for each block of the leaving one, that it needs not wait for any.
const ROOM_PER_BLOCK: u64 = 4;

/// How far removals are.
#[derive(Default)]
pub struct Removals {
    under_way: Option<Promise<Result<(), EngineError>>>,
    /// Groups that were seen to have left.
    left: BTreeSet<u32>,
    /// A group was to leave once: which disks are left a crash may decide.
    pub(crate) has_begun: bool,
}

impl Removals {
    /// Has a group leave, or one stay that is leaving.
    pub fn change(&mut self, machine: &mut Machine<'_>, is_growing: bool) {
        let Some(aggregate) = machine.aggregate() else { return };
        if !may_remove(machine) || self.is_under_way() || is_growing {
            return;
        }
        let engine = Arc::clone(&machine.engine);
        if aggregate.evacuation().is_some() {
            if machine.choices.chance(KEEP_PERCENT) {
                machine.trace.note("the group that leaves is to stay".to_owned());
                machine.trace.meet("removal: given up");
                let kept = promise(|done| engine.keep_group(AGGREGATE, done));
                self.under_way = Some(kept);
            }
            return;
        }
        let geometry = aggregate.parts.store.geometry();
        let there = (0..).zip(geometry.groups()).filter(|(_, group)| !group.is_removed());
        let groups: Vec<u32> = there.map(|(number, _)| number).collect();
        let group = machine.choices.pick(&groups);
        if groups.len() > 1 {
            machine.trace.note(format!("group {group} is to leave"));
            let asked = promise(|done| engine.remove_group(AGGREGATE, group, None, done));
            self.under_way = Some(asked);
            self.has_begun = true;
        }
    }

    /// Whether a request is not answered yet.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// At the end of a life: a group that leaves has left soon, if there is room for its blocks.
    pub fn finish(
        &mut self,
        machine: &mut Machine<'_>,
        scrubs: &mut Scrubs,
    ) -> Result<(), Finding> {
        let Some(aggregate) = machine.aggregate() else { return Ok(()) };
        if !may_remove(machine) || aggregate.evacuation().is_none() {
            return Ok(());
        }
        for _ in 0..POINTS_MAX {
            if !has_room_without_leaving(machine) {
                machine.trace.meet("removal: no room at the end of a life");
                return Ok(());
            }
            // No disks go while a scrub looks at them.
            scrubs.stop(machine)?;
            aggregate.force();
            machine.consistency_point()?;
            // What the group has of the log leaves it, too.
            machine.engine.mend_logs();
            machine.settle()?;
            self.poll(machine)?;
            if aggregate.evacuation().is_none() {
                machine.trace.meet("removal: ended with a life");
                return inspect_media(machine);
            }
        }
        if machine.damages.is_any() {
            // A block that cannot be read cannot be moved.
            return Ok(());
        }
        Err(Finding::Media(format!("a group does not leave: {:?}", aggregate.evacuation())))
    }

    /// The engine that was asked is no more.
    pub fn forget(&mut self) {
        self.under_way = None;
    }

    /// Takes in what was answered, and what has left.
    pub fn poll(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let outcome = self.under_way.as_ref().and_then(|one| one.lock().take());
        if let Some(outcome) = outcome {
            self.under_way = None;
            match outcome {
                Ok(()) => machine.trace.meet("removal: answered"),
                Err(EngineError::Aggregate(AggregateError::Evacuation(why))) => {
                    machine.trace.note(format!("refused: {why}"));
                    machine.trace.meet("removal: refused");
                }
                Err(error) => return Err(machine.refused("remove a group", &error.to_string())),
            }
        }
        let Some(aggregate) = machine.aggregate() else { return Ok(()) };
        let geometry = aggregate.parts.store.geometry();
        // Until the store has answered the labels may not say it.
        let leaving = aggregate.evacuation().map(|leaving| leaving.group);
        for (number, group) in (0..).zip(geometry.groups()) {
            let has_left = group.is_removed() && leaving != Some(number);
            if has_left && self.left.insert(number) {
                machine.trace.note(format!("group {number} has left"));
                machine.trace.meet("removal: a group has left");
            }
        }
        let is_back = |number: &u32| {
            geometry.groups().get(*number as usize).is_none_or(|group| !group.is_removed())
        };
        match self.left.iter().find(|number| is_back(number)) {
            Some(number) => Err(Finding::Media(format!("group {number} had left and is back"))),
            None => Ok(()),
        }
    }
}

/// Whether groups may leave: disks that fail beside that are lives of their own.
fn may_remove(machine: &Machine<'_>) -> bool {
    let is_calm = machine.plan.fault.is_none() && machine.plan.lost_disks.is_empty();
    is_calm && !machine.plan.has_outages && !machine.plan.is_traditional
}

fn has_room_without_leaving(machine: &Machine<'_>) -> bool {
    let Some(aggregate) = machine.aggregate() else { return false };
    let Some(leaving) = aggregate.evacuation() else { return true };
    let used = leaving.used_blocks.unwrap_or(leaving.blocks);
    let others_size = aggregate.size_blocks() - leaving.blocks;
    let others_used = aggregate.used_blocks().saturating_sub(used);
    let free = others_size.saturating_sub(others_used);
    // Object stores have room that nothing of this may take.
    let is_near = machine.plan.growth != Some(Growth::Objects);
    is_near && free >= ROOM_PER_BLOCK * used + others_size / 8
}
