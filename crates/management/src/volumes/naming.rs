//! Names of volumes: whether one is free, and how a volume gets another.
//!
//! Invariants: clients find a volume under its new name only when that is durable. Who has it
//! mounted goes on: handles name the volume's identity. Mounts on this machine stay, and are made
//! again under the new name when the server starts.
//!
//! Fails: by `AdminError`; nothing has changed then but what the error says.

use crate::exports;
use crate::volumes::room::Volumes;
use admin_api::{AdminError, Code, VolumeInfo, VolumeRename};
use units::VolumeUuid;

const RENAME: &str = "cannot rename volume";

impl Volumes {
    /// # Errors
    /// `refused`, if another volume than `except` has the name.
    pub(crate) fn check_name_free(
        &self,
        name: &str,
        except: Option<VolumeUuid>,
        refused: impl FnOnce() -> AdminError,
    ) -> Result<(), AdminError> {
        let engine = &self.node.engine;
        let found = engine.volume_named(name);
        if found.is_some_and(|other| Some(other.environment.identity) != except) {
            return Err(refused());
        }
        if engine.away_with_name(name).is_some() {
            return Err(refused()
                .because("it is in an aggregate that is out of service")
                .try_next("another name; or bring the aggregate back (stroop status)"));
        }
        Ok(())
    }

    pub(crate) fn rename_volume(&self, wanted: &VolumeRename) -> Result<VolumeInfo, AdminError> {
        let VolumeRename { name, new_name, dry_run } = wanted;
        let _turn = self.node.turn();
        let volume = self.find(RENAME, name)?;
        let refused = || {
            AdminError::new(Code::Conflict, RENAME, name)
                .because(format!("there is a volume '{new_name}'"))
        };
        self.check_name_free(new_name, Some(volume.environment.identity), refused)?;
        if *dry_run {
            let info = self.volume_info(&volume);
            return Ok(VolumeInfo { name: new_name.clone(), ..info });
        }
        let engine = &self.node.engine;
        self.node.waits.request(RENAME, name, |done| engine.rename_volume(name, new_name, done))?;
        exports::publish(&*self.node.front_ends, &volume);
        self.registry.forget("volume", name);
        tracing::info!(volume = name, new_name, "volume renamed");
        let new_name = volume.name();
        self.node.front_ends.rename_mounts(name, &new_name).map_err(|error| {
            AdminError::new(Code::Failed, "cannot note the new name of volume", name)
                .because(format!(
                    "it is called {new_name} now, and its mounts on this machine stay; but the \
                     record of mounts cannot be written, so they are not made again at the next \
                     start: {error}"
                ))
                .try_next("free space in the state directory, then unmount and mount again")
        })?;
        Ok(self.volume_info(&volume))
    }
}
