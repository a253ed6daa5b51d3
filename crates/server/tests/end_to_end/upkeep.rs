//! Disks that are zeroed and looked for.

use crate::place::Place;
use admin_api::{Administration as _, Code, MountCreate, Remote};
use cli::SocketTransport;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

#[test]
fn a_disk_is_zeroed_if_nobody_uses_it() {
    let (place, server) = Place::with_volume_on("4x64M", ("3", "raid4"));
    let path = place.path("state/disks/d4.img");
    let file = File::options().write(true).open(&path).unwrap();
    let garbage = vec![7_u8; 5 << 20];
    file.write_all_at(&garbage, 8192).unwrap();
    let state = || place.disk_info(4)["state"].clone();
    assert_eq!(state(), "foreign");
    let plan = place.ok(&["disk", "zero", "d4", "--dry-run"]);
    assert!(plan.contains("unknown data"), "{plan}");
    place.refused(&["disk", "zero", "d4"], 2);
    assert_eq!(state(), "foreign");
    assert!(place.refused(&["disk", "zero", "d1", "--yes"], 4).contains("belongs to aggregate a1"));
    place.ok(&["disk", "zero", "d4", "--yes"]);
    assert_eq!(state(), "unused");
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
    // One that is not empty beyond where anybody looks is zeroed before it joins.
    file.write_all_at(&garbage, 20 << 20).unwrap();
    place.ok(&["aggr", "add", "a1", "--disks", "d4", "--group", "0"]);
    assert_eq!(state(), "in use");
    server.stop();
}

/// A path on a file system that hangs, as that of a dead server does, held up every other change
/// of the node, and its shutdown.
#[test]
fn regression_a_mountpoint_that_hangs_holds_up_nobody() {
    let (other, hanging) = Place::with_volume();
    let mountpoint = other.path("mountpoint");
    fs::create_dir(&mountpoint).unwrap();
    let at = mountpoint.display().to_string();
    if !other.stroop(&["mount", "home", &at]).status.success() {
        println!("skipped: FUSE cannot be used here");
        return;
    }
    hanging.signal("STOP");
    let (place, server) = Place::with_volume();
    // Not by the command line, which looks at the path itself.
    let asking = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let socket = place.path("state/admin.sock");
            let node = Remote(SocketTransport::new(&socket, Duration::from_secs(60)));
            let (volume, mountpoint) = ("home".to_owned(), format!("{at}/within"));
            node.fuse_mount(&MountCreate { volume, mountpoint })
        });
        // It takes its turn, as changes do; the other is on its way by then.
        let listed: Vec<bool> = (0..20)
            .map(|_| place.stroop(&["disk", "list", "--wait", "10s"]).status.success())
            .take_while(|listed| *listed)
            .collect();
        hanging.signal("CONT");
        assert_eq!(listed.len(), 20);
        asking.join().unwrap()
    });
    assert_eq!(asking.unwrap_err().code, Code::NotFound);
    server.stop();
    other.ok(&["unmount", &at]);
    hanging.stop();
}

#[test]
fn a_disk_shows_where_it_is() {
    let (place, server) = Place::with_volume_on("4x64M", ("3", "raid4"));
    for disk in ["d1", "d4"] {
        let shown = place.json(&["disk", "locate", disk, "--seconds", "30"]);
        assert_eq!((&shown["seconds"], &shown["enclosure_light"]), (&30.into(), &false.into()));
    }
    assert!(place.ok(&["disk", "locate", "d1", "--off"]).contains("no longer"));
    place.refused(&["disk", "locate", "d9"], 3);
    place.refused(&["disk", "locate", "d1", "--seconds", "86401"], 2);
    // One that shows itself is free to be used all the same.
    place.ok(&["aggr", "add", "a1", "--disks", "d4", "--group", "0"]);
    server.stop();
}
