//! What programs have written to open files and the kernel has not sent, at the end of a mount.
//!
//! The kernel writes a file's dirty pages when it is told to forget them, and waits until they are
//! answered, whoever may look into the volume. `syncfs` does not wait on FUSE (Linux 6.18), and
//! wants a path.
//!
//! Invariants: whoever sends is no event loop, since these answer the writes. Before Linux 6.16
//! pages that are on their way already are not waited for.
//!
//! Fails: what cannot be written is lost, as on a local file system; the program hears of it if it
//! asks by `fsync` or `close` before the mount ends.

use crate::device::Device;
use crate::server::Server;
use std::sync::{Arc, Weak};

/// See the module. The mount's event loops own what it leads to.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    server: Weak<Server>,
    device: Weak<Device>,
}

impl Unsent {
    /// Of the mount that these serve.
    pub(crate) fn new(server: &Arc<Server>, device: &Arc<Device>) -> Self {
        Self { server: Arc::downgrade(server), device: Arc::downgrade(device) }
    }

    /// Has all of it sent, and waits for that.
    pub(crate) fn send(&self) {
        let (Some(server), Some(device)) = (self.server.upgrade(), self.device.upgrade()) else {
            return;
        };
        for node in server.nodes_open_for_writing() {
            device.forget_content(node);
        }
    }
}
