//! The start: finds the aggregates on the disks and brings each into service.
//!
//! Invariants: an aggregate that cannot be opened stops no other one; it is reported with its
//! reason ([`OfflineAggregate`]) and its disks are let go of, so that tools can look at them. No
//! aggregate starts degraded while a disk that may be the missing one is in use by another
//! process: what is written meanwhile would make that disk useless. What is not opened here is
//! opened later, when its disks come ([`super::returning`]).
//!
//! Fails: never as a whole.

use super::blocking::request;
use super::candidates::{Candidate, Found};
use super::core::Core;
use super::disk_table::title;
use super::patience::Patience;
use super::spares::names_of;
use admin_api::{AdminError, Code};
use media::MediaError;
use platform::Disk;
use std::sync::Arc;

/// An aggregate that was found and could not be opened.
#[derive(Clone, Debug)]
pub(super) struct OfflineAggregate {
    /// Its identity.
    pub identity: [u8; 16],
    /// Its name.
    pub name: String,
    /// How it is protected, as a disk of it says.
    pub kind: Option<ondisk::label::RaidKind>,
    /// The disks of it that were found.
    pub disks: Vec<String>,
    /// Why.
    pub error: AdminError,
}

/// A disk that could not be used when the server started.
#[derive(Clone, Debug)]
pub(super) struct LeftOut {
    /// Its name.
    pub name: String,
    /// Its identity, if its label could be read.
    pub identity: Option<[u8; 16]>,
    /// Why.
    pub reason: String,
}

impl Core {
    /// Opens every aggregate that the disks hold.
    pub(super) fn open_aggregates(&self) {
        let patience = Patience::new(Arc::clone(&self.clock));
        let found =
            Found::on(self.disks.names(), |name| self.disks.look_patiently(name, &patience));
        for (name, identity, error) in &found.left_out {
            self.leave_out(name, *identity, error);
        }
        for (identity, candidate) in found.candidates {
            self.journals.await_free(&identity, &patience);
            self.open_candidate(candidate, &found.busy);
        }
        self.engine.volumes().iter().for_each(|volume| self.publish_exports(volume));
    }

    fn leave_out(&self, name: &str, identity: Option<[u8; 16]>, error: &MediaError) {
        tracing::error!(disk = name, %error, "the disk is left out");
        let (name, reason) = (name.to_owned(), error.to_string());
        self.left_out.lock().push(LeftOut { name, identity, reason });
    }

    fn open_candidate(&self, candidate: Candidate, busy: &[String]) {
        let Some(first) = candidate.labels.first() else { return };
        let (name, kind, identity) = (title(first), candidate.kind(), first.aggregate);
        let complete = candidate.is_complete();
        let (mut names, cut_off) = (candidate.names(), candidate.cut_off.clone());
        let disks = candidate.into_disks();
        let outcome = if complete || busy.is_empty() {
            self.open_disks(&name, disks)
        } else {
            Err(AdminError::new(Code::Conflict, "cannot open aggregate", &name)
                .because("disks of it are missing, and disks are in use by another process:")
                .because(busy.join(", "))
                .try_next("end that process; the aggregate is opened by itself then"))
        };
        if let Err(error) = outcome {
            tracing::error!(aggregate = name, %error, "the aggregate stays out of service");
            names.extend(cut_off);
            self.engine.expect_aggregate(identity);
            self.exports.set_away(dblade::file_system_of(identity), true);
            let offline = OfflineAggregate { identity, name, kind, disks: names, error };
            self.offline.lock().push(offline);
        }
    }

    pub(super) fn open_disks(
        &self,
        name: &str,
        disks: Vec<Arc<dyn Disk>>,
    ) -> Result<(), AdminError> {
        let message = "cannot open aggregate";
        if self.engine.aggregate_named(name).is_some() {
            return Err(AdminError::new(Code::Conflict, message, name)
                .because("another aggregate of this name is in service")
                .try_next("detach the disks of one of them and start the server again"));
        }
        let given = disks.clone();
        let engine = &self.engine;
        let recovery = request(message, name, |done| engine.open_aggregate(given, done))?;
        // Not those that were replaced: they are free to be taken.
        let mut disks = disks;
        let summaries = self.engine.aggregate_summaries();
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
