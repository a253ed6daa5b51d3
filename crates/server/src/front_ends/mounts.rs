//! The FUSE mounts that the server keeps.
//!
//! A mount is to be there from `stroop mount` to `stroop unmount`, whatever becomes of the server:
//! it is in a record ([`mount_record`]), and is made again when the server starts, and later if its
//! volume comes later. While it is not there, the directory below is sealed ([`mountpoint`]).
//!
//! Invariants:
//! - One mount per mountpoint. One that is made is in the record before it is answered, and one
//!   that is ended is not in there any more when that is answered.
//! - A mount that was ended from outside (`umount`) stays in the record, and is listed as missing:
//!   a system that goes down unmounts everything before it stops the server.
//! - The lock is not held while a mount is made or ended, because ending one waits for the kernel
//!   to write back what programs have written, nor while the record is written.
//! - Nobody waits for the programs of a mount that was unmounted lazily (`umount -l`): it is served
//!   until they leave it, or until the server stops.
//!
//! Fails: by `AdminError`. A mount that cannot be made again is listed with the reason.
//!
//! [`mount_record`]: super::mount_record
//! [`mountpoint`]: super::mountpoint

use super::mount_record::{self, Record, Recorded};
use super::mountpoint::{Before, Below};
use crate::state_file::StateFile;
use admin_api::{AdminError, Code, MountCreate, MountInfo, MountRemove};
use file_service::{FileService, FsError};
use fuse::{FuseMount, MountError, MountOptions, PreparedMount, detach_dead};
use locks::LockManager;
use management::StateFile as _;
use platform::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use units::shell_word;

/// The file of the state directory with the record.
const RECORD_FILE: &str = "mounts";
/// Why a mount is missing that was made, and is not there any more.
const ENDED_OUTSIDE: &str = "it was unmounted from outside";
/// Why a mount of the record was not made as yet.
const NOT_TRIED: &str = "it was not made again since the server started";

struct Mounted {
    volume: String,
    mount: FuseMount,
}

/// The mounts of volumes of one service.
pub(crate) struct Mounts {
    service: Arc<dyn FileService>,
    locks: Arc<LockManager>,
    held: Mutex<Held>,
    /// The record on disk. Whoever changes the record has it until it is written.
    file: Mutex<StateFile>,
}

#[derive(Default)]
struct Held {
    /// By mountpoint.
    mounted: BTreeMap<String, Mounted>,
    /// Mounts that their mountpoints do not show any more, and programs may still be in.
    lingering: Vec<Mounted>,
    /// What is to be there.
    record: Record,
    /// Those of the record that the start could not make, and why.
    failed: BTreeMap<String, String>,
    /// Mountpoints at which a mount is being made or ended.
    changing: BTreeSet<String>,
    is_stopping: bool,
}

impl Held {
    /// Takes out the mounts that have ended; the caller drops them without the lock.
    fn take_ended(&mut self) -> Vec<Mounted> {
        let hidden = self.mounted.extract_if(.., |_, one| !one.mount.is_at_mountpoint());
        self.lingering.extend(hidden.map(|(_, mounted)| mounted));
        self.lingering.extract_if(.., |mounted| !mounted.mount.is_mounted()).collect()
    }
}

/// Who wants a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// An administrator, now.
    New,
    /// The record: whoever gives the mount up meanwhile is heeded.
    Recorded,
}

/// The right to make or end the mount at a place, until it is dropped.
struct Changing<'a> {
    mounts: &'a Mounts,
    place: String,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.mounts.held.lock().changing.remove(&self.place);
    }
}

impl Mounts {
    /// The mounts of the record in a state directory, of which none is made as yet.
    pub(crate) fn new(
        state_directory: &Path,
        service: Arc<dyn FileService>,
        locks: Arc<LockManager>,
    ) -> Self {
        let file = StateFile::new(state_directory, RECORD_FILE);
        let record = match file.load() {
            Ok(text) => {
                let (record, strange) = mount_record::from_text(&text);
                for line in strange {
                    tracing::error!(line, file = RECORD_FILE, "no mount is made of this line");
                }
                record
            }
            Err(error) => {
                tracing::error!(%error, file = RECORD_FILE, "no mounts are made again");
                Record::new()
            }
        };
        let untried = record.keys().map(|place| (place.clone(), NOT_TRIED.to_owned()));
        let failed = untried.collect();
        let held = Mutex::new(Held { record, failed, ..Held::default() });
        Self { service, locks, held, file: Mutex::new(file) }
    }

    /// Mounts a volume.
    ///
    /// # Errors
    /// `NotFound` if volume or mountpoint is not there, `Conflict` if something is mounted there or
    /// lies in it, `Failed` if FUSE cannot be used or the mount cannot be recorded.
    pub(crate) fn mount(&self, request: &MountCreate) -> Result<MountInfo, AdminError> {
        self.prepare_and_make(request, Wish::New)
    }

    fn prepare_and_make(&self, request: &MountCreate, wish: Wish) -> Result<MountInfo, AdminError> {
        let MountCreate { volume, mountpoint } = request;
        let ended = self.held.lock().take_ended();
        drop(ended);
        self.open_up(mountpoint);
        let options = MountOptions::new(volume.clone(), mountpoint.clone());
        let prepared = PreparedMount::new(options, Arc::clone(&self.service));
        let mounted = prepared.map_err(|error| refused(request, &error)).and_then(|prepared| {
            let place = prepared.mountpoint().to_str().map(str::to_owned);
            let place = place.ok_or_else(|| {
                AdminError::usage("cannot mount at", mountpoint).because("it is not UTF-8")
            })?;
            self.make((request, wish), prepared, place)
        });
        if mounted.is_err() {
            self.close_up(mountpoint);
        }
        mounted
    }

    /// Makes a mount that was looked at, and records it first.
    fn make(
        &self,
        (request, wish): (&MountCreate, Wish),
        prepared: PreparedMount,
        place: String,
    ) -> Result<MountInfo, AdminError> {
        let failed = |message: String| {
            AdminError::new(Code::Failed, "cannot mount at", &place).because(message)
        };
        let changing = self.change("cannot mount at", &place)?;
        if wish == Wish::Recorded && !self.is_recorded(&request.volume, &place) {
            return Err(failed("it was given up by 'stroop unmount' meanwhile".to_owned()));
        }
        let below = Below::open(Path::new(&place)).map_err(|error| failed(error.to_string()))?;
        let before = self.held.lock().record.get(&place).cloned();
        let found = below.as_ref().and_then(|below| below.look().ok());
        let unknown = Before { mode: 0, is_immutable: true };
        let recorded = Recorded {
            volume: request.volume.clone(),
            before: before.as_ref().map_or(found.unwrap_or(unknown), |known| known.before),
        };
        let add = |record: &mut Record| drop(record.insert(place.clone(), recorded));
        self.change_record(add).map_err(|error| failed(format!("not recorded: {error}")))?;
        let mount = prepared.start(Some(Arc::clone(&self.locks)));
        let mounted = mount.map_err(|error| refused(request, &error));
        let mounted = mounted.and_then(|mount| self.keep(&request.volume, &place, mount));
        if let Err(error) = mounted {
            let undone = self.change_record(|record| match before {
                Some(before) => drop(record.insert(place.clone(), before)),
                None => drop(record.remove(&place)),
            });
            if let Err(error) = undone {
                tracing::error!(mountpoint = place, %error, "it is mounted at the next start");
            }
            return Err(error);
        }
        if let Some(Err(error)) = below.map(|below| below.seal()) {
            tracing::warn!(
                mountpoint = place,
                %error,
                "while it is not mounted, programs can write into the directory below"
            );
        }
        drop(changing);
        Ok(MountInfo { volume: request.volume.clone(), mountpoint: place, missing: None })
    }

    /// Takes a mount that was made.
    fn keep(&self, volume: &str, place: &str, mount: FuseMount) -> Result<(), AdminError> {
        let mounted = Mounted { volume: volume.to_owned(), mount };
        let mut held = self.held.lock();
        if held.is_stopping {
            drop(held);
            drop(mounted);
            return Err(AdminError::new(Code::Failed, "cannot mount at", place)
                .because("the server is stopping"));
        }
        // A mount that was unmounted from outside may still be held under this name.
        let before = held.mounted.insert(place.to_owned(), mounted);
        held.lingering.extend(before);
        held.failed.remove(place);
        let ended = held.take_ended();
        drop(held);
        drop(ended);
        Ok(())
    }

    /// Whether a mount is to be there.
    fn is_recorded(&self, volume: &str, place: &str) -> bool {
        self.held.lock().record.get(place).is_some_and(|recorded| recorded.volume == volume)
    }

    /// Takes the right to change what is at a place.
    fn change(&self, message: &str, place: &str) -> Result<Changing<'_>, AdminError> {
        if self.held.lock().changing.insert(place.to_owned()) {
            return Ok(Changing { mounts: self, place: place.to_owned() });
        }
        Err(AdminError::new(Code::Conflict, message, place)
            .because("another command mounts or unmounts there just now")
            .try_next("stroop mount"))
    }

    /// Changes the record, here and on disk.
    fn change_record(&self, change: impl FnOnce(&mut Record)) -> std::io::Result<()> {
        let file = self.file.lock();
        let mut record = self.held.lock().record.clone();
        change(&mut record);
        file.store(&mount_record::to_text(&record))?;
        self.held.lock().record = record;
        Ok(())
    }

    /// The mounts of a volume are of another name from now on, here and, unless this fails, at the
    /// next start. The kernel shows the old name until then.
    pub(crate) fn rename(&self, volume: &str, new_name: &str) -> std::io::Result<()> {
        let file = self.file.lock();
        let mut held = self.held.lock();
        let Held { mounted, lingering, record, .. } = &mut *held;
        for one in mounted.values_mut().chain(lingering).filter(|one| one.volume == volume) {
            one.volume = new_name.to_owned();
        }
        let mut is_recorded = false;
        for one in record.values_mut().filter(|one| one.volume == volume) {
            one.volume = new_name.to_owned();
            is_recorded = true;
        }
        let text = mount_record::to_text(record);
        drop(held);
        if is_recorded { file.store(&text) } else { Ok(()) }
    }

    /// How the directory below a mount that is missing was before it was sealed.
    fn sealed_before(&self, place: &str) -> Option<Before> {
        let held = self.held.lock();
        let is_free = !held.mounted.contains_key(place) && !held.changing.contains(place);
        held.record.get(place).filter(|_| is_free).map(|recorded| recorded.before)
    }

    /// Gives the directory of a mount that is missing its permissions back: who is not root could
    /// not mount there.
    fn open_up(&self, place: &str) {
        if let Some(before) = self.sealed_before(place)
            && !rustix::process::geteuid().is_root()
            && let Err(error) = unseal(place, before)
        {
            tracing::warn!(mountpoint = place, %error, "its permissions cannot be given back");
        }
    }

    /// Takes them away again.
    fn close_up(&self, place: &str) {
        if self.sealed_before(place).is_some()
            && let Ok(Some(below)) = Below::open(Path::new(place))
            && let Err(error) = below.seal()
        {
            tracing::warn!(mountpoint = place, %error, "programs can write into the directory");
        }
    }

    /// Makes the mounts of the record that are missing since the start, as far as that can be done.
    pub(crate) fn bring_back(&self) {
        for request in self.missing_since_start() {
            self.bring_one_back(request);
        }
    }

    fn missing_since_start(&self) -> Vec<MountCreate> {
        let held = self.held.lock();
        let request = |mountpoint: &String| {
            let volume = held.record.get(mountpoint)?.volume.clone();
            Some(MountCreate { volume, mountpoint: mountpoint.clone() })
        };
        held.failed.keys().filter_map(request).collect()
    }

    fn bring_one_back(&self, request: MountCreate) {
        let MountCreate { volume, mountpoint } = &request;
        let detached = match self.is_served(volume) {
            // Nobody asks for a path that may hang, before there is something to mount.
            true => detach_dead(Path::new(mountpoint)).map_err(|error| error.to_string()),
            false => Err(format!("volume '{volume}' is not in service")),
        };
        let made = detached.and_then(|_| {
            let made = self.prepare_and_make(&request, Wish::Recorded);
            made.map_err(|error| error.cause.join("; "))
        });
        match made {
            Ok(MountInfo { volume, mountpoint, .. }) => {
                tracing::info!(volume, mountpoint, "mounted again");
            }
            Err(cause) => {
                let mut held = self.held.lock();
                if let Some(known) = held.failed.get_mut(mountpoint)
                    && *known != cause
                {
                    tracing::warn!(mountpoint, cause, "not mounted again");
                    *known = cause;
                }
            }
        }
    }

    /// Whether mounts are missing since the start.
    pub(crate) fn are_to_be_brought_back(&self) -> bool {
        let held = self.held.lock();
        !held.is_stopping && !held.failed.is_empty()
    }

    fn is_served(&self, volume: &str) -> bool {
        let (sender, receiver) = std::sync::mpsc::channel();
        let answered = move |answer| drop(sender.send(answer));
        let call = file_service::calls::Root { name: volume.to_owned() };
        self.service.root(&file_service::Caller::root(), call, Box::new(answered));
        receiver.recv().is_ok_and(|answer| answer.is_ok())
    }

    /// Ends a mount, or gives up one that is missing.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(crate) fn unmount(&self, request: &MountRemove) -> Result<MountInfo, AdminError> {
        let place = &request.mountpoint;
        let error = |code| AdminError::new(code, "cannot unmount", place);
        let changing = self.change("cannot unmount", place)?;
        let (mounted, recorded) = {
            let mut held = self.held.lock();
            (held.mounted.remove(place), held.record.get(place).cloned())
        };
        let volume = match (&mounted, &recorded) {
            (Some(mounted), _) => mounted.volume.clone(),
            (None, Some(recorded)) => recorded.volume.clone(),
            (None, None) => {
                return Err(error(Code::NotFound)
                    .because("no volume is mounted there")
                    .try_next("stroop mount"));
            }
        };
        let stopped = mounted.map_or(Ok(()), |mounted| mounted.mount.stop());
        stopped.map_err(|failure| error(Code::Failed).because(failure.to_string()))?;
        if let Some(Recorded { before, .. }) = recorded
            && let Err(error) = detach_dead(Path::new(place)).and_then(|_| unseal(place, before))
        {
            tracing::warn!(
                mountpoint = place,
                %error,
                "the directory is not as it was before; see 'lsattr -d' and 'ls -ld'"
            );
        }
        self.change_record(|record| drop(record.remove(place))).map_err(|failure| {
            error(Code::Failed).because(format!(
                "it is not mounted any more, but will be at the next start of the server: {failure}"
            ))
        })?;
        self.held.lock().failed.remove(place);
        drop(changing);
        Ok(MountInfo { volume, mountpoint: place.clone(), missing: None })
    }

    /// All mounts, in order of mountpoint, with those that are missing.
    pub(crate) fn list(&self) -> Vec<MountInfo> {
        let ended = self.held.lock().take_ended();
        drop(ended);
        let held = self.held.lock();
        let is_seen =
            |place: &String| held.mounted.contains_key(place) || !held.changing.contains(place);
        let info = |(place, recorded): (&String, &Recorded)| {
            let missing = match held.mounted.contains_key(place) {
                true => None,
                false => Some(held.failed.get(place).map_or(ENDED_OUTSIDE, String::as_str)),
            };
            MountInfo {
                volume: recorded.volume.clone(),
                mountpoint: place.clone(),
                missing: missing.map(str::to_owned),
            }
        };
        held.record.iter().filter(|(place, _)| is_seen(place)).map(info).collect()
    }

    /// Ends all mounts: the server stops. The record stays.
    pub(crate) fn stop_all(&self) {
        let (mounted, lingering) = {
            let mut held = self.held.lock();
            held.is_stopping = true;
            (std::mem::take(&mut held.mounted), std::mem::take(&mut held.lingering))
        };
        for Mounted { mount, .. } in mounted.into_values().chain(lingering) {
            let mountpoint = mount.mountpoint().to_owned();
            if let Err(error) = mount.stop() {
                let mountpoint = mountpoint.display();
                tracing::error!(%mountpoint, %error, "a mount could not be ended cleanly");
            }
        }
    }
}

fn unseal(place: &str, before: Before) -> std::io::Result<()> {
    match Below::open(Path::new(place))? {
        Some(below) => below.unseal(before),
        None => Ok(()),
    }
}

fn refused(request: &MountCreate, error: &MountError) -> AdminError {
    let MountCreate { volume, mountpoint } = request;
    let refused = |code, message: &str, object: &str| {
        AdminError::new(code, message, object).because(error.to_string())
    };
    match error {
        MountError::Volume { source: FsError::NotFound, .. } => {
            refused(Code::NotFound, "cannot mount", volume).try_next("stroop volume list")
        }
        MountError::Mountpoint { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            refused(Code::NotFound, "cannot mount at", mountpoint)
                .try_next(format!("mkdir -p {}", shell_word(mountpoint)))
        }
        MountError::NotEmpty { .. } => refused(Code::Conflict, "cannot mount at", mountpoint)
            .try_next(format!("an empty directory, or move away what 'ls -A {mountpoint}' shows")),
        MountError::NotDirectory { .. } => refused(Code::Usage, "cannot mount at", mountpoint),
        MountError::Busy { .. } | MountError::Dead { .. } => {
            refused(Code::Conflict, "cannot mount at", mountpoint).try_next("stroop mount")
        }
        _ => refused(Code::Failed, "cannot mount at", mountpoint),
    }
}

#[cfg(test)]
mod tests;
