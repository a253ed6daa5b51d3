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
pub struct Logs {
    world: SimulatedWorld,
    neighbours: SharedLogs,
    /// Blocks of each disk for the log; 0 if it has a disk of its own.
    blocks_on_disks: u64,
}

impl Logs {
    /// So many blocks of each disk are for the first aggregate's log; 0 if that has a disk.
    #[must_use]
    pub fn new(world: &SimulatedWorld, neighbours: &SharedLogs, blocks_on_disks: u64) -> Self {
        Self { world: world.clone(), neighbours: Arc::clone(neighbours), blocks_on_disks }
    }
}

impl LogProvider for Logs {
    fn create(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        let name = self.neighbours.lock().create(aggregate);
        self.world.open(name.as_deref().unwrap_or(LOG_DISK)).map_err(|error| error.to_string())
    }

    fn open(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        let name = self.neighbours.lock().find(&aggregate);
        if name.is_none() && self.is_on_disks() {
            return Err(LogUnavailable::Missing("no disk is for the log alone".to_owned()));
        }
        Ok(self.world.open(name.as_deref().unwrap_or(LOG_DISK))?)
    }

    fn places(&self, aggregate: AggregateUuid) -> Vec<LogPlace> {
        let is_neighbours = self.neighbours.lock().find(&aggregate).is_some();
        if self.world.disk(LOG_COPY).is_none() || is_neighbours {
            return Vec::new();
        }
        let place = |name: &str| {
            let provider = Arc::new(Place(self.world.clone(), name.to_owned()));
            LogPlace { name: name.to_owned(), provider }
        };
        vec![place(LOG_DISK), place(LOG_COPY)]
    }

    fn is_on_disks(&self) -> bool {
        self.blocks_on_disks > 0
    }

    fn blocks_on_disks(&self, _: u64) -> u64 {
        self.blocks_on_disks
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
