//! FUSE mounts of the real binary: what was written through them is there after SIGKILL.
//!
//! Where nothing can be mounted the tests say so and pass.

use crate::files::content;
use crate::place::{Place, Server};
use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::Command;

/// A directory to mount at. What is mounted there is detached at the end.
struct Mountpoint(PathBuf);

impl Mountpoint {
    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }

    /// Detaches what is mounted here, dead or alive.
    fn detach(&self) {
        let detached = Command::new("umount").args(["-l", self.text()]).output();
        assert!(detached.is_ok());
    }
}

impl Drop for Mountpoint {
    fn drop(&mut self) {
        self.detach();
    }
}

/// A place with a volume that is mounted; none, with a reason printed, where that cannot be done.
fn mounted() -> Option<(Place, Server, Mountpoint)> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        eprintln!("skipped: /dev/fuse cannot be opened: {error}");
        return None;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may mount by the kernel");
        return None;
    }
    let (place, server) = Place::with_volume();
    let directory = place.path("mnt");
    fs::create_dir(&directory).unwrap();
    let mountpoint = Mountpoint(directory);
    place.ok(&["mount", "home", mountpoint.text()]);
    Some((place, server, mountpoint))
}

#[test]
fn what_was_written_before_a_sync_is_there_after_a_kill() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    let files = (0..50).map(|number| (format!("file-{number}"), content(number, 30_000)));
    let files: Vec<_> = files.collect();
    for (name, data) in &files {
        fs::write(mountpoint.0.join(name), data).unwrap();
    }
    assert_eq!(place.json(&["sync", "home"])["volumes"][0], "home");
    server.kill();
    mountpoint.detach();
    let _server = place.serve();
    place.ok(&["mount", "home", mountpoint.text()]);
    for (name, data) in &files {
        assert!(fs::read(mountpoint.0.join(name)).unwrap() == *data, "{name} differs");
    }
}

/// `cp`, `sync`, SIGKILL left files of 0 bytes: nothing but the next consistency point, ten seconds
/// later, made durable what was written.
#[test]
fn regression_what_was_closed_is_logged_before_the_next_consistency_point() {
    let Some((place, server, mountpoint)) = mounted() else { return };
    let data = content(7, 1 << 20);
    let state = || {
        let shown = place.json(&["aggr", "show", "a1"]);
        (shown["consistency_point"].as_u64().unwrap(), shown["log_used_bytes"].as_u64().unwrap())
    };
    // A consistency point may come between by chance.
    let logged = (0..3).find_map(|number| {
        let (before, _) = state();
        let name = format!("file-{number}");
        fs::write(mountpoint.0.join(&name), &data).unwrap();
        loop {
            let (now, used_bytes) = state();
            if now != before {
                return None;
            }
            if used_bytes >= data.len() as u64 {
                return Some(name);
            }
        }
    });
    let name = logged.expect("a closed file is logged");
    server.kill();
    mountpoint.detach();
    let _server = place.serve();
    place.ok(&["mount", "home", mountpoint.text()]);
    assert!(fs::read(mountpoint.0.join(name)).unwrap() == data);
}
