//! Aggregates as administrators see and make them.
//!
//! Invariants: a dry run opens and looks, and writes nothing; every block of an aggregate is
//! counted as metadata, of a volume, reserved, free, or as free in a group that leaves.

use super::blocking::{request, wait_for};
use super::core::Core;
use super::disk_table::role;
use super::growth;
use super::recovery::OfflineAggregate;
use super::refusals::{missing, refusal, taken};
use super::scrub;
use super::spares::copied_percent;
use admin_api::{
    AdminError, AggregateCreate, AggregateInfo, AggregateState, Code, DiskInfo, DiskState,
    LeavingGroup, RaidKind, ScrubInfo, SpareAdd,
};
use aggregate::Aggregate;
use dblade::{AggregateSummary, CreateAggregate, EngineError, Outage};
use media::{MediaError, ParseProfileError, Profile};
use ondisk::label::Hexadecimal;
use platform::Disk;
use platform::completion::gather;
use raid::{GroupStatus, MemberState, MemberStatus, Pace, RaidError, SuccessorStatus};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, ByteSize};

pub(super) const fn stored_kind(kind: RaidKind) -> ondisk::label::RaidKind {
    match kind {
        RaidKind::None => ondisk::label::RaidKind::None,
        RaidKind::Raid4 => ondisk::label::RaidKind::Raid4,
        RaidKind::Dp => ondisk::label::RaidKind::Dp,
        RaidKind::Tp => ondisk::label::RaidKind::Tp,
    }
}

const fn shown_kind(kind: ondisk::label::RaidKind) -> RaidKind {
    match kind {
        ondisk::label::RaidKind::None => RaidKind::None,
        ondisk::label::RaidKind::Raid4 => RaidKind::Raid4,
        ondisk::label::RaidKind::Dp => RaidKind::Dp,
        ondisk::label::RaidKind::Tp => RaidKind::Tp,
    }
}

impl Core {
    pub(super) fn create_aggregate(
        &self,
        wanted: &AggregateCreate,
    ) -> Result<AggregateInfo, AdminError> {
        let _turn = self.turn();
        if self.aggregate_list().iter().any(|known| known.name == wanted.name) {
            return Err(taken("aggregate", &wanted.name));
        }
        if wanted.traditional && self.engine.volume_named(&wanted.name).is_some() {
            return Err(taken("volume", &wanted.name));
        }
        let object = (CREATE, wanted.name.as_str());
        let media = given_media(object, wanted.media.as_deref())?;
        let disks = self.disks.open_free(&wanted.disks)?;
        let mut planned = growth::plan(object, wanted.raid, wanted.group_size, 0, &disks)?;
        planned.set_media(media);
        check_unused(object, wanted.force, &disks)?;
        let spares = SpareAdd {
            aggregate: wanted.name.clone(),
            disks: wanted.spares.clone(),
            force: wanted.force,
            dry_run: wanted.dry_run,
        };
        self.check_spares(&spares, &self.disks.open_free(&wanted.spares)?)?;
        if wanted.dry_run {
            return Ok(AggregateInfo {
                raid: wanted.raid,
                traditional: wanted.traditional,
                state: AggregateState::Online,
                size_bytes: planned.size_bytes,
                free_bytes: planned.size_bytes,
                data_disks: planned.data_disks,
                parity_disks: planned.parity_disks,
                groups: planned.groups,
                disks: planned.disks,
                ..empty(&wanted.name)
            });
        }
        let create = CreateAggregate {
            name: wanted.name.clone(),
            disks: disks.clone(),
            kind: stored_kind(wanted.raid),
            group_size: growth::disks_of_group(wanted.group_size),
            force: wanted.force,
            traditional: wanted.traditional,
            media,
        };
        let engine = &self.engine;
        request(CREATE, &wanted.name, |done| engine.create_aggregate(create, done))?;
        self.disks.hold(&wanted.name, &disks);
        self.forget_offline(&disks);
        if let Some(volume) = engine.volume_named(&wanted.name).filter(|_| wanted.traditional) {
            self.publish_exports(&volume);
        }
        tracing::info!(aggregate = wanted.name, disks = wanted.disks.len(), "aggregate created");
        if !spares.disks.is_empty() {
            self.add_spares_in_turn(&spares)?;
        }
        self.aggregate(&wanted.name)
    }

    /// Disks that were erased are of no aggregate that is out of service any more.
    pub(super) fn forget_offline(&self, disks: &[Arc<dyn Disk>]) {
        let is_taken = |name: &str| disks.iter().any(|disk| disk.name() == name);
        for outage in self.engine.outages() {
            let info = self.outage_info(&outage);
            let is_there =
                |disk: &DiskInfo| disk.state == DiskState::InUse && !is_taken(&disk.name);
            if !info.disks.iter().any(is_there) {
                self.engine.forget_aggregate(outage.summary.identity);
            }
        }
        self.offline.lock().retain_mut(|offline| {
            offline.disks.retain(|name| disks.iter().all(|disk| disk.name() != name));
            !offline.disks.is_empty()
        });
    }

    /// One aggregate, in service or not.
    pub(super) fn aggregate(&self, name: &str) -> Result<AggregateInfo, AdminError> {
        let found = self.aggregate_list().into_iter().find(|aggregate| aggregate.name == name);
        found.ok_or_else(|| missing("cannot show aggregate", "aggregate", name))
    }

    /// All aggregates, in service or not, in order of name.
    pub(super) fn aggregate_list(&self) -> Vec<AggregateInfo> {
        self.settle_upkeep();
        let summaries = self.engine.aggregate_summaries();
        let mut list: Vec<AggregateInfo> =
            summaries.iter().filter_map(|summary| self.aggregate_info(summary)).collect();
        let outages = self.engine.outages();
        list.extend(outages.iter().map(|outage| self.outage_info(outage)));
        let is_known = |one: &&OfflineAggregate| {
            outages.iter().any(|outage| outage.summary.identity == one.identity)
        };
        list.extend(self.offline.lock().iter().filter(|one| !is_known(one)).map(offline_info));
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    fn aggregate_info(&self, summary: &AggregateSummary) -> Option<AggregateInfo> {
        let aggregate = self.engine.aggregate_named(&summary.name)?;
        let of_volumes: Vec<u64> = self
            .engine
            .volumes()
            .iter()
            .filter(|volume| Arc::ptr_eq(&volume.aggregate, &aggregate))
            .map(|volume| volume.used_blocks() + volume.delayed_blocks())
            .collect();
        let groups = &summary.status.groups;
        let of_group = |(group, status): (u32, &raid::GroupStatus)| {
            let info =
                |member| DiskInfo { group: Some(group), ..self.member_info(&summary.name, member) };
            status.members.iter().map(info).collect::<Vec<_>>()
        };
        let mut disks: Vec<DiskInfo> = (0..).zip(groups).flat_map(of_group).collect();
        let members = disks.len();
        disks.extend(self.waiting_disks(summary));
        disks.extend(self.disks.upkeep.joining(&summary.name));
        let parity_disks = parity_disks(groups);
        let space = Space::of(summary, &aggregate, of_volumes.iter().sum());
        let log_size_bytes = aggregate.parts.log.capacity_bytes();
        let leaving = aggregate.leaving().map(|leaving| LeavingGroup {
            group: leaving.group,
            used_bytes: leaving.used_blocks.map(|used| used * BLOCK_SIZE_U64),
            size_bytes: leaving.blocks * BLOCK_SIZE_U64,
        });
        Some(AggregateInfo {
            name: summary.name.clone(),
            state: state(summary),
            raid: kind(groups),
            traditional: summary.traditional,
            size_bytes: summary.size_blocks * BLOCK_SIZE_U64,
            used_bytes: summary.used_blocks * BLOCK_SIZE_U64,
            tiered_bytes: aggregate.object_blocks() * BLOCK_SIZE_U64,
            metadata_bytes: space.metadata_blocks * BLOCK_SIZE_U64,
            reserve_bytes: space.reserve_blocks * BLOCK_SIZE_U64,
            free_bytes: space.free_blocks * BLOCK_SIZE_U64,
            data_disks: (members - parity_disks) as u64,
            parity_disks: parity_disks as u64,
            groups: left(groups).count() as u64,
            volumes: of_volumes.len() as u64,
            consistency_point: aggregate.committed().get(),
            consistency_point_duration_ns: summary.last_cp_nanoseconds,
            log_size_bytes,
            log_used_bytes: (summary.log_used_ratio * log_size_bytes as f64) as u64,
            repaired_blocks: summary.status.counters.repaired_blocks,
            scrub: scrub::info(&summary.name, &summary.status.scrub, self.clock.wall()),
            area_cleaning: aggregate.cleans_areas(),
            leaving,
            disks,
        })
    }

    /// An aggregate that lost more disks than it can do without, as it was then.
    pub(super) fn outage_info(&self, outage: &Outage) -> AggregateInfo {
        let summary = &outage.summary;
        let groups = &summary.status.groups;
        let members = groups.iter().flat_map(|group| &group.members);
        let disks: Vec<DiskInfo> =
            members.map(|member| self.member_info(&summary.name, member)).collect();
        let parity_disks = parity_disks(groups);
        AggregateInfo {
            raid: kind(groups),
            traditional: summary.traditional,
            size_bytes: summary.size_blocks * BLOCK_SIZE_U64,
            used_bytes: summary.used_blocks * BLOCK_SIZE_U64,
            data_disks: (disks.len() - parity_disks) as u64,
            parity_disks: parity_disks as u64,
            disks,
            ..empty(&summary.name)
        }
    }

    pub(super) fn member_info(&self, aggregate: &str, member: &MemberStatus) -> DiskInfo {
        let left_out = self.left_out.lock();
        let known = left_out.iter().find(|disk| disk.identity == Some(member.identity));
        let (state, note) = match (&member.state, known) {
            (MemberState::Online, _) => (DiskState::InUse, in_use_note(member)),
            (MemberState::Rebuilding { rebuilt_regions, regions, pace }, _) => {
                let share = 100 * rebuilt_regions / (*regions).max(1);
                (DiskState::Rebuilding, Some(format!("{share} % rebuilt{}", outlook(pace))))
            }
            (MemberState::Failed { reason }, _) => (DiskState::Failed, Some(reason.clone())),
            (MemberState::Missing, Some(disk)) => (DiskState::Failed, Some(disk.reason.clone())),
            (MemberState::Missing, None) => (DiskState::Missing, Some(missing_note(member))),
        };
        let unnamed = || format!("({})", Hexadecimal(&member.identity));
        let name = member.name.clone().or_else(|| known.map(|disk| disk.name.clone()));
        let name = name.unwrap_or_else(unnamed);
        DiskInfo {
            size_bytes: self.disks.held_bytes(&name),
            name,
            state,
            aggregate: Some(aggregate.to_owned()),
            role: Some(role(member.role)),
            group: None,
            media: member.media.map(|media| media.to_string()),
            note,
            read_errors: member.errors.read_errors.into(),
            write_errors: member.errors.write_errors.into(),
            checksum_errors: member.errors.checksum_errors.into(),
            sick: member.sickness.is_some(),
        }
    }

    /// The disks that the configuration names, and those that aggregates wait for, in order of
    /// name.
    pub(super) fn disk_list(&self) -> Vec<DiskInfo> {
        let _turn = self.turn();
        self.settle_upkeep();
        self.let_go_of_former_disks();
        let outages = self.engine.outages();
        let awaited: Vec<DiskInfo> =
            outages.iter().flat_map(|outage| self.outage_info(outage).disks).collect();
        let members: Vec<DiskInfo> =
            self.aggregate_list().into_iter().flat_map(|aggregate| aggregate.disks).collect();
        let offline = self.offline.lock().clone();
        let info = |name: String| {
            if let Some(info) = awaited.iter().find(|disk| disk.name == name) {
                return Some(info.clone());
            }
            match self.disks.info_unless_held(&name) {
                Some(mut info) => {
                    // Its aggregate is ours, though it could not be opened: not free to be taken.
                    if offline.iter().any(|aggregate| aggregate.disks.contains(&name)) {
                        info.state = DiskState::Failed;
                    }
                    Some(info)
                }
                None => members.iter().find(|member| member.name == name).cloned(),
            }
        };
        let mut names = self.disks.names();
        let is_named = |disk: &&DiskInfo| names.contains(&disk.name);
        let others: Vec<String> =
            awaited.iter().filter(|disk| !is_named(disk)).map(|disk| disk.name.clone()).collect();
        names.extend(others);
        names.sort();
        names.into_iter().filter_map(info).collect()
    }
}

const CREATE: &str = "cannot create aggregate";

/// How fast something gets on, and when it will be over, as far as that is known.
pub(super) fn outlook(pace: &Pace) -> String {
    let Some(seconds) = pace.seconds_left else { return String::new() };
    let rate = ByteSize(pace.bytes_per_second);
    let left = cli::duration::format(seconds.saturating_mul(1_000_000_000));
    format!(", {rate}/s, about {left}")
}

fn copied(successor: &SuccessorStatus) -> String {
    format!("{} % copied to {}", copied_percent(successor), successor.name)
}

fn in_use_note(member: &MemberStatus) -> Option<String> {
    let sick = member.sickness.map(|sickness| format!("sick: {sickness}"));
    let parts: Vec<String> =
        sick.into_iter().chain(member.successor.as_ref().map(copied)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn missing_note(member: &MemberStatus) -> String {
    match member.name {
        Some(_) => "it missed writes while it was away; what it holds is old".to_owned(),
        None => "not found when the server started".to_owned(),
    }
}

/// What the disks are, if it is given.
/// `message` and `name` begin the error.
pub(super) fn given_media(
    (message, name): (&str, &str),
    media: Option<&str>,
) -> Result<Option<Profile>, AdminError> {
    let parsed = media.map(str::parse).transpose();
    parsed.map_err(|error: ParseProfileError| {
        AdminError::usage(message, name).because(error.to_string())
    })
}

/// Refuses disks that hold something, unless they may be erased.
/// `message` and `name` begin the error.
pub(super) fn check_unused(
    (message, name): (&str, &str),
    force: bool,
    disks: &[Arc<dyn Disk>],
) -> Result<(), AdminError> {
    let checked = wait_for(|done| {
        let parts = gather(disks.len(), done);
        for (disk, part) in disks.iter().zip(parts) {
            media::check_unused(disk, force, part);
        }
    });
    let results: Vec<Result<(), MediaError>> = checked.unwrap_or_default();
    let failed = results.into_iter().find_map(Result::err);
    failed.map_or(Ok(()), |error| {
        let error = EngineError::from(RaidError::from(error));
        Err(refusal(message, name, &error))
    })
}

/// The groups that were not removed.
fn left(groups: &[GroupStatus]) -> impl Iterator<Item = &GroupStatus> {
    groups.iter().filter(|group| !group.is_removed())
}

fn parity_disks(groups: &[GroupStatus]) -> usize {
    left(groups).map(|group| group.kind.parity_disks()).sum()
}

/// What protects the first of them.
fn kind(groups: &[GroupStatus]) -> RaidKind {
    left(groups).next().map_or(RaidKind::None, |group| shown_kind(group.kind))
}

fn empty(name: &str) -> AggregateInfo {
    AggregateInfo {
        name: name.to_owned(),
        state: AggregateState::Offline,
        raid: RaidKind::None,
        traditional: false,
        size_bytes: 0,
        used_bytes: 0,
        tiered_bytes: 0,
        metadata_bytes: 0,
        reserve_bytes: 0,
        free_bytes: 0,
        data_disks: 0,
        parity_disks: 0,
        groups: 0,
        volumes: 0,
        consistency_point: 0,
        consistency_point_duration_ns: 0,
        log_size_bytes: 0,
        log_used_bytes: 0,
        repaired_blocks: 0,
        scrub: ScrubInfo { aggregate: name.to_owned(), ..ScrubInfo::default() },
        area_cleaning: false,
        leaving: None,
        disks: Vec::new(),
    }
}

fn offline_info(offline: &OfflineAggregate) -> AggregateInfo {
    let raid = offline.kind.map_or(RaidKind::None, shown_kind);
    AggregateInfo { raid, ..empty(&offline.name) }
}

fn state(summary: &AggregateSummary) -> AggregateState {
    if summary.failure.is_some() {
        AggregateState::Offline
    } else if summary.status.is_degraded() {
        AggregateState::Degraded
    } else {
        AggregateState::Online
    }
}

/// Where an aggregate's blocks are.
struct Space {
    metadata_blocks: u64,
    reserve_blocks: u64,
    free_blocks: u64,
}

impl Space {
    fn of(summary: &AggregateSummary, aggregate: &Aggregate, of_volumes: u64) -> Self {
        let unused = summary.size_blocks.saturating_sub(summary.used_blocks);
        // What was promised to operations is as good as used, and counted as reserved until it is.
        let free_blocks = aggregate.parts.shared.budget.free_blocks().min(unused);
        let leaving_blocks = aggregate.leaving().map_or(0, |leaving| leaving.unusable_blocks());
        Self {
            metadata_blocks: match summary.traditional {
                true => 0,
                false => summary.used_blocks.saturating_sub(of_volumes),
            },
            reserve_blocks: unused.saturating_sub(free_blocks).saturating_sub(leaving_blocks),
            free_blocks,
        }
    }
}

/// An aggregate that takes volumes.
///
/// # Errors
/// `NotFound` if there is none, `Conflict` if it is not in service or takes no volumes.
pub(super) fn check_takes_volumes(aggregate: &AggregateInfo) -> Result<(), AdminError> {
    let error = || AdminError::new(Code::Conflict, "cannot create volume in", &aggregate.name);
    if aggregate.state == AggregateState::Offline {
        return Err(error().because("it is out of service").try_next("stroop status"));
    }
    if aggregate.traditional {
        return Err(error().because("it is a traditional volume and takes no other"));
    }
    Ok(())
}
