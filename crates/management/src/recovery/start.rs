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
use admin_api::{AdminError, Code};
use media::MediaError;
use platform::Disk;
use std::sync::Arc;
use units::DiskUuid;

impl Recovery {
    /// Opens every aggregate that the disks hold.
    pub(crate) fn open_aggregates(&self) {
        let patience = Patience::new(Arc::clone(&self.node.clock), self.node.waits.clone());
        let found =
            Found::on(self.disks.names(), |name| self.disks.look_patiently(name, &patience));
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
        self.node.left_out.lock().push(LeftOut { name, identity, reason });
    }

    fn open_candidate(&self, candidate: Candidate, doubtful: &Doubtful) {
        let Some(first) = candidate.labels.first() else { return };
        let (name, kind, identity) = (title(first), candidate.kind(), first.aggregate);
        let complete = candidate.is_complete();
        let (mut names, cut_off) = (candidate.names(), candidate.cut_off.clone());
        let disks = candidate.into_disks();
        let outcome = match doubtful.refusal(&name).filter(|_| !complete) {
            None => self.open_disks(&name, disks),
            Some(refusal) => Err(refusal),
        };
        if let Err(error) = outcome {
            tracing::error!(aggregate = name, %error, "the aggregate stays out of service");
            names.extend(cut_off);
            self.node.engine.expect_aggregate(identity);
            self.node.front_ends.set_away(identity, true);
            let offline = OfflineAggregate { identity, name, kind, disks: names, error };
            self.node.offline.lock().push(offline);
        }
    }

    pub(crate) fn open_disks(
        &self,
        name: &str,
        disks: Vec<Arc<dyn Disk>>,
    ) -> Result<(), AdminError> {
        let message = "cannot open aggregate";
        if self.node.engine.aggregate_named(name).is_some() {
            return Err(AdminError::new(Code::Conflict, message, name)
                .because("another aggregate of this name is in service")
                .try_next("detach the disks of one of them and start the server again"));
        }
        let given = disks.clone();
        let engine = &self.node.engine;
        let recovery =
            self.node.waits.request(message, name, |done| engine.open_aggregate(given, done))?;
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
            "opened: replayed {replayed} operations, {bytes}, in {duration_ms} ms"
        );
        self.recoveries.lock().push(recovery);
        Ok(())
    }
}
