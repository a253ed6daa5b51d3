//! Whether disks may be taken, and what they hold be lost: one decision for all commands.
//!
//! Invariants:
//! - Disks are only read here.
//! - A disk of an aggregate that is out of service is given to nobody, unless the request names
//!   the aggregate: it may come back with the disk, and is degraded or lost without it.
//! - Whose a disk is its label says. Only if that cannot be read is it told by the disk's name:
//!   another disk may have the name by now.

use crate::aggregates::room::Aggregates;
use crate::refusals::refusal;
use admin_api::{AdminError, Code};
use dblade::EngineError;
use media::MediaError;
use platform::Disk;
use platform::completion::gather;
use raid::RaidError;
use std::sync::Arc;
use units::AggregateUuid;

/// What may be lost for a request.
#[derive(Clone, Copy)]
pub(crate) struct Consent<'a> {
    /// What the disks hold.
    pub force: bool,
    /// The disks of these aggregates that are out of service.
    pub abandoned: &'a [String],
}

/// An aggregate out of service, and the disks that it was last seen with.
struct Away {
    identity: AggregateUuid,
    name: String,
    disks: Vec<String>,
}

impl Aggregates {
    /// Refuses disks that hold something, or that an aggregate out of service may need, unless
    /// they may be taken. `message` and `name` begin the error.
    pub(crate) fn check_takable(
        &self,
        object: (&str, &str),
        consent: Consent<'_>,
        disks: &[Arc<dyn Disk>],
    ) -> Result<(), AdminError> {
        self.check_unused(object, consent.force, disks)?;
        self.check_abandoned(object, consent.abandoned, disks)
    }

    /// Refuses disks of aggregates that are out of service, but of those that are named.
    pub(crate) fn check_abandoned(
        &self,
        (message, name): (&str, &str),
        abandoned: &[String],
        disks: &[Arc<dyn Disk>],
    ) -> Result<(), AdminError> {
        let away = self.away();
        if away.is_empty() {
            return Ok(());
        }
        for disk in disks {
            let Some(owner) = self.owner(disk, &away).filter(|owner| !abandoned.contains(owner))
            else {
                continue;
            };
            return Err(AdminError::new(Code::Conflict, message, name)
                .because(format!(
                    "disk {} belongs to aggregate {owner}, which is out of service, and would be \
                     degraded or lost without it",
                    disk.name()
                ))
                .try_next(
                    "stroop status, to have it back; or, to give it up, take the disk with --force \
                     (stroop aggr create, stroop aggr add, stroop disk spare add)",
                ));
        }
        Ok(())
    }

    fn away(&self) -> Vec<Away> {
        let outages = self.node.engine.outages().into_iter().map(|outage| {
            let disks = self.outage_info(&outage).disks.into_iter().map(|disk| disk.name).collect();
            Away { identity: outage.summary.identity, name: outage.summary.name, disks }
        });
        let mut away: Vec<Away> = outages.collect();
        away.extend(self.node.offline.lock().iter().map(|offline| Away {
            identity: offline.identity,
            name: offline.name.clone(),
            disks: offline.seen.disks.clone(),
        }));
        away
    }

    /// The aggregate out of service that a disk belongs to.
    fn owner(&self, disk: &Arc<dyn Disk>, away: &[Away]) -> Option<String> {
        let label = self.node.waits.wait_for(|done| media::read_label(disk, done));
        let is_owner = |away: &&Away| match &label {
            Some(Ok(label)) => away.identity == label.aggregate,
            Some(Err(MediaError::NoLabel { .. })) => false,
            Some(Err(_)) | None => away.disks.iter().any(|name| name == disk.name()),
        };
        away.iter().find(is_owner).map(|away| away.name.clone())
    }

    /// Refuses disks that hold something, unless they may be erased.
    fn check_unused(
        &self,
        (message, name): (&str, &str),
        force: bool,
        disks: &[Arc<dyn Disk>],
    ) -> Result<(), AdminError> {
        let checked = self.node.waits.wait_for(|done| {
            let parts = gather(disks.len(), done);
            for (disk, part) in disks.iter().zip(parts) {
                media::check_unused(disk, force, part);
            }
        });
        let results: Vec<Result<(), MediaError>> = checked.unwrap_or_default();
        let failed = results.into_iter().find_map(Result::err);
        failed.map_or(Ok(()), |error| {
            let error = EngineError::from(RaidError::from(error));
            Err(refusal(message, name, &error))
        })
    }
}
