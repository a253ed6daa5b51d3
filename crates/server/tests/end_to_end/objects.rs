//! Aggregates, volumes, snapshots and exports by command, with the files that they are about.

use crate::files::{check, connect, content, fill};
use crate::place::Place;
use nfs_client::{NOT_FOUND, NfsClient, STALE};

/// `nfsstat3` and `mountstat3`: NFS3ERR_ACCES, NFS3ERR_ROFS.
const ACCESS: u32 = 13;
const READ_ONLY: u32 = 30;

#[test]
fn a_dry_run_changes_nothing() {
    let place = Place::new();
    let server = place.serve();
    let create = ["aggr", "create", "a1", "--disks", "4", "--raid", "raid4"];
    let before: Vec<Vec<u8>> =
        (1..=4).map(|number| std::fs::read(place.disk(number)).unwrap()).collect();
    let planned = place.json(&[&create[..], &["--dry-run"]].concat());
    for (number, content) in (1..=4).zip(&before) {
        assert!(std::fs::read(place.disk(number)).unwrap() == *content, "disk {number}");
    }
    let made = place.json(&create);
    for field in ["size_bytes", "data_disks", "parity_disks", "raid"] {
        assert_eq!(planned[field], made[field], "{field}");
    }
    let create = ["volume", "create", "home", "--size", "50M"];
    place.json(&[&create[..], &["--dry-run"]].concat());
    assert_eq!(place.json(&["volume", "list"])["num_records"], 0);
    place.ok(&create);
    place.ok(&["snapshot", "create", "home@one"]);
    place.ok(&["snapshot", "delete", "home@one", "--dry-run"]);
    place.ok(&["snapshot", "restore", "home@one", "--dry-run"]);
    place.ok(&["volume", "delete", "home", "--dry-run"]);
    assert_eq!(place.json(&["snapshot", "list"])["num_records"], 1);
    server.stop();
}

#[test]
fn disks_are_what_is_said_of_them_from_one_start_to_the_next() {
    let place = Place::new();
    let mut server = place.serve();
    let create = ["aggr", "create", "a1", "--disks", "d1,d2,d3", "--raid", "raid4", "--media"];
    let error = place.refused(&[&create[..], &["ssd:5000"]].concat(), 2);
    assert!(error.contains("'ssd:5000' is no medium; write hdd, ssd, ssd:4MiB"), "{error}");
    let planned = place.json(&[&create[..], &["ssd:8M", "--dry-run"]].concat());
    assert_eq!(planned["disks"][2]["media"], "ssd:8MiB");
    place.ok(&[&create[..], &["ssd:8M"]].concat());
    for _ in 0..2 {
        let disks = place.json(&["disk", "list"])["records"].clone();
        assert_eq!(
            (&disks[0]["media"], &disks[2]["media"]),
            (&"ssd:8MiB".into(), &"ssd:8MiB".into())
        );
        // Of a file nobody said anything about the device below it tells whether it turns.
        let told = disks[3]["media"].as_str().unwrap();
        assert!(told == "hdd" || told == "ssd:4MiB", "{told}");
        assert_eq!(place.json(&["aggr", "show", "a1"])["disks"][1]["media"], "ssd:8MiB");
        server.stop();
        server = place.serve();
    }
    server.stop();
}

#[test]
fn what_stands_in_the_way_is_named() {
    let (place, server) = Place::with_volume();
    let taken = place.refused(&["aggr", "create", "a2", "--disks", "d1", "--raid", "none"], 4);
    assert!(taken.contains("belongs to aggregate a1"), "{taken}");
    place.refused(&["volume", "create", "home", "--size", "50M", "--aggr", "a1"], 4);
    place.refused(&["volume", "create", "x", "--size", "50M", "--aggr", "a9"], 3);
    place.refused(&["volume", "show", "x"], 3);
    place.ok(&["snapshot", "create", "home@one"]);
    place.refused(&["snapshot", "create", "home@one"], 4);
    place.refused(&["snapshot", "delete", "home@two", "--yes"], 3);
    place.refused(&["export", "remove", "home", "--client", "10.0.0.1"], 3);
    server.stop();
}

#[test]
fn disks_that_hold_something_are_erased_only_by_force() {
    let place = Place::new();
    let mut server = place.serve();
    let create = |name: &str| {
        ["aggr", "create", name, "--disks", "d1,d2,d3", "--raid", "raid4"].map(str::to_owned)
    };
    let run = |words: &[String]| words.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
    let words = run(&create("a1"));
    let words: Vec<&str> = words.split(' ').collect();
    let mut data = std::fs::read(place.disk(2)).unwrap();
    data[100_000] = 1;
    std::fs::write(place.disk(2), data).unwrap();
    let error = place.refused(&words, 4);
    assert!(error.contains("d2.img holds") && error.contains("--force"), "{error}");
    assert_eq!(place.json(&["aggr", "list"])["num_records"], 0);
    place.ok(&[&words[..], &["--force", "--yes"]].concat());
    for _ in 0..2 {
        place.ok(&["aggr", "show", "a1"]);
        server.stop();
        server = place.serve();
    }
    server.stop();
}

#[test]
fn snapshots_keep_what_was_and_bring_it_back() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let directory = client.make_directory(&root, "work").unwrap();
    let model = fill(&mut client, &directory, 1);
    place.ok(&["snapshot", "create", "home@before"]);
    let file = client.lookup(&directory, "large").unwrap();
    client.write(&file, 0, &content(77, 100_000), true).unwrap();
    for name in client.list(&directory).unwrap().iter().filter(|name| *name != "large") {
        client.remove(&directory, name).unwrap();
    }
    place.ok(&["snapshot", "create", "home@after"]);

    let snapshots = client.lookup(&root, ".snapshot").unwrap();
    assert_eq!(client.list(&snapshots).unwrap(), ["after", "before"]);
    let kept = client.lookup(&snapshots, "before").unwrap();
    let kept = client.lookup(&kept, "work").unwrap();
    check(&mut client, &kept, &model);
    assert_eq!(client.create(&kept, "new").unwrap_err().status(), Some(READ_ONLY));
    server.kill();

    let server = place.serve();
    let (mut client, root) = connect(&place);
    check(&mut client, &kept, &model);
    let error = place.refused(&["snapshot", "restore", "home@before", "--yes"], 4);
    assert!(error.contains("after"), "{error}");
    place.ok(&["snapshot", "restore", "home@before", "--yes", "--discard-newer"]);
    check(&mut client, &directory, &model);
    let list = place.json(&["snapshot", "list", "home"]);
    assert_eq!(list["num_records"], 1);
    assert_eq!(list["records"][0]["name"], "before");
    place.ok(&["snapshot", "delete", "home@before", "--yes"]);
    let snapshots = client.lookup(&root, ".snapshot").unwrap();
    assert!(client.list(&snapshots).unwrap().is_empty());
    server.kill();

    let server = place.serve();
    let (mut client, _) = connect(&place);
    check(&mut client, &directory, &model);
    server.stop();
}

#[test]
fn export_rules_hold_from_the_next_call_on_and_over_restarts() {
    let (place, server) = Place::with_volume();
    place.ok(&["volume", "create", "quiet", "--size", "20M"]);
    let (mut client, root) = connect(&place);
    client.create(&root, "file").unwrap();
    assert_eq!(client.mount("/quiet").unwrap_err().status(), Some(ACCESS));
    place.ok(&["export", "remove", "home", "--client", "127.0.0.1"]);
    assert!(client.lookup(&root, "file").is_err());
    let add = ["export", "add", "home", "--client", "127.0.0.0/8", "--access", "ro"];
    place.ok(&[&add[..], &["--insecure-ports"]].concat());
    let file = client.lookup(&root, "file").unwrap();
    assert_eq!(client.write(&file, 0, b"text", true).unwrap_err().status(), Some(READ_ONLY));
    place.refused(&["export", "add", "home", "--client", "127.0.0.0/8"], 4);
    server.kill();

    let server = place.serve();
    let (mut client, root) = connect(&place);
    assert!(client.create(&root, "other").is_err());
    assert!(client.mount("/quiet").is_err());
    let rules = place.json(&["export", "list", "home"]);
    assert!(rules.to_string().contains("127.0.0.0/8"), "{rules}");
    server.stop();
}

#[test]
fn a_deleted_volume_is_gone_and_its_space_comes_back() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    fill(&mut client, &root, 1);
    place.ok(&["volume", "delete", "home", "--queue-for", "0s", "--yes"]);
    let status = client.list(&root).unwrap_err().status();
    assert!(status == Some(STALE) || status == Some(ACCESS), "{status:?}");
    let mut other = NfsClient::connect(place.nfs_address()).unwrap();
    let status = other.mount("/home").unwrap_err().status();
    assert!(status == Some(NOT_FOUND) || status == Some(ACCESS), "{status:?}");
    place.ok(&[
        "volume",
        "create",
        "home",
        "--size",
        "50M",
        "--export",
        "127.0.0.1:rw:none:insecure",
    ]);
    server.kill();
    let server = place.serve();
    let (mut client, root) = connect(&place);
    assert!(client.list(&root).unwrap().is_empty());
    fill(&mut client, &root, 2);
    server.stop();
}

#[test]
fn a_volume_that_was_deleted_comes_back_with_its_files_and_its_clients_go_on() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    place.ok(&["snapshot", "create", "home@one"]);
    let told = place.ok(&["volume", "delete", "home", "--yes"]);
    assert!(told.contains("kept for 12h") && told.contains("volume undelete home"), "{told}");
    let status = client.list(&root).unwrap_err().status();
    assert!(status == Some(STALE) || status == Some(ACCESS), "{status:?}");
    server.kill();
    let server = place.serve();
    // Its name is free, and it is found by that all the same.
    place.ok(&["volume", "create", "home", "--size", "50M"]);
    assert_eq!(place.json(&["volume", "list"])["num_records"], 1);
    let kept = place.json(&["volume", "list", "--deleted"])["records"][0].clone();
    assert_eq!((&kept["former_name"], &kept["snapshots"]), (&"home".into(), &1.into()));
    let shown = place.json(&["aggr", "show", "a1"]);
    assert_eq!((&shown["volumes"], &shown["deleted_volumes"]), (&1.into(), &1.into()));
    assert_eq!(shown["deleted_bytes"], kept["held_bytes"]);
    place.refused(&["volume", "undelete", "home"], 4);
    place.refused(&["volume", "show", kept["name"].as_str().unwrap()], 2);
    place.ok(&["volume", "delete", "home", "--queue-for", "0s", "--yes"]);
    place.ok(&["volume", "undelete", "home"]);
    let (mut client, found) = connect(&place);
    assert_eq!(found, root, "its handles are good again");
    check(&mut client, &root, &model);
    assert_eq!(place.json(&["snapshot", "list"])["num_records"], 1);
    place.ok(&["volume", "delete", "home", "--yes"]);
    place.ok(&["volume", "purge", "home", "--yes"]);
    assert_eq!(place.json(&["volume", "list", "--deleted"])["num_records"], 0);
    place.refused(&["volume", "undelete", "home"], 3);
    server.stop();
}

#[test]
fn a_traditional_volume_is_an_aggregate_of_its_own() {
    let place = Place::new();
    let server = place.serve();
    place.ok(&["aggr", "create", "home", "--disks", "4", "--raid", "raid4", "--traditional"]);
    place.refused(&["volume", "create", "x", "--size", "50M"], 4);
    place.refused(&["volume", "delete", "home", "--yes"], 4);
    let rule = ["--client", "127.0.0.1", "--access", "rw", "--squash", "none"];
    place.ok(&[&["export", "add", "home"], &rule[..], &["--insecure-ports"]].concat());
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    server.kill();
    let server = place.serve();
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    server.stop();
}

#[test]
fn handles_of_snapshots_follow_the_rules_of_their_volume() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    client.create(&root, "file").unwrap();
    place.ok(&["snapshot", "create", "home@before"]);
    let snapshots = client.lookup(&root, ".snapshot").unwrap();
    let kept = client.lookup(&snapshots, "before").unwrap();
    let file = client.lookup(&kept, "file").unwrap();
    assert_eq!(client.list(&kept).unwrap(), ["file"]);

    place.ok(&["export", "remove", "home", "--client", "127.0.0.1"]);
    assert!(client.read(&file).is_err(), "no rule, no snapshot");
    let rule = ["export", "add", "home", "--client", "*", "--access", "rw", "--squash", "none"];
    let options = ["--insecure-ports", "--hide-snapshots", "--anon-uid", "99"];
    place.ok(&[&rule[..], &options].concat());
    assert_eq!(client.list(&root).unwrap(), ["file"]);
    assert_eq!(client.lookup(&root, ".snapshot").unwrap_err().status(), Some(2));
    assert_eq!(client.list(&kept).unwrap_err().status(), Some(ACCESS));
    assert_eq!(client.mount("/home/.snapshot/before").unwrap_err().status(), Some(2));
    server.kill();

    let server = place.serve();
    let held = place.json(&["export", "list", "home"]);
    let held = &held["records"][0]["rules"][0];
    assert_eq!((&held["client"], &held["hide_snapshots"]), (&"*".into(), &true.into()));
    assert_eq!((&held["anonymous_uid"], &held["anonymous_gid"]), (&99.into(), &65534.into()));
    let (mut client, root) = connect(&place);
    assert_eq!(client.list(&kept).unwrap_err().status(), Some(ACCESS));
    place.ok(&["export", "remove", "home", "--client", "*"]);
    place.ok(&rule);
    assert!(client.list(&root).is_err(), "the port is one that anybody may use");
    server.stop();
}

#[test]
fn the_write_verifier_changes_with_each_start_and_only_then() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let file = client.create(&root, "file").unwrap();
    let verifier = client.write(&file, 0, b"text", false).unwrap();
    // A consistency point, and another connection.
    place.ok(&["snapshot", "create", "home@before"]);
    assert_eq!(client.commit(&file).unwrap(), verifier);
    let (mut other, _) = connect(&place);
    assert_eq!(other.write(&file, 9, b"more", true).unwrap(), verifier);
    server.kill();
    let server = place.serve();
    let (mut client, _) = connect(&place);
    assert_ne!(client.commit(&file).unwrap(), verifier);
    server.stop();
}
