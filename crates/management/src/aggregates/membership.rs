//! Which disks are whose: disks that join aggregates, that leave them, and that are erased.

use crate::aggregates::room::Aggregates;
use admin_api::{DiskInfo, DiskState};
use dblade::AggregateSummary;
use platform::Disk;
use std::sync::Arc;

impl Aggregates {
    /// Disks that were erased are of no aggregate that is out of service any more.
    pub(crate) fn forget_offline(&self, disks: &[Arc<dyn Disk>]) {
        let is_taken = |name: &str| disks.iter().any(|disk| disk.name() == name);
        for outage in self.node.engine.outages() {
            let info = self.outage_info(&outage);
            let is_there =
                |disk: &DiskInfo| disk.state == DiskState::InUse && !is_taken(&disk.name);
            if !info.disks.iter().any(is_there) {
                self.node.engine.forget_aggregate(outage.summary.identity);
            }
        }
        self.node.offline.lock().retain_mut(|offline| {
            offline.disks.retain(|name| disks.iter().all(|disk| disk.name() != name));
            !offline.disks.is_empty()
        });
    }

    /// Takes in what became of disks to which something was done.
    pub(crate) fn settle_upkeep(&self) {
        for (aggregate, disk) in self.disks.upkeep.settle() {
            self.forget_offline(std::slice::from_ref(&disk));
            tracing::info!(aggregate, disk = disk.name(), "disk added");
            self.disks.hold(&aggregate, &[disk]);
        }
    }

    /// Lets go of disks whose place a spare took, or that were copied and are nobody's.
    pub(crate) fn let_go_of_former_disks(&self) {
        for summary in self.node.engine.aggregate_summaries() {
            self.disks.keep(&summary.name, &names_of(&summary));
        }
    }
}

/// The names of all disks of an aggregate: members, spares, also those that are about to have a
/// place, and those that are filled.
pub(crate) fn names_of(summary: &AggregateSummary) -> Vec<&str> {
    let members = summary.status.groups.iter().flat_map(|group| &group.members);
    let mut names: Vec<&str> = members.clone().filter_map(|one| one.name.as_deref()).collect();
    let filled = members.filter_map(|one| one.successor.as_ref());
    names.extend(filled.map(|successor| successor.name.as_str()));
    names.extend(summary.status.spares.iter().map(|spare| spare.name.as_str()));
    names.extend(summary.status.leaving_disks.iter().map(String::as_str));
    names
}
