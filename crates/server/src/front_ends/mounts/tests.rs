//! Mounts of a volume in memory, over what would be several servers, one after the other.

use super::*;
use file_service::memory::{MemoryFileSystem, VolumeOptions};
use platform::linux::SystemClock;
use std::fs::{self, OpenOptions};
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

    fn mounts(&self) -> Mounts {
        let limits = locks::Limits::default();
        let locks = LockManager::new(Arc::new(SystemClock), limits);
        Mounts::new(&self.at(""), Arc::clone(&self.service), Arc::new(locks))
    }

    fn request(&self, volume: &str) -> MountCreate {
        MountCreate { volume: volume.to_owned(), mountpoint: self.mountpoint() }
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
fn missing(mounts: &Mounts) -> Vec<Option<String>> {
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
    let missing = mounts.missing_since_start();
    assert_eq!(missing.len(), 1);
    mounts.unmount(&place.end()).unwrap();
    missing.into_iter().for_each(|request| mounts.bring_one_back(request));
    assert!(mounts.list().is_empty() && place.mounts().list().is_empty());
    assert_eq!(place.before(), before);
}
