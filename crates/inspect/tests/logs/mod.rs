//! The log of the only aggregate of a simulated world: its disk of the name `log`.

use dblade::{LogProvider, LogUnavailable};
use platform::Disk;
use platform::disk::DiskOpener;
use platform::simulated::SimulatedWorld;
use std::sync::Arc;
use units::AggregateUuid;

/// Finds the log in a world.
pub struct Logs(pub SimulatedWorld);

impl LogProvider for Logs {
    fn create(&self, _: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        self.0.open("log").map_err(|error| error.to_string())
    }

    fn open(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        self.create(aggregate).map_err(LogUnavailable::Failed)
    }
}
