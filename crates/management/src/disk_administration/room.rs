//! The room of disks as administrators see and change them.

use crate::aggregates::Aggregates;
use crate::disks::shown::unnamed;
use crate::disks::table::{DiskTable, role};
use crate::node::{AbsentDisk, Node, OfflineAggregate};
use admin_api::{DiskInfo, DiskState};
use std::sync::Arc;

/// The disks of a node, whoever uses them.
pub(crate) struct DiskAdministration {
    pub node: Arc<Node>,
    pub disks: Arc<DiskTable>,
    pub aggregates: Arc<Aggregates>,
}

impl DiskAdministration {
    /// The disks that the configuration names, and those that aggregates lack, in order of name.
    pub(crate) fn disk_list(&self) -> Vec<DiskInfo> {
        let _turn = self.node.turn();
        self.aggregates.settle_upkeep();
        self.aggregates.let_go_of_former_disks();
        let outages = self.node.engine.outages();
        let awaited: Vec<DiskInfo> =
            outages.iter().flat_map(|outage| self.aggregates.outage_info(outage).disks).collect();
        let members: Vec<DiskInfo> = self
            .aggregates
            .aggregate_list()
            .into_iter()
            .flat_map(|aggregate| aggregate.disks)
            .collect();
        let is_in_outage = |one: &&OfflineAggregate| {
            outages.iter().any(|outage| outage.summary.identity == one.identity)
        };
        let offline = self.node.offline.lock().clone();
        let unopened: Vec<&OfflineAggregate> =
            offline.iter().filter(|one| !is_in_outage(one)).collect();
        let info = |name: &String| {
            // One that an aggregate waits for may have been given to another.
            if let Some(holder) = self.disks.holder(name) {
                let is_it = |member: &&DiskInfo| {
                    member.name == *name && member.aggregate.as_ref() == Some(&holder)
                };
                return members.iter().find(is_it).cloned();
            }
            if let Some(info) = awaited.iter().find(|disk| disk.name == *name) {
                return Some(info.clone());
            }
            Some(seen_by_others(self.disks.info_unless_held(name)?, &unopened))
        };
        let configured = self.disks.names();
        let mut list: Vec<DiskInfo> = configured.iter().filter_map(info).collect();
        // The members of aggregates in outages are among all members, too.
        let is_lost =
            |disk: &&DiskInfo| matches!(disk.state, DiskState::Failed | DiskState::Missing);
        for disk in awaited.iter().chain(members.iter().filter(is_lost)) {
            let is_it =
                |one: &DiskInfo| (&one.name, &one.aggregate) == (&disk.name, &disk.aggregate);
            if !configured.contains(&disk.name) && !list.iter().any(is_it) {
                list.push(disk.clone());
            }
        }
        list.extend(
            unopened
                .iter()
                .flat_map(|one| one.seen.absent.iter().map(|disk| absent(&one.name, disk))),
        );
        // Disks of which only the identity is known come last.
        let is_unnamed = |disk: &DiskInfo| disk.name.starts_with('(');
        list.sort_by(|a, b| (is_unnamed(a), &a.name).cmp(&(is_unnamed(b), &b.name)));
        list
    }
}

/// A disk that nobody holds, in the eyes of the aggregates that could not be opened: what they have
/// on disks is not free to be taken.
fn seen_by_others(info: DiskInfo, unopened: &[&OfflineAggregate]) -> DiskInfo {
    let has_it = |one: &&&OfflineAggregate| one.seen.disks.contains(&info.name);
    let Some(owner) = unopened.iter().find(has_it) else { return info };
    let name = &owner.name;
    if owner.seen.replaced.contains(&info.name) {
        let note = format!("was replaced in aggregate '{name}', and has no place in it any more");
        return DiskInfo { note: Some(note), ..info };
    }
    match info.state {
        DiskState::Foreign if info.aggregate.as_ref() == Some(name) => DiskInfo {
            state: DiskState::InUse,
            note: Some(format!("works; aggregate '{name}' is out of service")),
            ..info
        },
        DiskState::Unreadable => DiskInfo { state: DiskState::Failed, ..info },
        _ => info,
    }
}

/// A disk that an aggregate which could not be opened has a place for.
fn absent(aggregate: &str, disk: &AbsentDisk) -> DiskInfo {
    DiskInfo {
        aggregate: Some(aggregate.to_owned()),
        role: Some(role(disk.role)),
        group: Some(disk.group),
        note: Some("not found".to_owned()),
        ..DiskInfo::new(unnamed(&disk.identity), DiskState::Missing)
    }
}
