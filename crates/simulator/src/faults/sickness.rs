//! A disk that gets sick: many of its blocks become unreadable, or rot, and there are spares. It is
//! noticed, copied to a spare while it is used, and loses its place.
//!
//! Invariants: what was counted of a disk before a clean stop is known after the start; a disk that
//! is sick, or was retired, had as many errors as that takes, and it is the one with the faults
//! unless it failed as a whole. That nothing acknowledged is lost by all this is checked as always.

use crate::machine::{Machine, disk_name};
use crate::seed::finding::Finding;
use ondisk::label::Sickness;
use raid::{
    ErrorCounts, FAILURES_MAX, MemberState, MemberStatus, ROTTEN_BLOCKS_MAX, UNREADABLE_BLOCKS_MAX,
};
use std::collections::BTreeMap;
use units::DiskUuid;

/// What was known of disks in use before a stop, by identity.
type Remembered = BTreeMap<DiskUuid, (ErrorCounts, Option<Sickness>)>;

fn known(members: Vec<MemberStatus>) -> Remembered {
    let used = members.into_iter().filter(|member| member.state == MemberState::Online);
    used.map(|member| (member.identity, (member.errors, member.sickness))).collect()
}

/// See the module.
#[derive(Default)]
pub struct ErrorsKept {
    at_stop: Remembered,
}

impl ErrorsKept {
    /// Before a clean stop.
    pub fn remember(&mut self, machine: &Machine<'_>) {
        self.at_stop = known(machine.members());
    }

    /// After the start that follows it.
    pub fn check_kept(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let before = std::mem::take(&mut self.at_stop);
        for (identity, after) in known(machine.members()) {
            let Some(before) = before.get(&identity) else { continue };
            let (old, new) = (before.0, after.0);
            let is_kept = new.read_errors >= old.read_errors
                && new.write_errors >= old.write_errors
                && new.checksum_errors >= old.checksum_errors
                && (before.1.is_none() || before.1 == after.1);
            if !is_kept {
                return Err(Finding::Listing {
                    what: "errors of a disk after a clean stop".to_owned(),
                    expected: format!("{before:?} or more"),
                    found: format!("{after:?}"),
                });
            }
            if old != ErrorCounts::default() {
                machine.trace.meet("errors: kept over a clean stop");
            }
        }
        Ok(())
    }
}

/// Disks that are sick, or were retired, had reason to.
///
/// # Errors
/// [`Finding::Listing`].
pub fn check_health(machine: &mut Machine<'_>) -> Result<(), Finding> {
    let Some(aggregate) = machine.aggregate() else { return Ok(()) };
    let status = aggregate.parts.store.status();
    let members = status.groups.into_iter().flat_map(|group| group.members);
    let sick = members.filter_map(|member| {
        Some((member.name?, member.sickness?, member.errors, "errors: a disk is sick"))
    });
    let retired = status.retired.into_iter().map(|disk| {
        (disk.name, disk.sickness, disk.errors, "errors: a sick disk was copied to a spare")
    });
    for (name, sickness, errors, what) in sick.chain(retired) {
        machine.trace.meet(what);
        if !has_reason(machine, &name, sickness, errors) {
            return Err(Finding::Listing {
                what: format!("the errors of disk {name}, which is {sickness:?}"),
                expected: "as many as make it that".to_owned(),
                found: format!("{errors:?}"),
            });
        }
    }
    Ok(())
}

fn has_reason(machine: &Machine<'_>, name: &str, sickness: Sickness, errors: ErrorCounts) -> bool {
    let counters = machine.world.counters();
    let is_faulty = machine.plan.fault.is_some_and(|(disk, _)| disk_name(disk) == name);
    let (counted, caused, least) = match sickness {
        Sickness::Unreadable => (errors.read_errors, counters.latent_errors, UNREADABLE_BLOCKS_MAX),
        Sickness::Rotten => {
            let lost = counters.lost_writes + counters.misdirected_writes;
            (errors.checksum_errors, counters.flipped_bits + lost, ROTTEN_BLOCKS_MAX)
        }
        Sickness::Unreliable => {
            let failures = errors.read_errors.saturating_add(errors.write_errors);
            return failures as usize >= FAILURES_MAX;
        }
    };
    is_faulty && counted as usize >= least && caused as usize >= least
}
