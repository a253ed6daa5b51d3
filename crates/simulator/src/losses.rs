//! Disks that go at moments under load, or with the power; come back at a start with what they had
//! when they went; and are replaced by new ones, which are rebuilt.
//!
//! Invariant: no more disks are missing than the plan says, those that are being rebuilt and those
//! that the aggregate has not missed yet included.

use crate::choices::Choices;
use crate::finding::Finding;
use crate::machine::{AGGREGATE, LOG_DISK, Machine, Promise, promise};
use crate::neighbours::is_neighbours;
use crate::outage::OutagePhase;
use aggregate::{AggregateError, Phase};
use dblade::EngineError;
use ondisk::label::DiskLabel;
use platform::Disk;
use platform::simulated::{Fate, FaultRates};
use raid::{DiskPlace, MemberState, MemberStatus, RaidError};
use std::collections::BTreeSet;
use std::sync::Arc;
use units::CpNumber;

/// Of 100 disks that go, those that hang instead.
const HANG_PERCENT: u64 = 30;
/// Of 100 disks that go in lives without another fault, those that refuse all writes and flushes,
/// while what they have can be read.
const REFUSE_PERCENT: u64 = 25;
/// Of 100 that hang, those that answer later, while all goes on without them.
const LATE_PERCENT: u64 = 50;

/// See the module.
#[derive(Default)]
pub struct Losses {
    /// Names of disks that are not there.
    gone: BTreeSet<String>,
    recent: Option<Recent>,
    replacing: Option<Promise<Result<(), EngineError>>>,
    replaced_count: u32,
    returning: Option<Promise<Result<(), EngineError>>>,
    spare: Option<Promise<Result<(), EngineError>>>,
    spare_count: u32,
    /// Disks that are gone though the group cannot do without them.
    pub(crate) away: Vec<String>,
    pub(crate) outage: OutagePhase,
    /// Disks that hang.
    hung: Vec<String>,
    /// Disks that refuse writes.
    refusing: Vec<String>,
    /// The first group's disks as the last engine knew them, for cuts while none is in service.
    remembered: Vec<MemberStatus>,
    /// The one disk that had the newest superblock after the last cut.
    sealed: Option<String>,
}

/// Spares of one life.
const SPARES_MAX: u32 = 3;

/// Whether a disk is one that the aggregate has from the start.
pub(crate) fn is_own_disk(name: &str) -> bool {
    name.strip_prefix("disk").is_some_and(|number| number.parse::<usize>().is_ok())
}

/// A loss that the aggregate has not settled yet.
#[derive(Clone, Debug)]
struct Recent {
    /// The disk, and its place; another may have that already.
    name: String,
    slot: usize,
    /// The last consistency point when the aggregate knew.
    noticed: Option<CpNumber>,
}

impl Machine<'_> {
    /// The aggregate's disks that are there, replaced ones as well.
    #[must_use]
    pub fn disks(&self) -> Vec<Arc<dyn Disk>> {
        let is_ours = |name: &str| {
            name != LOG_DISK && !is_neighbours(name) && !self.losses.gone.contains(name)
        };
        let names = self.world.disk_names().into_iter().filter(|name| is_ours(name));
        let labelled = names.filter(|name| self.is_labelled(name));
        labelled
            .filter_map(|name| self.world.disk(&name))
            .map(|disk| self.watch.over(disk))
            .collect()
    }

    /// Whether the disk's label is there, if damaged.
    pub(crate) fn is_labelled(&self, name: &str) -> bool {
        let ends = [0, self.plan.disk_blocks - 1];
        let found = ends.iter().filter_map(|block| self.world.read_block(name, *block));
        found.into_iter().any(|block| DiskLabel::is_claimed_by(&block))
    }

    /// The disks of the first group, the only one that loses any.
    pub(crate) fn members(&self) -> Vec<MemberStatus> {
        let Some(aggregate) = self.aggregate() else { return Vec::new() };
        let status = aggregate.parts.store.status();
        status.groups.into_iter().next().map(|group| group.members).unwrap_or_default()
    }

    /// One of the disks that the plan names goes, if as many as it names are not missing already
    /// and the last loss is settled. One that is being rebuilt may go at any time.
    pub fn lose_disk(&mut self) {
        if self.is_outage() || self.has_recent_loss() {
            return;
        }
        let Some((slot, name)) = self.take_disk_away() else { return };
        self.losses.recent = Some(Recent { name, slot, noticed: None });
        let Some(aggregate) = self.aggregate() else { return };
        aggregate.force();
        aggregate.request_consistency_point(None);
    }

    /// The first group's disks, as the engine knows them or the last engine knew them.
    fn known_members(&self) -> Vec<MemberStatus> {
        match self.aggregate() {
            Some(_) => self.members(),
            None => self.losses.remembered.clone(),
        }
    }

    /// The power goes: what is known of the disks is remembered for the start.
    pub fn remember_members(&mut self) {
        if self.is_outage() {
            self.forget_members();
        } else if self.aggregate().is_some() {
            self.losses.remembered = self.members();
        }
        self.losses.sealed = None;
    }

    /// In an outage nobody knows what the labels say of the disks that were there to the end.
    pub fn forget_members(&mut self) {
        self.losses.remembered.clear();
    }

    /// A disk of those that may go later, to be the only one with a superblock: its place in the
    /// order of names.
    pub fn disk_to_seal(&self, choices: &mut Choices) -> Option<usize> {
        let members = self.known_members();
        let slots = match self.plan.lost_disks.is_empty() {
            true => (0..members.len()).collect(),
            false => self.plan.lost_disks.clone(),
        };
        let is_there = |slot: &usize| {
            let member = members.get(*slot).filter(|member| member.state == MemberState::Online);
            member
                .and_then(|member| member.name.as_ref())
                .is_some_and(|name| !self.losses.gone.contains(name))
        };
        let slots: Vec<usize> = slots.into_iter().filter(is_there).collect();
        if slots.is_empty() {
            return None;
        }
        let name = members[choices.pick(&slots)].name.clone()?;
        self.world.disk_names().iter().position(|other| **other == *name)
    }

    /// The power has gone with this fate.
    pub fn note_sealed(&mut self, fate: Fate) {
        let Fate::KeptOnOne(place) = fate else { return };
        self.trace.meet("cut: a superblock is on one disk only");
        self.losses.sealed = self.world.disk_names().get(place).map(|name| name.to_string());
    }

    /// The disk that alone had a superblock goes with the power, if it may.
    pub fn lose_sealed_disk(&mut self) {
        if self.losses.sealed.is_some() && self.lose_disk_with_power() {
            self.trace.meet("cut: during recovery, and the disk gone that had the superblock");
        }
    }

    /// Whether all disks are there and whole, as far as the last engine knew: its labels may say
    /// less than it knew of a disk that was being filled.
    fn is_whole(&self) -> bool {
        let members = self.known_members();
        let is_there = |member: &MemberStatus| {
            let name = member.name.as_ref();
            member.state == MemberState::Online
                && name.is_some_and(|name| !self.losses.gone.contains(name))
        };
        !members.is_empty() && members.iter().all(is_there)
    }

    /// The same as the power goes, settled or not. Not in an outage: its disks are there at the
    /// start, but may have missed writes.
    pub fn lose_disk_with_power(&mut self) -> bool {
        let may_go = self.aggregate().is_some() || self.is_whole();
        let is_lost = may_go && !self.is_outage() && self.take_disk_away().is_some();
        if is_lost {
            self.trace.meet("fault: disk gone with the power");
        }
        is_lost
    }

    fn take_disk_away(&mut self) -> Option<(usize, String)> {
        if self.plan.lost_disks.is_empty() || self.is_replacing() {
            return None;
        }
        let members = self.known_members();
        let is_away = |member: &MemberStatus| {
            member.name.as_ref().is_some_and(|name| self.losses.gone.contains(name))
        };
        let is_missing =
            |member: &&MemberStatus| member.state != MemberState::Online || is_away(member);
        let missing = members.iter().filter(is_missing).count();
        let may_go = |slot: &usize| match members.get(*slot) {
            Some(member) if is_away(member) => false,
            Some(member) if member.state == MemberState::Online => {
                missing < self.plan.lost_disks.len()
            }
            Some(member) => matches!(member.state, MemberState::Rebuilding { .. }),
            None => false,
        };
        let is_sealed = |slot: &usize| {
            self.losses.sealed.is_some() && members[*slot].name == self.losses.sealed
        };
        let may_go: Vec<usize> = self.plan.lost_disks.iter().copied().filter(may_go).collect();
        let sealed = may_go.iter().copied().find(is_sealed);
        let slot = sealed.or(may_go.first().copied())?;
        let name = members[slot].name.clone()?;
        self.trace.meet(match members[slot].state {
            MemberState::Online => "fault: disk gone",
            _ => "fault: disk gone while it is rebuilt",
        });
        if self.plan.fault.is_none() && self.choices.chance(REFUSE_PERCENT) {
            self.trace.meet("fault: disk refuses writes");
            self.trace.note(format!("disk {name} refuses writes"));
            let write_error_per_million = 1_000_000;
            let rates = FaultRates { write_error_per_million, ..FaultRates::default() };
            self.world.set_fault_rates(&name, rates);
            self.losses.refusing.push(name.clone());
        } else {
            self.take_away(&name);
        }
        self.losses.gone.insert(name.clone());
        Some((slot, name))
    }

    /// A disk goes, or hangs: then it answers late, or never.
    pub(crate) fn take_away(&mut self, name: &str) {
        let hangs = self.choices.chance(HANG_PERCENT);
        self.trace.note(format!("disk {name} {}", if hangs { "hangs" } else { "is gone" }));
        if hangs {
            self.trace.meet("fault: disk hangs");
            self.world.set_hung(name, true);
            self.losses.hung.push(name.to_owned());
        } else {
            self.world.set_gone(name, true);
        }
    }

    /// Disks that hung do what they were asked, late.
    pub(crate) fn answer_late(&mut self) {
        for name in std::mem::take(&mut self.losses.hung) {
            self.trace.meet("fault: a disk that hung answers late");
            self.trace.note(format!("disk {name} answers late"));
            self.world.set_hung(&name, false);
        }
    }

    fn end_refusals(&mut self) {
        for name in std::mem::take(&mut self.losses.refusing) {
            self.world.set_fault_rates(&name, FaultRates::default());
        }
    }

    /// Whether a disk has gone of late, and the consistency point that found out is not over.
    pub fn has_recent_loss(&mut self) -> bool {
        let (Some(mut recent), Some(aggregate)) = (self.losses.recent.take(), self.aggregate())
        else {
            return false;
        };
        let is_idle = aggregate.phase() == Phase::Idle;
        let is_over = match recent.noticed {
            Some(last) => is_idle || aggregate.committed() > last,
            None => false,
        };
        if recent.noticed.is_none() {
            // Another that was being filled beside it may have its place already.
            let member = self.members().into_iter().nth(recent.slot);
            let is_its = |member: &MemberStatus| member.name.as_ref() == Some(&recent.name);
            let state = member.filter(is_its).map(|member| member.state);
            match state {
                Some(MemberState::Online | MemberState::Rebuilding { .. }) if is_idle => {
                    // One that was under way was over with the disk already.
                    aggregate.force();
                    aggregate.request_consistency_point(None);
                }
                Some(MemberState::Online | MemberState::Rebuilding { .. }) => {}
                _ => recent.noticed = Some(aggregate.committed()),
            }
        }
        if is_over && self.choices.chance(LATE_PERCENT) {
            self.answer_late();
        }
        self.losses.recent = (!is_over).then_some(recent);
        self.losses.recent.is_some()
    }

    /// Whether a disk has gone that the aggregate counts on.
    fn has_unnoticed_loss(&mut self) -> bool {
        self.has_recent_loss()
            && self.losses.recent.as_ref().is_some_and(|recent| recent.noticed.is_none())
    }

    /// The engine of all this is no more.
    pub fn forget_requests_for_disks(&mut self) {
        self.losses.recent = None;
        self.losses.replacing = None;
        self.scrub = None;
        self.losses.returning = None;
        self.losses.spare = None;
    }

    /// Disks that were gone are there again at the next start; they missed what was written since.
    pub fn return_disks(&mut self) {
        self.answer_late();
        self.end_refusals();
        for name in std::mem::take(&mut self.losses.gone) {
            self.trace.meet("fault: disk back, with old content");
            self.trace.note(format!("disk {name} is back"));
            self.world.set_gone(&name, false);
        }
    }

    /// A disk that went is there again, and the node sees it.
    pub fn return_disk(&mut self) {
        if self.has_recent_loss() || self.losses.returning.is_some() || self.is_outage() {
            return;
        }
        let Some(name) = self.losses.gone.first().cloned() else { return };
        self.answer_late();
        // As with a disk that is opened for one owner only: what was asked of it has ended.
        if self.world.has_requests(&name) {
            return;
        }
        self.end_refusals();
        self.losses.gone.remove(&name);
        self.world.set_gone(&name, false);
        let Some(disk) = self.world.disk(&name) else { return };
        let disk = self.watch.over(disk);
        self.trace.meet("disk back while the node runs");
        self.trace.note(format!("disk {name} is back, and seen"));
        let engine = Arc::clone(&self.engine);
        self.losses.returning = Some(promise(|done| engine.return_disk(AGGREGATE, disk, done)));
    }

    /// The aggregate gets a spare, for the ticks to use.
    pub fn add_spare(&mut self) {
        let needs_any = !self.plan.lost_disks.is_empty() || self.has_sick_disk();
        let may_have = needs_any && self.losses.spare_count < SPARES_MAX;
        if !may_have
            || self.losses.spare.is_some()
            || self.aggregate().is_none()
            || self.is_outage()
        {
            return;
        }
        let name = format!("spare{}", self.losses.spare_count);
        self.losses.spare_count += 1;
        self.trace.meet("spare added");
        self.trace.note(format!("{name} is a spare"));
        let disk = self.watch.over(self.world.add_disk(&name, self.plan.disk_blocks));
        let engine = Arc::clone(&self.engine);
        self.losses.spare = Some(promise(|done| engine.add_spare(AGGREGATE, (disk, false), done)));
    }

    /// A disk that failed or is missing is replaced by a new one: as soon as the aggregate knows,
    /// when work that began with the old one may still be under way. Now and then it is one that
    /// works.
    pub fn replace_disk(&mut self) {
        if self.has_unnoticed_loss()
            || self.is_replacing()
            || self.plan.lost_disks.is_empty()
            || self.is_outage()
        {
            return;
        }
        let members = self.members();
        let is_lost = |member: &MemberStatus| {
            matches!(member.state, MemberState::Missing | MemberState::Failed { .. })
        };
        let may_copy = |member: &MemberStatus| {
            member.state == MemberState::Online
                && members.iter().all(|member| member.successor.is_none())
        };
        let found = match members.iter().position(is_lost) {
            Some(member) => Some(member),
            None if members.is_empty() || !self.choices.chance(30) => None,
            None => {
                let member = self.choices.index(members.len());
                members.get(member).is_some_and(may_copy).then_some(member)
            }
        };
        let Some(member) = found else { return };
        if !is_lost(&members[member]) {
            self.trace.meet("disk replaced while it works");
        }
        let name = format!("new{}", self.losses.replaced_count);
        self.losses.replaced_count += 1;
        self.trace.meet("disk replaced");
        self.trace.note(format!("disk {member} is replaced by {name}"));
        let disk = self.world.add_disk(&name, self.plan.disk_blocks);
        let (engine, place) = (Arc::clone(&self.engine), DiskPlace { group: 0, member });
        let disk = self.watch.over(disk);
        self.losses.replacing =
            Some(promise(|done| engine.replace_disk(AGGREGATE, place, (disk, false), done)));
    }

    pub(crate) fn is_replacing(&self) -> bool {
        self.losses.replacing.is_some()
    }

    /// Takes in how a replacement began.
    pub fn poll_replacement(&mut self) -> Result<(), Finding> {
        let Some(outcome) = self.losses.replacing.as_ref().and_then(|one| one.lock().take()) else {
            return Ok(());
        };
        self.losses.replacing = None;
        outcome.or_else(|error| match error {
            // A spare took the place in the same moment, or another disk of the group is copied.
            EngineError::Aggregate(AggregateError::Raid(
                RaidError::InUse { .. } | RaidError::Copying { .. },
            )) => Ok(()),
            error => Err(self.refused("replace disk", &error.to_string())),
        })
    }

    /// Takes in what became of spares, and of disks that came back.
    pub fn poll_spares(&mut self) -> Result<(), Finding> {
        if let Some(outcome) = self.losses.spare.as_ref().and_then(|one| one.lock().take()) {
            self.losses.spare = None;
            outcome.map_err(|error| self.refused("add spare", &error.to_string()))?;
        }
        if let Some(outcome) = self.losses.returning.as_ref().and_then(|one| one.lock().take()) {
            self.losses.returning = None;
            match outcome {
                Ok(()) => self.trace.meet("disk taken back while the node runs"),
                // It was replaced meanwhile, or went a moment ago: the next start takes it back.
                Err(EngineError::Aggregate(AggregateError::Raid(
                    RaidError::NotMissed { .. }
                    | RaidError::Unsettled { .. }
                    | RaidError::InUse { .. },
                ))) => {}
                Err(error) => return Err(self.refused("return disk", &error.to_string())),
            }
        }
        Ok(())
    }
}
