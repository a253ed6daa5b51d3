//! The start: finds the aggregates on the disks and brings each into service.
//!
//! Invariants: an aggregate that cannot be opened stops no other one; it is reported with its
//! reason ([`OfflineAggregate`]) and its disks are let go of, so that tools can look at them. No
//! aggregate starts degraded while a disk that may be the missing one is in use by another
//! process, or was labelled by a newer build: what is written meanwhile would make that disk
//! useless. What is not opened here is opened later, when its disks come
//! ([`crate::recovery::returning`]).
//!
//! Fails: never as a whole.

use crate::aggregates::names_of;
use crate::disks::labels::{Candidate, Doubtful, Found};
use crate::disks::table::title;
use crate::exports;
use crate::node::{LeftOut, OfflineAggregate};
use crate::patience::Patience;
use crate::recovery::room::Recovery;
use crate::refusals::refusal;
use admin_api::{AdminError, Code, Time};
use aggregate::AggregateError;
use dblade::{EngineError, LostLog};
use media::MediaError;
use platform::Disk;
use std::sync::Arc;
use units::{DiskUuid, Timestamp, shell_word};

const MESSAGE: &str = "cannot open aggregate";

/// Why an aggregate was not opened.
#[derive(Clone, Debug)]
pub(crate) struct Unopened {
    pub error: AdminError,
    /// See [`OfflineAggregate::journal_lost`].
    pub journal_lost: Option<Timestamp>,
}

impl From<AdminError> for Unopened {
    fn from(error: AdminError) -> Self {
        Self { error, journal_lost: None }
    }
}

fn unopened(name: &str, error: &EngineError) -> Unopened {
    let refused = refusal(MESSAGE, name, error);
    if matches!(error, EngineError::Journal { .. }) {
        return refused
            .try_next(
                "bring the journal back, and the aggregate is opened by itself; if it is lost, \
                 move away what is in its place, and see 'stroop status'",
            )
            .into();
    }
    if matches!(error, EngineError::Aggregate(AggregateError::NoSuperblock { .. })) {
        return refused
            .because(
                "a 'stroop aggr create' that was interrupted leaves this, and so do superblocks that \
                 were damaged or erased",
            )
            .try_next(format!(
                "stroop check aggr {name}; only if it was never created to the end: stroop aggr \
                 delete {name} --force, which sets its disks free"
            ))
            .into();
    }
    let EngineError::JournalLost { committed, .. } = error else { return refused.into() };
    let since = Time(*committed);
    let error = refused
        .because(format!("what was acknowledged since {since} may be only there"))
        .try_next(format!(
            "bring it back (from below a mount point, perhaps), and the aggregate is opened by itself; \
             or do without what is lost: stroop aggr online {name} --without-journal"
        ));
    Unopened { error, journal_lost: Some(*committed) }
}

/// The refusal of an aggregate whose disks others may read. None of them is left out instead: the
/// aggregate would go on without it, and the disk would be out of date.
fn exposed_error(name: &str, exposed: &[String]) -> AdminError {
    let words: Vec<String> = exposed.iter().map(|disk| shell_word(disk)).collect();
    AdminError::new(Code::Denied, MESSAGE, name)
        .because(format!(
            "others than their owner may use the files of these disks: {}",
            exposed.join(", ")
        ))
        .try_next(format!(
            "chmod 600 {}, and the aggregate is opened by itself, or at once by: stroop aggr \
             online {name}",
            words.join(" ")
        ))
}

impl Recovery {
    /// Opens every aggregate that the disks hold.
    pub(crate) fn open_aggregates(&self) {
        let patience = Patience::new(Arc::clone(&self.node.clock), self.node.waits.clone());
        let mut found =
            Found::on(self.disks.names(), |name| self.disks.look_patiently(name, &patience));
        found.candidates.retain(|identity, _| !self.disks.deleted.has(identity));
        for (name, identity, error) in &found.left_out {
            self.leave_out(name, *identity, error);
        }
        for (identity, candidate) in found.candidates {
            self.journals.await_free(&identity, &patience);
            self.open_candidate(candidate, &found.doubtful);
        }
        self.node.engine.volumes().iter().for_each(|volume| {
            exports::publish(&*self.node.front_ends, volume);
        });
    }

    fn leave_out(&self, name: &str, identity: Option<DiskUuid>, error: &MediaError) {
        tracing::error!(disk = name, %error, "the disk is left out");
        let (name, reason) = (name.to_owned(), error.to_string());
        let is_of_another_build = matches!(error, MediaError::AnotherBuild { .. });
        let left_out = LeftOut { name, identity, reason, is_of_another_build };
        self.node.left_out.lock().push(left_out);
    }

    fn open_candidate(&self, candidate: Candidate, doubtful: &Doubtful) {
        let Some(first) = candidate.labels.first() else { return };
        let (name, identity) = (title(first), first.aggregate);
        let (complete, seen) = (candidate.is_complete(), candidate.seen());
        let disks = candidate.into_disks();
        let outcome = match doubtful.refusal(&name).filter(|_| !complete) {
            None => self.open_disks(&name, disks, LostLog::Refused).map(drop),
            Some(error) => Err(Unopened { error, journal_lost: None }),
        };
        if let Err(Unopened { error, journal_lost }) = outcome {
            tracing::error!(aggregate = name, %error, "the aggregate stays out of service");
            self.node.engine.expect_aggregate(identity);
            self.node.front_ends.set_away(identity, true);
            let offline = OfflineAggregate { identity, name, seen, error, journal_lost };
            self.node.offline.lock().push(offline);
        }
    }

    pub(crate) fn open_disks(
        &self,
        name: &str,
        disks: Vec<Arc<dyn Disk>>,
        if_lost: LostLog,
    ) -> Result<dblade::Recovery, Unopened> {
        if self.node.engine.aggregate_named(name).is_some() {
            return Err(AdminError::new(Code::Conflict, MESSAGE, name)
                .because("another aggregate of this name is in service")
                .try_next("detach the disks of one of them and start the server again")
                .into());
        }
        let exposed = self.disks.exposed(&disks);
        if !exposed.is_empty() {
            return Err(exposed_error(name, &exposed).into());
        }
        let (engine, given) = (&self.node.engine, disks.clone());
        let opened = |done| engine.open_aggregate_with(given, if_lost, done);
        let recovery = match self.node.waits.wait_for(opened) {
            Some(Ok(recovery)) => recovery,
            Some(Err(error)) => return Err(unopened(name, &error)),
            None => {
                return Err(AdminError::new(Code::Failed, MESSAGE, name)
                    .because("the engine stopped before the request was done")
                    .into());
            }
        };
        // Not those that were replaced: they are free to be taken.
        let mut disks = disks;
        let summaries = self.node.engine.aggregate_summaries();
        let found = summaries.iter().find(|one| one.name == name);
        let names: Vec<&str> = found.map(names_of).unwrap_or_default();
        disks.retain(|disk| names.contains(&disk.name()));
        self.disks.hold(name, &disks);
        let duration_ms = recovery.nanoseconds / 1_000_000;
        let (replayed, clean) = (recovery.replayed, recovery.clean);
        let bytes = units::ByteSize(recovery.replayed_bytes);
        tracing::info!(
            aggregate = name,
            clean,
            skipped = recovery.skipped,
            lost_journal = recovery.lost_log,
            "opened: replayed {replayed} operations, {bytes}, in {duration_ms} ms"
        );
        self.recoveries.lock().push(recovery.clone());
        Ok(recovery)
    }
}
