//! Journals that are lost: after a clean stop, after a crash, and while the server runs.

use crate::files::{Model, check, connect, fill};
use crate::place::{Place, text};
use std::fs;
use std::path::PathBuf;

fn journal(place: &Place) -> PathBuf {
    let mut files = fs::read_dir(place.path("state/journal")).unwrap();
    files.next().unwrap().unwrap().path()
}

fn check_all(place: &Place, model: &Model) {
    let (mut client, root) = connect(place);
    check(&mut client, &root, model);
}

/// It is not needed any more, so its loss costs nothing. The aggregate stayed out of service for
/// good.
#[test]
fn regression_a_journal_that_is_lost_after_a_clean_stop_is_made_anew() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    let journal = journal(&place);
    server.stop();
    fs::remove_file(&journal).unwrap();
    let server = place.serve();
    assert!(place.check_codes().is_empty());
    check_all(&place, &model);
    assert!(journal.exists());
    server.kill();
    // The new one is used.
    let server = place.serve();
    check_all(&place, &model);
    server.stop();
}

/// What was acknowledged since the last consistency point may be only there: an administrator who
/// says that it may be lost gets the rest.
#[test]
fn regression_an_aggregate_is_brought_online_without_a_journal_that_is_lost() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    // A consistency point has it all.
    place.ok(&["snapshot", "create", "home@before"]);
    let journal = journal(&place);
    let error = place.refused(&["aggr", "online", "a1"], 4);
    assert!(error.contains("it is in service"), "{error}");
    server.kill();
    fs::remove_file(&journal).unwrap();
    let server = place.serve();
    let status = text(&place.stroop(&["status"]).stdout);
    assert!(status.contains("is missing") && status.contains("acknowledged since 20"), "{status}");
    assert!(status.contains("stroop aggr online a1 --without-journal"), "{status}");
    let volumes = place.ok(&["volume", "list"]);
    assert!(volumes.contains("not the volumes of a1"), "{volumes}");
    let error = place.refused(&["aggr", "online", "a1"], 1);
    assert!(error.contains("is missing") && !journal.exists(), "{error}");
    let online = ["aggr", "online", "a1", "--without-journal"];
    let plan = place.ok(&[&online[..], &["--dry-run"]].concat());
    assert!(plan.contains("is lost") && plan.contains("nothing was changed"), "{plan}");
    let error = place.refused(&online, 2);
    assert!(error.contains("--yes"), "{error}");
    assert_eq!(place.check_codes(), ["AGGR_OFFLINE"]);
    let told = place.ok(&[&online[..], &["--yes"]].concat());
    assert!(told.contains("a1: online") && told.contains("scrub"), "{told}");
    let scrub = || place.json(&["scrub", "status", "a1"]);
    while scrub()["state"] != "finished" {}
    assert_eq!(scrub()["damaged_blocks"], 0);
    check_all(&place, &model);
    server.stop();
    let server = place.serve();
    assert!(place.check_codes().is_empty());
    server.stop();
}

/// The journal is back before anybody does without it: nothing is lost, and nothing is asked.
#[test]
fn an_aggregate_is_opened_when_its_journal_is_back() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    let (journal, away) = (journal(&place), place.path("away"));
    server.kill();
    fs::rename(&journal, &away).unwrap();
    // A file that is no journal is nobody's to write over.
    fs::write(&journal, "").unwrap();
    let server = place.serve();
    assert_eq!(place.check_codes(), ["AGGR_OFFLINE"]);
    let status = text(&place.stroop(&["status"]).stdout);
    assert!(status.contains("move away what is in its place"), "{status}");
    let error = place.refused(&["aggr", "online", "a1", "--without-journal", "--yes"], 4);
    assert!(error.contains("not known to be lost"), "{error}");
    fs::remove_file(&journal).unwrap();
    let error = place.refused(&["aggr", "online", "a1"], 1);
    assert!(error.contains("is missing"), "{error}");
    fs::rename(&away, &journal).unwrap();
    let error = place.refused(&["aggr", "online", "b1"], 3);
    assert!(error.contains("b1"), "{error}");
    let told = place.ok(&["aggr", "online", "a1", "--without-journal", "--yes"]);
    assert!(told.contains("nothing is lost"), "{told}");
    check_all(&place, &model);
    server.stop();
}

/// Nobody writes, so nothing would notice that the journal is gone.
#[test]
fn regression_a_journal_that_is_gone_is_a_health_error_without_a_write() {
    let (place, server) = Place::with_volume();
    let (journal, away) = (journal(&place), place.path("away"));
    fs::rename(&journal, &away).unwrap();
    while place.check_codes() != ["JOURNAL_FAILED"] {}
    let status = text(&place.stroop(&["status"]).stdout);
    assert!(status.contains("bring journal file"), "{status}");
    drop(server);
}

/// The configuration names two places: either may fail, and the server goes on.
#[test]
fn a_journal_in_two_places_survives_the_loss_of_one() {
    let (place, server) = Place::with_volume();
    let (first, other) = (journal(&place), place.path("other"));
    server.stop();
    let config = fs::read_to_string(place.path("stroop.toml")).unwrap();
    let places = [first.parent().unwrap(), &other].map(|place| format!("file:{}", place.display()));
    let config = config.replacen("[node]\n", &format!("[node]\njournal = {places:?}\n"), 1);
    fs::write(place.path("stroop.toml"), config).unwrap();
    let server = place.serve();
    let states = || {
        let shown = place.json(&["aggr", "show", "a1"]);
        let copies = shown["journal_copies"].as_array().unwrap().clone();
        let state = |copy: &serde_json::Value| copy["state"].as_str().unwrap().to_owned();
        copies.iter().map(state).collect::<Vec<_>>()
    };
    while states() != ["whole", "whole"] {}
    // A copy is gone, and a directory keeps it from being made anew.
    let away = place.path("away");
    fs::rename(&first, &away).unwrap();
    fs::create_dir(&first).unwrap();
    while place.check_codes() != ["JOURNAL_DEGRADED"] {}
    let status = text(&place.stroop(&["status"]).stdout);
    let told = "1 of 2 copies, and everything is acknowledged";
    assert!(status.contains(told) && status.contains("taken back within seconds"), "{status}");
    let (mut client, root) = connect(&place);
    let more = fill(&mut client, &root, 2);
    fs::remove_dir(&first).unwrap();
    fs::rename(&away, &first).unwrap();
    while states() != ["whole", "whole"] {}
    assert!(place.check_codes().is_empty());
    server.kill();
    // What was acknowledged is in either copy.
    let copy = other.join(first.file_name().unwrap());
    fs::remove_file(&copy).unwrap();
    let server = place.serve();
    check_all(&place, &more);
    while states() != ["whole", "whole"] {}
    assert!(copy.exists());
    server.stop();
}

/// Without a place for journals in the configuration the disks alone are the aggregate.
#[test]
fn a_journal_on_the_disks_survives_as_many_of_them_as_the_raid_kind_tolerates() {
    let (place, server) = Place::with_volume_on("4x256M", ("4", "dp"));
    let shown = place.json(&["aggr", "show", "a1"]);
    let copies = shown["journal_copies"].as_array().unwrap();
    let is_on_disk = |copy: &serde_json::Value| copy["name"].as_str().unwrap().starts_with('d');
    assert!(copies.len() == 3 && copies.iter().all(is_on_disk), "{copies:?}");
    assert!(fs::read_dir(place.path("state/journal")).is_err(), "no other place is made");
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    drop(client);
    server.kill();
    for number in [1, 2] {
        fs::rename(place.disk(number), place.path(&format!("away-{number}"))).unwrap();
    }
    let server = place.serve();
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    assert_eq!(place.json(&["aggr", "show", "a1"])["journal_copies"].as_array().unwrap().len(), 2);
    drop(client);
    place.ok(&["volume", "delete", "home", "--queue-for", "0s", "--yes"]);
    let plan = place.ok(&["aggr", "delete", "a1", "--force", "--dry-run"]);
    assert!(!plan.contains("journal"), "it goes with the disks: {plan}");
    server.stop();
}
