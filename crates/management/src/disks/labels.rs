//! What the disks say about which aggregates there are, and which of their disks were found.
//!
//! Invariants: nothing is written, and nothing decided: a candidate says what is there.

use crate::disks::table::Content;
use crate::node::{AbsentDisk, Seen, SeenDisk};
use admin_api::{AdminError, Code};
use media::MediaError;
use ondisk::label::{DiskLabel, DiskRole};
use platform::{Disk, DiskError};
use raid::GroupList;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{AggregateUuid, DiskUuid};

/// What the disks say of an aggregate.
#[derive(Default)]
pub(crate) struct Candidate {
    /// Disks that can be used, with the identities that their labels give.
    pub disks: Vec<(DiskUuid, Arc<dyn Disk>)>,
    /// What all say.
    pub labels: Vec<DiskLabel>,
    /// Disks that are too short to be used.
    pub cut_off: Vec<String>,
}

/// What was found on all disks.
#[derive(Default)]
pub(crate) struct Found {
    /// By identity of the aggregate.
    pub candidates: BTreeMap<AggregateUuid, Candidate>,
    /// Disks that cannot be used: name, identity if it is known, why.
    pub left_out: Vec<(String, Option<DiskUuid>, MediaError)>,
    /// Those of them that an aggregate may miss.
    pub doubtful: Doubtful,
}

/// Disks whose labels this process cannot read though nothing is wrong with them. An aggregate that
/// misses a disk is not opened while there is one: what is written meanwhile would make the disk
/// useless.
#[derive(Default)]
pub(crate) struct Doubtful {
    /// Another process has them.
    pub busy: Vec<String>,
    /// A newer build labelled them.
    pub newer: Vec<String>,
}

impl Doubtful {
    fn note(&mut self, name: &str, error: &MediaError) {
        match error {
            MediaError::Disk(DiskError::InUse { .. }) => self.busy.push(name.to_owned()),
            MediaError::AnotherBuild { damage, .. } if damage.is_of_newer_build() => {
                self.newer.push(name.to_owned());
            }
            _ => (),
        }
    }

    /// Why an aggregate that misses disks is not opened, if it is not.
    pub(crate) fn refusal(&self, aggregate: &str) -> Option<AdminError> {
        let (cause, names, next) = if !self.busy.is_empty() {
            (
                "disks of it are missing, and disks are in use by another process:",
                &self.busy,
                "end that process; the aggregate is opened by itself then",
            )
        } else if !self.newer.is_empty() {
            (
                "disks of it are missing, and a newer build of Stroop labelled these disks:",
                &self.newer,
                "start the build that labelled them, or a later one",
            )
        } else {
            return None;
        };
        let error = AdminError::new(Code::Conflict, "cannot open aggregate", aggregate);
        Some(error.because(cause).because(names.join(", ")).try_next(next))
    }
}

impl Found {
    /// Looks at disks.
    pub(crate) fn on(names: Vec<String>, mut look: impl FnMut(&str) -> Content) -> Self {
        let mut found = Self::default();
        for name in names {
            match look(&name) {
                Content::Member(disk, label) => {
                    let candidate = found.candidates.entry(label.aggregate).or_default();
                    candidate.disks.push((label.disk, disk));
                    candidate.labels.push(*label);
                }
                Content::CutOff(label, error) => {
                    found.left_out.push((name.clone(), Some(label.disk), error));
                    let candidate = found.candidates.entry(label.aggregate).or_default();
                    candidate.labels.push(*label);
                    candidate.cut_off.push(name);
                }
                Content::Unknown(error) => {
                    found.doubtful.note(&name, &error);
                    found.left_out.push((name, None, error));
                }
                Content::Other(_) => tracing::debug!(disk = name, "the disk has no label"),
            }
        }
        found
    }
}

impl Candidate {
    /// The names of disks that can be used.
    pub(crate) fn names(&self) -> Vec<String> {
        self.disks.iter().map(|(_, disk)| disk.name().to_owned()).collect()
    }

    /// The disks that can be used.
    pub(crate) fn into_disks(self) -> Vec<Arc<dyn Disk>> {
        self.disks.into_iter().map(|(_, disk)| disk).collect()
    }

    /// Identities of the disks that were found.
    pub(crate) fn found(&self) -> BTreeSet<DiskUuid> {
        self.labels.iter().map(|label| label.disk).collect()
    }

    /// Whether all disks of all groups are there: those that the latest label of each group names.
    pub(crate) fn is_complete(&self) -> bool {
        let found = self.found();
        let whole = |label: &DiskLabel| {
            let mut members = label.members.iter().take(usize::from(label.disks_in_group.get()));
            members.all(|member| found.contains(member))
        };
        let groups = GroupList::of(&self.labels);
        let are_whole =
            |groups: &GroupList<'_>| groups.groups().all(|(_, label)| label.is_some_and(whole));
        self.cut_off.is_empty() && groups.as_ref().is_some_and(are_whole)
    }

    fn seen_disk(&self, identity: DiskUuid, name: String) -> SeenDisk {
        let mut labels = self.labels.iter();
        let number = labels.find(|label| label.disk == identity).and_then(DiskLabel::number);
        SeenDisk { identity, name, number }
    }

    /// What its disks say.
    pub(crate) fn seen(&self) -> Seen {
        let groups = GroupList::of(&self.labels);
        let latest = groups.iter().flat_map(GroupList::groups);
        let latest: Vec<(u32, &DiskLabel)> =
            latest.filter_map(|(group, label)| Some((group, label?))).collect();
        let members = |label: &DiskLabel| usize::from(label.disks_in_group.get());
        let has_place = |own: &DiskLabel| {
            let is_named = |(_, label): &(u32, &DiskLabel)| {
                label.members.iter().take(members(label)).any(|member| *member == own.disk)
            };
            own.is_spare() || latest.iter().any(is_named)
        };
        let found = self.found();
        let absent = latest.iter().flat_map(|(group, label)| {
            let parity_disks = label.kind().map_or(0, |kind| kind.parity_disks());
            let places = label.members.iter().take(members(label)).enumerate();
            let absent = places.filter(|(_, identity)| !found.contains(*identity));
            absent.map(move |(at, identity)| AbsentDisk {
                identity: *identity,
                group: *group,
                role: if at < parity_disks { DiskRole::Parity } else { DiskRole::Data },
            })
        });
        let labelled = self.labels.iter().filter(|label| !has_place(label));
        let strangers: BTreeSet<DiskUuid> = labelled.map(|label| label.disk).collect();
        let (replaced, own): (Vec<_>, Vec<_>) =
            self.disks.iter().partition(|(identity, _)| strangers.contains(identity));
        let name_of = |(_, disk): &(DiskUuid, Arc<dyn Disk>)| disk.name().to_owned();
        Seen {
            kind: self.labels.iter().find_map(DiskLabel::kind),
            disks: self.names().into_iter().chain(self.cut_off.clone()).collect(),
            own: own.into_iter().map(|disk| self.seen_disk(disk.0, name_of(disk))).collect(),
            replaced: replaced.into_iter().map(name_of).collect(),
            absent: absent.collect(),
        }
    }

    /// Whether as many disks of each group are there as it needs. Those that the labels call
    /// missing do not count: they missed writes.
    pub(crate) fn is_enough(&self) -> bool {
        let found = self.found();
        let enough = |label: &DiskLabel| {
            let members = label.members.iter().take(usize::from(label.disks_in_group.get()));
            let is_missing = |(at, member): &(usize, &DiskUuid)| {
                label.is_missing(*at) || !found.contains(*member)
            };
            let missing = members.enumerate().filter(is_missing).count();
            missing <= label.kind().map_or(0, |kind| kind.parity_disks())
        };
        // Groups that were being added when the power went are not there yet, nor those that were
        // removed.
        let groups = GroupList::of(&self.labels);
        let are_enough =
            |groups: &GroupList<'_>| groups.groups().all(|(_, label)| label.is_some_and(enough));
        groups.as_ref().is_some_and(are_enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::damage::Damage;
    use ondisk::label::RaidKind;

    /// The label of a disk of the second of its group's changes.
    fn label((group, groups): (u32, u32), disk: u8, members: &[u8]) -> DiskLabel {
        let mut label = DiskLabel::empty();
        label.group_index = group.into();
        label.groups_count = groups.into();
        label.disk = DiskUuid([disk; 16]);
        label.disks_in_group = (members.len() as u16).into();
        label.sequence = 2.into();
        for (into, member) in label.members.iter_mut().zip(members) {
            *into = DiskUuid([*member; 16]);
        }
        label
    }

    #[test]
    fn enough_disks_are_those_that_did_not_miss_writes() {
        let groups = |missing: u32| {
            let mut labels: Vec<DiskLabel> =
                [1, 2, 3].iter().map(|disk| label((0, 1), *disk, &[1, 2, 3])).collect();
            for label in &mut labels {
                label.raid_kind = RaidKind::Raid4.number();
                label.missing = missing.into();
            }
            labels
        };
        let is_enough = |labels: &[DiskLabel]| {
            Candidate { labels: labels.to_vec(), ..Candidate::default() }.is_enough()
        };
        assert!(is_enough(&groups(0)) && is_enough(&groups(0)[1..]) && !is_enough(&groups(0)[2..]));
        assert!(is_enough(&groups(1)) && is_enough(&groups(1)[1..]) && !is_enough(&groups(1)[..2]));
        assert!(!is_enough(&[]) && !is_enough(&[label((0, 2), 1, &[1])]));
    }

    #[test]
    fn a_candidate_tells_replaced_disks_from_absent_ones() {
        let members = |sequence: u64, disk: u8| {
            let mut label =
                label((0, 1), disk, if sequence == 2 { &[1, 2, 3] } else { &[1, 4, 3] });
            label.sequence = sequence.into();
            label.raid_kind = RaidKind::Raid4.number();
            label
        };
        let world = platform::simulated::SimulatedWorld::new(1);
        let mut candidate =
            Candidate { labels: vec![members(2, 1), members(1, 4)], ..Candidate::default() };
        for (name, identity) in [("d1", 1), ("d4", 4)] {
            let disk: Arc<dyn Disk> = world.add_disk(name, 64);
            candidate.disks.push((DiskUuid([identity; 16]), disk));
        }
        let seen = candidate.seen();
        assert_eq!((seen.disks, seen.replaced), (candidate.names(), vec!["d4".to_owned()]));
        let absent = |identity| AbsentDisk {
            identity: DiskUuid([identity; 16]),
            group: 0,
            role: DiskRole::Data,
        };
        assert_eq!(seen.absent, [absent(2), absent(3)]);
    }

    /// The disk may be the one that the aggregate misses.
    #[test]
    fn a_disk_of_a_newer_build_keeps_an_aggregate_shut_that_misses_a_disk() {
        let found = |damage: Damage| {
            let disk = "d1".to_owned();
            Found::on(vec![disk.clone()], |_| {
                let disk = disk.clone();
                Content::Unknown(MediaError::AnotherBuild { disk, damage })
            })
        };
        let refusal = |damage| found(damage).doubtful.refusal("a1");
        let newer = refusal(Damage::Version { structure: "disk label", found: u16::MAX });
        let newer = newer.expect("it is refused").to_string();
        assert!(newer.contains("a newer build of Stroop labelled") && newer.contains("d1"));
        assert!(refusal(Damage::Version { structure: "disk label", found: 1 }).is_none());
    }

    #[test]
    fn disks_of_a_group_that_was_removed_are_not_waited_for() {
        let without = |label: &DiskLabel, groups: &[u32]| {
            let mut label = label.clone();
            groups.iter().for_each(|group| label.set_removed(*group));
            label.removed_blocks = (63 * groups.len() as u64).into();
            label
        };
        let candidate = |labels: &[&DiskLabel]| Candidate {
            labels: labels.iter().map(|label| (*label).clone()).collect(),
            ..Candidate::default()
        };
        let opens = |labels: &[&DiskLabel]| {
            let candidate = candidate(labels);
            assert_eq!(candidate.is_enough(), candidate.is_complete());
            candidate.is_enough()
        };
        let first = label((0, 3), 1, &[1]);
        let (second, last) = (label((1, 3), 2, &[2]), label((2, 3), 3, &[3]));
        assert!(opens(&[&first, &second, &last]) && !opens(&[&first, &last]));
        // One that says it is enough.
        assert!(opens(&[&without(&first, &[1]), &last]) && opens(&[&first, &without(&last, &[1])]));
        assert!(!opens(&[&without(&first, &[1])]));
        assert!(opens(&[&without(&last, &[0, 1])]), "the first can go as well");
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
