//! What a server is given: the node, and whom it tells of changes.

use crate::audit::Audit;
use admin_api::Administration;
use platform::Clock;
use std::sync::Arc;

/// What is served, and what is told of it.
#[derive(Clone)]
pub struct Served {
    /// The node that answers.
    pub node: Arc<dyn Administration>,
    /// Records the changes.
    pub audit: Arc<dyn Audit>,
    /// When they were made, and how long they took.
    pub clock: Arc<dyn Clock>,
}
