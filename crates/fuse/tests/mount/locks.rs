//! Locks of programs on the mount, and of another client of the same manager beside them.

use super::{Fixture, call};
use file_service::{FileHandle, FileService, calls};
use fuse::{FuseMount, MountOptions};
use locks::{Attempt, Kind, Limits, LockError, LockManager, Mode, Outcome, Owner, Range, Request};
use platform::linux::SystemClock;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::process::{Child, Command};
use std::sync::Arc;

/// A mount with a file, and another client (as NFS clients are).
pub(super) struct Shared {
    pub fixture: Fixture,
    pub manager: Arc<LockManager>,
    file: FileHandle,
    other: Owner,
}

pub(super) fn shared() -> Option<Shared> {
    let mut fixture = Fixture::new()?;
    fixture.mount.take().unwrap().stop().unwrap();
    let manager = Arc::new(LockManager::new(Arc::new(SystemClock), Limits::default()));
    let options = MountOptions::new("home", fixture.folder.path());
    let service = Arc::clone(&fixture.service) as Arc<dyn FileService>;
    let mount = FuseMount::start_with_locks(options, service, Arc::clone(&manager)).unwrap();
    fixture.mount = Some(mount);
    fs::write(fixture.at("file"), "text").unwrap();
    let root = fixture.root();
    let caller = file_service::Caller::root();
    let found = call(|done| {
        fixture.service.lookup(
            &caller,
            calls::Lookup { directory: root, name: b"file".to_vec() },
            done,
        )
    });
    let file = found.unwrap().handle;
    let other = Owner::new(manager.register_client(), b"other");
    Some(Shared { fixture, manager, file, other })
}

impl Shared {
    pub(super) fn open(&self) -> File {
        OpenOptions::new().read(true).write(true).open(self.fixture.at("file")).unwrap()
    }

    fn request(&self, mode: Mode, start: u64, last: u64) -> Request {
        let range = Range::new(start, last).unwrap();
        let owner = self.other.clone();
        Request { file: self.file, owner, process: 77, kind: Kind::Record, mode, range }
    }

    pub(super) fn lock(&self, mode: Mode, start: u64, last: u64) -> Result<Outcome, LockError> {
        self.manager.lock(&self.request(mode, start, last), Attempt::Now)
    }

    pub(super) fn unlock(&self) {
        self.manager.unlock(self.file, &self.other, Kind::Record, &Range::WHOLE);
    }

    /// A program that waits for the file, whole.
    pub(super) fn flock(&self) -> Child {
        let child = Command::new("flock").arg(self.fixture.at("file")).arg("true").spawn().unwrap();
        self.waits(1);
        child
    }

    /// Until the kernel has told of the end of all open files, which it does later.
    /// A program that waits for a lock can be killed, and another gets the lock when it is free.
    pub(super) fn who_waits_gets_it_or_can_be_killed(&self) {
        self.lock(Mode::Shared, 0, 9).unwrap();
        let mut first = self.flock();
        first.kill().unwrap();
        assert!(!first.wait().unwrap().success());
        self.waits(0);
        let mut second = self.flock();
        self.unlock();
        assert!(second.wait().unwrap().success());
        self.nothing_is_held();
        self.lock(Mode::Exclusive, 0, 9).unwrap();
    }

    pub(super) fn nothing_is_held(&self) {
        while self.manager.counts().0 != 0 {
            std::thread::yield_now();
        }
    }

    /// Until so many wait.
    pub(super) fn waits(&self, count: usize) {
        while self.manager.counts().1 != count {
            std::thread::yield_now();
        }
    }
}

fn record(file: &File, command: i32, kind: i32, start: i64, length: i64) -> (i32, libc::flock) {
    let mut lock = libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: start,
        l_len: length,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open and the structure is the kernel's.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    (if result == 0 { 0 } else { error }, lock)
}

#[test]
fn records_exclude_other_clients_both_ways() {
    let Some(shared) = shared() else { return };
    let file = shared.open();
    assert_eq!(record(&file, libc::F_SETLK, libc::F_WRLCK, 10, 10).0, 0);
    assert!(shared.lock(Mode::Shared, 19, 19).is_err());
    shared.lock(Mode::Exclusive, 20, u64::MAX).unwrap();
    assert_eq!(record(&file, libc::F_SETLK, libc::F_RDLCK, 5, 0).0, libc::EAGAIN);
    let (status, held) = record(&file, libc::F_GETLK, libc::F_RDLCK, 0, 0);
    assert_eq!((status, held.l_start, held.l_len), (0, 20, 0));
    assert_eq!(i32::from(held.l_type), libc::F_WRLCK);
    assert_eq!(record(&file, libc::F_SETLK, libc::F_UNLCK, 12, 2).0, 0);
    shared.lock(Mode::Exclusive, 12, 13).unwrap();
    // One more descriptor that is closed takes the program's records with it.
    drop(shared.open());
    shared.lock(Mode::Exclusive, 0, u64::MAX).unwrap();
}

#[test]
fn who_waits_gets_the_lock_when_it_is_free_or_can_be_killed() {
    let Some(shared) = shared() else { return };
    shared.who_waits_gets_it_or_can_be_killed();
}

#[test]
fn a_whole_file_lock_goes_with_its_descriptor() {
    let Some(shared) = shared() else { return };
    let file = shared.open();
    file.lock().unwrap();
    assert!(shared.open().try_lock().is_err());
    assert!(shared.lock(Mode::Shared, 0, 0).is_err());
    // Records of the same machine are another matter.
    assert_eq!(record(&file, libc::F_SETLK, libc::F_WRLCK, 0, 0).0, 0);
    drop(file);
    shared.nothing_is_held();
    shared.lock(Mode::Exclusive, 0, 0).unwrap();
}

/// They were held until the end of the mount (xfstests generic/478).
#[test]
fn regression_records_of_an_open_file_go_with_its_last_descriptor() {
    let Some(shared) = shared() else { return };
    let (file, other) = (shared.open(), shared.open());
    assert_eq!(record(&file, libc::F_OFD_SETLK, libc::F_WRLCK, 0, 10).0, 0);
    assert_eq!(record(&other, libc::F_OFD_SETLK, libc::F_WRLCK, 9, 1).0, libc::EAGAIN);
    let copy = file.try_clone().unwrap();
    drop(file);
    // A program's own records go with any descriptor, the open file's with its last.
    assert!(shared.lock(Mode::Shared, 0, 0).is_err());
    drop(copy);
    shared.nothing_is_held();
    assert_eq!(record(&other, libc::F_OFD_SETLK, libc::F_WRLCK, 9, 1).0, 0);
}

#[test]
fn the_end_of_a_mount_gives_its_locks_back() {
    let Some(mut shared) = shared() else { return };
    let file = shared.open();
    file.lock_shared().unwrap();
    assert!(shared.lock(Mode::Exclusive, 0, 0).is_err());
    drop(file);
    shared.fixture.mount.take().unwrap().stop().unwrap();
    assert_eq!(shared.manager.counts(), (0, 0));
}
