//! What an operator should see: volumes with their snapshots and rules, as lists and nothing more.
//!
//! Invariants: [`Expected::after`] is the whole of what a call may do and of why it may be refused;
//! it knows no engine.

use super::disks::DiskBook;
use crate::machine::AGGREGATE;
use admin_api::{
    AggregateAdd, CloneCreate, CloneOf, Code, DiskReplace, ExportRule, Guarantee, Owner,
    QuotaDelete, QuotaList, QuotaSet, RaidKind, Reallocation, Request, SnapshotAutodelete,
    SnapshotPolicy, SnapshotRestore, TieringPolicy, Time, VolumeCreate, VolumeRename, VolumeSet,
};
use std::collections::{BTreeMap, BTreeSet};

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ExpectedVolume {
    /// How large it is, or was before it grew by itself.
    pub(super) size_bytes: u64,
    /// How large it may be.
    pub(super) size_max_bytes: u64,
    pub(super) autogrow_max_bytes: Option<u64>,
    pub(super) owner: Owner,
    pub(super) exports: Vec<ExportRule>,
    pub(super) policy: TieringPolicy,
    pub(super) reallocate: Reallocation,
    pub(super) snapshot_policy: SnapshotPolicy,
    pub(super) snapshot_autodelete: SnapshotAutodelete,
    pub(super) guarantee: Guarantee,
    pub(super) is_offline: bool,
    /// Its number in the aggregate.
    pub(super) number: u32,
    /// The days that were chosen.
    chosen_days: Option<u16>,
    /// Oldest first.
    pub(super) snapshots: Vec<String>,
    /// Those of them that are held.
    pub(super) held: BTreeSet<String>,
    /// What it is a clone of.
    pub(super) clone_of: Option<CloneOf>,
    /// It was to be split from that: then it may be a clone no longer.
    pub(super) is_split: bool,
    /// Those who work on a volume may give it away, and so its clones.
    pub(super) is_owner_known: bool,
}

impl ExpectedVolume {
    fn new(wanted: &VolumeCreate, number: u32) -> Self {
        Self {
            number,
            size_bytes: wanted.size_bytes,
            size_max_bytes: wanted.autogrow_max_bytes.unwrap_or(wanted.size_bytes),
            autogrow_max_bytes: wanted.autogrow_max_bytes,
            owner: wanted.owner.unwrap_or(Owner { uid: 0, gid: 0 }),
            exports: wanted.exports.clone(),
            policy: wanted.tiering_policy,
            reallocate: wanted.reallocate,
            snapshot_policy: wanted.snapshot_policy,
            snapshot_autodelete: wanted.snapshot_autodelete,
            guarantee: wanted.guarantee,
            is_offline: false,
            chosen_days: wanted.tiering_minimum_cooling_days,
            snapshots: Vec::new(),
            held: BTreeSet::new(),
            clone_of: None,
            is_split: false,
            is_owner_known: true,
        }
    }

    /// The days after which blocks are cold.
    pub(super) fn days(&self) -> Option<u16> {
        self.chosen_days.or_else(|| self.policy.default_cooling_days())
    }

    fn set(&mut self, wanted: &VolumeSet) -> Result<(), Code> {
        let policy = wanted.tiering_policy.unwrap_or(self.policy);
        let kept = self.chosen_days.filter(|_| policy == self.policy);
        let days = wanted.tiering_minimum_cooling_days.or(kept);
        check_days(policy, days)?;
        (self.policy, self.chosen_days) = (policy, days);
        self.reallocate = wanted.reallocate.unwrap_or(self.reallocate);
        self.snapshot_policy = wanted.snapshot_policy.unwrap_or(self.snapshot_policy);
        self.snapshot_autodelete = wanted.snapshot_autodelete.unwrap_or(self.snapshot_autodelete);
        self.guarantee = wanted.guarantee.unwrap_or(self.guarantee);
        if let Some(maximum_bytes) = wanted.autogrow_max_bytes {
            self.autogrow_max_bytes = Some(maximum_bytes).filter(|bytes| *bytes > 0);
            // A volume that has grown stays as large.
            self.size_max_bytes = self.size_max_bytes.max(maximum_bytes);
        }
        Ok(())
    }

    fn resize(&mut self, size_bytes: u64) {
        self.autogrow_max_bytes = self.autogrow_max_bytes.map(|bytes| bytes.max(size_bytes));
        self.size_bytes = size_bytes;
        self.size_max_bytes = self.autogrow_max_bytes.unwrap_or(size_bytes);
    }

    fn restore(&mut self, wanted: &SnapshotRestore) -> Result<(), Code> {
        let at = self.place(&wanted.name)?;
        if at + 1 < self.snapshots.len() && !wanted.discard_newer {
            return Err(Code::Conflict);
        }
        self.check_not_held(&self.snapshots[at + 1..])?;
        self.snapshots.truncate(at + 1);
        Ok(())
    }

    fn check_not_held(&self, going: &[String]) -> Result<(), Code> {
        if going.iter().any(|one| self.held.contains(one)) { Err(Code::Conflict) } else { Ok(()) }
    }

    fn place(&self, snapshot: &str) -> Result<usize, Code> {
        self.snapshots.iter().position(|name| name == snapshot).ok_or(Code::NotFound)
    }
}

fn check_days(policy: TieringPolicy, days: Option<u16>) -> Result<(), Code> {
    let cools = policy.default_cooling_days().is_some();
    if cools || days.is_none() { Ok(()) } else { Err(Code::Usage) }
}

fn add_rule(rules: &mut Vec<ExportRule>, rule: ExportRule, at: Option<usize>) -> Result<(), Code> {
    if rules.iter().any(|other| other.client == rule.client) {
        return Err(Code::Conflict);
    }
    let end = rules.len();
    rules.insert(at.map_or(end, |at| at.min(end)), rule);
    Ok(())
}

/// A deleted volume that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ExpectedDeleted {
    pub(super) former_name: String,
    pub(super) volume: ExpectedVolume,
    pub(super) kept_seconds: u64,
    /// Unknown while nobody has said it.
    pub(super) purge_after: Option<Time>,
    /// When it may be purged, by the clock that is never set.
    pub(super) end_nanoseconds: u64,
    /// It may have been purged.
    pub(super) is_due: bool,
}

/// A mount on the node's own machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ExpectedMount {
    pub(super) volume: String,
    pub(super) write_back: bool,
}

/// The rules that clients are let in by, by volume.
pub(super) type Rules = BTreeMap<String, Vec<ExportRule>>;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Expected {
    /// How the aggregate is protected, or will be.
    pub(super) raid: RaidKind,
    /// The aggregate has been made.
    pub(super) is_made: bool,
    /// Whose the disks are.
    pub(super) disks: DiskBook,
    /// What was set; none if nobody said.
    pub(super) area_cleaning: Option<bool>,
    pub(super) volumes: BTreeMap<String, ExpectedVolume>,
    /// Deleted volumes that are kept, by what they are called then.
    pub(super) deleted: BTreeMap<String, ExpectedDeleted>,
    /// The number of the next volume.
    next_number: u32,
    /// By mountpoint; they end with the process.
    pub(super) mounts: BTreeMap<String, ExpectedMount>,
}

impl Expected {
    /// A node without an aggregate.
    pub(super) fn new(raid: RaidKind, disks: DiskBook) -> Self {
        Self {
            raid,
            is_made: false,
            disks,
            area_cleaning: None,
            volumes: BTreeMap::new(),
            deleted: BTreeMap::new(),
            next_number: 1,
            mounts: BTreeMap::new(),
        }
    }

    /// What there is after a call, or the code with which it is refused.
    pub(super) fn after(&self, request: &Request) -> Result<Self, Code> {
        let mut after = self.clone();
        after.change(request)?;
        Ok(if is_dry(request) { self.clone() } else { after })
    }

    fn change(&mut self, request: &Request) -> Result<(), Code> {
        match request {
            Request::AggregateCreate(_) if self.is_made => return Err(Code::Conflict),
            Request::AggregateCreate(wanted) => {
                self.disks.take(&wanted.disks)?;
                self.disks.take(&wanted.spares)?;
                self.is_made = true;
            }
            Request::AggregateAdd(wanted) => self.add_disks(wanted)?,
            Request::SpareAdd(wanted) => {
                self.check_aggregate(&wanted.aggregate)?;
                self.disks.take(&wanted.disks)?;
            }
            Request::SpareRemove(wanted) => {
                self.disks.check_known(&wanted.disk)?;
                self.disks.release(&wanted.disk);
            }
            Request::DiskFail(wanted) => {
                self.disks.check_known(&wanted.disk)?;
                if self.raid == RaidKind::None {
                    return Err(Code::Conflict);
                }
                self.disks.doubt(&wanted.disk);
            }
            Request::DiskReplace(wanted) => self.replace(wanted)?,
            Request::DiskClear(wanted) => self.disks.check_known(&wanted.disk)?,
            Request::GroupRemove(wanted) => {
                self.check_aggregate(&wanted.name)?;
                // Its disks leave at some time, and nobody has said which they are.
                self.disks.doubt_all();
            }
            Request::DiskZero(wanted) => {
                self.disks.check_free(&wanted.disk)?;
                self.disks.doubt(&wanted.disk);
            }
            Request::AggregateSet(wanted) => {
                self.check_aggregate(&wanted.name)?;
                self.area_cleaning = wanted.area_cleaning.or(self.area_cleaning);
            }
            Request::AggregateDelete(wanted) => {
                self.check_aggregate(&wanted.name)?;
                if !self.volumes.is_empty() || !self.deleted.is_empty() {
                    return Err(Code::Conflict);
                }
                self.is_made = false;
                self.next_number = 1;
                self.area_cleaning = None;
                self.disks.release_all();
            }
            Request::AggregateShow(named)
            | Request::AggregateSpaceShow(named)
            | Request::ScrubShow(named) => {
                self.check_aggregate(&named.name)?;
            }
            Request::ScrubChange(wanted) => self.check_aggregate(&wanted.aggregate)?,
            Request::VolumeCreate(wanted) => self.create(wanted)?,
            Request::VolumeShow(named) | Request::VolumeSpaceShow(named) => {
                self.volume(&named.name)?;
            }
            Request::VolumeSet(wanted) => self.volume(&wanted.name)?.set(wanted)?,
            Request::VolumeResize(wanted) => {
                self.volume(&wanted.name)?.resize(wanted.size_bytes);
            }
            Request::VolumeOffline(wanted) => self.set_offline(&wanted.name, true)?,
            Request::VolumeOnline(wanted) => self.set_offline(&wanted.name, false)?,
            Request::VolumeRename(wanted) => self.rename(wanted)?,
            Request::VolumeDelete(wanted) => self.delete(wanted)?,
            Request::VolumeUndelete(wanted) => self.undelete(wanted)?,
            Request::VolumePurge(wanted) => self.purge(&wanted.name)?,
            Request::SnapshotCreate(wanted) => {
                let volume = self.volume(&wanted.volume)?;
                if volume.snapshots.contains(&wanted.name) {
                    return Err(Code::Conflict);
                }
                volume.snapshots.push(wanted.name.clone());
            }
            Request::SnapshotHold(wanted) => {
                let volume = self.volume(&wanted.volume)?;
                volume.place(&wanted.name)?;
                match wanted.held {
                    true => volume.held.insert(wanted.name.clone()),
                    false => volume.held.remove(&wanted.name),
                };
            }
            Request::SnapshotDiff(wanted) => {
                let volume = self.volume(&wanted.volume)?;
                volume.place(&wanted.from)?;
                volume.place(&wanted.to)?;
            }
            Request::SnapshotDelete(wanted) => {
                let volume = self.volume(&wanted.volume)?;
                let oldest = volume.place(&wanted.name)?;
                let newest = volume.place(wanted.through.as_ref().unwrap_or(&wanted.name))?;
                let going = volume.snapshots.get(oldest..=newest).filter(|going| !going.is_empty());
                let going = going.ok_or(Code::Usage)?.to_vec();
                volume.check_not_held(&going)?;
                self.check_no_clones(&wanted.volume, |base| going.iter().any(|one| one == base))?;
                self.volume(&wanted.volume)?.snapshots.drain(oldest..=newest);
            }
            Request::CloneCreate(wanted) => self.clone_volume(wanted)?,
            Request::CloneSplit(wanted) => self.split(wanted)?,
            Request::SnapshotRestore(wanted) => {
                self.volume(&wanted.volume)?.restore(wanted)?;
                let kept = self.volume(&wanted.volume)?.snapshots.clone();
                self.check_no_clones(&wanted.volume, |base| kept.iter().all(|one| one != base))?;
                let mut mounts = self.mounts.values();
                if mounts.any(|mount| mount.write_back && mount.volume == wanted.volume) {
                    return Err(Code::Conflict);
                }
            }
            Request::ExportAdd(wanted) => {
                let volume = self.volume(&wanted.volume)?;
                add_rule(&mut volume.exports, wanted.rule, wanted.index)?;
            }
            Request::ExportRemove(wanted) => {
                let rules = &mut self.volume(&wanted.volume)?.exports;
                let at = rules.iter().position(|rule| rule.client == wanted.client);
                rules.remove(at.ok_or(Code::NotFound)?);
            }
            Request::QuotaSet(QuotaSet { volume, path, .. })
            | Request::QuotaDelete(QuotaDelete { volume, path, .. })
            | Request::QuotaList(QuotaList { volume, only_tree: path, .. }) => {
                self.volume(volume)?;
                if path.is_some() {
                    return Err(Code::NotFound);
                }
            }
            Request::SnapshotList(filter) | Request::ExportList(filter) => {
                if let Some(name) = &filter.volume {
                    self.volume(name)?;
                }
            }
            Request::FuseMount(wanted) => {
                let is_offline = self.volume(&wanted.volume)?.is_offline;
                if is_offline || self.mounts.contains_key(&wanted.mountpoint) {
                    return Err(Code::Conflict);
                }
                let (volume, write_back) = (wanted.volume.clone(), wanted.write_back);
                let mount = ExpectedMount { volume, write_back };
                self.mounts.insert(wanted.mountpoint.clone(), mount);
            }
            Request::FuseUnmount(wanted) => {
                self.mounts.remove(&wanted.mountpoint).ok_or(Code::NotFound)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn create(&mut self, wanted: &VolumeCreate) -> Result<(), Code> {
        if wanted.names.iter().any(|name| self.volumes.contains_key(name)) {
            return Err(Code::Conflict);
        }
        self.check_aggregate(&wanted.aggregate)?;
        let mut rules = Vec::new();
        wanted.exports.iter().try_for_each(|rule| add_rule(&mut rules, *rule, None))?;
        check_days(wanted.tiering_policy, wanted.tiering_minimum_cooling_days)?;
        for name in &wanted.names {
            let number = self.take_number();
            self.volumes.insert(name.clone(), ExpectedVolume::new(wanted, number));
        }
        Ok(())
    }

    fn clone_volume(&mut self, wanted: &CloneCreate) -> Result<(), Code> {
        if wanted.names.iter().any(|name| self.volumes.contains_key(name)) {
            return Err(Code::Conflict);
        }
        let parent = self.volume(&wanted.volume)?.clone();
        parent.place(&wanted.snapshot)?;
        let mut exports = Vec::new();
        wanted.exports.iter().try_for_each(|rule| add_rule(&mut exports, *rule, None))?;
        let (volume, snapshot) = (wanted.volume.clone(), wanted.snapshot.clone());
        let clone = ExpectedVolume {
            exports,
            is_offline: false,
            snapshots: Vec::new(),
            held: BTreeSet::new(),
            clone_of: Some(CloneOf { volume, snapshot }),
            is_split: false,
            is_owner_known: parent.is_owner_known && !is_worked_on(&wanted.volume),
            ..parent
        };
        for name in &wanted.names {
            let number = self.take_number();
            self.volumes.insert(name.clone(), ExpectedVolume { number, ..clone.clone() });
        }
        Ok(())
    }

    /// A volume without clones, if there is any volume.
    pub(super) fn volume_to_delete(&self) -> Option<String> {
        let may_go = |name: &&String| self.check_no_clones(name, |_| true).is_ok();
        self.volumes.keys().find(may_go).cloned()
    }

    /// A conflict if the volume has clones that began with such a snapshot.
    pub(super) fn check_no_clones(
        &self,
        name: &str,
        is_base: impl Fn(&str) -> bool,
    ) -> Result<(), Code> {
        let is_its = |of: &CloneOf| of.volume == name && is_base(&of.snapshot);
        let has_clone = self.origins().any(|(_, of)| is_its(of));
        if has_clone { Err(Code::Conflict) } else { Ok(()) }
    }

    const fn take_number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn set_offline(&mut self, name: &str, is_offline: bool) -> Result<(), Code> {
        let is_mounted = self.mounts.values().any(|mount| mount.volume == name);
        let volume = self.volume(name)?;
        if volume.is_offline == is_offline || is_mounted && is_offline {
            return Err(Code::Conflict);
        }
        volume.is_offline = is_offline;
        Ok(())
    }

    fn rename(&mut self, wanted: &VolumeRename) -> Result<(), Code> {
        if wanted.name == wanted.new_name {
            return Err(Code::Usage);
        }
        self.volume(&wanted.name)?;
        if self.volumes.contains_key(&wanted.new_name) {
            return Err(Code::Conflict);
        }
        let Some(volume) = self.volumes.remove(&wanted.name) else { return Err(Code::NotFound) };
        self.volumes.insert(wanted.new_name.clone(), volume);
        let kept = self.deleted.values_mut().map(|kept| &mut kept.volume);
        let all = self.volumes.values_mut().chain(kept);
        for of in all.filter_map(|volume| volume.clone_of.as_mut()) {
            if of.volume == wanted.name {
                of.volume.clone_from(&wanted.new_name);
            }
        }
        let mounted = self.mounts.values_mut().filter(|mount| mount.volume == wanted.name);
        mounted.for_each(|mount| mount.volume.clone_from(&wanted.new_name));
        Ok(())
    }

    fn add_disks(&mut self, wanted: &AggregateAdd) -> Result<(), Code> {
        self.check_aggregate(&wanted.name)?;
        self.disks.take(&wanted.disks)?;
        match wanted.group {
            Some(_) if self.raid == RaidKind::None => Err(Code::Conflict),
            None if wanted.disks.len() < self.raid.disks_min() => Err(Code::Usage),
            _ => Ok(()),
        }
    }

    fn replace(&mut self, wanted: &DiskReplace) -> Result<(), Code> {
        self.disks.check_known(&wanted.disk)?;
        if wanted.replacement.as_ref() == Some(&wanted.disk) {
            self.disks.doubt(&wanted.disk);
            return Ok(());
        }
        if let Some(replacement) = &wanted.replacement {
            self.disks.take(std::slice::from_ref(replacement))?;
        }
        self.disks.doubt(&wanted.disk);
        Ok(())
    }

    fn check_aggregate(&self, name: &str) -> Result<(), Code> {
        if self.is_made && name == AGGREGATE { Ok(()) } else { Err(Code::NotFound) }
    }

    pub(super) fn volume(&mut self, name: &str) -> Result<&mut ExpectedVolume, Code> {
        self.volumes.get_mut(name).ok_or(Code::NotFound)
    }

    /// The rules that clients should be let in by; a deleted volume that is kept has its own.
    pub(super) fn exports(&self) -> Rules {
        let kept = self.deleted.iter().map(|(title, kept)| (title, &kept.volume));
        let volumes = self.volumes.iter().chain(kept);
        volumes.map(|(name, volume)| (name.clone(), volume.exports.clone())).collect()
    }
}

/// Volumes that clients work on.
pub(super) const WORKED_ON: [&str; 3] = ["v0", "v1", "v2"];

/// Whether clients work on a volume of this name.
pub(super) fn is_worked_on(volume: &str) -> bool {
    WORKED_ON.contains(&volume)
}

/// Whether a call only says what it would do.
pub(super) const fn is_dry(request: &Request) -> bool {
    match request {
        Request::AggregateCreate(wanted) => wanted.dry_run,
        Request::AggregateAdd(wanted) => wanted.dry_run,
        Request::AggregateDelete(wanted) => wanted.dry_run,
        Request::SpareAdd(wanted) => wanted.dry_run,
        Request::SpareRemove(wanted) => wanted.dry_run,
        Request::DiskFail(wanted) => wanted.dry_run,
        Request::DiskReplace(wanted) => wanted.dry_run,
        Request::DiskZero(wanted) => wanted.dry_run,
        Request::GroupRemove(wanted) => wanted.dry_run,
        Request::VolumeCreate(wanted) => wanted.dry_run,
        Request::CloneCreate(wanted) => wanted.dry_run,
        Request::CloneSplit(wanted) => wanted.dry_run,
        Request::VolumeDelete(wanted) => wanted.dry_run,
        Request::VolumeUndelete(wanted) => wanted.dry_run,
        Request::VolumePurge(wanted) => wanted.dry_run,
        Request::VolumeResize(wanted) => wanted.dry_run,
        Request::VolumeRename(wanted) => wanted.dry_run,
        Request::VolumeOffline(wanted) => wanted.dry_run,
        Request::SnapshotDelete(wanted) => wanted.dry_run,
        Request::SnapshotRestore(wanted) => wanted.dry_run,
        _ => false,
    }
}

/// Whether jobs in the background, or work with disks, may have a call refused.
pub(super) const fn depends_on_background(request: &Request) -> bool {
    matches!(request, Request::ScrubChange(_) | Request::JobChange(_)) || is_of_disks(request)
}

/// Whether a call changes whose the disks are.
pub(super) const fn is_of_disks(request: &Request) -> bool {
    matches!(
        request,
        Request::AggregateAdd(_)
            | Request::SpareAdd(_)
            | Request::SpareRemove(_)
            | Request::DiskFail(_)
            | Request::DiskReplace(_)
            | Request::DiskClear(_)
            | Request::DiskZero(_)
            | Request::GroupRemove(_)
    )
}

/// Whether a call may find no room.
pub(super) const fn takes_room(request: &Request) -> bool {
    matches!(
        request,
        Request::VolumeCreate(_)
            | Request::CloneCreate(_)
            | Request::VolumeResize(_)
            | Request::SnapshotCreate(_)
            | Request::SnapshotHold(_)
            | Request::SnapshotRestore(_)
            | Request::SnapshotDelete(_)
            | Request::QuotaSet(_)
            | Request::QuotaDelete(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin_api::{MountCreate, SnapshotName, VolumeDelete, VolumeUndelete};

    fn create(name: &str) -> Request {
        Request::VolumeCreate(VolumeCreate {
            tiering_policy: TieringPolicy::Auto,
            ..VolumeCreate::new(name, AGGREGATE, 1 << 24)
        })
    }

    #[test]
    fn calls_do_what_they_say_or_are_refused() {
        let none = Expected::new(RaidKind::Raid4, DiskBook::default());
        assert_eq!(none.after(&create("v")), Err(Code::NotFound));
        let made = Expected { is_made: true, ..none };
        let one = made.after(&create("v")).unwrap();
        assert_eq!(one.after(&create("v")), Err(Code::Conflict));
        assert_eq!(one.volumes["v"].days(), Some(31));
        let snapshot = |name: &str| SnapshotName { volume: "v".to_owned(), name: name.to_owned() };
        let mut held = one.clone();
        for name in ["s1", "s2", "s3"] {
            held = held.after(&Request::SnapshotCreate(snapshot(name))).unwrap();
        }
        let restore = |discard_newer, dry_run| {
            let SnapshotName { volume, name } = snapshot("s2");
            Request::SnapshotRestore(SnapshotRestore {
                volume,
                name,
                discard_newer,
                dry_run,
                plan: None,
            })
        };
        assert_eq!(held.after(&restore(false, false)), Err(Code::Conflict));
        assert_eq!(held.after(&restore(true, true)), Ok(held.clone()));
        let restored = held.after(&restore(true, false)).unwrap();
        assert_eq!(restored.volumes["v"].snapshots, ["s1", "s2"]);
        let mount = |write_back| {
            let (volume, mountpoint) = ("v".to_owned(), "/mnt".to_owned());
            held.after(&Request::FuseMount(MountCreate { volume, mountpoint, write_back })).unwrap()
        };
        assert_eq!(mount(true).after(&restore(true, true)), Err(Code::Conflict));
        assert!(mount(false).after(&restore(true, false)).is_ok());
        let delete = |queue_for_seconds| {
            let name = "v".to_owned();
            Request::VolumeDelete(VolumeDelete {
                name,
                queue_for_seconds,
                dry_run: false,
                plan: None,
            })
        };
        let gone = restored.after(&delete(Some(0))).unwrap();
        assert!(gone.volumes.is_empty() && gone.deleted.is_empty());
        let kept = restored.after(&delete(None)).unwrap();
        assert_eq!(kept.deleted.keys().collect::<Vec<_>>(), ["v~1"]);
        let name = "v".to_owned();
        let undelete = VolumeUndelete { name, new_name: None, dry_run: false };
        assert_eq!(kept.after(&Request::VolumeUndelete(undelete)), Ok(restored));
    }
}
