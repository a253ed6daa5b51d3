//! `stroop aggr online`: an aggregate is brought into service now, if need be without its journal.
//!
//! Invariants:
//! - Without the word of an administrator nothing that was acknowledged is lost: the aggregate is
//!   tried with its journal first, and done without it only if that is lost.
//! - A dry run writes nothing.
//! - Parity of stripes that the stop left half written is wrong without the journal's notes, so a
//!   scrub follows, which makes it right.
//!
//! Fails: by [`AdminError`]; the aggregate is out of service as before then.

use crate::disks::labels::Found;
use crate::node::OfflineAggregate;
use crate::recovery::room::Recovery;
use admin_api::{AdminError, AggregateOnline, Code, Removal, Time};
use dblade::LostLog;
use ondisk::label::RaidKind;
use raid::ScrubOrder;
use std::time::Duration;
use units::{AggregateUuid, Timestamp};

/// How long an opening that failed may take to let go of the disks.
const CLOSING_MAX: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
const MESSAGE: &str = "cannot bring online aggregate";

impl Recovery {
    /// Brings an aggregate into service that is out of it.
    pub(crate) fn bring_online(&self, wanted: &AggregateOnline) -> Result<Removal, AdminError> {
        let _turn = self.node.turn();
        let AggregateOnline { name, without_journal, dry_run } = wanted;
        let identity = self.identity_of(name)?;
        let known = self.node.offline.lock().iter().find(|one| one.identity == identity).cloned();
        let error = |code| AdminError::new(code, MESSAGE, name);
        let mut consequences = Vec::new();
        if *without_journal {
            let lost = known.as_ref().and_then(|one| Some((one, one.journal_lost?)));
            let Some((known, committed)) = lost else {
                let cause = known.map(|one| one.error.cause).unwrap_or_default();
                let refused = error(Code::Conflict).because("its journal is not known to be lost");
                let refused = cause.into_iter().fold(refused, AdminError::because);
                return Err(refused.try_next(format!("stroop aggr online {name}")));
            };
            consequences = losses(known, committed);
        }
        if !dry_run {
            let is_lost = self.open_now(identity, name, *without_journal)?;
            if is_lost {
                self.begin_scrub(name);
            } else if *without_journal {
                consequences = vec!["its journal is there again: nothing is lost".to_owned()];
            }
        }
        Ok(Removal { object: name.clone(), consequences, freed_bytes: 0, dry_run: *dry_run })
    }

    /// The identity of an aggregate that is out of service.
    fn identity_of(&self, name: &str) -> Result<AggregateUuid, AdminError> {
        if self.node.engine.aggregate_named(name).is_some() {
            return Err(AdminError::new(Code::Conflict, MESSAGE, name)
                .because("it is in service, or another one of this name is")
                .try_next(format!("stroop aggr show {name}")));
        }
        let outages = self.node.engine.outages();
        let away = outages.iter().find(|outage| outage.summary.name == name);
        let offline = self.node.offline.lock();
        let unopened = || offline.iter().find(|one| one.name == name).map(|one| one.identity);
        away.map(|outage| outage.summary.identity).or_else(unopened).ok_or_else(|| {
            AdminError::missing(MESSAGE, "aggregate", name).try_next("stroop aggr list")
        })
    }

    /// Opens it; whether that took doing without its journal.
    fn open_now(
        &self,
        identity: AggregateUuid,
        name: &str,
        without_journal: bool,
    ) -> Result<bool, AdminError> {
        let error = |cause: &str| AdminError::new(Code::Conflict, MESSAGE, name).because(cause);
        if self.checks.table.is_at_rest(&identity) {
            return Err(error("a 'stroop check aggr' reads its disks; wait for its end"));
        }
        let find = || {
            let mut names = self.disks.names();
            names.retain(|name| !self.disks.is_held(name) && !self.checks.table.has_disk(name));
            let mut found = Found::on(names, |name| self.disks.look(name));
            let candidate = found.candidates.remove(&identity);
            let candidate = candidate.ok_or_else(|| error("none of its disks is there"))?;
            match found.doubtful.refusal(name).filter(|_| !candidate.is_complete()) {
                None => Ok(candidate),
                Some(refusal) => Err(refusal),
            }
        };
        let first = self.open_again((identity, name), find()?, LostLog::Refused);
        match first {
            Ok(()) => Ok(false),
            Err(unopened) if without_journal && unopened.journal_lost.is_some() => {
                tracing::warn!(aggregate = name, "an administrator does without its journal");
                self.await_closed(identity);
                let second = self.open_again((identity, name), find()?, LostLog::Replaced);
                second.map(|()| true).map_err(|unopened| unopened.error)
            }
            Err(unopened) => Err(unopened.error),
        }
    }

    /// Waits until nothing is left of an opening that failed.
    fn await_closed(&self, identity: AggregateUuid) {
        let mut left = CLOSING_MAX;
        while !self.node.engine.is_closed(&identity) && !left.is_zero() {
            left = left.saturating_sub(LOOK_INTERVAL);
            if !self.node.waits.pause(LOOK_INTERVAL) {
                break;
            }
        }
    }

    /// Begins a scrub, from the beginning.
    fn begin_scrub(&self, name: &str) {
        let ask = |order| {
            self.node.waits.request("cannot start the scrub of", name, |done| {
                self.node.engine.scrub(name, order, done);
            })
        };
        // One that is under way would pass over what it has seen. There may be none.
        let _none = ask(ScrubOrder::Stop);
        if let Err(error) = ask(ScrubOrder::MakeParity) {
            tracing::warn!(aggregate = name, %error, "type 'stroop scrub start' for its parity");
        }
    }
}

/// What opening an aggregate without its journal costs.
fn losses(known: &OfflineAggregate, committed: Timestamp) -> Vec<String> {
    let since = Time(committed);
    let lost =
        format!("what was acknowledged since {since} is lost, as far as only the journal had it");
    let kept = "all else is as the last consistency point has it";
    let has_parity = known.kind != Some(RaidKind::None);
    let scrub = "a scrub begins, which makes the parity right that the stop left half written";
    let mut losses = vec![lost, kept.to_owned()];
    losses.extend(has_parity.then(|| scrub.to_owned()));
    losses
}
