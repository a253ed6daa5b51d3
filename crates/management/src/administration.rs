//! The calls of administrators, each handed to where it is carried out.

use crate::aggregates::naming::Naming;
use crate::aggregates::{features_of, upgrade_report};
use crate::disks::shown::{Shown, Told};
use crate::management::Management;
use crate::volumes::{RecoveryQueue, Space, differences, quotas, splits};
use admin_api::{
    AdminError, Administration, AggregateAdd, AggregateCreate, AggregateDelete, AggregateFeatures,
    AggregateInfo, AggregateMap, AggregateOnline, AggregateSet, AggregateSpace, CheckBegun,
    CheckBlocks, CheckHeld, CheckKeep, CheckRead, CloneCreate, CloneSplit, DeletedVolume,
    DiskClear, DiskFail, DiskInfo, DiskLocate, DiskLocated, DiskReplace, DiskZero, Event,
    EventList, ExportAdd, ExportRemove, GroupRemove, JobChange, JobInfo, JobName, MapShow,
    MountCreate, MountInfo, MountRemove, Named, QuotaDelete, QuotaInfo, QuotaList, QuotaReport,
    QuotaSet, Removal, ScrubChange, ScrubInfo, SnapshotDelete, SnapshotDiff, SnapshotDifferences,
    SnapshotHold, SnapshotInfo, SnapshotName, SnapshotRestore, SpareAdd, SpareRemove, SplitInfo,
    StatusReply, Synced, UpgradeReport, VolumeCreate, VolumeDelete, VolumeExports, VolumeFilter,
    VolumeInfo, VolumeOffline, VolumePurge, VolumeRename, VolumeResize, VolumeSet, VolumeSpace,
    VolumeUndelete,
};

impl Management {
    /// Makes a change that begins or ends long work. A look before and one after, so that short
    /// work has a job, too.
    fn seen<T>(&self, change: impl FnOnce() -> T) -> T {
        self.jobs.look_before();
        let changed = change();
        // A job is kept with the short name of its disk.
        Naming(&self.aggregates).name_and_number();
        self.jobs.look();
        self.events.look_without_file(&self.status, &self.jobs);
        changed
    }

    /// Asks something of which the answer names disks; `ask` is given what they are called.
    fn told<T: Told>(
        &self,
        ask: impl FnOnce(&Shown) -> Result<T, AdminError>,
    ) -> Result<T, AdminError> {
        let before = Naming(&self.aggregates).shown_and_typed();
        let answer = ask(&before);
        Naming(&self.aggregates).name_and_number();
        let shown = Naming(&self.aggregates).shown().or(before);
        match answer {
            Ok(mut answer) => {
                answer.tell(&shown);
                Ok(answer)
            }
            Err(mut error) => {
                error.tell(&shown);
                Err(error)
            }
        }
    }
}

impl Administration for Management {
    fn status(&self) -> Result<StatusReply, AdminError> {
        self.told(|_| Ok(self.status.report(&self.jobs.known())))
    }

    fn disk_list(&self) -> Result<Vec<DiskInfo>, AdminError> {
        let mut list = self.told(|_| Ok(self.disk_administration.disk_list()))?;
        let shown = Naming(&self.aggregates).shown();
        list.sort_by_cached_key(|disk| shown.order(disk));
        Ok(list)
    }

    fn disk_fail(&self, request: &DiskFail) -> Result<Removal, AdminError> {
        self.told(|shown| {
            let request = DiskFail { disk: shown.member(&request.disk)?, ..request.clone() };
            self.seen(|| self.disk_administration.fail_disk(&request))
        })
    }

    fn disk_clear(&self, request: &DiskClear) -> Result<Removal, AdminError> {
        self.told(|shown| {
            let request = DiskClear { disk: shown.member(&request.disk)?, ..request.clone() };
            self.disk_administration.clear_disk(&request)
        })
    }

    fn disk_replace(&self, request: &DiskReplace) -> Result<DiskInfo, AdminError> {
        self.told(|shown| {
            let replacement = request.replacement.as_deref();
            let request = DiskReplace {
                disk: shown.member(&request.disk)?,
                replacement: replacement.map(|typed| shown.path(typed)).transpose()?,
                ..request.clone()
            };
            self.seen(|| self.disk_administration.replace_disk(&request))
        })
    }

    fn disk_locate(&self, request: &DiskLocate) -> Result<DiskLocated, AdminError> {
        self.told(|shown| {
            let request = DiskLocate { disk: shown.path(&request.disk)?, ..request.clone() };
            self.disk_administration.locate_disk(&request)
        })
    }

    fn disk_zero(&self, request: &DiskZero) -> Result<Removal, AdminError> {
        self.told(|shown| {
            let request = DiskZero { disk: shown.path(&request.disk)?, ..request.clone() };
            self.seen(|| self.disk_administration.zero_disk(&request))
        })
    }

    fn spare_add(&self, request: &SpareAdd) -> Result<Vec<DiskInfo>, AdminError> {
        self.told(|shown| {
            let request = SpareAdd { disks: shown.paths(&request.disks)?, ..request.clone() };
            self.aggregates.add_spares(&request)
        })
    }

    fn spare_remove(&self, request: &SpareRemove) -> Result<Removal, AdminError> {
        self.told(|shown| {
            let request = SpareRemove { disk: shown.path(&request.disk)?, ..request.clone() };
            self.aggregates.remove_spare(&request)
        })
    }

    fn aggregate_create(&self, request: &AggregateCreate) -> Result<AggregateInfo, AdminError> {
        self.told(|shown| {
            let request = AggregateCreate {
                disks: shown.paths(&request.disks)?,
                spares: shown.paths(&request.spares)?,
                ..request.clone()
            };
            self.seen(|| self.aggregates.create_aggregate(&request))
        })
    }

    fn aggregate_add(&self, request: &AggregateAdd) -> Result<AggregateInfo, AdminError> {
        self.told(|shown| {
            let request = AggregateAdd { disks: shown.paths(&request.disks)?, ..request.clone() };
            self.seen(|| self.aggregates.add_disks(&request))
        })
    }

    fn group_remove(&self, request: &GroupRemove) -> Result<Removal, AdminError> {
        self.told(|_| self.seen(|| self.aggregates.remove_group(request)))
    }

    fn aggregate_online(&self, request: &AggregateOnline) -> Result<Removal, AdminError> {
        self.told(|_| self.seen(|| self.recovery.bring_online(request)))
    }

    fn aggregate_delete(&self, request: &AggregateDelete) -> Result<Removal, AdminError> {
        self.told(|_| self.seen(|| self.recovery.delete_aggregate(request)))
    }

    fn aggregate_set(&self, request: &AggregateSet) -> Result<AggregateInfo, AdminError> {
        self.told(|_| self.aggregates.set_aggregate(request))
    }

    fn aggregate_list(&self) -> Result<Vec<AggregateInfo>, AdminError> {
        self.told(|_| Ok(self.aggregates.aggregate_list()))
    }

    fn aggregate_show(&self, request: &Named) -> Result<AggregateInfo, AdminError> {
        self.told(|_| self.aggregates.aggregate(&request.name))
    }

    fn aggregate_map(&self, request: &MapShow) -> Result<AggregateMap, AdminError> {
        self.aggregates.area_map(request)
    }

    fn aggregate_features(&self, request: &Named) -> Result<AggregateFeatures, AdminError> {
        features_of(&self.aggregates, &request.name)
    }

    fn upgrade_check(&self) -> Result<UpgradeReport, AdminError> {
        upgrade_report(&self.aggregates)
    }

    fn check_begin(&self, request: &Named) -> Result<CheckBegun, AdminError> {
        self.checks.begin_check(request)
    }

    fn check_keep(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        self.checks.keep_check(request)
    }

    fn check_read(&self, request: &CheckRead) -> Result<CheckBlocks, AdminError> {
        self.checks.read_for_check(request)
    }

    fn check_end(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        self.checks.end_check(request)
    }

    fn scrub_change(&self, request: &ScrubChange) -> Result<ScrubInfo, AdminError> {
        self.seen(|| self.scrubs.change_scrub(request))
    }

    fn scrub_show(&self, request: &Named) -> Result<ScrubInfo, AdminError> {
        self.scrubs.scrub_info("cannot show the scrub of", &request.name)
    }

    fn event_list(&self, request: &EventList) -> Result<Vec<Event>, AdminError> {
        Ok(self.events.list(request))
    }

    fn job_list(&self) -> Result<Vec<JobInfo>, AdminError> {
        Ok(self.jobs.list())
    }

    fn job_show(&self, request: &JobName) -> Result<JobInfo, AdminError> {
        self.jobs.show(request)
    }

    fn job_change(&self, request: &JobChange) -> Result<JobInfo, AdminError> {
        self.jobs.change(request)
    }

    fn volume_create(&self, request: &VolumeCreate) -> Result<Vec<VolumeInfo>, AdminError> {
        self.volumes.create_volumes(request)
    }

    fn volume_list(&self) -> Result<Vec<VolumeInfo>, AdminError> {
        Ok(self.volumes.volume_infos(&self.volumes.node.served()))
    }

    fn volume_show(&self, request: &Named) -> Result<VolumeInfo, AdminError> {
        let volume = self.volumes.find("cannot show volume", &request.name)?;
        Ok(self.volumes.volume_info(&volume))
    }

    fn volume_set(&self, request: &VolumeSet) -> Result<VolumeInfo, AdminError> {
        self.volumes.set_volume(request)
    }

    fn volume_resize(&self, request: &VolumeResize) -> Result<VolumeInfo, AdminError> {
        self.volumes.resize_volume(request)
    }

    fn volume_rename(&self, request: &VolumeRename) -> Result<VolumeInfo, AdminError> {
        self.volumes.rename_volume(request)
    }

    fn volume_offline(&self, request: &VolumeOffline) -> Result<VolumeInfo, AdminError> {
        self.volumes.take_offline(request)
    }

    fn volume_online(&self, request: &Named) -> Result<VolumeInfo, AdminError> {
        self.volumes.bring_online(request)
    }

    fn volume_delete(&self, request: &VolumeDelete) -> Result<Removal, AdminError> {
        self.seen(|| RecoveryQueue(&self.volumes).delete_volume(request))
    }

    fn volume_list_deleted(&self) -> Result<Vec<DeletedVolume>, AdminError> {
        Ok(RecoveryQueue(&self.volumes).list_deleted())
    }

    fn volume_undelete(&self, request: &VolumeUndelete) -> Result<VolumeInfo, AdminError> {
        self.seen(|| RecoveryQueue(&self.volumes).undelete_volume(request))
    }

    fn volume_purge(&self, request: &VolumePurge) -> Result<Removal, AdminError> {
        self.seen(|| RecoveryQueue(&self.volumes).purge_volume(request))
    }

    fn volume_sync(&self, request: &VolumeFilter) -> Result<Synced, AdminError> {
        self.volumes.sync(request)
    }

    fn aggregate_space(&self, request: &Named) -> Result<AggregateSpace, AdminError> {
        Space(&self.volumes).aggregate_space(|| self.aggregates.aggregate(&request.name))
    }

    fn volume_space(&self, request: &Named) -> Result<VolumeSpace, AdminError> {
        Space(&self.volumes).volume_space(request)
    }

    fn snapshot_create(&self, request: &SnapshotName) -> Result<SnapshotInfo, AdminError> {
        self.volumes.create_snapshot(request)
    }

    fn snapshot_list(&self, request: &VolumeFilter) -> Result<Vec<SnapshotInfo>, AdminError> {
        self.volumes.list_snapshots(request)
    }

    fn snapshot_delete(&self, request: &SnapshotDelete) -> Result<Removal, AdminError> {
        self.volumes.delete_snapshot(request)
    }

    fn snapshot_hold(&self, request: &SnapshotHold) -> Result<SnapshotInfo, AdminError> {
        self.volumes.hold_snapshot(request)
    }

    fn snapshot_diff(&self, request: &SnapshotDiff) -> Result<SnapshotDifferences, AdminError> {
        differences::of_snapshots(&self.volumes, request)
    }

    fn snapshot_restore(&self, request: &SnapshotRestore) -> Result<Removal, AdminError> {
        self.volumes.restore_snapshot(request)
    }

    fn clone_create(&self, request: &CloneCreate) -> Result<Vec<VolumeInfo>, AdminError> {
        self.volumes.create_clones(request)
    }

    fn clone_split(&self, request: &CloneSplit) -> Result<SplitInfo, AdminError> {
        self.seen(|| splits::split_clone(&self.volumes, request))
    }

    fn quota_set(&self, request: &QuotaSet) -> Result<QuotaInfo, AdminError> {
        quotas::set(&self.volumes, request)
    }

    fn quota_delete(&self, request: &QuotaDelete) -> Result<QuotaInfo, AdminError> {
        quotas::delete(&self.volumes, request)
    }

    fn quota_list(&self, request: &QuotaList) -> Result<QuotaReport, AdminError> {
        quotas::list(&self.volumes, request)
    }

    fn export_add(&self, request: &ExportAdd) -> Result<VolumeExports, AdminError> {
        self.volumes.add_export(request)
    }

    fn export_list(&self, request: &VolumeFilter) -> Result<Vec<VolumeExports>, AdminError> {
        self.volumes.list_exports(request)
    }

    fn export_remove(&self, request: &ExportRemove) -> Result<VolumeExports, AdminError> {
        self.volumes.remove_export(request)
    }

    fn fuse_mount(&self, request: &MountCreate) -> Result<MountInfo, AdminError> {
        self.volumes.mount(request)
    }

    fn fuse_unmount(&self, request: &MountRemove) -> Result<MountInfo, AdminError> {
        self.node.front_ends.unmount(request)
    }

    fn mount_list(&self) -> Result<Vec<MountInfo>, AdminError> {
        Ok(self.node.front_ends.mounts())
    }

    fn shutdown(&self) -> Result<(), AdminError> {
        self.process.request_shutdown();
        Ok(())
    }
}
