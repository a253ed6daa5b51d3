//! What the ticks remember of disks that are away, and of spares that take their places.
//!
//! Invariants: see [`crate::spares`].

use platform::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::AggregateUuid;

/// The memory of the ticks.
pub(crate) type SharedTending = Arc<Mutex<Tending>>;

/// An aggregate and a place in it.
pub(crate) type Place = (AggregateUuid, u32, usize);

/// What the ticks remember.
#[derive(Default)]
pub(crate) struct Tending {
    pub last_look_nanoseconds: u64,
    /// Since when disks are away.
    pub away_since: BTreeMap<Place, u64>,
    /// Places that are just being given away.
    pub under_way: BTreeSet<Place>,
}
