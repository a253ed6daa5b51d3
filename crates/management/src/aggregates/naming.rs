//! Short names for the disks of aggregates.
//!
//! Invariants: a disk has a short name from the moment on in which an aggregate of this node has
//! it, and its label has the number at the next look. Disks that are labelled for others are called
//! by their paths, and so are two disks with one identity: which of them is the copy is not told.
//!
//! Fails: a label that cannot be written is tried again at the next look, if its disk is there.

use crate::aggregates::room::Aggregates;
use crate::disks::names::KnownDisk;
use crate::disks::shown::Shown;
use dblade::AggregateSummary;
use platform::mutation::{self, Rule};
use raid::MemberState;
use std::collections::{BTreeMap, BTreeSet};
use units::DiskUuid;

/// The names of an aggregate's disks.
pub(crate) struct Naming<'a>(pub &'a Aggregates);

impl Naming<'_> {
    /// Gives names to disks that have none, and has their labels keep the numbers.
    pub(crate) fn name_and_number(&self) {
        if self.name_disks() {
            self.number_labels();
        }
    }

    /// Gives names to disks that have none, and keeps them; whether there were such.
    pub(crate) fn name_disks(&self) -> bool {
        self.0.disks.short_names.give(&self.own_disks(), || self.0.disks.names())
    }

    /// Has labels keep the numbers in the names of their disks.
    pub(crate) fn number_labels(&self) {
        if mutation::broken(Rule::DiskNameUnnoted) {
            return;
        }
        let numbers = self.0.disks.short_names.numbers();
        for summary in self.0.node.engine.aggregate_summaries() {
            let written = &summary.status.numbers;
            let lacks = |disk: &Sighting| {
                let number = numbers.get(&disk.identity);
                disk.is_there && number.is_some() && number != written.get(&disk.identity)
            };
            let is_due = summary.failure.is_none() && sightings(&summary).iter().any(lacks);
            let found = self.0.node.engine.aggregate_named(&summary.name).filter(|_| is_due);
            if let Some(found) = found {
                // What comes of it is seen at the next look.
                found.parts.store.number_disks(&numbers, Box::new(|_| ()));
            }
        }
    }

    /// What disks are called now, and what may be typed for them.
    pub(crate) fn shown_and_typed(&self) -> Shown {
        self.name_disks();
        self.shown().or_paths(self.0.disks.names())
    }

    /// What disks are called now.
    pub(crate) fn shown(&self) -> Shown {
        let mut shown = Shown::default();
        for KnownDisk { identity, path, .. } in self.own_disks() {
            if let Some(name) = self.0.disks.short_names.name(&identity) {
                shown.add(name, identity, path);
            }
        }
        shown
    }

    /// The disks of all aggregates in order, with the paths by which they are known.
    fn own_disks(&self) -> Vec<KnownDisk> {
        // One that is opened meanwhile is in one of the lists.
        let offline = self.0.node.offline.lock().clone();
        let (summaries, outages) = self.0.node.engine.summaries_and_outages();
        let mut disks: Vec<Sighting> = Vec::new();
        for summary in summaries.iter().chain(outages.iter().map(|outage| &outage.summary)) {
            disks.extend(sightings(summary));
        }
        for one in &offline {
            let there = one.seen.own.iter();
            disks.extend(there.map(|disk| there_at(disk.identity, &disk.name, disk.number)));
            disks.extend(one.seen.absent.iter().map(|disk| lost(disk.identity, None)));
        }
        let left_out = self.0.node.left_out.lock().clone();
        for disk in &mut disks {
            let known = left_out.iter().find(|one| one.identity == Some(disk.identity));
            disk.path = disk.path.take().or_else(|| known.map(|one| one.name.clone()));
        }
        distinct(disks)
    }
}

/// A disk of an aggregate, as something tells of it.
struct Sighting {
    identity: DiskUuid,
    /// Its path, or the one that it had.
    path: Option<String>,
    /// The number that its label has.
    number: Option<u32>,
    is_there: bool,
}

fn there_at(identity: DiskUuid, path: &str, number: Option<u32>) -> Sighting {
    Sighting { identity, path: Some(path.to_owned()), number, is_there: true }
}

const fn lost(identity: DiskUuid, path: Option<String>) -> Sighting {
    Sighting { identity, path, number: None, is_there: false }
}

fn sightings(summary: &AggregateSummary) -> Vec<Sighting> {
    let status = &summary.status;
    let there_at = |identity: DiskUuid, path: &str| {
        there_at(identity, path, status.numbers.get(&identity).copied())
    };
    let members = status.groups.iter().flat_map(|group| &group.members);
    let members = members.map(|member| match (&member.state, &member.name) {
        (MemberState::Online | MemberState::Rebuilding { .. }, Some(path)) => {
            there_at(member.identity, path)
        }
        (_, path) => lost(member.identity, path.clone()),
    });
    let spares = status.spares.iter().map(|spare| there_at(spare.identity, &spare.name));
    let filled = status.fillings.iter().map(|one| there_at(one.identity, &one.disk));
    members.chain(spares).chain(filled).collect()
}

/// Each disk once. A path is that of the disk which is there, and of a lost one only if it was no
/// other's. Where it cannot be told whose it is, no disk has it.
fn distinct(disks: Vec<Sighting>) -> Vec<KnownDisk> {
    let mut order: Vec<DiskUuid> = Vec::new();
    let mut seen = BTreeSet::new();
    order.extend(disks.iter().map(|disk| disk.identity).filter(|one| seen.insert(*one)));
    let mut owners: BTreeMap<&str, BTreeSet<DiskUuid>> = BTreeMap::new();
    let is_there: BTreeSet<&str> =
        disks.iter().filter(|disk| disk.is_there).filter_map(|disk| disk.path.as_deref()).collect();
    let mut paths: BTreeMap<DiskUuid, BTreeSet<&str>> = BTreeMap::new();
    for disk in &disks {
        let path = disk.path.as_deref();
        if let Some(path) = path.filter(|path| disk.is_there || !is_there.contains(path)) {
            owners.entry(path).or_default().insert(disk.identity);
            paths.entry(disk.identity).or_default().insert(path);
        }
    }
    let path_of = |identity: &DiskUuid| {
        let mut own = paths.get(identity).into_iter().flatten();
        let (first, second) = (own.next()?, own.next());
        let is_its = second.is_none() && owners.get(first).is_some_and(|all| all.len() == 1);
        is_its.then(|| (*first).to_owned())
    };
    let number_of = |identity: &DiskUuid| {
        disks.iter().filter(|disk| disk.identity == *identity).find_map(|disk| disk.number)
    };
    let known = |identity: &DiskUuid| {
        let (path, number) = (path_of(identity), number_of(identity));
        KnownDisk { identity: *identity, path, number }
    };
    order.iter().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_that_of_the_disk_which_is_there() {
        let identity = |number: u8| DiskUuid([number; 16]);
        let path = |path: &str| Some(path.to_owned());
        let told = distinct(vec![
            lost(identity(1), path("/dev/sda")),
            there_at(identity(2), "/dev/sda", None),
            lost(identity(3), path("/dev/sdb")),
            lost(identity(4), None),
            // Copies of one disk.
            there_at(identity(5), "/dev/sdc", None),
            there_at(identity(5), "/dev/sdd", None),
            there_at(identity(2), "/dev/sda", Some(9)),
            lost(identity(6), path("/dev/sde")),
            lost(identity(7), path("/dev/sde")),
        ]);
        let told: Vec<_> =
            told.into_iter().map(|disk| (disk.identity, disk.path, disk.number)).collect();
        let expected = [
            (identity(1), None, None),
            (identity(2), path("/dev/sda"), Some(9)),
            (identity(3), path("/dev/sdb"), None),
            (identity(4), None, None),
            (identity(5), None, None),
            (identity(6), None, None),
            (identity(7), None, None),
        ];
        assert_eq!(told, expected);
    }
}
