//! What the operator types next: mostly what may be granted, now and then what must be refused.
//!
//! Invariants: a choice depends on the seed's numbers and on what is expected. Names are few, so
//! that they come again.

use super::expected::{Expected, WORKED_ON, is_worked_on};
use super::jobs::JobBook;
use crate::machine::AGGREGATE;
use crate::seed::choices::Choices;
use admin_api::creation::VOLUME_BYTES_MIN;
use admin_api::recovery_queue::QUEUE_SECONDS_MIN;
use admin_api::{
    Access, AggregateAdd, AggregateSet, CloneCreate, CloneSplit, DiskClear, DiskFail, DiskReplace,
    DiskZero, ExportAdd, ExportRemove, ExportRule, GroupRemove, Guarantee, JobAction, JobChange,
    MapShow, MountCreate, MountRemove, Named, Network, Owner, QuotaDelete, QuotaKind, QuotaList,
    QuotaSet, RateLimit, Reallocation, Request, ScrubAction, ScrubChange, SnapshotAutodelete,
    SnapshotDelete, SnapshotDiff, SnapshotHold, SnapshotName, SnapshotPolicy, SnapshotRestore,
    SpareAdd, SpareRemove, Squash, TieringPolicy, VolumeCreate, VolumeDelete, VolumeFilter,
    VolumeOffline, VolumePurge, VolumeRename, VolumeResize, VolumeSet, VolumeUndelete,
};
use std::net::Ipv4Addr;

/// Volumes that only the operator knows: these are restored.
const QUIET: [&str; 3] = ["q0", "q1", "q2"];
const SNAPSHOTS: [&str; 4] = ["s0", "s1", "s2", "s3"];
/// Deletions of several snapshots, of those that could be.
const THROUGH_PERCENT: u64 = 30;
/// Looks at where a volume's blocks are, of those at a volume.
const SPACE_PERCENT: u64 = 40;
const MOUNTPOINTS: [&str; 2] = ["/m0", "/m1"];
const POLICIES: [TieringPolicy; 4] =
    [TieringPolicy::None, TieringPolicy::SnapshotOnly, TieringPolicy::Auto, TieringPolicy::All];
const REALLOCATIONS: [Reallocation; 2] = [Reallocation::Auto, Reallocation::Off];
/// Volumes have this many times the least size at most.
const SIZES: u64 = 6;
/// Of 100 names, those that are of nothing.
const WRONG_PERCENT: u64 = 8;
/// Of 100 calls that can be asked what they would do, those that are.
const DRY_PERCENT: u64 = 12;

/// Of 100 calls, those about disks.
const DISKS_PERCENT: u64 = 20;
/// Of 100 other calls, those about jobs.
const JOBS_PERCENT: u64 = 8;
/// How fast work may go.
const RATES: [Option<u64>; 3] = [None, Some(1 << 20), Some(1 << 30)];

/// Whoever types.
pub(super) struct Typist<'a> {
    pub(super) choices: &'a mut Choices,
    pub(super) expected: &'a Expected,
    pub(super) jobs: &'a JobBook,
}

impl Typist<'_> {
    /// The next call.
    pub(super) fn next(&mut self) -> Request {
        if self.choices.chance(DISKS_PERCENT) {
            return self.of_disks();
        }
        if self.choices.chance(JOBS_PERCENT) {
            return self.of_jobs();
        }
        match self.choices.below(100) {
            0..12 => Request::VolumeCreate(self.volume_create()),
            12..16 => Request::CloneCreate(self.clone_create()),
            16..18 => Request::CloneSplit(self.clone_split()),
            18..22 => Request::VolumeDelete(self.volume_delete()),
            22..25 => self.of_deleted(),
            25..28 => Request::VolumeSet(self.volume_set()),
            28..32 => Request::VolumeResize(self.volume_resize()),
            32..36 => Request::VolumeRename(self.volume_rename()),
            36..40 => self.offline_or_online(),
            40..46 => {
                let volume = self.volume();
                Request::SnapshotCreate(SnapshotName { volume, name: self.any(&SNAPSHOTS) })
            }
            46..49 => {
                let (volume, name) = self.snapshot();
                Request::SnapshotHold(SnapshotHold { volume, name, held: self.choices.chance(50) })
            }
            49..56 => {
                let (volume, name) = self.snapshot();
                let through = self.through(&volume, &name);
                Request::SnapshotDelete(SnapshotDelete {
                    volume,
                    name,
                    through,
                    dry_run: self.is_dry(),
                    plan: None,
                })
            }
            56..62 => self.restore(),
            62..72 => self.export_add(),
            72..75 => self.export_remove(),
            75..78 => self.of_quotas(),
            78..82 => {
                let (volume, mountpoint) = (self.volume(), self.any(&MOUNTPOINTS));
                let write_back = self.choices.chance(25);
                Request::FuseMount(MountCreate { volume, mountpoint, write_back })
            }
            82..86 => Request::FuseUnmount(MountRemove { mountpoint: self.any(&MOUNTPOINTS) }),
            86..89 => {
                let name = self.aggregate();
                let area_cleaning = Some(self.choices.chance(50));
                Request::AggregateSet(AggregateSet { name, area_cleaning })
            }
            89..92 => self.scrub(),
            _ => self.look(),
        }
    }

    /// A volume that is there from the start, mostly.
    pub(super) fn volume_to_begin_with(&mut self) -> Request {
        Request::VolumeCreate(self.volume_create())
    }

    /// A look at something.
    pub(super) fn look(&mut self) -> Request {
        match self.choices.below(13) {
            0..2 => Request::VolumeList,
            2 => Request::VolumeListDeleted,
            3 => {
                let name = self.volume();
                let is_space = self.choices.chance(SPACE_PERCENT);
                let of = if is_space { Request::VolumeSpaceShow } else { Request::VolumeShow };
                of(Named { name })
            }
            4 => Request::SnapshotList(VolumeFilter { volume: Some(self.volume()) }),
            5 => Request::SnapshotList(VolumeFilter::default()),
            6 => Request::ExportList(VolumeFilter::default()),
            7 => Request::MountList,
            8 => Request::Status,
            9 => {
                let name = self.aggregate();
                let is_space = self.choices.chance(SPACE_PERCENT);
                let of =
                    if is_space { Request::AggregateSpaceShow } else { Request::AggregateShow };
                of(Named { name })
            }
            10 => Request::DiskList,
            11 => {
                let (volume, from) = self.snapshot();
                let to = self.snapshot_of(&volume);
                Request::SnapshotDiff(SnapshotDiff { volume, from, to })
            }
            _ => Request::AggregateMap(MapShow { name: AGGREGATE.to_owned(), cells: 4 }),
        }
    }

    fn is_dry(&mut self) -> bool {
        self.choices.chance(DRY_PERCENT)
    }

    fn any(&mut self, names: &[&str]) -> String {
        self.choices.pick(names).to_owned()
    }

    fn aggregate(&mut self) -> String {
        let is_wrong = self.choices.chance(WRONG_PERCENT);
        if is_wrong { "a2".to_owned() } else { AGGREGATE.to_owned() }
    }

    /// One of the volumes that there are, or another.
    fn volume(&mut self) -> String {
        let names: Vec<&str> = self.expected.volumes.keys().map(String::as_str).collect();
        if names.is_empty() || self.choices.chance(WRONG_PERCENT) {
            return self.any(&QUIET);
        }
        self.any(&names)
    }

    /// One of the snapshots that there are, or another, of a volume.
    fn snapshot(&mut self) -> (String, String) {
        let volume = self.volume();
        let name = self.snapshot_of(&volume);
        (volume, name)
    }

    fn snapshot_of(&mut self, volume: &str) -> String {
        let held = self.expected.volumes.get(volume).map(|volume| &volume.snapshots);
        let held: Vec<&str> = held.into_iter().flatten().map(String::as_str).collect();
        if held.is_empty() || self.choices.chance(WRONG_PERCENT) {
            return self.any(&SNAPSHOTS);
        }
        self.any(&held)
    }

    /// Another snapshot through which to delete, where the volume has several.
    fn through(&mut self, volume: &str, name: &str) -> Option<String> {
        let held = &self.expected.volumes.get(volume)?.snapshots;
        let (first, last) = (held.first()?, held.last()?);
        let other = if name == last { first } else { last };
        (held.len() > 1 && self.choices.chance(THROUGH_PERCENT)).then(|| other.clone())
    }

    /// Those who work on a volume want it online.
    fn offline_or_online(&mut self) -> Request {
        let name = self.quiet_volume();
        let is_offline = self.expected.volumes.get(&name).is_some_and(|volume| volume.is_offline);
        if is_offline == self.choices.chance(WRONG_PERCENT) {
            return Request::VolumeOffline(VolumeOffline { name, dry_run: self.is_dry() });
        }
        Request::VolumeOnline(Named { name })
    }

    /// Those who work on a volume know it by its name.
    fn volume_rename(&mut self) -> VolumeRename {
        let (name, new_name) = (self.quiet_volume(), self.any(&QUIET));
        VolumeRename { name, new_name, dry_run: self.is_dry() }
    }

    fn volume_resize(&mut self) -> VolumeResize {
        let size_bytes = VOLUME_BYTES_MIN * (1 + self.choices.below(SIZES));
        VolumeResize { name: self.volume(), size_bytes, dry_run: self.is_dry() }
    }

    fn volume_create(&mut self) -> VolumeCreate {
        let mut names = vec![match self.choices.chance(50) {
            true => self.any(&WORKED_ON),
            false => self.any(&QUIET),
        }];
        let has_owner = !is_worked_on(&names[0]) && self.choices.chance(40);
        // Some of those may be there: then none is made.
        while !is_worked_on(&names[0]) && self.choices.chance(30) {
            let name = self.any(&QUIET);
            if names.contains(&name) {
                break;
            }
            names.push(name);
        }
        let policy = self.choices.pick(&POLICIES);
        let exports = (0..self.choices.below(3)).map(|_| self.rule()).collect();
        let aggregate = self.aggregate();
        let size_bytes = VOLUME_BYTES_MIN * (1 + self.choices.below(4));
        let grows = size_bytes < 3 * VOLUME_BYTES_MIN;
        let guarantee = match grows || is_worked_on(&names[0]) {
            true => Guarantee::None,
            false => Guarantee::Volume,
        };
        VolumeCreate {
            names,
            aggregate,
            size_bytes,
            autogrow_max_bytes: grows.then_some(2 * size_bytes),
            owner: has_owner.then_some(Owner { uid: 7, gid: 8 }),
            exports,
            tiering_policy: policy,
            tiering_minimum_cooling_days: self.days(policy),
            reallocate: self.choices.pick(&REALLOCATIONS),
            snapshot_policy: SnapshotPolicy::NONE,
            snapshot_autodelete: match grows {
                true => SnapshotAutodelete::Scheduled,
                false => SnapshotAutodelete::Off,
            },
            // It may be refused for want of room, and those who work on volumes want theirs.
            guarantee,
            dry_run: self.is_dry(),
        }
    }

    fn volume_delete(&mut self) -> VolumeDelete {
        let queue_for_seconds = match self.choices.below(10) {
            0..2 => None,
            2..5 => Some(QUEUE_SECONDS_MIN + self.choices.below(200)),
            _ => Some(0),
        };
        let name = self.volume();
        VolumeDelete { name, queue_for_seconds, dry_run: self.is_dry(), plan: None }
    }

    /// A deleted volume comes back, mostly, or goes for good.
    fn of_deleted(&mut self) -> Request {
        let deleted = &self.expected.deleted;
        let names = deleted.iter().flat_map(|(title, kept)| [title, &kept.former_name]);
        let names: Vec<&str> = names.map(String::as_str).collect();
        let is_wrong = names.is_empty() || self.choices.chance(WRONG_PERCENT);
        let name = if is_wrong { self.volume() } else { self.any(&names) };
        let dry_run = self.is_dry();
        if self.choices.chance(30) {
            return Request::VolumePurge(VolumePurge { name, dry_run, plan: None });
        }
        let new_name = self.choices.chance(30).then(|| self.any(&QUIET));
        Request::VolumeUndelete(VolumeUndelete { name, new_name, dry_run })
    }

    /// Of any volume. Those who work on volumes begin with an empty one, so the clone is the
    /// operator's.
    fn clone_create(&mut self) -> CloneCreate {
        let (volume, snapshot) = self.snapshot();
        let mut names = vec![self.any(&QUIET)];
        let name = self.any(&QUIET);
        if self.choices.chance(20) && !names.contains(&name) {
            names.push(name);
        }
        let exports = (0..self.choices.below(2)).map(|_| self.rule()).collect();
        CloneCreate { names, volume, snapshot, exports, guarantee: None, dry_run: self.is_dry() }
    }

    /// Mostly of a clone.
    fn clone_split(&mut self) -> CloneSplit {
        let clones = self.expected.volumes.iter().filter(|(_, one)| one.clone_of.is_some());
        let clones: Vec<String> = clones.map(|(name, _)| name.clone()).collect();
        let is_any = clones.is_empty() || self.choices.chance(20);
        let name = match is_any {
            true => self.volume(),
            false => clones[self.choices.index(clones.len())].clone(),
        };
        let stop = self.choices.chance(10);
        let dry_run = !stop && self.is_dry();
        CloneSplit { name, stop, rate_bytes_per_second: None, dry_run }
    }

    /// Days that fit a policy, now and then such that do not.
    fn days(&mut self, policy: TieringPolicy) -> Option<u16> {
        let fits = policy.default_cooling_days().is_some();
        let are_said = self.choices.chance(if fits { 50 } else { 10 });
        let days = 3 + self.choices.below(20) as u16;
        are_said.then_some(days)
    }

    fn volume_set(&mut self) -> VolumeSet {
        let name = self.volume();
        let policy = self.choices.pick(&POLICIES);
        let reallocate = self.choices.chance(40).then(|| self.choices.pick(&REALLOCATIONS));
        let is_said = self.choices.chance(70);
        let held = self.expected.volumes.get(&name).map_or(policy, |volume| volume.policy);
        let days = self.days(if is_said { policy } else { held });
        // Something must be changed.
        let is_alone = days.is_none() && reallocate.is_none();
        let tiering_policy = (is_said || is_alone).then_some(policy);
        // As large as any volume is made.
        let autogrow_max_bytes = reallocate.map(|policy| match policy {
            Reallocation::Auto => SIZES * VOLUME_BYTES_MIN,
            Reallocation::Off => 0,
        });
        VolumeSet {
            name,
            tiering_policy,
            tiering_minimum_cooling_days: days,
            reallocate,
            autogrow_max_bytes,
            snapshot_policy: is_said.then_some(SnapshotPolicy::NONE),
            snapshot_autodelete: reallocate.map(|policy| match policy {
                Reallocation::Auto => SnapshotAutodelete::Off,
                Reallocation::Off => SnapshotAutodelete::Scheduled,
            }),
            guarantee: is_said.then_some(match policy {
                TieringPolicy::None | TieringPolicy::Auto => Guarantee::Volume,
                TieringPolicy::SnapshotOnly | TieringPolicy::All => Guarantee::None,
            }),
        }
    }

    /// A volume that only the operator knows, mostly one that is there.
    fn quiet_volume(&mut self) -> String {
        let names = self.expected.volumes.keys().map(String::as_str);
        let quiet: Vec<&str> = names.filter(|name| !is_worked_on(name)).collect();
        if quiet.is_empty() { self.any(&QUIET) } else { self.any(&quiet) }
    }

    fn restore(&mut self) -> Request {
        let volume = self.quiet_volume();
        let name = self.snapshot_of(&volume);
        let (discard_newer, dry_run) = (self.choices.chance(60), self.is_dry());
        Request::SnapshotRestore(SnapshotRestore {
            volume,
            name,
            discard_newer,
            dry_run,
            plan: None,
        })
    }

    fn client(&mut self) -> Network {
        let address = Ipv4Addr::new(10, self.choices.below(4) as u8, 0, 0);
        Network::new(address.into(), 16).unwrap_or(Network::EVERY)
    }

    fn rule(&mut self) -> ExportRule {
        let access = self.choices.pick(&[Access::ReadWrite, Access::ReadOnly]);
        let squash = self.choices.pick(&[Squash::None, Squash::Root, Squash::All]);
        ExportRule::new(self.client(), access, squash)
    }

    fn export_add(&mut self) -> Request {
        let (volume, rule) = (self.volume(), self.rule());
        let index = self.choices.chance(30).then(|| self.choices.index(3));
        Request::ExportAdd(ExportAdd { volume, rule, index })
    }

    fn export_remove(&mut self) -> Request {
        let volume = self.volume();
        let held = self.expected.volumes.get(&volume).map(|volume| &volume.exports);
        let held: Vec<Network> = held.into_iter().flatten().map(|rule| rule.client).collect();
        let is_there = !held.is_empty() && !self.choices.chance(WRONG_PERCENT);
        let client = if is_there { self.choices.pick(&held) } else { self.client() };
        Request::ExportRemove(ExportRemove { volume, client })
    }

    fn of_quotas(&mut self) -> Request {
        let (volume, kind) = (self.volume(), self.choices.pick(&QuotaKind::ALL));
        // No such directory is there.
        let path = self.choices.chance(20).then(|| "/projects".to_owned());
        let kind = if path.is_some() { QuotaKind::Tree } else { kind };
        let has_id = kind != QuotaKind::Tree && self.choices.chance(80);
        let id = has_id.then(|| self.choices.pick(&[0, 7, 8, 1000]));
        match self.choices.below(10) {
            0..6 => Request::QuotaSet(QuotaSet {
                volume,
                kind,
                id,
                path,
                soft_bytes: None,
                hard_bytes: Some(self.choices.pick(&[0, 4096, 1 << 20])),
                soft_files: self.choices.chance(30).then_some(3),
                hard_files: self.choices.chance(30).then_some(0),
            }),
            6..8 => Request::QuotaDelete(QuotaDelete { volume, kind, id, path }),
            _ => {
                let only =
                    (kind != QuotaKind::Tree && self.choices.chance(50)).then_some((kind, 7));
                let only_tree = path;
                let own_only = self.choices.chance(30);
                Request::QuotaList(QuotaList { volume, only, only_tree, own_only, from: None })
            }
        }
    }

    /// A call about disks.
    fn of_disks(&mut self) -> Request {
        let dry_run = self.is_dry();
        match self.choices.below(22) {
            0..6 => {
                let count = 1 + self.choices.index(2);
                let (aggregate, disks) = (self.aggregate(), self.free_disks(count));
                Request::SpareAdd(SpareAdd {
                    aggregate,
                    disks,
                    force: true,
                    abandoned: Vec::new(),
                    dry_run,
                })
            }
            6..8 => Request::SpareRemove(SpareRemove { disk: self.known_disk(), dry_run }),
            8..11 => Request::DiskFail(DiskFail { disk: self.known_disk(), dry_run }),
            11..15 => {
                let disk = self.known_disk();
                let replacement = match self.choices.below(10) {
                    0..2 => None,
                    2 => Some(disk.clone()),
                    _ => self.free_disks(1).pop(),
                };
                Request::DiskReplace(DiskReplace {
                    disk,
                    replacement,
                    force: true,
                    abandoned: Vec::new(),
                    rate_bytes_per_second: self.choices.pick(&RATES),
                    dry_run,
                })
            }
            15..18 => self.aggregate_add(dry_run),
            18..20 => Request::GroupRemove(self.group_remove(dry_run)),
            20 => Request::DiskClear(DiskClear { disk: self.known_disk(), dry_run }),
            _ => {
                let disk = self.free_disks(1).pop().unwrap_or_default();
                Request::DiskZero(DiskZero { disk, dry_run })
            }
        }
    }

    /// A group leaves, or stays after all.
    fn group_remove(&mut self, dry_run: bool) -> GroupRemove {
        let (name, group) = (self.aggregate(), self.choices.below(3) as u32);
        let cancel = !dry_run && self.choices.chance(20);
        let rate_bytes_per_second = self.choices.pick(&RATES).filter(|_| !cancel);
        GroupRemove { name, group, cancel, rate_bytes_per_second, dry_run }
    }

    /// A call about a job that was seen, or a look at all of them.
    fn of_jobs(&mut self) -> Request {
        let open = self.jobs.open();
        if open.is_empty() || self.choices.chance(40) {
            return Request::JobList;
        }
        let job = self.choices.pick(&open);
        let rate = self.choices.pick(&RATES).map_or(RateLimit::None, RateLimit::BytesPerSecond);
        let (action, rate) = match self.choices.below(10) {
            0..5 => (JobAction::Set, Some(rate)),
            5..7 => (JobAction::Pause, None),
            7 => (JobAction::Resume, Some(rate)),
            8 => (JobAction::Resume, None),
            _ => (JobAction::Cancel, None),
        };
        Request::JobChange(JobChange { job, action, rate })
    }

    fn aggregate_add(&mut self, dry_run: bool) -> Request {
        let joins = self.choices.chance(60);
        let group = joins.then_some(0);
        let few = 1 + self.choices.index(2);
        let count = if joins { few } else { self.expected.raid.disks_min() };
        let mut disks = self.free_disks(count);
        disks.dedup();
        let (raid, group_size, media) = (None, None, None);
        let name = self.aggregate();
        Request::AggregateAdd(AggregateAdd {
            name,
            disks,
            group,
            raid,
            group_size,
            media,
            force: true,
            abandoned: Vec::new(),
            dry_run,
        })
    }

    /// A disk of the aggregate, mostly.
    fn known_disk(&mut self) -> String {
        let known = self.expected.disks.known();
        if known.is_empty() || self.choices.chance(WRONG_PERCENT) {
            return self.free_disks(1).pop().unwrap_or_default();
        }
        self.any(&known)
    }

    /// Different disks that nobody has, mostly; fewer if there are not so many.
    fn free_disks(&mut self, count: usize) -> Vec<String> {
        let mut free = self.expected.disks.free();
        if free.is_empty() || self.choices.chance(WRONG_PERCENT) {
            let known = self.expected.disks.known();
            let wrong =
                if self.choices.chance(50) { "nowhere".to_owned() } else { self.any(&known) };
            return vec![wrong];
        }
        let count = count.min(free.len());
        (0..count).map(|_| free.swap_remove(self.choices.index(free.len())).to_owned()).collect()
    }

    fn scrub(&mut self) -> Request {
        let aggregate = self.aggregate();
        let actions =
            [ScrubAction::Start, ScrubAction::Pause, ScrubAction::Resume, ScrubAction::Stop];
        let action = self.choices.pick(&actions);
        let starts = matches!(action, ScrubAction::Start | ScrubAction::Resume);
        let rate_bytes_per_second = self.choices.pick(&RATES).filter(|_| starts);
        Request::ScrubChange(ScrubChange { aggregate, action, rate_bytes_per_second })
    }
}
