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
//!   (`tries`), but at once when another disk comes.
//! - A disk is given to an aggregate in service only if its label names a place that it misses.
//! - An aggregate that a check reads while it is out of service is neither opened nor given disks.
//!
//! Fails: never; what is wrong is in the status.

use crate::aggregates::names_of;
use crate::disks::labels::{Candidate, Doubtful, Found};
use crate::exports;
use crate::node::OfflineAggregate;
use crate::recovery::room::Recovery;
use crate::recovery::start::Unopened;
use dblade::{AggregateSummary, LostLog, Outage};
use platform::mutation::{self, Rule};
use raid::{MemberState, MemberStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{AggregateUuid, DiskUuid};

/// How long a journal may be gone before it is noticed.
const PROBE_INTERVAL_NANOSECONDS: u64 = 5_000_000_000;

impl Recovery {
    /// Looks whether disks that are missed are there again, and does what follows.
    pub(crate) fn bring_back(&self) {
        if self.node.engine.outages().is_empty()
            && self.node.offline.lock().is_empty()
            && self.missing_disks().is_empty()
        {
            return;
        }
        let Some(_turn) = self.node.turn_now() else { return };
        let (outages, missing) = (self.node.engine.outages(), self.missing_disks());
        self.aggregates.let_go_of_former_disks();
        for Outage { summary, .. } in &outages {
            self.let_go_of(&summary.name);
        }
        for (aggregate, members) in &missing {
            // What failed is open by a handle that is dead, unless the aggregate got the disk anew.
            let names = names_of(aggregate);
            let is_dead = |name: &&str| names.iter().filter(|other| *other == name).count() < 2;
            let lost = members.iter().filter_map(|member| member.name.as_deref());
            lost.filter(is_dead).for_each(|name| self.disks.give_up(name));
        }
        let wanted: BTreeMap<AggregateUuid, String> = {
            let offline = self.node.offline.lock();
            let offline = offline.iter().map(|one| (one.identity, one.name.clone()));
            let away = outages.iter().map(|one| (one.summary.identity, one.summary.name.clone()));
            // A check reads the disks of an aggregate as they are.
            offline
                .chain(away)
                .filter(|(identity, _)| !self.checks.table.is_at_rest(identity))
                .filter(|(identity, _)| !self.disks.deleted.has(identity))
                .collect()
        };
        let mut names = self.disks.names();
        names.retain(|name| !self.disks.is_held(name) && !self.checks.table.has_disk(name));
        let found = Found::on(names, |name| self.disks.look(name));
        let mut candidates = found.candidates;
        candidates.retain(|identity, _| !self.disks.deleted.has(identity));
        for (identity, name) in wanted {
            let Some(candidate) = candidates.remove(&identity) else { continue };
            self.try_candidate(identity, &name, candidate, &found.doubtful);
        }
        for (aggregate, members) in missing {
            if self.checks.table.is_at_rest(&aggregate.identity) {
                continue;
            }
            let Some(candidate) = candidates.remove(&aggregate.identity) else { continue };
            self.take_back(&aggregate.name, &members, candidate);
        }
    }

    /// Looks now and then whether the journals are still there, also where nobody changes anything.
    pub(crate) fn probe_journals(&self) {
        let now = self.node.clock.monotonic_nanoseconds();
        let last = self.probed_nanoseconds.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= PROBE_INTERVAL_NANOSECONDS {
            self.probed_nanoseconds.store(now, Ordering::Relaxed);
            self.node.engine.probe_logs();
            self.node.engine.mend_logs();
        }
    }

    /// The disks that aggregates in service miss and would take back.
    fn missing_disks(&self) -> Vec<(AggregateSummary, Vec<MemberStatus>)> {
        let is_missed = |member: &&MemberStatus| {
            let is_lost = matches!(member.state, MemberState::Missing | MemberState::Failed { .. });
            is_lost && member.is_away
        };
        let summaries = self.node.engine.aggregate_summaries().into_iter();
        let with_missed = summaries.map(|summary| {
            let members = summary.status.groups.iter().flat_map(|group| &group.members);
            let missed = members.filter(is_missed).cloned().collect();
            (summary, missed)
        });
        with_missed.filter(|(_, missed): &(_, Vec<_>)| !missed.is_empty()).collect()
    }

    /// Gives an aggregate in service those of its disks that it misses.
    fn take_back(&self, aggregate: &str, missed: &[MemberStatus], candidate: Candidate) {
        let is_missed = |identity: &DiskUuid| missed.iter().any(|one| one.identity == *identity);
        for (_, disk) in candidate.disks.into_iter().filter(|(identity, _)| is_missed(identity)) {
            let (engine, given) = (&self.node.engine, Arc::clone(&disk));
            let returned = self.node.waits.request("cannot take back disk", disk.name(), |done| {
                engine.return_disk(aggregate, given, None, done);
            });
            let name = disk.name().to_owned();
            match returned {
                Ok(()) => {
                    tracing::info!(
                        aggregate,
                        disk = name,
                        "a disk is back and is brought up to date"
                    );
                    self.node.left_out.lock().retain(|left| left.name != name);
                    self.disks.release(&name);
                    self.disks.hold(aggregate, &[disk]);
                }
                Err(error) => tracing::debug!(aggregate, disk = name, %error, "not taken back yet"),
            }
        }
    }

    fn try_candidate(
        &self,
        identity: AggregateUuid,
        name: &str,
        candidate: Candidate,
        doubtful: &Doubtful,
    ) {
        let now = self.node.clock.monotonic_nanoseconds();
        let (found, is_complete) = (candidate.found(), candidate.is_complete());
        let is_free = self.node.engine.is_closed(&identity);
        // A disk that another process has, or a newer build labelled, may be the one that is
        // missing.
        let is_busy = doubtful.busy.iter().any(|name| !self.disks.hangs(name));
        let is_doubtful = !is_complete && (is_busy || !doubtful.newer.is_empty());
        if !candidate.is_enough()
            || !is_free
            || is_doubtful
            || !self.tries.is_due(identity, (&found, is_complete), now)
        {
            return;
        }
        self.tries.note(identity, found, now);
        let opened = self.open_again((identity, name), candidate, LostLog::Refused);
        if let Err(Unopened { error, .. }) = opened {
            tracing::error!(aggregate = name, %error, "the aggregate stays out of service");
        }
    }

    /// Opens an aggregate that is out of service; if it stays so, says how.
    pub(crate) fn open_again(
        &self,
        (identity, name): (AggregateUuid, &str),
        candidate: Candidate,
        if_lost: LostLog,
    ) -> Result<dblade::Recovery, Unopened> {
        let seen = candidate.seen();
        match self.open_disks(name, candidate.into_disks(), if_lost) {
            Ok(recovery) => {
                self.welcome(identity, name);
                Ok(recovery)
            }
            Err(unopened) => {
                let Unopened { error, journal_lost } = unopened.clone();
                let name = name.to_owned();
                let mut offline = self.node.offline.lock();
                // A try that failed otherwise does not tell that the journal is back.
                let before = offline.iter().find(|one| one.identity == identity);
                let journal_lost = journal_lost.or(before.and_then(|one| one.journal_lost));
                offline.retain(|one| one.identity != identity);
                offline.push(OfflineAggregate { identity, name, seen, error, journal_lost });
                Err(unopened)
            }
        }
    }

    /// An aggregate is in service again.
    fn welcome(&self, identity: AggregateUuid, name: &str) {
        tracing::info!(aggregate = name, "the aggregate is back in service");
        self.node.offline.lock().retain(|one| one.identity != identity);
        let held: Vec<String> = self.disks.held_by(name);
        self.node.left_out.lock().retain(|disk| !held.contains(&disk.name));
        // A deletion that the outage cut off may have happened.
        for (_, volume) in self.node.front_ends.exported() {
            if self.node.engine.is_gone(volume) && !mutation::broken(Rule::GoneVolumeExported) {
                self.node.front_ends.forget_exports(volume);
            }
        }
        // Those of the recovery queue, too: one may have entered it, or left it.
        for volume in self.node.engine.volumes() {
            if volume.aggregate.parts.identity.aggregate == identity {
                exports::publish(&*self.node.front_ends, &volume);
            }
        }
        self.node.front_ends.set_away(identity, false);
    }
}
