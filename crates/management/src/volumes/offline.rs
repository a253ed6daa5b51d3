//! Volumes that are taken offline and brought back.
//!
//! Invariants: a volume that is mounted on this machine is not taken offline, nor one that is
//! offline mounted. Its export rules stay known, so that clients can give back their locks, and
//! hold again when it is online. It can be looked at, changed and deleted meanwhile.
//!
//! Fails: by `AdminError`; nothing has changed then.

use crate::volumes::room::Volumes;
use admin_api::{AdminError, Code, Named, VolumeInfo, VolumeOffline, VolumeState};
use units::shell_word;

const OFFLINE: &str = "cannot take offline volume";
const ONLINE: &str = "cannot bring online volume";

impl Volumes {
    pub(crate) fn take_offline(&self, wanted: &VolumeOffline) -> Result<VolumeInfo, AdminError> {
        let name = &wanted.name;
        let _turn = self.node.turn();
        let volume = self.find(OFFLINE, name)?;
        let refused = || AdminError::new(Code::Conflict, OFFLINE, name);
        if volume.is_offline() {
            return Err(refused()
                .because("it is offline")
                .try_next(format!("stroop volume online {name}, to have it back")));
        }
        let info = self.volume_info(&volume);
        if let Some(mountpoint) = info.mountpoints.first() {
            return Err(refused()
                .because(format!("it is mounted at {mountpoint}"))
                .try_next(format!("stroop unmount {}", shell_word(mountpoint))));
        }
        if wanted.dry_run {
            return Ok(VolumeInfo { state: VolumeState::Offline, taken_offline: true, ..info });
        }
        let engine = &self.node.engine;
        self.node
            .waits
            .request(OFFLINE, name, |done| engine.set_volume_offline(name, true, done))?;
        tracing::info!(volume = name, "volume taken offline");
        Ok(self.volume_info(&volume))
    }

    pub(crate) fn bring_online(&self, wanted: &Named) -> Result<VolumeInfo, AdminError> {
        let name = &wanted.name;
        let _turn = self.node.turn();
        let volume = self.find(ONLINE, name)?;
        if !volume.is_offline() {
            return Err(AdminError::new(Code::Conflict, ONLINE, name)
                .because("it was not taken offline")
                .try_next(format!("stroop volume show {name}")));
        }
        let engine = &self.node.engine;
        self.node
            .waits
            .request(ONLINE, name, |done| engine.set_volume_offline(name, false, done))?;
        tracing::info!(volume = name, "volume brought online");
        Ok(self.volume_info(&volume))
    }

    /// # Errors
    /// `Conflict` if a volume that is to be mounted is offline.
    pub(crate) fn check_online(&self, message: &str, name: &str) -> Result<(), AdminError> {
        if !self.find(message, name)?.is_offline() {
            return Ok(());
        }
        Err(AdminError::new(Code::Conflict, message, name)
            .because("it is offline")
            .try_next(format!("stroop volume online {name}")))
    }
}
