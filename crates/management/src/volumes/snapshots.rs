//! Snapshots as administrators see, take, delete and return to them.
//!
//! Invariants: what is answered is durable; a snapshot that is held is not deleted; a restore that
//! would lose newer snapshots is refused unless the request says that they may go, and so is one
//! below a mount that writes back.

use crate::refusals::taken;
use crate::volumes::origins::{clones_of, names_of};
use crate::volumes::room::Volumes;
use crate::volumes::space::Space;
use admin_api::{
    AdminError, Code, MountInfo, Removal, SnapshotDelete, SnapshotHold, SnapshotInfo, SnapshotName,
    SnapshotRestore, Time, VolumeFilter,
};
use dblade::{ServedVolume, SnapshotSpans, SnapshotSummary, VolumeKind};
use platform::mutation::{self, Rule};
use units::{BLOCK_SIZE_U64, SnapshotId, shell_word};
use volume::SnapshotRequest;

impl Volumes {
    /// A volume's snapshots, oldest first.
    ///
    /// # Errors
    /// What the engine says.
    pub(crate) fn snapshots_of(
        &self,
        volume: &ServedVolume,
    ) -> Result<Vec<SnapshotSummary>, AdminError> {
        let name = &volume.name();
        self.node.waits.request("cannot list snapshots of", name, |done| {
            self.node.engine.snapshots(name, done)
        })
    }

    pub(crate) fn list_snapshots(
        &self,
        filter: &VolumeFilter,
    ) -> Result<Vec<SnapshotInfo>, AdminError> {
        let mut list = Vec::new();
        let counts = Space(self).counts();
        for volume in self.filtered("cannot list snapshots of", filter)? {
            let found = match self.snapshots_of(&volume) {
                // One of all volumes is gone meanwhile.
                Err(error) if filter.volume.is_none() && error.code == Code::NotFound => continue,
                found => found?,
            };
            let spans = if found.is_empty() { None } else { counts.of(&volume).ok() };
            list.extend(self.shown_snapshots(&volume, &found, spans.as_deref()));
        }
        Ok(list)
    }

    /// Snapshots of a volume as administrators see them.
    pub(crate) fn shown_snapshots(
        &self,
        volume: &ServedVolume,
        snapshots: &[SnapshotSummary],
        spans: Option<&SnapshotSpans>,
    ) -> Vec<SnapshotInfo> {
        let clones = clones_of(self, volume);
        let (exclusive, with_older) = spans.map_or_else(Default::default, |spans| {
            (spans.exclusive_blocks(), spans.cumulative_blocks())
        });
        let of = |blocks: &[u64], snapshot: &SnapshotSummary| {
            let at = spans?.snapshots().binary_search(&snapshot.id).ok()?;
            Some(blocks.get(at)? * BLOCK_SIZE_U64)
        };
        let shown = snapshots.iter().map(|snapshot| SnapshotInfo {
            exclusive_bytes: of(&exclusive, snapshot),
            with_older_bytes: of(&with_older, snapshot),
            clones: names_of(&clones, &[snapshot.id]),
            ..info(&volume.name(), snapshot)
        });
        shown.collect()
    }

    pub(crate) fn create_snapshot(
        &self,
        wanted: &SnapshotName,
    ) -> Result<SnapshotInfo, AdminError> {
        let turn = self.node.turn();
        let message = "cannot create snapshot";
        let full_name = full_name(&wanted.volume, &wanted.name);
        let volume = self.find("cannot create snapshot of", &wanted.volume)?;
        let is_wanted = |snapshot: &SnapshotSummary| snapshot.name == wanted.name;
        if self.snapshots_of(&volume)?.iter().any(is_wanted) {
            return Err(taken("snapshot", &full_name));
        }
        // A new clone lets go of its parent's maps before it takes a snapshot: nobody else is to
        // wait for that. The engine knows the names, too.
        let may_take_long =
            matches!(&volume.kind, VolumeKind::Flexible(one) if one.is_discarding());
        let turn = Some(turn).filter(|_| !may_take_long);
        let create = SnapshotRequest::Create(wanted.name.clone());
        self.node.waits.request(message, &full_name, |done| {
            self.node.engine.request_snapshot(&volume.name(), create, done);
        })?;
        let made = self.snapshots_of(&volume)?.into_iter().find(is_wanted);
        let made = made.ok_or_else(|| {
            AdminError::new(Code::Failed, message, &full_name)
                .because("the snapshot was taken, but it is gone now: somebody may have deleted it")
        })?;
        drop(turn);
        tracing::info!(snapshot = full_name, "snapshot created");
        Ok(info(&volume.name(), &made))
    }

    pub(crate) fn hold_snapshot(&self, wanted: &SnapshotHold) -> Result<SnapshotInfo, AdminError> {
        let turn = self.node.turn();
        let message = if wanted.held { "cannot hold" } else { "cannot release" };
        let full_name = full_name(&wanted.volume, &wanted.name);
        let volume = self.find(message, &wanted.volume)?;
        let list = self.snapshots_of(&volume)?;
        let found = &list[place(message, &full_name, &list, &wanted.name)?];
        if found.held != wanted.held {
            let name = wanted.name.clone();
            let request = match wanted.held {
                true => SnapshotRequest::Hold(name),
                false => SnapshotRequest::Release(name),
            };
            self.node.waits.request(message, &full_name, |done| {
                self.node.engine.request_snapshot(&volume.name(), request, done);
            })?;
            tracing::info!(snapshot = full_name, held = wanted.held, "snapshot held or released");
        }
        drop(turn);
        Ok(SnapshotInfo { held: wanted.held, ..info(&volume.name(), found) })
    }

    /// What comes back is told by a dry run. The deed does not wait for the count.
    pub(crate) fn delete_snapshot(&self, wanted: &SnapshotDelete) -> Result<Removal, AdminError> {
        let turn = self.node.turn();
        let message = "cannot delete";
        let volume = self.find("cannot delete snapshot of", &wanted.volume)?;
        let list = self.snapshots_of(&volume)?;
        let going = going(message, &list, wanted)?;
        let object = match &wanted.through {
            None => full_name(&wanted.volume, &wanted.name),
            Some(newest) => format!("{} through {newest}", full_name(&volume.name(), &wanted.name)),
        };
        let numbers: Vec<SnapshotId> = going.iter().map(|snapshot| snapshot.id).collect();
        let clones = names_of(&clones_of(self, &volume), &numbers);
        if !clones.is_empty() {
            let held = if going.len() == 1 { "it" } else { "them" };
            return Err(AdminError::held_by_clones(message, object, (held, &clones)));
        }
        AdminError::unless_held(message, &object, &held_among(&volume.name(), going))?;
        let plan = plan_of(Some(going));
        Removal::check_plan(message, &object, &plan, wanted.plan.as_deref())?;
        let mut consequences = Vec::new();
        if going.len() > 1 {
            let lost = |one: &SnapshotSummary| {
                format!("snapshot {}", full_name(&volume.name(), &one.name))
            };
            consequences.extend(going.iter().map(lost));
        }
        let mut freed_bytes = 0;
        if wanted.dry_run {
            drop(turn);
            let (bytes, unknown) = Space(self).freed_with(&volume, going);
            freed_bytes = bytes;
            consequences.extend(unknown);
        } else {
            let delete = match &wanted.through {
                None => SnapshotRequest::Delete(wanted.name.clone()),
                Some(newest) => SnapshotRequest::DeleteThrough(wanted.name.clone(), newest.clone()),
            };
            self.node.waits.request(message, &object, |done| {
                self.node.engine.request_snapshot(&volume.name(), delete, done);
            })?;
            tracing::info!(snapshot = object, "snapshot deleted");
        }
        Ok(Removal { plan, freed_bytes, ..Removal::new(object, consequences, wanted.dry_run) })
    }

    pub(crate) fn restore_snapshot(&self, wanted: &SnapshotRestore) -> Result<Removal, AdminError> {
        let _turn = self.node.turn();
        let message = "cannot restore";
        let object = full_name(&wanted.volume, &wanted.name);
        let volume = self.find("cannot restore snapshot of", &wanted.volume)?;
        if self.looks.is_pending(volume.environment.identity) {
            // It would be newer, and go.
            return Err(AdminError::new(Code::Conflict, message, object)
                .because("a snapshot of the volume's schedule is being taken")
                .try_next("the same command in a moment"));
        }
        let list = self.snapshots_of(&volume)?;
        let at = place(message, &object, &list, &wanted.name)?;
        let newer: Vec<&str> = list.iter().skip(at + 1).map(|later| later.name.as_str()).collect();
        if !newer.is_empty() && !wanted.discard_newer {
            if mutation::broken(Rule::RefusedRestoreDone) {
                let restore = SnapshotRequest::Restore(wanted.name.clone());
                self.node.engine.request_snapshot(&volume.name(), restore, Box::new(drop));
            }
            return Err(AdminError::new(Code::Conflict, message, object)
                .because(format!("newer snapshots would be lost: {}", newer.join(", ")))
                .try_next("add --discard-newer, or delete them first"));
        }
        self.check_no_write_back(&volume.name(), &object)?;
        let lost: Vec<SnapshotId> = list.iter().skip(at + 1).map(|later| later.id).collect();
        let clones = names_of(&clones_of(self, &volume), &lost);
        if !clones.is_empty() {
            let newer = ("the newer snapshots", &clones[..]);
            return Err(AdminError::held_by_clones(message, object, newer));
        }
        AdminError::unless_held(message, &object, &held_among(&volume.name(), &list[at + 1..]))?;
        let mut consequences = vec![format!("all changes to {} since", wanted.volume)];
        let lost = newer.iter().map(|name| format!("snapshot {}", full_name(&volume.name(), name)));
        consequences.extend(lost);
        if volume.quota_ledger().is_counting() {
            let limits = "limits of users, groups and trees that were set since";
            consequences.push(limits.to_owned());
        }
        let plan = plan_of(list.get(at..));
        Removal::check_plan(message, &object, &plan, wanted.plan.as_deref())?;
        if !wanted.dry_run {
            let restore = SnapshotRequest::Restore(wanted.name.clone());
            self.node.waits.request(message, &object, |done| {
                self.node.engine.request_snapshot(&volume.name(), restore, done);
            })?;
            tracing::info!(snapshot = object, "volume restored");
        }
        Ok(Removal { plan, ..Removal::new(object, consequences, wanted.dry_run) })
    }

    /// The kernel of a mount that writes back believes its own sizes, and may have data of before.
    fn check_no_write_back(&self, volume: &str, object: &str) -> Result<(), AdminError> {
        let mounts = self.node.front_ends.mounts().into_iter();
        let mut of_volume = mounts.filter(|mount| mount.write_back && mount.volume == volume);
        let Some(MountInfo { mountpoint, .. }) = of_volume.next() else { return Ok(()) };
        Err(AdminError::new(Code::Conflict, "cannot restore", object)
            .because(format!("the volume is mounted with write-back at {mountpoint}"))
            .try_next(format!("stroop unmount {}", shell_word(&mountpoint))))
    }
}

pub(super) fn full_name(volume: &str, snapshot: &str) -> String {
    format!("{volume}@{snapshot}")
}

/// The snapshots that a deletion takes, oldest first.
fn going<'a>(
    message: &str,
    list: &'a [SnapshotSummary],
    wanted: &SnapshotDelete,
) -> Result<&'a [SnapshotSummary], AdminError> {
    let of = |name: &str| place(message, &full_name(&wanted.volume, name), list, name);
    let oldest = of(&wanted.name)?;
    let newest = wanted.through.as_deref().map_or(Ok(oldest), of)?;
    list.get(oldest..=newest).filter(|going| !going.is_empty()).ok_or_else(|| {
        let (first, last) = (&wanted.name, wanted.through.as_deref().unwrap_or_default());
        let object = full_name(&wanted.volume, first);
        let next =
            format!("stroop snapshot delete {} --through {first}", full_name(&wanted.volume, last));
        AdminError::new(Code::Usage, message, object)
            .because(format!("'{last}' is older than '{first}'"))
            .try_next(next)
    })
}

/// The plan about these snapshots.
fn plan_of(snapshots: Option<&[SnapshotSummary]>) -> String {
    let numbers = snapshots.unwrap_or_default().iter().map(|one| one.id.get().to_string());
    numbers.collect::<Vec<_>>().join(",")
}

/// Where a snapshot is in its volume's list.
pub(super) fn place(
    message: &str,
    object: &str,
    list: &[SnapshotSummary],
    name: &str,
) -> Result<usize, AdminError> {
    let found = list.iter().position(|snapshot| snapshot.name == name);
    found.ok_or_else(|| AdminError::missing(message, "snapshot", object))
}

fn info(volume: &str, snapshot: &SnapshotSummary) -> SnapshotInfo {
    SnapshotInfo {
        volume: volume.to_owned(),
        name: snapshot.name.clone(),
        id: snapshot.id.get(),
        created: Time(snapshot.created),
        exclusive_bytes: None,
        with_older_bytes: None,
        clones: Vec::new(),
        held: snapshot.held,
    }
}

/// The full names of those snapshots that are held.
pub(super) fn held_among(volume: &str, snapshots: &[SnapshotSummary]) -> Vec<String> {
    let held = snapshots.iter().filter(|one| one.held);
    let held = held.filter(|_| !mutation::broken(Rule::HeldSnapshotDeleted));
    held.map(|one| full_name(volume, &one.name)).collect()
}
