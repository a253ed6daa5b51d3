//! Background work on volumes: freeing orphans (decision 16), and reallocation.
//!
//! After each commit that leaves a volume with orphans, those that nobody holds are freed, or some
//! of their blocks are; the consistency points that this causes go on until none is left.
//!
//! Invariants: an orphan is freed by a mutation like any other, in the volume's logical affinity.

use crate::engine::Engine;
use crate::host::{Asker, Host};
use crate::messages::Mutate;
use crate::reallocating;
use crate::served::{Fronted, ServedVolume, VolumeKind};
use affinity::{Access, Outcome};
use aggregate::Aggregate;
use cowfs::pointer::Pointer;
use cowfs::reader::HeldBlocks;
use file_service::{Durability, FsError};
use operations::{Reap, Reaped};
use std::sync::{Arc, Weak};
use units::InodeNumber;

/// Orphans that are looked at after one commit: the rest comes after the next.
const ORPHANS_PER_COMMIT: usize = 256;

impl Engine {
    /// Has a volume's orphans freed after commits.
    pub(crate) fn watch_orphans(self: &Arc<Self>, served: &Arc<ServedVolume>) {
        match &served.kind {
            VolumeKind::Flexible(volume) => self.watch(served, volume),
            VolumeKind::Traditional(volume) => self.watch(served, volume),
        }
    }

    /// Looks for orphans that a crash or a stop left: files that were held without a name.
    pub(crate) fn reap_orphans_of(&self, aggregate: &Arc<Aggregate>) {
        for served in self.volumes() {
            if Arc::ptr_eq(&served.aggregate, aggregate) {
                match &served.kind {
                    VolumeKind::Flexible(volume) => volume.front.call_background(),
                    VolumeKind::Traditional(volume) => volume.front.call_background(),
                }
            }
        }
    }

    /// Lets volumes reallocate what readers have found scattered.
    pub(crate) fn tick_reallocation(self: &Arc<Self>, now_nanoseconds: u64) {
        reallocating::tick(self, now_nanoseconds);
    }

    fn watch<P: Pointer, V: Fronted<P>>(
        self: &Arc<Self>,
        served: &Arc<ServedVolume>,
        volume: &Arc<V>,
    ) {
        let (engine, served) = (Arc::downgrade(self), Arc::downgrade(served));
        let fronted: Weak<dyn Fronted<P>> = Arc::downgrade(&(Arc::clone(volume) as _));
        let hook = move || {
            let (Some(engine), Some(served), Some(fronted)) =
                (engine.upgrade(), served.upgrade(), fronted.upgrade())
            else {
                return;
            };
            reap_orphans(Host { asker: Asker::Node, engine, served, fronted });
        };
        volume.front().set_background(Box::new(hook));
    }
}

/// Sends the message that looks for orphans.
fn reap_orphans<P: Pointer>(host: Host<P>) {
    let affinity = host.fronted.front().affinities.logical;
    let scheduler = host.engine.scheduler.clone();
    let message = move |access: &mut Access<'_>| {
        let logical = host.fronted.front().logical.write(access);
        let is_read_only = host.fronted.front().is_read_only();
        if host.served.is_gone() || logical.suspended || is_read_only {
            return Outcome::Done;
        }
        let held = |number: &InodeNumber| {
            let found = logical.inodes.get(number);
            found.is_some_and(|inode| inode.frozen || logical.holds.has_file_of(*number, inode))
        };
        let orphans: Vec<InodeNumber> = logical
            .orphans
            .iter()
            .filter(|inode| !held(inode) && !host.fronted.front().is_unreapable(**inode))
            .take(ORPHANS_PER_COMMIT)
            .copied()
            .collect();
        cowfs::transaction::set_reclaiming(logical, !orphans.is_empty());
        for inode in orphans {
            reap(&host, inode);
        }
        Outcome::Done
    };
    scheduler.send(affinity, Box::new(message));
}

/// Sends the message that frees an orphan, or some of its blocks.
pub(crate) fn reap<P: Pointer>(host: &Host<P>, inode: InodeNumber) {
    let again = host.clone();
    let done = move |outcome: Result<Reaped, FsError>| {
        match outcome {
            Ok(Reaped::Later) => {
                again.fronted.front().set_unreapable(inode, false);
                again.served.aggregate.request_consistency_point(None);
            }
            Ok(Reaped::Freed) => again.fronted.front().set_unreapable(inode, false),
            // The orphan is held, or its inode cannot be read. Nobody may wait for
            // the orphan's blocks. The release of a hold reaps it.
            Ok(Reaped::Needed) | Err(FsError::Io) => {
                again.fronted.front().set_unreapable(inode, true);
                reap_orphans(again);
            }
            // The next commit tries again.
            Err(_) => {}
        }
    };
    host.send_logical(Box::new(Mutate {
        host: host.clone(),
        mutation: Reap { inode },
        now: host.engine.configuration.clock.wall(),
        durability: Durability::Ordered,
        held: HeldBlocks::default(),
        done: Some(Box::new(done)),
    }));
}
