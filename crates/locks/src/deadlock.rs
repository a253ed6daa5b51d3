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
//! Fails: never. A walk ends after [`WAITS_WALKED_MAX`] waits, and what it has not seen by then
//! does not count: nobody may hold the manager up with a long queue.

use crate::file::Through;
use crate::lock::{Kind, Owner, Request};
use crate::state::State;
use std::collections::BTreeSet;

/// Waits that one walk looks at. Each costs a comparison with every lock of its file.
const WAITS_WALKED_MAX: usize = 64;

/// Whether `request`, if it waited, would wait for its own owner, whatever the order in which
/// waiters are served.
pub(crate) fn closes_circle(state: &State, request: &Request) -> bool {
    request.kind == Kind::Record
        && reached(state, state.in_the_way(request, None, Through::Held), Through::Held)
            .contains(&request.owner)
}

/// Everybody that one of `owners` waits for, these included.
pub(crate) fn reached(state: &State, owners: Vec<Owner>, through: Through) -> BTreeSet<Owner> {
    let mut to_visit = owners;
    let mut visited: BTreeSet<Owner> = BTreeSet::new();
    let mut walked = 0;
    while let Some(owner) = to_visit.pop() {
        if !visited.insert(owner.clone()) {
            continue;
        }
        for (waiting, id) in state.waits_of(&owner) {
            if walked == WAITS_WALKED_MAX {
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
