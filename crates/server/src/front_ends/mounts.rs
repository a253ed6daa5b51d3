//! The FUSE mounts that the server keeps.
//!
//! Invariants: one mount per mountpoint; mounts that were ended from outside (`umount`) are
//! forgotten when somebody looks; the lock is not held while a mount is made or ended, because
//! ending one waits for the kernel to write back what programs have written. Nobody waits for the
//! programs of a mount that was unmounted lazily (`umount -l`): it is served until they leave it,
//! or until the server stops.

use admin_api::{AdminError, Code, MountCreate, MountInfo, MountRemove};
use file_service::{FileService, FsError};
use fuse::{FuseMount, MountError, MountOptions};
use locks::LockManager;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

struct Mounted {
    volume: String,
    mount: FuseMount,
}

/// The mounts.
#[derive(Default)]
pub(crate) struct Mounts {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    /// By mountpoint.
    mounted: BTreeMap<String, Mounted>,
    /// Mounts that their mountpoints do not show any more, and programs may still be in.
    lingering: Vec<Mounted>,
}

impl Held {
    /// Takes out the mounts that have ended; the caller drops them without the lock.
    fn take_ended(&mut self) -> Vec<Mounted> {
        let hidden = self.mounted.extract_if(.., |_, one| !one.mount.is_at_mountpoint());
        self.lingering.extend(hidden.map(|(_, mounted)| mounted));
        self.lingering.extract_if(.., |mounted| !mounted.mount.is_mounted()).collect()
    }
}

impl Mounts {
    /// Mounts a volume of `service`.
    ///
    /// # Errors
    /// `NotFound` if volume or mountpoint is not there, `Conflict` if something is mounted there,
    /// `Failed` if FUSE cannot be used.
    pub(crate) fn mount(
        &self,
        request: &MountCreate,
        service: Arc<dyn FileService>,
        locks: Arc<LockManager>,
    ) -> Result<MountInfo, AdminError> {
        let MountCreate { volume, mountpoint } = request;
        let options = MountOptions::new(volume.clone(), mountpoint.clone());
        let mount = FuseMount::start_with_locks(options, service, locks);
        let mount = mount.map_err(|error| refused(request, &error))?;
        let info = MountInfo {
            volume: volume.clone(),
            mountpoint: mount.mountpoint().display().to_string(),
        };
        let mounted = Mounted { volume: volume.clone(), mount };
        let ended = {
            let mut held = self.held.lock();
            // A mount that was unmounted from outside may still be held under this name.
            let before = held.mounted.insert(info.mountpoint.clone(), mounted);
            held.lingering.extend(before);
            held.take_ended()
        };
        drop(ended);
        Ok(info)
    }

    /// Ends a mount.
    ///
    /// # Errors
    /// `NotFound` if there is none.
    pub(crate) fn unmount(&self, request: &MountRemove) -> Result<MountInfo, AdminError> {
        let mountpoint = &request.mountpoint;
        let error = |code| AdminError::new(code, "cannot unmount", mountpoint);
        let Some(mounted) = self.held.lock().mounted.remove(mountpoint) else {
            return Err(error(Code::NotFound)
                .because("no volume is mounted there")
                .try_next("stroop mount"));
        };
        let volume = mounted.volume;
        mounted.mount.stop().map_err(|failure| error(Code::Failed).because(failure.to_string()))?;
        Ok(MountInfo { volume, mountpoint: mountpoint.clone() })
    }

    /// All mounts, in order of mountpoint.
    pub(crate) fn list(&self) -> Vec<MountInfo> {
        let ended = self.held.lock().take_ended();
        drop(ended);
        let held = self.held.lock();
        let info = |(mountpoint, mounted): (&String, &Mounted)| MountInfo {
            volume: mounted.volume.clone(),
            mountpoint: mountpoint.clone(),
        };
        held.mounted.iter().map(info).collect()
    }

    /// Ends all mounts: the server stops.
    pub(crate) fn stop_all(&self) {
        let Held { mounted, lingering } = std::mem::take(&mut *self.held.lock());
        for Mounted { mount, .. } in mounted.into_values().chain(lingering) {
            let mountpoint = mount.mountpoint().to_owned();
            if let Err(error) = mount.stop() {
                let mountpoint = mountpoint.display();
                tracing::error!(%mountpoint, %error, "a mount could not be ended cleanly");
            }
        }
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
                .try_next(format!("mkdir -p {mountpoint}"))
        }
        MountError::NotDirectory { .. } => refused(Code::Usage, "cannot mount at", mountpoint),
        MountError::Busy { .. } | MountError::Dead { .. } => {
            refused(Code::Conflict, "cannot mount at", mountpoint).try_next("stroop mount")
        }
        _ => refused(Code::Failed, "cannot mount at", mountpoint),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_service::memory::{MemoryFileSystem, VolumeOptions};
    use platform::linux::SystemClock;
    use std::fs::{self, OpenOptions};

    fn service() -> Arc<dyn FileService> {
        let memory = MemoryFileSystem::new(Arc::new(SystemClock));
        memory.add_volume("home", VolumeOptions::default()).unwrap();
        Arc::new(memory)
    }

    fn locks() -> Arc<LockManager> {
        Arc::new(LockManager::new(Arc::new(SystemClock), locks::Limits::default()))
    }

    fn request(volume: &str, mountpoint: &str) -> MountCreate {
        MountCreate { volume: volume.to_owned(), mountpoint: mountpoint.to_owned() }
    }

    /// A directory to mount at, and its path; none where that cannot be done.
    fn place() -> Option<(tempfile::TempDir, String)> {
        if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
            println!("skipped: /dev/fuse cannot be used here");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(directory.path()).unwrap().display().to_string();
        Some((directory, place))
    }

    #[test]
    fn what_stands_in_the_way_is_named() {
        let mounts = Mounts::default();
        let error = mounts.mount(&request("work", "/"), service(), locks()).unwrap_err();
        assert_eq!((error.code, error.object.as_str()), (Code::NotFound, "work"));
        let error =
            mounts.mount(&request("home", "/no/such/place"), service(), locks()).unwrap_err();
        assert_eq!((error.code, error.object.as_str()), (Code::NotFound, "/no/such/place"));
        let request = MountRemove { mountpoint: "/mnt".to_owned() };
        assert_eq!(mounts.unmount(&request).unwrap_err().code, Code::NotFound);
        assert!(mounts.list().is_empty());
    }

    #[test]
    fn a_mount_is_listed_until_it_is_ended() {
        let Some((directory, place)) = place() else { return };
        let (mounts, service) = (Mounts::default(), service());
        mounts.mount(&request("home", &place), Arc::clone(&service), locks()).unwrap();
        fs::write(directory.path().join("file"), "text").unwrap();
        assert_eq!(mounts.list()[0].mountpoint, place);
        let again =
            mounts.mount(&request("home", &place), Arc::clone(&service), locks()).unwrap_err();
        assert_eq!(again.code, Code::Conflict, "{again}");
        mounts.unmount(&MountRemove { mountpoint: place.clone() }).unwrap();
        assert!(mounts.list().is_empty() && !directory.path().join("file").exists());
        mounts.mount(&request("home", &place), service, locks()).unwrap();
        assert_eq!(fs::read(directory.path().join("file")).unwrap(), b"text");
        mounts.stop_all();
        assert!(mounts.list().is_empty());
    }

    #[test]
    fn a_mount_that_programs_linger_in_holds_nobody_up() {
        let Some((directory, place)) = place() else { return };
        let (mounts, service) = (Mounts::default(), service());
        mounts.mount(&request("home", &place), Arc::clone(&service), locks()).unwrap();
        fs::write(directory.path().join("file"), "text").unwrap();
        let within = fs::File::open(&place).unwrap();
        rustix::mount::unmount(&place, rustix::mount::UnmountFlags::DETACH).unwrap();
        assert!(mounts.list().is_empty(), "the mountpoint shows it no more");
        let make = |name: &str| rustix::fs::mkdirat(&within, name, 0o755.into());
        mounts.mount(&request("home", &place), service, locks()).unwrap();
        make("before").unwrap();
        assert!(directory.path().join("before").is_dir(), "who is in the old mount is served");
        assert_eq!(mounts.list().len(), 1);
        mounts.stop_all();
        assert_eq!(make("after"), Err(rustix::io::Errno::NOTCONN));
        assert!(mounts.list().is_empty());
    }
}
