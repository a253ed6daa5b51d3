//! Files that were removed through the mount while the kernel knows them, and of which the service
//! has nothing any more: somebody's working directory or an open one, and FIFOs, sockets and
//! devices, which the kernel opens by itself. On Linux such a file is there until it is closed,
//! empty and without a link.
//!
//! Invariants: asked only of what the service calls stale, so a file that lives is never taken for
//! a removed one; forgotten when the kernel forgets the file.

use file_service::{Attributes, Entry, NodeChange};
use platform::sync::Mutex;
use std::collections::HashMap;

/// What is known of them, by node.
#[derive(Default)]
pub(crate) struct RemovedFiles(Mutex<HashMap<u64, Attributes>>);

impl RemovedFiles {
    /// A file is gone, with the change of the directory that it was in.
    pub(crate) fn add(&self, node: u64, file: &Entry, change: &NodeChange) {
        let attributes = Attributes {
            links: 0,
            size: 0,
            used: 0,
            ctime: change.after.ctime,
            ..file.attributes.clone()
        };
        self.0.lock().insert(node, attributes);
    }

    pub(crate) fn attributes(&self, node: u64) -> Option<Attributes> {
        self.0.lock().get(&node).cloned()
    }

    /// The kernel does not know the node any more.
    pub(crate) fn forget(&self, node: u64) {
        self.0.lock().remove(&node);
    }
}
