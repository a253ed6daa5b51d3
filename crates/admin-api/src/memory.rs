//! A node wholly in memory: the rules of [`Administration`] without an engine.
//!
//! It is the back end of the tests of `admin-server` and `cli`, as `file_service::memory` is for
//! protocols: names must be free, objects must be there, what stands in the way is named. Nothing
//! is stored and no file is served; times and sizes are plain and always the same.
//!
//! Invariants: one lock around everything; lists are in order of name.

mod area_map;
mod check;
mod clones;
mod deletion;
mod events;
mod features;
mod jobs;
mod mounts;
mod online;
mod quotas;
mod recovery_queue;
mod snapshots;
mod volumes;

use crate::area_map::{AggregateMap, MapShow};
use crate::changes::{
    AggregateDelete, AggregateOnline, AggregateSet, GroupRemove, LeavingGroup, VolumeOffline,
    VolumeRename, VolumeResize, VolumeSet,
};
use crate::check::{CheckBegun, CheckBlocks, CheckHeld, CheckKeep, CheckRead};
use crate::creation::{CloneCreate, VolumeCreate};
use crate::differences::{SnapshotDiff, SnapshotDifferences};
use crate::error::{AdminError, Code};
use crate::events::{Event, EventList, EventSeverity};
use crate::exports::{add_rule, remove_rule};
use crate::features::{AggregateFeatures, UpgradeReport};
use crate::jobs::{JobChange, JobInfo, JobName};
use crate::protection::Protection;
use crate::quotas::{QuotaDelete, QuotaInfo, QuotaList, QuotaReport, QuotaSet};
use crate::recovery_queue::{DeletedVolume, VolumeDelete, VolumePurge, VolumeUndelete};
use crate::replies::{
    AggregateInfo, AggregateState, DiskInfo, DiskLocated, DiskRole, DiskState, Health, Listener,
    MemoryUse, MountInfo, Removal, SnapshotInfo, StatusReply, Synced, VolumeExports, VolumeInfo,
};
use crate::requests::{
    AggregateAdd, AggregateCreate, DiskClear, DiskFail, DiskLocate, DiskReplace, DiskZero,
    ExportAdd, ExportRemove, MountCreate, MountRemove, Named, SnapshotDelete, SnapshotHold,
    SnapshotName, SnapshotRestore, SpareAdd, SpareRemove, VolumeFilter,
};
use crate::scrub::{ScrubAction, ScrubChange, ScrubInfo, ScrubState};
use crate::space::{AggregateSpace, VolumeSpace};
use crate::splits::{CloneSplit, SplitInfo};
use crate::{Administration, Time};
use platform::sync::Mutex;
use std::collections::BTreeMap;
use units::Timestamp;

/// Size of each disk.
const DISK_BYTES: u64 = 1 << 30;
/// What its disks say that they are.
const MEDIA: &str = "ssd:4MiB";

#[derive(Default)]
struct State {
    disks: Vec<DiskInfo>,
    aggregates: BTreeMap<String, AggregateInfo>,
    volumes: BTreeMap<String, VolumeInfo>,
    /// By volume, oldest first.
    snapshots: BTreeMap<String, Vec<SnapshotInfo>>,
    queue: recovery_queue::Queue,
    mounts: mounts::Mounts,
    quotas: quotas::Limits,
    checks: check::Checks,
    jobs: jobs::Jobs,
    events: events::Events,
    shut_down: bool,
    objects_made: u32,
}

/// The node.
#[derive(Default)]
pub struct MemoryAdministration {
    state: Mutex<State>,
}

impl MemoryAdministration {
    /// A node with `count` unused disks of 1 GiB, `/disks/d1` and so on.
    #[must_use]
    pub fn with_disks(count: usize) -> Self {
        let disk = |index: usize| DiskInfo {
            name: format!("/disks/d{}", index + 1),
            path: None,
            size_bytes: DISK_BYTES,
            state: DiskState::Unused,
            aggregate: None,
            role: None,
            group: None,
            media: Some(MEDIA.to_owned()),
            note: None,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            sick: false,
        };
        let disks = (0..count).map(disk).collect();
        Self { state: Mutex::new(State { disks, ..State::default() }) }
    }

    /// Whether a shutdown was asked for.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.state.lock().shut_down
    }
}

fn missing(action: &str, noun: &str, name: &str) -> AdminError {
    AdminError::missing(format!("cannot {action}"), noun, name)
}

fn taken(noun: &str, name: &str) -> AdminError {
    AdminError::new(Code::Conflict, format!("cannot create {noun}"), name)
        .because(format!("there is a {noun} of this name"))
}

impl State {
    fn volume(&mut self, action: &str, name: &str) -> Result<&mut VolumeInfo, AdminError> {
        self.volumes.get_mut(name).ok_or_else(|| missing(action, "volume", name))
    }

    const fn queue(&mut self) -> (&mut recovery_queue::Queue, recovery_queue::Live<'_>) {
        let Self { queue, volumes, snapshots, aggregates, .. } = self;
        (queue, recovery_queue::Live { volumes, snapshots, aggregates })
    }

    const fn held(&mut self) -> snapshots::Held<'_> {
        snapshots::Held { volumes: &mut self.volumes, snapshots: &mut self.snapshots }
    }

    fn next_number(&mut self) -> (u32, Time) {
        self.objects_made += 1;
        (self.objects_made, Time(Timestamp::from_parts(i64::from(self.objects_made), 0)))
    }

    /// Unused disks as members of an aggregate: so many with parity, then data.
    fn checked_disks(
        &self,
        aggregate: &str,
        (wanted, media): (&[String], &Option<String>),
        group: u32,
        parity_disks: usize,
    ) -> Result<Vec<DiskInfo>, AdminError> {
        let mut disks = Vec::new();
        for name in wanted {
            let found = self.disks.iter().find(|disk| disk.name == *name);
            let disk = found.ok_or_else(|| missing("use disk", "disk", name))?;
            if disk.state == DiskState::InUse {
                return Err(AdminError::new(Code::Conflict, "cannot use disk", name)
                    .because(format!(
                        "it belongs to aggregate {}",
                        disk.aggregate.as_deref().unwrap_or("?")
                    ))
                    .try_next("stroop disk list"));
            }
            let role = if disks.len() < parity_disks { DiskRole::Parity } else { DiskRole::Data };
            disks.push(DiskInfo {
                state: DiskState::InUse,
                role: Some(role),
                group: Some(group),
                media: media.clone().or_else(|| disk.media.clone()),
                aggregate: Some(aggregate.to_owned()),
                ..disk.clone()
            });
        }
        Ok(disks)
    }

    /// Takes an aggregate and its disks as they are.
    fn keep(&mut self, aggregate: &AggregateInfo) {
        for used in &aggregate.disks {
            let own = self.disks.iter_mut().filter(|disk| disk.name == used.name);
            own.for_each(|disk| disk.clone_from(used));
        }
        self.aggregates.insert(aggregate.name.clone(), aggregate.clone());
    }
}

impl Administration for MemoryAdministration {
    fn status(&self) -> Result<StatusReply, AdminError> {
        let mounts = self.mount_list()?;
        let state = self.state.lock();
        Ok(StatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: "memory".to_owned(),
            health: Health::Ok,
            checks: Vec::new(),
            now: Vec::new(),
            started: Time::default(),
            uptime_ns: 1_000_000_000,
            recovery: None,
            memory: MemoryUse {
                limit_bytes: 1 << 30,
                used_bytes: 0,
                peak_bytes: 0,
                consumers: Vec::new(),
            },
            listeners: vec![Listener { protocol: "nfs".into(), address: "127.0.0.1:2049".into() }],
            aggregates: state.aggregates.values().cloned().collect(),
            volumes: state.volumes.len() as u64,
            offline_volumes: volumes::offline(&state.volumes),
            mounts,
            metrics: telemetry::Snapshot::default(),
        })
    }

    fn disk_list(&self) -> Result<Vec<DiskInfo>, AdminError> {
        Ok(self.state.lock().disks.clone())
    }

    fn disk_fail(&self, request: &DiskFail) -> Result<Removal, AdminError> {
        let mut state = self.state.lock();
        let found = state.disks.iter_mut().find(|disk| disk.name == request.disk);
        let disk = found.ok_or_else(|| missing("fail disk", "disk", &request.disk))?;
        if !matches!(disk.state, DiskState::InUse | DiskState::Rebuilding) {
            return Err(AdminError::new(Code::Conflict, "cannot fail disk", &request.disk)
                .because("it is not in use"));
        }
        let aggregate = disk.aggregate.clone().unwrap_or_default();
        if !request.dry_run {
            disk.state = DiskState::Failed;
            let cause = format!("aggregate {aggregate} does without it");
            state.events.note(EventSeverity::Warning, "DISK_FAILED", &request.disk, &cause);
        }
        Ok(Removal::new(
            request.disk.clone(),
            vec![format!("aggregate {aggregate} does without it")],
            request.dry_run,
        ))
    }

    fn disk_clear(&self, request: &DiskClear) -> Result<Removal, AdminError> {
        let mut state = self.state.lock();
        let found = state.disks.iter_mut().find(|disk| disk.name == request.disk);
        let disk = found.ok_or_else(|| missing("clear disk", "disk", &request.disk))?;
        let errors = disk.read_errors + disk.write_errors + disk.checksum_errors;
        let consequences = vec![format!("{errors} errors are forgotten")];
        if !request.dry_run {
            (disk.read_errors, disk.write_errors, disk.checksum_errors) = (0, 0, 0);
            disk.sick = false;
        }
        let (object, dry_run) = (request.disk.clone(), request.dry_run);
        Ok(Removal::new(object, consequences, dry_run))
    }

    fn disk_replace(&self, request: &DiskReplace) -> Result<DiskInfo, AdminError> {
        let mut state = self.state.lock();
        let find = |disks: &[DiskInfo], name: &str| {
            let found = disks.iter().find(|disk| disk.name == name).cloned();
            found.ok_or_else(|| missing("replace disk", "disk", name))
        };
        let old = find(&state.disks, &request.disk)?;
        let is_spare = |disk: &&DiskInfo| {
            disk.role == Some(DiskRole::Spare) && disk.aggregate == old.aggregate
        };
        let new = match &request.replacement {
            Some(name) => find(&state.disks, name)?,
            None => state.disks.iter().find(is_spare).cloned().ok_or_else(|| {
                AdminError::new(Code::NotFound, "cannot replace disk", &request.disk)
                    .because("its aggregate has no spare")
            })?,
        };
        let (name, size_bytes) = (new.name, new.size_bytes);
        let info = DiskInfo { name, size_bytes, state: DiskState::Rebuilding, ..old };
        if !request.dry_run {
            let cause = format!("{} has its place", info.name);
            state.events.note(EventSeverity::Info, "DISK_REPLACED", &request.disk, &cause);
            state.jobs.note_replacement(&info, request.rate_bytes_per_second);
            for disk in &mut state.disks {
                if disk.name == info.name {
                    disk.clone_from(&info);
                } else if disk.name == request.disk {
                    (disk.state, disk.aggregate, disk.role) = (DiskState::Foreign, None, None);
                }
            }
        }
        Ok(info)
    }

    fn disk_locate(&self, request: &DiskLocate) -> Result<DiskLocated, AdminError> {
        let state = self.state.lock();
        let is_known = state.disks.iter().any(|disk| disk.name == request.disk);
        is_known.then_some(()).ok_or_else(|| missing("locate disk", "disk", &request.disk))?;
        let (disk, seconds) = (request.disk.clone(), request.seconds);
        Ok(DiskLocated { disk, enclosure_light: false, seconds })
    }

    fn disk_zero(&self, request: &DiskZero) -> Result<Removal, AdminError> {
        let mut state = self.state.lock();
        let found = state.disks.iter_mut().find(|disk| disk.name == request.disk);
        let disk = found.ok_or_else(|| missing("zero disk", "disk", &request.disk))?;
        if !matches!(disk.state, DiskState::Unused | DiskState::Foreign) {
            return Err(AdminError::new(Code::Conflict, "cannot zero disk", &request.disk)
                .because("it is in use"));
        }
        if !request.dry_run {
            (disk.state, disk.aggregate, disk.role) = (DiskState::Unused, None, None);
            disk.note = None;
        }
        Ok(Removal::new(
            request.disk.clone(),
            vec!["all of it is lost".to_owned()],
            request.dry_run,
        ))
    }

    fn spare_add(&self, request: &SpareAdd) -> Result<Vec<DiskInfo>, AdminError> {
        let mut state = self.state.lock();
        if !state.aggregates.contains_key(&request.aggregate) {
            return Err(missing("add spares to", "aggregate", &request.aggregate));
        }
        let mut added = Vec::new();
        for name in &request.disks {
            let found = state.disks.iter_mut().find(|disk| disk.name == *name);
            let disk = found.ok_or_else(|| missing("add spare", "disk", name))?;
            let spare = DiskInfo {
                state: DiskState::InUse,
                role: Some(DiskRole::Spare),
                aggregate: Some(request.aggregate.clone()),
                ..disk.clone()
            };
            if !request.dry_run {
                disk.clone_from(&spare);
            }
            added.push(spare);
        }
        Ok(added)
    }

    fn spare_remove(&self, request: &SpareRemove) -> Result<Removal, AdminError> {
        let mut state = self.state.lock();
        let is_it =
            |disk: &&mut DiskInfo| disk.name == request.disk && disk.role == Some(DiskRole::Spare);
        let found = state.disks.iter_mut().find(is_it);
        let disk = found.ok_or_else(|| missing("remove spare", "spare", &request.disk))?;
        let aggregate = disk.aggregate.clone().unwrap_or_default();
        if !request.dry_run {
            (disk.state, disk.aggregate, disk.role) = (DiskState::Unused, None, None);
        }
        Ok(Removal::new(
            request.disk.clone(),
            vec![format!("aggregate {aggregate} has one spare less")],
            request.dry_run,
        ))
    }

    fn aggregate_create(&self, request: &AggregateCreate) -> Result<AggregateInfo, AdminError> {
        let mut state = self.state.lock();
        if state.aggregates.contains_key(&request.name) {
            return Err(taken("aggregate", &request.name));
        }
        let wanted = (&request.disks[..], &request.media);
        let disks = state.checked_disks(&request.name, wanted, 0, request.raid.parity_disks())?;
        let parity_disks = request.raid.parity_disks() as u64;
        let data_disks = disks.len() as u64 - parity_disks;
        let size_bytes = data_disks * DISK_BYTES;
        let aggregate = AggregateInfo {
            name: request.name.clone(),
            state: AggregateState::Online,
            raid: request.raid,
            protection: Protection::of(&disks),
            traditional: request.traditional,
            size_bytes,
            used_bytes: 0,
            tiered_bytes: 0,
            metadata_bytes: 0,
            reserve_bytes: 0,
            free_bytes: size_bytes,
            guaranteed_bytes: 0,
            guarantee_lacking_bytes: 0,
            provisioned_bytes: 0,
            data_disks,
            parity_disks,
            groups: 1,
            volumes: 0,
            deleted_volumes: 0,
            deleted_bytes: 0,
            consistency_point: 1,
            consistency_point_duration_ns: 0,
            log_size_bytes: 1 << 20,
            log_used_bytes: 0,
            journal_copies: Vec::new(),
            repaired_blocks: 0,
            scrub: ScrubInfo { aggregate: request.name.clone(), ..ScrubInfo::default() },
            area_cleaning: true,
            leaving: None,
            disks,
        };
        if !request.dry_run {
            state.keep(&aggregate);
        }
        Ok(aggregate)
    }

    fn aggregate_add(&self, request: &AggregateAdd) -> Result<AggregateInfo, AdminError> {
        let mut state = self.state.lock();
        let known = state.aggregates.get(&request.name).cloned();
        let known =
            known.ok_or_else(|| missing("add disks to aggregate", "aggregate", &request.name))?;
        let parity_disks = match request.group {
            Some(_) => 0,
            None => request.raid.unwrap_or(known.raid).parity_disks(),
        };
        let group = request.group.unwrap_or(known.groups as u32);
        let wanted = (&request.disks[..], &request.media);
        let added = state.checked_disks(&request.name, wanted, group, parity_disks)?;
        let data_disks = added.len().saturating_sub(parity_disks) as u64;
        let disks: Vec<DiskInfo> = known.disks.into_iter().chain(added).collect();
        let aggregate = AggregateInfo {
            protection: Protection::of(&disks),
            size_bytes: known.size_bytes + data_disks * DISK_BYTES,
            free_bytes: known.free_bytes + data_disks * DISK_BYTES,
            data_disks: known.data_disks + data_disks,
            parity_disks: known.parity_disks + parity_disks as u64,
            groups: known.groups + u64::from(request.group.is_none()),
            disks,
            ..known
        };
        if !request.dry_run {
            state.keep(&aggregate);
        }
        Ok(aggregate)
    }

    fn aggregate_online(&self, request: &AggregateOnline) -> Result<Removal, AdminError> {
        online::bring_online(&mut self.state.lock().aggregates, request)
    }

    fn group_remove(&self, request: &GroupRemove) -> Result<Removal, AdminError> {
        let (name, group, message) = (&request.name, request.group, "remove group of");
        let mut state = self.state.lock();
        let found = state.aggregates.get_mut(name);
        let aggregate = found.ok_or_else(|| missing(message, "aggregate", name))?;
        let refused = |code, cause: String| {
            Err(AdminError::new(code, format!("cannot {message}"), name).because(cause))
        };
        let leaving = aggregate.leaving.map(|leaving| leaving.group);
        if request.cancel {
            if leaving != Some(group) {
                return refused(Code::Conflict, format!("group {group} is not being evacuated"));
            }
            aggregate.leaving = None;
            state.jobs.cancel_evacuation(name);
        } else {
            let members = aggregate.disks.iter().filter(|disk| disk.group == Some(group));
            let size_bytes = members.map(|disk| disk.size_bytes).sum();
            if size_bytes == 0 {
                return refused(Code::NotFound, format!("it has no group {group}"));
            }
            if aggregate.groups < 2 {
                return refused(
                    Code::Conflict,
                    "it is the only group of disks of the aggregate".to_owned(),
                );
            }
            if let Some(leaving) = leaving {
                return refused(Code::Conflict, format!("group {leaving} is being evacuated"));
            }
            if !request.dry_run {
                let used_bytes = Some(size_bytes / 4);
                aggregate.leaving = Some(LeavingGroup { group, used_bytes, size_bytes });
                let rate = request.rate_bytes_per_second;
                state.jobs.note_evacuation(name, group, (size_bytes, rate));
            }
        }
        let stays = if request.cancel { "stays" } else { "is emptied, and leaves then" };
        let consequences = vec![format!("group {group} {stays}")];
        let (object, dry_run) = (name.clone(), request.dry_run);
        Ok(Removal::new(object, consequences, dry_run))
    }

    fn aggregate_delete(&self, request: &AggregateDelete) -> Result<Removal, AdminError> {
        let State { aggregates, volumes, disks, .. } = &mut *self.state.lock();
        deletion::delete(aggregates, (volumes, disks), request)
    }

    fn aggregate_set(&self, request: &AggregateSet) -> Result<AggregateInfo, AdminError> {
        let mut state = self.state.lock();
        let found = state.aggregates.get_mut(&request.name);
        let found = found.ok_or_else(|| missing("change aggregate", "aggregate", &request.name))?;
        found.area_cleaning = request.area_cleaning.unwrap_or(found.area_cleaning);
        Ok(found.clone())
    }

    fn aggregate_list(&self) -> Result<Vec<AggregateInfo>, AdminError> {
        Ok(self.state.lock().aggregates.values().cloned().collect())
    }

    fn aggregate_show(&self, request: &Named) -> Result<AggregateInfo, AdminError> {
        let found = self.state.lock().aggregates.get(&request.name).cloned();
        found.ok_or_else(|| missing("show aggregate", "aggregate", &request.name))
    }

    fn aggregate_space(&self, request: &Named) -> Result<AggregateSpace, AdminError> {
        let aggregate = self.aggregate_show(request)?;
        Ok(volumes::aggregate_space(&aggregate, &self.state.lock().volumes))
    }

    fn aggregate_map(&self, request: &MapShow) -> Result<AggregateMap, AdminError> {
        let state = self.state.lock();
        let found = state.aggregates.get(&request.name);
        let found = found.ok_or_else(|| missing("show areas of", "aggregate", &request.name))?;
        Ok(area_map::map(found, request.cells))
    }

    fn aggregate_features(&self, request: &Named) -> Result<AggregateFeatures, AdminError> {
        let aggregate = self.aggregate_show(request)?;
        Ok(features::of(&aggregate))
    }

    fn upgrade_check(&self) -> Result<UpgradeReport, AdminError> {
        let names: Vec<String> = self.state.lock().aggregates.keys().cloned().collect();
        let aggregates: Result<Vec<_>, AdminError> =
            names.into_iter().map(|name| self.aggregate_features(&Named { name })).collect();
        Ok(features::report(aggregates?))
    }

    fn scrub_change(&self, request: &ScrubChange) -> Result<ScrubInfo, AdminError> {
        let mut state = self.state.lock();
        let (name, action) = (&request.aggregate, request.action);
        let message = format!("{action} the scrub of");
        let found = state.aggregates.get_mut(name);
        let scrub = &mut found.ok_or_else(|| missing(&message, "aggregate", name))?.scrub;
        let is_open = matches!(scrub.state, ScrubState::Running | ScrubState::Paused);
        if (action == ScrubAction::Start) == is_open {
            let cause = if is_open { "one is under way" } else { "none is under way" };
            let refused = AdminError::new(Code::Conflict, format!("cannot {message}"), name);
            return Err(refused.because(cause));
        }
        scrub.state = match action {
            ScrubAction::Start | ScrubAction::Resume => ScrubState::Running,
            ScrubAction::Pause => ScrubState::Paused,
            ScrubAction::Stop => ScrubState::Stopped,
        };
        scrub.started.get_or_insert(Time::default());
        scrub.size_bytes = DISK_BYTES;
        if action == ScrubAction::Start || request.rate_bytes_per_second.is_some() {
            scrub.rate_bytes_per_second = request.rate_bytes_per_second;
        }
        let scrub = scrub.clone();
        state.jobs.note_scrub(&scrub);
        state.events.note_scrub(name, action);
        Ok(scrub)
    }

    fn event_list(&self, request: &EventList) -> Result<Vec<Event>, AdminError> {
        Ok(self.state.lock().events.list(request))
    }

    fn job_list(&self) -> Result<Vec<JobInfo>, AdminError> {
        Ok(self.state.lock().jobs.list())
    }

    fn job_show(&self, request: &JobName) -> Result<JobInfo, AdminError> {
        self.state.lock().jobs.show(request.job)
    }

    fn job_change(&self, request: &JobChange) -> Result<JobInfo, AdminError> {
        let job = self.job_show(&JobName { job: request.job })?;
        if let Some(change) = jobs::scrub_change(&job, request) {
            self.scrub_change(&change)?;
        }
        self.state.lock().jobs.change(request)
    }

    fn check_begin(&self, request: &Named) -> Result<CheckBegun, AdminError> {
        let disks = self.aggregate_show(request)?.disks.into_iter().map(|disk| disk.name);
        self.state.lock().checks.begin(&request.name, disks.collect())
    }

    fn check_keep(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        self.state.lock().checks.keep(request)
    }

    fn check_read(&self, request: &CheckRead) -> Result<CheckBlocks, AdminError> {
        self.state.lock().checks.read(request)
    }

    fn check_end(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        self.state.lock().checks.end(request)
    }

    fn scrub_show(&self, request: &Named) -> Result<ScrubInfo, AdminError> {
        Ok(self.aggregate_show(request)?.scrub)
    }

    fn volume_create(&self, request: &VolumeCreate) -> Result<Vec<VolumeInfo>, AdminError> {
        let mut state = self.state.lock();
        if let Some(name) = request.names.iter().find(|name| state.volumes.contains_key(*name)) {
            return Err(taken("volume", name));
        }
        let aggregate = state.aggregates.get(&request.aggregate);
        let aggregate = aggregate
            .ok_or_else(|| missing("create volume in", "aggregate", &request.aggregate))?;
        let available_bytes = aggregate.free_bytes.min(request.size_bytes);
        let mut create = |name: &String| {
            let (id, created) = state.next_number();
            let volume = volumes::made(name, request, (id, created), available_bytes);
            if !request.dry_run {
                state.volumes.insert(name.clone(), volume.clone());
                state.snapshots.insert(name.clone(), Vec::new());
                if let Some(aggregate) = state.aggregates.get_mut(&request.aggregate) {
                    aggregate.volumes += 1;
                }
            }
            volume
        };
        Ok(request.names.iter().map(&mut create).collect())
    }

    fn volume_list(&self) -> Result<Vec<VolumeInfo>, AdminError> {
        Ok(self.state.lock().volumes.values().cloned().collect())
    }

    fn volume_show(&self, request: &Named) -> Result<VolumeInfo, AdminError> {
        self.state.lock().volume("show volume", &request.name).cloned()
    }

    fn volume_space(&self, request: &Named) -> Result<VolumeSpace, AdminError> {
        let mut state = self.state.lock();
        let volume = state.volume("cannot show the space of", &request.name)?.clone();
        let snapshots = state.snapshots.get(&request.name).cloned().unwrap_or_default();
        Ok(volumes::space(&volume, snapshots))
    }

    fn volume_set(&self, request: &VolumeSet) -> Result<VolumeInfo, AdminError> {
        volumes::set(&mut self.state.lock().volumes, request)
    }

    fn volume_resize(&self, request: &VolumeResize) -> Result<VolumeInfo, AdminError> {
        volumes::resize(&mut self.state.lock().volumes, request)
    }

    fn volume_rename(&self, request: &VolumeRename) -> Result<VolumeInfo, AdminError> {
        let State { volumes, snapshots, mounts, .. } = &mut *self.state.lock();
        volumes::rename(volumes, (snapshots, mounts), request)
    }

    fn volume_offline(&self, request: &VolumeOffline) -> Result<VolumeInfo, AdminError> {
        volumes::take_offline(&mut self.state.lock().volumes, request)
    }

    fn volume_online(&self, request: &Named) -> Result<VolumeInfo, AdminError> {
        volumes::bring_online(&mut self.state.lock().volumes, request)
    }

    fn volume_delete(&self, request: &VolumeDelete) -> Result<Removal, AdminError> {
        let mut state = self.state.lock();
        let now = Timestamp::from_parts(i64::from(state.objects_made), 0);
        recovery_queue::delete(state.queue(), request, now)
    }

    fn volume_list_deleted(&self) -> Result<Vec<DeletedVolume>, AdminError> {
        Ok(self.state.lock().queue.list())
    }

    fn volume_undelete(&self, request: &VolumeUndelete) -> Result<VolumeInfo, AdminError> {
        recovery_queue::undelete(self.state.lock().queue(), request)
    }

    fn volume_purge(&self, request: &VolumePurge) -> Result<Removal, AdminError> {
        recovery_queue::purge(self.state.lock().queue(), request)
    }

    fn volume_sync(&self, request: &VolumeFilter) -> Result<Synced, AdminError> {
        let mut state = self.state.lock();
        let volumes = match &request.volume {
            Some(name) => vec![state.volume("sync", name)?.name.clone()],
            None => state.volumes.keys().cloned().collect(),
        };
        Ok(Synced { volumes })
    }

    fn snapshot_create(&self, request: &SnapshotName) -> Result<SnapshotInfo, AdminError> {
        let mut state = self.state.lock();
        let number = state.next_number();
        snapshots::create(&mut state.held(), request, number)
    }

    fn snapshot_hold(&self, request: &SnapshotHold) -> Result<SnapshotInfo, AdminError> {
        snapshots::hold(&mut self.state.lock().held(), request)
    }

    fn snapshot_diff(&self, request: &SnapshotDiff) -> Result<SnapshotDifferences, AdminError> {
        snapshots::diff(&self.state.lock().held(), request)
    }

    fn snapshot_list(&self, request: &VolumeFilter) -> Result<Vec<SnapshotInfo>, AdminError> {
        snapshots::list(&mut self.state.lock().held(), request)
    }

    fn snapshot_delete(&self, request: &SnapshotDelete) -> Result<Removal, AdminError> {
        snapshots::delete(&mut self.state.lock().held(), request)
    }

    fn snapshot_restore(&self, request: &SnapshotRestore) -> Result<Removal, AdminError> {
        snapshots::restore(&mut self.state.lock().held(), request)
    }

    fn clone_create(&self, request: &CloneCreate) -> Result<Vec<VolumeInfo>, AdminError> {
        let mut state = self.state.lock();
        if let Some(name) = request.names.iter().find(|name| state.volumes.contains_key(*name)) {
            return Err(taken("volume", name));
        }
        let place = state.held().snapshot("clone", &request.volume, &request.snapshot)?;
        let parent = state.volume("clone", &request.volume)?.clone();
        let make = |name: &String| clones::made(name, request, &parent, state.next_number());
        let made: Vec<VolumeInfo> = request.names.iter().map(make).collect();
        if !request.dry_run {
            let State { volumes, snapshots, aggregates, .. } = &mut *state;
            clones::insert((volumes, snapshots), (&request.volume, place), &made);
            aggregates.entry(parent.aggregate).and_modify(|one| one.volumes += made.len() as u64);
        }
        Ok(made)
    }

    fn clone_split(&self, request: &CloneSplit) -> Result<SplitInfo, AdminError> {
        let mut state = self.state.lock();
        let clone = state.volume("split", &request.name)?.clone();
        clones::split(&mut state.jobs, request, clone)
    }

    fn quota_set(&self, request: &QuotaSet) -> Result<QuotaInfo, AdminError> {
        let State { volumes, quotas, .. } = &mut *self.state.lock();
        quotas::set((volumes, quotas), request)
    }

    fn quota_delete(&self, request: &QuotaDelete) -> Result<QuotaInfo, AdminError> {
        let State { volumes, quotas, .. } = &mut *self.state.lock();
        quotas::delete((volumes, quotas), request)
    }

    fn quota_list(&self, request: &QuotaList) -> Result<QuotaReport, AdminError> {
        let State { volumes, quotas, .. } = &*self.state.lock();
        quotas::list((volumes, quotas), request)
    }

    fn export_add(&self, request: &ExportAdd) -> Result<VolumeExports, AdminError> {
        let mut state = self.state.lock();
        let rules = &mut state.volume("export", &request.volume)?.exports;
        add_rule(&request.volume, rules, request.rule, request.index)?;
        Ok(VolumeExports { volume: request.volume.clone(), rules: rules.clone() })
    }

    fn export_list(&self, request: &VolumeFilter) -> Result<Vec<VolumeExports>, AdminError> {
        let mut state = self.state.lock();
        if let Some(volume) = &request.volume {
            state.volume("list exports of", volume)?;
        }
        let wanted = |name: &String| request.volume.as_ref().is_none_or(|volume| volume == name);
        let volumes = state.volumes.values().filter(|volume| wanted(&volume.name));
        let exports = |volume: &VolumeInfo| VolumeExports {
            volume: volume.name.clone(),
            rules: volume.exports.clone(),
        };
        Ok(volumes.map(exports).collect())
    }

    fn export_remove(&self, request: &ExportRemove) -> Result<VolumeExports, AdminError> {
        let mut state = self.state.lock();
        let rules = &mut state.volume("change exports of", &request.volume)?.exports;
        remove_rule(&request.volume, rules, request.client)?;
        Ok(VolumeExports { volume: request.volume.clone(), rules: rules.clone() })
    }

    fn fuse_mount(&self, request: &MountCreate) -> Result<MountInfo, AdminError> {
        let state = &mut *self.state.lock();
        mounts::mount(&mut state.mounts, &mut state.volumes, request)
    }

    fn fuse_unmount(&self, request: &MountRemove) -> Result<MountInfo, AdminError> {
        let state = &mut *self.state.lock();
        mounts::unmount(&mut state.mounts, &mut state.volumes, request)
    }

    fn mount_list(&self) -> Result<Vec<MountInfo>, AdminError> {
        Ok(self.state.lock().mounts.values().cloned().collect())
    }

    fn shutdown(&self) -> Result<(), AdminError> {
        self.state.lock().shut_down = true;
        Ok(())
    }
}
