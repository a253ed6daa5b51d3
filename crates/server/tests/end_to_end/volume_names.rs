//! Volumes of the real binary that change: one name in two aggregates, a new name, and volumes that
//! are taken offline.

use crate::files::{check, connect, connect_to, fill};
use crate::place::Place;
use nfs_client::{NfsClient, NfsFailure};
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

/// Clients go on with what they have, and find the volume under its new name only.
#[test]
fn a_volume_is_renamed_while_an_nfs_client_uses_it() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    let told = place.ok(&["volume", "rename", "home", "work", "--dry-run"]);
    assert!(told.starts_with("home: would be renamed to work\n"), "{told}");
    let told = place.ok(&["volume", "rename", "home", "work"]);
    assert!(told.contains("NFS clients that have /home mounted go on"), "{told}");
    check(&mut client, &root, &model);
    assert!(client.mount("/home").is_err());
    assert_eq!(client.mount("/work").unwrap(), root);
    let error = place.refused(&["volume", "show", "home"], 3);
    assert!(error.contains("home"), "{error}");
    server.kill();
    let server = place.serve();
    let (mut client, _) = connect_to(&place, "/work");
    check(&mut client, &root, &model);
    place.ok(&["volume", "create", "home", "--size", "20M"]);
    let error = place.refused(&["volume", "rename", "home", "work"], 4);
    assert!(error.contains("there is a volume 'work'"), "{error}");
    server.stop();
}

/// Its clients are turned away, also after a restart, and go on with what they had.
#[test]
fn a_volume_is_offline_until_it_is_brought_back() {
    const ACCESS: u32 = 13;
    const STALE: u32 = 70;
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    place.ok(&["volume", "offline", "home", "--dry-run"]);
    check(&mut client, &root, &model);
    let told = place.ok(&["volume", "offline", "home"]);
    assert!(told.contains("all that was written is durable") && told.contains("stale"), "{told}");
    let status = |failure: NfsFailure| match failure {
        NfsFailure::Status(status) => status,
        other => panic!("{other:?}"),
    };
    let stale = |client: &mut NfsClient| {
        let refused = client.lookup(&root, "large").map(drop).unwrap_err();
        assert_eq!(status(refused), STALE);
        // As if there were no such volume.
        for path in ["/home", "/home/large", "/nothing"] {
            assert_eq!(status(client.mount(path).unwrap_err()), ACCESS, "{path}");
        }
    };
    stale(&mut client);
    server.kill();
    let server = place.serve();
    let mut client = NfsClient::connect(place.nfs_address()).unwrap();
    stale(&mut client);
    let shown = place.json(&["volume", "show", "home"]);
    assert_eq!((&shown["state"], &shown["taken_offline"]), (&"OFFLINE".into(), &true.into()));
    let told = place.ok(&["status", "--check"]);
    assert!(told.contains("volume home is offline, by an administrator"), "{told}");
    let error = place.refused(&["volume", "offline", "home"], 4);
    assert!(error.contains("it is offline"), "{error}");
    let error = place.refused(&["mount", "home", place.path("state").to_str().unwrap()], 4);
    assert!(error.contains("stroop volume online home"), "{error}");
    place.ok(&["snapshot", "create", "home@meanwhile"]);
    place.ok(&["volume", "online", "home"]);
    check(&mut client, &root, &model);
    client.mount("/home").unwrap();
    place.refused(&["volume", "online", "home"], 4);
    server.stop();
}
