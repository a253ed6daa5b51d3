//! The room of status: whom it asks.

use crate::aggregates::Aggregates;
use crate::checks::Checks;
use crate::disks::table::DiskTable;
use crate::node::Node;
use crate::ports::{JournalPlaces, Process};
use crate::recovery::Recovery;
use crate::volumes::Volumes;
use platform::sync::Mutex;
use std::sync::Arc;
use telemetry::Registry;
use units::Timestamp;

/// The node at a glance.
pub(crate) struct Status {
    pub node: Arc<Node>,
    /// The node's name.
    pub name: String,
    pub started: Timestamp,
    pub started_monotonic_nanoseconds: u64,
    pub registry: Arc<Registry>,
    /// Held while metrics are set and read.
    pub measuring: Mutex<()>,
    pub disks: Arc<DiskTable>,
    pub process: Arc<dyn Process>,
    pub journals: Arc<dyn JournalPlaces>,
    pub aggregates: Arc<Aggregates>,
    pub volumes: Arc<Volumes>,
    pub checks: Arc<Checks>,
    pub recovery: Arc<Recovery>,
}
