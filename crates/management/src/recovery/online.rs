//! `stroop aggr online`: an aggregate is brought into service now, if need be without its journal.
//!
//! Invariants:
//! - Without the word of an administrator nothing that was acknowledged is lost: the aggregate is
//!   tried with its journal first, and done without it only if that is lost.
//! - A dry run writes nothing.
//! - A name that several aggregates have is refused: the plan is of the aggregate that is opened.
//!
//! Fails: by [`AdminError`]; the aggregate is out of service as before then.

use crate::disks::labels::{Candidate, Found};
use crate::recovery::room::Recovery;
use admin_api::{AdminError, AggregateOnline, Code, Removal, Time};
use dblade::LostLog;
use ondisk::label::RaidKind;
use std::collections::BTreeSet;
use units::{AggregateUuid, Timestamp};

const MESSAGE: &str = "cannot bring online aggregate";

impl Recovery {
    /// Brings an aggregate into service that is out of it.
    pub(crate) fn bring_online(&self, wanted: &AggregateOnline) -> Result<Removal, AdminError> {
        let _turn = self.node.turn();
        let AggregateOnline { name, without_journal, dry_run } = wanted;
        let identity = self.identity_of(name)?;
        let known = self.node.offline.lock().iter().find(|one| one.identity == identity).cloned();
        let mut consequences = Vec::new();
        if *without_journal {
            let lost = known.as_ref().and_then(|one| Some((one, one.journal_lost?)));
            let Some((known, committed)) = lost else {
                let cause = known.map(|one| one.error.cause).unwrap_or_default();
                let refused = AdminError::new(Code::Conflict, MESSAGE, name)
                    .because("its journal is not known to be lost");
                let refused = cause.into_iter().fold(refused, AdminError::because);
                return Err(refused.try_next(format!("stroop aggr online {name}")));
            };
            let is_whole = self.candidate((identity, name))?.is_complete();
            consequences = losses(known.seen.kind, is_whole, committed);
        }
        if !dry_run {
            let recovery = self.open_now((identity, name), *without_journal)?;
            if let Some(record) = recovery.damaged_from {
                consequences = vec![format!(
                    "its journal is there again, and damaged: acknowledged changes from its record \
                     {record} on are lost"
                )];
            } else if recovery.skipped > 0 {
                let skipped = recovery.skipped;
                consequences.push(format!("{skipped} operations of the journal could not be had"));
            } else if *without_journal && recovery.lost_log.is_none() {
                consequences = vec!["its journal is there again: nothing is lost".to_owned()];
            }
        }
        Ok(Removal::new(name.clone(), consequences, *dry_run))
    }

    /// The identity of an aggregate that is out of service.
    fn identity_of(&self, name: &str) -> Result<AggregateUuid, AdminError> {
        let error = || AdminError::new(Code::Conflict, MESSAGE, name);
        if let Some(aggregate) = self.node.engine.aggregate_named(name) {
            let is_failed = aggregate.is_failed() || aggregate.parts.log.failure().is_some();
            let (cause, next) = match is_failed {
                true => ("it failed, and a start of the server opens it again", "stroop status"),
                false => ("it is in service, or another one of this name is", "stroop aggr list"),
            };
            return Err(error().because(cause).try_next(next));
        }
        let outages = self.node.engine.outages().into_iter();
        let away = outages.filter(|outage| outage.summary.name == name);
        let mut found: BTreeSet<AggregateUuid> = away.map(|one| one.summary.identity).collect();
        let offline = self.node.offline.lock();
        found.extend(offline.iter().filter(|one| one.name == name).map(|one| one.identity));
        // One that is deleted has parts that are not erased yet.
        found.retain(|identity| !self.disks.deleted.has(identity));
        match (found.first(), found.len()) {
            (Some(identity), 1) => Ok(*identity),
            (None, _) => Err(AdminError::missing(MESSAGE, "aggregate", name)),
            _ => Err(error()
                .because("several aggregates have this name")
                .try_next("detach the disks of all but one of them")),
        }
    }

    /// What its disks say, if it may be opened with them.
    fn candidate(&self, (identity, name): (AggregateUuid, &str)) -> Result<Candidate, AdminError> {
        let error = |cause: &str| AdminError::new(Code::Conflict, MESSAGE, name).because(cause);
        if self.checks.table.is_at_rest(&identity) {
            return Err(error("a 'stroop check aggr' reads its disks; wait for its end"));
        }
        let mut names = self.disks.names();
        names.retain(|name| !self.disks.is_held(name) && !self.checks.table.has_disk(name));
        let mut found = Found::on(names, |name| self.disks.look(name));
        let candidate = found.candidates.remove(&identity);
        let candidate = candidate.ok_or_else(|| error("none of its disks is there"))?;
        match found.doubtful.refusal(name).filter(|_| !candidate.is_complete()) {
            None => Ok(candidate),
            Some(refusal) => Err(refusal),
        }
    }

    fn open_now(
        &self,
        object: (AggregateUuid, &str),
        without_journal: bool,
    ) -> Result<dblade::Recovery, AdminError> {
        let first = self.open_again(object, self.candidate(object)?, LostLog::Refused);
        let opened = match first {
            Err(unopened) if without_journal && unopened.journal_lost.is_some() => {
                tracing::warn!(aggregate = object.1, "an administrator does without its journal");
                self.await_closed(object.0);
                self.open_again(object, self.candidate(object)?, LostLog::Replaced)
            }
            opened => opened,
        };
        opened.map_err(|unopened| unopened.error)
    }

    /// Waits until nothing is left of an opening that failed.
    pub(super) fn await_closed(&self, identity: AggregateUuid) {
        self.node.waits.await_closing(|| self.node.engine.is_closed(&identity));
    }
}

/// What opening an aggregate without its journal costs.
fn losses(kind: Option<RaidKind>, is_whole: bool, committed: Timestamp) -> Vec<String> {
    let since = Time(committed);
    let mut losses = vec![
        format!("what was acknowledged since {since} is lost, as far as only the journal had it"),
        "all else is as the last consistency point has it".to_owned(),
    ];
    if !is_whole {
        losses.push(
            "but for what missing disks had beside blocks that were being written: attach all \
             disks first"
                .to_owned(),
        );
    }
    if kind != Some(RaidKind::None) {
        losses.push(
            "a scrub makes the parity right that the stop left half written; until it has ended, \
             a write that a disk loses is not noticed"
                .to_owned(),
        );
    }
    losses
}
