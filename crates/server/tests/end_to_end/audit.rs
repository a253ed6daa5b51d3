//! Who did what, and who was refused: the record of changes, and counters of refusals.

use crate::files::connect;
use crate::place::Place;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

fn records(place: &Place) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(place.path("state/audit.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_change_is_recorded_with_who_made_it_and_how_it_ended() {
    let (place, server) = Place::with_volume();
    place.ok(&["volume", "list"]);
    place.ok(&["volume", "create", "plan", "--size", "20M", "--dry-run"]);
    place.refused(&["volume", "create", "home", "--size", "20M"], 4);
    server.stop();
    let records = records(&place);
    let field = |name: &str| -> Vec<String> {
        records.iter().map(|record| record[name].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(field("command"), ["aggregate_create", "volume_create", "volume_create"]);
    assert_eq!(field("result"), ["ok", "ok", "conflict"]);
    let own = own_uid(&place);
    for record in &records {
        assert_eq!(record["uid"], own, "{record}");
        assert!(record["pid"].as_u64().unwrap() > 1, "{record}");
        assert!(record["duration_ns"].is_u64() && record["time"].is_string(), "{record}");
    }
    assert_eq!(records[1]["arguments"]["size_bytes"], 100 << 20);
    assert_eq!(records[0]["arguments"]["raid"], "raid4");
    let mode = fs::metadata(place.path("state/audit.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The user that this test, and so each command, runs as.
fn own_uid(place: &Place) -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(place.path("stroop.toml")).unwrap().uid()
}

#[test]
fn a_change_is_made_although_it_cannot_be_recorded_and_status_says_so() {
    let place = Place::new();
    let server = place.serve();
    let path = place.path("state/audit.jsonl");
    fs::create_dir(&path).unwrap();
    place.ok(&["aggr", "create", "a1", "--disks", "4", "--raid", "raid4"]);
    assert_eq!(place.check_codes(), ["AUDIT_FAILED"]);
    let status = place.json(&["status"]);
    assert_eq!(status["health"], "WARNING");
    let message = status["checks"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("only: 1"), "{message}");
    fs::remove_dir(&path).unwrap();
    place.ok(&["volume", "create", "home", "--size", "20M"]);
    assert!(place.check_codes().is_empty());
    let records = records(&place);
    assert_eq!(records[0]["lost_records"], 1);
    assert_eq!(records[1]["command"], "volume_create");
    server.stop();
}

#[test]
fn refused_mounts_and_denied_calls_are_counted_and_told_to_the_log() {
    let (place, server) = Place::with_volume();
    place.ok(&["volume", "create", "quiet", "--size", "20M"]);
    let (mut client, root) = connect(&place);
    for _ in 0..3 {
        client.mount("/quiet").unwrap_err();
    }
    place.ok(&["export", "remove", "home", "--client", "127.0.0.1"]);
    for _ in 0..2 {
        client.lookup(&root, "file").unwrap_err();
    }
    let metrics = place.ok(&["metrics"]);
    for line in ["stroop_nfs_refused_mounts_total 3", "stroop_nfs_denied_calls_total 2"] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    server.signal("TERM");
    let mut server = server;
    let (_, log) = server.end();
    let told = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    assert!((1..3).contains(&told("no export rule allows the mount")), "{log}");
    assert_eq!(told("no export rule allows the call"), 1, "{log}");
}
