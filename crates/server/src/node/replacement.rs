//! Disks that are taken out of use, and disks that take the place of others.

use super::blocking::{request, wait_for};
use super::core::Core;
use super::health::more_may_fail;
use super::refusals::{missing, refusal};
use admin_api::{AdminError, Code, DiskFail, DiskInfo, DiskReplace, DiskState, Removal};
use dblade::EngineError;
use raid::{DiskPlace, RaidError};
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

const REPLACE: &str = "cannot replace disk";

const FAIL: &str = "cannot fail disk";

impl Core {
    pub(super) fn fail_disk(&self, wanted: &DiskFail) -> Result<Removal, AdminError> {
        let _turn = self.turn();
        let (aggregate, place, info) = self.place_of(FAIL, &wanted.disk)?;
        let summaries = self.engine.aggregate_summaries();
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
            request(FAIL, &wanted.disk, |done| self.engine.fail_disk(&aggregate, place, done))?;
            tracing::warn!(aggregate, disk = wanted.disk, "disk failed by an administrator");
        }
        let (object, dry_run) = (wanted.disk.clone(), wanted.dry_run);
        Ok(Removal { object, consequences, freed_bytes: 0, dry_run })
    }

    pub(super) fn replace_disk(&self, wanted: &DiskReplace) -> Result<DiskInfo, AdminError> {
        let _turn = self.turn();
        let (aggregate, place, info) = self.place_of(REPLACE, &wanted.disk)?;
        if !matches!(info.state, DiskState::Failed | DiskState::Missing) {
            return Err(AdminError::new(Code::Conflict, REPLACE, &wanted.disk)
                .because("it is in use; only a disk that failed or is missing is replaced"));
        }
        let disks = self.disks.open_free(std::slice::from_ref(&wanted.replacement))?;
        let Some(disk) = disks.first() else {
            return Err(missing(REPLACE, "disk", &wanted.replacement));
        };
        let same = Arc::clone(disk);
        let checked = wait_for(|done| media::check_unused(&same, wanted.force, done));
        if let Some(Err(error)) = checked {
            let error = EngineError::from(RaidError::from(error));
            return Err(refusal(REPLACE, &wanted.disk, &error));
        }
        if wanted.dry_run {
            let (name, state) = (disk.name().to_owned(), DiskState::Rebuilding);
            let size_bytes = disk.size_blocks() * BLOCK_SIZE_U64;
            return Ok(DiskInfo { name, state, size_bytes, note: None, ..info });
        }
        let (engine, taken) = (&self.engine, (Arc::clone(disk), wanted.force));
        request(REPLACE, &wanted.disk, |done| {
            engine.replace_disk(&aggregate, place, taken, done);
        })?;
        self.disks.release(&info.name);
        self.disks.hold(&aggregate, &disks);
        let (old, new) = (&info.name, disk.name());
        tracing::info!(aggregate, old, new, "disk replaced; it is rebuilt in the background");
        self.place_of(REPLACE, disk.name()).map(|(_, _, info)| info)
    }

    /// Where a disk is, by the name that its aggregate shows.
    fn place_of(
        &self,
        message: &str,
        name: &str,
    ) -> Result<(String, DiskPlace, DiskInfo), AdminError> {
        for summary in self.engine.aggregate_summaries() {
            for (group, status) in (0..).zip(&summary.status.groups) {
                for (member, status) in status.members.iter().enumerate() {
                    let info = self.member_info(&summary.name, status);
                    if info.name == name {
                        return Ok((summary.name, DiskPlace { group, member }, info));
                    }
                }
            }
        }
        Err(missing(message, "disk", name).because("no aggregate in service has such a disk"))
    }
}
