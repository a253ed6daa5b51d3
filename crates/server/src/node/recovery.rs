//! The start: finds the aggregates on the disks and brings each into service.
//!
//! Invariants: an aggregate that cannot be opened stops no other one; it is reported with its
//! reason ([`OfflineAggregate`]) and its disks are let go of, so that tools can look at them. No
//! aggregate starts degraded while a disk that may be the missing one is in use by another
//! process: what is written meanwhile would make that disk useless.
//!
//! Fails: never as a whole.

use super::blocking::request;
use super::core::Core;
use super::disk_table::{Content, title};
use super::patience::Patience;
use super::spares::names_of;
use admin_api::{AdminError, Code};
use media::MediaError;
use ondisk::label::DiskLabel;
use platform::{Disk, DiskError};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An aggregate that was found and could not be opened.
#[derive(Clone, Debug)]
pub(super) struct OfflineAggregate {
    /// Its name.
    pub name: String,
    /// How it is protected, as a disk of it says.
    pub kind: Option<ondisk::label::RaidKind>,
    /// The disks of it that were found.
    pub disks: Vec<String>,
    /// Why.
    pub error: AdminError,
}

/// A disk that could not be used when the server started.
#[derive(Clone, Debug)]
pub(super) struct LeftOut {
    /// Its name.
    pub name: String,
    /// Its identity, if its label could be read.
    pub identity: Option<[u8; 16]>,
    /// Why.
    pub reason: String,
}

/// What the disks say of an aggregate.
#[derive(Default)]
struct Candidate {
    disks: Vec<Arc<dyn Disk>>,
    labels: Vec<DiskLabel>,
    /// Disks that are too short to be used.
    cut_off: Vec<String>,
}

impl Candidate {
    /// Whether all disks of all groups are there: those that the latest label of each group names.
    fn is_complete(&self) -> bool {
        let found: BTreeSet<[u8; 16]> = self.labels.iter().map(|label| label.disk).collect();
        let mut latest: BTreeMap<u32, &DiskLabel> = BTreeMap::new();
        for label in self.labels.iter().filter(|label| !label.is_spare()) {
            let known = latest.entry(label.group_index.get()).or_insert(label);
            if known.sequence.get() < label.sequence.get() {
                *known = label;
            }
        }
        let whole = |label: &&DiskLabel| {
            let members = label.members.iter().take(usize::from(label.disks_in_group.get()));
            members.into_iter().all(|member| found.contains(member))
                && latest.len() == label.groups_count.get() as usize
        };
        !latest.is_empty() && self.cut_off.is_empty() && latest.values().all(whole)
    }
}

impl Core {
    /// Opens every aggregate that the disks hold.
    pub(super) fn open_aggregates(&self) {
        let mut candidates: BTreeMap<[u8; 16], Candidate> = BTreeMap::new();
        let mut busy = Vec::new();
        let patience = Patience::new(Arc::clone(&self.clock));
        for name in self.disks.names() {
            match self.disks.look_patiently(&name, &patience) {
                Content::Member(disk, label) => {
                    let candidate = candidates.entry(label.aggregate).or_default();
                    candidate.disks.push(disk);
                    candidate.labels.push(*label);
                }
                Content::CutOff(label, error) => {
                    self.leave_out(&name, Some(label.disk), &error);
                    let candidate = candidates.entry(label.aggregate).or_default();
                    candidate.labels.push(*label);
                    candidate.cut_off.push(name);
                }
                Content::Unknown(error) => {
                    self.leave_out(&name, None, &error);
                    if matches!(error, MediaError::Disk(DiskError::InUse { .. })) {
                        busy.push(name);
                    }
                }
                Content::Other(_) => tracing::debug!(disk = name, "the disk has no label"),
            }
        }
        for (identity, candidate) in candidates {
            self.journals.await_free(&identity, &patience);
            self.open_candidate(candidate, &busy);
        }
        for volume in self.engine.volumes() {
            if self.is_in_service(&volume) {
                self.publish_exports(&volume);
            }
        }
    }

    fn leave_out(&self, name: &str, identity: Option<[u8; 16]>, error: &MediaError) {
        tracing::error!(disk = name, %error, "the disk is left out");
        let (name, reason) = (name.to_owned(), error.to_string());
        self.left_out.lock().push(LeftOut { name, identity, reason });
    }

    fn open_candidate(&self, candidate: Candidate, busy: &[String]) {
        let Some(first) = candidate.labels.first() else { return };
        let kind = candidate.labels.iter().find_map(DiskLabel::kind);
        let name = title(first);
        let complete = candidate.is_complete();
        let Candidate { disks, cut_off, .. } = candidate;
        let mut names: Vec<String> = disks.iter().map(|disk| disk.name().to_owned()).collect();
        let outcome = if complete || busy.is_empty() {
            self.open_disks(&name, disks)
        } else {
            Err(AdminError::new(Code::Conflict, "cannot open aggregate", &name)
                .because("disks of it are missing, and disks are in use by another process:")
                .because(busy.join(", "))
                .try_next("end that process and start the server again"))
        };
        if let Err(error) = outcome {
            tracing::error!(aggregate = name, %error, "the aggregate stays out of service");
            names.extend(cut_off);
            self.offline.lock().push(OfflineAggregate { name, kind, disks: names, error });
        }
    }

    fn open_disks(&self, name: &str, disks: Vec<Arc<dyn Disk>>) -> Result<(), AdminError> {
        let message = "cannot open aggregate";
        if self.engine.aggregate_named(name).is_some() {
            return Err(AdminError::new(Code::Conflict, message, name)
                .because("another aggregate of this name is in service")
                .try_next("detach the disks of one of them and start the server again"));
        }
        let given = disks.clone();
        let engine = &self.engine;
        let recovery = request(message, name, |done| engine.open_aggregate(given, done))?;
        // Not those that were replaced: they are free to be taken.
        let mut disks = disks;
        let summaries = self.engine.aggregate_summaries();
        let found = summaries.iter().find(|one| one.name == name);
        let names: Vec<&str> = found.map(names_of).unwrap_or_default();
        disks.retain(|disk| names.contains(&disk.name()));
        self.disks.hold(name, &disks);
        let duration_ms = recovery.nanoseconds / 1_000_000;
        let (replayed, clean) = (recovery.replayed, recovery.clean);
        let bytes = units::ByteSize(recovery.replayed_bytes);
        tracing::info!(
            aggregate = name,
            clean,
            "opened: replayed {replayed} operations, {bytes}, in {duration_ms} ms"
        );
        self.recoveries.lock().push(recovery);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The label of a disk of the second of its group's changes.
    fn label((group, groups): (u32, u32), disk: u8, members: &[u8]) -> DiskLabel {
        let mut label = DiskLabel::empty();
        label.group_index = group.into();
        label.groups_count = groups.into();
        label.disk = [disk; 16];
        label.disks_in_group = (members.len() as u16).into();
        label.sequence = 2.into();
        for (into, member) in label.members.iter_mut().zip(members) {
            *into = [*member; 16];
        }
        label
    }

    #[test]
    fn an_aggregate_is_complete_with_all_disks_of_all_groups() {
        let candidate =
            |labels: &[DiskLabel]| Candidate { labels: labels.to_vec(), ..Candidate::default() };
        let whole = [label((0, 2), 1, &[1, 2]), label((0, 2), 2, &[1, 2]), label((1, 2), 3, &[3])];
        assert!(candidate(&whole).is_complete());
        let mut replaced = label((0, 2), 4, &[4, 2]);
        replaced.sequence = 1.into();
        for missing in 0..whole.len() {
            let mut labels = whole.to_vec();
            labels.remove(missing);
            assert!(!candidate(&labels).is_complete(), "without {missing}");
            // One that had a place before does not stand in for it.
            labels.push(replaced.clone());
            assert!(!candidate(&labels).is_complete(), "without {missing}");
        }
        assert!(candidate(&[&whole[..], &[replaced]].concat()).is_complete());
        let short = Candidate { cut_off: vec!["d3".to_owned()], ..candidate(&whole) };
        assert!(!short.is_complete());
    }
}
