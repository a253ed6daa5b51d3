//! The locks of one file: held, waiting, and share reservations.
//!
//! Invariants: waiters stand in the order of asking; one that nothing held and no earlier waiter
//! excludes is not left waiting ([`FileLocks::grant`] is called whenever something goes).

use crate::lock::{Held, Request, Share};
use crate::manager::{Done, WaitId};
use crate::segments::Segments;

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

    /// The first waiter that `request`, asking now or as waiter `before`, must let go first.
    pub(crate) fn earlier(&self, request: &Request, before: Option<WaitId>) -> Option<&Waiter> {
        let earlier = self.waiting.iter().take_while(|waiter| Some(waiter.id) != before);
        earlier.into_iter().find(|waiter| waiter.excludes(request))
    }

    /// All requests and locks that stand in the way of `request`, asking now or as waiter `before`.
    pub(crate) fn in_the_way(
        &self,
        request: &Request,
        before: Option<WaitId>,
    ) -> Vec<crate::lock::Owner> {
        let held = self.held.iter().filter(|held| held.excludes(request));
        let mut owners: Vec<_> = held.map(|held| held.owner.clone()).collect();
        let earlier = self.waiting.iter().take_while(|waiter| Some(waiter.id) != before);
        let earlier = earlier.filter(|waiter| waiter.excludes(request));
        owners.extend(earlier.map(|waiter| waiter.request.owner.clone()));
        owners
    }

    /// Serves the waiters whose turn it is.
    pub(crate) fn grant(&mut self) -> Vec<Waiter> {
        let mut granted = Vec::new();
        // A lock that is taken in a weaker mode than before can be another's turn.
        loop {
            let free = self.waiting.iter().position(|waiter| {
                self.held.conflict(&waiter.request).is_none()
                    && self.earlier(&waiter.request, Some(waiter.id)).is_none()
            });
            let Some(place) = free else { return granted };
            let waiter = self.waiting.remove(place);
            self.held.take(&waiter.request);
            granted.push(waiter);
        }
    }
}
