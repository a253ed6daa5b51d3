//! `stroop aggr delete`: an aggregate ends, and its disks are free.
//!
//! Order: it is noted durably that the aggregate is deleted ([`crate::disks::deleted`]); it leaves
//! service; when nothing of it is left, the labels of its disks are erased and its journal is
//! removed. After a crash the next start does the rest, so that there is the whole aggregate, or
//! none and free disks.
//!
//! Invariants:
//! - An aggregate in service has no volumes but what it is itself.
//! - What cannot be looked at (the volumes of an aggregate out of service) goes only by force, and
//!   so do the files of a traditional volume.
//! - Only disks that were there are erased. One that returns later is left as it is, and brings
//!   nothing back.
//! - A dry run reads, and writes nothing.
//!
//! Fails: by `AdminError`; nothing has changed then.

use crate::disks::deleted::Deleted;
use crate::disks::labels::Found;
use crate::disks::table::Content;
use crate::recovery::room::Recovery;
use admin_api::{AdminError, AggregateDelete, AggregateInfo, Code, DiskState, Removal};
use aggregate::Aggregate;
use dblade::{ServedVolume, VolumeKind};
use platform::Disk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use units::{AggregateUuid, DiskUuid, shell_word};

const MESSAGE: &str = "cannot delete aggregate";
/// Names that an error shows; the others are counted.
const NAMES_MAX: usize = 8;
/// How long a look at the disks waits to see whether the node still runs.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// An aggregate that is to go.
struct Doomed {
    identity: AggregateUuid,
    name: String,
    /// The aggregate, if it is in service or failed there.
    served: Option<Arc<Aggregate>>,
    /// Its disks that are there, by identity.
    there: BTreeMap<DiskUuid, String>,
    /// Those that are not.
    missing: Vec<String>,
    /// What goes with it that is somebody's.
    volumes: Vec<String>,
}

impl Recovery {
    /// Deletes an aggregate; says what goes with it, or would.
    pub(crate) fn delete_aggregate(&self, wanted: &AggregateDelete) -> Result<Removal, AdminError> {
        let _turn = self.node.turn();
        let mut doomed = self.doomed(wanted)?;
        // Whoever holds it keeps its disks open.
        let is_served = doomed.served.take().is_some();
        let Doomed { identity, name, .. } = &doomed;
        let mut consequences = self.consequences(&doomed);
        if !wanted.dry_run {
            let deleted = Deleted {
                identity: *identity,
                name: name.clone(),
                time: self.node.clock.wall(),
                disks: doomed.there.keys().copied().collect(),
                has_journal: true,
            };
            self.disks.deleted.add(deleted).map_err(|error| {
                AdminError::new(Code::Failed, MESSAGE, name)
                    .because(format!("that it is deleted cannot be noted: {error}"))
                    .try_next("free space in the state directory")
            })?;
            tracing::warn!(aggregate = name, "an administrator deletes an aggregate");
            if is_served {
                let engine = &self.node.engine;
                self.node
                    .waits
                    .request(MESSAGE, name, |done| engine.retire_aggregate(name, done))?;
            }
            self.forget(*identity, name);
            self.await_closed(*identity);
            self.finish_deletions();
            consequences.extend(self.left_to_do(identity));
        }
        let (object, dry_run) = (name.clone(), wanted.dry_run);
        Ok(Removal { object, consequences, freed_bytes: 0, dry_run })
    }

    /// Nobody waits for the aggregate any more, and its disks are nobody's.
    fn forget(&self, identity: AggregateUuid, name: &str) {
        self.disks.keep(name, &[]);
        self.node.offline.lock().retain(|one| one.identity != identity);
        self.node.engine.forget_aggregate(identity);
        self.node.front_ends.set_away(identity, false);
        for (volume, of) in self.node.front_ends.exported() {
            if self.node.engine.is_gone(of) {
                self.node.front_ends.forget_exports(&volume);
            }
        }
    }

    /// What is still to be erased, in words.
    fn left_to_do(&self, identity: &AggregateUuid) -> Vec<String> {
        let Some(left) = self.disks.deleted.find(identity) else { return Vec::new() };
        let mut words = Vec::new();
        if !left.disks.is_empty() {
            words.push(format!(
                "{} of its disks could not be erased yet, and are when they can be read and written \
                 again",
                left.disks.len()
            ));
        }
        if left.has_journal {
            words.push(
                "its journal could not be removed yet, and is when that can be done".to_owned(),
            );
        }
        words
    }

    /// Erases what is left of aggregates that were deleted.
    pub(crate) fn finish_deletions(&self) {
        for deleted in self.disks.deleted.pending() {
            let identity = deleted.identity;
            // What was asked of its disks before must not land on those of another.
            if !self.node.engine.is_closed(&identity) {
                continue;
            }
            if !deleted.disks.is_empty() {
                self.erase_disks(&deleted);
            }
            if deleted.has_journal {
                let engine = &self.node.engine;
                let removed = self.node.waits.request("cannot remove", &deleted.name, |done| {
                    engine.remove_log(identity, done)
                });
                match removed {
                    Ok(()) => self.disks.deleted.note(&identity, |one| one.has_journal = false),
                    Err(error) => tracing::warn!(aggregate = deleted.name, %error, "its journal"),
                }
            }
        }
    }

    fn erase_disks(&self, deleted: &Deleted) {
        let mut names = self.disks.names();
        names.retain(|name| !self.disks.is_held(name) && !self.checks.table.has_disk(name));
        for name in names {
            let Content::Member(disk, label) = self.disks.look(&name) else { continue };
            if label.aggregate != deleted.identity || !deleted.disks.contains(&label.disk) {
                continue;
            }
            match self.erase(disk) {
                Ok(()) => {
                    tracing::info!(aggregate = deleted.name, disk = name, "the disk is free");
                    self.node.left_out.lock().retain(|left| left.name != name);
                    self.disks.deleted.note(&deleted.identity, |one| {
                        one.disks.remove(&label.disk);
                    });
                }
                Err(error) => tracing::warn!(disk = name, error, "not erased yet"),
            }
        }
    }

    fn erase(&self, disk: Arc<dyn Disk>) -> Result<(), String> {
        let stopped = || "the engine stopped".to_owned();
        let opened = self.node.waits.wait_for(|done| media::open(disk, done));
        let device = opened.ok_or_else(stopped)?.map_err(|error| error.to_string())?;
        let device = Arc::new(device);
        let erased = self.node.waits.wait_for(|done| device.erase_label_last(done));
        erased.ok_or_else(stopped)?.map_err(|error| error.to_string())
    }

    fn doomed(&self, wanted: &AggregateDelete) -> Result<Doomed, AdminError> {
        let name = wanted.name.clone();
        let refused = || AdminError::new(Code::Conflict, MESSAGE, &name);
        let served = self.node.engine.aggregate_named(&name);
        let identity = self.only_identity(&name, served.as_ref())?;
        if self.checks.table.is_at_rest(&identity) || self.checks.table.is_under_way(&name) {
            return Err(refused()
                .because("a 'stroop check aggr' reads it")
                .try_next("wait until that has ended, or end it"));
        }
        if !self.disks.upkeep.joining(&name).is_empty() {
            return Err(refused()
                .because("disks are being zeroed to join it")
                .try_next("stroop job list"));
        }
        let in_service = served.as_ref().filter(|aggregate| !aggregate.is_failed());
        let volumes = match in_service {
            Some(aggregate) => self.check_volumes(wanted, aggregate)?,
            None => self.check_abandoned(wanted, &identity)?,
        };
        let there = self.disks_there(&identity, &name)?;
        let missing = self.missing(&identity, &name, &there);
        Ok(Doomed { identity, name, served, there, missing, volumes })
    }

    /// The one aggregate of this name, in service or not.
    fn only_identity(
        &self,
        name: &str,
        served: Option<&Arc<Aggregate>>,
    ) -> Result<AggregateUuid, AdminError> {
        let mut found: BTreeSet<AggregateUuid> =
            served.map(|aggregate| aggregate.parts.identity.aggregate).into_iter().collect();
        let away = self.node.engine.outages().into_iter().map(|outage| outage.summary);
        found.extend(away.filter(|one| one.name == name).map(|one| one.identity));
        let offline = self.node.offline.lock();
        found.extend(offline.iter().filter(|one| one.name == name).map(|one| one.identity));
        match (found.first(), found.len()) {
            (Some(identity), 1) => Ok(*identity),
            (None, _) => Err(AdminError::missing(MESSAGE, "aggregate", name)),
            _ => Err(AdminError::new(Code::Conflict, MESSAGE, name)
                .because("several aggregates have this name")
                .try_next("detach the disks of all but one of them")),
        }
    }

    /// What goes with an aggregate in service: nothing but a traditional volume.
    fn check_volumes(
        &self,
        wanted: &AggregateDelete,
        aggregate: &Arc<Aggregate>,
    ) -> Result<Vec<String>, AdminError> {
        let refused = || AdminError::new(Code::Conflict, MESSAGE, &wanted.name);
        let mut volumes = self.node.engine.volumes();
        volumes.retain(|volume| Arc::ptr_eq(&volume.aggregate, aggregate));
        let is_traditional =
            |volume: &Arc<ServedVolume>| matches!(volume.kind, VolumeKind::Traditional(_));
        let Some(volume) = volumes.iter().find(|one| is_traditional(one)) else {
            let Some(first) = volumes.first() else { return Ok(Vec::new()) };
            let next = format!("stroop volume delete {}", first.name());
            let names = volumes.iter().map(|volume| volume.name());
            return Err(refused()
                .because(format!("volumes are in it: {}", shortened(names.collect())))
                .try_next(next));
        };
        let name = volume.name();
        let mounts = self.node.front_ends.mounts();
        if let Some(mount) = mounts.iter().find(|mount| mount.volume == name) {
            return Err(refused()
                .because(format!("it is mounted at {}", mount.mountpoint))
                .try_next(format!("stroop unmount {}", shell_word(&mount.mountpoint))));
        }
        if !wanted.force {
            return Err(refused()
                .because(format!("it is the traditional volume {name}, with all its files"))
                .try_next(format!("stroop aggr delete {} --force, to lose them", wanted.name)));
        }
        Ok(vec![name])
    }

    /// What goes with an aggregate that is out of service: nobody can look at its volumes.
    fn check_abandoned(
        &self,
        wanted: &AggregateDelete,
        identity: &AggregateUuid,
    ) -> Result<Vec<String>, AdminError> {
        let known = self.node.engine.volumes_away(identity);
        if wanted.force {
            return Ok(known.unwrap_or_else(|| vec!["(not known)".to_owned()]));
        }
        let cause = match known {
            Some(names) if names.is_empty() => "it is out of service".to_owned(),
            Some(names) => format!("it is out of service, with volumes: {}", shortened(names)),
            None => "it is out of service, and nobody knows which volumes it has".to_owned(),
        };
        Err(AdminError::new(Code::Conflict, MESSAGE, &wanted.name).because(cause).try_next(
            format!(
                "stroop status, to have it back; or, to lose what it holds: stroop aggr delete {} \
             --force",
                wanted.name
            ),
        ))
    }

    /// The disks that carry the label of an aggregate now, held or not.
    ///
    /// # Errors
    /// If the node stops: a disk that was not read is not known to be missing then.
    fn disks_there(
        &self,
        identity: &AggregateUuid,
        name: &str,
    ) -> Result<BTreeMap<DiskUuid, String>, AdminError> {
        let stopped = || AdminError::new(Code::Failed, MESSAGE, name).because("the node stops");
        let mut there = BTreeMap::new();
        for disk in self.disks.held_by(name).iter().filter_map(|name| self.disks.held(name)) {
            let label = self.node.waits.wait_for(|done| media::read_label(&disk, done));
            let label = label.ok_or_else(stopped)?;
            if let Some(label) = label.ok().filter(|label| label.aggregate == *identity) {
                there.insert(label.disk, disk.name().to_owned());
            }
        }
        let mut names = self.disks.names();
        names.retain(|name| !self.disks.is_held(name) && !self.checks.table.has_disk(name));
        let found = Found::on(names, |name| self.disks.look(name)).candidates;
        for (label, disk) in found.get(identity).into_iter().flat_map(|one| &one.disks) {
            there.insert(*label, disk.name().to_owned());
        }
        if self.node.waits.pause(LOOK_INTERVAL) { Ok(there) } else { Err(stopped()) }
    }

    /// The disks of an aggregate that are not there.
    fn missing(
        &self,
        identity: &AggregateUuid,
        name: &str,
        there: &BTreeMap<DiskUuid, String>,
    ) -> Vec<String> {
        let offline =
            self.node.offline.lock().iter().find(|one| one.identity == *identity).cloned();
        if let Some(offline) = offline {
            let absent = offline.seen.absent.iter().map(|disk| disk.identity);
            let absent = absent.filter(|disk| !there.contains_key(disk));
            return absent.map(|disk| format!("({disk})")).collect();
        }
        let known = self.aggregates.aggregate_list();
        let is_it = |info: &&AggregateInfo| info.name == name;
        let disks = known.iter().find(is_it).into_iter().flat_map(|info| &info.disks);
        let is_lost = |state| matches!(state, DiskState::Missing | DiskState::Failed);
        let is_there = |disk: &str| there.values().any(|name| name == disk);
        let missing = disks.filter(|disk| is_lost(disk.state) || !is_there(&disk.name));
        let names = missing.map(|disk| disk.name.clone());
        names.filter(|name| !is_there(name)).collect()
    }

    fn consequences(&self, doomed: &Doomed) -> Vec<String> {
        let Doomed { identity, there, missing, volumes, .. } = doomed;
        let mut lines: Vec<String> =
            volumes.iter().map(|name| format!("volume {name}, with all it holds")).collect();
        lines.extend(there.values().map(|disk| format!("disk {disk} is free")));
        lines.extend(missing.iter().map(|disk| {
            format!(
                "disk {disk} is missing and keeps what it holds; when it returns it brings nothing \
                 back"
            )
        }));
        // One on its own disks goes with them.
        if self.journals.is_there(identity) {
            lines.push(format!("{} is removed", self.journals.title(identity)));
        }
        lines
    }
}

/// Names in a line, as many as it has room for.
fn shortened(names: Vec<String>) -> String {
    let more = names.len().saturating_sub(NAMES_MAX);
    let shown: Vec<String> = names.into_iter().take(NAMES_MAX).collect();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
