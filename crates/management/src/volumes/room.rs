//! The room of volumes: what their files share, and how one is found.

use crate::aggregates::Aggregates;
use crate::node::Node;
use crate::volumes::comparisons::Comparisons;
use crate::volumes::due::Due;
use crate::volumes::looks::Looks;
use admin_api::{AdminError, AggregateInfo, AggregateState, VolumeFilter};
use dblade::ServedVolume;
use std::sync::Arc;
use telemetry::Registry;

/// The volumes of a node.
pub(crate) struct Volumes {
    pub node: Arc<Node>,
    pub aggregates: Arc<Aggregates>,
    /// Figures of a volume that is deleted are forgotten.
    pub registry: Arc<Registry>,
    /// Deleted volumes that are about to be purged.
    pub due: Due,
    /// Comparisons of snapshots under way.
    pub comparisons: Comparisons,
    /// When the schedules of volumes were looked at.
    pub looks: Looks,
}

impl Volumes {
    /// A volume in service. `message` begins the error.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(crate) fn find(&self, message: &str, name: &str) -> Result<Arc<ServedVolume>, AdminError> {
        let is_found = |volume: &Arc<ServedVolume>| {
            self.node.is_in_service(volume) && volume.queued().is_none()
        };
        let found = self.node.engine.volume_named(name).filter(is_found);
        found.ok_or_else(|| {
            let missing = AdminError::missing(message, "volume", name);
            let all = self.aggregates.aggregate_list().into_iter();
            let is_away = |one: &AggregateInfo| one.state == AggregateState::Offline;
            let away: Vec<String> = all.filter(is_away).map(|one| one.name).collect();
            match away.is_empty() {
                true => missing,
                false => missing
                    .because(format!("or its aggregate is out of service: {}", away.join(", ")))
                    .try_next("stroop status"),
            }
        })
    }

    /// The volumes that a filter means. `message` begins the error.
    ///
    /// # Errors
    /// `NotFound` if it names one that is not there.
    pub(crate) fn filtered(
        &self,
        message: &str,
        filter: &VolumeFilter,
    ) -> Result<Vec<Arc<ServedVolume>>, AdminError> {
        match &filter.volume {
            Some(name) => self.find(message, name).map(|volume| vec![volume]),
            None => Ok(self.node.served()),
        }
    }

    /// Where a volume is mounted.
    pub(crate) fn mountpoints(&self, volume: &str) -> Vec<String> {
        let mounts = self.node.front_ends.mounts().into_iter();
        mounts.filter(|mount| mount.volume == volume).map(|mount| mount.mountpoint).collect()
    }
}
