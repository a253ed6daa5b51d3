//! The front ends of a node: the NFS server, the FUSE mounts and the export rules in memory.
//!
//! They see the engine as a `FileService` only, so this works over any.
//!
//! Invariants: front ends start after the engine and stop before it, so that the last consistency
//! point holds all that they answered.
//!
//! Fails: by `AdminError`, naming address, volume or mountpoint.

mod exports;
mod kept_mounts;
mod measured;
mod mount_record;
mod mountpoint;
mod mounts;
mod path_work;

use crate::memory::Shares;
use crate::state_file::StateFile;
use admin_api::titles::is_queue_name;
use admin_api::{AdminError, Code, ExportRule, Listener, MountCreate, MountInfo, MountRemove};
use exports::ExportTable;
use file_service::{FileService, HandleKey};
use fuse::RequestMemory;
use kept_mounts::KeptMounts;
use locks::{Limits, LockManager};
use management::{LockListTrouble, Refused};
use measured::{Measured, Protocol};
use mounts::Mounts;
use nfs::{LedgerTrouble, RegisterError, RpcError, StartError};
use platform::Clock;
use platform::sync::{Condvar, Mutex};
use platform::thread::spawn;
use server::config::Config;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use telemetry::{MetricSnapshot, Operations};
use units::{AggregateUuid, VolumeUuid};

/// The file of the state directory that keeps which NFS clients have locks.
const LEDGER_FILE: &str = "nfs-locks";
/// How often mounts that could not be made at the start are tried again.
const RETRY_NANOSECONDS: u64 = 5_000_000_000;
/// How long a start waits for mounts, and a stop for a try to make them: a path may hang for ever.
const MOUNTING_MAX: Duration = Duration::from_secs(5);

/// Tries to make the mounts that are missing since the start.
#[derive(Default)]
struct Tries {
    is_running: bool,
    next_nanoseconds: u64,
}

/// What all front ends share.
pub(crate) struct FrontEnds {
    service: Arc<dyn FileService>,
    clock: Arc<dyn Clock>,
    exports: Arc<ExportTable>,
    mounts: KeptMounts,
    tries: Mutex<Tries>,
    tried: Condvar,
    /// The locks of all front ends.
    locks: Arc<LockManager>,
    /// Where administrators are listened to.
    admin: Listener,
    /// The NFS server's address once it runs.
    nfs: OnceLock<Listener>,
    /// What it counts.
    programs: OnceLock<Arc<nfs::Programs>>,
    /// Where metrics are shown, if they are.
    metrics: OnceLock<Listener>,
    /// What all protocols do.
    operations: Arc<Operations>,
}

impl FrontEnds {
    /// Front ends that serve nobody as yet.
    pub(crate) fn new(
        config: &Config,
        service: Arc<dyn FileService>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let address = config.admin_socket.display().to_string();
        let shares = Shares::of(config.memory.0);
        let limits = Limits::within(shares.lock_bytes as usize);
        let locks = Arc::new(LockManager::new(Arc::clone(&clock), limits));
        let operations = Arc::new(measured::operations(shares.meter_bytes));
        let counting = (&operations, &clock);
        let of_mounts = Arc::new(Measured::new(Arc::clone(&service), Protocol::Fuse, counting));
        let request_memory = RequestMemory::new(shares.mount_bytes as usize);
        let shared = (Arc::clone(&locks), request_memory);
        let mounts = Mounts::new(&config.state_directory, of_mounts, shared);
        Self {
            service,
            locks,
            clock,
            exports: Arc::default(),
            mounts: KeptMounts::new(mounts),
            tries: Mutex::default(),
            tried: Condvar::new(),
            admin: Listener { protocol: "admin".to_owned(), address },
            nfs: OnceLock::new(),
            programs: OnceLock::new(),
            metrics: OnceLock::new(),
            operations,
        }
    }

    /// Serves NFS, if the configuration says where.
    ///
    /// # Errors
    /// See [`start_nfs`].
    pub(crate) fn serve_nfs(&self, config: &Config) -> Result<Option<nfs::Server>, AdminError> {
        let Some(address) = config.nfs else { return Ok(None) };
        let counting = (&self.operations, &self.clock);
        let service = Measured::new(Arc::clone(&self.service), Protocol::Nfs, counting);
        let (service, exports) = (Arc::new(service), Arc::clone(&self.exports));
        let (clock, locks) = (Arc::clone(&self.clock), Arc::clone(&self.locks));
        let server = start_nfs(address, config, service, exports, clock, locks)?;
        let set = self.nfs.set(listener(&server)).is_ok();
        assert!(set && self.programs.set(server.programs()).is_ok(), "NFS is started once");
        Ok(Some(server))
    }

    /// Has status show where metrics are shown.
    pub(crate) fn note_metrics(&self, address: SocketAddr) {
        let listener = Listener { protocol: "metrics".to_owned(), address: address.to_string() };
        assert!(self.metrics.set(listener).is_ok(), "metrics are served once");
    }

    /// What counts operations has so much memory.
    pub(crate) fn meter_bytes(&self) -> u64 {
        self.operations.memory_bytes()
    }

    /// Makes the mounts that are missing since the start, now and then, in a thread of its own:
    /// nobody knows how long a path hangs that is not ours.
    pub(crate) fn bring_mounts_back(self: &Arc<Self>) {
        if !self.mounts.are_to_be_brought_back() {
            return;
        }
        let now = self.clock.monotonic_nanoseconds();
        {
            let mut tries = self.tries.lock();
            if tries.is_running || now < tries.next_nanoseconds {
                return;
            }
            *tries = Tries { is_running: true, next_nanoseconds: now + RETRY_NANOSECONDS };
        }
        let this = Arc::clone(self);
        let spawned = spawn("mounts", move || {
            this.mounts.bring_back();
            this.end_try();
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to make mounts again");
            self.end_try();
        }
    }

    fn end_try(&self) {
        self.tries.lock().is_running = false;
        self.tried.notify_all();
    }

    /// Waits until a try to make mounts has ended, but not for one that hangs.
    pub(crate) fn await_mounts(&self) {
        let mut tries = self.tries.lock();
        while tries.is_running {
            if self.tried.wait_for(&mut tries, MOUNTING_MAX).timed_out() {
                tracing::warn!("a mount hangs; nobody waits for it any longer");
                return;
            }
        }
    }

    /// Ends all mounts.
    pub(crate) fn stop_mounts(&self) {
        self.mounts.stop_all();
        self.await_mounts();
    }
}

impl management::FrontEnds for FrontEnds {
    fn set_exports(&self, name: &str, volume: (VolumeUuid, HandleKey), rules: &[ExportRule]) {
        match is_queue_name(name) {
            true => self.operations.forget(volume.0.0),
            false => self.operations.know(volume.0.0, name),
        }
        self.exports.set(name, volume, rules);
    }

    fn forget_exports(&self, volume: VolumeUuid) {
        self.exports.remove(volume);
        self.operations.forget(volume.0);
    }

    fn exported(&self) -> Vec<(String, VolumeUuid)> {
        self.exports.known()
    }

    fn set_away(&self, aggregate: AggregateUuid, is_away: bool) {
        self.exports.set_away(aggregate, is_away);
    }

    fn mount(&self, request: &MountCreate) -> Result<MountInfo, AdminError> {
        self.mounts.mount(request)
    }

    fn unmount(&self, request: &MountRemove) -> Result<MountInfo, AdminError> {
        self.mounts.unmount(request)
    }

    fn rename_mounts(&self, volume: &str, new_name: &str) -> io::Result<()> {
        self.mounts.rename(volume, new_name)
    }

    fn mounts(&self) -> Vec<MountInfo> {
        self.mounts.list()
    }

    fn lost_mounts(&self) -> Vec<MountInfo> {
        self.mounts.lost()
    }

    fn mount_record_failure(&self) -> Option<String> {
        self.mounts.record_failure()
    }

    fn listeners(&self) -> Vec<Listener> {
        let own = [self.nfs.get(), Some(&self.admin), self.metrics.get()];
        own.into_iter().flatten().cloned().collect()
    }

    fn operations(&self) -> Vec<MetricSnapshot> {
        self.operations.snapshot()
    }

    fn connections(&self) -> Vec<(&'static str, u64)> {
        self.programs.get().map(|programs| ("nfs", programs.connections())).into_iter().collect()
    }

    fn lock_list_trouble(&self) -> Option<LockListTrouble> {
        self.programs.get()?.ledger_trouble().map(|trouble| match trouble {
            LedgerTrouble::Unreadable(cause) => LockListTrouble::Unreadable(cause),
            LedgerTrouble::Unwritten(cause) => LockListTrouble::Unwritten(cause),
            LedgerTrouble::Damaged(cause) => LockListTrouble::Damaged(cause),
        })
    }

    fn refused(&self) -> Refused {
        self.programs.get().map_or_else(Refused::default, |programs| {
            let refusals = programs.refusals();
            Refused { mounts: refusals.mounts(), calls: refusals.calls() }
        })
    }
}

/// Serves NFS on `address`; with rpcbind also locks, which are kept in `locks`. The
/// configuration's file is named in the error.
///
/// # Errors
/// `Conflict` if the port or a program of rpcbind is in use, `Denied` if it takes privileges.
fn start_nfs(
    address: SocketAddr,
    config: &Config,
    service: Arc<dyn FileService>,
    exports: Arc<ExportTable>,
    clock: Arc<dyn Clock>,
    locks: Arc<LockManager>,
) -> Result<nfs::Server, AdminError> {
    // Without rpcbind no client finds the lock manager, so only strangers would ask it.
    let locking = config.nfs_rpcbind.then(|| nfs::Locking {
        locks,
        ledger: Arc::new(StateFile::new(&config.state_directory, LEDGER_FILE)),
        node: config.name.clone(),
        grace_nanoseconds: config.nfs_grace_seconds * 1_000_000_000,
        rpcbind: true,
        client_rpcbind_port: nfs::CLIENT_RPCBIND_PORT,
    });
    let in_flight_bytes_max = Shares::of(config.memory.0).front_end_bytes as usize;
    let configuration = nfs::Configuration { address, clock, locking, in_flight_bytes_max };
    nfs::Server::start(&configuration, service, exports).map_err(|error| {
        let code = match &error {
            StartError::Rpc(RpcError::Listen { source, .. }) => match source.kind() {
                io::ErrorKind::AddrInUse => Code::Conflict,
                io::ErrorKind::PermissionDenied => Code::Denied,
                _ => Code::Failed,
            },
            StartError::Register(RegisterError::Taken { .. }) => Code::Conflict,
            _ => Code::Failed,
        };
        let next = match &error {
            StartError::Register(_) => "rpcinfo -p".to_owned(),
            StartError::Locks(_) => "a higher limit of threads for the server".to_owned(),
            _ => format!("another [listen] nfs in {}", config.path.display()),
        };
        AdminError::new(code, "cannot serve NFS on", address.to_string())
            .because(error.to_string())
            .try_next(next)
    })
}

/// How a running server is listed by `status`.
fn listener(server: &nfs::Server) -> Listener {
    Listener { protocol: "nfs".to_owned(), address: server.local_address().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_service::memory::MemoryFileSystem;
    use platform::linux::SystemClock;
    use std::path::Path;

    #[test]
    fn a_port_in_use_is_named() {
        let service: Arc<dyn FileService> = Arc::new(MemoryFileSystem::new(Arc::new(SystemClock)));
        let directory = tempfile::tempdir().unwrap();
        let mut config = Config::parse(Path::new("/etc/stroop.toml"), "").unwrap();
        config.state_directory = directory.path().to_owned();
        let start = |address: SocketAddr| {
            let exports = Arc::new(ExportTable::default());
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let locks = LockManager::new(Arc::clone(&clock), locks::Limits::default());
            start_nfs(address, &config, Arc::clone(&service), exports, clock, Arc::new(locks))
        };
        let first = start(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let taken = first.local_address();
        assert_eq!(listener(&first).address, taken.to_string());
        let error = start(taken).err().unwrap();
        assert_eq!(error.code, Code::Conflict);
        assert_eq!(error.object, taken.to_string());
        assert_eq!(error.next.as_deref(), Some("another [listen] nfs in /etc/stroop.toml"));
    }
}
