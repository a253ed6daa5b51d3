//! What management gets from outside in the simulated world: disks that are open for one owner
//! only, the journals of the world, front ends that remember what they were told, a process.
//!
//! Invariants: a disk is free when its last handle was dropped and its last request has ended, as a
//! file that the kernel locks.

use crate::machine::Machine;
use crate::machine::logs::{LOG_DISK, Logs, is_log, is_neighbours};
use admin_api::{
    AdminError, Code, ExportRule, Listener, MemoryUse, MountCreate, MountInfo, MountRemove,
};
use dblade::{LogProvider, LogUnavailable};
use file_service::HandleKey;
use management::{DiskSource, FrontEnds, JournalPlaces, Light, Patience, Process, StateFile};
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use platform::watched::Watch;
use platform::{Disk, DiskError, DiskOpener, MediaHints, ReadDone, WriteDone};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Weak};
use units::{AggregateUuid, BLOCK_SIZE_U64, BlockRef, VolumeUuid};

/// A disk that is open: nobody else opens it.
struct OpenDisk(Arc<dyn Disk>);

impl Disk for OpenDisk {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn size_blocks(&self) -> u64 {
        self.0.size_blocks()
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        self.0.read(block, count, done);
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.0.write(block, blocks, done);
    }

    fn flush(&self, done: WriteDone) {
        self.0.flush(done);
    }

    fn discard(&self, block: u64, count_blocks: u64) {
        self.0.discard(block, count_blocks);
    }

    fn hints(&self) -> MediaHints {
        self.0.hints()
    }
}

/// The disks of the world, as a process that has just started finds them.
pub(super) struct Disks {
    world: SimulatedWorld,
    watch: Arc<Watch>,
    open: Mutex<BTreeMap<String, Weak<OpenDisk>>>,
}

impl DiskOpener for Disks {
    fn open(&self, path: &str) -> Result<Arc<dyn Disk>, DiskError> {
        let disk = self.world.open(path)?;
        let mut open = self.open.lock();
        if open.get(path).is_some_and(|other| other.strong_count() > 0) {
            return Err(DiskError::InUse { disk: path.to_owned() });
        }
        let disk = Arc::new(OpenDisk(disk));
        open.insert(path.to_owned(), Arc::downgrade(&disk));
        Ok(self.watch.over(disk))
    }
}

impl DiskSource for Disks {
    fn names(&self) -> Vec<String> {
        let names = self.world.disk_names();
        let names = names.iter().filter(|name| !is_log(name) && !is_neighbours(name));
        names.map(|name| name.to_string()).collect()
    }

    fn is_same(&self, name: &str, other: &str) -> bool {
        name == other
    }

    fn light(&self, _: &str) -> Option<Box<dyn Light>> {
        None
    }
}

struct Journals(Logs);

impl LogProvider for Journals {
    fn create(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        self.0.create(aggregate)
    }

    fn open(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        self.0.open(aggregate)
    }
}

impl JournalPlaces for Journals {
    fn title(&self, _: &AggregateUuid) -> String {
        format!("journal device {LOG_DISK}")
    }

    fn is_there(&self, _: &AggregateUuid) -> bool {
        true
    }

    fn await_free(&self, _: &AggregateUuid, _: &Patience) {}
}

/// What front ends were told.
#[derive(Default)]
struct Told {
    exports: BTreeMap<String, (VolumeUuid, Vec<ExportRule>)>,
    away: BTreeSet<AggregateUuid>,
    mounts: BTreeMap<String, MountInfo>,
}

/// Front ends that remember what they were told.
#[derive(Default)]
pub(super) struct Clients(Mutex<Told>);

impl Clients {
    /// The volumes that clients see, with their rules.
    pub(super) fn exports(&self) -> BTreeMap<String, Vec<ExportRule>> {
        let told = self.0.lock();
        let rules = told.exports.iter().map(|(name, (_, rules))| (name.clone(), rules.clone()));
        rules.collect()
    }

    /// Whether clients wait for an aggregate.
    pub(super) fn is_any_away(&self) -> bool {
        !self.0.lock().away.is_empty()
    }
}

impl FrontEnds for Clients {
    fn set_exports(&self, name: &str, of: (VolumeUuid, HandleKey), rules: &[ExportRule]) {
        let mut told = self.0.lock();
        told.exports.retain(|_, (volume, _)| *volume != of.0);
        told.exports.insert(name.to_owned(), (of.0, rules.to_vec()));
    }

    fn forget_exports(&self, volume: VolumeUuid) {
        self.0.lock().exports.retain(|_, (known, _)| *known != volume);
    }

    fn exported(&self) -> Vec<(String, VolumeUuid)> {
        let told = self.0.lock();
        told.exports.iter().map(|(name, (volume, _))| (name.clone(), *volume)).collect()
    }

    fn set_away(&self, aggregate: AggregateUuid, is_away: bool) {
        let mut told = self.0.lock();
        if is_away {
            told.away.insert(aggregate);
        } else {
            told.away.remove(&aggregate);
        }
    }

    fn mount(&self, request: &MountCreate) -> Result<MountInfo, AdminError> {
        let MountCreate { volume, mountpoint, write_back } = request.clone();
        let mut told = self.0.lock();
        if told.mounts.contains_key(&mountpoint) {
            return Err(AdminError::new(Code::Conflict, "cannot mount at", mountpoint));
        }
        let mount = MountInfo { volume, mountpoint: mountpoint.clone(), write_back, missing: None };
        told.mounts.insert(mountpoint, mount.clone());
        Ok(mount)
    }

    fn unmount(&self, request: &MountRemove) -> Result<MountInfo, AdminError> {
        let mountpoint = &request.mountpoint;
        let mount = self.0.lock().mounts.remove(mountpoint);
        mount.ok_or_else(|| AdminError::new(Code::NotFound, "cannot unmount", mountpoint))
    }

    fn rename_mounts(&self, volume: &str, new_name: &str) -> io::Result<()> {
        let mut told = self.0.lock();
        let mounted = told.mounts.values_mut().filter(|mount| mount.volume == volume);
        mounted.for_each(|mount| new_name.clone_into(&mut mount.volume));
        Ok(())
    }

    fn mounts(&self) -> Vec<MountInfo> {
        self.0.lock().mounts.values().cloned().collect()
    }

    fn listeners(&self) -> Vec<Listener> {
        Vec::new()
    }
}

struct Host {
    memory_bytes: u64,
}

impl Process for Host {
    fn request_shutdown(&self) {}

    fn memory(&self, cached: u64, _: u64) -> MemoryUse {
        let used_bytes = cached * BLOCK_SIZE_U64;
        let (limit_bytes, consumers) = (self.memory_bytes, Vec::new());
        MemoryUse { limit_bytes, used_bytes, peak_bytes: used_bytes, consumers }
    }
}

/// A file of the state directory: a text that outlives starts.
#[derive(Default)]
pub(super) struct TextFile(Mutex<String>);

/// The files of the state directory.
#[derive(Default)]
pub(super) struct StateFiles {
    pub(super) jobs: Arc<TextFile>,
    pub(super) events: Arc<TextFile>,
    pub(super) deleted: Arc<TextFile>,
    pub(super) names: Arc<TextFile>,
}

impl StateFile for TextFile {
    fn load(&self) -> io::Result<Option<String>> {
        Ok(Some(self.0.lock().clone()).filter(|text| !text.is_empty()))
    }

    fn keep_damaged(&self) -> io::Result<String> {
        unreachable!("no text is damaged here")
    }

    fn store(&self, text: &str) -> io::Result<()> {
        text.clone_into(&mut self.0.lock());
        Ok(())
    }
}

/// The world outside of a node that has just started.
pub(super) struct Outside {
    pub(super) disks: Arc<dyn DiskSource>,
    pub(super) journals: Arc<dyn JournalPlaces>,
    pub(super) clients: Arc<Clients>,
    pub(super) process: Arc<dyn Process>,
}

impl Outside {
    pub(super) fn of(machine: &Machine<'_>) -> Self {
        let (world, watch) = (machine.world.clone(), Arc::clone(&machine.watch));
        let journals =
            Journals(Logs::new(&world, &machine.logs, machine.plan.log_blocks_on_disks()));
        Self {
            disks: Arc::new(Disks { world, watch, open: Mutex::default() }),
            journals: Arc::new(journals),
            clients: Arc::default(),
            process: Arc::new(Host { memory_bytes: machine.plan.memory_bytes }),
        }
    }
}
