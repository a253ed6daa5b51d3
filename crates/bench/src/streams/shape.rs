//! The aggregates that are measured, and the file systems that stand beside each.

use crate::peer_disks::FileSystem;
use crate::process::NodeShape;

/// An aggregate that is measured, and what stands beside it.
pub(crate) struct Shape {
    pub name: &'static str,
    pub node: NodeShape,
    /// The second has checksums and snapshots, and survives the loss of a disk where ours does.
    pub peers: [FileSystem; 2],
}

/// The aggregates that are measured.
pub(crate) const SHAPES: [Shape; 2] = [
    Shape {
        name: "one disk",
        node: NodeShape { disks: 1, raid: "none", activity: true, traditional: false },
        peers: [FileSystem::Xfs, FileSystem::Btrfs],
    },
    Shape {
        name: "raid4 3+1",
        node: NodeShape { disks: 4, raid: "raid4", activity: true, traditional: false },
        peers: [FileSystem::Xfs, FileSystem::BtrfsRaid1],
    },
];
