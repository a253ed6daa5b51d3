//! The disks of an aggregate without a server that has them: those that the configuration names,
//! opened for this process alone.
//!
//! Invariants: while they are read here no server of this configuration runs or starts, and no
//! other process can take the disks. So the lease of an object range, which this node may always
//! take, is taken from nobody. An object range is not made if it is not there.
//!
//! Fails: `Conflict` if a server or another process has the disks, `NotFound` if no disk holds the
//! aggregate.

use super::beat::Beat;
use super::subject::{MESSAGE, Mode, Subject};
use crate::disks::openers::Openers;
use crate::lock::StateLock;
use admin_api::{AdminError, Code};
use management::{DiskSource as _, Patience, Waits, owner_of};
use platform::linux::{self, DiskAccess, IoEngineKind, SystemClock};
use platform::watched::{Watch, WatchedOpener};
use platform::{Disk, DiskError, DiskOpener};
use server::config::{Config, DiskPattern};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::AggregateUuid;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// What was found on the disks of a configuration.
#[derive(Default)]
struct Found {
    /// Disks of aggregates of the name, by the aggregate's identity.
    disks: BTreeMap<AggregateUuid, Vec<Arc<dyn Disk>>>,
    /// Disks that another process has.
    busy: Vec<String>,
    /// Disks that cannot be used, and why.
    left_out: Vec<String>,
}

/// Opens the disks of an aggregate, when no server of the configuration answered.
///
/// # Errors
/// See the module.
pub(crate) fn open(name: &str, config: &Config) -> Result<Subject, AdminError> {
    let failed = |error: std::io::Error| {
        AdminError::new(Code::Failed, MESSAGE, name).because(error.to_string())
    };
    // No server can run where there is no state directory.
    let lock = match config.state_directory.exists() {
        true => Some(StateLock::take_for("cannot check beside", &config.state_directory)?),
        false => None,
    };
    let watch =
        Watch::new(Arc::new(SystemClock), config.disk_timeout_seconds * NANOSECONDS_PER_SECOND);
    let opener = |access| -> Result<WatchedOpener, AdminError> {
        let opener = linux::DiskOpener::new(IoEngineKind::Automatic).map_err(failed)?;
        let inner = Arc::new(opener.with_access(access));
        Ok(WatchedOpener { inner, watch: Arc::clone(&watch) })
    };
    let (files, beside) = (opener(DiskAccess::ReadAlone)?, opener(DiskAccess::ReadBeside)?);
    let mut config = config.clone();
    for pattern in &mut config.disks {
        if let DiskPattern::Range(range) = pattern {
            *range = range.existing();
        }
    }
    let openers = Openers::new(Arc::new(files), &config)?;
    let mut found = Found::default();
    let patience = Patience::new(Arc::new(SystemClock), Waits::default());
    for disk in openers.names() {
        let opened = match openers.open(&disk) {
            // A server that has the disks of another aggregate is in nobody's way.
            Err(DiskError::InUse { .. }) if is_of_another(&beside, &disk, name) => continue,
            Err(DiskError::InUse { .. }) => patience.open(&openers, &disk),
            opened => opened,
        };
        match opened {
            Ok(opened) => found.look(name, opened),
            Err(DiskError::InUse { .. }) => found.busy.push(disk),
            Err(error) => found.left_out.push(error.to_string()),
        }
    }
    let disks = found.take(name)?;
    let beat = Beat::start(watch, None).map_err(failed)?;
    let left_out = found.left_out;
    let (name, mode, superblock) = (name.to_owned(), Mode::Offline, None);
    Ok(Subject { name, disks, left_out, mode, superblock, beat, lock })
}

impl Found {
    /// Keeps a disk if its label says that it belongs to an aggregate of this name.
    fn look(&mut self, name: &str, disk: Arc<dyn Disk>) {
        match owner_of(&disk) {
            Ok(Some(owner)) if owner.name.as_deref() == Some(name) => {
                self.disks.entry(owner.identity).or_default().push(disk);
            }
            Ok(_) => {}
            Err(cause) => self.left_out.push(cause),
        }
    }

    /// The disks of the only aggregate of the name.
    fn take(&mut self, name: &str) -> Result<Vec<Arc<dyn Disk>>, AdminError> {
        let conflict = || AdminError::new(Code::Conflict, MESSAGE, name);
        if !self.busy.is_empty() {
            return Err(conflict()
                .because(format!("another process uses {}", self.busy.join(", ")))
                .try_next("end that process, or ask the server that has the disks (--socket)"));
        }
        if self.disks.len() > 1 {
            return Err(conflict()
                .because(format!("{} aggregates on the disks have this name", self.disks.len()))
                .try_next("name the disks of one of them only under [node] disks"));
        }
        let Some((_, disks)) = self.disks.pop_first() else {
            let missing = AdminError::new(Code::NotFound, MESSAGE, name);
            let missing = missing.because("no disk that the configuration names belongs to it");
            let left_out = self.left_out.iter();
            return Err(left_out.fold(missing, |error, cause| error.because(cause.clone())));
        };
        Ok(disks)
    }
}

/// Whether the label of a disk that another process has says that it is none of the aggregate's.
pub(crate) fn is_of_another(beside: &dyn DiskOpener, disk: &str, name: &str) -> bool {
    let owner = beside.open(disk).ok().and_then(|disk| owner_of(&disk).ok());
    owner.flatten().is_some_and(|owner| owner.name.as_deref() != Some(name))
}
