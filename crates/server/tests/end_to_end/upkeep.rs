//! Disks that are zeroed and looked for.

use crate::place::Place;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

#[test]
fn a_disk_is_zeroed_if_nobody_uses_it() {
    let (place, server) = Place::with_volume_on("4x64M", ("3", "raid4"));
    let path = place.path("state/disks/d4.img");
    let file = File::options().write(true).open(&path).unwrap();
    let garbage = vec![7_u8; 5 << 20];
    file.write_all_at(&garbage, 8192).unwrap();
    let state = || place.json(&["disk", "list"])["records"][3]["state"].clone();
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
