//! The locks held on one file, in order of their first byte.
//!
//! Invariant: the locks of one owner and kind do not overlap, and two in one mode do not touch.

use crate::lock::{Held, Kind, Mode, Owner, Request};
use crate::range::Range;

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Segments(Vec<Held>);

impl Segments {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first lock that excludes `request`.
    pub(crate) fn conflict(&self, request: &Request) -> Option<&Held> {
        self.0.iter().find(|held| held.excludes(request))
    }

    /// What the owner holds of this kind, in which mode.
    pub(crate) fn mode_of(&self, owner: &Owner, kind: Kind) -> Option<Mode> {
        self.0.iter().find(|held| held.kind == kind && held.owner == *owner).map(|held| held.mode)
    }

    /// Takes a lock; what its owner had of these bytes it has in the new mode.
    pub(crate) fn take(&mut self, request: &Request) {
        let mut taken = Held::from(request);
        self.cut(&request.owner, request.kind, &request.range, |held| {
            if held.mode != taken.mode || !held.range.touches(&taken.range) {
                return false;
            }
            taken.range = taken.range.join(&held.range);
            true
        });
        self.insert(taken);
    }

    /// Gives back what an owner has of some bytes.
    pub(crate) fn give_back(&mut self, owner: &Owner, kind: Kind, range: &Range) {
        self.cut(owner, kind, range, |_| false);
    }

    /// Gives back all for which `of` is true.
    pub(crate) fn remove(&mut self, of: impl Fn(&Held) -> bool) {
        self.0.retain(|held| !of(held));
    }

    /// Takes `range` out of the owner's locks, and whole those for which `whole` is true.
    fn cut(
        &mut self,
        owner: &Owner,
        kind: Kind,
        range: &Range,
        mut whole: impl FnMut(&Held) -> bool,
    ) {
        let mut pieces = Vec::new();
        self.0.retain(|held| {
            if held.kind != kind || held.owner != *owner {
                return true;
            }
            if whole(held) {
                return false;
            }
            if !held.range.overlaps(range) {
                return true;
            }
            let left = held.range.without(range).into_iter().flatten();
            pieces.extend(left.map(|range| Held { range, ..held.clone() }));
            false
        });
        pieces.into_iter().for_each(|piece| self.insert(piece));
    }

    fn insert(&mut self, held: Held) {
        let place = self.0.partition_point(|other| other.range.start() <= held.range.start());
        self.0.insert(place, held);
    }
}
