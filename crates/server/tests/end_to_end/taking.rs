//! Disks of aggregates that are out of service: nobody takes them who was not asked about the
//! aggregate.

use crate::files::{check, connect, fill};
use crate::place::{Place, text};
use std::fs;

/// Takes disks of `a1` away from a running server, until it is out of service.
fn lose(place: &Place, numbers: &[usize]) {
    for number in numbers {
        fs::rename(place.disk(*number), place.path(&format!("away-{number}"))).unwrap();
    }
    let is_away = || {
        let _ = place.stroop(&["snapshot", "create", "home@more"]);
        let status = place.json(&["status"]);
        let message = status["checks"][0]["message"].as_str().unwrap_or_default().to_owned();
        message.contains("out of service since 20")
    };
    while !is_away() {}
    // Its disks are let go of a moment later.
    let is_open = || {
        let output = place.stroop(&["disk", "zero", "d2", "--dry-run"]);
        text(&output.stderr).contains("cannot use disk")
    };
    while is_open() {}
}

fn bring_back(place: &Place, numbers: &[usize]) {
    for number in numbers {
        fs::rename(place.path(&format!("away-{number}")), place.disk(*number)).unwrap();
    }
    while place.check_codes().contains(&"AGGR_OFFLINE".to_owned()) {}
}

fn state(place: &Place, aggregate: &str) -> serde_json::Value {
    place.json(&["aggr", "show", aggregate])["state"].clone()
}

/// A disk that an aggregate out of service needs was erased without a question: as long as it was
/// in an outage by `disk zero`, and by any command with `--force`.
#[test]
fn regression_a_disk_of_an_aggregate_in_an_outage_is_not_taken_unasked() {
    let (place, server) = Place::with_volume_on("6x64M", ("3", "raid4"));
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    place.ok(&["aggr", "create", "b1", "--disks", "d6", "--raid", "none"]);
    lose(&place, &[1, 3]);
    let error = place.refused(&["disk", "zero", "d2", "--yes"], 4);
    assert!(error.contains("belongs to aggregate a1, which is out of service"), "{error}");
    // They are refused without the question, and with it, as nobody answers.
    for (words, name) in [
        (&["aggr", "create", "c1", "--disks", "d2", "--raid", "none"][..], "c1"),
        (&["aggr", "add", "b1", "--disks", "d2"][..], "b1"),
        (&["disk", "spare", "add", "d2", "--aggr", "b1"][..], "d2"),
        (&["disk", "replace", "d6", "d2"][..], "d6"),
    ] {
        place.refused(words, 4);
        let error = place.refused(&[words, &["--force"]].concat(), 2);
        assert!(error.contains(name) && error.contains("a1 comes back degraded, or is lost"));
    }
    let zeroed = place.disk_info(2);
    assert_eq!(zeroed["aggregate"], "a1", "{zeroed}");
    bring_back(&place, &[1, 3]);
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    // Who says yes gives it up.
    lose(&place, &[1, 3]);
    place.ok(&["aggr", "create", "c1", "--disks", "d2", "--raid", "none", "--force", "--yes"]);
    let taken = place.disk_info(2);
    assert_eq!((&taken["aggregate"], &taken["state"]), (&"c1".into(), &"in use".into()));
    assert_eq!(state(&place, "a1"), "OFFLINE", "two of its disks may come back");
    server.stop();
}

/// An aggregate all disks of which failed was forgotten as soon as another was made, of other
/// disks.
#[test]
fn regression_an_aggregate_in_an_outage_is_not_forgotten_for_another() {
    let (place, server) = Place::with_volume_on("4x64M", ("1", "none"));
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    lose(&place, &[1]);
    place.ok(&["aggr", "create", "a2", "--disks", "d2,d3,d4", "--raid", "raid4"]);
    assert_eq!(state(&place, "a1"), "OFFLINE");
    bring_back(&place, &[1]);
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    server.stop();
}

/// A disk that shows itself is given out by the same handle, so that being in use told nobody that
/// it was named twice: it was labelled twice, and the server ended.
#[test]
fn regression_a_disk_that_shows_itself_is_named_once() {
    let (place, server) = Place::with_volume_on("5x64M", ("3", "raid4"));
    place.ok(&["disk", "locate", "d4"]);
    let error = place.refused(&["disk", "spare", "add", "d4", "d4", "--aggr", "a1", "--force"], 2);
    assert!(error.contains("named twice"), "{error}");
    place.ok(&["disk", "spare", "add", "d4", "--aggr", "a1"]);
    server.stop();
}

/// Disks that worked were called failed because their aggregate was out of service, and the ones
/// that it lacked were not listed.
#[test]
fn regression_the_list_of_disks_tells_sound_disks_from_missing_ones() {
    let (place, server) = Place::with_volume_on("5x64M", ("4", "raid4"));
    server.kill();
    for number in [1, 3] {
        fs::rename(place.disk(number), place.path(&format!("away-{number}"))).unwrap();
    }
    let server = place.serve();
    assert_eq!(place.check_codes(), ["AGGR_OFFLINE"]);
    let list = place.json(&["disk", "list"])["records"].clone();
    let of_aggregate = |state: &str| {
        let disks = list.as_array().unwrap().iter();
        disks.filter(|disk| disk["aggregate"] == "a1" && disk["state"] == state).count()
    };
    assert_eq!((of_aggregate("in use"), of_aggregate("missing")), (2, 2), "{list:#}");
    assert_eq!(of_aggregate("failed"), 0, "{list:#}");
    assert_eq!(list.as_array().unwrap().len(), 5, "{list:#}");
    let missing = list.as_array().unwrap().iter().filter(|disk| disk["state"] == "missing");
    let mut roles: Vec<&str> = missing.map(|disk| disk["role"].as_str().unwrap()).collect();
    roles.sort_unstable();
    assert_eq!(roles, ["data", "parity"], "{list:#}");
    server.stop();
}
