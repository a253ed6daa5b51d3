//! Disks that are to show where they are.
//!
//! Fails: `NotFound`; `Conflict` for a range of objects, which is no thing.

use crate::disk_administration::room::DiskAdministration;
use crate::disks::table::Content;
use admin_api::{AdminError, Code, DiskLocate, DiskLocated};
use platform::Disk;
use std::sync::Arc;

const LOCATE: &str = "cannot locate disk";

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

impl DiskAdministration {
    /// A disk that is there, whoever uses it.
    fn any_disk(&self, name: &str) -> Result<Arc<dyn Disk>, AdminError> {
        if let Some(disk) = self.disks.held(name) {
            return Ok(disk);
        }
        if !self.disks.names().iter().any(|known| known == name) {
            return Err(AdminError::missing(LOCATE, "disk", name).try_next("stroop disk list"));
        }
        match self.disks.look(name) {
            Content::Member(disk, _) | Content::Other(disk) => Ok(disk),
            Content::CutOff(_, error) | Content::Unknown(error) => {
                Err(AdminError::new(Code::Failed, LOCATE, name).because(error.to_string()))
            }
        }
    }

    pub(crate) fn locate_disk(&self, wanted: &DiskLocate) -> Result<DiskLocated, AdminError> {
        let DiskLocate { disk: name, seconds } = wanted.clone();
        let found = match self.any_disk(&name) {
            Ok(disk) if disk.hints().is_object_store => {
                return Err(AdminError::new(Code::Conflict, LOCATE, name)
                    .because("it is an object range and has no light"));
            }
            Err(error) if error.code == Code::NotFound => return Err(error),
            found => found,
        };
        self.disks.locating.forget(&name);
        let mut enclosure_light = false;
        if seconds > 0 {
            let light = self.disks.light(&name);
            enclosure_light = light.is_some();
            // The light needs no disk that works.
            let disk = match found {
                Err(error) if !enclosure_light => return Err(error),
                found => found.ok(),
            };
            let now = self.node.clock.monotonic_nanoseconds();
            let until_nanoseconds = now.saturating_add(seconds * NANOSECONDS_PER_SECOND);
            self.disks.locating.begin(&name, disk, until_nanoseconds, light);
        }
        Ok(DiskLocated { disk: name, enclosure_light, seconds })
    }
}
