//! Aggregates that are made larger, and how groups of disks would be.
//!
//! Invariants: a dry run opens and looks, and writes nothing.

use crate::aggregates::requested::{given_media, stored_kind};
use crate::aggregates::room::Aggregates;
use crate::aggregates::taking::Consent;
use crate::disks::upkeep::Task;
use crate::refusals::refusal;
use admin_api::{
    AdminError, AggregateAdd, AggregateInfo, AggregateState, Code, DiskInfo, DiskRole, DiskState,
    GROUP_DISKS_MAX, Protection, RaidKind,
};
use dblade::{AddDisks, Joining, groups_of};
use media::Profile;
use ondisk::identity::REGION_DATA_BLOCKS;
use platform::Disk;
use raid::GroupStatus;
use std::sync::Arc;
use std::time::Duration;
use units::BLOCK_SIZE_U64;

const ADD: &str = "cannot add disks to aggregate";

/// How long other administrators wait for disks to join: those that need no zeroing have by then.
const PATIENCE: Duration = Duration::from_secs(1);

/// What disks would be in an aggregate.
#[derive(Default)]
pub(crate) struct Planned {
    pub disks: Vec<DiskInfo>,
    pub size_bytes: u64,
    pub data_disks: u64,
    pub parity_disks: u64,
    pub groups: u64,
}

impl Planned {
    /// Of disks that are what is given, if it is.
    pub fn set_media(&mut self, media: Option<Profile>) {
        if let Some(media) = media {
            self.disks.iter_mut().for_each(|disk| disk.media = Some(media.to_string()));
        }
    }
}

impl Aggregates {
    pub(crate) fn add_disks(&self, wanted: &AggregateAdd) -> Result<AggregateInfo, AdminError> {
        let _turn = self.node.turn();
        let known = self.aggregate(&wanted.name)?;
        let error = || AdminError::new(Code::Conflict, ADD, &wanted.name);
        if known.state == AggregateState::Offline {
            return Err(error().because("it is out of service").try_next("stroop status"));
        }
        let media = given_media((ADD, &wanted.name), wanted.media.as_deref())?;
        let disks = self.disks.open_free(&wanted.disks)?;
        let (to, mut planned) = match wanted.group {
            Some(group) => self.planned_members(&known, group, &disks),
            None => self.planned_groups(&known, (wanted, media), &disks),
        }?;
        planned.set_media(media);
        if wanted.group.is_none() && !wanted.force {
            check_protection(&known, &planned)?;
        }
        let consent = Consent { force: wanted.force, abandoned: &wanted.abandoned };
        self.check_takable((ADD, &wanted.name), consent, &disks)?;
        if wanted.dry_run {
            return Ok(enlarged(known, planned));
        }
        let task = Task::joining(&wanted.name);
        self.disks.upkeep.begin(&disks, &task);
        let (force, zeroing, ended) = (wanted.force, Arc::clone(&task.zeroing), Arc::clone(&task));
        let adding = AddDisks { disks, to, media, force, zeroing };
        self.node.engine.add_disks(
            &wanted.name,
            adding,
            Box::new(move |outcome| ended.ending.end(outcome)),
        );
        let outcome = self.node.waits.wait_a_while(&task.ending, PATIENCE);
        self.settle_upkeep();
        match outcome {
            Some(Err(error)) => Err(refusal(ADD, &wanted.name, &error)),
            // Or it goes on while the disks are zeroed, which may take hours.
            Some(Ok(())) | None => self.aggregate(&wanted.name),
        }
    }
}

/// A group that survives less than the others is made by who says so only: the aggregate as a whole
/// survives no more than it.
fn check_protection(known: &AggregateInfo, planned: &Planned) -> Result<(), AdminError> {
    let (before, new) = (known.protection, Protection::of(&planned.disks));
    let is_weaker = before.disk_failures.zip(new.disk_failures).is_some_and(|(a, b)| b < a);
    if !is_weaker {
        return Ok(());
    }
    Err(AdminError::new(Code::Conflict, ADD, &known.name)
        .because(format!("what would be added {new}, and so would the whole; now it {before}"))
        .try_next(format!("--raid {} with as many disks, or --force", known.raid)))
}

impl Aggregates {
    /// The groups of an aggregate in service, in order, removed ones among them.
    fn groups(&self, aggregate: &str) -> Vec<GroupStatus> {
        let summaries = self.node.engine.aggregate_summaries().into_iter();
        let found = summaries.into_iter().find(|summary| summary.name == aggregate);
        found.map(|summary| summary.status.groups).unwrap_or_default()
    }

    /// As data disks of a group.
    fn planned_members(
        &self,
        known: &AggregateInfo,
        group: u32,
        disks: &[Arc<dyn Disk>],
    ) -> Result<(Joining, Planned), AdminError> {
        let error = || AdminError::new(Code::Conflict, ADD, &known.name);
        if !known.disks.iter().any(|disk| disk.group == Some(group)) {
            return Err(AdminError::new(Code::NotFound, ADD, &known.name)
                .because(format!("it has no group {group}"))
                .try_next(format!("stroop aggr show {}", known.name)));
        }
        if known.leaving.is_some_and(|leaving| leaving.group == group) {
            return Err(error()
                .because(format!("group {group} is being evacuated"))
                .try_next(format!("stroop aggr remove-group {} {group} --cancel", known.name)));
        }
        let mut of_group = known.disks.iter().filter(|disk| disk.group == Some(group));
        if !of_group.any(|disk| disk.role == Some(DiskRole::Parity)) {
            return Err(error().because(format!(
                "group {group} is without parity, and has one disk; add the disks without --group"
            )));
        }
        let count = known.disks.iter().filter(|disk| disk.group == Some(group)).count();
        if (count + disks.len()) as u64 > GROUP_DISKS_MAX {
            return Err(error().because(format!(
                "group {group} has {count} disks, and a group has {GROUP_DISKS_MAX} at most; add \
                 the disks without --group"
            )));
        }
        let regions = self.groups(&known.name).get(group as usize).map_or(0, |one| one.regions);
        let info = |disk: &Arc<dyn Disk>| disk_info(&**disk, &known.name, group, DiskRole::Data);
        let planned = Planned {
            disks: disks.iter().map(info).collect(),
            size_bytes: regions * DATA_BYTES_PER_REGION * disks.len() as u64,
            data_disks: disks.len() as u64,
            ..Planned::default()
        };
        Ok((Joining::Group(group), planned))
    }

    /// As groups of their own.
    fn planned_groups(
        &self,
        known: &AggregateInfo,
        (wanted, media): (&AggregateAdd, Option<Profile>),
        disks: &[Arc<dyn Disk>],
    ) -> Result<(Joining, Planned), AdminError> {
        let raid = wanted.raid.unwrap_or(known.raid);
        // Numbers of removed groups are never given again.
        let first = self.groups(&known.name).len() as u32;
        let log_regions = |disks: &[Arc<dyn Disk>], regions| {
            let mut media = disks.iter().map(|disk| media.unwrap_or_else(|| Profile::of(&**disk)));
            let is_object = media.any(|media| media == Profile::Object);
            self.node.engine.log_regions_of_another(&known.name, regions, is_object)
        };
        let shape = (raid, wanted.group_size, first);
        let planned = plan((ADD, &known.name), shape, disks, log_regions)?;
        let (kind, group_size) = (stored_kind(raid), disks_of_group(wanted.group_size));
        Ok((Joining::NewGroups { kind, group_size }, planned))
    }
}

const DATA_BYTES_PER_REGION: u64 = REGION_DATA_BLOCKS as u64 * BLOCK_SIZE_U64;

/// Disks of a group at most.
pub(crate) fn disks_of_group(wanted: Option<u64>) -> usize {
    wanted.unwrap_or(GROUP_DISKS_MAX) as usize
}

/// How disks would be as groups: of which kind, how large at most, and which number the first has.
/// `log_regions` says how many regions of each disk of a group are for the log. `message` and
/// `name` begin the error.
///
/// # Errors
/// `Usage` if a group would have too few disks.
pub(crate) fn plan(
    (message, name): (&str, &str),
    (raid, group_size, first): (RaidKind, Option<u64>, u32),
    disks: &[Arc<dyn Disk>],
    log_regions: impl Fn(&[Arc<dyn Disk>], u64) -> u64,
) -> Result<Planned, AdminError> {
    let groups = groups_of(stored_kind(raid), disks.to_vec(), disks_of_group(group_size));
    let mut planned = Planned { groups: groups.len() as u64, ..Planned::default() };
    for (group, disks) in (first..).zip(&groups) {
        if disks.len() < raid.disks_min() {
            return Err(AdminError::usage(message, name).because(format!(
                "a {raid} group needs {} disks or more, {} would be in one",
                raid.disks_min(),
                disks.len()
            )));
        }
        let parity_disks = raid.parity_disks();
        let data_disks = (disks.len() - parity_disks) as u64;
        // All disks of a group use as much as the smallest has.
        let regions = disks.iter().map(|disk| media::regions_of(disk.size_blocks())).min();
        let regions = regions.unwrap_or(0);
        let data_regions = regions.saturating_sub(log_regions(disks, regions));
        planned.size_bytes += data_regions * DATA_BYTES_PER_REGION * data_disks;
        planned.data_disks += data_disks;
        planned.parity_disks += parity_disks as u64;
        planned.disks.extend(disks.iter().enumerate().map(|(at, disk)| {
            let role = if at < parity_disks { DiskRole::Parity } else { DiskRole::Data };
            disk_info(&**disk, name, group, role)
        }));
    }
    Ok(planned)
}

fn disk_info(disk: &dyn Disk, aggregate: &str, group: u32, role: DiskRole) -> DiskInfo {
    DiskInfo {
        name: disk.name().to_owned(),
        size_bytes: disk.size_blocks() * BLOCK_SIZE_U64,
        state: DiskState::Unused,
        aggregate: Some(aggregate.to_owned()),
        role: Some(role),
        group: Some(group),
        media: Some(Profile::of(disk).to_string()),
        note: None,
        read_errors: 0,
        write_errors: 0,
        checksum_errors: 0,
        path: None,
        sick: false,
    }
}

fn enlarged(known: AggregateInfo, planned: Planned) -> AggregateInfo {
    let disks: Vec<_> = known.disks.into_iter().chain(planned.disks).collect();
    AggregateInfo {
        protection: Protection::of(&disks),
        size_bytes: known.size_bytes + planned.size_bytes,
        free_bytes: known.free_bytes + planned.size_bytes,
        data_disks: known.data_disks + planned.data_disks,
        parity_disks: known.parity_disks + planned.parity_disks,
        groups: known.groups + planned.groups,
        disks,
        ..known
    }
}
