//! Damage that a volume cannot live without: of its maps, its inode file or its container map.
//!
//! A file whose tree cannot be read costs itself (`cowfs::image`). Without what belongs to all
//! files no consistency point can go on, so the volume stays as its last commit has it, and is
//! *read-only* from then on. What clients changed after that commit is dropped, and they are told:
//! the write verifier changes, and each change is refused. The container says so on media (its
//! inode's `INODE_QUARANTINED`), by the very consistency point that left the volume out: replay
//! after a crash finds either all of the changes in the log, or none that it may apply.
//!
//! Invariants: a damaged volume places and frees nothing. Damage is not taken back while the
//! aggregate is in service.
//!
//! A volume that cannot even be loaded is *unreadable*: it is listed and can be deleted, and all
//! else is refused.

use crate::flexible::FlexibleVolume;
use crate::format::{empty_logical, slack_blocks};
use crate::front::{Front, FrontAffinities};
use crate::load::{load_flexible, read_orphans, snapshot_views};
use affinity::{Access, Outcome};
use aggregate::Aggregate;
use cowfs::logical::Shared;
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use cowfs::space::Space;
use ondisk::features::FeatureName;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{Pvbn, VolumeId};

/// Why a volume is read-only, or not in service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VolumeDamage {
    /// This block of its metafiles cannot be read.
    Unreadable(Pvbn),
    /// Its metafiles contradict one another.
    Contradiction(&'static str),
    /// It was found before the last start; the server log of then has more.
    Known,
    /// Nothing is damaged: a newer build wrote the volume, and this one lacks the feature.
    Feature(FeatureName),
}

impl VolumeDamage {
    /// What kept work on a volume from going on.
    ///
    /// # Panics
    /// If that is no damage.
    #[must_use]
    pub fn of(stop: &Stop) -> Self {
        match stop {
            Stop::Damaged(pvbn) | Stop::MetafileDamaged(pvbn) => Self::Unreadable(*pvbn),
            Stop::Contradiction(problem) => Self::Contradiction(problem),
            Stop::Wait(_) | Stop::NoSpace | Stop::Quarantined(_) => {
                unreachable!("a volume's own work neither asks for promises nor for content")
            }
        }
    }
}

impl fmt::Display for VolumeDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(pvbn) => write!(f, "block {pvbn} of its metafiles cannot be read"),
            Self::Contradiction(problem) => write!(f, "its metafiles contradict: {problem}"),
            Self::Feature(feature) => write!(
                f,
                "it uses the feature '{feature}', which this build of Stroop lacks; start the \
                 build that wrote it, or a later one"
            ),
            Self::Known => write!(f, "its metafiles were found damaged before the last start"),
        }
    }
}

impl<P: Pointer> Front<P> {
    /// The volume is damaged: it takes no changes from now on. The first damage counts.
    pub fn set_damage(&self, damage: VolumeDamage) {
        let mut known = self.damage.lock();
        if known.is_some() {
            return;
        }
        *known = Some(damage);
        drop(known);
        self.is_read_only.store(true, Ordering::Release);
        tracing::error!(
            volume = %self.id, %damage,
            "the volume is read-only: it stays as its last consistency point has it, and later \
             changes are dropped"
        );
        let hook = self.damage_hook.lock().take();
        if let Some(hook) = hook {
            hook();
        }
    }

    /// Why the volume is read-only, if it is.
    #[must_use]
    pub fn damage(&self) -> Option<VolumeDamage> {
        *self.damage.lock()
    }

    /// Why the restore that was asked for last was refused by its consistency point; once.
    #[must_use]
    pub fn take_refused_restore(&self) -> Option<String> {
        self.refused_restore.lock().take()
    }

    /// Whether the volume takes no changes; cheap, for every operation to ask.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Acquire)
    }

    /// Whether the volume could not be loaded: it has neither files nor snapshots to show.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.is_unreadable.load(Ordering::Acquire)
    }

    /// Sets what to call when the volume becomes read-only.
    pub fn on_damage(&self, hook: Box<dyn FnOnce() + Send>) {
        *self.damage_hook.lock() = Some(hook);
    }
}

impl FlexibleVolume {
    /// A volume that cannot be loaded, for this reason.
    #[must_use]
    pub fn unreadable(
        aggregate: &Arc<Aggregate>,
        (volume, affinities): (VolumeId, FrontAffinities),
        shared: Arc<Shared>,
        size_blocks: u64,
        damage: VolumeDamage,
    ) -> Arc<Self> {
        let front = Front::new(
            volume,
            affinities.clone(),
            empty_logical(volume, &affinities.stripes, shared),
        );
        front.is_unreadable.store(true, Ordering::Release);
        front.set_damage(damage);
        let space = Space::new(volume, size_blocks + slack_blocks(size_blocks));
        Self::new(aggregate, front, space, size_blocks)
    }

    /// At a commit that has left the volume out: what is in memory beyond the last commit goes.
    pub(crate) fn drop_changes(
        self: &Arc<Self>,
        aggregate: &Arc<Aggregate>,
        access: &mut Access<'_>,
    ) {
        let side = self.vbn.write(access);
        side.requests = crate::snapshots::Requests::default();
        let logical = self.front.logical.write(access);
        logical.let_go();
        logical.forget_files();
        logical.suspended = false;
        self.settle(self.vbn.write(access));
        if !self.front.is_unreadable() {
            self.send_reload(aggregate);
        }
    }

    /// Has the volume's sides read again from the last commit: those in memory are half changed.
    fn send_reload(self: &Arc<Self>, aggregate: &Arc<Aggregate>) {
        let (this, of, held) = (Arc::clone(self), Arc::clone(aggregate), HeldBlocks::default());
        let message = move |access: &mut Access<'_>| match this.reload(&of, access, &held) {
            Err(Stop::Wait(wait)) => of.suspend(wait, &held),
            Ok(()) => Outcome::Done,
            Err(stop) => {
                tracing::warn!(volume = %this.front.id, %stop, "what is listed of it may be wrong");
                Outcome::Done
            }
        };
        aggregate.parts.scheduler.send(aggregate.parts.affinity, Box::new(message));
    }

    fn reload(
        &self,
        aggregate: &Aggregate,
        access: &mut Access<'_>,
        held: &HeldBlocks,
    ) -> Progress<()> {
        let reader = Reader { cache: &aggregate.parts.cache, held };
        let volume = self.front.id;
        let container = aggregate.block_side.read(access).containers.get(&volume).copied();
        let Some(container) = container.filter(|one| !one.deleting) else { return Ok(()) };
        let loaded = load_flexible(volume, &container, &reader)?;
        let orphans = read_orphans(volume, &loaded.space.inode_file.0, &reader)?;
        let views = snapshot_views(&loaded.space.snapshots);
        let logical = self.front.logical.write(access);
        // Another if the damage was found by the second consistency point of a restore.
        logical.inode_file = loaded.space.inode_file.0;
        logical.forget_files();
        logical.orphans = orphans.into();
        logical.used_inodes = loaded.root.used_inodes.get();
        logical.shared.used_inodes.store(logical.used_inodes, Ordering::Relaxed);
        logical.snapshots = views;
        self.replace_space(self.vbn.write(access), loaded.space);
        Ok(())
    }
}
