//! The room of what brings aggregates into service.

use crate::aggregates::Aggregates;
use crate::checks::Checks;
use crate::disks::table::DiskTable;
use crate::node::Node;
use crate::ports::JournalPlaces;
use crate::recovery::erasures::Erasing;
use crate::recovery::tries::Tries;
use platform::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Brings aggregates into service, at the start and later.
pub(crate) struct Recovery {
    pub node: Arc<Node>,
    pub disks: Arc<DiskTable>,
    pub aggregates: Arc<Aggregates>,
    pub checks: Arc<Checks>,
    pub journals: Arc<dyn JournalPlaces>,
    /// What came of bringing back aggregates that are away.
    pub tries: Tries,
    /// How far the erasure of deleted aggregates is.
    pub erasing: Erasing,
    /// When the journals were looked at last.
    pub probed_nanoseconds: AtomicU64,
    /// What opening each aggregate came to.
    pub recoveries: Mutex<Vec<dblade::Recovery>>,
}
