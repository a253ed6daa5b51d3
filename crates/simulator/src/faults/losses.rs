//! Disks that go at moments under load, or with the power; come back at a start with what they had
//! when they went; and are replaced by new ones, which are rebuilt.
//!
//! Invariant: no more disks are missing than the plan says, those that are being rebuilt and those
//! that the aggregate has not missed yet included.

use crate::faults::log_on_disks;
use crate::machine::{AGGREGATE, Machine};
use crate::seed::finding::Finding;
use aggregate::{AggregateError, Phase};
use dblade::EngineError;
use platform::completion::{Promise, promise};
use raid::{DiskPlace, MemberState, MemberStatus, RaidError};
use std::sync::Arc;
use units::CpNumber;

/// Of 100 that hang, those that answer later, while all goes on without them.
const LATE_PERCENT: u64 = 50;

/// See the module.
#[derive(Default)]
pub struct Losses {
    recent: Option<Recent>,
    replacing: Option<Promise<Result<(), EngineError>>>,
    replaced_count: u32,
    returning: Option<Promise<Result<(), EngineError>>>,
    spare: Option<Promise<Result<(), EngineError>>>,
    spare_count: u32,
}

/// Spares of one life.
const SPARES_MAX: u32 = 3;

/// A loss that the aggregate has not settled yet.
#[derive(Clone, Debug)]
struct Recent {
    /// The disk, and its place; another may have that already.
    name: String,
    slot: usize,
    /// The last consistency point when the aggregate knew.
    noticed: Option<CpNumber>,
}

impl Losses {
    /// One of the disks that the plan names goes, if as many as it names are not missing already
    /// and the last loss is settled. One that is being rebuilt may go at any time.
    pub fn lose_disk(&mut self, machine: &mut Machine<'_>) {
        if machine.is_outage() || self.has_recent(machine) {
            return;
        }
        let Some((slot, name)) = self.take_disk_away(machine) else { return };
        self.recent = Some(Recent { name, slot, noticed: None });
        let Some(aggregate) = machine.aggregate() else { return };
        aggregate.force();
        aggregate.request_consistency_point(None);
    }

    /// The disk that alone had a superblock goes with the power, if it may.
    pub fn lose_sealed_disk(&mut self, machine: &mut Machine<'_>) {
        if machine.sealed_disk().is_some() && self.lose_disk_with_power(machine) {
            machine.trace.meet("cut: during recovery, and the disk gone that had the superblock");
        }
    }

    /// The same as the power goes, settled or not. Not in an outage: its disks are there at the
    /// start, but may have missed writes.
    pub fn lose_disk_with_power(&mut self, machine: &mut Machine<'_>) -> bool {
        let may_go = machine.aggregate().is_some() || machine.is_whole();
        let is_lost = may_go && !machine.is_outage() && self.take_disk_away(machine).is_some();
        if is_lost {
            machine.trace.meet("fault: disk gone with the power");
        }
        is_lost
    }

    fn take_disk_away(&mut self, machine: &mut Machine<'_>) -> Option<(usize, String)> {
        let is_calm = machine.plan.lost_disks.is_empty() || self.is_replacing();
        if is_calm || !log_on_disks::may_lose_copy(machine) {
            return None;
        }
        let members = machine.known_members();
        let is_away =
            |member: &MemberStatus| member.name.as_ref().is_some_and(|name| machine.is_gone(name));
        let is_missing =
            |member: &&MemberStatus| member.state != MemberState::Online || is_away(member);
        let missing = members.iter().filter(is_missing).count();
        let may_go = |slot: &usize| match members.get(*slot) {
            Some(member) if is_away(member) => false,
            Some(member) if member.state == MemberState::Online => {
                missing < machine.plan.lost_disks.len()
            }
            Some(member) => matches!(member.state, MemberState::Rebuilding { .. }),
            None => false,
        };
        let is_sealed = |slot: &usize| {
            let sealed = machine.sealed_disk();
            sealed.is_some() && members[*slot].name.as_ref() == sealed
        };
        let may_go: Vec<usize> = machine.plan.lost_disks.iter().copied().filter(may_go).collect();
        let sealed = may_go.iter().copied().find(is_sealed);
        let slot = sealed.or(may_go.first().copied())?;
        let name = members[slot].name.clone()?;
        machine.trace.meet(match members[slot].state {
            MemberState::Online => "fault: disk gone",
            _ => "fault: disk gone while it is rebuilt",
        });
        machine.lose(&name);
        Some((slot, name))
    }

    /// Whether a disk has gone of late, and the consistency point that found out is not over.
    pub fn has_recent(&mut self, machine: &mut Machine<'_>) -> bool {
        let (Some(mut recent), Some(aggregate)) = (self.recent.take(), machine.aggregate()) else {
            return false;
        };
        let is_idle = aggregate.phase() == Phase::Idle;
        let is_over = match recent.noticed {
            Some(last) => is_idle || aggregate.committed() > last,
            None => false,
        };
        if recent.noticed.is_none() {
            // Another that was being filled beside it may have its place already.
            let member = machine.members().into_iter().nth(recent.slot);
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
        if is_over && machine.choices.chance(LATE_PERCENT) {
            machine.answer_late();
        }
        self.recent = (!is_over).then_some(recent);
        self.recent.is_some()
    }

    /// Whether a disk has gone that the aggregate counts on.
    fn has_unnoticed(&mut self, machine: &mut Machine<'_>) -> bool {
        self.has_recent(machine)
            && self.recent.as_ref().is_some_and(|recent| recent.noticed.is_none())
    }

    /// The engine of all this is no more.
    pub fn forget(&mut self) {
        self.recent = None;
        self.replacing = None;
        self.returning = None;
        self.spare = None;
    }

    /// A disk that went is there again, and the node sees it.
    pub fn return_disk(&mut self, machine: &mut Machine<'_>) {
        if self.has_recent(machine) || self.returning.is_some() || machine.is_outage() {
            return;
        }
        let Some(name) = machine.gone_disk() else { return };
        let Some(disk) = machine.find_again(&name) else { return };
        machine.trace.meet("disk back while the node runs");
        machine.trace.note(format!("disk {name} is back, and seen"));
        let engine = Arc::clone(&machine.engine);
        self.returning = Some(promise(|done| engine.return_disk(AGGREGATE, disk, None, done)));
    }

    /// The aggregate gets a spare, for the ticks to use.
    pub fn add_spare(&mut self, machine: &mut Machine<'_>) {
        let needs_any = !machine.plan.lost_disks.is_empty() || machine.plan.has_sick_disk();
        let may_have = needs_any && self.spare_count < SPARES_MAX;
        if !may_have || self.spare.is_some() || machine.aggregate().is_none() || machine.is_outage()
        {
            return;
        }
        let name = format!("spare{}", self.spare_count);
        self.spare_count += 1;
        machine.trace.meet("spare added");
        machine.trace.note(format!("{name} is a spare"));
        let disk = machine.watch.over(machine.world.add_disk(&name, machine.plan.disk_blocks));
        let engine = Arc::clone(&machine.engine);
        self.spare = Some(promise(|done| engine.add_spare(AGGREGATE, (disk, false), done)));
    }

    /// More disks go than the group can do without, if nothing is under way with any.
    pub fn begin_outage(&mut self, machine: &mut Machine<'_>) {
        if machine.may_have_outage() && !self.is_replacing() && !self.has_recent(machine) {
            machine.begin_outage();
        }
    }

    /// A disk that failed or is missing is replaced by a new one: as soon as the aggregate knows,
    /// when work that began with the old one may still be under way. Now and then it is one that
    /// works.
    pub fn replace_disk(&mut self, machine: &mut Machine<'_>) {
        if self.has_unnoticed(machine)
            || self.is_replacing()
            || machine.plan.lost_disks.is_empty()
            || machine.is_outage()
        {
            return;
        }
        let members = machine.members();
        let is_lost = |member: &MemberStatus| {
            matches!(member.state, MemberState::Missing | MemberState::Failed { .. })
        };
        let may_copy = |member: &MemberStatus| {
            member.state == MemberState::Online
                && members.iter().all(|member| member.replacement.is_none())
        };
        let found = match members.iter().position(is_lost) {
            Some(member) => Some(member),
            None if members.is_empty() || !machine.choices.chance(30) => None,
            None => {
                let member = machine.choices.index(members.len());
                members.get(member).is_some_and(may_copy).then_some(member)
            }
        };
        let Some(member) = found else { return };
        if !is_lost(&members[member]) {
            machine.trace.meet("disk replaced while it works");
        }
        let name = format!("new{}", self.replaced_count);
        self.replaced_count += 1;
        machine.trace.meet("disk replaced");
        machine.trace.note(format!("disk {member} is replaced by {name}"));
        let disk = machine.world.add_disk(&name, machine.plan.disk_blocks);
        let (engine, place) = (Arc::clone(&machine.engine), DiskPlace { group: 0, member });
        let disk = machine.watch.over(disk);
        self.replacing =
            Some(promise(|done| engine.replace_disk(AGGREGATE, place, (disk, false, None), done)));
    }

    const fn is_replacing(&self) -> bool {
        self.replacing.is_some()
    }

    /// Takes in how a replacement began.
    pub fn poll_replacement(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let Some(outcome) = self.replacing.as_ref().and_then(|one| one.lock().take()) else {
            return Ok(());
        };
        self.replacing = None;
        outcome.or_else(|error| match error {
            // A spare took the place in the same moment, or another disk of the group is copied.
            EngineError::Aggregate(AggregateError::Raid(
                RaidError::InUse { .. } | RaidError::Copying { .. },
            )) => Ok(()),
            error => Err(machine.refused("replace disk", &error.to_string())),
        })
    }

    /// Takes in what became of spares, and of disks that came back.
    pub fn poll_spares(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        if let Some(outcome) = self.spare.as_ref().and_then(|one| one.lock().take()) {
            self.spare = None;
            outcome.map_err(|error| machine.refused("add spare", &error.to_string()))?;
        }
        if let Some(outcome) = self.returning.as_ref().and_then(|one| one.lock().take()) {
            self.returning = None;
            match outcome {
                Ok(()) => machine.trace.meet("disk taken back while the node runs"),
                // It was replaced meanwhile, or went a moment ago: the next start takes it back.
                Err(EngineError::Aggregate(AggregateError::Raid(
                    RaidError::NotMissed { .. }
                    | RaidError::Unsettled { .. }
                    | RaidError::InUse { .. },
                ))) => {}
                Err(error) => return Err(machine.refused("return disk", &error.to_string())),
            }
        }
        Ok(())
    }
}
