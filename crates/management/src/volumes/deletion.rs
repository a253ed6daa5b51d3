//! Volumes that are deleted: into the recovery queue, or for good.
//!
//! Invariants: a volume that is mounted on this machine is not deleted, nor one that has clones.
//! What goes is what the administrator was shown, if he was.
//!
//! Fails: by `AdminError`; nothing has changed then.

use crate::exports;
use crate::volumes::changes::counted;
use crate::volumes::origins::clone_names;
use crate::volumes::recovery_queue::{RecoveryQueue, held_bytes};
use crate::volumes::snapshots::held_among;
use admin_api::{
    AdminError, CloneOf, Code, Removal, Time, VolumeDelete, VolumeInfo, VolumePurge, duration,
};
use dblade::{Keeping, ServedVolume};
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::{Timestamp, shell_word};

const DELETE: &str = "cannot delete";
const PURGE: &str = "cannot purge";

impl RecoveryQueue<'_> {
    pub(crate) fn delete_volume(&self, wanted: &VolumeDelete) -> Result<Removal, AdminError> {
        let name = &wanted.name;
        let _turn = self.0.node.turn();
        let volume = self.0.find(DELETE, name)?;
        let info = self.0.volume_info(&volume);
        let kept_seconds = wanted.kept_seconds();
        self.check_deletable(&volume, &info, kept_seconds)?;
        let plan = plan_of(&volume, &info);
        Removal::check_plan(DELETE, name, &plan, wanted.plan.as_deref())?;
        let keeping = (kept_seconds > 0).then(|| self.keeping_for(kept_seconds));
        if !wanted.dry_run {
            let engine = &self.0.node.engine;
            self.0.node.waits.request(DELETE, name, |done| match keeping {
                Some(keeping) => engine.queue_deletion(name, keeping, done),
                None => engine.delete_volume(name, done),
            })?;
            if !mutation::broken(Rule::DeletedVolumeExported) {
                let front_ends = &*self.0.node.front_ends;
                match keeping {
                    Some(_) => exports::publish(front_ends, &volume),
                    None => front_ends.forget_exports(volume.environment.identity),
                }
            }
            self.0.registry.forget("volume", name);
            tracing::info!(volume = name, kept_seconds, "volume deleted");
        }
        let mut consequences = consequences(&info);
        if keeping.is_some() {
            let time = duration::format(kept_seconds * 1_000_000_000);
            consequences.push(format!("kept for {time}, with what it holds; then it is gone"));
        }
        let freed_bytes = if keeping.is_some() { 0 } else { held_bytes(&volume) };
        let kept_until = keeping.map(|keeping| Time(keeping.purge_after));
        let kept_as = keeping.filter(|_| !wanted.dry_run).map(|_| volume.name());
        let removal = Removal::new(name.clone(), consequences, wanted.dry_run);
        Ok(Removal { freed_bytes, kept_until, kept_as, plan, ..removal })
    }

    /// # Errors
    /// Something stands in the way of the volume's deletion.
    fn check_deletable(
        &self,
        volume: &Arc<ServedVolume>,
        info: &VolumeInfo,
        kept_seconds: u64,
    ) -> Result<(), AdminError> {
        let refused = || AdminError::new(Code::Conflict, DELETE, &info.name);
        if let Some(mountpoint) = info.mountpoints.first() {
            return Err(refused()
                .because(format!("it is mounted at {mountpoint}"))
                .try_next(format!("stroop unmount {}", shell_word(mountpoint))));
        }
        if info.traditional {
            return Err(refused()
                .because("it is a traditional volume, and goes with its aggregate")
                .try_next(format!("stroop aggr delete {} --force", info.aggregate)));
        }
        let clones = clone_names(self.0, volume);
        if !clones.is_empty() {
            let of = ("its snapshots", &clones[..]);
            return Err(AdminError::held_by_clones(DELETE, &info.name, of));
        }
        // A damaged volume takes no release.
        if info.snapshots > 0 && volume.damage().is_none() {
            let held = held_among(&info.name, &self.0.snapshots_of(volume)?);
            AdminError::unless_held(DELETE, &info.name, &held)?;
        }
        if let Some(feature) = info.lacking_feature.as_ref().filter(|_| kept_seconds > 0) {
            return Err(refused()
                .because(format!(
                    "it uses the feature '{feature}', which this build of Stroop lacks: it can be \
                     deleted for good, and not be kept"
                ))
                .try_next(format!("stroop volume delete {} --queue-for 0s", info.name)));
        }
        Ok(())
    }

    fn keeping_for(&self, kept_seconds: u64) -> Keeping {
        let deleted = self.0.node.clock.wall();
        let kept = i64::try_from(kept_seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000_000);
        Keeping { deleted, purge_after: Timestamp(deleted.get().saturating_add(kept)) }
    }

    pub(crate) fn purge_volume(&self, wanted: &VolumePurge) -> Result<Removal, AdminError> {
        let _turn = self.0.node.turn();
        let volume = self.find_deleted(PURGE, &wanted.name)?;
        let name = volume.name();
        let info = self.0.volume_info(&volume);
        let plan = plan_of(&volume, &info);
        Removal::check_plan(PURGE, &name, &plan, wanted.plan.as_deref())?;
        let freed_bytes = held_bytes(&volume);
        if !wanted.dry_run {
            let engine = &self.0.node.engine;
            self.0.node.waits.request(PURGE, &name, |done| engine.purge_volume(&name, done))?;
            self.0.node.front_ends.forget_exports(volume.environment.identity);
            tracing::info!(volume = name, "deleted volume purged");
        }
        let removal = Removal::new(name, consequences(&info), wanted.dry_run);
        Ok(Removal { freed_bytes, plan, ..removal })
    }
}

/// Changes when more goes than was shown.
fn plan_of(volume: &ServedVolume, info: &VolumeInfo) -> String {
    format!("{}:{}", volume.environment.identity, info.snapshots)
}

/// What goes with a volume.
fn consequences(info: &VolumeInfo) -> Vec<String> {
    let mut lines = vec![format!("of aggregate {}", info.aggregate), counted(info.files, "file")];
    if info.snapshots > 0 {
        lines.push(counted(info.snapshots, "snapshot"));
    }
    if let Some(CloneOf { volume, snapshot }) = &info.clone_of {
        lines.push(format!("a clone of {volume}@{snapshot}"));
    }
    lines.extend(info.exports.iter().map(|rule| format!("exported to {rule}")));
    lines
}
