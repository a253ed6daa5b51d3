//! Aggregates of the real binary that are deleted: their disks are free, and nothing brings them
//! back.

use crate::files::{check, connect, fill};
use crate::place::Place;
use std::fs;

/// The state of a disk in the list, and its note.
fn disk(place: &Place, name: &str) -> (String, String) {
    let list = place.json(&["disk", "list"])["records"].as_array().unwrap().clone();
    let found = list.into_iter().find(|disk| disk["name"].as_str().unwrap().contains(name));
    let found = found.unwrap();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("state"), text("note"))
}

fn journals(place: &Place) -> usize {
    fs::read_dir(place.path("state/journal")).unwrap().count()
}

#[test]
fn an_aggregate_without_volumes_is_deleted_and_its_disks_are_free() {
    let (place, server) = Place::with_volume();
    place.ok(&["disk", "list"]);
    let error = place.refused(&["aggr", "delete", "a1", "--yes", "--force"], 4);
    assert!(error.contains("volumes are in it: home"), "{error}");
    let error = place.refused(&["aggr", "delete", "nothing", "--yes"], 3);
    assert!(error.contains("nothing"), "{error}");
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    check(&mut client, &root, &model);
    place.ok(&["volume", "delete", "home", "--yes"]);
    let plan = place.ok(&["aggr", "delete", "a1", "--dry-run"]);
    assert!(plan.matches(" is free").count() == 4 && plan.contains("journal file"), "{plan}");
    let error = place.refused(&["aggr", "delete", "a1"], 2);
    assert!(error.contains("needs a confirmation"), "{error}");
    assert_eq!((disk(&place, "d1").0.as_str(), journals(&place)), ("in use", 1));
    place.ok(&["aggr", "delete", "a1", "--yes"]);
    assert_eq!((disk(&place, "d1").0.as_str(), journals(&place)), ("unused", 0));
    assert!(client.lookup(&root, "large").is_err(), "its handles are stale");
    place.ok(&["status", "--check"]);
    // The name and the disks are to be had again, now and after a start.
    place.ok(&["aggr", "create", "a1", "--disks", "4", "--raid", "dp"]);
    place.ok(&["volume", "create", "home", "--size", "20M"]);
    server.kill();
    let server = place.serve();
    place.ok(&["status", "--check"]);
    assert_eq!(place.json(&["aggr", "show", "a1"])["raid"], "dp");
    server.stop();
}

/// The disks were missing when their aggregate was deleted, and would be enough for it.
#[test]
fn disks_that_return_do_not_bring_a_deleted_aggregate_back() {
    let (place, server) = Place::with_volume_on("4x64M", ("4", "dp"));
    server.kill();
    let away = |number: usize| place.path(&format!("away-{number}"));
    for number in [3, 4] {
        fs::rename(place.disk(number), away(number)).unwrap();
    }
    let server = place.serve();
    place.ok(&["volume", "delete", "home", "--yes"]);
    let told = place.ok(&["aggr", "delete", "a1", "--yes"]);
    assert_eq!(told.matches("is missing and keeps what it holds").count(), 2, "{told}");
    let returned = || {
        assert_eq!(place.json(&["aggr", "list"])["num_records"], 0);
        let (state, note) = disk(&place, "d3");
        assert_eq!(state, "foreign");
        assert!(note.contains("of aggregate 'a1', which was deleted at 20"), "{note}");
        place.ok(&["status", "--check"]);
    };
    for number in [3, 4] {
        fs::rename(away(number), place.disk(number)).unwrap();
    }
    returned();
    server.stop();
    let server = place.serve();
    returned();
    assert_eq!(disk(&place, "d1").0, "unused");
    let create = ["aggr", "create", "b1", "--disks", "d1,d3,d4", "--raid", "raid4"];
    place.refused(&create, 4);
    place.ok(&[&create[..], &["--force", "--yes"]].concat());
    server.stop();
    let server = place.serve();
    assert_eq!(place.json(&["aggr", "show", "b1"])["state"], "online");
    server.stop();
}

/// Nobody can look at its volumes, so it goes by force; what is there of its disks is free then.
#[test]
fn an_aggregate_out_of_service_is_deleted_by_force_only() {
    let (place, server) = Place::with_volume_on("5x64M", ("4", "raid4"));
    server.kill();
    for number in [1, 2] {
        fs::rename(place.disk(number), place.path(&format!("away-{number}"))).unwrap();
    }
    let server = place.serve();
    assert_eq!(place.check_codes(), ["AGGR_OFFLINE"]);
    let error = place.refused(&["aggr", "delete", "a1", "--yes"], 4);
    assert!(error.contains("nobody knows which volumes it has"), "{error}");
    let plan = place.ok(&["aggr", "delete", "a1", "--force", "--dry-run"]);
    assert!(plan.matches(" is free").count() == 2, "{plan}");
    assert!(plan.matches("is missing and keeps what it holds").count() == 2, "{plan}");
    place.ok(&["aggr", "delete", "a1", "--force", "--yes"]);
    place.ok(&["status", "--check"]);
    assert_eq!((disk(&place, "d3").0, disk(&place, "d4").0), ("unused".into(), "unused".into()));
    for number in [1, 2] {
        fs::rename(place.path(&format!("away-{number}")), place.disk(number)).unwrap();
    }
    let (state, note) = disk(&place, "d1");
    assert!(state == "foreign" && note.contains("which was deleted at"), "{state}: {note}");
    place.ok(&["aggr", "create", "a1", "--disks", "d3,d4,d5", "--raid", "raid4"]);
    place.ok(&["status", "--check"]);
    server.stop();
}

#[test]
fn a_traditional_volume_goes_with_its_aggregate_by_force_only() {
    let place = Place::new();
    let server = place.serve();
    place.ok(&["aggr", "create", "t1", "--disks", "4", "--raid", "raid4", "--traditional"]);
    let error = place.refused(&["aggr", "delete", "t1", "--yes"], 4);
    assert!(error.contains("it is the traditional volume t1"), "{error}");
    let plan = place.ok(&["aggr", "delete", "t1", "--force", "--dry-run"]);
    assert!(plan.contains("volume t1, with all it holds"), "{plan}");
    place.ok(&["aggr", "delete", "t1", "--force", "--yes"]);
    assert_eq!(place.json(&["volume", "list"])["num_records"], 0);
    assert_eq!(disk(&place, "d4").0, "unused");
    server.stop();
    let server = place.serve();
    assert_eq!(place.json(&["aggr", "list"])["num_records"], 0);
    server.stop();
}
