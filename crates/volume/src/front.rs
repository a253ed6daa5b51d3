//! The logical side of a volume with its affinities (Waffinity section 4.2).
//!
//! Invariants: the data tree mirrors the affinity tree: the logical side belongs to the Volume
//! Logical affinity, each stripe in it to a Stripe affinity beneath.

use crate::damage::VolumeDamage;
use affinity::{Access, AffinityId, AffinityKind, Partition, Scheduler};
use cowfs::cache::BufferCache;
use cowfs::image::GivenUp;
use cowfs::logical::{Logical, Shared};
use cowfs::overlay::{STRIPES, stripe_of};
use cowfs::pointer::Pointer;
use ondisk::root::metafile;
use platform::sync::Mutex;
use rustc_hash::FxHashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use units::{CpNumber, Fbn, InodeNumber, VolumeId};

/// The affinities of one volume.
#[derive(Clone, Debug)]
pub struct FrontAffinities {
    /// Everything of the volume.
    pub volume: AffinityId,
    /// Client-visible files.
    pub logical: AffinityId,
    /// Ranges of file blocks.
    pub stripes: Vec<AffinityId>,
    /// Free maps and snapshots.
    pub vbn: AffinityId,
    /// Shares of the files that a consistency point cleans.
    pub ranges: Vec<AffinityId>,
}

/// Messages that clean the files of one volume at a time, at most.
pub(crate) const SHARES_MAX: usize = 8;

impl FrontAffinities {
    /// New affinities beneath an aggregate's.
    #[must_use]
    pub fn new(scheduler: &Scheduler, aggregate: AffinityId) -> Self {
        let volume = scheduler.add(aggregate, AffinityKind::Volume);
        let logical = scheduler.add(volume, AffinityKind::VolumeLogical);
        let vbn = scheduler.add(volume, AffinityKind::VolumeVbn);
        let stripe = |_| scheduler.add(logical, AffinityKind::Stripe);
        let stripes = (0..STRIPES).map(stripe).collect();
        let range = |_| scheduler.add(vbn, AffinityKind::VolumeRange);
        let ranges = (0..SHARES_MAX).map(range).collect();
        Self { volume, logical, stripes, vbn, ranges }
    }

    /// Takes the affinities away; nothing may be queued in them.
    pub fn remove(&self, scheduler: &Scheduler) {
        let leaves = self.stripes.iter().chain(&self.ranges);
        leaves.for_each(|leaf| scheduler.remove(*leaf));
        for affinity in [self.logical, self.vbn, self.volume] {
            scheduler.remove(affinity);
        }
    }
}

/// Called after each commit that leaves the volume with background work.
pub type BackgroundHook = Box<dyn Fn() + Send + Sync>;

/// See the module.
pub struct Front<P: Pointer> {
    /// The volume's number.
    pub id: VolumeId,
    /// Its affinities.
    pub affinities: FrontAffinities,
    /// Inodes and dirty blocks.
    pub logical: Partition<Logical<P>>,
    /// Space and memory.
    pub shared: Arc<Shared>,
    background: Mutex<Option<Arc<BackgroundHook>>>,
    given_up: Mutex<Vec<GivenUp>>,
    /// How many were given up, those included that are not remembered.
    given_up_count: AtomicU64,
    /// Orphans that are held or cannot be read: commits do not try to free them.
    unreapable: Mutex<FxHashSet<InodeNumber>>,
    damage: Mutex<Option<VolumeDamage>>,
    /// There is damage.
    is_read_only: AtomicBool,
    /// And nothing of it can be read.
    is_unreadable: AtomicBool,
    damage_hook: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// The consistency point from which on reallocation is worth a try again.
    reallocation_from: AtomicU64,
    /// Why the last restore was refused by its consistency point, until it is told.
    pub(crate) refused_restore: Mutex<Option<String>>,
}

/// Consistency points that pass before blocks are reallocated again where it was in vain, so that
/// an aggregate without free areas is not written over and over.
const REALLOCATION_PAUSE_CPS: u64 = 64;

/// Files of a volume that are remembered as given up: those that come later are counted in the
/// server log only.
const GIVEN_UP_MAX: usize = 1024;

impl<P: Pointer> Front<P> {
    /// A front over a logical side that was loaded or formatted.
    #[must_use]
    pub fn new(id: VolumeId, affinities: FrontAffinities, logical: Logical<P>) -> Self {
        let shared = Arc::clone(&logical.shared);
        let logical = Partition::new(affinities.logical, logical);
        Self {
            id,
            affinities,
            logical,
            shared,
            background: Mutex::new(None),
            given_up: Mutex::default(),
            given_up_count: AtomicU64::default(),
            unreapable: Mutex::default(),
            damage: Mutex::default(),
            refused_restore: Mutex::default(),
            is_read_only: AtomicBool::new(false),
            is_unreadable: AtomicBool::new(false),
            damage_hook: Mutex::new(None),
            reallocation_from: AtomicU64::default(),
        }
    }

    /// Whether an orphan could not be freed: the background leaves it alone.
    #[must_use]
    pub fn is_unreapable(&self, inode: InodeNumber) -> bool {
        self.unreapable.lock().contains(&inode)
    }

    /// An orphan could not be freed, or is.
    pub fn set_unreapable(&self, inode: InodeNumber, is_unreapable: bool) {
        let mut known = self.unreapable.lock();
        if is_unreapable {
            known.insert(inode);
        } else {
            known.remove(&inode);
        }
    }

    /// The files that consistency points have given up since the start, because a block that leads
    /// to their content cannot be read.
    #[must_use]
    pub fn given_up(&self) -> Vec<GivenUp> {
        self.given_up.lock().clone()
    }

    /// How many files were given up since the start.
    #[must_use]
    pub fn given_up_count(&self) -> u64 {
        self.given_up_count.load(Ordering::Acquire)
    }

    /// Whether a file was given up since there were `before`: what was written to it in between is
    /// gone. Of very many it is not known which they are.
    #[must_use]
    pub fn has_given_up(&self, file: InodeNumber, before: u64) -> bool {
        if self.given_up_count() == before {
            return false;
        }
        let known = self.given_up.lock();
        let mut since = known.iter().skip(usize::try_from(before).unwrap_or(usize::MAX));
        since.any(|one| one.leaked_blocks.is_none() && one.inode == file)
            || self.given_up_count() > GIVEN_UP_MAX as u64
    }

    /// A consistency point has committed without these files.
    pub fn note_given_up(&self, files: Vec<GivenUp>) {
        for file in &files {
            let GivenUp { inode, pvbn, leaked_blocks } = file;
            match leaked_blocks {
                None => tracing::error!(
                    volume = %self.id, %inode, %pvbn,
                    "a file is quarantined: a block that leads to its content cannot be read, and \
                     its last changes were dropped"
                ),
                Some(blocks) if inode.get() == metafile::ACTIVE_MAP => tracing::error!(
                    volume = %self.id, %pvbn, blocks,
                    "a snapshot was deleted, and blocks of it stay in use: a block of its free map \
                     cannot be read"
                ),
                Some(blocks) => tracing::error!(
                    volume = %self.id, %inode, %pvbn, blocks,
                    "a file was removed, and its blocks stay in use: a block that leads to them \
                     cannot be read"
                ),
            }
        }
        let mut known = self.given_up.lock();
        self.given_up_count.fetch_add(files.len() as u64, Ordering::Release);
        let room = GIVEN_UP_MAX.saturating_sub(known.len());
        known.extend(files.into_iter().take(room));
    }

    /// The aggregate's blocks in memory.
    #[must_use]
    pub fn cache(&self) -> &BufferCache {
        &self.shared.aggregate.cache
    }

    /// Sets what to call when a commit leaves orphans to be reaped.
    pub fn set_background(&self, hook: BackgroundHook) {
        *self.background.lock() = Some(Arc::new(hook));
    }

    /// Calls the hook.
    pub fn call_background(&self) {
        let hook = self.background.lock().clone();
        if let Some(hook) = hook {
            hook();
        }
    }

    /// The affinity for an operation on `count` file blocks from `first`: a stripe's if they all
    /// lie in one, else the logical one.
    #[must_use]
    pub fn affinity_of(&self, inode: InodeNumber, first: Fbn, count: u64) -> (AffinityId, bool) {
        let stripe = stripe_of(inode, first);
        let last = Fbn(first.get() + count.max(1) - 1);
        let blocks = cowfs::overlay::STRIPE_BLOCKS;
        if first.get() / blocks == last.get() / blocks {
            (self.affinities.stripes[stripe], true)
        } else {
            (self.affinities.logical, false)
        }
    }

    /// Takes new trees over; whether reaped files are left.
    /// `reclaiming` says whether other background work goes on that makes room.
    pub fn publish(
        &self,
        access: &mut Access<'_>,
        reclaiming: bool,
        publish: impl FnOnce(&mut Logical<P>),
    ) -> bool {
        let logical = self.logical.write(access);
        publish(logical);
        logical.evict(self.shared.aggregate.dirty.inodes_per_volume());
        let reaping = logical.reaping_inodes > 0;
        let orphans = !logical.orphans.is_empty();
        // With orphans until the hook has looked who holds them: whoever waits for room runs next.
        // Without, a full volume must say so, or its operations wait for ever.
        self.shared.reclaiming.store(reclaiming || reaping || orphans, Ordering::Relaxed);
        if orphans {
            self.call_background();
        }
        reaping
    }

    /// What was reallocated is as scattered as before: free space has no runs of blocks.
    pub(crate) fn pause_reallocation(&self, cp: CpNumber) {
        let from = cp.get() + REALLOCATION_PAUSE_CPS;
        self.reallocation_from.store(from, Ordering::Relaxed);
    }

    /// Whether reallocation is worth a try at a consistency point.
    #[must_use]
    pub fn is_reallocation_worth_it(&self, cp: CpNumber) -> bool {
        cp.get() >= self.reallocation_from.load(Ordering::Relaxed)
    }

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

    /// The volume cannot be loaded.
    pub(crate) fn set_unreadable(&self, damage: VolumeDamage) {
        self.is_unreadable.store(true, Ordering::Release);
        self.set_damage(damage);
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
