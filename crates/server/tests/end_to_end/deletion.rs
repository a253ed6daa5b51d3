//! Aggregates of the real binary that are deleted: their disks are free, and nothing brings them
//! back.

use crate::files::{check, connect, fill};
use crate::mounts::{Mountpoint, can_mount};
use crate::place::Place;
use std::fs;

/// The state of a disk in the list, and its note.
fn disk(place: &Place, name: &str) -> (String, String) {
    let list = place.json(&["disk", "list"])["records"].as_array().unwrap().clone();
    let is_it = |disk: &serde_json::Value| {
        disk["path"].as_str().is_some_and(|path| path.ends_with(&format!("/{name}.img")))
    };
    let found = list.into_iter().find(|disk| is_it(disk));
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
    place.ok(&["volume", "delete", "home", "--queue-for", "0s", "--yes"]);
    let plan = place.ok(&["aggr", "delete", "a1", "--dry-run"]);
    assert!(plan.matches(" is free").count() == 4 && plan.contains("journal file"), "{plan}");
    let error = place.refused(&["aggr", "delete", "a1"], 2);
    assert!(error.contains("needs a confirmation"), "{error}");
    assert_eq!((disk(&place, "d1").0.as_str(), journals(&place)), ("in use", 1));
    place.ok(&["aggr", "delete", "a1", "--yes"]);
    assert_eq!((disk(&place, "d1").0.as_str(), journals(&place)), ("unused", 0));
    assert!(client.lookup(&root, "large").is_err(), "its handles are stale");
    place.ok(&["status", "--check"]);
    // It was told as lost, with the advice to attach its disks.
    let told = loop {
        // They are listed when the file of events has them.
        let events = place.ok(&["event", "list", "-o", "json"]);
        let is_told = |code: &&str| events.contains(*code);
        if let Some(code) = ["AGGR_NOT_FOUND", "AGGR_DELETED"].iter().find(|code| is_told(code)) {
            break *code;
        }
    };
    assert_eq!(told, "AGGR_DELETED");
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
    place.ok(&["volume", "delete", "home", "--queue-for", "0s", "--yes"]);
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

/// The mount stayed, dead, and was said to be well.
#[test]
fn regression_an_aggregate_that_failed_is_not_deleted_below_a_mount() {
    if !can_mount() {
        return;
    }
    let (place, server) = Place::with_volume();
    fs::create_dir(place.path("mnt")).unwrap();
    let mountpoint = Mountpoint::new(place.path("mnt"));
    place.ok(&["mount", "home", mountpoint.text()]);
    let journal = fs::read_dir(place.path("state/journal")).unwrap().next().unwrap().unwrap();
    fs::rename(journal.path(), place.path("away")).unwrap();
    // The look at the journals comes by itself.
    while place.check_codes() != ["AGGR_FAILED"] {
        let _ = fs::write(place.path("mnt/file"), "x");
        place.stroop(&["sync"]);
    }
    let delete = ["aggr", "delete", "a1", "--yes"];
    let error = place.refused(&[&delete[..], &["--force"]].concat(), 4);
    assert!(error.contains("its volume home is mounted at"), "{error}");
    place.ok(&["unmount", mountpoint.text()]);
    let error = place.refused(&delete, 4);
    assert!(error.contains("it is out of service, with volumes: home"), "{error}");
    let told = place.ok(&[&delete[..], &["--force"]].concat());
    assert!(told.contains("volume home, with all it holds"), "{told}");
    assert_eq!(disk(&place, "d4").0, "unused");
    server.stop();
}

/// The labels stayed: a second aggregate of the name was there at the next start, and could not be
/// deleted.
#[test]
fn regression_an_aggregate_that_cannot_be_made_leaves_no_labels() {
    let place = Place::new();
    let server = place.serve();
    fs::write(place.path("state/journal"), "no directory").unwrap();
    place.refused(&["aggr", "create", "b1", "--disks", "d1,d2,d3", "--raid", "raid4"], 1);
    assert!((1..=3).all(|number| disk(&place, &format!("d{number}")).0 == "unused"));
    fs::remove_file(place.path("state/journal")).unwrap();
    place.ok(&["aggr", "create", "b1", "--disks", "d2,d3,d4", "--raid", "raid4"]);
    server.stop();
    let server = place.serve();
    place.ok(&["status", "--check"]);
    server.stop();
}

/// Of two aggregates of one name the one out of service is deleted by force, and no other.
#[test]
fn regression_a_second_aggregate_of_a_name_is_deleted_by_force() {
    let place = Place::with_disks("6x64M", "1G");
    let server = place.serve();
    let create = |disks| place.ok(&["aggr", "create", "a1", "--disks", disks, "--raid", "raid4"]);
    create("d1,d2,d3");
    server.stop();
    let away = |number: usize| place.path(&format!("away-{number}"));
    (1..=3).for_each(|number| fs::rename(place.disk(number), away(number)).unwrap());
    let server = place.serve();
    create("d4,d5,d6");
    server.stop();
    (1..=3).for_each(|number| fs::rename(away(number), place.disk(number)).unwrap());
    let server = place.serve();
    assert_eq!(place.check_codes(), ["AGGR_OFFLINE"]);
    let error = place.refused(&["aggr", "delete", "a1", "--yes"], 4);
    assert!(error.contains("several aggregates") && error.contains("--force"), "{error}");
    let told = place.ok(&["aggr", "delete", "a1", "--force", "--yes"]);
    assert_eq!(told.matches(" is free").count(), 3, "{told}");
    let is_served = || {
        place.ok(&["status", "--check"]);
        assert_eq!(place.json(&["aggr", "show", "a1"])["state"], "online");
        let in_use = |number: &usize| disk(&place, &format!("d{number}")).0 == "in use";
        let served: Vec<usize> = (1..=6).filter(in_use).collect();
        assert!(served == [1, 2, 3] || served == [4, 5, 6], "{served:?}");
    };
    is_served();
    server.stop();
    let server = place.serve();
    is_served();
    server.stop();
}

/// The next deletion wrote over the list, and nothing but the log told of it.
#[test]
fn regression_a_list_of_deleted_aggregates_that_cannot_be_read_is_left_as_it_is() {
    let place = Place::new();
    let file = place.path("state/deleted-aggregates");
    fs::write(&file, "stroop-deleted-aggregates 2\n").unwrap();
    let server = place.serve();
    assert_eq!(place.check_codes(), ["DELETIONS_UNREADABLE"]);
    place.ok(&["aggr", "create", "a1", "--disks", "4", "--raid", "raid4"]);
    let error = place.refused(&["aggr", "delete", "a1", "--yes"], 4);
    assert!(error.contains("deleted-aggregates' cannot be read"), "{error}");
    server.stop();
    assert_eq!(fs::read_to_string(&file).unwrap(), "stroop-deleted-aggregates 2\n");
    fs::remove_file(&file).unwrap();
    let server = place.serve();
    place.ok(&["aggr", "delete", "a1", "--yes"]);
    server.stop();
}

/// A server that could not read the list served the aggregate, and the next one erased it.
#[test]
fn regression_an_aggregate_that_was_used_after_its_deletion_is_not_erased() {
    // Lines of earlier builds have the time only; others the number of the next consistency point.
    for (was_used, time, next_cp) in [
        (true, 7, String::new()),
        (false, i64::MAX, String::new()),
        (true, i64::MAX, " 1".to_owned()),
        (false, 7, format!(" {}", u64::MAX)),
    ] {
        let (place, server) = Place::with_volume();
        let (mut client, root) = connect(&place);
        let model = fill(&mut client, &root, 1);
        server.stop();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let labels: Vec<Vec<u8>> = (1..=4).map(|at| fs::read(place.disk(at)).unwrap()).collect();
        let disks: Vec<String> = labels.iter().map(|label| hex(&label[16..32])).collect();
        let (aggregate, disks) = (hex(&labels[0][32..48]), disks.join(","));
        let line = format!("{aggregate} {time} journal a1 {disks}{next_cp}");
        let list = format!("stroop-deleted-aggregates 1\n{line}\n");
        fs::write(place.path("state/deleted-aggregates"), list).unwrap();
        let server = place.serve();
        assert_eq!(disk(&place, "d1").0, if was_used { "foreign" } else { "unused" });
        assert_eq!(journals(&place), usize::from(was_used));
        assert!(place.json(&["aggr", "list"])["records"].as_array().unwrap().is_empty());
        if was_used {
            assert_eq!(place.check_codes(), ["DELETIONS_UNREADABLE"]);
            server.stop();
            fs::remove_file(place.path("state/deleted-aggregates")).unwrap();
            let server = place.serve();
            let (mut client, root) = connect(&place);
            check(&mut client, &root, &model);
            server.stop();
        }
    }
}
