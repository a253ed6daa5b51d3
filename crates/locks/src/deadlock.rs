//! Who waits for whom: to refuse the wait that nothing could end, and to find the waiters whose
//! place in the queue would keep them waiting for ever.
//!
//! The graph is walked anew each time: its edges are what stands in each waiter's way now. Only
//! waits for records count, as for `fcntl`; who waits for a whole-file lock can be interrupted.
//!
//! A wait is refused for a circle of *held* locks only. A place in a queue is not held: who stands
//! behind somebody that waits for him is served first ([`State::serve`](crate::state::State)).
//!
//! Two programs can be taken for one here if a client gives them one name, as Linux does for
//! threads: then a wait is refused that another thread could have ended. `fcntl` does the same.
//!
//! Fails: never. A walk ends after [`WAITS_WALKED_MAX`] waits, and all the walks that one change of
//! locks makes after [`WAITS_WALKED_OF_CHANGE_MAX`] together. Waits that the walks have not seen by
//! then do not count: nobody may hold the manager up with long queues.

use crate::file::Through;
use crate::lock::{Kind, Owner, Request};
use crate::state::State;
use std::collections::BTreeSet;

/// Waits that one walk looks at. Each costs a comparison with every lock of its file.
const WAITS_WALKED_MAX: usize = 64;

/// Waits that all walks of one change of locks look at.
const WAITS_WALKED_OF_CHANGE_MAX: usize = 512;

/// How many waits the walks of one change of locks may still look at.
pub(crate) struct Walks {
    left: usize,
}

impl Walks {
    pub(crate) const fn new() -> Self {
        Self { left: WAITS_WALKED_OF_CHANGE_MAX }
    }

    /// Whether one more wait may be looked at.
    pub(crate) const fn take(&mut self) -> bool {
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// Whether `request`, if it waited, would wait for its own owner, whatever the order in which
/// waiters are served.
pub(crate) fn closes_circle(state: &State, request: &Request) -> bool {
    if request.kind != Kind::Record {
        return false;
    }
    let owners = state.in_the_way(request, None, Through::Held);
    reached(state, owners, Through::Held, &mut Walks::new()).contains(&request.owner)
}

/// Everybody that one of `owners` waits for, these included.
pub(crate) fn reached(
    state: &State,
    owners: Vec<Owner>,
    through: Through,
    walks: &mut Walks,
) -> BTreeSet<Owner> {
    let mut to_visit = owners;
    let mut visited: BTreeSet<Owner> = BTreeSet::new();
    let mut walked = 0;
    while let Some(owner) = to_visit.pop() {
        if !visited.insert(owner.clone()) {
            continue;
        }
        for (waiting, id) in state.waits_of(&owner) {
            if walked == WAITS_WALKED_MAX || !walks.take() {
                return visited;
            }
            walked += 1;
            if waiting.kind == Kind::Record {
                to_visit.extend(state.in_the_way(waiting, Some(id), through));
            }
        }
    }
    visited
}
