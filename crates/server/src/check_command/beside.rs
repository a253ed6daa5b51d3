//! A check beside a running server: the server sees to it that nothing which the check reads is
//! written over, and its disks are read here.
//!
//! Of an aggregate in service the server keeps the image of a consistency point. An aggregate that
//! is out of service it leaves alone, and keeps its disks from other processes. Files and devices
//! are read beside the server, past its caches. Object ranges only the server can read
//! ([`super::remote_disk`]): it has their leases.
//!
//! Invariants: the server hears from the check again and again; when it does not, the check is
//! over. The check ends with [`Held::end`], which says whether what was read was kept to the end.
//! A server that was started anew meanwhile does not know the check, so that is told there, too.
//!
//! Fails: by `AdminError`.

use super::beat::Beat;
use super::offline::is_of_another;
use super::remote_disk::RemoteDisk;
use super::subject::{MESSAGE, Mode, Subject};
use admin_api::check::from_hexadecimal;
use admin_api::{
    AdminError, Administration, CheckBegun, CheckKeep, CheckedState, Code, Named, Remote,
};
use cli::SocketTransport;
use object_disk::is_range_name;
use platform::linux::{DiskAccess, DiskOpener, IoEngineKind, SystemClock};
use platform::watched::{Watch, WatchedOpener};
use platform::{Disk, DiskOpener as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use units::{Block, BlockRef};

/// A request to a disk that takes longer has failed, as far as the check goes.
const DISK_TIMEOUT_NANOSECONDS: u64 = 60_000_000_000;
/// How much less than others the check gets of the processors, and of disks that are asked by
/// several: the most that there is.
const NICENESS: i32 = 19;

/// A check that the server knows, and the way to the server.
pub(crate) struct Begun {
    held: Held,
    socket: PathBuf,
    wait: Duration,
    begun: CheckBegun,
}

/// A check under way.
pub(crate) struct Held {
    node: Arc<dyn Administration>,
    keep: CheckKeep,
}

/// Begins a check.
///
/// # Errors
/// What the server says; `Unreachable` if there is none.
pub(crate) fn begin(
    node: &Arc<dyn Administration>,
    socket: &Path,
    wait: Duration,
    aggregate: &str,
) -> Result<Begun, AdminError> {
    let begun = node.check_begin(&Named { name: aggregate.to_owned() })?;
    let keep = CheckKeep { aggregate: aggregate.to_owned(), number: begun.number };
    let held = Held { node: Arc::clone(node), keep };
    Ok(Begun { held, socket: socket.to_owned(), wait, begun })
}

impl Begun {
    /// Opens the disks. A check that cannot be made is ended, so that the next one need not wait.
    ///
    /// # Errors
    /// If they cannot be read from here.
    pub(crate) fn open(self) -> Result<(Subject, Held), AdminError> {
        match self.open_disks() {
            Ok(subject) => Ok((subject, self.held)),
            Err(error) => {
                // Why it cannot be made says more.
                let _ = self.held.end();
                Err(error)
            }
        }
    }

    fn open_disks(&self) -> Result<Subject, AdminError> {
        let CheckKeep { aggregate, .. } = &self.held.keep;
        let failed =
            |cause: String| AdminError::new(Code::Failed, MESSAGE, aggregate).because(cause);
        // Others come first. Where this may not be asked for the check is only less polite.
        let _ = rustix::process::nice(NICENESS);
        let (mode, superblock) = match &self.begun.state {
            CheckedState::InService(pin) => {
                let superblock = from_hexadecimal(&pin.superblock);
                let bytes =
                    superblock.ok_or_else(|| failed("the server sent no superblock".into()));
                let superblock: BlockRef = Arc::new(Block::from_prefix(&bytes?));
                (Mode::Online, Some(superblock))
            }
            CheckedState::Failed => (Mode::Failed, None),
            CheckedState::Away => (Mode::Away, None),
            CheckedState::NotOpened => (Mode::Offline, None),
        };
        let opener = DiskOpener::new(IoEngineKind::Automatic);
        let opener = opener.map_err(|error| failed(error.to_string()))?;
        let inner = Arc::new(opener.with_access(DiskAccess::ReadBeside));
        let watch = Watch::new(Arc::new(SystemClock), DISK_TIMEOUT_NANOSECONDS);
        let files = WatchedOpener { inner, watch: Arc::clone(&watch) };
        let keep = &self.held.keep;
        let remote = || Arc::new(Remote(SocketTransport::new(&self.socket, self.wait)));
        let (caller, kept) = (remote(), keep.clone());
        let beat = Beat::start(watch, Some(Box::new(move || caller.check_keep(&kept).map(drop))));
        let beat = beat.map_err(|error| failed(error.to_string()))?;
        let is_in_the_way = |name: &&String| !is_of_another(&files, name, aggregate);
        let busy: Vec<&str> =
            self.begun.busy.iter().filter(is_in_the_way).map(String::as_str).collect();
        if !busy.is_empty() {
            return Err(AdminError::new(Code::Conflict, MESSAGE, aggregate)
                .because(format!("another process uses {}", busy.join(", ")))
                .try_next("end that process, or ask the server that has the disks (--socket)"));
        }
        let (mut disks, mut left_out) = (Vec::new(), self.begun.left_out.clone());
        for name in &self.begun.disks {
            let opened: Result<Arc<dyn Disk>, String> = match is_range_name(name) {
                true => RemoteDisk::open(name, keep, remote).map(|disk| Arc::new(disk) as _),
                false => files.open(name).map_err(|error| error.to_string()),
            };
            match opened {
                Ok(disk) => disks.push(disk),
                Err(cause) => left_out.push(cause),
            }
        }
        let name = aggregate.clone();
        Ok(Subject { name, disks, left_out, mode, superblock, beat, lock: None })
    }
}

impl Held {
    /// Ends the check.
    ///
    /// # Errors
    /// If what was read was not kept to the end, or nobody knows whether it was.
    pub(crate) fn end(&self) -> Result<(), AdminError> {
        let name = &self.keep.aggregate;
        self.node.check_end(&self.keep).map(drop).map_err(|error| match error.code {
            Code::Unreachable | Code::TimedOut => AdminError::new(error.code, MESSAGE, name)
                .because("the server ended, or does not answer, since the check began")
                .because("the findings are not shown: the disks may have been written to")
                .try_next(format!(
                    "stroop check aggr {name}, which opens the disks itself if no server runs"
                )),
            _ => error,
        })
    }
}
