//! Where a volume's blocks are, and what comes back when snapshots are deleted.
//!
//! Invariants: nothing is remembered: the engine counts each time ([`dblade::SnapshotSpans`]). A
//! volume without snapshots is not counted.
//!
//! Fails: where the engine cannot read a map nothing is told of the volume's snapshots, and why.

use crate::volumes::room::Volumes;
use admin_api::{AdminError, Named, VolumeSpace};
use dblade::{ServedVolume, SnapshotSpans, SnapshotSummary};
use std::collections::BTreeSet;
use units::{BLOCK_SIZE_U64, SnapshotId};

impl Volumes {
    /// What a volume's snapshots hold beside its present files.
    ///
    /// # Errors
    /// What the engine says.
    pub(crate) fn spans_of(&self, volume: &ServedVolume) -> Result<SnapshotSpans, AdminError> {
        let name = &volume.name();
        self.node.waits.request("cannot count the snapshots of", name, |done| {
            self.node.engine.snapshot_spans(name, done);
        })
    }

    /// Where a volume's blocks are.
    ///
    /// # Errors
    /// As [`Self::spans_of`].
    pub(crate) fn volume_space(&self, wanted: &Named) -> Result<VolumeSpace, AdminError> {
        let volume = self.find("cannot show the space of", &wanted.name)?;
        let snapshots = self.snapshots_of(&volume)?;
        let spans = self.spans_of(&volume)?;
        let inherited_blocks = volume.inherited_blocks();
        let owned_blocks = volume.owned_blocks();
        let held_blocks = spans.held_blocks();
        let beside = held_blocks + spans.deleted_blocks + volume.delayed_blocks();
        let exclusive_blocks: u64 = spans.exclusive_blocks().iter().sum();
        let bytes = |blocks: u64| blocks * BLOCK_SIZE_U64;
        Ok(VolumeSpace {
            volume: volume.name(),
            size_bytes: bytes(volume.size_blocks()),
            live_bytes: bytes(owned_blocks.saturating_sub(beside)),
            snapshots: self.shown_snapshots(&volume, &snapshots, Some(&spans)),
            shared_snapshot_bytes: bytes(held_blocks - exclusive_blocks),
            deleted_snapshot_bytes: bytes(spans.deleted_blocks),
            delayed_free_bytes: bytes(volume.delayed_blocks()),
            owned_bytes: bytes(owned_blocks),
            inherited_live_bytes: bytes(inherited_blocks.saturating_sub(spans.inherited_blocks)),
            inherited_snapshot_bytes: bytes(spans.inherited_blocks),
            available_bytes: bytes(volume.available_blocks()),
        })
    }

    /// What comes back when these snapshots are deleted, in a sentence and in bytes; 0 where that
    /// is not known.
    pub(crate) fn freed_with(
        &self,
        volume: &ServedVolume,
        snapshots: &[SnapshotSummary],
    ) -> (Option<String>, u64) {
        let chosen: BTreeSet<SnapshotId> = snapshots.iter().map(|snapshot| snapshot.id).collect();
        match self.spans_of(volume) {
            Ok(spans) => (None, spans.freed_with(&chosen) * BLOCK_SIZE_U64),
            Err(error) => {
                let why = error.cause.join("; ");
                (Some(format!("what comes back is not known: {why}")), 0)
            }
        }
    }
}
