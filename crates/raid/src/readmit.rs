//! Disks that the labels call missing, and that missed nothing: taken back at the start.
//!
//! When two disks of a group go at once (a shelf loses its power), the first that is noticed is
//! marked missing, and the second is one too many, which ends everything. Without the first the
//! stripes that were being written in part at that moment could not be put right, though it is
//! there again with all that was ever committed. The same after a crash that follows the loss of a
//! disk, if the disk is there at the start.
//!
//! A disk that holds the newest superblock was in use when that was committed, and so has every
//! block that it reaches. What was written since is what a crash leaves on any disk: blocks that
//! nothing points at, and stripes that the journal knows of. A disk that missed a commit is brought
//! up to date instead (see `returning`).
//!
//! Invariants: it happens before anything is written; a disk that is being filled, was when it went
//! last, or was replaced, is never taken back; the labels say so before the start goes on.

use crate::block_store::SyncDone;
use crate::store::Inner;
use media::{Device, MediaError};
use platform::completion::gather;
use std::sync::Arc;
use units::BlockRef;

impl Inner {
    /// Takes missing disks back that hold this superblock.
    pub(crate) fn readmit(self: &Arc<Self>, slot: usize, newest: BlockRef, done: SyncDone) {
        let missing = self.missing_devices();
        let places = missing.clone();
        let inner = Arc::clone(self);
        let parts = gather(missing.len(), move |results: Vec<Result<BlockRef, MediaError>>| {
            for ((group, member, device), result) in places.into_iter().zip(results) {
                if result.is_ok_and(|found| found == newest)
                    && inner.group(group).members[member].is_taken_by(&device)
                {
                    inner.use_again(group, member);
                }
            }
            inner.finish_sync(done);
        });
        for ((_, _, device), part) in missing.iter().zip(parts) {
            device.read_superblock(slot, part);
        }
    }

    /// Disks that are there, and missing in the labels of others but not in their own: group, index
    /// in it, disk. A disk that is filled gets superblocks before it holds all that they reach, and
    /// its own label says so.
    fn missing_devices(&self) -> Vec<(u32, usize, Arc<Device>)> {
        let mut devices = Vec::new();
        for (index, group) in (0..).zip(&self.layout().groups) {
            let unused = self.state.lock().groups[index as usize].unused();
            for (at, member) in group.members.iter().enumerate() {
                let device = member.device().filter(|_| unused.contains(at));
                let whole = device.filter(|device| !device.label().is_missing(at));
                devices.extend(whole.map(|device| (index, at, device)));
            }
        }
        devices
    }

    fn use_again(self: &Arc<Self>, group: u32, member: usize) {
        {
            let mut state = self.state.lock();
            let disks = &mut state.groups[group as usize];
            disks.missing &= !(1 << member);
            disks.lost.remove(&member);
            disks.reasons.remove(&member);
            disks.labelled = None;
        }
        self.write_labels(group);
    }
}
