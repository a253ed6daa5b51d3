//! Aggregates, volumes and snapshots at a glance, as administrators see them.

use aggregate::AggregateError;
use nvlog::CopyStatus;
use ondisk::records::ExportRuleRecord;
use platform::DiskError;
use std::sync::Arc;
use units::{AggregateUuid, Timestamp, VolumeId};
use volume::SnapshotInfo;

/// An aggregate at a glance.
#[derive(Clone, Debug)]
pub struct AggregateSummary {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub identity: AggregateUuid,
    /// Blocks there are.
    pub size_blocks: u64,
    /// Blocks in use.
    pub used_blocks: u64,
    /// Its disks.
    pub status: raid::Status,
    /// Loads of blocks that could not be made good since the start.
    pub lost_blocks: u64,
    /// Why it is out of service, if it is.
    pub failure: Option<AggregateError>,
    /// Consistency points since the start.
    pub consistency_points: u64,
    /// Duration of the last one.
    pub last_cp_nanoseconds: u64,
    /// How full the log is.
    pub log_used_ratio: f64,
    /// Why its log takes nothing any more, if it has failed.
    pub log_failure: Option<DiskError>,
    /// Its log's copies, those that should be there and are not included.
    pub log_copies: Vec<CopyStatus>,
    /// Whether its log is on its own disks.
    pub is_log_on_disks: bool,
    /// Its root is a user's.
    pub traditional: bool,
}

/// A volume at a glance.
#[derive(Clone, Debug)]
pub struct VolumeSummary {
    /// Its name.
    pub name: String,
    /// Its number.
    pub volume: VolumeId,
    /// Its aggregate.
    pub aggregate: String,
    /// Whether it is the aggregate's own file system.
    pub traditional: bool,
    /// The size that users see.
    pub size_blocks: u64,
    /// Blocks in use, snapshots included.
    pub used_blocks: u64,
    /// Blocks in use by the active image.
    pub active_blocks: u64,
    /// Blocks that can still be written.
    pub available_blocks: u64,
    /// When it was made.
    pub created: Timestamp,
    /// Its export rules.
    pub exports: Arc<Vec<ExportRuleRecord>>,
}

/// A snapshot at a glance.
pub type SnapshotSummary = SnapshotInfo;
