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
//! - A directory is sealed as long as its mount is in the record and missing. If the record cannot
//!   be changed, the directory is left as the record has it.
//! - What nobody understands in the record stays in it; a record that cannot be read is left alone.
//!
//! Calls work on paths, which may hang; `kept_mounts` keeps that from whoever must not.
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
use fuse::{
    FuseMount, MountError, MountOptions, PreparedMount, RequestMemory, detach_dead, mounted_type,
};
use locks::LockManager;
use management::{StateFile as _, beginning_of};
use platform::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{VolumeUuid, shell_word};

/// The file of the state directory with the record.
const RECORD_FILE: &str = "mounts";
/// Why a mount is missing that was made, and is not there any more.
pub(super) const ENDED_OUTSIDE: &str = "it was unmounted from outside";
/// Why a mount of the record was not made as yet.
pub(super) const NOT_TRIED: &str = "it was not made again since the server started";
/// Why a mount is missing whose path hangs.
pub(super) const HANGS: &str = "its path does not answer";

/// A mount that is there.
pub(super) struct Mounted {
    volume: String,
    mount: FuseMount,
}

impl Mounted {
    /// Where it is.
    pub(super) fn place(&self) -> String {
        self.mount.mountpoint().display().to_string()
    }

    /// Ends it, with the server.
    pub(super) fn stop(self) {
        let mountpoint = self.place();
        if let Err(error) = self.mount.stop() {
            tracing::error!(mountpoint, %error, "a mount could not be ended cleanly");
        }
    }
}

/// The mounts of volumes of one service.
pub(crate) struct Mounts {
    service: Arc<dyn FileService>,
    locks: Arc<LockManager>,
    /// For writes under way of all mounts.
    request_memory: Arc<RequestMemory>,
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
    /// Lines of the record that are no mounts to this build.
    strange: Vec<String>,
    /// Why the record cannot be read, if it cannot.
    record_failure: Option<String>,
    /// Those of the record that the start could not make, and why.
    failed: BTreeMap<String, String>,
    /// Mountpoints at which a mount is being made or ended.
    changing: BTreeSet<String>,
    is_stopping: bool,
    /// The mounts that were missing when the server began to stop.
    lost_at_stop: Option<Vec<MountInfo>>,
}

impl Held {
    /// Takes out the mounts that have ended; the caller drops them without the lock.
    fn take_ended(&mut self) -> Vec<Mounted> {
        // Something that had covered it is gone.
        let Self { mounted, lingering, .. } = self;
        let is_back =
            |one: &mut Mounted| one.mount.is_at_mountpoint() && !mounted.contains_key(&one.place());
        let back: Vec<Mounted> = lingering.extract_if(.., is_back).collect();
        mounted.extend(back.into_iter().map(|one| (one.place(), one)));
        let hidden = self.mounted.extract_if(.., |_, one| !one.mount.is_at_mountpoint());
        self.lingering.extend(hidden.map(|(_, mounted)| mounted));
        self.lingering.extract_if(.., |mounted| !mounted.mount.is_mounted()).collect()
    }
}

/// Who wants a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// An administrator, now.
    New,
    /// The record: whoever gives the mount up meanwhile is heeded.
    Recorded,
}

/// One try to make a mount. Whoever wanted it may give it up while a path hangs.
#[derive(Clone)]
pub(super) struct Attempt {
    wish: Wish,
    is_given_up: Arc<AtomicBool>,
}

impl Attempt {
    pub(super) fn new(wish: Wish) -> Self {
        Self { wish, is_given_up: Arc::default() }
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }
}

/// Why a directory was not unsealed.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnsealError {
    /// Something else hides it.
    #[error("{kind} is mounted over the directory, which stays sealed below")]
    Covered {
        /// The type of what is mounted.
        kind: String,
    },
    /// It cannot be changed.
    #[error(transparent)]
    Io(#[from] io::Error),
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
        (locks, request_memory): (Arc<LockManager>, Arc<RequestMemory>),
    ) -> Self {
        let file = StateFile::new(state_directory, RECORD_FILE);
        let found = file.load().and_then(|text| match text {
            Some(text) if text.is_empty() => Err(io::Error::other("it is empty")),
            text => Ok(text.unwrap_or_default()),
        });
        let (record, strange, record_failure) = match found {
            Ok(text) => {
                let (record, strange) = mount_record::from_text(&text);
                if let Some(first) = strange.first() {
                    let (lines, first) = (strange.len(), beginning_of(first));
                    tracing::error!(
                        lines,
                        first,
                        file = RECORD_FILE,
                        "no mounts are made of lines that cannot be read"
                    );
                }
                (record, strange, None)
            }
            Err(error) => {
                let path = state_directory.join(RECORD_FILE);
                tracing::error!(%error, path = %path.display(), "no mounts are made again");
                (Record::new(), Vec::new(), Some(format!("{}: {error}", path.display())))
            }
        };
        let untried = record.keys().map(|place| (place.clone(), NOT_TRIED.to_owned()));
        let failed = untried.collect();
        let held = Held { record, strange, record_failure, failed, ..Held::default() };
        let held = Mutex::new(held);
        Self { service, locks, request_memory, held, file: Mutex::new(file) }
    }

    /// Mounts a volume.
    ///
    /// # Errors
    /// `NotFound` if volume or mountpoint is not there, `Conflict` if something is mounted there or
    /// lies in it, `Failed` if FUSE cannot be used or the mount cannot be recorded.
    pub(super) fn mount(
        &self,
        request: &MountCreate,
        attempt: &Attempt,
    ) -> Result<MountInfo, AdminError> {
        let MountCreate { volume, mountpoint, write_back } = request;
        let ended = self.held.lock().take_ended();
        drop(ended);
        self.open_up(mountpoint);
        let request_memory = Arc::clone(&self.request_memory);
        let options = MountOptions::new(volume.clone(), mountpoint.clone());
        let options = MountOptions { request_memory, write_back: *write_back, ..options };
        let prepared = PreparedMount::new(options, Arc::clone(&self.service));
        let mounted = prepared.map_err(|error| refused(request, &error)).and_then(|prepared| {
            let place = prepared.mountpoint().to_str().map(str::to_owned);
            let place = place.ok_or_else(|| {
                AdminError::usage("cannot mount at", mountpoint).because("it is not UTF-8")
            })?;
            self.make((request, attempt), prepared, place)
        });
        if mounted.is_err() {
            self.close_up(mountpoint);
        }
        mounted
    }

    /// Makes a mount that was looked at, and records it first.
    fn make(
        &self,
        (request, attempt): (&MountCreate, &Attempt),
        prepared: PreparedMount,
        place: String,
    ) -> Result<MountInfo, AdminError> {
        let failed = |message: String| {
            AdminError::new(Code::Failed, "cannot mount at", &place).because(message)
        };
        let changing = self.change("cannot mount at", &place)?;
        if attempt.wish == Wish::Recorded && !self.is_recorded(&request.volume, &place) {
            return Err(failed("it was given up by 'stroop unmount' meanwhile".to_owned()));
        }
        let below = Below::open(Path::new(&place)).map_err(|error| failed(error.to_string()))?;
        let before = self.held.lock().record.get(&place).cloned();
        let found = below.as_ref().and_then(|below| below.look().ok());
        if before.is_some()
            && let Some(kind) = covering(&place, found)
        {
            return Err(covered("cannot mount at", &place, &UnsealError::Covered { kind }));
        }
        if attempt.is_given_up() {
            return Err(failed("it was given up, because its path did not answer".to_owned()));
        }
        let unknown = Before { mode: 0, is_immutable: true };
        let identity = self.identity_of(&request.volume);
        let expected = before.as_ref().and_then(|known| known.identity);
        if attempt.wish == Wish::Recorded && expected.is_some() && identity != expected {
            return Err(failed(another_volume(&request.volume)));
        }
        let recorded = Recorded {
            volume: request.volume.clone(),
            identity,
            before: before.as_ref().map_or(found.unwrap_or(unknown), |known| known.before),
            write_back: request.write_back,
        };
        let add = |record: &mut Record| drop(record.insert(place.clone(), recorded));
        self.change_record(add).map_err(|error| failed(format!("not recorded: {error}")))?;
        let mount = prepared.start(Some(Arc::clone(&self.locks)));
        let mounted = mount.map_err(|error| refused(request, &error));
        let mounted = mounted.and_then(|mount| self.keep((request, attempt), &place, mount));
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
        Ok(MountInfo {
            volume: request.volume.clone(),
            mountpoint: place,
            write_back: request.write_back,
            missing: None,
        })
    }

    /// Takes a mount that was made.
    fn keep(
        &self,
        (request, attempt): (&MountCreate, &Attempt),
        place: &str,
        mount: FuseMount,
    ) -> Result<(), AdminError> {
        let mounted = Mounted { volume: request.volume.clone(), mount };
        let mut held = self.held.lock();
        let refused = match () {
            () if held.is_stopping => Some("the server is stopping"),
            () if attempt.is_given_up() => Some("it was given up, because its path did not answer"),
            () => None,
        };
        if let Some(cause) = refused {
            drop(held);
            drop(mounted);
            return Err(AdminError::new(Code::Failed, "cannot mount at", place).because(cause));
        }
        if mounted.mount.is_over_io_uring() {
            tracing::info!(mountpoint = place, "the kernel sends its requests over io_uring");
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

    /// Nothing is made by an attempt from now on. If it has made a mount already, that stays.
    pub(super) fn give_up(&self, attempt: &Attempt) {
        let _held = self.held.lock();
        attempt.is_given_up.store(true, Ordering::Relaxed);
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

    /// Changes the record, here and on disk. What is there as it shall be is not written again: a
    /// full state directory costs no mount that is in the record.
    fn change_record(&self, change: impl FnOnce(&mut Record)) -> io::Result<()> {
        let file = self.file.lock();
        let (mut record, strange) = {
            let held = self.held.lock();
            if let Some(failure) = &held.record_failure {
                return Err(io::Error::other(unreadable(failure)));
            }
            (held.record.clone(), held.strange.clone())
        };
        let before = record.clone();
        change(&mut record);
        if record == before {
            return Ok(());
        }
        file.store(&mount_record::to_text(&record, &strange))?;
        self.held.lock().record = record;
        Ok(())
    }

    /// The mounts of a volume are of another name from now on, here and, unless this fails, at the
    /// next start. The kernel shows the old name until then.
    pub(super) fn rename(&self, volume: &str, new_name: &str) -> io::Result<()> {
        let identity = self.identity_of(new_name);
        // By the volume itself where it is known: a rename before this one may not have been
        // recorded, and a volume that is away may have had the name.
        let is_its = |one: &Recorded| match one.identity {
            Some(known) => identity == Some(known),
            None => one.volume == volume,
        };
        let is_recorded = {
            let mut held = self.held.lock();
            let Held { mounted, lingering, record, .. } = &mut *held;
            for one in mounted.values_mut().chain(lingering).filter(|one| one.volume == volume) {
                one.volume = new_name.to_owned();
            }
            record.values().any(is_its)
        };
        if !is_recorded {
            return Ok(());
        }
        self.change_record(|record| {
            for one in record.values_mut().filter(|one| is_its(one)) {
                one.volume = new_name.to_owned();
            }
        })
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
        if self.sealed_before(place).is_some() {
            seal(place);
        }
    }

    /// The mounts of the record that are missing since the start.
    pub(super) fn missing_since_start(&self) -> Vec<MountCreate> {
        let held = self.held.lock();
        let request = |mountpoint: &String| {
            let Recorded { volume, write_back, .. } = held.record.get(mountpoint)?.clone();
            Some(MountCreate { volume, mountpoint: mountpoint.clone(), write_back })
        };
        held.failed.keys().filter_map(request).collect()
    }

    /// Makes one of them, if that can be done.
    pub(super) fn bring_one_back(&self, request: MountCreate) {
        let MountCreate { volume, mountpoint, .. } = &request;
        let expected = self.held.lock().record.get(mountpoint).and_then(|known| known.identity);
        let detached = match self.identity_of(volume) {
            None => Err(format!("volume '{volume}' is not in service")),
            found if expected.is_some() && found != expected => Err(another_volume(volume)),
            // Nobody asks for a path that may hang, before there is something to mount.
            _ => detach_dead(Path::new(mountpoint)).map_err(|error| error.to_string()),
        };
        let made = detached.and_then(|_| {
            let made = self.mount(&request, &Attempt::new(Wish::Recorded));
            made.map_err(|error| error.cause.join("; "))
        });
        match made {
            Ok(MountInfo { volume, mountpoint, .. }) => {
                tracing::info!(volume, mountpoint, "mounted again");
            }
            Err(cause) => self.note_failure(mountpoint, cause),
        }
    }

    /// A mount that is missing since the start could not be made, or not yet.
    pub(super) fn note_failure(&self, mountpoint: &str, cause: String) {
        if let Some(known) = self.held.lock().failed.get_mut(mountpoint)
            && *known != cause
        {
            tracing::warn!(mountpoint, cause, "not mounted again");
            *known = cause;
        }
    }

    /// Whether mounts are missing since the start.
    pub(super) fn are_to_be_brought_back(&self) -> bool {
        let held = self.held.lock();
        !held.is_stopping && !held.failed.is_empty()
    }

    /// Which volume is served under a name, if one is.
    fn identity_of(&self, volume: &str) -> Option<VolumeUuid> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let answered = move |answer| drop(sender.send(answer));
        let call = file_service::calls::Root { name: volume.to_owned() };
        self.service.root(&file_service::Caller::root(), call, Box::new(answered));
        receiver.recv().ok()?.ok().map(|root| root.handle.volume)
    }

    /// Ends a mount, or gives up one that is missing.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(super) fn unmount(&self, request: &MountRemove) -> Result<MountInfo, AdminError> {
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
        let write_back = recorded.as_ref().is_some_and(|recorded| recorded.write_back);
        let stopped = mounted.map_or(Ok(()), |mounted| mounted.mount.stop());
        stopped.map_err(|failure| error(Code::Failed).because(failure.to_string()))?;
        let unsealed = recorded.map_or(Ok(()), |Recorded { before, .. }| {
            detach_dead(Path::new(place))?;
            unseal(place, before)
        });
        match unsealed {
            Ok(()) => {}
            Err(failure @ UnsealError::Covered { .. }) => {
                return Err(covered("cannot unmount", place, &failure));
            }
            Err(UnsealError::Io(error)) => tracing::warn!(
                mountpoint = place,
                %error,
                "the directory is not as it was before; see 'lsattr -d' and 'ls -ld'"
            ),
        }
        self.change_record(|record| drop(record.remove(place))).map_err(|failure| {
            // The next start makes the mount: until then nobody shall write below it.
            seal(place);
            error(Code::Failed).because(format!(
                "it is not mounted any more, but will be at the next start of the server: {failure}"
            ))
        })?;
        self.held.lock().failed.remove(place);
        drop(changing);
        Ok(MountInfo { volume, mountpoint: place.clone(), write_back, missing: None })
    }

    /// What is wrong with the record, and what follows of it.
    pub(super) fn record_failure(&self) -> Option<String> {
        let held = self.held.lock();
        if let Some(failure) = &held.record_failure {
            return Some(format!(
                "the record of mounts cannot be read: {failure}. It is left as it is: no mount is \
                 made again, and none can be made or ended"
            ));
        }
        let (count, first) = (held.strange.len(), beginning_of(held.strange.first()?));
        Some(format!(
            "the record of mounts, '{RECORD_FILE}' in the state directory, has lines that cannot \
             be read ({count}). They are left as they are, and no mount is made of them. The first \
             is: {first}"
        ))
    }

    /// The mounts that are missing, but for those whose turn has not come since the start.
    pub(super) fn lost(&self, hangs: &dyn Fn(&str) -> bool) -> Vec<MountInfo> {
        if let Some(lost) = &self.held.lock().lost_at_stop {
            return lost.clone();
        }
        let is_lost =
            |mount: &MountInfo| mount.missing.as_ref().is_some_and(|cause| cause != NOT_TRIED);
        self.list(hangs).into_iter().filter(is_lost).collect()
    }

    /// All mounts, in order of mountpoint, with those that are missing. `hangs` says of a place
    /// whether work on it hangs.
    pub(super) fn list(&self, hangs: &dyn Fn(&str) -> bool) -> Vec<MountInfo> {
        let ended = self.held.lock().take_ended();
        drop(ended);
        let held = self.held.lock();
        let is_seen = |place: &String| {
            held.mounted.contains_key(place) || !held.changing.contains(place) || hangs(place)
        };
        let info = |(place, recorded): (&String, &Recorded)| {
            let mounted = held.mounted.get(place);
            let missing = match mounted {
                Some(_) => None,
                None if hangs(place) => Some(HANGS),
                None => Some(held.failed.get(place).map_or(ENDED_OUTSIDE, String::as_str)),
            };
            MountInfo {
                // A new name that could not be recorded is the volume's name all the same.
                volume: mounted.map_or(&recorded.volume, |mounted| &mounted.volume).clone(),
                mountpoint: place.clone(),
                write_back: recorded.write_back,
                missing: missing.map(str::to_owned),
            }
        };
        held.record.iter().filter(|(place, _)| is_seen(place)).map(info).collect()
    }

    /// All mounts, for whoever ends them: the server stops. The record stays. `lost` are those that
    /// are missing already.
    pub(super) fn take_all(&self, lost: Vec<MountInfo>) -> Vec<Mounted> {
        let mut held = self.held.lock();
        held.is_stopping = true;
        held.lost_at_stop = Some(lost);
        let mounted = std::mem::take(&mut held.mounted);
        let lingering = std::mem::take(&mut held.lingering);
        mounted.into_values().chain(lingering).collect()
    }
}

/// What is said of a record that cannot be read.
fn unreadable(failure: &str) -> String {
    format!(
        "the record of mounts cannot be read, and is left as it is: {failure}; mend the file or \
         move it away, and start the server again"
    )
}

/// The type of a mount that hides a directory which is to be sealed, by how the directory at the
/// place is: what is sealed is the directory itself.
fn covering(place: &str, found: Option<Before>) -> Option<String> {
    match found {
        Some(found) if found.is_sealed() => None,
        _ => mounted_type(Path::new(place)),
    }
}

fn covered(message: &str, place: &str, failure: &UnsealError) -> AdminError {
    let next = format!("umount {}; then the same again", shell_word(place));
    AdminError::new(Code::Conflict, message, place).because(failure.to_string()).try_next(next)
}

fn seal(place: &str) {
    if let Ok(Some(below)) = Below::open(Path::new(place))
        && let Err(error) = below.seal()
    {
        tracing::warn!(mountpoint = place, %error, "programs can write into the directory");
    }
}

pub(super) fn unseal(place: &str, before: Before) -> Result<(), UnsealError> {
    let below = Below::open(Path::new(place))?;
    let found = below.as_ref().map(Below::look).transpose()?;
    if let Some(kind) = covering(place, found) {
        return Err(UnsealError::Covered { kind });
    }
    Ok(below.map_or(Ok(()), |below| below.unseal(before))?)
}

fn refused(request: &MountCreate, error: &MountError) -> AdminError {
    let MountCreate { volume, mountpoint, .. } = request;
    let refused = |code, message: &str, object: &str| {
        AdminError::new(code, message, object).because(error.to_string())
    };
    match error {
        MountError::Volume { source: FsError::NotFound, .. } => {
            refused(Code::NotFound, "cannot mount", volume).try_next("stroop volume list")
        }
        MountError::Mountpoint { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            refused(Code::NotFound, "cannot mount at", mountpoint)
                .try_next(format!("mkdir -p {}", shell_word(mountpoint)))
        }
        MountError::NotEmpty { .. } => refused(Code::Conflict, "cannot mount at", mountpoint)
            .try_next(format!("an empty directory, or move away what 'ls -A {mountpoint}' shows")),
        MountError::NotDirectory { .. } => refused(Code::Usage, "cannot mount at", mountpoint),
        MountError::Busy { .. } | MountError::Dead { .. } | MountError::Overtaken { .. } => {
            refused(Code::Conflict, "cannot mount at", mountpoint).try_next("stroop mount")
        }
        _ => refused(Code::Failed, "cannot mount at", mountpoint),
    }
}

/// Why a mount of the record is not made, if another volume has the name of its volume.
fn another_volume(volume: &str) -> String {
    format!("the volume '{volume}' that was mounted is away, and another one has its name")
}
