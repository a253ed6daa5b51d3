//! The table of calls: the trait, the messages on the wire, the server's dispatcher and the
//! client's proxy in one place, so that they cannot disagree.
//!
//! Invariants: calls block and may take as long as the work takes, so they run on threads of the
//! admin server, never on one that serves files; [`dispatch`] validates before it calls; a call
//! that fails has changed nothing; or its error names what was changed, such as the spares that
//! were added before one could not be.

use crate::area_map::{AggregateMap, MapShow};
use crate::changes::{
    AggregateDelete, AggregateOnline, AggregateSet, GroupRemove, VolumeOffline, VolumeRename,
    VolumeResize, VolumeSet,
};
use crate::check::{CheckBegun, CheckBlocks, CheckHeld, CheckKeep, CheckRead};
use crate::creation::{CloneCreate, VolumeCreate};
use crate::differences::{SnapshotDiff, SnapshotDifferences};
use crate::error::{AdminError, Code};
use crate::events::{Event, EventList};
use crate::features::{AggregateFeatures, UpgradeReport};
use crate::jobs::{JobChange, JobInfo, JobName};
use crate::quotas::{QuotaDelete, QuotaInfo, QuotaList, QuotaReport, QuotaSet};
use crate::recovery_queue::{DeletedVolume, VolumeDelete, VolumePurge, VolumeUndelete};
use crate::replies::{
    AggregateInfo, DiskInfo, DiskLocated, MountInfo, Removal, SnapshotInfo, StatusReply, Synced,
    VolumeExports, VolumeInfo,
};
use crate::requests::{
    AggregateAdd, AggregateCreate, DiskClear, DiskFail, DiskLocate, DiskReplace, DiskZero,
    ExportAdd, ExportRemove, MountCreate, MountRemove, Named, SnapshotDelete, SnapshotHold,
    SnapshotName, SnapshotRestore, SpareAdd, SpareRemove, Validate, VolumeFilter,
};
use crate::scrub::{ScrubChange, ScrubInfo};
use crate::space::{AggregateSpace, VolumeSpace};
use crate::splits::{CloneSplit, SplitInfo};
use serde::{Deserialize, Serialize};

/// Carries a request to a node and its answer back.
pub trait Transport: Send + Sync {
    /// # Errors
    /// What the node answered, or `Unreachable`, `TimedOut`, `Failed` of the way there.
    fn call(&self, request: Request) -> Result<Reply, AdminError>;
}

/// A node at the other end of a transport.
pub struct Remote<T>(pub T);

fn another_answer(call: &str) -> AdminError {
    AdminError::new(Code::Failed, "cannot read the answer to", call)
        .because("the server answered another call")
}

macro_rules! administration {
    ($($(#[$doc:meta])*
       $variant:ident $method:ident($($argument:ident: $type:ty)?) -> $reply:ty;)*) => {
        /// What a node can be asked. Calls block.
        pub trait Administration: Send + Sync {
            $($(#[$doc])*
            ///
            /// # Errors
            /// As the request deserves; nothing has changed then but what the error says.
            fn $method(&self $(, $argument: &$type)?) -> Result<$reply, AdminError>;)*
        }

        /// A call on the wire.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Request {
            $($(#[$doc])* $variant $(($type))?,)*
        }

        /// The answer to the call of the same name.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Reply {
            $($(#[$doc])* $variant($reply),)*
        }

        impl Request {
            /// The call's name, for logs.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self {
                    $(administration!(@pattern $variant $($type)?) => stringify!($method),)*
                }
            }
        }

        /// Checks a request and has the node carry it out.
        ///
        /// # Errors
        /// `Usage` if the request is out of limits, else what the node says.
        pub fn dispatch(node: &dyn Administration, request: &Request) -> Result<Reply, AdminError> {
            match request {
                $(Request::$variant $(($argument))? => {
                    $($argument.validate()?;)?
                    node.$method($($argument)?).map(Reply::$variant)
                })*
            }
        }

        impl<T: Transport> Administration for Remote<T> {
            $(fn $method(&self $(, $argument: &$type)?) -> Result<$reply, AdminError> {
                $($argument.validate()?;)?
                match self.0.call(Request::$variant $(($argument.clone()))?)? {
                    Reply::$variant(reply) => Ok(reply),
                    _ => Err(another_answer(stringify!($method))),
                }
            })*
        }
    };
    (@pattern $variant:ident) => { Self::$variant };
    (@pattern $variant:ident $type:ty) => { Self::$variant(_) };
}

administration! {
    /// The node at a glance.
    Status status() -> StatusReply;
    /// The disks that the configuration names, in order of name.
    DiskList disk_list() -> Vec<DiskInfo>;
    /// Takes a disk out of use, as if it had failed; says what that means, or would mean.
    DiskFail disk_fail(request: DiskFail) -> Removal;
    /// Forgets the errors that were counted for a disk, and that it is sick; says which they are.
    DiskClear disk_clear(request: DiskClear) -> Removal;
    /// Gives a disk's place to another, which is rebuilt in the background; says how that one is,
    /// or would be.
    DiskReplace disk_replace(request: DiskReplace) -> DiskInfo;
    /// Has a disk show where it is, and says how.
    DiskLocate disk_locate(request: DiskLocate) -> DiskLocated;
    /// Begins to zero a disk that no aggregate uses; says what is lost, or would be.
    DiskZero disk_zero(request: DiskZero) -> Removal;
    /// Makes disks spares of an aggregate; says how they are, or would be.
    SpareAdd spare_add(request: SpareAdd) -> Vec<DiskInfo>;
    /// Lets go of a spare; says what that means, or would mean.
    SpareRemove spare_remove(request: SpareRemove) -> Removal;
    /// Makes an aggregate; says how it is, or would be.
    AggregateCreate aggregate_create(request: AggregateCreate) -> AggregateInfo;
    /// Makes an aggregate larger; says how it is, or would be.
    AggregateAdd aggregate_add(request: AggregateAdd) -> AggregateInfo;
    /// Has a group of disks leave an aggregate, which is emptied in the background, or stay; says
    /// what that means, or would mean.
    GroupRemove group_remove(request: GroupRemove) -> Removal;
    /// Brings an aggregate back into service; says which operations are lost, or would be.
    AggregateOnline aggregate_online(request: AggregateOnline) -> Removal;
    /// Deletes an aggregate that has no volumes, or, by force, one that is out of service or a
    /// traditional volume; says what goes, or would. `Conflict` while volumes are there.
    AggregateDelete aggregate_delete(request: AggregateDelete) -> Removal;
    /// Changes an aggregate; says how it is then.
    AggregateSet aggregate_set(request: AggregateSet) -> AggregateInfo;
    /// All aggregates, in order of name.
    AggregateList aggregate_list() -> Vec<AggregateInfo>;
    /// One aggregate.
    AggregateShow aggregate_show(request: Named) -> AggregateInfo;
    /// Where an aggregate's blocks are. Of clones with snapshots maps are counted.
    AggregateSpaceShow aggregate_space(request: Named) -> AggregateSpace;
    /// How much of which allocation area of an aggregate is free; `Conflict` if it is out of
    /// service.
    AggregateMap aggregate_map(request: MapShow) -> AggregateMap;
    /// The features of the format that an aggregate uses.
    AggregateFeatures aggregate_features(request: Named) -> AggregateFeatures;
    /// The features that this build has and that the aggregates use.
    UpgradeCheck upgrade_check() -> UpgradeReport;
    /// Begins a check. Of an aggregate in service the image of a consistency point is held back
    /// from being overwritten; one that is out of service stays so. `Conflict` if another check of
    /// the aggregate is under way.
    CheckBegin check_begin(request: Named) -> CheckBegun;
    /// Has a check go on for longer; `Conflict` if it is over, and why.
    CheckKeep check_keep(request: CheckKeep) -> CheckHeld;
    /// Reads blocks of a disk for a check.
    CheckRead check_read(request: CheckRead) -> CheckBlocks;
    /// Ends a check; `Conflict` if what it read was not kept to the end, and why.
    CheckEnd check_end(request: CheckKeep) -> CheckHeld;
    /// Starts, pauses, resumes or stops the scrub of an aggregate; says how it is then.
    ScrubChange scrub_change(request: ScrubChange) -> ScrubInfo;
    /// The scrub of an aggregate: the last one, or the one under way.
    ScrubShow scrub_show(request: Named) -> ScrubInfo;
    /// What happened of late, oldest first; the node looks once a second.
    EventList event_list(request: EventList) -> Vec<Event>;
    /// The jobs that are not over, and the last that are, in order of number.
    JobList job_list() -> Vec<JobInfo>;
    /// One job.
    JobShow job_show(request: JobName) -> JobInfo;
    /// Pauses, resumes or cancels a job; says how it is then. `Conflict` if the engine cannot do
    /// that to work of its kind; the error names the command that helps.
    JobChange job_change(request: JobChange) -> JobInfo;
    /// Makes volumes, all or none; says in the order of their names how they are, or would be.
    VolumeCreate volume_create(request: VolumeCreate) -> Vec<VolumeInfo>;
    /// All volumes, in order of name.
    VolumeList volume_list() -> Vec<VolumeInfo>;
    /// One volume.
    VolumeShow volume_show(request: Named) -> VolumeInfo;
    /// Where a volume's blocks are. Its maps are counted, which takes longer the more there are.
    VolumeSpaceShow volume_space(request: Named) -> VolumeSpace;
    /// Changes a volume; says how it is then.
    VolumeSet volume_set(request: VolumeSet) -> VolumeInfo;
    /// Gives a volume another size; says how it is then, or would be.
    VolumeResize volume_resize(request: VolumeResize) -> VolumeInfo;
    /// Gives a volume another name; says how it is then, or would be. `Conflict` if another volume
    /// has the name.
    VolumeRename volume_rename(request: VolumeRename) -> VolumeInfo;
    /// Takes a volume offline, with all that was answered durable; says how it is then, or would
    /// be. `Conflict` while it is mounted on this machine, or if it is offline.
    VolumeOffline volume_offline(request: VolumeOffline) -> VolumeInfo;
    /// Brings a volume back that was taken offline; says how it is then. `Conflict` if it was not.
    VolumeOnline volume_online(request: Named) -> VolumeInfo;
    /// Deletes a volume and its snapshots, and keeps it in the recovery queue for a while;
    /// `Conflict` while it is mounted on this machine, or has clones.
    VolumeDelete volume_delete(request: VolumeDelete) -> Removal;
    /// Volumes in the recovery queue, in the order of their deletion.
    VolumeListDeleted volume_list_deleted() -> Vec<DeletedVolume>;
    /// Brings a volume back from the recovery queue; says how it is then, or would be. `Conflict`
    /// if another has its name.
    VolumeUndelete volume_undelete(request: VolumeUndelete) -> VolumeInfo;
    /// Has a volume of the recovery queue be gone for good; its space comes back in the
    /// background.
    VolumePurge volume_purge(request: VolumePurge) -> Removal;
    /// Makes all that was answered before durable, of all volumes or one. `Failed` if an aggregate
    /// is out of service; the others are done then.
    VolumeSync volume_sync(request: VolumeFilter) -> Synced;
    /// Takes a snapshot.
    SnapshotCreate snapshot_create(request: SnapshotName) -> SnapshotInfo;
    /// Holds a snapshot: neither it nor its volume is deleted then, whoever asks for it; or
    /// releases it. To hold a snapshot that is held, or release one that is not, changes nothing.
    SnapshotHold snapshot_hold(request: SnapshotHold) -> SnapshotInfo;
    /// Snapshots of all volumes or one, oldest first within a volume. What each holds is counted.
    SnapshotList snapshot_list(request: VolumeFilter) -> Vec<SnapshotInfo>;
    /// What changed between two snapshots of a volume; `Conflict` if that is too much to be told.
    SnapshotDiff snapshot_diff(request: SnapshotDiff) -> SnapshotDifferences;
    /// Deletes a snapshot, or several that follow each other; the space comes back in the
    /// background.
    SnapshotDelete snapshot_delete(request: SnapshotDelete) -> Removal;
    /// Takes a volume back to a snapshot; `Conflict` if that would lose newer snapshots and the
    /// request does not say so.
    SnapshotRestore snapshot_restore(request: SnapshotRestore) -> Removal;
    /// Makes clones of a snapshot, all or none; says in the order of their names how they are, or
    /// would be. While there is one, neither the snapshot nor its volume can be deleted.
    CloneCreate clone_create(request: CloneCreate) -> Vec<VolumeInfo>;
    /// Has a clone copy the blocks that it shares with its parent, in the background, and be a
    /// volume like others then; or has such a split end. Says how much is to be copied, or would
    /// be. `Conflict` if there is no room for the copies, or the volume is no clone.
    CloneSplit clone_split(request: CloneSplit) -> SplitInfo;
    /// Changes limits of a user, a group or a tree in a volume; says how they are then. An empty
    /// directory becomes a tree.
    QuotaSet quota_set(request: QuotaSet) -> QuotaInfo;
    /// Takes the limits away that a user, a group or a tree has of its own; says which hold for it
    /// then.
    QuotaDelete quota_delete(request: QuotaDelete) -> QuotaInfo;
    /// A page of the usage and limits of a volume's users, groups and trees, as of the last
    /// consistency point.
    QuotaList quota_list(request: QuotaList) -> QuotaReport;
    /// Adds an export rule; `Conflict` if there is one for the same network.
    ExportAdd export_add(request: ExportAdd) -> VolumeExports;
    /// Export rules of all volumes or one, in order of volume name.
    ExportList export_list(request: VolumeFilter) -> Vec<VolumeExports>;
    /// Removes an export rule.
    ExportRemove export_remove(request: ExportRemove) -> VolumeExports;
    /// Mounts a volume on this machine. The mount is made again at each start of the node, until it
    /// is ended.
    FuseMount fuse_mount(request: MountCreate) -> MountInfo;
    /// Ends a mount, or gives up one that is missing.
    FuseUnmount fuse_unmount(request: MountRemove) -> MountInfo;
    /// The mounts on this machine, in order of mountpoint.
    MountList mount_list() -> Vec<MountInfo>;
    /// Begins a clean stop, with a last consistency point; returns when it has begun.
    Shutdown shutdown() -> ();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryAdministration;

    /// The wire without a socket: through JSON and back.
    struct Loopback(MemoryAdministration);

    impl Transport for Loopback {
        fn call(&self, request: Request) -> Result<Reply, AdminError> {
            let request = serde_json::to_string(&request).unwrap();
            let reply = dispatch(&self.0, &serde_json::from_str(&request).unwrap())?;
            Ok(serde_json::from_str(&serde_json::to_string(&reply).unwrap()).unwrap())
        }
    }

    struct Confused;

    impl Transport for Confused {
        fn call(&self, _: Request) -> Result<Reply, AdminError> {
            Ok(Reply::Shutdown(()))
        }
    }

    #[test]
    fn calls_survive_the_wire() {
        let node = Remote(Loopback(MemoryAdministration::with_disks(4)));
        let disks: Vec<String> =
            node.disk_list().unwrap().into_iter().map(|disk| disk.name).collect();
        let aggregate = AggregateCreate {
            media: Some("smr:256MiB".to_owned()),
            ..AggregateCreate::new("a1", disks, crate::RaidKind::Raid4)
        };
        assert_eq!(node.aggregate_create(&aggregate).unwrap().data_disks, 3);
        assert_eq!(node.aggregate_list().unwrap(), node.0.0.aggregate_list().unwrap());
        assert_eq!(node.status().unwrap(), node.0.0.status().unwrap());
        let missing = node.volume_show(&Named { name: "home".to_owned() }).unwrap_err();
        assert_eq!(missing.code, Code::NotFound);
        node.shutdown().unwrap();
        assert!(node.0.0.is_shut_down());
    }

    #[test]
    fn requests_are_validated_on_both_sides() {
        let node = Remote(Loopback(MemoryAdministration::with_disks(1)));
        let request = Named { name: "../etc".to_owned() };
        assert_eq!(node.volume_show(&request).unwrap_err().code, Code::Usage);
        let request = Request::VolumeShow(request);
        assert_eq!(dispatch(&node.0.0, &request).unwrap_err().code, Code::Usage);
        assert_eq!(request.name(), "volume_show");
    }

    #[test]
    fn another_answer_than_asked_for_is_an_error() {
        assert_eq!(Remote(Confused).disk_list().unwrap_err().code, Code::Failed);
    }
}
