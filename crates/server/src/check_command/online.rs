//! A check beside a running server: the server keeps the image of a consistency point from being
//! overwritten, and its disks are read here.
//!
//! Files and devices are read beside the server, past its caches. Object ranges only the server can
//! read ([`super::remote_disk`]).
//!
//! Invariants: the server hears from the check again and again; when it does not, it lets go of the
//! image. The check ends with [`Pin::end`], which says whether the image was kept to the end.
//!
//! Fails: by `AdminError`.

use super::beat::Beat;
use super::remote_disk::RemoteDisk;
use super::{MESSAGE, Subject};
use admin_api::check::from_hexadecimal;
use admin_api::{AdminError, Administration, CheckKeep, CheckPin, Code, Named, Remote};
use cli::SocketTransport;
use object_disk::is_range_name;
use platform::linux::{DiskAccess, DiskOpener, IoEngineKind, SystemClock};
use platform::watched::{Watch, WatchedOpener};
use platform::{Disk, DiskOpener as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use units::Block;

/// A request to a disk that takes longer has failed, as far as the check goes.
const DISK_TIMEOUT_NANOSECONDS: u64 = 60_000_000_000;
/// How much less than others the check gets of the processors, and of disks that are asked by
/// several: the most that there is.
const NICENESS: i32 = 19;

/// How a check begins.
pub(super) enum Begun {
    /// An image is kept.
    Pinned(Pinned),
    /// The server does not serve the aggregate, and its disks can be opened.
    OutOfService,
}

/// An image that is kept, and the way to the server.
pub(super) struct Pinned {
    node: Arc<dyn Administration>,
    socket: PathBuf,
    wait: Duration,
    aggregate: String,
    pin: CheckPin,
}

/// A check under way.
pub(super) struct Pin {
    node: Arc<dyn Administration>,
    keep: CheckKeep,
}

/// Has the server keep an image.
///
/// # Errors
/// What the server says; `Unreachable` if there is none.
pub(super) fn begin(
    node: &Arc<dyn Administration>,
    socket: &Path,
    wait: Duration,
    aggregate: &str,
) -> Result<Begun, AdminError> {
    let begun = node.check_begin(&Named { name: aggregate.to_owned() })?;
    let Some(pin) = begun.pin else { return Ok(Begun::OutOfService) };
    let (node, socket, aggregate) = (Arc::clone(node), socket.to_owned(), aggregate.to_owned());
    Ok(Begun::Pinned(Pinned { node, socket, wait, aggregate, pin }))
}

impl Pinned {
    /// Opens the disks.
    ///
    /// # Errors
    /// If they cannot be read from here.
    pub(super) fn open(self) -> Result<(Subject, Pin), AdminError> {
        let Self { node, socket, wait, aggregate, pin } = self;
        let failed =
            |cause: String| AdminError::new(Code::Failed, MESSAGE, &aggregate).because(cause);
        // Others come first. Where this may not be asked for the check is only less polite.
        let _ = rustix::process::nice(NICENESS);
        let superblock = from_hexadecimal(&pin.superblock);
        let superblock =
            superblock.ok_or_else(|| failed("the server sent no superblock".into()))?;
        let opener = DiskOpener::new(IoEngineKind::Automatic);
        let opener = opener.map_err(|error| failed(error.to_string()))?;
        let inner = Arc::new(opener.with_access(DiskAccess::ReadBeside));
        let watch = Watch::new(Arc::new(SystemClock), DISK_TIMEOUT_NANOSECONDS);
        let files = WatchedOpener { inner, watch: Arc::clone(&watch) };
        let keep = CheckKeep { aggregate: aggregate.clone(), number: pin.number };
        let remote = || Arc::new(Remote(SocketTransport::new(&socket, wait)));
        let (caller, kept) = (remote(), keep.clone());
        let beat = Beat::start(watch, Some(Box::new(move || caller.check_keep(&kept).map(drop))));
        let beat = beat.map_err(|error| failed(error.to_string()))?;
        let (mut disks, mut left_out): (Vec<Arc<dyn Disk>>, Vec<String>) = Default::default();
        for name in &pin.disks {
            let opened = match is_range_name(name) {
                true => RemoteDisk::open(name, &keep, remote).map(|disk| Arc::new(disk) as _),
                false => files.open(name).map_err(|error| error.to_string()),
            };
            match opened {
                Ok(disk) => disks.push(disk),
                Err(cause) => left_out.push(cause),
            }
        }
        let superblock = Some(Arc::new(Block::from_prefix(&superblock)));
        let subject = Subject { name: aggregate, disks, left_out, superblock, beat, lock: None };
        Ok((subject, Pin { node, keep }))
    }
}

impl Pin {
    /// Ends the check.
    ///
    /// # Errors
    /// If the image was not kept to the end.
    pub(super) fn end(self) -> Result<(), AdminError> {
        self.node.check_end(&self.keep).map(drop)
    }
}
