//! Jobs of the real binary: a number, progress, and what of both outlives a restart.

use crate::files::{check, connect, content, fill};
use crate::place::Place;
use serde_json::Value;

/// The jobs, in order of number.
fn jobs(place: &Place) -> Vec<Value> {
    place.json(&["job", "list"])["records"].as_array().unwrap().clone()
}

fn job(place: &Place, number: u64) -> Value {
    place.json(&["job", "show", &number.to_string()])
}

/// A scrub keeps its number when the server is killed and started; when it is over it is listed
/// still, and the next has another number.
#[test]
fn a_scrub_is_one_job_over_restarts() {
    let (place, server) = Place::with_volume();
    assert_eq!(jobs(&place), [] as [Value; 0]);
    place.refused(&["job", "show", "1"], 3);
    place.ok(&["scrub", "start", "a1", "--rate", "16M"]);
    let begun = job(&place, 1);
    assert_eq!((&begun["kind"], &begun["state"]), (&"scrub".into(), &"running".into()));
    while job(&place, 1)["done_bytes"].as_u64().unwrap() < 20 << 20 {}
    // An order is answered when the labels say it, and how far the scrub is.
    place.ok(&["scrub", "pause", "a1"]);
    place.ok(&["scrub", "resume", "a1", "--rate", "16M"]);
    server.kill();
    let server = place.serve();
    let after = job(&place, 1);
    assert_eq!((&after["state"], &after["began"]), (&"running".into(), &begun["began"]));
    assert!(after["done_bytes"].as_u64().unwrap() >= 20 << 20, "{after}");
    place.ok(&["scrub", "resume", "a1", "--rate", "10G"]);
    while job(&place, 1)["state"] == "running" {}
    let ended = job(&place, 1);
    assert_eq!((&ended["state"], &ended["reason"]), (&"succeeded".into(), &Value::Null));
    assert_eq!(ended["done_bytes"], ended["size_bytes"]);
    server.stop();
    let server = place.serve();
    assert_eq!(jobs(&place), [ended]);
    place.ok(&["scrub", "start", "a1", "--rate", "1M"]);
    place.ok(&["scrub", "stop", "a1"]);
    assert_eq!(job(&place, 2)["state"], "cancelled");
    server.stop();
}

/// What the file of jobs says counts for nothing if it cannot be read; the server starts, and no
/// number is given again.
#[test]
fn a_list_of_jobs_that_cannot_be_read_costs_the_history_only() {
    let (place, server) = Place::with_volume();
    place.ok(&["scrub", "start", "a1"]);
    server.stop();
    std::fs::write(place.path("state/jobs"), "stroop-jobs 99\nnext 2\n").unwrap();
    let server = place.serve();
    let jobs = jobs(&place);
    assert_eq!(jobs.len(), 1, "the engine tells of the scrub: {jobs:?}");
    assert!(jobs[0]["job"].as_u64().unwrap() > 1_000_000_000, "{jobs:?}");
    server.stop();
}

/// A list that cannot be written is told while that is so; then it has all that happened meanwhile.
#[test]
fn a_list_of_jobs_that_cannot_be_written_is_told() {
    let (place, server) = Place::with_volume();
    // The new list is written here before it takes the place of the old one.
    std::fs::create_dir(place.path("state/jobs.new")).unwrap();
    place.ok(&["scrub", "start", "a1", "--wait", "1m"]);
    while place.check_codes() != ["STATE_UNWRITTEN"] {}
    let told = place.json(&["status"])["checks"][0].clone();
    assert_eq!(told["object"], "list of jobs", "{told}");
    std::fs::remove_dir(place.path("state/jobs.new")).unwrap();
    while !place.check_codes().is_empty() {}
    let ended = job(&place, 1);
    server.kill();
    let server = place.serve();
    assert_eq!(jobs(&place), [ended]);
    server.stop();
}

/// Begins to replace a disk that works, and pauses the job before it is over: its number.
fn pause_a_replacement(place: &Place) -> u64 {
    let (mut old, mut new) = ("d4", "d5");
    loop {
        place.ok(&["disk", "replace", old, new, "--force"]);
        let begun = jobs(place).pop().unwrap();
        assert_eq!(begun["kind"], "replacement", "{begun}");
        let number = begun["job"].as_u64().unwrap();
        if place.stroop(&["job", "pause", &number.to_string()]).status.success() {
            return number;
        }
        // It was done in a moment. The other way round, then.
        place.ok(&["job", "wait", &number.to_string()]);
        (old, new) = (new, old);
    }
}

/// Through a kill and a clean stop; then it goes on, ends, and is listed after another start.
#[test]
fn a_job_that_is_paused_stays_so_over_restarts() {
    let (place, server) = Place::with_volume_on("5x256M", ("4", "raid4"));
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    let number = pause_a_replacement(&place);
    let word = number.to_string();
    let check_paused = || {
        let paused = job(&place, number);
        assert_eq!(paused["state"], "paused", "{paused}");
        assert!(paused["done_bytes"].as_u64() < paused["size_bytes"].as_u64(), "{paused}");
    };
    check_paused();
    assert!(place.refused(&["job", "wait", &word], 4).contains("it is paused"));
    assert!(place.refused(&["job", "pause", &word], 4).contains("job resume"));
    let refused = place.refused(&["job", "cancel", &word], 4);
    assert!(refused.contains("the labels name both disks"), "{refused}");
    server.kill();
    let server = place.serve();
    check_paused();
    server.stop();
    let server = place.serve();
    // Maybe not as far: what a start fills before its first look is in no label.
    check_paused();
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    place.ok(&["job", "resume", &word]);
    let told = place.ok(&["job", "wait", &word]);
    assert!(told.contains("state       succeeded"), "{told}");
    let ended = job(&place, number);
    assert!(place.refused(&["job", "resume", &word], 4).contains("it is over"));
    server.stop();
    let server = place.serve();
    assert_eq!(job(&place, number), ended);
    assert_eq!(place.json(&["aggr", "show", "a1"])["state"], "online");
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    server.stop();
}

/// A scrub, which the labels keep, is paused, resumed and cancelled under its number; a group that
/// leaves is a job, too.
#[test]
fn jobs_are_changed_by_number() {
    let (place, server) = Place::with_volume_on("6x64M", ("3", "raid4"));
    place.ok(&["aggr", "add", "a1", "--disks", "3", "--raid", "raid4"]);
    place.ok(&["scrub", "start", "a1", "--rate", "1M"]);
    place.ok(&["job", "pause", "1"]);
    assert_eq!(place.json(&["scrub", "status", "a1"])["state"], "paused");
    place.ok(&["scrub", "resume", "a1"]);
    assert_eq!(job(&place, 1)["state"], "running");
    let told = place.refused(&["job", "wait", "1", "--wait", "0s"], 7);
    assert!(told.contains("it goes on: running"), "{told}");
    assert_eq!(place.json(&["job", "cancel", "1"])["state"], "cancelled");
    assert!(place.refused(&["job", "wait", "1"], 1).contains("was cancelled"));
    place.ok(&["aggr", "remove-group", "a1", "1", "--yes"]);
    let leaves = jobs(&place).pop().unwrap();
    assert_eq!((&leaves["kind"], &leaves["target"]), (&"evacuation".into(), &"group 1".into()));
    let told = place.ok(&["job", "watch", "2"]);
    assert!(told.ends_with("job 2: evacuation of group 1 in a1, succeeded\n"), "{told}");
    assert_eq!(place.ok(&["job", "watch"]), "no job is under way\n");
    assert_eq!(place.json(&["aggr", "show", "a1"])["groups"], 1);
    server.stop();
}

/// A rebuild that would be over in seconds is slow as it was asked to be, through a kill and a
/// clean stop, until it is told otherwise.
#[test]
fn a_job_keeps_its_rate_over_restarts() {
    let (place, server) = Place::with_volume_on("5x512M", ("4", "raid4"));
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    place.ok(&["disk", "fail", "d4", "--yes"]);
    let refused = place.refused(&["disk", "replace", "d4", "d5", "--force", "--rate", "0"], 2);
    assert!(refused.contains("its rate is at least 1MiB a second"), "{refused}");
    place.ok(&["disk", "replace", "d4", "d5", "--force", "--rate", "1M"]);
    let begun = jobs(&place).pop().unwrap();
    assert_eq!(begun["kind"], "rebuild", "{begun}");
    let number = begun["job"].as_u64().unwrap().to_string();
    let check_rate = |rate: u64| {
        let found = jobs(&place).pop().unwrap();
        assert_eq!((&found["state"], &found["job"]), (&"running".into(), &begun["job"]), "{found}");
        assert_eq!(found["rate_limit_bytes_per_second"], rate, "{found}");
    };
    check_rate(1 << 20);
    server.kill();
    let server = place.serve();
    check_rate(1 << 20);
    let told = place.ok(&["job", "set", &number, "--rate", "2M"]);
    assert!(told.contains("at most 2MiB a second"), "{told}");
    let limited = std::fs::read_to_string(place.path("state/jobs")).unwrap();
    assert!(limited.starts_with("stroop-jobs 3\n"), "older builds must not read it: {limited}");
    server.stop();
    let server = place.serve();
    check_rate(2 << 20);
    assert!(place.ok(&["job", "list"]).contains(" 2MiB/s "));
    place.refused(&["job", "set", "99", "--rate", "none"], 3);
    assert!(place.ok(&["job", "set", &number, "--rate", "none"]).contains("no limit"));
    place.ok(&["job", "wait", &number]);
    let ended = place.json(&["job", "show", &number]);
    assert_eq!((&ended["state"], &ended["reason"]), (&"succeeded".into(), &Value::Null));
    assert_eq!(ended["rate_limit_bytes_per_second"], Value::Null, "{ended}");
    let text = std::fs::read_to_string(place.path("state/jobs")).unwrap();
    assert!(text.starts_with("stroop-jobs 2\n"), "older builds may read it: {text}");
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    server.stop();
}

/// A group that would have left in a second leaves as slowly as it was asked to, through a kill and
/// a clean stop, until it is told otherwise.
#[test]
fn a_group_that_leaves_keeps_its_rate_over_restarts() {
    let (place, server) = Place::with_volume_on("6x256M", ("3", "raid4"));
    place.ok(&["aggr", "add", "a1", "--disks", "3", "--raid", "raid4"]);
    let (mut client, root) = connect(&place);
    let data = content(1, 64 << 20);
    let file = client.create(&root, "file").unwrap();
    client.write(&file, 0, &data, false).unwrap();
    client.commit(&file).unwrap();
    place.ok(&["sync"]);
    let remove = ["aggr", "remove-group", "a1", "1", "--yes", "--rate"];
    let refused = place.refused(&[&remove[..], &["1K"]].concat(), 2);
    assert!(refused.contains("its rate is at least 1MiB a second"), "{refused}");
    place.ok(&[&remove[..], &["1M"]].concat());
    // The disks that were added may have had jobs of their own.
    let is_evacuation = |one: &Value| one["kind"] == "evacuation";
    let number = jobs(&place).into_iter().find(is_evacuation).unwrap()["job"].as_u64().unwrap();
    let typed = number.to_string();
    let check_rate = |rate: u64| {
        let found = job(&place, number);
        assert_eq!((&found["state"], &found["kind"]), (&"running".into(), &"evacuation".into()));
        assert_eq!(found["rate_limit_bytes_per_second"], rate, "{found}");
    };
    check_rate(1 << 20);
    server.kill();
    let server = place.serve();
    check_rate(1 << 20);
    let told = place.ok(&["job", "set", &typed, "--rate", "2M"]);
    assert!(told.contains("at most 2MiB a second"), "{told}");
    server.stop();
    let server = place.serve();
    check_rate(2 << 20);
    place.refused(&["job", "pause", &typed], 4);
    assert!(place.ok(&["job", "set", &typed, "--rate", "none"]).contains("no limit"));
    place.ok(&["job", "wait", &typed]);
    assert_eq!(place.json(&["aggr", "show", "a1"])["groups"], 1);
    let (mut client, root) = connect(&place);
    let file = client.lookup(&root, "file").unwrap();
    assert!(client.read(&file).unwrap() == data);
    server.stop();
}

/// A scrub has the same rate under its number and under its aggregate's name.
#[test]
fn the_rate_of_a_scrub_is_set_by_number() {
    let (place, server) = Place::with_volume();
    let rate = || {
        let scrub = place.json(&["scrub", "status", "a1"])["rate_bytes_per_second"].clone();
        assert_eq!(job(&place, 1)["rate_limit_bytes_per_second"], scrub);
        scrub
    };
    let begun = place.ok(&["scrub", "start", "a1", "--rate", "1M"]);
    assert!(begun.ends_with(" job wait 1\n"), "{begun}");
    assert_eq!(rate(), 1 << 20);
    place.ok(&["job", "pause", "1"]);
    place.ok(&["job", "set", "1", "--rate", "2M"]);
    assert_eq!((rate(), &job(&place, 1)["state"]), ((2 << 20).into(), &"paused".into()));
    place.ok(&["job", "resume", "1", "--rate", "3M"]);
    assert_eq!(rate(), 3 << 20);
    place.ok(&["job", "set", "1", "--rate", "none"]);
    place.ok(&["job", "wait", "1"]);
    server.stop();
}

/// Who asks for it waits for the job that he began, and hears by the exit status what came of it.
#[test]
fn a_command_waits_for_its_job() {
    let (place, server) = Place::with_volume_on("6x256M", ("4", "raid4"));
    let waited = |words: &[&str]| place.ok(&[words, &["--wait", "5m"]].concat());
    let told = waited(&["scrub", "start", "a1"]);
    assert!(told.ends_with("job 1: scrub of all disks in a1, succeeded\n"), "{told}");
    let told = waited(&["disk", "replace", "d4", "d5"]);
    assert!(told.contains("\njob 2: replacement of d5 in a1, succeeded\n"), "{told}");
    place.ok(&["disk", "fail", "d3", "--yes"]);
    let replace = ["disk", "replace", "d3", "d6", "--rate", "1M"];
    let error = place.refused(&[&replace[..], &["--wait", "0s"]].concat(), 7);
    assert!(error.contains("job '3' (timed out, exit 7)\n  it goes on"), "{error}");
    place.ok(&["job", "pause", "3"]);
    let told = waited(&["job", "resume", "3", "--rate", "none"]);
    assert!(told.contains("succeeded"), "{told}");
    server.stop();
}
