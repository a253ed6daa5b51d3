//! Disks that are zeroed, to be free.
//!
//! Invariants: a dry run opens and looks, and writes nothing.

use crate::disk_administration::room::DiskAdministration;
use crate::disks::upkeep::Task;
use admin_api::{AdminError, DiskZero, Removal};
use platform::Disk;
use std::sync::Arc;

const ZERO: &str = "cannot zero disk";

impl DiskAdministration {
    pub(crate) fn zero_disk(&self, wanted: &DiskZero) -> Result<Removal, AdminError> {
        let _turn = self.node.turn();
        let open = || {
            let disks = self.disks.open_free(std::slice::from_ref(&wanted.disk))?;
            disks.into_iter().next().ok_or_else(|| AdminError::missing(ZERO, "disk", &wanted.disk))
        };
        // It is looked at once it is closed again: a disk is opened by one at a time.
        let disk = open()?;
        let name = &disk.name().to_owned();
        self.aggregates.check_abandoned((ZERO, name), &[], std::slice::from_ref(&disk))?;
        drop(disk);
        let known = self.disks.info_unless_held(name);
        let found = known.and_then(|known| known.note);
        let holds = found.unwrap_or_else(|| "nothing that is known".to_owned());
        let consequences = vec![format!("all of it is lost; what was found: {holds}")];
        if !wanted.dry_run {
            self.begin_zeroing(&open()?);
            tracing::warn!(disk = name, "an administrator has a disk zeroed");
        }
        let (object, dry_run) = (name.to_owned(), wanted.dry_run);
        Ok(Removal::new(object, consequences, dry_run))
    }

    fn begin_zeroing(&self, disk: &Arc<dyn Disk>) {
        let task = Arc::new(Task::default());
        self.disks.upkeep.begin(std::slice::from_ref(disk), &task);
        let ended = Arc::clone(&task);
        let done = Box::new(move |outcome: Result<(), media::MediaError>| {
            ended.ending.end(outcome.map_err(|error| raid::RaidError::from(error).into()));
        });
        media::zero(disk, 0..disk.size_blocks(), &task.zeroing, done);
    }
}
