//! Disks that wait, and that are copied to.
//!
//! Invariant: a spare is a disk of its aggregate like any other and held open.

use crate::aggregates::room::Aggregates;
use crate::aggregates::taking::Consent;
use crate::pace::{copied_percent, outlook};
use admin_api::{AdminError, Code, DiskInfo, DiskRole, DiskState, Removal, SpareAdd, SpareRemove};
use dblade::AggregateSummary;
use media::Profile;
use platform::Disk;
use raid::SpareStatus;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, shell_word};

const ADD: &str = "cannot add spare";

const REMOVE: &str = "cannot remove spare";

impl Aggregates {
    pub(crate) fn add_spares(&self, wanted: &SpareAdd) -> Result<Vec<DiskInfo>, AdminError> {
        let _turn = self.node.turn();
        self.add_spares_in_turn(wanted)
    }

    pub(crate) fn add_spares_in_turn(
        &self,
        wanted: &SpareAdd,
    ) -> Result<Vec<DiskInfo>, AdminError> {
        let aggregate = self.aggregate(&wanted.aggregate)?;
        let disks = self.disks.open_free(&wanted.disks)?;
        self.check_spares(wanted, &disks)?;
        let mut added = Vec::new();
        for disk in disks {
            if !wanted.dry_run {
                let (engine, given) = (&self.node.engine, (Arc::clone(&disk), wanted.force));
                let outcome = self.node.waits.request(ADD, disk.name(), |done| {
                    engine.add_spare(&aggregate.name, given, done)
                });
                outcome.map_err(|error: AdminError| after_others(error, &added))?;
                tracing::info!(aggregate = aggregate.name, disk = disk.name(), "spare added");
                self.disks.hold(&aggregate.name, std::slice::from_ref(&disk));
                self.forget_offline(std::slice::from_ref(&disk));
            }
            let size_bytes = disk.size_blocks() * BLOCK_SIZE_U64;
            added.push(spare_info(
                &aggregate.name,
                (disk.name(), size_bytes, Profile::of(&*disk)),
                None,
            ));
        }
        Ok(added)
    }

    /// Refuses disks that hold something, unless they may be erased.
    pub(crate) fn check_spares(
        &self,
        wanted: &SpareAdd,
        disks: &[Arc<dyn Disk>],
    ) -> Result<(), AdminError> {
        let consent = Consent { force: wanted.force, abandoned: &wanted.abandoned };
        let check = |disk: &Arc<dyn Disk>| {
            self.check_takable((ADD, disk.name()), consent, std::slice::from_ref(disk))
        };
        disks.iter().try_for_each(check)
    }

    pub(crate) fn remove_spare(&self, wanted: &SpareRemove) -> Result<Removal, AdminError> {
        let _turn = self.node.turn();
        let summaries = self.node.engine.aggregate_summaries();
        let spares = summaries.iter().flat_map(|summary| {
            summary.status.spares.iter().map(move |spare| (&summary.name, spare))
        });
        let Some((aggregate, spare)) = spares.into_iter().find(|(_, one)| one.name == wanted.disk)
        else {
            return Err(
                AdminError::missing(REMOVE, "spare", &wanted.disk).try_next("stroop disk list")
            );
        };
        if !wanted.dry_run {
            let (engine, identity) = (&self.node.engine, spare.identity);
            let removed = |done| engine.remove_spare(aggregate, identity, done);
            self.node.waits.request(REMOVE, &wanted.disk, removed)?;
            self.disks.release(&wanted.disk);
            tracing::info!(aggregate, disk = wanted.disk, "spare removed");
        }
        let left = spares_left(&summaries, aggregate).saturating_sub(1);
        Ok(Removal::new(
            wanted.disk.clone(),
            vec![format!("aggregate {aggregate} has {left} spares then")],
            wanted.dry_run,
        ))
    }

    /// Spares, and disks that are filled to take a place, as administrators see them.
    pub(crate) fn waiting_disks(&self, summary: &AggregateSummary) -> Vec<DiskInfo> {
        let info = |name: &str, media, note| {
            spare_info(&summary.name, (name, self.disks.held_bytes(name), media), note)
        };
        let spare = |spare: &SpareStatus| info(&spare.name, spare.media, None);
        let mut disks: Vec<DiskInfo> = summary.status.spares.iter().map(spare).collect();
        for member in summary.status.groups.iter().flat_map(|group| &group.members) {
            if let Some(replacement) = &member.replacement {
                let from = member.name.as_deref().unwrap_or("?");
                let note = format!(
                    "{} % copied from {from}{}",
                    copied_percent(replacement),
                    outlook(&replacement.pace)
                );
                let state = DiskState::Rebuilding;
                disks.push(DiskInfo {
                    state,
                    ..info(&replacement.name, replacement.media, Some(note))
                });
            }
        }
        disks
    }
}

impl Aggregates {
    /// Disks that are neither spares nor in a place: spares that are about to have one, and disks
    /// of removed groups whose labels are being erased.
    pub(crate) fn leaving_disks(&self, summary: &AggregateSummary) -> Vec<DiskInfo> {
        let info = |name: &String| {
            let held = self.disks.held(name)?;
            let size_bytes = held.size_blocks() * BLOCK_SIZE_U64;
            let note = "it is about to have a place in a group, or to be free".to_owned();
            let known = (name.as_str(), size_bytes, Profile::of(&*held));
            let state = DiskState::Rebuilding;
            Some(DiskInfo { state, ..spare_info(&summary.name, known, Some(note)) })
        };
        summary.status.leaving_disks.iter().filter_map(info).collect()
    }
}

/// What went wrong with a spare, after others were added.
fn after_others(error: AdminError, added: &[DiskInfo]) -> AdminError {
    let names: Vec<&str> = added.iter().map(|disk| disk.name.as_str()).collect();
    match names.as_slice() {
        [] => error,
        names => error.because(format!("these are spares by now: {}", names.join(", "))),
    }
}

fn spares_left(summaries: &[AggregateSummary], aggregate: &str) -> usize {
    let found = summaries.iter().find(|summary| summary.name == aggregate);
    found.map_or(0, |summary| summary.status.spares.len())
}

fn spare_info(
    aggregate: &str,
    (name, size_bytes, media): (&str, u64, Profile),
    note: Option<String>,
) -> DiskInfo {
    DiskInfo {
        size_bytes,
        aggregate: Some(aggregate.to_owned()),
        role: Some(DiskRole::Spare),
        media: Some(media.to_string()),
        note,
        ..DiskInfo::new(name.to_owned(), DiskState::InUse)
    }
}

/// There is no spare that fits.
pub(crate) fn no_spare(message: &str, disk: &str, aggregate: &str) -> AdminError {
    AdminError::new(Code::NotFound, message, disk)
        .because(format!("aggregate {aggregate} has no spare that is large enough"))
        .try_next(format!("stroop disk replace {} NEW", shell_word(disk)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_a_call_that_fails_half_way_says_what_was_done() {
        let error = || AdminError::new(Code::Failed, ADD, "d3").because("it is gone");
        assert_eq!(after_others(error(), &[]).cause, ["it is gone"]);
        let added = ["d1", "d2"].map(|name| spare_info("a1", (name, 1, Profile::Object), None));
        let told = after_others(error(), &added).cause;
        assert_eq!(told, ["it is gone", "these are spares by now: d1, d2"]);
    }
}
