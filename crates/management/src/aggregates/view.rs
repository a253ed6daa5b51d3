//! Aggregates as administrators see them.
//!
//! Invariants: every block of an aggregate is
//! counted as metadata, of a volume, reserved, free, or as free in a group that leaves.

use crate::aggregates::requested::shown_kind;
use crate::aggregates::room::Aggregates;
use crate::disks::shown::unnamed;
use crate::disks::table::role;
use crate::node::OfflineAggregate;
use crate::pace::{copied_percent, outlook};
use crate::scrub;
use admin_api::{
    AdminError, AggregateInfo, AggregateState, Code, DiskInfo, DiskState, JournalCopy,
    JournalCopyState, LeavingGroup, Protection, RaidKind, ScrubInfo,
};
use aggregate::Aggregate;
use dblade::{AggregateSummary, CopyState, CopyStatus, Outage, ServedVolume};
use raid::{GroupStatus, MemberState, MemberStatus, ReplacementStatus};
use std::collections::BTreeSet;
use std::sync::Arc;
use units::{AggregateUuid, BLOCK_SIZE_U64};

impl Aggregates {
    /// One aggregate, in service or not.
    pub(crate) fn aggregate(&self, name: &str) -> Result<AggregateInfo, AdminError> {
        let found = self.aggregate_list().into_iter().find(|aggregate| aggregate.name == name);
        found.ok_or_else(|| AdminError::missing("cannot show aggregate", "aggregate", name))
    }

    /// All aggregates, in service or not, in order of name.
    pub(crate) fn aggregate_list(&self) -> Vec<AggregateInfo> {
        self.settle_upkeep();
        // One that is opened meanwhile leaves this list once it is in service.
        let offline = self.node.offline.lock().clone();
        let (summaries, outages) = self.node.engine.summaries_and_outages();
        let info = |summary: &AggregateSummary| {
            self.aggregate_info(summary).or_else(|| self.gone_meanwhile(&summary.identity))
        };
        let mut list: Vec<AggregateInfo> = summaries.iter().filter_map(info).collect();
        list.extend(outages.iter().map(|outage| self.outage_info(outage)));
        let is_known = |one: &&OfflineAggregate| {
            let away = outages.iter().map(|outage| &outage.summary);
            summaries.iter().chain(away).any(|known| known.identity == one.identity)
        };
        list.extend(offline.iter().filter(|one| !is_known(one)).map(offline_info));
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// An aggregate that is in service, or was since the start.
    pub(crate) fn info_of(&self, aggregate: &AggregateUuid) -> Option<AggregateInfo> {
        let summaries = self.node.engine.aggregate_summaries();
        let found = summaries.iter().find(|summary| summary.identity == *aggregate);
        found
            .and_then(|summary| self.aggregate_info(summary))
            .or_else(|| self.gone_meanwhile(aggregate))
    }

    /// An aggregate that lost more disks than it can do without a moment ago.
    fn gone_meanwhile(&self, aggregate: &AggregateUuid) -> Option<AggregateInfo> {
        let outages = self.node.engine.outages();
        let found = outages.iter().find(|outage| outage.summary.identity == *aggregate);
        found.map(|outage| self.outage_info(outage))
    }

    fn aggregate_info(&self, summary: &AggregateSummary) -> Option<AggregateInfo> {
        let aggregate = self.node.engine.aggregate_named(&summary.name)?;
        let mut volumes = self.node.engine.volumes();
        volumes.retain(|volume| Arc::ptr_eq(&volume.aggregate, &aggregate));
        let blocks = |of: &[Arc<ServedVolume>]| -> u64 {
            of.iter().map(|volume| volume.owned_blocks()).sum()
        };
        let (deleted, live): (Vec<_>, Vec<_>) =
            volumes.into_iter().partition(|volume| volume.queued().is_some());
        let deleted_blocks = blocks(&deleted);
        let provisioned_blocks: u64 = live.iter().map(|volume| volume.size_blocks()).sum();
        let groups = &summary.status.groups;
        let mut disks = self.members_of(summary);
        let members = disks.len();
        disks.extend(self.waiting_disks(summary));
        // A disk that joins may be a member already, and one that leaves may have a place.
        let on_the_way = self.leaving_disks(summary).into_iter();
        for disk in on_the_way.chain(self.disks.upkeep.joining(&summary.name)) {
            if disks.iter().all(|shown| shown.name != disk.name) {
                disks.push(disk);
            }
        }
        forget_names_of_others(&mut disks, groups);
        let parity_disks = parity_disks(groups);
        let space = Space::of(summary, &aggregate, blocks(&live) + deleted_blocks);
        let log_size_bytes = aggregate.parts.log.capacity_bytes();
        let leaving = aggregate.evacuation().map(|leaving| LeavingGroup {
            group: leaving.group,
            used_bytes: leaving.used_blocks.map(|used| used * BLOCK_SIZE_U64),
            size_bytes: leaving.blocks * BLOCK_SIZE_U64,
        });
        Some(AggregateInfo {
            name: summary.name.clone(),
            state: state(summary),
            raid: kind(groups),
            protection: Protection::of(&disks),
            traditional: summary.traditional,
            size_bytes: summary.size_blocks * BLOCK_SIZE_U64,
            used_bytes: summary.used_blocks * BLOCK_SIZE_U64,
            tiered_bytes: aggregate.object_blocks() * BLOCK_SIZE_U64,
            metadata_bytes: space.metadata_blocks * BLOCK_SIZE_U64,
            reserve_bytes: space.reserve_blocks * BLOCK_SIZE_U64,
            free_bytes: space.free_blocks * BLOCK_SIZE_U64,
            guaranteed_bytes: space.guaranteed_blocks * BLOCK_SIZE_U64,
            guarantee_lacking_bytes: aggregate
                .guarantee_lacking_blocks()
                .saturating_mul(BLOCK_SIZE_U64),
            provisioned_bytes: provisioned_blocks.saturating_mul(BLOCK_SIZE_U64),
            data_disks: (members - parity_disks) as u64,
            parity_disks: parity_disks as u64,
            groups: left(groups).count() as u64,
            volumes: live.len() as u64,
            deleted_volumes: deleted.len() as u64,
            deleted_bytes: deleted_blocks * BLOCK_SIZE_U64,
            consistency_point: aggregate.committed().get(),
            consistency_point_duration_ns: summary.last_cp_nanoseconds,
            log_size_bytes,
            log_used_bytes: (summary.log_used_ratio * log_size_bytes as f64) as u64,
            journal_copies: summary.log_copies.iter().map(journal_copy).collect(),
            repaired_blocks: summary.status.counters.repaired_blocks,
            scrub: scrub::info(&summary.name, &summary.status.scrub, self.node.clock.wall()),
            area_cleaning: aggregate.cleans_areas(),
            leaving,
            disks,
        })
    }

    /// The disks of its groups, in order.
    fn members_of(&self, summary: &AggregateSummary) -> Vec<DiskInfo> {
        let of_group = |(group, status): (u32, &GroupStatus)| {
            let info =
                |member| DiskInfo { group: Some(group), ..self.member_info(&summary.name, member) };
            status.members.iter().map(info).collect::<Vec<_>>()
        };
        (0..).zip(&summary.status.groups).flat_map(of_group).collect()
    }

    /// An aggregate that lost more disks than it can do without, as it was then.
    pub(crate) fn outage_info(&self, outage: &Outage) -> AggregateInfo {
        let summary = &outage.summary;
        let groups = &summary.status.groups;
        let disks = self.members_of(summary);
        let parity_disks = parity_disks(groups);
        AggregateInfo {
            raid: kind(groups),
            protection: Protection::of(&disks),
            traditional: summary.traditional,
            size_bytes: summary.size_blocks * BLOCK_SIZE_U64,
            used_bytes: summary.used_blocks * BLOCK_SIZE_U64,
            data_disks: (disks.len() - parity_disks) as u64,
            parity_disks: parity_disks as u64,
            disks,
            ..empty(&summary.name)
        }
    }

    pub(crate) fn member_info(&self, aggregate: &str, member: &MemberStatus) -> DiskInfo {
        let left_out = self.node.left_out.lock();
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
        let name = member.name.clone().or_else(|| known.map(|disk| disk.name.clone()));
        let name = name.unwrap_or_else(|| unnamed(&member.identity));
        DiskInfo {
            size_bytes: self.disks.held_bytes(&name),
            name,
            path: None,
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
}

/// A disk that failed, or is missing, may have been given to the aggregate anew since, for another
/// place or as a spare: then its name is shown there alone. The members come first in `disks`.
fn forget_names_of_others(disks: &mut [DiskInfo], groups: &[raid::GroupStatus]) {
    let is_lost = |disk: &DiskInfo| matches!(disk.state, DiskState::Failed | DiskState::Missing);
    let there = disks.iter().filter(|disk| !is_lost(disk));
    let there: BTreeSet<String> = there.map(|disk| disk.name.clone()).collect();
    let members = groups.iter().flat_map(|group| &group.members);
    for (disk, member) in disks.iter_mut().zip(members) {
        if is_lost(disk) && there.contains(&disk.name) {
            disk.name = unnamed(&member.identity);
        }
    }
}

fn copied(replacement: &ReplacementStatus) -> String {
    format!("{} % copied to {}", copied_percent(replacement), replacement.name)
}

fn in_use_note(member: &MemberStatus) -> Option<String> {
    let sick = member.sickness.map(|sickness| format!("sick: {sickness}"));
    let parts: Vec<String> =
        sick.into_iter().chain(member.replacement.as_ref().map(copied)).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn missing_note(member: &MemberStatus) -> String {
    match member.name {
        Some(_) => "it missed writes while it was away; what it holds is old".to_owned(),
        None => "not found when the server started".to_owned(),
    }
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

fn journal_copy(copy: &CopyStatus) -> JournalCopy {
    let (state, cause) = match &copy.state {
        CopyState::Whole => (JournalCopyState::Whole, None),
        CopyState::Joining => (JournalCopyState::Joining, None),
        CopyState::Lost(cause) => (JournalCopyState::Lost, Some(cause.clone())),
    };
    JournalCopy { name: copy.disk.clone(), state, cause }
}

pub(crate) fn empty(name: &str) -> AggregateInfo {
    AggregateInfo {
        name: name.to_owned(),
        state: AggregateState::Offline,
        raid: RaidKind::None,
        protection: Protection::default(),
        traditional: false,
        size_bytes: 0,
        used_bytes: 0,
        tiered_bytes: 0,
        metadata_bytes: 0,
        reserve_bytes: 0,
        free_bytes: 0,
        guaranteed_bytes: 0,
        guarantee_lacking_bytes: 0,
        provisioned_bytes: 0,
        data_disks: 0,
        parity_disks: 0,
        groups: 0,
        volumes: 0,
        deleted_volumes: 0,
        deleted_bytes: 0,
        consistency_point: 0,
        consistency_point_duration_ns: 0,
        log_size_bytes: 0,
        log_used_bytes: 0,
        journal_copies: Vec::new(),
        repaired_blocks: 0,
        scrub: ScrubInfo { aggregate: name.to_owned(), ..ScrubInfo::default() },
        area_cleaning: false,
        leaving: None,
        disks: Vec::new(),
    }
}

fn offline_info(offline: &OfflineAggregate) -> AggregateInfo {
    let raid = offline.seen.kind.map_or(RaidKind::None, shown_kind);
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
    guaranteed_blocks: u64,
    free_blocks: u64,
}

impl Space {
    fn of(summary: &AggregateSummary, aggregate: &Aggregate, of_volumes: u64) -> Self {
        let unused = summary.size_blocks.saturating_sub(summary.used_blocks);
        // What was promised to operations is as good as used, and counted as reserved until it is.
        let budget = &aggregate.parts.shared.budget;
        let free_blocks = budget.free_blocks().min(unused);
        let guaranteed_blocks = budget.guaranteed_blocks().min(unused - free_blocks);
        let leaving_blocks = aggregate.evacuation().map_or(0, |leaving| leaving.unusable_blocks());
        Self {
            metadata_blocks: match summary.traditional {
                true => 0,
                false => summary.used_blocks.saturating_sub(of_volumes),
            },
            reserve_blocks: (unused - free_blocks - guaranteed_blocks)
                .saturating_sub(leaving_blocks),
            guaranteed_blocks,
            free_blocks,
        }
    }
}

/// An aggregate that takes volumes.
///
/// # Errors
/// `NotFound` if there is none, `Conflict` if it is not in service or takes no volumes.
pub(crate) fn check_takes_volumes(aggregate: &AggregateInfo) -> Result<(), AdminError> {
    let error = || AdminError::new(Code::Conflict, "cannot create volume in", &aggregate.name);
    if aggregate.state == AggregateState::Offline {
        return Err(error().because("it is out of service").try_next("stroop status"));
    }
    if aggregate.traditional {
        return Err(error().because("it is a traditional volume and takes no other"));
    }
    Ok(())
}
