//! The locks of one file: held, waiting, and share reservations.
//!
//! Invariant: waiters stand in the order of asking. Whose turn it is, the manager decides, for it
//! follows from other files, too.

use crate::asking::{Done, WaitId};
use crate::lock::{Held, Mode, Owner, Request, Share};
use crate::segments::Segments;
use crate::usage::{Sort, Usage};

/// What stands in somebody's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Through {
    /// Locks that are held.
    Held,
    /// And those who wait and came earlier.
    Queues,
}

/// One who waits.
pub(crate) struct Waiter {
    pub(crate) id: WaitId,
    pub(crate) request: Request,
    pub(crate) done: Done,
}

impl Waiter {
    /// Whether the waiter, once served, would exclude `request`.
    fn excludes(&self, request: &Request) -> bool {
        Held::from(&self.request).excludes(request)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct FileLocks {
    pub(crate) held: Segments,
    pub(crate) waiting: Vec<Waiter>,
    pub(crate) shares: Vec<Share>,
}

impl FileLocks {
    pub(crate) fn is_empty(&self) -> bool {
        self.held.len() == 0 && self.waiting.is_empty() && self.shares.is_empty()
    }

    /// Gives back all reservations for which `of` is true.
    pub(crate) fn remove_shares(&mut self, of: impl Fn(&Share) -> bool, usage: &mut Usage) {
        for gone in self.shares.extract_if(.., |share| of(share)) {
            usage.less(Sort::Share, &gone.owner);
        }
    }

    /// The waiters that `request`, asking now or as waiter `before`, stands behind: who shares
    /// stands behind nobody, as on Linux. Its program may have a lock already, for whose end the
    /// waiter before it waits.
    pub(crate) fn earlier(
        &self,
        request: &Request,
        before: Option<WaitId>,
    ) -> impl Iterator<Item = &Waiter> {
        let earlier = self.waiting.iter().take_while(move |waiter| Some(waiter.id) != before);
        let stands = request.mode == Mode::Exclusive;
        earlier.filter(move |waiter| stands && waiter.excludes(request))
    }

    /// All who stand in the way of `request`, asking now or as waiter `before`.
    pub(crate) fn in_the_way(
        &self,
        request: &Request,
        before: Option<WaitId>,
        through: Through,
    ) -> Vec<Owner> {
        let held = self.held.iter().filter(|held| held.excludes(request));
        let mut owners: Vec<_> = held.map(|held| held.owner.clone()).collect();
        if through == Through::Queues {
            let earlier = self.earlier(request, before);
            owners.extend(earlier.map(|waiter| waiter.request.owner.clone()));
        }
        owners
    }
}
