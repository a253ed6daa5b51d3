//! Disks that are missed, looked for: aggregates that are out of service are opened again with
//! them, and aggregates in service take back what is theirs.
//!
//! A thread looks once a second, as long as a disk is missed: by an aggregate that lost more disks
//! than it can do without, by one that could not be opened at the start, or by one that does
//! without some. It opens the disks that the configuration names and that nobody uses, reads their
//! labels, opens aggregates when their disks are enough, and gives others the disks that they miss.
//! Nothing is asked of an administrator but the disks.
//!
//! Invariants:
//! - It is done in the turn of administrators: no disk is given away while it is looked at.
//! - An aggregate whose opening fails, or that fails again at once, is tried again later and later
//!   ([`RETRY_NANOSECONDS_MAX`]), but at once when another disk comes.
//! - A disk is given to an aggregate in service only if its label names a place that it misses.
//! - An aggregate that a check reads while it is out of service is neither opened nor given disks.
//!
//! Fails: never; what is wrong is in the status.

use super::blocking::request;
use super::candidates::{Candidate, Found};
use super::core::Core;
use super::recovery::OfflineAggregate;
use dblade::AggregateSummary;
use platform::sync::Mutex;
use raid::{MemberState, MemberStatus};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How long others may come later than those that are enough: a shelf's disks start one after
/// another, and one that is there when the aggregate is opened need not be missed first.
const REST_NANOSECONDS: u64 = 5_000_000_000;
/// The wait after an opening that failed; each further one is twice as long.
const RETRY_NANOSECONDS_MIN: u64 = 2_000_000_000;
/// And at most: what failed for another reason than disks is opened within a minute of its end.
const RETRY_NANOSECONDS_MAX: u64 = 60_000_000_000;

/// What came of the last try with an aggregate.
struct Try {
    found: BTreeSet<[u8; 16]>,
    wait_nanoseconds: u64,
    not_before_nanoseconds: u64,
}

/// The tries, by aggregate.
#[derive(Default)]
pub(super) struct Tries(Mutex<BTreeMap<[u8; 16], Try>>);

impl Tries {
    /// Whether to try now, with these disks.
    fn is_due(&self, aggregate: [u8; 16], disks: (&BTreeSet<[u8; 16]>, bool), now: u64) -> bool {
        let (found, is_complete) = disks;
        let mut tries = self.0.lock();
        match tries.get(&aggregate) {
            Some(last) if last.found == *found => now >= last.not_before_nanoseconds,
            _ if is_complete => true,
            _ => {
                let (wait_nanoseconds, found) = (RETRY_NANOSECONDS_MIN / 2, found.clone());
                let not_before_nanoseconds = now.saturating_add(REST_NANOSECONDS);
                let next = Try { found, wait_nanoseconds, not_before_nanoseconds };
                tries.insert(aggregate, next);
                false
            }
        }
    }

    /// Notes a try: the next one with these disks comes later. One that went well long ago does not
    /// count.
    fn note(&self, aggregate: [u8; 16], found: BTreeSet<[u8; 16]>, now: u64) {
        let mut tries = self.0.lock();
        let wait = tries.get(&aggregate).map_or(RETRY_NANOSECONDS_MIN, |last| {
            let is_old = now >= last.not_before_nanoseconds.saturating_add(RETRY_NANOSECONDS_MAX);
            let doubled = (2 * last.wait_nanoseconds).min(RETRY_NANOSECONDS_MAX);
            if is_old { RETRY_NANOSECONDS_MIN } else { doubled }
        });
        let not_before_nanoseconds = now.saturating_add(wait);
        let next = Try { found, wait_nanoseconds: wait, not_before_nanoseconds };
        tries.insert(aggregate, next);
    }
}

impl Core {
    /// What is to be done about disks every second.
    pub(super) fn watch_disks(&self) {
        self.disks.locating.tick(self.clock.monotonic_nanoseconds());
        self.watch_leaving();
        self.expire_checks();
        self.bring_back();
    }

    /// Looks whether disks that are missed are there again, and does what follows.
    fn bring_back(&self) {
        if self.engine.outages().is_empty()
            && self.offline.lock().is_empty()
            && self.missing_disks().is_empty()
        {
            return;
        }
        let _turn = self.turn();
        let (outages, missing) = (self.engine.outages(), self.missing_disks());
        self.let_go_of_former_disks();
        for outage in &outages {
            self.disks.keep(&outage.summary.name, &[]);
        }
        // What failed is open by a handle that is dead.
        let dead = missing.iter().flat_map(|(_, members)| members);
        dead.filter_map(|member| member.name.as_deref()).for_each(|name| self.disks.give_up(name));
        let wanted: BTreeMap<[u8; 16], String> = {
            let offline = self.offline.lock();
            let offline = offline.iter().map(|one| (one.identity, one.name.clone()));
            let away = outages.iter().map(|one| (one.summary.identity, one.summary.name.clone()));
            // A check reads the disks of an aggregate as they are.
            offline.chain(away).filter(|(identity, _)| !self.checks.is_at_rest(identity)).collect()
        };
        let mut names = self.disks.names();
        names.retain(|name| !self.disks.is_held(name) && !self.checks.has_disk(name));
        let found = Found::on(names, |name| self.disks.look(name));
        let mut candidates = found.candidates;
        for (identity, name) in wanted {
            let Some(candidate) = candidates.remove(&identity) else { continue };
            self.try_candidate(identity, &name, candidate, &found.busy);
        }
        for (aggregate, members) in missing {
            if self.checks.is_at_rest(&aggregate.identity) {
                continue;
            }
            let Some(candidate) = candidates.remove(&aggregate.identity) else { continue };
            self.take_back(&aggregate.name, &members, candidate);
        }
    }

    /// The disks that aggregates in service miss and would take back.
    fn missing_disks(&self) -> Vec<(AggregateSummary, Vec<MemberStatus>)> {
        let is_missed = |member: &&MemberStatus| {
            let is_lost = matches!(member.state, MemberState::Missing | MemberState::Failed { .. });
            is_lost && member.is_away
        };
        let summaries = self.engine.aggregate_summaries().into_iter();
        let with_missed = summaries.map(|summary| {
            let members = summary.status.groups.iter().flat_map(|group| &group.members);
            let missed = members.filter(is_missed).cloned().collect();
            (summary, missed)
        });
        with_missed.filter(|(_, missed): &(_, Vec<_>)| !missed.is_empty()).collect()
    }

    /// Gives an aggregate in service those of its disks that it misses.
    fn take_back(&self, aggregate: &str, missed: &[MemberStatus], candidate: Candidate) {
        let is_missed = |identity: &[u8; 16]| missed.iter().any(|one| one.identity == *identity);
        for (_, disk) in candidate.disks.into_iter().filter(|(identity, _)| is_missed(identity)) {
            let (engine, given) = (&self.engine, Arc::clone(&disk));
            let returned = request("cannot take back disk", disk.name(), |done| {
                engine.return_disk(aggregate, given, done);
            });
            let name = disk.name().to_owned();
            match returned {
                Ok(()) => {
                    tracing::info!(
                        aggregate,
                        disk = name,
                        "a disk is back and is brought up to date"
                    );
                    self.left_out.lock().retain(|left| left.name != name);
                    self.disks.release(&name);
                    self.disks.hold(aggregate, &[disk]);
                }
                Err(error) => tracing::debug!(aggregate, disk = name, %error, "not taken back yet"),
            }
        }
    }

    fn try_candidate(&self, identity: [u8; 16], name: &str, candidate: Candidate, busy: &[String]) {
        let now = self.clock.monotonic_nanoseconds();
        let (found, is_complete) = (candidate.found(), candidate.is_complete());
        let is_free = self.engine.is_closed(&identity);
        // One that another process has may be the one that is missing.
        let is_busy = !is_complete && busy.iter().any(|name| !self.disks.hangs(name));
        if !candidate.is_enough()
            || !is_free
            || is_busy
            || !self.tries.is_due(identity, (&found, is_complete), now)
        {
            return;
        }
        self.tries.note(identity, found, now);
        let (kind, disks) = (candidate.kind(), candidate.names());
        match self.open_disks(name, candidate.into_disks()) {
            Ok(()) => self.welcome(identity, name),
            Err(error) => {
                tracing::error!(aggregate = name, %error, "the aggregate stays out of service");
                let mut offline = self.offline.lock();
                offline.retain(|one| one.identity != identity);
                let name = name.to_owned();
                offline.push(OfflineAggregate { identity, name, kind, disks, error });
            }
        }
    }

    /// An aggregate is in service again.
    fn welcome(&self, identity: [u8; 16], name: &str) {
        tracing::info!(aggregate = name, "the aggregate is back in service");
        self.offline.lock().retain(|one| one.identity != identity);
        let held: Vec<String> = self.disks.held_by(name);
        self.left_out.lock().retain(|disk| !held.contains(&disk.name));
        for volume in self.served() {
            if volume.aggregate.parts.identity.aggregate == identity {
                self.publish_exports(&volume);
            }
        }
        self.exports.set_away(dblade::file_system_of(identity), false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_failed_is_repeated_later_and_at_once_with_another_disk() {
        let tries = Tries::default();
        let (one, two) = (BTreeSet::from([[1; 16]]), BTreeSet::from([[1; 16], [2; 16]]));
        let is_due = |at: u8, found, now| tries.is_due([at; 16], (found, true), now);
        assert!(is_due(7, &one, 0));
        tries.note([7; 16], one.clone(), 0);
        assert!(!is_due(7, &one, RETRY_NANOSECONDS_MIN - 1));
        assert!(is_due(7, &one, RETRY_NANOSECONDS_MIN));
        assert!(is_due(7, &two, 1) && is_due(8, &one, 1));
        tries.note([7; 16], one.clone(), RETRY_NANOSECONDS_MIN);
        let next = 3 * RETRY_NANOSECONDS_MIN;
        assert!(!is_due(7, &one, next - 1) && is_due(7, &one, next));
        (0..40).for_each(|_| tries.note([7; 16], one.clone(), next));
        assert!(is_due(7, &one, next + RETRY_NANOSECONDS_MAX));
        let late = next + 2 * RETRY_NANOSECONDS_MAX;
        tries.note([7; 16], one.clone(), late);
        assert!(is_due(7, &one, late + RETRY_NANOSECONDS_MIN));
    }

    #[test]
    fn disks_that_are_enough_wait_a_moment_for_the_others() {
        let tries = Tries::default();
        let (one, two) = (BTreeSet::from([[1; 16]]), BTreeSet::from([[1; 16], [2; 16]]));
        let is_due = |found, is_complete, now| tries.is_due([7; 16], (found, is_complete), now);
        assert!(!is_due(&one, false, 0) && !is_due(&one, false, REST_NANOSECONDS - 1));
        assert!(is_due(&one, false, REST_NANOSECONDS));
        assert!(!is_due(&two, false, REST_NANOSECONDS), "another may follow this one");
        assert!(is_due(&BTreeSet::from([[3; 16]]), true, REST_NANOSECONDS));
    }
}
