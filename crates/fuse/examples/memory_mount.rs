//! Mounts a volume that lives in memory:
//! `memory_mount MOUNTPOINT [CACHE_MILLISECONDS] [write-back]`.
//!
//! For trying out the mount and for test suites (pjdfstest, fsx) without a disk. Ends when the
//! volume is unmounted.

use file_service::memory::{MemoryFileSystem, VolumeOptions};
use fuse::{FuseMount, MountOptions};
use platform::linux::SystemClock;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(mountpoint) = arguments.next() else {
        eprintln!("usage: memory_mount MOUNTPOINT [CACHE_MILLISECONDS] [write-back]");
        return ExitCode::from(2);
    };
    let mut options = MountOptions::new("home", mountpoint);
    for argument in arguments {
        match argument.parse() {
            Ok(milliseconds) => options.cache_time = Duration::from_millis(milliseconds),
            Err(_) => options.write_back = argument == "write-back",
        }
    }
    let service = MemoryFileSystem::new(Arc::new(SystemClock));
    if service.add_volume("home", VolumeOptions::default()).is_err() {
        unreachable!("the first volume has no name to share");
    }
    let mount = FuseMount::start(options, Arc::new(service));
    let ended = mount.and_then(|mount| {
        println!("mounted on {}", mount.mountpoint().display());
        mount.wait()
    });
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memory_mount: {error}");
            ExitCode::FAILURE
        }
    }
}
