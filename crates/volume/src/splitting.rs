//! Clones that are being split from their parents (FlexVol section 4.2, "Volume Clones"): what is
//! left to copy, and the end.
//!
//! The aggregate copies ([`aggregate`]'s `relocating::splitting`). The clone says which block
//! numbers it may have inherited, and ends the split when it has inherited nothing any more.
//!
//! Invariants: a clone that still uses a block of an ancestor stays a clone.

use crate::flexible::FlexibleVolume;
use affinity::{Access, Outcome};
use aggregate::{Acted, FreezeScope, Inherited, InheritedDone};
use cowfs::reader::{HeldBlocks, Reader, Stop};
use platform::mutation::{self, Rule};
use units::Vvbn;

fn is_whole(volume: &FlexibleVolume) -> bool {
    let is_copied = volume.inherited_blocks() == 0 || mutation::broken(Rule::SplitEndsEarly);
    is_copied && !volume.is_discarding() && !volume.front.is_read_only()
}

/// Ends the split of a clone that has inherited nothing any more; part of a commit.
pub(crate) fn end_if_whole(volume: &FlexibleVolume) {
    let Some(aggregate) = volume.aggregate.upgrade() else { return };
    if !aggregate.is_splitting(volume.front.id) || !is_whole(volume) {
        return;
    }
    let Some(this) = volume.this.upgrade() else { return };
    let end = move |scope: &mut FreezeScope<'_, '_>| {
        // Another commit may have asked for it too.
        if scope.aggregate.is_splitting(this.front.id) && is_whole(&this) {
            scope.make_whole(this.front.id);
            let side = this.vbn.write(scope.access);
            side.space.base = None;
            side.container = None;
        }
        Ok(Acted::Done)
    };
    aggregate.request_action(Box::new(end), Box::new(|_| ()));
}

/// See [`aggregate::Member::find_inherited`].
pub(crate) fn find_inherited(
    volume: &FlexibleVolume,
    (from, max): (Vvbn, usize),
    done: InheritedDone,
) {
    let (Some(this), Some(aggregate)) = (volume.this.upgrade(), volume.aggregate.upgrade()) else {
        return done(None);
    };
    if volume.front.is_read_only() {
        return done(None);
    }
    let (held, mut done) = (HeldBlocks::default(), Some(done));
    let scheduler = aggregate.parts.scheduler.clone();
    let message = move |access: &mut Access<'_>| {
        let space = &mut this.vbn.write(access).space;
        let reader = Reader { cache: &aggregate.parts.cache, held: &held };
        // What is about to be let go of is not worth copying.
        let found = match space.has_trees_to_discard() {
            true => Ok(None),
            false => space.inherited_from(from, max, &reader).map(Some),
        };
        if let Err(Stop::Wait(wait)) = found {
            return aggregate.suspend(wait, &held);
        }
        let Some(done) = done.take() else { return Outcome::Done };
        done(match found {
            Ok(found) => found.map(|(numbers, next)| {
                let is_damaged = false;
                Inherited { numbers, next, is_damaged }
            }),
            Err(stop) => {
                tracing::warn!(volume = %this.front.id, %stop, "a map is not read for a split");
                let (numbers, next, is_damaged) = (Vec::new(), None, true);
                Some(Inherited { numbers, next, is_damaged })
            }
        });
        Outcome::Done
    };
    scheduler.send(volume.front.affinities.vbn, Box::new(message));
}
