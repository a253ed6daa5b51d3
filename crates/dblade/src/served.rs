//! A volume in service: its front, its aggregate, and what clients must know of it.

use crate::scattered::ScatteredBlocks;
use aggregate::{
    Aggregate, AggregateError, AutogrowMax, Guarantee, Reallocation, SnapshotAutodelete,
    SnapshotSchedule, Tiering, VolumeChange,
};
use cowfs::image::GivenUp;
use cowfs::pointer::Pointer;
use cowfs::quotas::Quotas;
use file_service::HandleKey;
use ondisk::pointer::{DualPointer, PhysicalPointer};
use ondisk::records::{ExportRuleRecord, VolumeRecord};
use operations::Environment;
use platform::sync::RwLock;
use platform::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use units::{SnapshotId, Timestamp, VolumeId};
use volume::beside::MayGoOn;
use volume::recovery_queue::{self, Keeping};
use volume::{FlexibleVolume, Front, TraditionalVolume, VolumeDamage};

/// The two kinds.
#[derive(Clone)]
pub enum VolumeKind {
    /// In a container file.
    Flexible(Arc<FlexibleVolume>),
    /// The aggregate's own file system.
    Traditional(Arc<TraditionalVolume>),
}

/// Whether clients of a volume are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// They are.
    Online,
    /// They wait: it is about to be offline, and is not if the power goes now.
    GoingOffline,
    /// They are turned away.
    Offline,
}

/// What a volume is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeNames {
    /// The name that it is served under.
    pub served: String,
    /// The name that it was given: another volume may have it.
    pub given: String,
}

/// A volume's stay in the recovery queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Queued {
    /// How long it is kept.
    pub keeping: Keeping,
    /// Whether it was offline when it was deleted: so it is again when it is back.
    pub is_offline: bool,
}

impl Queued {
    /// As a volume's record has it; `None` if the volume is not in the queue.
    pub(crate) fn of(record: &VolumeRecord) -> Option<Self> {
        let is_offline = record.is_offline();
        recovery_queue::keeping_of(record).map(|keeping| Self { keeping, is_offline })
    }
}

/// What a clone began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloneOrigin {
    /// The number of its parent.
    pub parent: VolumeId,
    /// The number of the parent's snapshot.
    pub snapshot: SnapshotId,
}

impl CloneOrigin {
    /// As a volume's record has it; `None` if the volume is no clone.
    pub(crate) fn of(record: &VolumeRecord) -> Option<Self> {
        let snapshot = SnapshotId(record.clone_base.snapshot.get());
        record.parent().map(|parent| Self { parent, snapshot })
    }
}

/// See the module.
pub struct ServedVolume {
    /// Its aggregate.
    pub aggregate: Arc<Aggregate>,
    /// Its kind.
    pub kind: VolumeKind,
    /// What its operations need to know.
    pub environment: Environment,
    /// Seals the handles that clients get.
    pub handle_key: HandleKey,
    /// When it was made.
    pub created: Timestamp,
    /// What the volume began with, if it was made as a clone.
    birth: Option<CloneOrigin>,
    names: RwLock<VolumeNames>,
    exports: RwLock<Arc<Vec<ExportRuleRecord>>>,
    tiering: RwLock<Tiering>,
    schedule: RwLock<SnapshotSchedule>,
    guarantee: RwLock<Guarantee>,
    /// See [`ServedVolume::may_reallocate`]; without a lock, because every read asks.
    may_reallocate: AtomicBool,
    standing: RwLock<Standing>,
    queued: RwLock<Option<Queued>>,
    gone: AtomicBool,
    pub(crate) scattered: ScatteredBlocks,
}

impl ServedVolume {
    /// A volume as its record says, under this name.
    #[must_use]
    pub fn new(
        (record, name): (&VolumeRecord, String),
        aggregate: Arc<Aggregate>,
        kind: VolumeKind,
        environment: Environment,
    ) -> Arc<Self> {
        // The blocks of a traditional volume stay where they are, whatever its record says.
        let may_reallocate = matches!(kind, VolumeKind::Flexible(_))
            && Reallocation::of(record) == Reallocation::Auto;
        if let VolumeKind::Flexible(volume) = &kind {
            volume.set_autogrow_max(AutogrowMax::of(record));
            volume.set_autodelete(SnapshotAutodelete::of(record));
        }
        let exports = record.exports.iter().filter(|rule| rule.used != 0).copied().collect();
        Arc::new(Self {
            aggregate,
            kind,
            environment,
            handle_key: HandleKey(record.handle_key),
            created: Timestamp(record.created.get()),
            birth: CloneOrigin::of(record),
            names: RwLock::new(VolumeNames { served: name, given: record.name().to_owned() }),
            exports: RwLock::new(Arc::new(exports)),
            tiering: RwLock::new(Tiering::of(record)),
            schedule: RwLock::new(SnapshotSchedule::of(record)),
            guarantee: RwLock::new(Guarantee::of(record)),
            may_reallocate: AtomicBool::new(may_reallocate),
            standing: RwLock::new(match record.is_offline() || record.is_queued() {
                true => Standing::Offline,
                false => Standing::Online,
            }),
            queued: RwLock::new(Queued::of(record)),
            gone: AtomicBool::new(false),
            scattered: ScatteredBlocks::default(),
        })
    }

    /// The name that it is served under.
    #[must_use]
    pub fn name(&self) -> String {
        self.names.read().served.clone()
    }

    /// The name that it is served under, and the name that it was given.
    #[must_use]
    pub fn names(&self) -> VolumeNames {
        self.names.read().clone()
    }

    /// Only [`crate::engine::Engine`] renames, which has the register of names.
    pub(crate) fn set_names(&self, names: VolumeNames) {
        *self.names.write() = names;
    }

    /// Whether another volume is in the same aggregate.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.aggregate, &other.aggregate)
    }

    /// The size that users see.
    #[must_use]
    pub fn size_blocks(&self) -> u64 {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.size_blocks(),
            VolumeKind::Traditional(_) => self.aggregate.size_blocks(),
        }
    }

    /// Its export rules, in order.
    #[must_use]
    pub fn exports(&self) -> Arc<Vec<ExportRuleRecord>> {
        Arc::clone(&self.exports.read())
    }

    pub(crate) fn set_exports(&self, rules: Vec<ExportRuleRecord>) {
        *self.exports.write() = Arc::new(rules);
    }

    /// Which of its blocks lie in object stores.
    #[must_use]
    pub fn tiering(&self) -> Tiering {
        *self.tiering.read()
    }

    /// How many snapshots of it are taken and kept.
    #[must_use]
    pub fn schedule(&self) -> SnapshotSchedule {
        *self.schedule.read()
    }

    /// How much room its aggregate keeps for it.
    #[must_use]
    pub fn guarantee(&self) -> Guarantee {
        *self.guarantee.read()
    }

    /// What operations know of its quotas.
    #[must_use]
    pub fn quota_ledger(&self) -> &Quotas {
        match &self.kind {
            VolumeKind::Flexible(volume) => &volume.front.shared.quotas,
            VolumeKind::Traditional(volume) => &volume.front.shared.quotas,
        }
    }

    /// Blocks that its aggregate keeps free for it, as of the last freeze or commit.
    #[must_use]
    pub fn guaranteed_blocks(&self) -> u64 {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.front.shared.guaranteed.blocks(),
            VolumeKind::Traditional(_) => 0,
        }
    }

    /// Whether reads reallocate, as administrators see it.
    #[must_use]
    pub fn reallocation(&self) -> Reallocation {
        if self.may_reallocate() { Reallocation::Auto } else { Reallocation::Off }
    }

    /// Whether a read of a file that lies scattered may have the file written anew in order. False
    /// in a traditional volume, whose blocks stay where they are. One relaxed load: a read that
    /// runs beside a change of the policy may go by the old one.
    #[must_use]
    pub fn may_reallocate(&self) -> bool {
        self.may_reallocate.load(Ordering::Relaxed)
    }

    /// What a consistency point has committed.
    pub(crate) fn set_policies(&self, change: VolumeChange) {
        if let Some(tiering) = change.tiering {
            *self.tiering.write() = tiering;
        }
        if let Some(schedule) = change.schedule {
            *self.schedule.write() = schedule;
        }
        if let Some(guarantee) = change.guarantee {
            *self.guarantee.write() = guarantee;
        }
        if let Some(reallocation) = change.reallocation {
            let may_reallocate = reallocation == Reallocation::Auto;
            self.may_reallocate.store(may_reallocate, Ordering::Relaxed);
        }
        if let (Some(maximum), VolumeKind::Flexible(volume)) = (change.autogrow_max, &self.kind) {
            volume.set_autogrow_max(maximum);
        }
        if let (Some(which), VolumeKind::Flexible(volume)) = (change.autodelete, &self.kind) {
            volume.set_autodelete(which);
        }
    }

    /// Its record may be changed again, so that it may grow.
    pub(crate) fn grow_again(&self) {
        if let VolumeKind::Flexible(volume) = &self.kind {
            volume.set_autogrow_max(volume.autogrow_max());
        }
    }

    /// See [`volume::FlexibleVolume::take_growth`].
    #[must_use]
    pub fn take_growth(&self) -> Option<(u64, u64)> {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.take_growth(),
            VolumeKind::Traditional(_) => None,
        }
    }

    /// See [`volume::FlexibleVolume::take_autodeleted`].
    #[must_use]
    pub fn take_autodeleted(&self) -> Vec<String> {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.take_autodeleted(),
            VolumeKind::Traditional(_) => Vec::new(),
        }
    }

    /// Which snapshots are deleted where room is short.
    #[must_use]
    pub fn autodelete(&self) -> SnapshotAutodelete {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.autodelete(),
            VolumeKind::Traditional(_) => SnapshotAutodelete::Off,
        }
    }

    /// The size that it grows to by itself where room is short.
    #[must_use]
    pub fn autogrow_max(&self) -> AutogrowMax {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.autogrow_max(),
            VolumeKind::Traditional(_) => AutogrowMax::default(),
        }
    }

    /// Blocks that lie in object stores.
    #[must_use]
    pub fn object_blocks(&self) -> u64 {
        self.aggregate.object_blocks_of(self.environment.volume)
    }

    /// What there is to say of it if it is in the recovery queue.
    #[must_use]
    pub fn queued(&self) -> Option<Queued> {
        *self.queued.read()
    }

    pub(crate) fn set_queued(&self, queued: Option<Queued>) {
        *self.queued.write() = queued;
    }

    /// Whether an administrator has taken it offline, or deleted it.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.standing() != Standing::Online
    }

    pub(crate) fn standing(&self) -> Standing {
        *self.standing.read()
    }

    pub(crate) fn set_standing(&self, standing: Standing) {
        *self.standing.write() = standing;
    }

    /// The volume was deleted: whoever still has a handle gets `Stale`.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// For what a freeze does: whether an action before it has deleted the volume.
    pub(crate) fn check_there(&self) -> Result<(), AggregateError> {
        let gone = || AggregateError::Refused("the volume is gone".to_owned());
        if self.is_gone() { Err(gone()) } else { Ok(()) }
    }

    /// Blocks that can still be written: the volume's room or the aggregate's, whichever is less.
    #[must_use]
    pub fn available_blocks(&self) -> u64 {
        match &self.kind {
            VolumeKind::Flexible(volume) => {
                let shared = &volume.front.shared;
                let aggregate = shared.accounts().free_blocks_of_aggregate();
                shared.budget.free_blocks().min(self.size_blocks()).min(aggregate)
            }
            VolumeKind::Traditional(_) => self.aggregate.parts.shared.budget.free_blocks(),
        }
    }

    /// Blocks in use by the active image.
    #[must_use]
    pub fn active_blocks(&self) -> u64 {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.active_blocks(),
            VolumeKind::Traditional(_) => self.aggregate.active_blocks(),
        }
    }

    /// Blocks in use, snapshots included.
    #[must_use]
    pub fn used_blocks(&self) -> u64 {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.used_blocks(),
            VolumeKind::Traditional(_) => self.aggregate.used_blocks(),
        }
    }

    /// Blocks that the aggregate has for this volume alone, snapshots and delayed frees included.
    /// Beyond them a clone uses what it inherited.
    #[must_use]
    pub fn owned_blocks(&self) -> u64 {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.owned_blocks(),
            VolumeKind::Traditional(_) => self.aggregate.used_blocks(),
        }
    }

    /// The snapshot that a clone began with; `None` if the volume is no clone, or was split.
    #[must_use]
    pub fn origin(&self) -> Option<CloneOrigin> {
        self.birth.filter(|_| self.aggregate.is_clone(self.environment.volume))
    }

    /// Blocks in use or delayed that a clone inherited: an ancestor has them.
    #[must_use]
    pub fn inherited_blocks(&self) -> u64 {
        match &self.kind {
            VolumeKind::Flexible(volume) if self.origin().is_some() => volume.inherited_blocks(),
            _ => 0,
        }
    }

    /// Files that were given up since the start: a block that leads to the content cannot be read.
    #[must_use]
    pub fn given_up(&self) -> Vec<GivenUp> {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.front.given_up(),
            VolumeKind::Traditional(volume) => volume.front.given_up(),
        }
    }

    /// Why the volume takes no changes, if it takes none.
    #[must_use]
    pub fn damage(&self) -> Option<VolumeDamage> {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.front.damage(),
            // What its files share is the aggregate's.
            VolumeKind::Traditional(_) => None,
        }
    }

    /// See [`volume::Front::take_refused_restore`].
    pub(crate) fn take_refused_restore(&self) -> Option<String> {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.front.take_refused_restore(),
            VolumeKind::Traditional(_) => None,
        }
    }

    /// Whether the volume could not be loaded.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        matches!(&self.kind, VolumeKind::Flexible(volume) if volume.front.is_unreadable())
    }

    /// Blocks that no image uses any more and that are still in use in the aggregate.
    #[must_use]
    pub fn delayed_blocks(&self) -> u64 {
        match &self.kind {
            VolumeKind::Flexible(volume) => volume.delayed_blocks(),
            VolumeKind::Traditional(_) => 0,
        }
    }
}

/// A volume of a known pointer format, as messages hold it.
pub(crate) trait Fronted<P: Pointer>: Send + Sync + 'static {
    /// Its logical side.
    fn front(&self) -> &Front<P>;
}

impl Fronted<DualPointer> for FlexibleVolume {
    fn front(&self) -> &Front<DualPointer> {
        &self.front
    }
}

impl Fronted<PhysicalPointer> for TraditionalVolume {
    fn front(&self) -> &Front<PhysicalPointer> {
        &self.front
    }
}

/// Work on a volume goes on while the volume is there and sound, and somebody waits for it.
pub(crate) fn while_wanted(served: &Arc<ServedVolume>, wanted: &Arc<()>) -> MayGoOn {
    let (served, wanted) = (Arc::clone(served), Arc::downgrade(wanted));
    Box::new(move || {
        served.check_there()?;
        let refused = |text: String| Err(AggregateError::Refused(text));
        match served.damage() {
            // What is in memory may be of an image that has not become one.
            Some(damage) => refused(format!("the volume is read-only: {damage}")),
            None if wanted.strong_count() == 0 => refused("nobody waits any more".to_owned()),
            None => Ok(()),
        }
    })
}
