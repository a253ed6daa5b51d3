//! `stroop aggr delete`: an aggregate ends, and its disks are free.
//!
//! Order: it is noted durably that the aggregate is deleted ([`crate::disks::deleted`]); it leaves
//! service without a last consistency point, so that nobody waits for a journal or a disk that
//! hangs; when nothing of it is left, the labels of its disks are erased and its journal is
//! removed ([`crate::recovery::erasing`]). After a crash the next start does the rest, so that
//! there is the whole aggregate, or none and free disks.
//!
//! Invariants:
//! - An aggregate in service has no volumes but what it is itself.
//! - What cannot be looked at (the volumes of an aggregate out of service) goes only by force, and
//!   so do the files of a traditional volume.
//! - No volume goes that is mounted on this machine.
//! - Only disks that were there are erased. One that returns later is left as it is, and brings
//!   nothing back.
//! - A dry run reads, and writes nothing.
//!
//! Fails: by `AdminError`; nothing has changed then, unless the engine stops meanwhile: the next
//! start does the rest then.

use crate::disks::deleted::Deleted;
use crate::disks::labels::Found;
use crate::disks::table::Content;
use crate::recovery::room::Recovery;
use admin_api::{AdminError, AggregateDelete, Code, DiskState, Removal};
use aggregate::Aggregate;
use dblade::{ServedVolume, VolumeKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use units::{AggregateUuid, CpNumber, DiskUuid, shell_word};

const MESSAGE: &str = "cannot delete aggregate";
/// What to do about a list of deleted aggregates that cannot be read.
const MEND_LIST: &str = "mend the file or move it away, and start the server again";
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
        let served = doomed.served.take().map(|aggregate| aggregate.filling());
        let Doomed { identity, name, .. } = &doomed;
        let plan = format!("{identity}:{}", doomed.volumes.join(","));
        Removal::check_plan(MESSAGE, name, &plan, wanted.plan.as_deref())?;
        // One on its own disks goes with them.
        let has_journal = self.has_journal(*identity);
        if !wanted.dry_run {
            let next_cp = served.or_else(|| self.next_cp(&doomed));
            let deleted = Deleted {
                identity: *identity,
                name: name.clone(),
                time: self.node.clock.wall(),
                disks: doomed.there.keys().copied().collect(),
                has_journal: true,
                next_cp,
            };
            self.disks.deleted.add(deleted).map_err(|error| {
                AdminError::new(Code::Failed, MESSAGE, name)
                    .because(format!("that it is deleted cannot be noted: {error}"))
                    .try_next("free space in the state directory")
            })?;
            tracing::warn!(aggregate = name, "an administrator deletes an aggregate");
            if served.is_some() {
                let engine = &self.node.engine;
                let retired = self
                    .node
                    .waits
                    .request(MESSAGE, name, |done| engine.retire_aggregate(name, done));
                // It may have lost its disks meanwhile, and left service by itself.
                retired.or_else(|error| match error.code {
                    Code::NotFound => Ok(()),
                    _ => Err(error),
                })?;
            }
            self.forget(*identity, name);
            self.await_closed(*identity);
            self.finish_deletions();
        }
        // What was done is told as it came out.
        let left = self.disks.deleted.find(identity).unwrap_or_default();
        let consequences =
            consequences(&doomed, &left, has_journal.then(|| self.journals.title(identity)));
        let (object, dry_run) = (name.clone(), wanted.dry_run);
        Ok(Removal { plan, ..Removal::new(object, consequences, dry_run) })
    }

    /// The consistency point after the last one of an aggregate out of service. Nobody writes one.
    /// `None` if no superblock can be read: then the clock tells a use after the deletion.
    fn next_cp(&self, doomed: &Doomed) -> Option<CpNumber> {
        let disks = doomed.there.values().filter_map(|name| {
            self.disks.held(name).or_else(|| match self.disks.look(name) {
                Content::Member(disk, _) => Some(disk),
                _ => None,
            })
        });
        let superblocks = disks.flat_map(|disk| self.superblocks(disk, doomed.identity));
        let last = superblocks.map(|one| one.cp().get()).max();
        last.map(|last| CpNumber(last.saturating_add(1)))
    }

    /// Nobody waits for the aggregate any more, and its disks are nobody's.
    pub(super) fn forget(&self, identity: AggregateUuid, name: &str) {
        self.let_go_of(name);
        self.node.offline.lock().retain(|one| one.identity != identity);
        self.node.engine.forget_deleted(identity);
        self.node.front_ends.set_away(identity, false);
        for (_, of) in self.node.front_ends.exported() {
            if self.node.engine.is_gone(of) {
                self.node.front_ends.forget_exports(of);
            }
        }
    }

    /// The disks of an aggregate that has left service are nobody's. Another aggregate of its name
    /// may be in service, and keeps its own.
    pub(super) fn let_go_of(&self, name: &str) {
        if self.node.engine.aggregate_named(name).is_none() {
            self.disks.keep(name, &[]);
        }
    }

    fn doomed(&self, wanted: &AggregateDelete) -> Result<Doomed, AdminError> {
        let name = wanted.name.clone();
        let refused = || AdminError::new(Code::Conflict, MESSAGE, &name);
        if let Some(failure) = self.disks.deleted.failure() {
            return Err(refused().because(failure).try_next(MEND_LIST));
        }
        let served = self.node.engine.aggregate_named(&name);
        let identity = self.only_identity(wanted, served.as_ref())?;
        // It may be another one of this name that is in service.
        let served = served.filter(|one| one.parts.identity.aggregate == identity);
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
        let missing = self.missing(&identity, &there);
        Ok(Doomed { identity, name, served, there, missing, volumes })
    }

    /// The one aggregate of this name, in service or not. If one is in service and one is not,
    /// force means the one that is not: it has nothing that anybody uses.
    fn only_identity(
        &self,
        wanted: &AggregateDelete,
        served: Option<&Arc<Aggregate>>,
    ) -> Result<AggregateUuid, AdminError> {
        let name = &wanted.name;
        let served = served.map(|aggregate| aggregate.parts.identity.aggregate);
        let away = self.node.engine.outages().into_iter().map(|outage| outage.summary);
        let mut absent: BTreeSet<AggregateUuid> =
            away.filter(|one| one.name == *name).map(|one| one.identity).collect();
        let offline = self.node.offline.lock();
        absent.extend(offline.iter().filter(|one| one.name == *name).map(|one| one.identity));
        if let Some(served) = &served {
            absent.remove(served);
        }
        let refused = || {
            AdminError::new(Code::Conflict, MESSAGE, name)
                .because("several aggregates have this name")
        };
        match (served, absent.first(), absent.len()) {
            (Some(identity), None, _) => Ok(identity),
            (None, Some(identity), 1) => Ok(*identity),
            (None, None, _) => Err(AdminError::missing(MESSAGE, "aggregate", name)),
            (Some(_), Some(identity), 1) if wanted.force => Ok(*identity),
            (Some(_), Some(_), 1) => Err(refused().try_next(format!(
                "stroop aggr delete {name} --force, which deletes the one that is out of service, \
                 and leaves the one in service as it is"
            ))),
            _ => Err(refused().try_next("detach the disks of all but one of them")),
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
            let (deleted, live): (Vec<_>, Vec<_>) =
                volumes.into_iter().partition(|volume| volume.queued().is_some());
            let Some(first) = live.first() else { return check_queue(refused(), &deleted) };
            let next = format!("stroop volume delete {} --queue-for 0s", first.name());
            let names = live.iter().map(|volume| volume.name());
            return Err(refused()
                .because(format!("volumes are in it: {}", shortened(names.collect())))
                .try_next(next));
        };
        let name = volume.name();
        self.check_unmounted(wanted, std::slice::from_ref(&name))?;
        if !wanted.force {
            return Err(refused()
                .because(format!("it is the traditional volume {name}, with all its files"))
                .try_next(format!("stroop aggr delete {} --force, to lose them", wanted.name)));
        }
        Ok(vec![name])
    }

    /// Refuses volumes that are mounted on this machine: their mounts would be dead for ever.
    fn check_unmounted(
        &self,
        wanted: &AggregateDelete,
        volumes: &[String],
    ) -> Result<(), AdminError> {
        let mounts = self.node.front_ends.mounts();
        let Some(mount) = mounts.iter().find(|mount| volumes.contains(&mount.volume)) else {
            return Ok(());
        };
        Err(AdminError::new(Code::Conflict, MESSAGE, &wanted.name)
            .because(format!("its volume {} is mounted at {}", mount.volume, mount.mountpoint))
            .try_next(format!("stroop unmount {}", shell_word(&mount.mountpoint))))
    }

    /// What goes with an aggregate that is out of service: nobody can look into its volumes, and
    /// their names are known only if it was in service since the start.
    fn check_abandoned(
        &self,
        wanted: &AggregateDelete,
        identity: &AggregateUuid,
    ) -> Result<Vec<String>, AdminError> {
        let known = self.node.engine.volumes_of(identity);
        let known = known.map(|all| all.into_iter().map(|(_, name)| name).collect::<Vec<_>>());
        self.check_unmounted(wanted, known.as_deref().unwrap_or_default())?;
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
    fn missing(&self, identity: &AggregateUuid, there: &BTreeMap<DiskUuid, String>) -> Vec<String> {
        let offline =
            self.node.offline.lock().iter().find(|one| one.identity == *identity).cloned();
        if let Some(offline) = offline {
            let absent = offline.seen.absent.iter().map(|disk| disk.identity);
            let absent = absent.filter(|disk| !there.contains_key(disk));
            return absent.map(|disk| format!("({disk})")).collect();
        }
        let known = self.aggregates.info_of(identity);
        let disks = known.iter().flat_map(|info| &info.disks);
        let is_lost = |state| matches!(state, DiskState::Missing | DiskState::Failed);
        let is_there = |disk: &str| there.values().any(|name| name == disk);
        let missing = disks.filter(|disk| is_lost(disk.state) || !is_there(&disk.name));
        let names = missing.map(|disk| disk.name.clone());
        names.filter(|name| !is_there(name)).collect()
    }
}

/// What goes with an aggregate and what becomes of its parts. `left` is what could not be erased
/// yet, `journal` what its journal is called, if it has one beside its disks.
fn consequences(doomed: &Doomed, left: &Deleted, journal: Option<String>) -> Vec<String> {
    let Doomed { there, missing, volumes, .. } = doomed;
    let mut lines: Vec<String> =
        volumes.iter().map(|name| format!("volume {name}, with all it holds")).collect();
    lines.extend(there.iter().map(|(identity, disk)| match left.disks.contains(identity) {
        true => format!(
            "disk {disk} is not erased yet; it is, and is free, as soon as it can be read and \
             written again and nothing of before is under way"
        ),
        false => format!("disk {disk} is free"),
    }));
    lines.extend(missing.iter().map(|disk| {
        format!(
            "disk {disk} is missing and keeps what it holds; when it returns it brings nothing back"
        )
    }));
    lines.extend(journal.map(|journal| match left.has_journal {
        true => format!(
            "{journal} is not removed yet, and is as soon as that can be done; a device that is \
             gone or that another aggregate uses is left as it is after about a minute"
        ),
        false => format!("{journal} is removed"),
    }));
    lines
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

/// # Errors
/// Volumes of the aggregate are in the recovery queue.
fn check_queue(
    refused: AdminError,
    deleted: &[Arc<ServedVolume>],
) -> Result<Vec<String>, AdminError> {
    let Some(first) = deleted.first() else { return Ok(Vec::new()) };
    let names = deleted.iter().map(|volume| volume.name()).collect();
    Err(refused
        .because(format!("deleted volumes of it are kept: {}", shortened(names)))
        .try_next(format!("stroop volume purge {}", first.name())))
}
