//! Groups of disks that leave an aggregate under load: emptied, taken out, or kept after all.
//!
//! Invariants: what was answered goes on after every start. A group that has left stays away, and
//! everything that was in it is in others. A group that leaves while there is room for what it has
//! has left after some consistency points, at the end of a life.

use crate::finding::Finding;
use crate::growth::Growth;
use crate::machine::{AGGREGATE, Machine, Promise, promise};
use crate::media::inspect_media;
use aggregate::AggregateError;
use dblade::EngineError;
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

impl Machine<'_> {
    /// Whether groups may leave: disks that fail beside that are lives of their own.
    fn may_remove(&self) -> bool {
        let is_calm = self.plan.fault.is_none() && self.plan.lost_disks.is_empty();
        is_calm && !self.plan.has_outages && !self.plan.is_traditional
    }

    /// Has a group leave, or one stay that is leaving.
    pub fn remove_group(&mut self) {
        let Some(aggregate) = self.aggregate() else { return };
        if !self.may_remove() || self.is_removing() || self.is_growing() {
            return;
        }
        let engine = Arc::clone(&self.engine);
        if aggregate.leaving().is_some() {
            if self.choices.chance(KEEP_PERCENT) {
                self.trace.note("the group that leaves is to stay".to_owned());
                self.trace.meet("removal: given up");
                let kept = promise(|done| engine.keep_group(AGGREGATE, done));
                self.removals.under_way = Some(kept);
            }
            return;
        }
        let geometry = aggregate.parts.store.geometry();
        let there = (0..).zip(geometry.groups()).filter(|(_, group)| !group.is_removed());
        let groups: Vec<u32> = there.map(|(number, _)| number).collect();
        let group = self.choices.pick(&groups);
        if groups.len() > 1 {
            self.trace.note(format!("group {group} is to leave"));
            let asked = promise(|done| engine.remove_group(AGGREGATE, group, done));
            self.removals.under_way = Some(asked);
            self.removals.has_begun = true;
        }
    }

    /// Whether a request is not answered yet.
    #[must_use]
    pub const fn is_removing(&self) -> bool {
        self.removals.under_way.is_some()
    }

    /// At the end of a life: a group that leaves has left soon, if there is room for its blocks.
    pub fn finish_removal(&mut self) -> Result<(), Finding> {
        let Some(aggregate) = self.aggregate() else { return Ok(()) };
        if !self.may_remove() || aggregate.leaving().is_none() {
            return Ok(());
        }
        for _ in 0..POINTS_MAX {
            if !self.has_room_without_leaving() {
                self.trace.meet("removal: no room at the end of a life");
                return Ok(());
            }
            // No disks go while a scrub looks at them.
            self.stop_scrub()?;
            aggregate.force();
            self.consistency_point()?;
            self.settle()?;
            self.poll_removal()?;
            if aggregate.leaving().is_none() {
                self.trace.meet("removal: ended with a life");
                return inspect_media(self);
            }
        }
        if self.is_damaged() {
            // A block that cannot be read cannot be moved.
            return Ok(());
        }
        Err(Finding::Media(format!("a group does not leave: {:?}", aggregate.leaving())))
    }

    fn has_room_without_leaving(&self) -> bool {
        let Some(aggregate) = self.aggregate() else { return false };
        let Some(leaving) = aggregate.leaving() else { return true };
        let used = leaving.used_blocks.unwrap_or(leaving.blocks);
        let others_size = aggregate.size_blocks() - leaving.blocks;
        let others_used = aggregate.used_blocks().saturating_sub(used);
        let free = others_size.saturating_sub(others_used);
        // Object stores have room that nothing of this may take.
        let is_near = self.plan.growth != Some(Growth::Objects);
        is_near && free >= ROOM_PER_BLOCK * used + others_size / 8
    }

    /// The engine that was asked is no more.
    pub fn forget_removal(&mut self) {
        self.removals.under_way = None;
    }

    /// Takes in what was answered, and what has left.
    pub fn poll_removal(&mut self) -> Result<(), Finding> {
        let outcome = self.removals.under_way.as_ref().and_then(|one| one.lock().take());
        if let Some(outcome) = outcome {
            self.removals.under_way = None;
            match outcome {
                Ok(()) => self.trace.meet("removal: answered"),
                Err(EngineError::Aggregate(AggregateError::Leaving(why))) => {
                    self.trace.note(format!("refused: {why}"));
                    self.trace.meet("removal: refused");
                }
                Err(error) => return Err(self.refused("remove a group", &error.to_string())),
            }
        }
        let Some(aggregate) = self.aggregate() else { return Ok(()) };
        let geometry = aggregate.parts.store.geometry();
        // Until the store has answered the labels may not say it.
        let leaving = aggregate.leaving().map(|leaving| leaving.group);
        for (number, group) in (0..).zip(geometry.groups()) {
            let has_left = group.is_removed() && leaving != Some(number);
            if has_left && self.removals.left.insert(number) {
                self.trace.note(format!("group {number} has left"));
                self.trace.meet("removal: a group has left");
            }
        }
        let is_back = |number: &u32| {
            geometry.groups().get(*number as usize).is_none_or(|group| !group.is_removed())
        };
        match self.removals.left.iter().find(|number| is_back(number)) {
            Some(number) => Err(Finding::Media(format!("group {number} had left and is back"))),
            None => Ok(()),
        }
    }
}
