//! Files that the kernel may take for setuid or setgid programs, because it was told so: a write by
//! another than root clears these bits, and the kernel does not ask for the mode again by itself.
//!
//! Invariants: a file that the kernel was told of with such a bit is in here until it was told to
//! ask again, or forgets the file.

use file_service::{Attributes, FileKind};
use platform::sync::Mutex;
use std::collections::HashSet;

/// Setuid and setgid.
const PRIVILEGE_BITS: u32 = 0o6000;

/// Their nodes.
#[derive(Default)]
pub(crate) struct PrivilegedFiles(Mutex<HashSet<u64>>);

impl PrivilegedFiles {
    /// The kernel is about to be told these attributes.
    pub(crate) fn told(&self, node: u64, attributes: &Attributes) {
        if attributes.kind == FileKind::Regular && attributes.mode & PRIVILEGE_BITS != 0 {
            self.0.lock().insert(node);
        }
    }

    pub(crate) fn contains(&self, node: u64) -> bool {
        self.0.lock().contains(&node)
    }

    pub(crate) fn forget(&self, node: u64) {
        self.0.lock().remove(&node);
    }
}
