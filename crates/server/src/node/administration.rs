//! The calls of administrators, each handed to where it is carried out.

use super::core::Core;
use super::rules;
use admin_api::{
    AdminError, Administration, AggregateAdd, AggregateCreate, AggregateInfo, AggregateMap,
    AggregateSet, CheckBegun, CheckBlocks, CheckHeld, CheckKeep, CheckRead, DiskClear, DiskFail,
    DiskInfo, DiskLocate, DiskLocated, DiskReplace, DiskZero, ExportAdd, ExportRemove, GroupRemove,
    MapShow, MountCreate, MountInfo, MountRemove, Named, Removal, ScrubChange, ScrubInfo,
    SnapshotDelete, SnapshotInfo, SnapshotName, SnapshotRestore, SpareAdd, SpareRemove,
    StatusReply, VolumeCreate, VolumeDelete, VolumeExports, VolumeFilter, VolumeInfo, VolumeSet,
};

impl Administration for Core {
    fn status(&self) -> Result<StatusReply, AdminError> {
        Ok(self.report())
    }

    fn disk_list(&self) -> Result<Vec<DiskInfo>, AdminError> {
        Ok(Core::disk_list(self))
    }

    fn disk_fail(&self, request: &DiskFail) -> Result<Removal, AdminError> {
        self.fail_disk(request)
    }

    fn disk_clear(&self, request: &DiskClear) -> Result<Removal, AdminError> {
        self.clear_disk(request)
    }

    fn disk_replace(&self, request: &DiskReplace) -> Result<DiskInfo, AdminError> {
        self.replace_disk(request)
    }

    fn disk_locate(&self, request: &DiskLocate) -> Result<DiskLocated, AdminError> {
        self.locate_disk(request)
    }

    fn disk_zero(&self, request: &DiskZero) -> Result<Removal, AdminError> {
        self.zero_disk(request)
    }

    fn spare_add(&self, request: &SpareAdd) -> Result<Vec<DiskInfo>, AdminError> {
        self.add_spares(request)
    }

    fn spare_remove(&self, request: &SpareRemove) -> Result<Removal, AdminError> {
        self.remove_spare(request)
    }

    fn aggregate_create(&self, request: &AggregateCreate) -> Result<AggregateInfo, AdminError> {
        self.create_aggregate(request)
    }

    fn aggregate_add(&self, request: &AggregateAdd) -> Result<AggregateInfo, AdminError> {
        self.add_disks(request)
    }

    fn group_remove(&self, request: &GroupRemove) -> Result<Removal, AdminError> {
        self.remove_group(request)
    }

    fn aggregate_set(&self, request: &AggregateSet) -> Result<AggregateInfo, AdminError> {
        self.set_aggregate(request)
    }

    fn aggregate_list(&self) -> Result<Vec<AggregateInfo>, AdminError> {
        Ok(Core::aggregate_list(self))
    }

    fn aggregate_show(&self, request: &Named) -> Result<AggregateInfo, AdminError> {
        self.aggregate(&request.name)
    }

    fn aggregate_map(&self, request: &MapShow) -> Result<AggregateMap, AdminError> {
        self.area_map(request)
    }

    fn check_begin(&self, request: &Named) -> Result<CheckBegun, AdminError> {
        self.begin_check(request)
    }

    fn check_keep(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        self.keep_check(request)
    }

    fn check_read(&self, request: &CheckRead) -> Result<CheckBlocks, AdminError> {
        self.read_for_check(request)
    }

    fn check_end(&self, request: &CheckKeep) -> Result<CheckHeld, AdminError> {
        self.end_check(request)
    }

    fn scrub_change(&self, request: &ScrubChange) -> Result<ScrubInfo, AdminError> {
        self.change_scrub(request)
    }

    fn scrub_show(&self, request: &Named) -> Result<ScrubInfo, AdminError> {
        self.scrub_info("cannot show the scrub of", &request.name)
    }

    fn volume_create(&self, request: &VolumeCreate) -> Result<VolumeInfo, AdminError> {
        self.create_volume(request)
    }

    fn volume_list(&self) -> Result<Vec<VolumeInfo>, AdminError> {
        Ok(self.served().iter().map(|volume| self.volume_info(volume)).collect())
    }

    fn volume_show(&self, request: &Named) -> Result<VolumeInfo, AdminError> {
        let volume = self.find("cannot show volume", &request.name)?;
        Ok(self.volume_info(&volume))
    }

    fn volume_set(&self, request: &VolumeSet) -> Result<VolumeInfo, AdminError> {
        self.set_volume(request)
    }

    fn volume_delete(&self, request: &VolumeDelete) -> Result<Removal, AdminError> {
        self.delete_volume(request)
    }

    fn snapshot_create(&self, request: &SnapshotName) -> Result<SnapshotInfo, AdminError> {
        self.create_snapshot(request)
    }

    fn snapshot_list(&self, request: &VolumeFilter) -> Result<Vec<SnapshotInfo>, AdminError> {
        self.list_snapshots(request)
    }

    fn snapshot_delete(&self, request: &SnapshotDelete) -> Result<Removal, AdminError> {
        self.delete_snapshot(request)
    }

    fn snapshot_restore(&self, request: &SnapshotRestore) -> Result<Removal, AdminError> {
        self.restore_snapshot(request)
    }

    fn export_add(&self, request: &ExportAdd) -> Result<VolumeExports, AdminError> {
        self.add_export(request)
    }

    fn export_list(&self, request: &VolumeFilter) -> Result<Vec<VolumeExports>, AdminError> {
        let volumes = self.filtered("cannot list exports of", request)?;
        let exports = volumes.iter().map(|volume| VolumeExports {
            volume: volume.name.clone(),
            rules: rules::from_records(&volume.name, &volume.exports()),
        });
        Ok(exports.collect())
    }

    fn export_remove(&self, request: &ExportRemove) -> Result<VolumeExports, AdminError> {
        self.remove_export(request)
    }

    fn fuse_mount(&self, request: &MountCreate) -> Result<MountInfo, AdminError> {
        self.mount(request)
    }

    fn fuse_unmount(&self, request: &MountRemove) -> Result<MountInfo, AdminError> {
        self.mounts.unmount(request)
    }

    fn mount_list(&self) -> Result<Vec<MountInfo>, AdminError> {
        Ok(self.mounts.list())
    }

    fn shutdown(&self) -> Result<(), AdminError> {
        self.shutdown.request("asked over the admin socket");
        Ok(())
    }
}
