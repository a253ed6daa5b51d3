//! A flexible volume that a commit has left out for damage: what is in memory beyond that commit
//! goes, and its sides are read again ([`crate::damage`]).
//!
//! Fails: what cannot be read again stays in memory as it is; the server log says so.

use crate::flexible::FlexibleVolume;
use crate::load::{load_flexible, read_orphans, snapshot_views};
use crate::snapshots::Requests;
use affinity::{Access, Outcome};
use aggregate::Aggregate;
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl FlexibleVolume {
    /// At a commit that has left the volume out: what is in memory beyond the last commit goes.
    pub(crate) fn drop_changes(
        self: &Arc<Self>,
        aggregate: &Arc<Aggregate>,
        access: &mut Access<'_>,
    ) {
        let side = self.vbn.write(access);
        side.requests = Requests::default();
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
        let side = aggregate.block_side.read(access);
        let container = side.containers.get(&volume).filter(|one| !one.deleting);
        let Some((container, slot)) = container.zip(side.slot_of(volume)) else { return Ok(()) };
        let loaded = load_flexible(&side.table[slot].record, container, &reader)?;
        let orphans = read_orphans(volume, &loaded.space.inode_file.0, &reader)?;
        let views = snapshot_views(&loaded.space.snapshots);
        self.front.shared.quotas.set_counting(loaded.space.quotas.is_counting());
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
