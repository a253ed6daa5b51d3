//! The locks held on one file, in order of their first byte.
//!
//! Invariant: the locks of one owner and kind do not overlap, and two in one mode do not touch.

use crate::lock::{Held, Kind, Mode, Owner, Request};
use crate::range::Range;
use crate::usage::{Sort, Usage};

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
    pub(crate) fn take(&mut self, request: &Request, usage: &mut Usage) {
        let mut taken = Held::from(request);
        self.cut((&request.owner, request.kind, &request.range), usage, |held| {
            if held.mode != taken.mode || !held.range.touches(&taken.range) {
                return false;
            }
            taken.range = taken.range.join(&held.range);
            true
        });
        self.insert(taken, usage);
    }

    /// Gives back what an owner has of some bytes.
    pub(crate) fn give_back(
        &mut self,
        (owner, kind, range): (&Owner, Kind, &Range),
        usage: &mut Usage,
    ) {
        self.cut((owner, kind, range), usage, |_| false);
    }

    /// Gives back all for which `of` is true.
    pub(crate) fn remove(&mut self, of: impl Fn(&Held) -> bool, usage: &mut Usage) {
        for gone in self.0.extract_if(.., |held| of(held)) {
            usage.less(Sort::Lock, &gone.owner);
        }
    }

    /// Takes `range` out of the owner's locks, and whole those for which `whole` is true.
    fn cut(
        &mut self,
        (owner, kind, range): (&Owner, Kind, &Range),
        usage: &mut Usage,
        mut whole: impl FnMut(&Held) -> bool,
    ) {
        let mut pieces = Vec::new();
        self.0.retain(|held| {
            if held.kind != kind || held.owner != *owner {
                return true;
            }
            if whole(held) {
                usage.less(Sort::Lock, owner);
                return false;
            }
            if !held.range.overlaps(range) {
                return true;
            }
            usage.less(Sort::Lock, owner);
            let left = held.range.without(range).into_iter().flatten();
            pieces.extend(left.map(|range| Held { range, ..held.clone() }));
            false
        });
        pieces.into_iter().for_each(|piece| self.insert(piece, usage));
    }

    fn insert(&mut self, held: Held, usage: &mut Usage) {
        usage.more(Sort::Lock, &held.owner);
        let place = self.0.partition_point(|other| other.range.start() <= held.range.start());
        self.0.insert(place, held);
    }
}
