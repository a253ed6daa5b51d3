//! What a check found.

use crate::finding::{Finding, ImageName};
use std::collections::BTreeMap;
use std::fmt;
use units::{SnapshotId, VolumeId};

/// Findings that a report keeps: more say nothing new.
pub const FINDINGS_MAX: usize = 10_000;

/// What was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    /// Blocks of the aggregate in use.
    pub blocks: u64,
    /// Flexible and traditional volumes.
    pub volumes: u64,
    /// Snapshot images walked.
    pub snapshots: u64,
    /// Files and directories with names or on orphan lists, of all images.
    pub files: u64,
    /// Stripes whose parity was computed.
    pub stripes: u64,
    /// Blocks that were read from parity because a disk is missing.
    pub degraded_reads: u64,
}

/// The names of what findings are about.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Names {
    /// Volumes; zero is a traditional volume.
    pub volumes: BTreeMap<VolumeId, String>,
    /// Snapshots.
    pub snapshots: BTreeMap<(VolumeId, SnapshotId), String>,
    /// Files: empty for the root directory, else each name after a slash.
    pub paths: BTreeMap<(ImageName, u64), Vec<u8>>,
}

/// Who has the blocks of a file system that its active image does not have.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HeldSpace {
    /// The snapshots that are not being deleted, oldest first.
    pub snapshots: Vec<SnapshotSpace>,
    /// Blocks that only snapshots have which are being deleted.
    pub deleted_blocks: u64,
    /// Numbers whose blocks an ancestor of the volume has.
    pub inherited_blocks: u64,
}

/// What a snapshot has beside the active image, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SnapshotSpace {
    /// Its number.
    pub snapshot: SnapshotId,
    /// Blocks that no other snapshot has.
    pub exclusive_blocks: u64,
    /// Blocks that no newer snapshot has.
    pub newest_blocks: u64,
}

/// The outcome of a check.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// What is wrong, in the order in which it was found.
    pub findings: Vec<Finding>,
    /// Findings beyond [`FINDINGS_MAX`].
    pub omitted: u64,
    /// What was looked at.
    pub totals: Totals,
    /// The names of what findings are about.
    pub names: Names,
    /// What snapshots hold, by volume, of volumes all of whose maps could be read. Zero is a
    /// traditional volume, or the aggregate's own file system.
    pub held: BTreeMap<VolumeId, HeldSpace>,
}

impl Report {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }

    pub(crate) fn add(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.omitted += 1;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(formatter, "{finding}")?;
        }
        if self.omitted > 0 {
            writeln!(formatter, "and {} more", self.omitted)?;
        }
        let Totals { blocks, volumes, snapshots, files, stripes, .. } = self.totals;
        write!(
            formatter,
            "{} findings; {blocks} blocks, {volumes} volumes, {snapshots} snapshots, {files} files, \
             {stripes} stripes",
            self.findings.len() as u64 + self.omitted
        )
    }
}
