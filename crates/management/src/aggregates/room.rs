//! The room of aggregates: what their files share.

use crate::aggregates::emptying::Emptying;
use crate::disks::table::DiskTable;
use crate::node::Node;
use std::sync::Arc;

/// The aggregates of a node, their groups and their spares.
pub(crate) struct Aggregates {
    pub node: Arc<Node>,
    pub disks: Arc<DiskTable>,
    pub emptying: Emptying,
}

impl Aggregates {
    /// The aggregates of a node.
    pub(crate) fn new(node: Arc<Node>, disks: Arc<DiskTable>) -> Self {
        Self { node, disks, emptying: Emptying::default() }
    }
}
