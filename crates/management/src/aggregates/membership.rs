//! Which disks are whose: disks that join aggregates, that leave them, and that are erased.

use crate::aggregates::room::Aggregates;
use crate::refusals::taken;
use admin_api::{AdminError, AggregateCreate};
use dblade::AggregateSummary;
use platform::Disk;
use platform::mutation::{self, Rule};
use raid::GroupStatus;
use std::sync::Arc;

impl Aggregates {
    /// Disks that were erased are of no aggregate that is out of service any more.
    pub(crate) fn forget_offline(&self, disks: &[Arc<dyn Disk>]) {
        let is_erased = |name: &str| disks.iter().any(|disk| disk.name() == name);
        for outage in self.node.engine.outages() {
            let owner = outage.summary.name.as_str();
            let is_taken = |name: &str| {
                let holder = self.disks.holder(name);
                is_erased(name) || holder.is_some_and(|holder| holder != owner)
            };
            if is_lost(&outage.summary.status.groups, is_taken) {
                self.node.engine.forget_aggregate(outage.summary.identity);
            }
        }
        let outages = self.node.engine.outages();
        self.node.offline.lock().retain_mut(|offline| {
            let is_left = |name: &str| disks.iter().all(|disk| disk.name() != name);
            offline.seen.disks.retain(|name| is_left(name));
            offline.seen.own.retain(|disk| is_left(&disk.name));
            let identity = offline.identity;
            let is_left = !offline.seen.disks.is_empty();
            if !is_left && outages.iter().all(|outage| outage.summary.identity != identity) {
                // Nobody waits for it any more.
                self.node.engine.forget_aggregate(identity);
                self.node.front_ends.set_away(identity, false);
            }
            is_left
        });
    }

    /// Whether a new aggregate takes the name of one that is not there any more: all that was found
    /// of that one are disks which the request erases. A creation that was cut off leaves such.
    pub(crate) fn is_remainder_erased(&self, wanted: &AggregateCreate) -> bool {
        let summaries = self.node.engine.aggregate_summaries();
        let outages = self.node.engine.outages();
        let mut known = summaries.iter().chain(outages.iter().map(|outage| &outage.summary));
        let is_known = known.any(|summary| summary.name == wanted.name)
            || mutation::broken(Rule::HalfMadeNameKept);
        let is_erased = |disks: &[String]| disks.iter().all(|disk| wanted.disks.contains(disk));
        let offline = self.node.offline.lock();
        let mut remainders = offline.iter().filter(|offline| offline.name == wanted.name);
        wanted.force && !is_known && remainders.all(|offline| is_erased(&offline.seen.disks))
    }

    /// A name is taken; by what is left of an aggregate that could not be opened, perhaps.
    pub(crate) fn taken_by_remainder(&self, name: &str) -> AdminError {
        let refused = taken("aggregate", name);
        let offline = self.node.offline.lock();
        match offline.iter().find(|offline| offline.name == name) {
            Some(offline) => refused.try_next(format!(
                "another name; or the same command with --force and all disks of the aggregate that \
                 could not be opened, to erase it: {}",
                offline.seen.disks.join(",")
            )),
            None => refused,
        }
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

/// Whether an aggregate cannot come back: more disks of a group were given to other uses than it
/// can do without. Those that failed or went may be there again.
fn is_lost(groups: &[GroupStatus], is_taken: impl Fn(&str) -> bool) -> bool {
    groups.iter().any(|group| {
        let names = group.members.iter().filter_map(|member| member.name.as_deref());
        names.filter(|name| is_taken(name)).count() > group.kind.parity_disks()
    })
}

/// The names of all disks of an aggregate: members, spares, also those that are about to have a
/// place, and those that are filled.
pub(crate) fn names_of(summary: &AggregateSummary) -> Vec<&str> {
    let members = summary.status.groups.iter().flat_map(|group| &group.members);
    let mut names: Vec<&str> = members.clone().filter_map(|one| one.name.as_deref()).collect();
    let filled = members.filter_map(|one| one.replacement.as_ref());
    names.extend(filled.map(|replacement| replacement.name.as_str()));
    names.extend(summary.status.spares.iter().map(|spare| spare.name.as_str()));
    names.extend(summary.status.leaving_disks.iter().map(String::as_str));
    names
}
