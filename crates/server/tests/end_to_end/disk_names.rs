//! Short names of disks of the real binary: a disk's own for life, shown and typed.

use crate::place::Place;
use std::collections::BTreeMap;
use std::fs;

/// The paths of disks by what they are called; none of one that is missing.
fn shown(place: &Place) -> BTreeMap<String, Option<String>> {
    let list = place.json(&["disk", "list"])["records"].clone();
    let one = |disk: &serde_json::Value| {
        let path = disk["path"].as_str().map(|path| path.rsplit('/').next().unwrap().to_owned());
        (disk["name"].as_str().unwrap().to_owned(), path)
    };
    list.as_array().unwrap().iter().map(one).collect()
}

fn path_of(place: &Place, name: &str) -> String {
    shown(place).get(name).cloned().flatten().unwrap_or_default()
}

#[test]
fn a_disk_keeps_its_name_wherever_it_is_and_while_it_is_missing() {
    let (place, server) = Place::with_volume_on("6x64M", ("4", "raid4"));
    // Before it is an aggregate's a disk is called by its path.
    let unused = place.disk(5).display().to_string();
    assert_eq!(path_of(&place, &unused), "d5.img");
    assert_eq!(["d1", "d4"].map(|name| path_of(&place, name)), ["d1.img", "d4.img"]);
    server.stop();
    // A boot swaps device names: the names follow what is on the disks.
    let (one, two, other) = (place.disk(1), place.disk(2), place.path("other"));
    for (from, to) in [(&one, &other), (&two, &one), (&other, &two)] {
        fs::rename(from, to).unwrap();
    }
    let server = place.serve();
    assert_eq!(["d1", "d2"].map(|name| path_of(&place, name)), ["d2.img", "d1.img"]);
    // That is one disk's name, and what another is called in the configuration.
    let error = place.refused(&["disk", "locate", "d1"], 2);
    assert!(error.contains("d1 (/") && error.contains("d2.img)\n"), "{error}");
    assert!(error.contains("d2 (/") && error.contains("d1.img)"), "{error}");
    server.stop();
    for (from, to) in [(&one, &other), (&two, &one), (&other, &two)] {
        fs::rename(from, to).unwrap();
    }
    fs::rename(place.disk(3), &other).unwrap();
    let server = place.serve();
    // A missing disk is shown by its name, and may be typed.
    assert_eq!(shown(&place).get("d3"), Some(&None));
    let show = place.ok(&["aggr", "show", "a1"]);
    assert!(show.contains("\nd3 ") && !show.contains("\n("), "{show}");
    let status = place.json(&["status"]);
    let message = status["checks"][0]["message"].as_str().unwrap();
    assert!(message.contains("without d3 (not found"), "{message}");
    let events = place.ok(&["event", "list"]);
    assert!(events.contains("  d3: ") && !events.contains("  ("), "{events}");
    let told = place.ok(&["disk", "replace", "d3", "d5"]);
    assert!(told.contains("d5 takes the place of d3 in a1"), "{told}");
    while !place.check_codes().is_empty() {}
    let jobs = place.json(&["job", "list"])["records"].clone();
    assert_eq!(jobs.as_array().unwrap().last().unwrap()["target"], "d5", "{jobs}");
    server.stop();
    // The name of a disk that has gone is never given again.
    fs::rename(&other, place.disk(3)).unwrap();
    let server = place.serve();
    place.ok(&["disk", "spare", "add", "d3", "--force", "--yes"]);
    assert_eq!(path_of(&place, "d7"), "d3.img");
    server.stop();
}

/// Labels have the names as well.
#[test]
fn names_outlive_the_state_directory() {
    let place = Place::with_disks("4x64M", "1G");
    let server = place.serve();
    place.ok(&["aggr", "create", "a1", "--disks", "d3,d1,d2", "--raid", "raid4"]);
    place.ok(&["disk", "spare", "add", "d4"]);
    let before = shown(&place);
    server.stop();
    let file = place.path("state/disk-names");
    fs::remove_file(&file).unwrap();
    for (from, to) in [(1, 9), (2, 1), (9, 2)] {
        fs::rename(place.disk(from), place.disk(to)).unwrap();
    }
    let server = place.serve();
    let after = shown(&place);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    let swapped = ["d1", "d2", "d3", "d4"].map(|name| after[name].clone().unwrap());
    assert_eq!(swapped, ["d2.img", "d1.img", "d3.img", "d4.img"]);
    server.stop();
}

#[test]
fn names_that_cannot_be_read_are_left_as_they_are() {
    let (place, server) = Place::with_volume();
    assert_eq!(path_of(&place, "d4"), "d4.img");
    server.stop();
    let file = place.path("state/disk-names");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("names 1", "names 2")).unwrap();
    let server = place.serve();
    assert_eq!(place.check_codes(), ["DISK_NAMES_UNREADABLE"]);
    let path = place.disk(4).display().to_string();
    assert_eq!(path_of(&place, &path), "d4.img");
    server.stop();
    fs::write(&file, text).unwrap();
    let server = place.serve();
    place.ok(&["status", "--check"]);
    assert_eq!(path_of(&place, "d4"), "d4.img");
    server.stop();
}
