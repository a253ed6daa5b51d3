//! Where a volume's blocks are, and what comes back when snapshots are deleted.
//!
//! Invariants: nothing is remembered: the engine counts each time ([`dblade::SnapshotSpans`]), and
//! holds up no other administrator meanwhile. Who lists or deletes snapshots waits for
//! [`PATIENCE`] at most, and does without the figures then.
//!
//! Fails: where the engine cannot read a map nothing is told of the volume's snapshots, and why.

use crate::node::Node;
use crate::volumes::room::Volumes;
use crate::waits::Ending;
use admin_api::{AdminError, Named, VolumeSpace};
use dblade::{EngineError, ServedVolume, SnapshotSpans, SnapshotSummary};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use units::{BLOCK_SIZE_U64, SnapshotId, shell_word};

/// How long the counts of one call are waited for, where the call can do without them.
const PATIENCE: Duration = Duration::from_secs(30);

/// A count ended so, or without an answer.
type Counted = Option<Result<Arc<SnapshotSpans>, String>>;

/// Ends an [`Ending`] whether or not the engine answers.
struct Answered(Arc<Ending<Counted>>, Counted);

impl Answered {
    fn note(&mut self, spans: Result<SnapshotSpans, EngineError>) {
        self.1 = Some(spans.map(Arc::new).map_err(|error| error.to_string()));
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.end(self.1.take());
    }
}

/// The counts of one call.
pub(crate) struct Counts<'a> {
    node: &'a Node,
    until_nanoseconds: u64,
}

impl Counts<'_> {
    /// What a volume's snapshots hold beside its present files.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn of(&self, volume: &ServedVolume) -> Result<Arc<SnapshotSpans>, String> {
        let (ending, wanted) = (Arc::<Ending<Counted>>::default(), Arc::new(()));
        let mut answered = Answered(Arc::clone(&ending), None);
        let done = move |spans: Result<SnapshotSpans, EngineError>| {
            answered.note(spans);
        };
        self.node.engine.snapshot_spans(&volume.name(), &wanted, Box::new(done));
        let now = self.node.clock.monotonic_nanoseconds();
        let left = Duration::from_nanos(self.until_nanoseconds.saturating_sub(now));
        match self.node.waits.wait_a_while(&ending, left) {
            Some(Some(counted)) => counted,
            Some(None) => Err("the engine stopped before it was counted".to_owned()),
            None => Err(format!(
                "it takes long to count: stroop volume show {} --space waits for it",
                shell_word(&volume.name())
            )),
        }
    }
}

impl Volumes {
    /// Counts for a call that can do without them.
    pub(crate) fn counts(&self) -> Counts<'_> {
        let now = self.node.clock.monotonic_nanoseconds();
        let patience = PATIENCE.as_nanos() as u64;
        Counts { node: &self.node, until_nanoseconds: now.saturating_add(patience) }
    }

    /// Where a volume's blocks are.
    ///
    /// # Errors
    /// What the engine says.
    pub(crate) fn volume_space(&self, wanted: &Named) -> Result<VolumeSpace, AdminError> {
        let message = "cannot show the space of";
        let volume = self.find(message, &wanted.name)?;
        let snapshots = self.snapshots_of(&volume)?;
        let is_wanted = Arc::new(());
        let spans: SnapshotSpans = self.node.waits.request(message, &wanted.name, |done| {
            self.node.engine.snapshot_spans(&wanted.name, &is_wanted, done);
        })?;
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

    /// What comes back when these snapshots are deleted: in bytes, and why that is not known.
    pub(crate) fn freed_with(
        &self,
        volume: &ServedVolume,
        snapshots: &[SnapshotSummary],
    ) -> (u64, Option<String>) {
        let chosen: BTreeSet<SnapshotId> = snapshots.iter().map(|snapshot| snapshot.id).collect();
        match self.counts().of(volume) {
            Ok(spans) => (spans.freed_with(&chosen) * BLOCK_SIZE_U64, None),
            Err(why) => (0, Some(format!("what comes back is not known: {why}"))),
        }
    }
}
