//! A traditional volume: the aggregate's own file system with a user-visible root (FlexVol section
//! 3 calls it a TradVol).
//!
//! Invariants: its block side is the aggregate's; an aggregate has one traditional volume and no
//! other.

use crate::front::Front;
use crate::load::snapshot_views;
use crate::member::note_acls;
use crate::quotas;
use crate::snapshots::{Birth, Requests, SnapshotInfo, SnapshotRequest};
use crate::work::{file_work, image_facts};
use affinity::{Access, Partition};
use aggregate::{
    ActiveDone, Aggregate, AggregateError, Cleaning, FreezeContext, Member, MemberCleaned,
    OwnFiles, Published,
};
use cowfs::budget::{Spender, snapshot_blocks};
use ondisk::pointer::PhysicalPointer;
use std::sync::{Arc, Weak};
use units::VolumeId;

/// See the module.
pub struct TraditionalVolume {
    /// The logical side.
    pub front: Front<PhysicalPointer>,
    state: Partition<State>,
    aggregate: Weak<Aggregate>,
}

#[derive(Default)]
struct State {
    requests: Requests<PhysicalPointer>,
    /// Dirty blocks of the image being cleaned.
    frozen_blocks: Option<u64>,
    /// It has room to count inodes for quotas: how far that had come.
    counted_before: Option<u64>,
}

/// Block numbers that no volume of an aggregate can have: a traditional volume's limit is the
/// aggregate's.
const UNLIMITED_BLOCKS: u64 = 1 << 50;

impl TraditionalVolume {
    /// A volume over its logical side.
    #[must_use]
    pub fn new(aggregate: &Arc<Aggregate>, front: Front<PhysicalPointer>) -> Arc<Self> {
        front.shared.budget.settle(UNLIMITED_BLOCKS, 0);
        let state = Partition::new(front.affinities.vbn, State::default());
        Arc::new(Self { front, state, aggregate: Arc::downgrade(aggregate) })
    }

    fn aggregate(&self) -> Arc<Aggregate> {
        let Some(aggregate) = self.aggregate.upgrade() else {
            unreachable!("a member is alive while its aggregate is")
        };
        aggregate
    }

    /// Takes a request for snapshots in; part of a freeze's action.
    ///
    /// # Errors
    /// Why it cannot be met.
    pub fn accept(
        &self,
        access: &mut Access<'_>,
        request: &SnapshotRequest,
        birth: Birth,
    ) -> Result<(), AggregateError> {
        if matches!(request, SnapshotRequest::Restore(_)) {
            return Err(AggregateError::Refused(
                "a traditional volume cannot be restored yet; copy from .snapshot instead"
                    .to_owned(),
            ));
        }
        let aggregate = self.aggregate();
        let space = &aggregate.block_side.read(access).space;
        self.state.read(access).requests.check(space, request)?;
        let numbers = space.size_blocks;
        if matches!(request, SnapshotRequest::Create(_))
            && !aggregate.parts.shared.budget.promise(snapshot_blocks(numbers), Spender::Common)
        {
            return Err(AggregateError::Full);
        }
        let mut requests = std::mem::take(&mut self.state.write(access).requests);
        let side = aggregate.block_side.write(access);
        requests.accept(&mut side.space, request, birth);
        let views = snapshot_views(&side.space.snapshots);
        if side.space.snapshots_changed {
            aggregate.force();
        }
        self.state.write(access).requests = requests;
        self.front.logical.write(access).snapshots = views;
        Ok(())
    }

    /// The snapshots that are not being deleted; for messages of the aggregate's affinity.
    #[must_use]
    pub fn snapshots(&self, access: &Access<'_>) -> Vec<SnapshotInfo> {
        let aggregate = self.aggregate();
        SnapshotInfo::of_kept(&aggregate.block_side.read(access).space)
    }
}

/// A traditional volume has nothing to clean by itself: its files go with the aggregate's image.
struct SharedFiles {
    aggregate: Arc<Aggregate>,
    volume: VolumeId,
    files: OwnFiles,
}

impl Cleaning for SharedFiles {
    fn begin(self: Box<Self>) {
        let Self { aggregate, volume, files } = *self;
        let files = Some(files);
        aggregate.member_cleaned(MemberCleaned { files, ..MemberCleaned::of(volume) });
    }
}

impl Member for TraditionalVolume {
    fn id(&self) -> VolumeId {
        self.front.id
    }

    fn freeze(
        &self,
        access: &mut Access<'_>,
        context: &FreezeContext,
    ) -> Option<Box<dyn Cleaning>> {
        let aggregate = self.aggregate();
        let space = &aggregate.block_side.read(access).space;
        let wanted = space.snapshots_changed || space.has_snapshot_work();
        let quota_file = space.quotas;
        let mut requests = std::mem::take(&mut self.state.write(access).requests);
        let logical = self.front.logical.write(access);
        let begins = !logical.quota_changes.is_empty() && !quota_file.is_counting();
        let has_uncounted = quota_file.has_work() || begins;
        let counted_portion = quotas::counted_portion(&logical.shared, has_uncounted);
        let wanted = wanted || counted_portion > 0;
        if !logical.is_dirty() && !wanted && !requests.is_pending() {
            logical.freeze_unchanged();
            self.state.write(access).requests = requests;
            return None;
        }
        let mut image = logical.freeze();
        note_acls(&aggregate, access, (self.front.id, &image));
        let facts = image_facts(&mut image, &mut requests, context, counted_portion);
        let state = self.state.write(access);
        state.requests = requests;
        state.frozen_blocks = Some(image.dirty_blocks);
        state.counted_before = (counted_portion > 0).then_some(quota_file.counted_inodes);
        let files = OwnFiles { facts, work: file_work(&mut image) };
        Some(Box::new(SharedFiles { aggregate, volume: self.front.id, files }))
    }

    fn find_active(&self, _: Vec<units::Vvbn>, done: ActiveDone) {
        // Nothing of it moves.
        done(Vec::new());
    }

    fn let_go(&self, access: &mut Access<'_>) {
        self.state.write(access).frozen_blocks = None;
        self.front.logical.write(access).let_go();
    }

    fn publish(&self, access: &mut Access<'_>, published: &Published<'_>) -> bool {
        let Some(dirty_blocks) = self.state.write(access).frozen_blocks.take() else {
            // No file changed, but maps or the volume table did: the inode file that names them has
            // blocks elsewhere, and those that it had may be used again.
            self.front.logical.write(access).inode_file = published.inode_file;
            return false;
        };
        self.front.note_given_up(published.given_up.to_vec());
        self.front.shared.budget.settle(UNLIMITED_BLOCKS, 0);
        let aggregate = self.aggregate();
        let passed = &mut aggregate.block_side.write(access).space.quotas_passed;
        self.front.shared.quotas.note_passed(std::mem::take(passed));
        let space = &aggregate.block_side.read(access).space;
        let counted_inodes = space.quotas.counted_inodes;
        let (views, reclaiming) = (snapshot_views(&space.snapshots), space.has_snapshot_work());
        let counted_before = self.state.write(access).counted_before.take();
        quotas::go_on(&aggregate, self.front.affinities.vbn, counted_before, counted_inodes);
        self.front.publish(access, reclaiming, |logical| {
            drop(logical.publish(published.cleaned, published.inode_file, dirty_blocks));
            logical.snapshots = views;
        })
    }
}
