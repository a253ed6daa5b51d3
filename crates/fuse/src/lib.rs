//! Mounts a volume of a [`FileService`] on this machine, through the kernel's FUSE.
//!
//! The protocol is spoken here, on `/dev/fuse`, rather than through the `fuser` crate, for what
//! that crate's interface (0.18) cannot say: a node id that differs from `st_ino` (ids must never
//! be used again, inode numbers must be the file's own), a read answered from the blocks where
//! they lie, a write whose payload is handed on without a copy, and which truncations clear setuid.
//!
//! What a user gets:
//! - POSIX as on a local file system, checked with pjdfstest and fsx; permissions are checked by
//!   the kernel (see `server`), by access control lists, too.
//! - Changes made through the mount are seen at once on the mount. Changes made elsewhere (NFS) are
//!   seen when a file is opened, and of names and attributes after [`MountOptions::cache_time`].
//! - A write is in the service when it is answered. With [`MountOptions::write_back`] the kernel
//!   keeps it, and sends it later: at the latest before `fsync` and `close` are answered.
//! - `fsync` answers when the file's changes are durable; so is what was changed before. A file
//!   that was written and closed is durable within a second. `sync` alone does nothing: the kernel
//!   does not pass it on (see `unsettled`).
//! - `st_ino` is the inode number, the same at every mount; file handles for re-export
//!   (`name_to_handle_at`) stay good.
//!
//! Invariants: at most one `FuseMount` per mountpoint; dropping it unmounts. Event loops never
//! wait for the service. A panic in an event loop ends the process: a process in the kernel would
//! wait for its answer for ever.
//!
//! - Locks (`fcntl`, `flock`) are shared with what else uses the same lock manager: other mounts,
//!   NFS clients. A mount without one leaves them to the kernel.
//!
//! Not here: copying within the server.
//!
//! Fails: [`MountError`], with what to do about it.

#![deny(unsafe_code)]

mod abi;
mod connection;
mod convert;
#[expect(unsafe_code, reason = "system calls on the device of FUSE")]
mod device;
pub mod dialogue;
mod errno;
mod kernel_mount;
mod mount_error;
mod node;
mod opens;
mod privileged;
mod removed;
mod reply;
mod request;
mod request_memory;
mod ring;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod unsent;
mod unsettled;

use connection::Connection;
use device::Device;
use file_service::{Caller, Entry, FileService, FsError, calls};
use kernel_mount::Looked;
use locks::LockManager;
use platform::thread::{self, JoinHandle};
use request_memory::MountMemory;
use ring::{Rings, Serving};
use server::Server;
use session::Wanted;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use unsent::Unsent;
use unsettled::Unsettled;

pub use kernel_mount::{detach_dead, mounted_type};
pub use mount_error::MountError;
pub use request_memory::RequestMemory;
pub use ring::request_bytes_of_rings;

/// Most event loops: more than this many processors do not pay for their buffers here, since a
/// loop only starts requests.
const THREADS_MAX: usize = 8;
/// Fewest event loops by default: one reads while another still answers.
const THREADS_MIN: usize = 2;
/// How long names and attributes are believed by default. Half of what NFS clients take at least
/// (three seconds) would do; a second saves nearly all repeated requests of a busy program.
const CACHE_TIME_DEFAULT: Duration = Duration::from_secs(1);
/// Memory for writes under way, where nobody says how much there is.
const REQUEST_BYTES_DEFAULT: usize = 64 << 20;

/// What to mount, where and how.
#[derive(Clone)]
pub struct MountOptions {
    /// The volume's name.
    pub volume: String,
    /// An existing directory, with nothing in it.
    pub mountpoint: PathBuf,
    /// Event loops; 0: by the number of processors.
    pub threads: usize,
    /// How long the kernel believes names, that a name is free, and attributes. Only changes from
    /// elsewhere (NFS, another mount) are seen late, by this much at most. Zero asks every time,
    /// which costs a request for each part of a path.
    pub cache_time: Duration,
    /// Whether users other than the mounting one may enter; by default if that is root.
    pub allow_other: Option<bool>,
    /// Whether setuid programs and device nodes on the volume work. Off by default: whoever is
    /// root on an NFS client could otherwise become root here.
    pub allow_privileged_files: bool,
    /// Whether the mount refuses changes.
    pub read_only: bool,
    /// Whether the kernel keeps writes in its page cache and sends them later, in large requests.
    /// Off by default: an error of the disks or a full volume is then told at `fsync` or `close`
    /// instead of the write, and the kernel takes its own idea of a file's size and times for the
    /// truth, whatever NFS clients or other mounts do (decision 56).
    pub write_back: bool,
    /// Memory for writes under way, shared with other mounts.
    pub request_memory: Arc<RequestMemory>,
}

impl MountOptions {
    /// The defaults.
    pub fn new(volume: impl Into<String>, mountpoint: impl Into<PathBuf>) -> Self {
        Self {
            volume: volume.into(),
            mountpoint: mountpoint.into(),
            threads: 0,
            cache_time: CACHE_TIME_DEFAULT,
            allow_other: None,
            allow_privileged_files: false,
            read_only: false,
            write_back: false,
            request_memory: RequestMemory::new(REQUEST_BYTES_DEFAULT),
        }
    }
}

/// A volume and a place for it, which were looked at and fit.
pub struct PreparedMount {
    options: MountOptions,
    service: Arc<dyn FileService>,
    root: Entry,
    looked: Looked,
}

impl PreparedMount {
    /// Looks at a volume, and at the place where it is to be mounted.
    ///
    /// # Errors
    /// [`MountError`]; nothing is mounted then.
    pub fn new(options: MountOptions, service: Arc<dyn FileService>) -> Result<Self, MountError> {
        let root = root_of(&options.volume, service.as_ref())?;
        let looked = kernel_mount::check_mountpoint(&options.mountpoint)?;
        Ok(Self { options, service, root, looked })
    }

    /// Where the volume will be mounted, as an absolute path.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.looked.path
    }

    /// Mounts the volume, with locks that other front ends see, if there are any. When this
    /// returns, it can be used.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn start(self, locks: Option<Arc<LockManager>>) -> Result<FuseMount, MountError> {
        let Self { options, service, root, looked } = self;
        let mountpoint = looked.path.clone();
        let transfer_bytes = session::transfer_bytes(service.limits().transfer_bytes_max);
        let device = Arc::new(kernel_mount::mount(&mountpoint, &options, transfer_bytes)?);
        if !kernel_mount::lies_on(&looked) {
            // Dead without its device, and only then is it taken away: it may not be the uppermost.
            drop(device);
            let _unmounted_as_far_as_possible = detach_dead(&mountpoint);
            return Err(MountError::Overtaken { path: mountpoint });
        }
        let mut mount = FuseMount {
            mountpoint,
            connection: None,
            loops: Vec::new(),
            settling: None,
            unsent: Unsent::default(),
            is_over_io_uring: false,
        };
        let wanted = Wanted {
            shared_locks: locks.is_some(),
            write_back: options.write_back,
            ..Wanted::default()
        };
        let server = Server::new(service, root.handle, options.cache_time.into(), locks);
        match mount.converse(&options, &server, &device, (transfer_bytes, wanted)) {
            Ok(()) => Ok(mount),
            Err(source) => {
                let _unmounted_as_far_as_possible = kernel_mount::detach(&mount.mountpoint);
                Err(MountError::Protocol { source })
            }
        }
    }
}

/// A mounted volume. Dropping it unmounts.
#[derive(Debug)]
pub struct FuseMount {
    mountpoint: PathBuf,
    /// None if its number could not be read.
    connection: Option<Arc<Connection>>,
    loops: Vec<JoinHandle<io::Result<()>>>,
    settling: Option<Settling>,
    unsent: Unsent,
    is_over_io_uring: bool,
}

/// The thread that makes closed files durable.
#[derive(Debug)]
struct Settling {
    unsettled: Arc<Unsettled>,
    thread: JoinHandle<()>,
}

impl FuseMount {
    /// Mounts a volume. When this returns, it can be used.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn start(options: MountOptions, service: Arc<dyn FileService>) -> Result<Self, MountError> {
        Self::start_with(options, service, None)
    }

    /// The same, with locks that other front ends see.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn start_with_locks(
        options: MountOptions,
        service: Arc<dyn FileService>,
        locks: Arc<LockManager>,
    ) -> Result<Self, MountError> {
        Self::start_with(options, service, Some(locks))
    }

    fn start_with(
        options: MountOptions,
        service: Arc<dyn FileService>,
        locks: Option<Arc<LockManager>>,
    ) -> Result<Self, MountError> {
        PreparedMount::new(options, service)?.start(locks)
    }

    /// Agrees with the kernel and starts the event loops.
    fn converse(
        &mut self,
        options: &MountOptions,
        server: &Arc<Server>,
        device: &Arc<Device>,
        (transfer_bytes, wanted): (u32, Wanted),
    ) -> io::Result<()> {
        let number = kernel_mount::connection_number(&self.mountpoint);
        let mut rings = None;
        let has_rings = || {
            // If an entry is refused later, nothing but a cut ends the waits of programs.
            if number.is_some_and(connection::can_be_cut) {
                rings = Rings::new(&options.request_memory, transfer_bytes);
            }
            rings.is_some()
        };
        server.agree(session::handshake(device, transfer_bytes, wanted, has_rings)?);
        if let Some(number) = number {
            kernel_mount::set_read_ahead(number, transfer_bytes);
            if options.write_back {
                kernel_mount::set_dirty_share(number);
            }
        }
        let unsettled = server.unsettled();
        let same = Arc::clone(&unsettled);
        let thread = thread::spawn("fuse-settle", move || {
            let _guard = EndProcessOnPanic;
            same.keep_settling();
        })?;
        self.settling = Some(Settling { unsettled, thread });
        self.unsent = Unsent::new(server, device);
        let threads = match options.threads {
            // What is left for them is rare and short.
            _ if rings.is_some() => 1,
            0 => thread::parallelism().clamp(THREADS_MIN, THREADS_MAX),
            threads => threads,
        };
        let mut devices = vec![Arc::clone(device)];
        for _ in 1..threads {
            // Where the device cannot be opened again (fusermount3 did it), loops share it.
            devices.push(device.sibling().map_or_else(|_| Arc::clone(device), Arc::new));
        }
        self.connection = number.map(|number| Arc::new(Connection::new(number, &devices)));
        let shared = Arc::clone(&options.request_memory);
        let loops = devices.len() + rings.as_ref().map_or(0, Rings::thread_count);
        let memory = MountMemory::new(shared, session::buffer_bytes(transfer_bytes), loops);
        let ends = rings.as_ref().map(Rings::ends).unwrap_or_default();
        for (number, device) in devices.into_iter().enumerate() {
            let (server, memory) = (Arc::clone(server), Arc::clone(&memory));
            let (ends, connection) = (ends.clone(), self.connection.clone());
            let body = move || {
                let _guard = EndProcessOnPanic;
                let served = or_cut(session::serve(&server, &device, &memory), connection.as_ref());
                ends.tell();
                served
            };
            self.loops.push(thread::spawn_prompt(&format!("fuse-{number}"), body)?);
        }
        if let Some(rings) = rings {
            self.is_over_io_uring = true;
            let (server, device) = (Arc::clone(server), Arc::clone(device));
            let connection = self.connection.clone();
            self.loops.extend(rings.start(&Serving { server, device, memory, connection }));
        }
        Ok(())
    }

    /// Where the volume is mounted, as an absolute path.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Whether the kernel agreed to send requests over `io_uring`. If it refuses entries
    /// afterwards, it sends them through `/dev/fuse` all the same.
    #[must_use]
    pub fn is_over_io_uring(&self) -> bool {
        self.is_over_io_uring
    }

    /// Whether it is still mounted: `umount` works from outside too.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        self.loops.iter().any(|running| !running.is_finished())
    }

    /// Whether the mountpoint still shows it. After a lazy unmount from outside it does not, and
    /// programs that were in it are served until they leave; so are copies of the mount in other
    /// namespaces.
    #[must_use]
    pub fn is_at_mountpoint(&self) -> bool {
        let shown = kernel_mount::connection_number(&self.mountpoint);
        // In this order: an ended connection's number may be another's.
        match &self.connection {
            Some(own) => shown == Some(own.number()) && own.lives(),
            None => shown.is_none(),
        }
    }

    /// Waits until somebody unmounts it.
    ///
    /// # Errors
    /// [`MountError::Protocol`] if an event loop failed.
    pub fn wait(mut self) -> Result<(), MountError> {
        self.join()
    }

    /// Unmounts. Where files are still in use, what they have written is made to reach the service
    /// first, the mountpoint is free at once, and the programs get errors from then on. Programs
    /// that are still in a mount that its mountpoint does not show get errors at once.
    ///
    /// # Errors
    /// [`MountError::Unmount`], [`MountError::Protocol`].
    pub fn stop(mut self) -> Result<(), MountError> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<(), MountError> {
        if self.is_mounted() {
            let ended = if self.is_at_mountpoint() {
                let connection = self.connection.as_deref();
                let ended = kernel_mount::unmount(&self.mountpoint, connection, &self.unsent);
                ended.map_err(|source| {
                    let path = self.mountpoint.clone();
                    MountError::Unmount { path, source }
                })?
            } else {
                self.unsent.send();
                self.connection.as_deref().is_some_and(Connection::cut)
            };
            if !ended {
                // Programs keep the connection alive; the loops serve them and end after them, and
                // the thread that settles ends with the loops.
                self.loops.clear();
                self.settling = None;
            }
        }
        self.join()
    }

    fn join(&mut self) -> Result<(), MountError> {
        let mut result = Ok(());
        for running in self.loops.drain(..) {
            let Ok(ended) = running.join() else { unreachable!("a panic ends the process") };
            result = result.and(ended);
        }
        if let Some(Settling { unsettled, thread }) = self.settling.take() {
            unsettled.end_beats();
            let Ok(()) = thread.join() else { unreachable!("a panic ends the process") };
        }
        result.map_err(|source| MountError::Protocol { source })
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`.
        let _result = self.unmount();
    }
}

/// What came of an event loop. If it failed, programs get errors instead of waiting for it.
fn or_cut(served: io::Result<()>, connection: Option<&Arc<Connection>>) -> io::Result<()> {
    if served.is_err()
        && let Some(connection) = connection
    {
        connection.cut();
    }
    served
}

struct EndProcessOnPanic;

impl Drop for EndProcessOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn root_of(volume: &str, service: &dyn FileService) -> Result<Entry, MountError> {
    let (sender, receiver) = std::sync::mpsc::channel();
    // The receiver waits right here, so the send cannot fail.
    let answered = move |answer| drop(sender.send(answer));
    service.root(&Caller::root(), calls::Root { name: volume.to_owned() }, Box::new(answered));
    let answer = receiver.recv().unwrap_or(Err(FsError::Io));
    answer.map_err(|source| MountError::Volume { volume: volume.to_owned(), source })
}
