//! A mounted volume as programs see it. Needs `/dev/fuse` and root; says so and passes without.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod content;
mod life;
mod locks;
mod names;
mod ring;
mod write_back;

use file_service::memory::{MemoryFileSystem, VolumeOptions};
use file_service::{Caller, Done, FileHandle, FileService, FsError, calls};
use fuse::{FuseMount, MountOptions};
use platform::linux::SystemClock;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;

const NOBODY: u32 = 65_534;

fn call<T: Send + 'static>(run: impl FnOnce(Done<T>)) -> Result<T, FsError> {
    let (sender, receiver) = channel();
    run(Box::new(move |answer| sender.send(answer).unwrap()));
    receiver.recv().unwrap()
}

/// A volume in memory, mounted on a folder of its own.
struct Fixture {
    service: Arc<MemoryFileSystem>,
    mount: Option<FuseMount>,
    folder: tempfile::TempDir,
}

impl Fixture {
    /// None, with a reason printed, where nothing can be mounted.
    fn new() -> Option<Self> {
        Self::with(|_| {})
    }

    fn with(adjust: impl FnOnce(&mut MountOptions)) -> Option<Self> {
        let service = Arc::new(MemoryFileSystem::new(Arc::new(SystemClock)));
        service.add_volume("home", VolumeOptions::default()).unwrap();
        Self::serving(Arc::clone(&service), service as _, adjust)
    }

    /// The volume "home" of a service, which the mount sees through `seen`.
    fn serving(
        service: Arc<MemoryFileSystem>,
        seen: Arc<dyn FileService>,
        adjust: impl FnOnce(&mut MountOptions),
    ) -> Option<Self> {
        if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            eprintln!("skipped: /dev/fuse cannot be opened: {error}");
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root may mount for other users");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut options = MountOptions::new("home", folder.path());
        adjust(&mut options);
        let mount = FuseMount::start(options, seen).unwrap();
        Some(Self { service, mount: Some(mount), folder })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn root(&self) -> FileHandle {
        call(|done| {
            self.service.root(&Caller::root(), calls::Root { name: "home".to_owned() }, done)
        })
        .unwrap()
        .handle
    }

    fn remount(&mut self) {
        self.mount.take().unwrap().stop().unwrap();
        let options = MountOptions::new("home", self.folder.path());
        self.mount = Some(FuseMount::start(options, Arc::clone(&self.service) as _).unwrap());
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take()
            && !std::thread::panicking()
        {
            mount.stop().unwrap();
            self.service.verify();
        }
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn shell(folder: &Path, script: &str) {
    run(Command::new("sh").args(["-ec", script]).current_dir(folder));
}
