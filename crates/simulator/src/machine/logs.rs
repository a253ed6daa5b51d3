//! The disks of logs: the first aggregate's, and those of its neighbours, other aggregates of the
//! node.
//!
//! Invariants: whatever belongs to a neighbour has a name that [`is_neighbours`] knows.

use dblade::{LogProvider, LogUnavailable};
use platform::Disk;
use platform::disk::DiskOpener;
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::AggregateUuid;

/// The name of the log's disk.
pub const LOG_DISK: &str = "log";
/// How names begin of all that belongs to a neighbour.
const PREFIX: &str = "beside";

/// Whether a disk, aggregate or volume of this name is a neighbour's.
#[must_use]
pub fn is_neighbours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The name of a neighbour's aggregate.
#[must_use]
pub fn neighbour_name(index: usize) -> String {
    format!("{PREFIX}{index}")
}

/// The logs of neighbours, by the identity of their aggregates. They outlive engines.
#[derive(Default)]
pub struct NeighbourLogs {
    names: BTreeMap<AggregateUuid, String>,
    /// That of the aggregate that is being made.
    next: Option<String>,
}

/// The same, shared with the engine's source of logs.
pub type SharedLogs = Arc<Mutex<NeighbourLogs>>;

impl NeighbourLogs {
    /// The log of the neighbour that is made next.
    pub fn add(&mut self, name: String) {
        self.next = Some(name);
    }

    /// The log for a new aggregate, if that is a neighbour.
    pub fn create(&mut self, aggregate: AggregateUuid) -> Option<String> {
        let name = self.next.take()?;
        self.names.insert(aggregate, name.clone());
        Some(name)
    }

    /// The log of an aggregate, if that is a neighbour.
    #[must_use]
    pub fn find(&self, aggregate: &AggregateUuid) -> Option<String> {
        self.names.get(aggregate).cloned()
    }
}

/// Finds the logs in a world: the first aggregate's, and those of its neighbours.
pub struct Logs(pub SimulatedWorld, pub SharedLogs);

impl LogProvider for Logs {
    fn create(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        let name = self.1.lock().create(aggregate);
        self.0.open(name.as_deref().unwrap_or(LOG_DISK)).map_err(|error| error.to_string())
    }

    fn open(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        let name = self.1.lock().find(&aggregate);
        Ok(self.0.open(name.as_deref().unwrap_or(LOG_DISK))?)
    }
}
