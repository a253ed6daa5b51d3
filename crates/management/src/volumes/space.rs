//! Where the blocks of volumes and aggregates are, and what comes back when snapshots are deleted.
//!
//! Invariants: nothing is remembered: the engine counts each time ([`dblade::SnapshotSpans`]), and
//! holds up no other administrator meanwhile. Who lists or deletes snapshots waits for
//! [`PATIENCE`] at most, and does without the figures then.
//!
//! Fails: of snapshots that cannot be counted nothing is told; who asks for them alone is told why.

use crate::node::Node;
use crate::volumes::room::Volumes;
use crate::waits::Ending;
use admin_api::{
    AdminError, AggregateInfo, AggregateSpace, AggregateState, Code, DiskInfo, DiskRole, Named,
    VolumeShare, VolumeSpace,
};
use dblade::{EngineError, ServedVolume, SnapshotSpans, SnapshotSummary};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use units::{BLOCK_SIZE_U64, SnapshotId, VolumeUuid, shell_word};

/// How long the counts of one call are waited for, where the call can do without them.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often an aggregate is looked at, at most, until no consistency point commits meanwhile.
const LOOKS_MAX: u32 = 5;

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
        let done = move |spans: Result<SnapshotSpans, EngineError>| answered.note(spans);
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

/// What a clone's snapshots inherited, by volume: blocks, where that could be counted.
type Inherited = BTreeMap<VolumeUuid, Option<u64>>;

/// What a volume has of its aggregate.
fn share(volume: &ServedVolume, inherited_by_snapshots: &Inherited) -> VolumeShare {
    let beside_blocks = volume.used_blocks().saturating_sub(volume.active_blocks());
    let (owned_blocks, delayed_blocks) = (volume.owned_blocks(), volume.delayed_blocks());
    let own_blocks = owned_blocks.saturating_sub(delayed_blocks);
    // Only a clone's snapshots may have what is not the clone's.
    let inherited = inherited_by_snapshots.get(&volume.environment.identity);
    let inherited = inherited.map_or(Some(0), |blocks| *blocks);
    let snapshot_blocks = inherited.map(|blocks| beside_blocks.saturating_sub(blocks));
    let snapshot_blocks = snapshot_blocks.map(|blocks| blocks.min(own_blocks));
    VolumeShare {
        volume: volume.name(),
        deleted: volume.queued().is_some(),
        owned_bytes: owned_blocks * BLOCK_SIZE_U64,
        live_bytes: snapshot_blocks.map(|blocks| (own_blocks - blocks) * BLOCK_SIZE_U64),
        snapshot_bytes: snapshot_blocks.map(|blocks| blocks * BLOCK_SIZE_U64),
        delayed_free_bytes: delayed_blocks.min(owned_blocks) * BLOCK_SIZE_U64,
        inherited_bytes: volume.inherited_blocks() * BLOCK_SIZE_U64,
    }
}

/// Where blocks are.
pub(crate) struct Space<'a>(pub &'a Volumes);

impl<'a> Space<'a> {
    /// Counts for a call that can do without them.
    pub(crate) fn counts(&self) -> Counts<'a> {
        let now = self.0.node.clock.monotonic_nanoseconds();
        let patience = PATIENCE.as_nanos() as u64;
        Counts { node: &self.0.node, until_nanoseconds: now.saturating_add(patience) }
    }

    /// Where a volume's blocks are.
    ///
    /// # Errors
    /// What the engine says.
    pub(crate) fn volume_space(&self, wanted: &Named) -> Result<VolumeSpace, AdminError> {
        let message = "cannot show the space of";
        let volume = self.0.find(message, &wanted.name)?;
        let is_wanted = Arc::new(());
        let spans: SnapshotSpans = self.0.node.waits.request(message, &wanted.name, |done| {
            self.0.node.engine.snapshot_spans(&wanted.name, &is_wanted, done);
        })?;
        let snapshots = self.0.snapshots_of(&volume)?;
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
            snapshots: self.0.shown_snapshots(&volume, &snapshots, Some(&spans)),
            shared_snapshot_bytes: bytes(held_blocks - exclusive_blocks),
            deleted_snapshot_bytes: bytes(spans.deleted_blocks),
            delayed_free_bytes: bytes(volume.delayed_blocks()),
            owned_bytes: bytes(owned_blocks),
            inherited_live_bytes: bytes(inherited_blocks.saturating_sub(spans.inherited_blocks)),
            inherited_snapshot_bytes: bytes(spans.inherited_blocks),
            available_bytes: bytes(volume.available_blocks()),
        })
    }

    /// Where an aggregate's blocks are. `look` looks at the aggregate.
    ///
    /// # Errors
    /// `Conflict` while the aggregate is out of service: nobody knows then. What `look` says.
    pub(crate) fn aggregate_space(
        &self,
        look: impl Fn() -> Result<AggregateInfo, AdminError>,
    ) -> Result<AggregateSpace, AdminError> {
        let name = look()?.name;
        let inherited = self.inherited_by_snapshots(&name);
        let mut tries = LOOKS_MAX;
        loop {
            let aggregate = look()?;
            if aggregate.state == AggregateState::Offline {
                let error = AdminError::new(Code::Conflict, "cannot show the space of", &name);
                return Err(error.because("it is out of service").try_next("stroop status"));
            }
            let space = self.space_of(&aggregate, &inherited);
            // A commit in between would have some figures be of before it, and some of after it.
            let is_of_one_moment = look()?.consistency_point == aggregate.consistency_point;
            tries -= 1;
            if is_of_one_moment || tries == 0 {
                return Ok(space);
            }
        }
    }

    /// Volumes of an aggregate, those in the recovery queue included, in order of name.
    fn volumes_of(&self, aggregate: &str) -> Vec<Arc<ServedVolume>> {
        let mut volumes = self.0.node.engine.volumes();
        volumes.retain(|volume| volume.aggregate.parts.identity.name == aggregate);
        volumes.sort_by_key(|volume| volume.name());
        volumes
    }

    /// Counts the snapshots of clones.
    fn inherited_by_snapshots(&self, aggregate: &str) -> Inherited {
        let counts = self.counts();
        let mut clones = self.volumes_of(aggregate);
        clones.retain(|volume| {
            volume.inherited_blocks() > 0 && volume.used_blocks() > volume.active_blocks()
        });
        let count = |volume: Arc<ServedVolume>| {
            let blocks = counts.of(&volume).ok().map(|spans| spans.inherited_blocks);
            (volume.environment.identity, blocks)
        };
        clones.into_iter().map(count).collect()
    }

    fn space_of(&self, aggregate: &AggregateInfo, inherited: &Inherited) -> AggregateSpace {
        let volumes = self.volumes_of(&aggregate.name);
        let shares: Vec<VolumeShare> =
            volumes.iter().map(|volume| share(volume, inherited)).collect();
        let owned_bytes: u64 = shares.iter().map(|share| share.owned_bytes).sum();
        let gone = self.0.node.engine.aggregate_named(&aggregate.name);
        let gone = gone.map(|of| of.deletions()).unwrap_or_default();
        let left_blocks: u64 = gone.iter().map(|deletion| deletion.left_blocks).sum();
        let unowned_bytes = aggregate.used_bytes.saturating_sub(owned_bytes);
        let purged_bytes = (left_blocks * BLOCK_SIZE_U64).min(unowned_bytes);
        let disks = |role: Option<DiskRole>| -> u64 {
            let of_role = |disk: &&DiskInfo| role.is_none() || disk.role == role;
            aggregate.disks.iter().filter(of_role).map(|disk| disk.size_bytes).sum()
        };
        let beside = aggregate.used_bytes + aggregate.reserve_bytes + aggregate.free_bytes;
        let beside = beside + aggregate.guaranteed_bytes;
        AggregateSpace {
            aggregate: aggregate.name.clone(),
            raw_bytes: disks(None),
            parity_bytes: disks(Some(DiskRole::Parity)),
            spare_bytes: disks(Some(DiskRole::Spare)),
            size_bytes: aggregate.size_bytes,
            volumes: shares,
            purged_bytes,
            metadata_bytes: unowned_bytes - purged_bytes,
            reserve_bytes: aggregate.reserve_bytes,
            leaving_bytes: aggregate.size_bytes.saturating_sub(beside),
            guaranteed_bytes: aggregate.guaranteed_bytes,
            free_bytes: aggregate.free_bytes,
        }
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
