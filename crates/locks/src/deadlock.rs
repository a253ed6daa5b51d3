//! Who waits for whom, to refuse the wait that would close a circle.
//!
//! The graph is walked anew at each wait: its edges are what stands in each waiter's way now. Only
//! waits for records count, as for `fcntl`; who waits for a whole-file lock can be interrupted.
//!
//! Two programs can be taken for one here if a client gives them one name, as Linux does for
//! threads: then a wait is refused that another thread could have ended. `fcntl` does the same.

use crate::lock::{Kind, Owner, Request};
use crate::manager::State;
use std::collections::BTreeSet;

/// Whether `request`, if it waited, would wait for its own owner.
pub(crate) fn closes_circle(state: &State, request: &Request) -> bool {
    if request.kind != Kind::Record {
        return false;
    }
    let mut to_visit = state.in_the_way(request, None);
    let mut visited: BTreeSet<Owner> = BTreeSet::new();
    while let Some(owner) = to_visit.pop() {
        if owner == request.owner {
            return true;
        }
        if !visited.insert(owner.clone()) {
            continue;
        }
        for (waiting, id) in state.waits_of(&owner) {
            if waiting.kind == Kind::Record {
                to_visit.extend(state.in_the_way(waiting, Some(id)));
            }
        }
    }
    false
}
