//! Disks that are taken out of use, and disks that take the place of others.

use crate::aggregates::{Consent, no_spare};
use crate::disk_administration::room::DiskAdministration;
use crate::disks::shown::unnamed;
use crate::pace::{errors_of, more_may_fail};
use crate::refusals::refusal;
use admin_api::{AdminError, Code, DiskClear, DiskFail, DiskInfo, DiskReplace, DiskState, Removal};
use dblade::EngineError;
use raid::DiskPlace;
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

const REPLACE: &str = "cannot replace disk";

const CLEAR: &str = "cannot clear disk";

const FAIL: &str = "cannot fail disk";

impl DiskAdministration {
    pub(crate) fn fail_disk(&self, wanted: &DiskFail) -> Result<Removal, AdminError> {
        let _turn = self.node.turn();
        let (aggregate, place, info) = self.place_of(FAIL, &wanted.disk)?;
        let summaries = self.node.engine.aggregate_summaries();
        let status = summaries.iter().find(|summary| summary.name == aggregate);
        let group = status.and_then(|summary| summary.status.groups.get(place.group as usize));
        let left = group.map_or(0, raid::GroupStatus::survivable_failures);
        let is_rebuilding = info.state == DiskState::Rebuilding;
        if !is_rebuilding && info.state != DiskState::InUse {
            return Err(
                AdminError::new(Code::Conflict, FAIL, &wanted.disk).because("it is not in use")
            );
        }
        if left == 0 && !is_rebuilding {
            return Err(AdminError::new(Code::Conflict, FAIL, &wanted.disk)
                .because(format!("aggregate {aggregate} cannot do without one more disk"))
                .try_next("stroop status"));
        }
        let left = left - usize::from(!is_rebuilding);
        let consequences = vec![
            format!("aggregate {aggregate} does without it; {} then", more_may_fail(left)),
            "what it holds is not used again; it can only be replaced".to_owned(),
        ];
        if !wanted.dry_run {
            self.node.waits.request(FAIL, &wanted.disk, |done| {
                self.node.engine.fail_disk(&aggregate, place, done)
            })?;
            tracing::warn!(aggregate, disk = info.name, "an administrator failed a disk");
        }
        let (object, dry_run) = (wanted.disk.clone(), wanted.dry_run);
        Ok(Removal::new(object, consequences, dry_run))
    }

    pub(crate) fn replace_disk(&self, wanted: &DiskReplace) -> Result<DiskInfo, AdminError> {
        let _turn = self.node.turn();
        let (aggregate, place, info) = self.place_of(REPLACE, &wanted.disk)?;
        if info.state == DiskState::Rebuilding {
            return Err(AdminError::new(Code::Conflict, REPLACE, &wanted.disk)
                .because("it is being rebuilt; wait until it is whole, or fail it first"));
        }
        let is_used = info.state == DiskState::InUse;
        let Some(replacement) = &wanted.replacement else {
            return self.replace_by_spare(wanted, (&aggregate, place, &info));
        };
        if *replacement == info.name && !is_used {
            return self.return_disk(wanted, (&aggregate, &info));
        }
        let disks = self.disks.open_free(std::slice::from_ref(replacement))?;
        let Some(disk) = disks.first() else {
            return Err(AdminError::missing(REPLACE, "disk", replacement));
        };
        let consent = Consent { force: wanted.force, abandoned: &wanted.abandoned };
        self.aggregates.check_takable((REPLACE, &wanted.disk), consent, &disks)?;
        let found = self.node.engine.aggregate_named(&aggregate);
        let fits = found.map(|found| found.parts.store.check_replacement(place, &**disk));
        if let Some(Err(error)) = fits {
            return Err(refusal(REPLACE, &wanted.disk, &EngineError::from(error)));
        }
        if wanted.dry_run {
            let (name, state) = (disk.name().to_owned(), DiskState::Rebuilding);
            let size_bytes = disk.size_blocks() * BLOCK_SIZE_U64;
            return Ok(DiskInfo { name, state, size_bytes, note: None, ..info });
        }
        let rate = wanted.rate_bytes_per_second;
        let (engine, taken) = (&self.node.engine, (Arc::clone(disk), wanted.force, rate));
        self.node.waits.request(REPLACE, &wanted.disk, |done| {
            engine.replace_disk(&aggregate, place, taken, done);
        })?;
        if !is_used {
            self.disks.release(&info.name);
        }
        self.disks.hold(&aggregate, &disks);
        self.aggregates.forget_offline(&disks);
        let (old, new) = (&info.name, disk.name());
        tracing::info!(aggregate, old, new, "disk replaced; it is filled in the background");
        self.disk_of(&aggregate, disk.name())
    }

    /// The spare that fits best takes the place.
    fn replace_by_spare(
        &self,
        wanted: &DiskReplace,
        (aggregate, place, info): (&str, DiskPlace, &DiskInfo),
    ) -> Result<DiskInfo, AdminError> {
        let Some(spare) = self.node.engine.spare_for(aggregate, place) else {
            return Err(no_spare(REPLACE, &wanted.disk, aggregate));
        };
        if wanted.dry_run {
            let (name, state) = (spare.name.clone(), DiskState::Rebuilding);
            let size_bytes = self.disks.held_bytes(&name);
            return Ok(DiskInfo { name, state, size_bytes, note: None, ..info.clone() });
        }
        let engine = &self.node.engine;
        self.node.waits.request(REPLACE, &wanted.disk, |done| {
            engine.replace_by_spare(aggregate, place, wanted.rate_bytes_per_second, done)
        })?;
        tracing::info!(aggregate, old = info.name, new = spare.name, "a spare takes its place");
        self.disk_of(aggregate, &spare.name)
    }

    /// The disk itself is there again.
    fn return_disk(
        &self,
        wanted: &DiskReplace,
        (aggregate, info): (&str, &DiskInfo),
    ) -> Result<DiskInfo, AdminError> {
        if wanted.dry_run {
            return Ok(DiskInfo { state: DiskState::Rebuilding, note: None, ..info.clone() });
        }
        self.disks.release(&info.name);
        let disks = self.disks.open_free(std::slice::from_ref(&info.name))?;
        for disk in disks {
            let (engine, given) = (&self.node.engine, Arc::clone(&disk));
            self.node.waits.request(REPLACE, &wanted.disk, |done| {
                engine.return_disk(aggregate, given, wanted.rate_bytes_per_second, done)
            })?;
            self.disks.hold(aggregate, &[disk]);
        }
        tracing::info!(aggregate, disk = info.name, "disk taken back by an administrator");
        self.disk_of(aggregate, &info.name)
    }

    /// A disk of an aggregate, spares and disks that are filled included.
    fn disk_of(&self, aggregate: &str, name: &str) -> Result<DiskInfo, AdminError> {
        let disks = self.aggregates.aggregate(aggregate)?.disks;
        let found = disks.into_iter().find(|disk| disk.name == name);
        found.ok_or_else(|| AdminError::missing(REPLACE, "disk", name))
    }

    /// Forgets the errors of a disk: of one in use, or of one that was replaced because of them.
    pub(crate) fn clear_disk(&self, wanted: &DiskClear) -> Result<Removal, AdminError> {
        let _turn = self.node.turn();
        let (object, dry_run) = (wanted.disk.clone(), wanted.dry_run);
        let removal = |consequence: String| Removal::new(object, vec![consequence], dry_run);
        let (aggregate, place, info) = match self.place_of(CLEAR, &wanted.disk) {
            Ok(found) => found,
            Err(error) => {
                let name = &wanted.disk;
                let summaries = self.node.engine.aggregate_summaries();
                let had = |summary: &&dblade::AggregateSummary| {
                    summary.status.retired.iter().any(|disk| disk.name == *name)
                };
                let former = summaries.iter().find(had).ok_or(error)?;
                if let (false, Some(found)) =
                    (dry_run, self.node.engine.aggregate_named(&former.name))
                {
                    found.parts.store.forget_retired(name);
                }
                let consequence = "that it was replaced for being sick is forgotten";
                return Ok(removal(consequence.to_owned()));
            }
        };
        if !dry_run {
            self.node.waits.request(CLEAR, &wanted.disk, |done| {
                self.node.engine.clear_errors(&aggregate, place, done)
            })?;
            tracing::info!(aggregate, disk = info.name, "errors cleared by an administrator");
        }
        Ok(removal(format!("{} are forgotten", errors_of(&info))))
    }

    /// Where a disk is, by the name that its aggregate shows, or its identity.
    fn place_of(
        &self,
        message: &str,
        name: &str,
    ) -> Result<(String, DiskPlace, DiskInfo), AdminError> {
        for summary in self.node.engine.aggregate_summaries() {
            for (group, status) in (0..).zip(&summary.status.groups) {
                for (member, status) in status.members.iter().enumerate() {
                    let info = self.aggregates.member_info(&summary.name, status);
                    if info.name == name || unnamed(&status.identity) == name {
                        return Ok((summary.name, DiskPlace { group, member }, info));
                    }
                }
            }
        }
        Err(AdminError::missing(message, "disk", name)
            .because("no aggregate in service has such a disk"))
    }
}
