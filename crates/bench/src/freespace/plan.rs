//! What the figures are made with: drives, groups, how much is overwritten and how often.

use crate::freespace::drive::Model;
use crate::freespace::rig::Shape;
use crate::freespace::variant::{Case, Comparison};
use crate::summary::Row;
use device_models::SsdConfiguration;
use ondisk::label::RaidKind;
use units::ByteSize;

/// Rows of a figure, and what a reader must know of it.
pub(super) type Found = (Vec<Row>, String);

/// What to run.
#[derive(Clone, Debug)]
pub struct FreespaceBench {
    /// The size of each disk.
    pub disk: ByteSize,
    /// Data disks of a group.
    pub data_disks: usize,
    /// How often everything is overwritten before it is measured.
    pub age: u64,
    /// Flash that SSDs have beyond what they show, in percent of that.
    pub over_provisioning_percent: u32,
    /// Rounds of what is measured.
    pub rounds: usize,
}

impl FreespaceBench {
    /// SSDs that are made for servers.
    pub(super) fn ssd(&self) -> SsdConfiguration {
        let over_provisioning_percent = self.over_provisioning_percent;
        SsdConfiguration { over_provisioning_percent, ..SsdConfiguration::default() }
    }

    /// One group with one parity disk.
    pub(super) fn shape(&self, model: Model) -> Shape {
        let (kind, data_disks, disk_bytes) = (RaidKind::Raid4, self.data_disks, self.disk.0);
        Shape { kind, groups: 1, data_disks, disk_bytes, model }
    }

    /// Cases of a figure, on one group.
    pub(super) fn comparison(
        &self,
        figure: &'static str,
        cases: &'static [Case],
        model: Model,
    ) -> Comparison {
        Comparison { figure, cases, shape: self.shape(model), rounds: self.rounds }
    }
}
