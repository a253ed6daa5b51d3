//! Volumes of one name in two aggregates of the real binary.

use crate::place::Place;
use std::fs;

/// The disks of the first were not there when the second was made.
#[test]
fn regression_volumes_of_one_name_are_told_apart() {
    let (place, server) = Place::with_volume_on("4x64M", ("2", "none"));
    server.stop();
    let away = |number: usize| place.path(&format!("away-{number}"));
    for number in [1, 2] {
        fs::rename(place.disk(number), away(number)).unwrap();
    }
    let server = place.serve();
    place.ok(&["aggr", "create", "a2", "--disks", "2", "--raid", "none"]);
    place.ok(&["volume", "create", "home", "--size", "20M", "--aggr", "a2"]);
    server.stop();
    for number in [1, 2] {
        fs::rename(away(number), place.disk(number)).unwrap();
    }
    let server = place.serve();
    let records = place.json(&["volume", "list"])["records"].as_array().unwrap().clone();
    let names: Vec<&str> = records.iter().map(|one| one["name"].as_str().unwrap()).collect();
    let [own, other] = names[..] else { panic!("{names:?}") };
    assert_eq!(own, "home");
    assert!(["home.a1", "home.a2"].contains(&other), "{other}");
    let told = place.ok(&["status"]);
    assert!(told.contains("VOLUME_NAME_TAKEN") && told.contains(other), "{told}");
    let told = place.ok(&["volume", "delete", other, "--dry-run"]);
    assert!(told.contains(&format!("of aggregate {}", &other["home.".len()..])), "{told}");
    place.ok(&["volume", "delete", "home", "--yes"]);
    server.stop();
    let server = place.serve();
    let records = place.json(&["volume", "list"])["records"].as_array().unwrap().clone();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["name"], "home", "the name is free again");
    assert!(!place.ok(&["status"]).contains("VOLUME_NAME_TAKEN"));
    server.stop();
}
