//! Mounts of a volume in memory, over what would be several servers, one after the other.

use super::super::mountpoint::{Before, Below};
use super::super::mounts::{ENDED_OUTSIDE, HANGS, NOT_TRIED, unseal};
use super::*;
use file_service::FileService;
use file_service::memory::{MemoryFileSystem, VolumeOptions};
use fuse::RequestMemory;
use locks::LockManager;
use platform::linux::SystemClock;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

fn service() -> Arc<dyn FileService> {
    let memory = MemoryFileSystem::new(Arc::new(SystemClock));
    memory.add_volume("home", VolumeOptions::default()).unwrap();
    Arc::new(memory)
}

/// A state directory, a directory to mount at, and a service.
struct Place {
    directory: tempfile::TempDir,
    service: Arc<dyn FileService>,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap(), service: service() };
        fs::create_dir(place.at("mnt")).unwrap();
        place
    }

    /// None where nothing can be mounted.
    fn with_fuse() -> Option<Self> {
        if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
            println!("skipped: /dev/fuse cannot be used here");
            return None;
        }
        Some(Self::new())
    }

    fn at(&self, name: &str) -> PathBuf {
        fs::canonicalize(self.directory.path()).unwrap().join(name)
    }

    fn mountpoint(&self) -> String {
        self.at("mnt").display().to_string()
    }

    fn mounts(&self) -> KeptMounts {
        KeptMounts::new(self.plain_mounts())
    }

    fn plain_mounts(&self) -> Mounts {
        let limits = locks::Limits::default();
        let locks = LockManager::new(Arc::new(SystemClock), limits);
        let shared = (Arc::new(locks), RequestMemory::new(8 << 20));
        Mounts::new(&self.at(""), Arc::clone(&self.service), shared)
    }

    fn request(&self, volume: &str) -> MountCreate {
        MountCreate { volume: volume.to_owned(), mountpoint: self.mountpoint(), write_back: false }
    }

    fn end(&self) -> MountRemove {
        MountRemove { mountpoint: self.mountpoint() }
    }

    fn before(&self) -> Before {
        Below::open(&self.at("mnt")).unwrap().expect("nothing is mounted").look().unwrap()
    }

    fn is_sealed(&self) -> bool {
        let now = self.before();
        now.is_immutable || now.mode == 0
    }
}

/// Why each mount is missing.
fn missing(mounts: &KeptMounts) -> Vec<Option<String>> {
    mounts.list().into_iter().map(|mount| mount.missing).collect()
}

#[test]
fn what_stands_in_the_way_is_named() {
    let place = Place::new();
    let mounts = place.mounts();
    let error = mounts.mount(&place.request("work")).unwrap_err();
    assert_eq!((error.code, error.object.as_str()), (Code::NotFound, "work"));
    let nowhere = MountCreate { mountpoint: "/no/such/place".to_owned(), ..place.request("home") };
    let error = mounts.mount(&nowhere).unwrap_err();
    assert_eq!((error.code, error.object.as_str()), (Code::NotFound, "/no/such/place"));
    assert_eq!(mounts.unmount(&place.end()).unwrap_err().code, Code::NotFound);
    fs::write(place.at("mnt/file"), "text").unwrap();
    let error = mounts.mount(&place.request("home")).unwrap_err();
    assert_eq!((error.code, error.object), (Code::Conflict, place.mountpoint()));
    assert!(error.next.unwrap().contains("ls -A"));
    assert!(mounts.list().is_empty() && !place.at("mounts").exists() && !place.is_sealed());
}

#[test]
fn a_mount_is_listed_until_it_is_ended() {
    let Some(place) = Place::with_fuse() else { return };
    let mounts = place.mounts();
    mounts.mount(&place.request("home")).unwrap();
    fs::write(place.at("mnt/file"), "text").unwrap();
    assert_eq!(mounts.list()[0].mountpoint, place.mountpoint());
    let again = mounts.mount(&place.request("home")).unwrap_err();
    assert_eq!(again.code, Code::Conflict, "{again}");
    mounts.unmount(&place.end()).unwrap();
    assert!(mounts.list().is_empty() && !place.at("mnt/file").exists());
    mounts.mount(&place.request("home")).unwrap();
    assert_eq!(fs::read(place.at("mnt/file")).unwrap(), b"text");
    mounts.unmount(&place.end()).unwrap();
    mounts.stop_all();
}

/// Without it the next start would have mounted another way than was asked for.
#[test]
fn a_mount_that_writes_back_does_so_after_a_start() {
    let Some(place) = Place::with_fuse() else { return };
    let mounts = place.mounts();
    let request = MountCreate { write_back: true, ..place.request("home") };
    assert!(mounts.mount(&request).unwrap().write_back);
    let again = mounts.mount(&place.request("home")).unwrap_err();
    assert_eq!(again.code, Code::Conflict, "{again}");
    assert!(mounts.list()[0].write_back, "as it was");
    mounts.stop_all();
    drop(mounts);
    let mounts = place.mounts();
    mounts.bring_back();
    let list = mounts.list();
    assert_eq!((list[0].write_back, list[0].missing.as_deref()), (true, None));
    fs::write(place.at("mnt/file"), "text").unwrap();
    assert!(mounts.unmount(&place.end()).unwrap().write_back);
    mounts.stop_all();
}

/// Programs wrote into the directory below once the server was gone.
#[test]
fn regression_mounts_are_made_again_and_sealed_meanwhile() {
    let Some(place) = Place::with_fuse() else { return };
    let before = place.before();
    let mounts = place.mounts();
    mounts.mount(&place.request("home")).unwrap();
    fs::write(place.at("mnt/file"), "text").unwrap();
    mounts.stop_all();
    drop(mounts);
    assert!(place.is_sealed());
    let mounts = place.mounts();
    assert!(mounts.are_to_be_brought_back());
    assert_eq!(missing(&mounts), [Some(NOT_TRIED.to_owned())]);
    mounts.bring_back();
    assert_eq!((missing(&mounts), mounts.are_to_be_brought_back()), (vec![None], false));
    assert_eq!(fs::read(place.at("mnt/file")).unwrap(), b"text");
    mounts.unmount(&place.end()).unwrap();
    assert_eq!(place.before(), before, "as it was before the first mount");
    let mounts = place.mounts();
    assert!(mounts.list().is_empty() && !mounts.are_to_be_brought_back());
}

/// A mount that was in the record was written there once more when it was made again; where that
/// failed, the state directory being full, the mount stayed missing.
#[test]
fn regression_a_recorded_mount_is_made_again_though_the_record_cannot_be_written() {
    let Some(place) = Place::with_fuse() else { return };
    let mounts = place.mounts();
    mounts.mount(&place.request("home")).unwrap();
    mounts.stop_all();
    drop(mounts);
    let mounts = place.mounts();
    // Nothing can take the place of a directory that is not empty.
    fs::remove_file(place.at("mounts")).unwrap();
    fs::create_dir_all(place.at("mounts/full")).unwrap();
    mounts.bring_back();
    assert_eq!(missing(&mounts), [None]);
    assert!(mounts.unmount(&place.end()).is_err(), "that has to be written");
    mounts.stop_all();
    unseal(&place.mountpoint(), Before { mode: 0o755, is_immutable: false }).unwrap();
}

#[test]
fn a_mount_that_cannot_be_made_again_says_why_and_comes_later() {
    let Some(mut place) = Place::with_fuse() else { return };
    let mounts = place.mounts();
    mounts.mount(&place.request("home")).unwrap();
    mounts.stop_all();
    let kept = std::mem::replace(
        &mut place.service,
        Arc::new(MemoryFileSystem::new(Arc::new(SystemClock))),
    );
    let mounts = place.mounts();
    mounts.bring_back();
    let reason = missing(&mounts).remove(0).unwrap();
    assert!(reason.contains("'home' is not in service"), "{reason}");
    assert!(mounts.are_to_be_brought_back() && place.is_sealed());
    mounts.stop_all();
    place.service = kept;
    let mounts = place.mounts();
    fs::rename(place.at("mnt"), place.at("moved")).unwrap_or_else(|_| unseal_and_move(&place));
    mounts.bring_back();
    let reason = missing(&mounts).remove(0).unwrap();
    assert!(reason.contains("No such file"), "{reason}");
    fs::rename(place.at("moved"), place.at("mnt")).unwrap();
    mounts.bring_back();
    assert_eq!(missing(&mounts), [None]);
    mounts.unmount(&place.end()).unwrap();
}

/// An immutable directory cannot be renamed.
fn unseal_and_move(place: &Place) {
    unseal(&place.mountpoint(), Before { mode: 0o755, is_immutable: false }).unwrap();
    fs::rename(place.at("mnt"), place.at("moved")).unwrap();
}

#[test]
fn a_mount_that_was_ended_from_outside_is_missing_until_it_is_given_up() {
    let Some(place) = Place::with_fuse() else { return };
    let before = place.before();
    let mounts = place.mounts();
    mounts.mount(&place.request("home")).unwrap();
    let detach = || {
        let flags = rustix::mount::UnmountFlags::DETACH;
        rustix::mount::unmount(place.mountpoint(), flags).unwrap();
    };
    detach();
    assert_eq!(missing(&mounts), [Some(ENDED_OUTSIDE.to_owned())]);
    assert!(place.is_sealed() && !mounts.are_to_be_brought_back());
    mounts.mount(&place.request("home")).unwrap();
    assert_eq!(missing(&mounts), [None]);
    detach();
    mounts.unmount(&place.end()).unwrap();
    assert!(mounts.list().is_empty());
    assert_eq!(place.before(), before);
    mounts.stop_all();
}

#[test]
fn a_mount_that_cannot_be_recorded_is_not_made() {
    let Some(place) = Place::with_fuse() else { return };
    fs::create_dir(place.at("mounts.new")).unwrap();
    let mounts = place.mounts();
    let error = mounts.mount(&place.request("home")).unwrap_err();
    assert!(error.to_string().contains("not recorded"), "{error}");
    assert!(mounts.list().is_empty() && !place.is_sealed());
}

#[test]
fn a_mount_that_programs_linger_in_holds_nobody_up() {
    let Some(place) = Place::with_fuse() else { return };
    let mounts = place.mounts();
    mounts.mount(&place.request("home")).unwrap();
    fs::write(place.at("mnt/file"), "text").unwrap();
    let within = fs::File::open(place.at("mnt")).unwrap();
    rustix::mount::unmount(place.mountpoint(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let lists = missing(&mounts);
    assert_eq!(lists, [Some(ENDED_OUTSIDE.to_owned())], "the mountpoint shows it no more");
    let make = |name: &str| rustix::fs::mkdirat(&within, name, 0o755.into());
    mounts.mount(&place.request("home")).unwrap();
    make("before").unwrap();
    assert!(place.at("mnt/before").is_dir(), "who is in the old mount is served");
    assert_eq!(mounts.list().len(), 1);
    mounts.unmount(&place.end()).unwrap();
    mounts.stop_all();
    assert_eq!(make("after"), Err(rustix::io::Errno::NOTCONN));
}

/// The pass that makes mounts again made one that was given up while the pass was on its way.
#[test]
fn regression_a_mount_that_is_given_up_meanwhile_is_not_made_again() {
    let Some(place) = Place::with_fuse() else { return };
    let before = place.before();
    let mounts = place.mounts();
    mounts.mount(&place.request("home")).unwrap();
    mounts.stop_all();
    let mounts = place.mounts();
    let missing = mounts.mounts.missing_since_start();
    assert_eq!(missing.len(), 1);
    mounts.unmount(&place.end()).unwrap();
    missing.into_iter().for_each(|request| mounts.mounts.bring_one_back(request));
    assert!(mounts.list().is_empty() && place.mounts().list().is_empty());
    assert_eq!(place.before(), before);
}

/// A FUSE file system whose server does not answer.
struct Hanging {
    device: Option<File>,
    path: PathBuf,
}

impl Hanging {
    fn new(path: PathBuf) -> Self {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
        let descriptor = device.as_raw_fd();
        let data = format!("fd={descriptor},rootmode=40000,user_id=0,group_id=0");
        let data = std::ffi::CString::new(data).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("hanging", &path, "fuse", flags, data.as_c_str()).unwrap();
        Self { device: Some(device), path }
    }

    /// Whoever waits for an answer gets an error, and the place is free.
    fn end(&mut self) {
        if self.device.take().is_some() {
            let flags = rustix::mount::UnmountFlags::DETACH;
            match rustix::mount::unmount(&self.path, flags) {
                // Whoever waited for an answer was faster, and took the dead mount away.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.end();
    }
}

/// `stroop unmount` of a missing mount whose path hangs never answered, and the server's stop
/// waited for ever. One such mount kept all mounts of later names away.
#[test]
fn regression_a_path_that_hangs_holds_up_neither_commands_nor_other_mounts() {
    let Some(place) = Place::with_fuse() else { return };
    let before = place.before();
    let mounts = place.mounts();
    fs::create_dir(place.at("other")).unwrap();
    let mountpoint = place.at("other").display().to_string();
    let later = MountCreate { mountpoint, ..place.request("home") };
    mounts.mount(&place.request("home")).unwrap();
    mounts.mount(&later).unwrap();
    mounts.stop_all();
    let mut hanging = Hanging::new(place.at("mnt"));
    let mounts = place.mounts();
    mounts.bring_back();
    assert_eq!(missing(&mounts), [Some(HANGS.to_owned()), None], "the later one is there");
    assert_eq!(mounts.lost().len(), 1);
    mounts.bring_back();
    let refused = mounts.mount(&place.request("home")).unwrap_err();
    assert!(refused.to_string().contains("does not answer"), "{refused}");
    assert!(refused.next.unwrap().contains("findmnt"));
    let told = mounts.unmount(&place.end()).unwrap_err();
    assert!(told.to_string().contains("as soon as it answers"), "{told}");
    mounts.unmount(&MountRemove { mountpoint: later.mountpoint }).unwrap();
    hanging.end();
    while mounts.work.hangs(&place.mountpoint()) {
        std::hint::spin_loop();
    }
    assert!(mounts.list().is_empty(), "it was given up as soon as the path answered");
    assert_eq!(place.before(), before);
    mounts.stop_all();
}

/// What was told to be given up is not made when the path answers again.
#[test]
fn a_mount_that_hung_is_not_made_later() {
    let Some(place) = Place::with_fuse() else { return };
    let mut hanging = Hanging::new(place.at("mnt"));
    let mounts = KeptMounts::with_patience(place.plain_mounts(), Duration::from_millis(200));
    let refused = mounts.mount(&place.request("home")).unwrap_err();
    assert_eq!(refused.code, Code::Failed, "{refused}");
    hanging.end();
    while mounts.work.hangs(&place.mountpoint()) {
        std::hint::spin_loop();
    }
    assert!(mounts.list().is_empty() && !place.is_sealed());
    assert_eq!(fuse::mounted_type(&place.at("mnt")), None);
    let mounts = place.mounts();
    mounts.mount(&place.request("home")).unwrap();
    mounts.unmount(&place.end()).unwrap();
}

/// The stop waited for a mount whose path hangs.
#[test]
fn regression_the_stop_does_not_wait_for_a_path_that_hangs() {
    let Some(place) = Place::with_fuse() else { return };
    fs::create_dir(place.at("outer")).unwrap();
    fs::create_dir(place.at("outer/mnt")).unwrap();
    let mountpoint = place.at("outer/mnt").display().to_string();
    let mounts = KeptMounts::with_patience(place.plain_mounts(), PATH_WAIT_MAX);
    let request = MountCreate { mountpoint: mountpoint.clone(), ..place.request("home") };
    mounts.mount(&request).unwrap();
    let mut hanging = Hanging::new(place.at("outer"));
    mounts.stop_all();
    hanging.end();
    let name = format!("stop {mountpoint}");
    while mounts.work.hangs(&name) {
        std::hint::spin_loop();
    }
    // Whoever got an error from the path before it was free leaves the mount to the end of the
    // process.
    let left = place.at("outer/mnt");
    if fuse::mounted_type(&left).is_some() {
        rustix::mount::unmount(&left, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
    let mounts = place.mounts();
    mounts.unmount(&MountRemove { mountpoint }).unwrap();
}

/// A record that could not be read was written over by the next change, with that change alone.
#[test]
fn regression_a_record_that_cannot_be_read_is_not_written_over() {
    let place = Place::new();
    let text = "#".repeat(5 << 20);
    fs::write(place.at("mounts"), &text).unwrap();
    let mounts = place.mounts();
    let failure = mounts.record_failure().unwrap();
    assert!(failure.contains(&place.at("mounts").display().to_string()), "{failure}");
    let refused = mounts.mount(&place.request("home")).unwrap_err();
    assert!(refused.to_string().contains("cannot be read"), "{refused}");
    assert!(fs::read_to_string(place.at("mounts")).unwrap() == text, "it is as it was");
    assert!(!place.is_sealed());
    // It was something once.
    fs::write(place.at("mounts"), "").unwrap();
    assert!(place.mounts().record_failure().is_some_and(|failure| failure.contains("is empty")));
    fs::remove_file(place.at("mounts")).unwrap();
    assert_eq!(place.mounts().record_failure(), None);
}

/// Lines of a newer build went at the first change.
#[test]
fn regression_lines_that_nobody_understands_stay_in_the_record() {
    let Some(place) = Place::with_fuse() else { return };
    let strange = "stroop mounts 2\n0755 - home /elsewhere more=words and=more\n@ something else";
    fs::write(place.at("mounts"), format!("{strange}\n")).unwrap();
    let mounts = place.mounts();
    let said = mounts.record_failure().unwrap();
    assert!(said.contains("has lines that cannot be read (2)"), "{said}");
    mounts.mount(&place.request("home")).unwrap();
    mounts.unmount(&place.end()).unwrap();
    let text = fs::read_to_string(place.at("mounts")).unwrap();
    for line in ["stroop mounts 2", "@ something else"] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

/// Something else was mounted over a sealed directory: `stroop unmount` looked at that, and left
/// the directory immutable without a word.
#[test]
fn regression_a_directory_that_something_else_hides_is_not_forgotten() {
    let Some(place) = Place::with_fuse() else { return };
    let before = place.before();
    let mounts = place.mounts();
    mounts.mount(&place.request("home")).unwrap();
    rustix::mount::unmount(place.mountpoint(), rustix::mount::UnmountFlags::DETACH).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("other", place.mountpoint(), "tmpfs", flags, None).unwrap();
    let refused = mounts.unmount(&place.end()).unwrap_err();
    assert_eq!(refused.code, Code::Conflict, "{refused}");
    assert!(refused.to_string().contains("tmpfs is mounted over"), "{refused}");
    assert!(refused.next.unwrap().starts_with("umount "));
    let refused = mounts.mount(&place.request("home")).unwrap_err();
    assert_eq!(refused.code, Code::Conflict, "{refused}");
    assert_eq!(mounts.list().len(), 1, "it is still to be there");
    rustix::mount::unmount(place.mountpoint(), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert!(place.is_sealed());
    mounts.unmount(&place.end()).unwrap();
    assert_eq!(place.before(), before);
    assert!(mounts.list().is_empty());
}

/// The record still had the mount, and the directory was open to programs.
#[test]
fn regression_a_directory_is_as_the_record_has_it_though_that_cannot_be_changed() {
    let Some(place) = Place::with_fuse() else { return };
    let before = place.before();
    let mounts = place.mounts();
    mounts.mount(&place.request("home")).unwrap();
    fs::create_dir(place.at("mounts.new")).unwrap();
    let refused = mounts.unmount(&place.end()).unwrap_err();
    assert!(refused.to_string().contains("will be at the next start"), "{refused}");
    assert!(place.is_sealed() && mounts.list().len() == 1);
    fs::remove_dir(place.at("mounts.new")).unwrap();
    mounts.unmount(&place.end()).unwrap();
    assert_eq!(place.before(), before);
}
