//! A node with FUSE mounts of its volume.
//!
//! Invariants: mounts are ended before the node, whatever happens. Fails: [`BenchError`].

use crate::leftovers::Mountpoint;
use crate::node::BenchError;
use crate::process::{NodeBench, NodeProcess, NodeShape, VOLUME};
use std::path::{Path, PathBuf};

/// See the module. The node ends all mounts when it stops, and mountpoints are freed after it.
pub(crate) struct MountedNode {
    pub node: NodeProcess,
    mounts: Vec<Mountpoint>,
}

impl MountedNode {
    /// A node without any mount.
    pub fn start(bench: &NodeBench, shape: NodeShape) -> Result<Self, BenchError> {
        Ok(Self { node: NodeProcess::start(bench, shape)?, mounts: Vec::new() })
    }

    /// Mounts the volume at a directory of that name in `parent`; where.
    pub fn mount(
        &mut self,
        parent: &Path,
        name: &str,
        options: &[&str],
    ) -> Result<PathBuf, BenchError> {
        let mountpoint = Mountpoint::at(directory(parent, name)?);
        let path = mountpoint.path().to_owned();
        self.mounts.push(mountpoint);
        self.node.command(&[&["mount", VOLUME, &path.display().to_string()], options].concat())?;
        Ok(path)
    }
}

impl Drop for MountedNode {
    fn drop(&mut self) {
        for mountpoint in self.mounts.iter().rev() {
            let _ = self.node.command(&["unmount", &mountpoint.path().display().to_string()]);
        }
    }
}

/// A directory to mount at, by its whole path.
pub(crate) fn directory(parent: &Path, name: &str) -> Result<PathBuf, BenchError> {
    let path = parent.join(name);
    let what = "cannot make a directory";
    std::fs::create_dir_all(&path).map_err(|error| BenchError::System { what, error })?;
    std::fs::canonicalize(&path).map_err(|error| BenchError::System { what, error })
}
