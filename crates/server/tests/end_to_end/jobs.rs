//! Jobs of the real binary: a number, progress, and what of both outlives a restart.

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
    server.kill();
    let server = place.serve();
    let after = job(&place, 1);
    assert_eq!((&after["state"], &after["began"]), (&"running".into(), &begun["began"]));
    assert!(after["done_bytes"].as_u64().unwrap() >= 16 << 20, "{after}");
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
