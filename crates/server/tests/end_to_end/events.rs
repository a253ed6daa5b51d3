//! Events of the real binary: what happens to disks, journals and jobs is listed, is in the log,
//! and outlives restarts.

use crate::faults::rot;
use crate::files::{check, connect, fill};
use crate::place::{Place, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

/// The events, oldest first.
fn events(place: &Place) -> Vec<Value> {
    place.json(&["event", "list"])["records"].as_array().unwrap().clone()
}

/// The last event of a code, as soon as there is one.
fn event(place: &Place, code: &str) -> Value {
    loop {
        let found = events(place).into_iter().rfind(|event| event["code"] == code);
        if let Some(event) = found {
            return event;
        }
    }
}

fn words<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}

/// The last event of a code, which is about this disk and so bad.
fn expect(place: &Place, (code, disk, severity): (&str, &str, &str)) -> Value {
    let event = event(place, code);
    assert!(words(&event, "object").ends_with(disk), "{event}");
    assert_eq!(words(&event, "severity"), severity, "{event}");
    event
}

/// A disk leaves and returns, another fails and a spare takes its place, one is replaced, all is
/// scrubbed; the server is stopped, and killed.
#[test]
fn what_happens_to_disks_is_told_and_outlives_restarts() {
    let (place, mut server) = Place::with_volume_on("6x64M", ("4", "raid4"));
    place.ok(&["disk", "spare", "add", "d5"]);
    let started = event(&place, "SERVER_STARTED");
    assert_eq!((&started["severity"], &started["sequence"]), (&"info".into(), &1.into()));
    fs::rename(place.disk(2), place.path("away")).unwrap();
    let _ = place.stroop(&["snapshot", "create", "home@one"]);
    let missing = expect(&place, ("DISK_MISSING", "d2", "warning"));
    assert!(words(&missing, "cause").contains("0 more disks may fail"), "{missing}");
    assert!(words(&missing, "next").contains("stroop disk replace"), "{missing}");
    expect(&place, ("AGGR_DEGRADED", "a1", "warning"));
    fs::rename(place.path("away"), place.disk(2)).unwrap();
    expect(&place, ("DISK_RETURNED", "d2", "info"));
    expect(&place, ("AGGR_DEGRADED_CLEARED", "a1", "info"));
    place.ok(&["disk", "fail", "d3", "--yes"]);
    expect(&place, ("DISK_FAILED", "d3", "warning"));
    expect(&place, ("SPARE_TAKEN", "d5", "warning"));
    expect(&place, ("DISK_REPLACED", "d3", "info"));
    while !place.check_codes().is_empty() {}
    place.ok(&["disk", "replace", "d4", "d6"]);
    expect(&place, ("REPLACEMENT_STARTED", "d6", "info"));
    expect(&place, ("REPLACEMENT_ENDED", "d6", "info"));
    expect(&place, ("DISK_REPLACED", "d4", "info"));
    place.ok(&["scrub", "start", "a1"]);
    let scrubbed = expect(&place, ("SCRUB_ENDED", "a1", "info"));
    assert!(words(&scrubbed, "cause").contains("0 could not be repaired"), "{scrubbed}");
    let before = events(&place);
    server.signal("TERM");
    let (_, log) = server.end();
    // The same, in the log.
    for code in ["DISK_MISSING: ", "DISK_RETURNED: ", "SPARE_TAKEN: ", "SCRUB_ENDED: "] {
        assert_eq!(log.lines().filter(|line| line.contains(code)).count(), 1, "{code}: {log}");
    }
    let server = place.serve();
    let after = events(&place);
    assert_eq!(after[..before.len()], before);
    let codes: Vec<&str> = after[before.len()..].iter().map(|event| words(event, "code")).collect();
    assert_eq!(codes[..3], ["SERVER_STOPPED", "SERVER_STARTED", "AGGR_OPENED"]);
    server.kill();
    let server = place.serve();
    let started = expect(&place, ("SERVER_STARTED", "server", "warning"));
    assert!(words(&started, "cause").contains("it was killed"), "{started}");
    let last = place.json(&["event", "list", "--most", "1"])["records"][0].clone();
    assert_eq!(last, events(&place).pop().unwrap());
    server.stop();
}

/// A disk that left while the server was down is told once, and not again at the next start.
#[test]
fn a_disk_that_left_while_the_server_was_down_is_told_once() {
    let (place, server) = Place::with_volume();
    server.stop();
    fs::rename(place.disk(3), place.path("away")).unwrap();
    for _ in 0..2 {
        let server = place.serve();
        expect(&place, ("DISK_MISSING", "d3", "warning"));
        server.stop();
    }
    fs::rename(place.path("away"), place.disk(3)).unwrap();
    let server = place.serve();
    expect(&place, ("DISK_RETURNED", "d3", "info"));
    let told = events(&place);
    let told = told.iter().filter(|event| words(event, "code") == "DISK_MISSING");
    assert_eq!(told.count(), 1);
    server.stop();
}

#[test]
fn an_outage_and_lost_journals_are_told() {
    let (place, server) = Place::with_volume();
    for number in [1, 3] {
        fs::rename(place.disk(number), place.path(&format!("away-{number}"))).unwrap();
    }
    let _ = place.stroop(&["snapshot", "create", "home@one"]);
    expect(&place, ("AGGR_OFFLINE", "a1", "error"));
    for number in [1, 3] {
        fs::rename(place.path(&format!("away-{number}")), place.disk(number)).unwrap();
    }
    expect(&place, ("AGGR_OFFLINE_CLEARED", "a1", "info"));
    while !place.check_codes().is_empty() {}
    server.stop();
    let journal = || {
        let mut files = fs::read_dir(place.path("state/journal")).unwrap();
        files.next().unwrap().unwrap().path()
    };
    fs::remove_file(journal()).unwrap();
    let server = place.serve();
    expect(&place, ("JOURNAL_REPLACED", "a1", "warning"));
    assert!(place.check_codes().is_empty());
    fs::remove_file(journal()).unwrap();
    expect(&place, ("JOURNAL_FAILED", "a1", "error"));
    server.kill();
    for number in 1..=4 {
        fs::remove_file(place.disk(number)).unwrap();
    }
    let server = place.serve();
    expect(&place, ("AGGR_NOT_FOUND", "a1", "warning"));
    server.stop();
}

#[test]
fn a_disk_that_rots_is_told() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    server.stop();
    assert!(rot(&place.disk(2), |index| index * 37) > 100);
    let server = place.serve();
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    let errors = expect(&place, ("DISK_ERRORS", "d2", "warning"));
    assert!(words(&errors, "cause").contains("were made good from parity"), "{errors}");
    expect(&place, ("DISK_SICK", "d2", "warning"));
    place.ok(&["scrub", "start", "a1"]);
    let scrubbed = expect(&place, ("SCRUB_ENDED", "a1", "warning"));
    assert!(words(&scrubbed, "next").contains("stroop scrub status a1"), "{scrubbed}");
    place.ok(&["disk", "clear", "d2"]);
    expect(&place, ("DISK_SICK_CLEARED", "d2", "info"));
    server.stop();
}

/// What is damaged of the file is lost, and nothing else; the server starts.
#[test]
fn a_file_of_events_that_is_damaged_costs_what_is_damaged() {
    let (place, server) = Place::with_volume();
    place.ok(&["disk", "fail", "d1", "--yes"]);
    let failed = event(&place, "DISK_FAILED");
    server.stop();
    let path = place.path("state/events");
    let content = fs::read_to_string(&path).unwrap();
    let torn = content.replacen("SERVER_STARTED", "SERVER_STARTEX", 1);
    let torn = torn.split_at(torn.len() - 20).0;
    fs::write(&path, torn).unwrap();
    let server = place.serve();
    let left = events(&place);
    assert!(left.contains(&failed), "{left:?}");
    let damaged = event(&place, "EVENTS_DAMAGED");
    assert!(words(&damaged, "cause").starts_with("2 entries"), "{damaged}");
    assert!(left[0]["sequence"] == 2, "the first is lost: {left:?}");
    let sequences: Vec<u64> =
        left.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    assert!(sequences.is_sorted_by(|one, next| one < next), "{sequences:?}");
    server.stop();
    let kept = fs::read_to_string(place.path("state/events.damaged")).unwrap();
    assert!(kept.contains("SERVER_STARTEX"), "{kept}");
    fs::write(&path, [0xff, 0, b'\n', 7]).unwrap();
    let server = place.serve();
    let damaged = event(&place, "EVENTS_DAMAGED");
    assert!(damaged["sequence"].as_u64().unwrap() > 1_000_000_000, "{damaged}");
    assert_eq!(fs::read(place.path("state/events.damaged")).unwrap(), [0xff, 0, b'\n', 7]);
    server.stop();
    // A file of nothing was something once, and so is one of jobs.
    fs::write(&path, "").unwrap();
    fs::write(place.path("state/jobs"), "").unwrap();
    let server = place.serve();
    assert!(words(&event(&place, "EVENTS_DAMAGED"), "cause").contains("is empty"));
    let jobs = event(&place, "JOBS_DAMAGED");
    assert!(words(&jobs, "cause").contains("state/jobs.damaged"), "{jobs}");
    server.stop();
}

#[test]
fn events_are_followed_as_they_come() {
    let (place, server) = Place::with_volume();
    let mut command = place.command();
    command.args(["event", "tail", "-f", "-o", "json"]).stdout(Stdio::piped());
    let mut tail = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["code"], "SERVER_STARTED");
    place.ok(&["disk", "fail", "d1", "--yes"]);
    let is_it = |line: std::io::Result<String>| line.unwrap().contains("\"DISK_FAILED\"");
    assert!(lines.by_ref().any(is_it));
    server.stop();
    // The stop was the last event, or the server had gone.
    let output = tail.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    assert!(text(&output.stderr).contains("event tail -f --after "), "{output:?}");
}
