//! Directories that were removed through the mount while the kernel knows them: somebody's working
//! directory, or an open one. On Linux such a directory is there until it is closed, empty and
//! without a link; the service has nothing of it any more.
//!
//! Invariants: asked only of what the service calls stale, so a directory that lives is never taken
//! for a removed one; forgotten when the kernel forgets the directory.

use file_service::{Attributes, Entry, NodeChange};
use platform::sync::Mutex;
use std::collections::HashMap;

/// What is known of them, by node.
#[derive(Default)]
pub(crate) struct RemovedDirectories(Mutex<HashMap<u64, Attributes>>);

impl RemovedDirectories {
    /// A directory is gone, with the change of the one that it was in.
    pub(crate) fn add(&self, node: u64, directory: &Entry, change: &NodeChange) {
        let attributes = Attributes {
            links: 0,
            size: 0,
            used: 0,
            ctime: change.after.ctime,
            ..directory.attributes.clone()
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
