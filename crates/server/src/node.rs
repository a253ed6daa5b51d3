//! The node: where administration and front ends meet the engine.
//!
//! [`start`] takes the configuration and returns a running [`Node`]; everything around it
//! (signals, lock, admin socket, log) is in `serve`.
//!
//! This build has no storage engine yet: the node reports itself and its disks, serves no volumes,
//! and refuses all that needs an engine with an error that says so.
//!
//! Invariants: calls of [`Administration`] come from threads of the admin server and may block;
//! after [`Node::stop`] has returned no thread of the node runs.

use crate::config::Config;
use crate::disks::discover;
use crate::front_ends::{self, ExportTable, Mounts};
use crate::shutdown::Shutdown;
use admin_api::{
    AdminError, Administration, AggregateCreate, AggregateInfo, Code, DiskInfo, DiskState,
    ExportAdd, ExportRemove, Listener, MemoryUse, MountCreate, MountInfo, MountRemove, Named,
    Removal, SnapshotDelete, SnapshotInfo, SnapshotName, SnapshotRestore, StatusReply, Time,
    VolumeCreate, VolumeDelete, VolumeExports, VolumeFilter, VolumeInfo,
};
use file_service::FileService;
use file_service::memory::MemoryFileSystem;
use platform::Clock;
use platform::linux::SystemClock;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use telemetry::{Registry, definitions};
use units::Timestamp;

/// A running node.
pub(crate) struct Node {
    engine: Arc<Engineless>,
    nfs: Option<nfs::Server>,
}

/// Starts a node: the engine, then its front ends.
///
/// # Errors
/// If a disk, port or log cannot be used.
pub(crate) fn start(config: &Config, shutdown: &Shutdown) -> Result<Node, AdminError> {
    let clock = SystemClock;
    let service: Arc<dyn FileService> = Arc::new(MemoryFileSystem::new(Arc::new(clock)));
    let exports = Arc::new(ExportTable::default());
    let nfs = config.nfs.map(|address| {
        front_ends::start_nfs(address, &config.path, Arc::clone(&service), Arc::clone(&exports))
    });
    let nfs = nfs.transpose()?;
    let engine = Engineless {
        config: config.clone(),
        shutdown: shutdown.clone(),
        started: clock.wall(),
        started_monotonic_nanoseconds: clock.monotonic_nanoseconds(),
        clock,
        registry: Registry::new(),
        listener: nfs.as_ref().map(front_ends::listener),
        mounts: Mounts::default(),
        service,
    };
    Ok(Node { engine: Arc::new(engine), nfs })
}

impl Node {
    /// What administrators talk to.
    pub(crate) fn administration(&self) -> Arc<dyn Administration> {
        Arc::clone(&self.engine) as Arc<dyn Administration>
    }

    /// Stops the node: first the front ends, so that nothing more is answered, then the engine.
    ///
    /// # Errors
    /// If its last consistency points fail.
    pub(crate) fn stop(self) -> Result<(), AdminError> {
        self.engine.mounts.stop_all();
        if let Some(mut nfs) = self.nfs {
            nfs.stop();
        }
        Ok(())
    }
}

struct Engineless {
    config: Config,
    shutdown: Shutdown,
    started: Timestamp,
    started_monotonic_nanoseconds: u64,
    clock: SystemClock,
    registry: Registry,
    listener: Option<Listener>,
    mounts: Mounts,
    service: Arc<dyn FileService>,
}

/// What this build answers to everything that needs an engine.
fn no_engine<T>(object: &str) -> Result<T, AdminError> {
    Err(AdminError::new(Code::Failed, "cannot carry out the command for", object)
        .because("this build has no storage engine"))
}

fn absent<T>(noun: &str, object: &str) -> Result<T, AdminError> {
    Err(AdminError::new(Code::NotFound, format!("cannot find {noun}"), object)
        .because(format!("there is no {noun} of this name")))
}

fn disk_info(path: &Path) -> DiskInfo {
    // A block device's size is where its end is; its metadata says zero.
    let size = File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
    let (state, note) = match &size {
        Ok(_) => (DiskState::Unused, None),
        Err(error) => (DiskState::Unreadable, Some(error.to_string())),
    };
    DiskInfo {
        name: path.display().to_string(),
        size_bytes: size.unwrap_or(0),
        state,
        aggregate: None,
        role: None,
        note,
        read_errors: 0,
        write_errors: 0,
        checksum_errors: 0,
    }
}

impl Administration for Engineless {
    fn status(&self) -> Result<StatusReply, AdminError> {
        let now = self.clock.monotonic_nanoseconds();
        let uptime_ns = now.saturating_sub(self.started_monotonic_nanoseconds);
        self.registry.gauge(&definitions::UPTIME, &[]).set_count(uptime_ns);
        let checks = Vec::new();
        let admin = Listener {
            protocol: "admin".to_owned(),
            address: self.config.admin_socket.display().to_string(),
        };
        Ok(StatusReply {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.config.name.clone(),
            health: StatusReply::health_of(&checks),
            checks,
            started: Time(self.started),
            uptime_ns,
            recovery: None,
            memory: MemoryUse { limit_bytes: self.config.memory.0, used_bytes: 0 },
            listeners: self.listener.iter().cloned().chain([admin]).collect(),
            aggregates: Vec::new(),
            volumes: 0,
            mounts: self.mounts.list(),
            metrics: self.registry.snapshot(),
        })
    }

    fn disk_list(&self) -> Result<Vec<DiskInfo>, AdminError> {
        Ok(discover(&self.config.disks).iter().map(|path| disk_info(path)).collect())
    }

    fn aggregate_create(&self, request: &AggregateCreate) -> Result<AggregateInfo, AdminError> {
        no_engine(&request.name)
    }

    fn aggregate_list(&self) -> Result<Vec<AggregateInfo>, AdminError> {
        Ok(Vec::new())
    }

    fn aggregate_show(&self, request: &Named) -> Result<AggregateInfo, AdminError> {
        absent("aggregate", &request.name)
    }

    fn volume_create(&self, request: &VolumeCreate) -> Result<VolumeInfo, AdminError> {
        absent("aggregate", &request.aggregate)
    }

    fn volume_list(&self) -> Result<Vec<VolumeInfo>, AdminError> {
        Ok(Vec::new())
    }

    fn volume_show(&self, request: &Named) -> Result<VolumeInfo, AdminError> {
        absent("volume", &request.name)
    }

    fn volume_delete(&self, request: &VolumeDelete) -> Result<Removal, AdminError> {
        absent("volume", &request.name)
    }

    fn snapshot_create(&self, request: &SnapshotName) -> Result<SnapshotInfo, AdminError> {
        absent("volume", &request.volume)
    }

    fn snapshot_list(&self, request: &VolumeFilter) -> Result<Vec<SnapshotInfo>, AdminError> {
        request.volume.as_ref().map_or(Ok(Vec::new()), |volume| absent("volume", volume))
    }

    fn snapshot_delete(&self, request: &SnapshotDelete) -> Result<Removal, AdminError> {
        absent("volume", &request.volume)
    }

    fn snapshot_restore(&self, request: &SnapshotRestore) -> Result<Removal, AdminError> {
        absent("volume", &request.volume)
    }

    fn export_add(&self, request: &ExportAdd) -> Result<VolumeExports, AdminError> {
        absent("volume", &request.volume)
    }

    fn export_list(&self, request: &VolumeFilter) -> Result<Vec<VolumeExports>, AdminError> {
        request.volume.as_ref().map_or(Ok(Vec::new()), |volume| absent("volume", volume))
    }

    fn export_remove(&self, request: &ExportRemove) -> Result<VolumeExports, AdminError> {
        absent("volume", &request.volume)
    }

    fn fuse_mount(&self, request: &MountCreate) -> Result<MountInfo, AdminError> {
        self.mounts.mount(request, Arc::clone(&self.service))
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
