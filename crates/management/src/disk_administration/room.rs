//! The room of disks as administrators see and change them.

use crate::aggregates::Aggregates;
use crate::disks::table::DiskTable;
use crate::node::Node;
use admin_api::{DiskInfo, DiskState};
use std::sync::Arc;

/// The disks of a node, whoever uses them.
pub(crate) struct DiskAdministration {
    pub node: Arc<Node>,
    pub disks: Arc<DiskTable>,
    pub aggregates: Arc<Aggregates>,
}

impl DiskAdministration {
    /// The disks that the configuration names, and those that aggregates wait for, in order of
    /// name.
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
        let offline = self.node.offline.lock().clone();
        let info = |name: String| {
            // One that an aggregate waits for may have been given to another.
            if let Some(holder) = self.disks.holder(&name) {
                let is_it = |member: &&DiskInfo| {
                    member.name == name && member.aggregate.as_ref() == Some(&holder)
                };
                return members.iter().find(is_it).cloned();
            }
            if let Some(info) = awaited.iter().find(|disk| disk.name == name) {
                return Some(info.clone());
            }
            let mut info = self.disks.info_unless_held(&name)?;
            // Its aggregate is ours, though it is out of service: not free to be taken.
            if offline.iter().any(|aggregate| aggregate.disks.contains(&name)) {
                info.state = DiskState::Failed;
            }
            Some(info)
        };
        let mut names = self.disks.names();
        let is_named = |disk: &&DiskInfo| names.contains(&disk.name);
        let others: Vec<String> =
            awaited.iter().filter(|disk| !is_named(disk)).map(|disk| disk.name.clone()).collect();
        names.extend(others);
        names.sort();
        names.into_iter().filter_map(info).collect()
    }
}
