//! Aggregates that are made larger under load, and smaller.

use crate::files::{Model, check, connect, content, fill};
use crate::place::{Over, Place};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// Files of a directory, large enough that the first disks have no room for them.
const LARGE_FILES: u64 = 12;
const LARGE_BYTES: usize = 16 << 20;

fn size_bytes(place: &Place) -> u64 {
    place.json(&["aggr", "show", "a1"])["size_bytes"].as_u64().unwrap()
}

/// Paths of the disks of a group.
fn disks_of(place: &Place, group: u64) -> Vec<String> {
    let disks = place.json(&["aggr", "show", "a1"])["disks"].clone();
    let disks = disks.as_array().unwrap().iter().filter(|disk| disk["group"] == group);
    disks.map(|disk| disk["path"].as_str().unwrap().to_owned()).collect()
}

/// The areas are those of the groups, and what was written is in metrics.
fn check_areas(place: &Place) {
    let map = place.json(&["aggr", "show", "a1", "--map"])["map"].clone();
    let groups = map["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 2, "{map}");
    for group in groups {
        let of_cells = |field: &str| {
            let cells = group["cells"].as_array().unwrap().iter();
            cells.map(|cell| cell[field].as_u64().unwrap()).sum::<u64>()
        };
        assert_eq!(of_cells("areas"), group["areas"].as_u64().unwrap(), "{map}");
        assert_eq!(of_cells("free_bytes"), group["free_bytes"].as_u64().unwrap(), "{map}");
        assert!(of_cells("free_bytes") <= of_cells("counted_bytes"), "{map}");
        assert!(of_cells("counted_bytes") <= size_bytes(place), "{map}");
    }
    let text = place.ok(&["aggr", "show", "a1", "--map"]);
    assert!(text.contains("\ngroup 1     "), "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let metrics = place.ok(&["metrics"]);
    for series in [
        "stroop_aa_picked_total{aggregate=\"a1\",kind=\"group\"} ",
        "stroop_aa_picked_free_blocks_total{aggregate=\"a1\",kind=\"volume\"} ",
        "stroop_stripes_written_total{aggregate=\"a1\",kind=\"full\"} ",
    ] {
        let found = metrics.lines().find_map(|line| line.strip_prefix(series));
        assert!(found.is_some_and(|value| value.parse::<u64>().unwrap() > 0), "{series} {found:?}");
    }
}

/// Plans counted the room that is for the log.
#[test]
fn regression_a_plan_has_the_size_that_comes() {
    let (place, server) = Place::with_volume_on("10x256M", ("3", "raid4"));
    let create = ["aggr", "create", "a2", "--disks", "3", "--raid", "raid4"];
    let add = ["aggr", "add", "a1", "--disks"];
    let member = [&add[..], &["1", "--group", "0"]].concat();
    let group = [&add[..], &["3", "--raid", "raid4"]].concat();
    for command in [&create[..], &member, &group] {
        let plan = place.json(&[command, &["--dry-run"]].concat());
        let made = place.json(command);
        assert_eq!(plan["size_bytes"], made["size_bytes"], "{command:?}");
        assert_eq!(plan["data_disks"], made["data_disks"], "{command:?}");
    }
    server.stop();
}

#[test]
fn disks_and_groups_join_under_load_and_each_group_may_lose_disks() {
    let (place, server) = Place::with_volume_on("10x64M", ("3", "raid4"));
    let (mut client, root) = connect(&place);
    let directory = client.make_directory(&root, "before").unwrap();
    let model = fill(&mut client, &directory, 1);
    let first = size_bytes(&place);
    let plan = place.ok(&["aggr", "add", "a1", "--disks", "1", "--group", "0", "--dry-run"]);
    assert!(plan.contains("would be 3 data + 1 parity in 1 group"), "{plan}");
    assert_eq!(size_bytes(&place), first);
    place.refused(&["aggr", "add", "a1", "--disks", "1", "--group", "7"], 3);
    place.refused(&["aggr", "add", "a1", "--disks", "2", "--raid", "dp"], 2);
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let over = Over(&is_over);
        let writer = scope.spawn(|| {
            let (mut client, root) = connect(&place);
            let mut rounds = Vec::new();
            while !is_over.load(Ordering::Relaxed) || rounds.is_empty() {
                let name = format!("round-{}", rounds.len());
                let directory = client.make_directory(&root, &name).unwrap();
                rounds.push((directory.clone(), fill(&mut client, &directory, 7)));
            }
            rounds
        });
        place.ok(&["aggr", "add", "a1", "--disks", "1", "--group", "0"]);
        assert_eq!(size_bytes(&place), first / 2 * 3);
        let output =
            place.ok(&["aggr", "add", "a1", "--disks", "6", "--raid", "dp", "--group-size", "6"]);
        assert!(output.contains("7 data + 3 parity in 2 groups"), "{output}");
        drop(over);
        writer.join().unwrap()
    });
    let export = "127.0.0.1:rw:none:insecure";
    place.ok(&["volume", "create", "big", "--size", "300M", "--export", export]);
    let big = client.mount("/big").unwrap();
    let mut large = Model::new();
    for number in 0..LARGE_FILES {
        let (name, data) = (format!("large-{number}"), content(number, LARGE_BYTES));
        let file = client.create(&big, &name).unwrap();
        client.write(&file, 0, &data, false).unwrap();
        client.commit(&file).unwrap();
        large.insert(name, data);
    }
    // Full stripes are those of a consistency point with much in it.
    place.ok(&["sync"]);
    check_areas(&place);
    server.kill();
    let server = place.serve();
    let (groups, mut client) = ([disks_of(&place, 0), disks_of(&place, 1)], connect(&place).0);
    check(&mut client, &big, &large);
    server.stop();
    // One of four, and two of six.
    for disk in [&groups[0][2], &groups[1][0], &groups[1][4]] {
        fs::rename(disk, place.path(&format!("away-{}", disk.replace('/', "-")))).unwrap();
    }
    let server = place.serve();
    assert_eq!(place.check_codes(), ["AGGR_DEGRADED"]);
    let (mut client, _) = connect(&place);
    check(&mut client, &directory, &model);
    check(&mut client, &big, &large);
    for (directory, model) in &written {
        check(&mut client, directory, model);
    }
    server.stop();
}

/// How the disks of this place are, in order.
fn disk_states(place: &Place) -> Vec<String> {
    let disks = place.json(&["disk", "list"])["records"].clone();
    let state = |disk: &serde_json::Value| disk["state"].as_str().unwrap().to_owned();
    disks.as_array().unwrap().iter().map(state).collect()
}

#[test]
fn a_group_leaves_and_its_disk_is_free() {
    let (place, server) = Place::with_volume_on("4x64M", ("3", "none"));
    let (mut client, root) = connect(&place);
    let directory = client.make_directory(&root, "before").unwrap();
    let model = fill(&mut client, &directory, 1);
    let before = size_bytes(&place);
    place.ok(&["snapshot", "create", "home@one"]);
    let leaving = disks_of(&place, 1);
    let plan = loop {
        let output = place.stroop(&["aggr", "remove-group", "a1", "1", "--dry-run"]);
        // Until its free blocks are counted.
        if output.status.success() {
            break String::from_utf8(output.stdout).unwrap();
        }
    };
    assert!(plan.contains("d2 is free then"), "{plan}");
    assert!(plan.contains("move to the other groups"), "{plan}");
    assert!(place.refused(&["aggr", "remove-group", "a1", "1"], 2).contains("--yes"));
    assert!(place.json(&["aggr", "show", "a1"])["leaving"].is_null());
    let unknown = place.refused(&["aggr", "remove-group", "a1", "7", "--yes"], 3);
    assert!(unknown.contains("it has no group 7") && unknown.contains("aggr show a1"), "{unknown}");
    place.refused(&["aggr", "remove-group", "a1", "1", "--cancel"], 4);
    place.ok(&["aggr", "remove-group", "a1", "1", "--yes"]);
    while !place.json(&["aggr", "show", "a1"])["leaving"].is_null() {}
    // Disks without a short name are last.
    while disk_states(&place) != ["in use", "in use", "unused", "unused"] {}
    let shown = place.json(&["aggr", "show", "a1"]);
    assert_eq!((&shown["groups"], &shown["state"]), (&2.into(), &"online".into()), "{shown}");
    assert_eq!(size_bytes(&place), before / 3 * 2);
    assert!(disks_of(&place, 1).is_empty() && disks_of(&place, 2).len() == 1, "{shown}");
    assert!(place.check_codes().is_empty());
    assert!(place.json(&["status"])["now"].as_array().unwrap().is_empty());
    let metrics = place.ok(&["metrics"]);
    for series in [
        "stroop_aa_emptied_total{aggregate=\"a1\"} ",
        "stroop_aa_emptying_blocks_total{aggregate=\"a1\",kind=\"moved\"} ",
        "stroop_chains_written_total{aggregate=\"a1\"} ",
        "stroop_chain_blocks_total{aggregate=\"a1\"} ",
    ] {
        let found = metrics.lines().find_map(|line| line.strip_prefix(series));
        assert!(found.is_some_and(|value| value.parse::<u64>().unwrap() > 0), "{series} {found:?}");
    }
    check(&mut client, &directory, &model);
    server.kill();
    // Nothing waits for the disk that has left.
    let server = place.serve();
    let (mut client, root) = connect(&place);
    let directory = client.lookup(&root, "before").unwrap();
    check(&mut client, &directory, &model);
    place.ok(&["aggr", "add", "a1", "--disks", "d2"]);
    assert_eq!(size_bytes(&place), before);
    assert_eq!(disks_of(&place, 3), leaving);
    let after = client.make_directory(&root, "after").unwrap();
    let more = fill(&mut client, &after, 9);
    assert!(
        !place.json(&["aggr", "set", "a1", "--area-cleaning", "off"])["area_cleaning"]
            .as_bool()
            .unwrap()
    );
    server.kill();
    let server = place.serve();
    assert_eq!(place.json(&["aggr", "show", "a1"])["area_cleaning"], false);
    let (mut client, _) = connect(&place);
    check(&mut client, &directory, &model);
    check(&mut client, &after, &more);
    server.stop();
}

/// A disk without parity was taken beside groups with parity, without a question, and the whole was
/// still said to survive a failure.
#[test]
fn regression_a_group_that_survives_less_is_asked_for() {
    let (place, server) = Place::with_volume_on("6x64M", ("3", "raid4"));
    let weaker = ["aggr", "add", "a1", "--disks", "1", "--raid", "none"];
    let error = place.refused(&weaker, 4);
    assert!(error.contains("loses data with any disk that fails"), "{error}");
    assert!(error.contains("now it survives 1 disk failure"), "{error}");
    assert!(error.contains("--raid raid4") && error.contains("--force"), "{error}");
    place.refused(&[&weaker[..], &["--dry-run"]].concat(), 4);
    let told = place.ok(&[&weaker[..], &["--force"]].concat());
    assert!(told.contains("a1"), "{told}");
    let shown = place.ok(&["aggr", "show", "a1"]);
    assert!(shown.contains("raid4 3+1, loses data with any disk that fails"), "{shown}");
    let protection = place.json(&["aggr", "show", "a1"])["protection"].clone();
    assert_eq!(protection["disk_failures"], 0, "{protection}");
    // A data disk cannot join a group of one disk.
    let error = place.refused(&["aggr", "add", "a1", "--disks", "1", "--group", "1"], 4);
    assert!(error.contains("group 1 is without parity"), "{error}");
    server.stop();
}
