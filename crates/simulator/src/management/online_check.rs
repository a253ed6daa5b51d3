//! Online checks: the image of a consistency point is pinned when a round begins, all work of the
//! round is done beside it, and at rest the independent reader looks at it. An image that was kept
//! to the end is whole, whatever was written, freed and written over meanwhile.
//!
//! A pin may be given up by the engine, when writers need the room; nothing is looked at then. A
//! pin ends at once when a group of disks is to leave, which waits for it.
//!
//! Invariants: not with disks that damage what they hold, and not where blocks were damaged: the
//! reader would find what the engine has not read yet.
//!
//! Fails: [`Finding::Media`].

use crate::machine::Machine;
use crate::seed::choices::{Choices, Purpose};
use crate::seed::finding::Finding;
use aggregate::{Aggregate, ImagePin, PinError};
use inspect::{Inspector, Scope};
use platform::completion::{Promise, promise};
use std::sync::Arc;

/// Of 100 rounds, those with a check.
const ROUNDS_PERCENT: u64 = 15;
/// Memory that a pin may take: enough for all that a round frees.
const MEMORY_BYTES: u64 = 4 << 20;
/// What is looked at: the marks that the engine leaves are no findings here.
const SCOPE: Scope = Scope { has_marks: false, ..Scope::ONLINE };

/// See the module.
#[derive(Default)]
pub struct OnlineCheck {
    /// The image, once it is pinned.
    image: Option<Promise<Result<ImagePin, PinError>>>,
}

impl OnlineCheck {
    /// Sometimes an image is pinned at the beginning of a round.
    pub fn begin(&mut self, machine: &mut Machine<'_>, seed: u64, is_removing: bool) {
        let mut choices = Choices::of(seed, Purpose::Check, machine.trace.round);
        let is_sound = machine.plan.fault.is_none() && !machine.plan.is_damaged;
        if !is_sound || is_removing || !choices.chance(ROUNDS_PERCENT) {
            return;
        }
        let Some(aggregate) = machine.aggregate() else { return };
        machine.trace.note("pin an image".to_owned());
        self.image = Some(promise(|done| aggregate.pin_image(MEMORY_BYTES, done)));
    }

    /// The engine of the check is no more.
    pub fn forget(&mut self) {
        self.image = None;
    }

    /// Ends a check without a look, for something that waits for its end.
    pub fn give_up(&mut self, machine: &Machine<'_>) {
        if let Some((aggregate, pin)) = self.take(machine) {
            aggregate.unpin_image(pin.number, Box::new(|_| ()));
        }
    }

    /// The image that is pinned, once it is.
    fn take(&mut self, machine: &Machine<'_>) -> Option<(Arc<Aggregate>, ImagePin)> {
        let answer = self.image.as_ref()?.lock().take()?;
        self.image = None;
        // After an outage or a start it is another one, which has no pin.
        Some((machine.aggregate()?, answer.ok()?))
    }

    /// Looks at the image that was pinned, and lets go of it.
    pub fn finish(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let taken = self.take(machine);
        self.image = None;
        let Some((aggregate, pin)) = taken else { return Ok(()) };
        if aggregate.pinned_blocks(pin.number).is_err() {
            machine.trace.meet("check: given up for want of room, or with the aggregate");
            return Ok(());
        }
        let (disks, step) = (machine.disks(), machine.trace.step);
        let mut drive = || machine.drive();
        let report = Inspector::open(disks, &mut drive).and_then(|mut inspector| {
            inspector.pin(&pin.superblock)?;
            inspector.check_scope(SCOPE, None)
        });
        machine.trace.step = step;
        let report = report.map_err(|error| Finding::Media(error.to_string()))?;
        let held = aggregate.pinned_blocks(pin.number).unwrap_or(0);
        machine.trace.meet("check: a pinned image was looked at");
        machine.trace.meet_times("check: blocks that were kept for it", held);
        let ended = promise(|done| aggregate.unpin_image(pin.number, done));
        if !report.is_clean() {
            return Err(Finding::Media(format!("the image of {}: {report}", pin.cp)));
        }
        let ended = machine.wait("the end of a check", &ended)?;
        ended.map_err(|error| Finding::Refused {
            request: "the end of a check".to_owned(),
            error: error.to_string(),
        })
    }
}
