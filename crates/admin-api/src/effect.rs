//! Which calls change something, so that they can be recorded.
//!
//! Invariants: every call is listed, so that the compiler asks about a new one; a call that only
//! says what it would do changes nothing.

use crate::Request;
use crate::changes::{
    AggregateDelete, AggregateOnline, GroupRemove, VolumeOffline, VolumeRename, VolumeResize,
};
use crate::creation::{CloneCreate, VolumeCreate};
use crate::recovery_queue::{VolumeDelete, VolumePurge, VolumeUndelete};
use crate::requests::{
    AggregateAdd, AggregateCreate, DiskClear, DiskFail, DiskReplace, DiskZero, SnapshotDelete,
    SnapshotRestore, SpareAdd, SpareRemove,
};
use crate::splits::CloneSplit;

impl Request {
    /// Whether the node, or what it serves, is different after the call. A check holds back an
    /// image for as long as it reads, and changes nothing.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        match self {
            Self::Status
            | Self::DiskList
            | Self::EventList(_)
            | Self::AggregateList
            | Self::AggregateShow(_)
            | Self::AggregateSpaceShow(_)
            | Self::AggregateMap(_)
            | Self::AggregateFeatures(_)
            | Self::UpgradeCheck
            | Self::CheckBegin(_)
            | Self::CheckKeep(_)
            | Self::CheckRead(_)
            | Self::CheckEnd(_)
            | Self::ScrubShow(_)
            | Self::JobList
            | Self::JobShow(_)
            | Self::VolumeList
            | Self::VolumeListDeleted
            | Self::VolumeShow(_)
            | Self::VolumeSpaceShow(_)
            | Self::VolumeSync(_)
            | Self::SnapshotList(_)
            | Self::SnapshotDiff(_)
            | Self::QuotaList(_)
            | Self::ExportList(_)
            | Self::MountList => false,
            Self::DiskFail(DiskFail { dry_run, .. })
            | Self::DiskClear(DiskClear { dry_run, .. })
            | Self::DiskReplace(DiskReplace { dry_run, .. })
            | Self::DiskZero(DiskZero { dry_run, .. })
            | Self::SpareAdd(SpareAdd { dry_run, .. })
            | Self::SpareRemove(SpareRemove { dry_run, .. })
            | Self::AggregateCreate(AggregateCreate { dry_run, .. })
            | Self::AggregateAdd(AggregateAdd { dry_run, .. })
            | Self::GroupRemove(GroupRemove { dry_run, .. })
            | Self::AggregateOnline(AggregateOnline { dry_run, .. })
            | Self::AggregateDelete(AggregateDelete { dry_run, .. })
            | Self::VolumeCreate(VolumeCreate { dry_run, .. })
            | Self::CloneCreate(CloneCreate { dry_run, .. })
            | Self::CloneSplit(CloneSplit { dry_run, .. })
            | Self::VolumeDelete(VolumeDelete { dry_run, .. })
            | Self::VolumeUndelete(VolumeUndelete { dry_run, .. })
            | Self::VolumePurge(VolumePurge { dry_run, .. })
            | Self::VolumeResize(VolumeResize { dry_run, .. })
            | Self::VolumeRename(VolumeRename { dry_run, .. })
            | Self::VolumeOffline(VolumeOffline { dry_run, .. })
            | Self::SnapshotDelete(SnapshotDelete { dry_run, .. })
            | Self::SnapshotRestore(SnapshotRestore { dry_run, .. }) => !*dry_run,
            Self::DiskLocate(_)
            | Self::AggregateSet(_)
            | Self::ScrubChange(_)
            | Self::JobChange(_)
            | Self::VolumeSet(_)
            | Self::VolumeOnline(_)
            | Self::SnapshotCreate(_)
            | Self::SnapshotHold(_)
            | Self::QuotaSet(_)
            | Self::QuotaDelete(_)
            | Self::ExportAdd(_)
            | Self::ExportRemove(_)
            | Self::FuseMount(_)
            | Self::FuseUnmount(_)
            | Self::Shutdown => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_no_change() {
        let fail = |dry_run| Request::DiskFail(DiskFail { disk: "d1".to_owned(), dry_run });
        assert!(fail(false).is_change() && !fail(true).is_change());
        assert!(Request::Shutdown.is_change() && !Request::Status.is_change());
    }
}
