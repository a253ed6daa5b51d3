//! Disks that are zeroed and looked for.

use crate::place::Place;
use admin_api::{
    Administration as _, AggregateDelete, Code, MountCreate, Remote, SnapshotRestore, VolumeDelete,
};
use cli::SocketTransport;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

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
            let node = Remote(SocketTransport::new(&socket, WAIT));
            let (volume, mountpoint) = ("home".to_owned(), format!("{at}/within"));
            node.fuse_mount(&MountCreate { volume, mountpoint, write_back: false })
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

/// Between the question and the answer another administrator may have been at work.
#[test]
fn what_would_go_by_now_and_was_not_shown_does_not_go() {
    let (place, server) = Place::with_volume();
    let node = Remote(SocketTransport::new(&place.path("state/admin.sock"), WAIT));
    let create = |name: &str| place.ok(&["snapshot", "create", name]);
    create("home@mon");
    create("home@tue");
    let restore = |dry_run, plan| SnapshotRestore {
        volume: "home".to_owned(),
        name: "mon".to_owned(),
        discard_newer: true,
        dry_run,
        plan,
    };
    let shown = node.snapshot_restore(&restore(true, None)).unwrap();
    create("home@wed");
    let refused = node.snapshot_restore(&restore(false, Some(shown.plan))).unwrap_err();
    assert_eq!(refused.code, Code::Conflict, "{refused:?}");
    assert_eq!(place.json(&["snapshot", "list", "home"])["num_records"], 3);
    let told = place.ok(&["snapshot", "restore", "home@mon", "--discard-newer", "--yes"]);
    assert!(told.contains("home@tue") && told.contains("home@wed"), "{told}");

    place.refused(&["volume", "create", "v", "--size", "1G", "--owner", "4294967295"], 2);
    let delete = |dry_run, plan| {
        let (name, queue_for_seconds) = ("home".to_owned(), Some(0));
        VolumeDelete { name, queue_for_seconds, dry_run, plan }
    };
    let shown = node.volume_delete(&delete(true, None)).unwrap();
    place.ok(&["volume", "delete", "home", "--queue-for", "0s", "--yes"]);
    place.ok(&["volume", "create", "home", "--size", "1G"]);
    let refused = node.volume_delete(&delete(false, Some(shown.plan))).unwrap_err();
    assert_eq!(refused.code, Code::Conflict, "{refused:?}");
    let shown = node.volume_delete(&delete(true, None)).unwrap();
    node.volume_delete(&delete(false, Some(shown.plan))).unwrap();

    let delete =
        |dry_run, plan| AggregateDelete { name: "a1".to_owned(), force: false, dry_run, plan };
    let shown = node.aggregate_delete(&delete(true, None)).unwrap();
    let other = Some("another".to_owned());
    assert_eq!(node.aggregate_delete(&delete(false, other)).unwrap_err().code, Code::Conflict);
    node.aggregate_delete(&delete(false, Some(shown.plan))).unwrap();
    server.stop();
}
