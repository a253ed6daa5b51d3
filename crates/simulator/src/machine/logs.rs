//! The disks of logs: the first aggregate's, and those of its neighbours, other aggregates of the
//! node.
//!
//! Invariants: whatever belongs to a neighbour has a name that [`is_neighbours`] knows.

use dblade::{LogPlace, LogProvider, LogUnavailable};
use platform::Disk;
use platform::disk::DiskOpener;
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::AggregateUuid;

/// The name of the log's disk.
pub const LOG_DISK: &str = "log";
/// The name of the disk of the log's second copy, in lives that have one.
pub const LOG_COPY: &str = "log copy";
/// How names begin of all that belongs to a neighbour.
const PREFIX: &str = "beside";

/// Whether a disk holds the first aggregate's log, or a copy of it.
#[must_use]
pub fn is_log(name: &str) -> bool {
    name == LOG_DISK || name == LOG_COPY
}

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

    fn places(&self, aggregate: AggregateUuid) -> Vec<LogPlace> {
        if self.0.disk(LOG_COPY).is_none() || self.1.lock().find(&aggregate).is_some() {
            return Vec::new();
        }
        let place = |name: &str| {
            let provider = Arc::new(Place(self.0.clone(), name.to_owned()));
            LogPlace { name: name.to_owned(), provider }
        };
        vec![place(LOG_DISK), place(LOG_COPY)]
    }
}

/// One of the places of a log with copies.
struct Place(SimulatedWorld, String);

impl LogProvider for Place {
    fn create(&self, _: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        self.0.open(&self.1).map_err(|error| error.to_string())
    }

    fn open(&self, _: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        Ok(self.0.open(&self.1)?)
    }
}
