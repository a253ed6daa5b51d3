//! Disks and journals that are damaged, short, missing or in use.

use crate::files::{check, connect, fill};
use crate::place::{Over, Place, Server};
use nfs_client::NfsClient;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a block.
const BLOCK_BYTES: usize = 4096;
/// The first byte of a disk's data area.
const DATA_BYTES: usize = 16 * BLOCK_BYTES;

/// Flips a bit of every block in use in the data area, at a byte that `choose` picks for the
/// block's index; how many.
pub fn rot(path: &Path, choose: impl Fn(usize) -> usize) -> usize {
    let mut content = fs::read(path).unwrap();
    let last = content.len() - BLOCK_BYTES;
    let mut rotten = 0;
    for (index, block) in content[DATA_BYTES..last].chunks_mut(BLOCK_BYTES).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            block[choose(index) % BLOCK_BYTES] ^= 1 << (index % 8);
            rotten += 1;
        }
    }
    fs::write(path, content).unwrap();
    rotten
}

/// Fills a volume, lets a disk rot, and reads everything back.
fn check_rot(choose: impl Fn(usize) -> usize) {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    server.stop();
    assert!(rot(&place.disk(2), choose) > 100);
    let server = place.serve();
    assert!(place.check_codes().is_empty(), "{:?}", place.check_codes());
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    let repaired = place.json(&["aggr", "show", "a1"])["repaired_blocks"].as_u64().unwrap();
    assert!(repaired > 50, "{repaired}");
    // So much of it is a sick disk. Without a spare it stays in use.
    assert_eq!(place.check_codes(), ["DISK_SICK"]);
    assert_eq!(place.json(&["aggr", "show", "a1"])["state"], "online");
    let counted = checksum_errors(&place, 2);
    assert!(counted > 50, "{counted}");
    assert!(place.ok(&["status"]).contains(&format!("READ 0  WRITE 0  CKSUM {counted}  sick")));
    server.stop();
    let server = place.serve();
    assert!(checksum_errors(&place, 2) >= counted);
    assert_eq!(place.check_codes(), ["DISK_SICK"]);
    let forgotten = place.ok(&["disk", "clear", "d2", "--dry-run"]);
    assert!(forgotten.contains("checksum errors are forgotten"), "{forgotten}");
    assert_eq!(place.check_codes(), ["DISK_SICK"]);
    place.ok(&["disk", "clear", "d2"]);
    assert!(place.check_codes().is_empty(), "{:?}", place.check_codes());
    server.kill();
    let server = place.serve();
    assert!(checksum_errors(&place, 2) <= 50);
    server.stop();
}

/// What is counted of a disk.
fn checksum_errors(place: &Place, number: usize) -> u64 {
    place.disk_info(number)["checksum_errors"].as_u64().unwrap()
}

/// It is copied while it is used, loses its place, and is reported until somebody took note.
#[test]
fn a_sick_disk_is_copied_to_a_spare() {
    let (place, server) = Place::with_volume_on("5x64M", ("4", "raid4"));
    place.ok(&["disk", "spare", "add", "d5"]);
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    server.stop();
    assert!(rot(&place.disk(2), |index| index * 37) > 100);
    let server = place.serve();
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    let role = |number: usize| place.disk_info(number)["role"].clone();
    while role(2) != serde_json::Value::Null {
        assert_eq!(place.json(&["aggr", "show", "a1"])["state"], "online");
    }
    assert_eq!(role(5), "data");
    // Nobody's, though what it held is still on it.
    let former = place.disk_info(2);
    assert_eq!(former["aggregate"], serde_json::Value::Null, "{former}");
    assert_eq!(place.check_codes(), ["DISK_SICK"]);
    let status = place.json(&["status"]);
    let message = status["checks"][0]["message"].as_str().unwrap();
    assert!(message.contains("d2.img was replaced by spare"), "{message}");
    place.ok(&["disk", "clear", "d2"]);
    assert!(place.check_codes().is_empty(), "{:?}", place.check_codes());
    place.refused(&["disk", "clear", "d2"], 3);
    check(&mut client, &root, &model);
    server.kill();
    fs::remove_file(place.disk(2)).unwrap();
    fs::remove_file(place.disk(3)).unwrap();
    let server = place.serve();
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    server.stop();
}

#[test]
fn bit_rot_on_one_disk_is_made_good_from_parity() {
    // In a block of pointers this is a byte of a checksum.
    check_rot(|index| index * 37 / 16 * 16 + 13);
}

#[test]
fn rotten_block_numbers_in_pointers_are_made_good_from_the_container_map() {
    check_rot(|index| index % 16 * 16 + 6);
}

#[test]
fn a_disk_that_was_cut_off_is_done_without() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let directory = client.make_directory(&root, "before").unwrap();
    let model = fill(&mut client, &directory, 1);
    server.stop();
    let disk = OpenOptions::new().write(true).open(place.disk(3)).unwrap();
    disk.set_len(20 << 20).unwrap();
    let server = place.serve();
    assert_eq!(place.check_codes(), ["AGGR_DEGRADED"]);
    let output = place.stroop(&["status", "--check"]);
    assert_eq!(output.status.code(), Some(8));
    let status = place.json(&["status"]);
    let message = status["checks"][0]["message"].as_str().unwrap();
    assert!(message.contains("without d3 (") && message.contains("cut off"), "{message}");
    let (mut client, root) = connect(&place);
    check(&mut client, &directory, &model);
    let second = client.make_directory(&root, "degraded").unwrap();
    let more = fill(&mut client, &second, 5000);
    server.kill();
    let server = place.serve();
    let (mut client, _) = connect(&place);
    check(&mut client, &directory, &model);
    check(&mut client, &second, &more);
    server.stop();
}

#[test]
fn an_aggregate_without_enough_disks_waits_for_them() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    server.kill();
    let away = |number: usize| place.path(&format!("away-{number}"));
    for number in [1, 2] {
        fs::rename(place.disk(number), away(number)).unwrap();
    }
    let server = place.serve();
    assert_eq!(place.check_codes(), ["AGGR_OFFLINE"]);
    assert_eq!(place.json(&["aggr", "show", "a1"])["state"], "OFFLINE");
    let error = place.refused(&["aggr", "show", "a1", "--map"], 4);
    assert!(error.contains("out of service"), "{error}");
    place.refused(&["aggr", "create", "a1", "--disks", "d3", "--raid", "none", "--force"], 4);
    place.refused(&["volume", "create", "x", "--size", "50M", "--aggr", "a1"], 4);
    let error = place.refused(&["aggr", "create", "b", "--disks", "d3", "--raid", "none"], 4);
    assert!(error.contains("part of the Stroop aggregate 'a1'"), "{error}");
    // Its clients wait, though nothing is known of its volumes.
    let mut same = reconnect(&place);
    assert_eq!(same.lookup(&root, "large").unwrap_err().status(), JUKEBOX);
    for number in [1, 2] {
        fs::rename(away(number), place.disk(number)).unwrap();
    }
    while !place.check_codes().is_empty() {}
    check(&mut same, &root, &model);
    server.stop();
}

/// What NFS clients are told that shall wait.
const JUKEBOX: Option<u32> = Some(10008);

/// A connection of a client that has its mount from before.
fn reconnect(place: &Place) -> NfsClient {
    NfsClient::connect(place.nfs_address()).unwrap()
}

/// While a client writes, two of three disks are lost: it waits, and is told why by nobody but the
/// status. When they are back all that was acknowledged is there, and the server was never started
/// again.
#[test]
fn an_aggregate_that_lost_a_disk_too_many_comes_back_with_it() {
    let (place, server) = Place::with_volume_on("6x64M", ("3", "raid4"));
    place.ok(&["aggr", "create", "b1", "--disks", "3", "--raid", "raid4"]);
    place.ok(&["volume", "create", "other", "--size", "20M", "--aggr", "b1"]);
    let (mut client, root) = connect(&place);
    let before = client.make_directory(&root, "before").unwrap();
    let model = fill(&mut client, &before, 1);
    let load = client.make_directory(&root, "load").unwrap();
    let is_over = AtomicBool::new(false);
    let away = |number: usize| place.path(&format!("away-{number}"));
    let (acknowledged, refused) = std::thread::scope(|scope| {
        let (place, load, is_over) = (&place, &load, &is_over);
        let over = Over(is_over);
        let writer = scope.spawn(move || {
            let (mut client, _) = connect(place);
            let (mut acknowledged, mut refused, mut number) = (Vec::new(), 0, 0);
            while !is_over.load(Ordering::Relaxed) {
                let name = format!("file-{number}");
                let written = client
                    .create(load, &name)
                    .and_then(|file| client.write(&file, 0, name.as_bytes(), true));
                match written {
                    Ok(_) => {
                        acknowledged.push(name);
                        number += 1;
                    }
                    Err(failure) => {
                        assert_eq!(failure.status(), JUKEBOX, "{failure}");
                        refused += 1;
                        // What was not acknowledged may be there.
                        number += 1;
                    }
                }
            }
            (acknowledged, refused)
        });
        for number in [1, 3] {
            fs::rename(place.disk(number), away(number)).unwrap();
        }
        // At first it has failed; at the next tick it is known as away.
        let is_away = |status: &serde_json::Value| {
            let message = status["checks"][0]["message"].as_str();
            message.is_some_and(|message| message.contains("out of service since 20"))
        };
        let mut status = place.json(&["status"]);
        while !is_away(&status) {
            status = place.json(&["status"]);
        }
        assert_eq!(place.check_codes(), ["AGGR_OFFLINE"]);
        let failing = &status["checks"][0];
        let (message, action) = (&failing["message"], failing["action"].as_str().unwrap());
        let message = message.as_str().unwrap();
        assert!(message.contains("d1 (") && message.contains("d3 is gone"), "{message}");
        assert!(action.contains("comes back by itself"), "{action}");
        assert_eq!(place.stroop(&["status", "--check"]).status.code(), Some(8));
        assert_eq!(place.json(&["aggr", "show", "a1"])["state"], "OFFLINE");
        place.refused(&["aggr", "show", "a1", "--map"], 4);
        assert_eq!(place.json(&["aggr", "show", "b1"])["state"], "online");
        let disks = place.json(&["disk", "list"]);
        let failed = disks["records"].as_array().unwrap().iter();
        assert_eq!(failed.filter(|disk| disk["state"] == "failed").count(), 2, "{disks}");
        place.refused(&["volume", "create", "x", "--size", "20M", "--aggr", "a1"], 4);
        place.ok(&["volume", "create", "x", "--size", "20M", "--aggr", "b1"]);
        assert_eq!(client.lookup(&root, "before").unwrap_err().status(), JUKEBOX);
        // One alone does not help: the other was given up first, or is the one too many.
        for number in [1, 3] {
            fs::rename(away(number), place.disk(number)).unwrap();
        }
        while place.check_codes().contains(&"AGGR_OFFLINE".to_owned()) {}
        let (mut client, _) = connect(place);
        client.create(load, "after").unwrap();
        drop(over);
        writer.join().unwrap()
    });
    assert!(refused > 0 && acknowledged.len() > 1);
    let (mut client, root) = connect(&place);
    let again = client.lookup(&root, "before").unwrap();
    check(&mut client, &again, &model);
    for name in acknowledged {
        let file = client.lookup(&load, &name).unwrap();
        assert_eq!(client.read(&file).unwrap(), name.as_bytes());
    }
    server.stop();
}

#[test]
fn an_aggregate_without_its_journal_is_not_opened() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    server.kill();
    let journals: Vec<_> =
        fs::read_dir(place.path("state/journal")).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(journals.len(), 1);
    let (journal, away) = (journals[0].path(), place.path("away"));
    fs::rename(&journal, &away).unwrap();
    let server = place.serve();
    let status = place.json(&["status"]);
    assert_eq!(status["checks"][0]["code"], "AGGR_OFFLINE");
    let message = status["checks"][0]["message"].as_str().unwrap();
    assert!(message.contains(journal.file_name().unwrap().to_str().unwrap()), "{message}");
    server.stop();
    fs::rename(&away, &journal).unwrap();
    let server = place.serve();
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    server.stop();
}

#[test]
fn a_server_of_another_directory_takes_no_disk_that_is_in_use() {
    let (place, server) = Place::with_volume();
    let config = fs::read_to_string(place.path("stroop.toml")).unwrap();
    let state = place.path("state").display().to_string();
    let other = place.path("other").display().to_string();
    let config = config.replace(&format!("\"{state}\""), &format!("\"{other}\""));
    fs::write(place.path("other.toml"), config).unwrap();
    let mut command = place.command();
    command.env("STROOP_CONFIG", place.path("other.toml"));
    command.arg("serve").stderr(Stdio::piped());
    let mut second = Server::spawn(&mut command);
    let mut line = String::new();
    while !line.contains("ready") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut second.log, &mut line).unwrap() > 0);
    }
    let run = |words: &[&str]| {
        let mut command = place.command();
        command.env("STROOP_CONFIG", place.path("other.toml")).args(words).output().unwrap()
    };
    let status = crate::place::json(&run(&["status", "-o", "json"]));
    let checks = status["checks"].as_array().unwrap();
    assert_eq!(checks.len(), 4);
    assert!(checks.iter().all(|check| check["code"] == "DISK_UNREADABLE"));
    let create = ["aggr", "create", "b", "--disks", "d1", "--raid", "none", "--force", "--yes"];
    assert_eq!(run(&create).status.code(), Some(4));
    second.stop();
    assert!(place.check_codes().is_empty());
    server.stop();
}

/// Two of six disks of a `dp` aggregate are lost, replaced and rebuilt; then two others are lost.
#[test]
fn lost_disks_are_replaced_and_rebuilt() {
    let (place, server) = Place::with_volume_on("8x64M", ("6", "dp"));
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    server.kill();
    let away = |number: usize| place.path(&format!("away-{number}"));
    let lose = |number: usize| fs::rename(place.disk(number), away(number)).unwrap();
    [2, 5].into_iter().for_each(lose);
    let server = place.serve();
    assert_eq!(place.check_codes(), ["AGGR_DEGRADED"]);
    let message = place.json(&["status"])["checks"][0]["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with("; 0 more disks may fail"), "{message}");
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    let second = client.make_directory(&root, "degraded").unwrap();
    let more = fill(&mut client, &second, 5000);
    let error = place.refused(&["disk", "replace", "d1"], 3);
    assert!(error.contains("has no spare that is large enough"), "{error}");
    for replacement in ["d7", "d8"] {
        let lost = lost_disk(&place);
        let dry = place.ok(&["disk", "replace", &lost, replacement, "--dry-run"]);
        assert!(dry.contains("nothing was changed"), "{dry}");
        let done = place.ok(&["disk", "replace", &lost, replacement]);
        assert!(done.contains("is rebuilt in the background"), "{done}");
    }
    check(&mut client, &second, &more);
    while !place.check_codes().is_empty() {}
    check(&mut client, &second, &more);
    server.kill();
    // The old ones come back, and are not taken for what they were; two others go.
    [2, 5].into_iter().for_each(|number| fs::rename(away(number), place.disk(number)).unwrap());
    [1, 6].into_iter().for_each(lose);
    let server = place.serve();
    let states = place.json(&["disk", "list"]);
    let disks = states["records"].as_array().unwrap();
    let foreign = disks.iter().filter(|disk| disk["state"] == "foreign");
    assert_eq!(foreign.count(), 2, "{states}");
    let (mut client, root) = connect(&place);
    let second = client.lookup(&root, "degraded").unwrap();
    check(&mut client, &second, &more);
    let lost = lost_disk(&place);
    place.refused(&["disk", "replace", &lost, "d2"], 4);
    place.ok(&["disk", "replace", &lost, "d2", "--force", "--yes"]);
    check(&mut client, &second, &more);
    server.stop();
}

/// A disk is away at a clean start, and is back while the node runs under load.
#[test]
fn a_disk_that_was_moved_away_comes_back_by_itself() {
    let (place, server) = Place::with_volume_on("6x64M", ("5", "dp"));
    let (mut client, root) = connect(&place);
    fill(&mut client, &root, 1);
    server.stop();
    let away = place.path("away");
    fs::rename(place.disk(2), &away).unwrap();
    let server = place.serve();
    assert_eq!(place.check_codes(), ["AGGR_DEGRADED"]);
    let (mut client, root) = connect(&place);
    let second = client.make_directory(&root, "degraded").unwrap();
    let more = fill(&mut client, &second, 5000);
    fs::rename(&away, place.disk(2)).unwrap();
    let third = client.make_directory(&root, "later").unwrap();
    let last = fill(&mut client, &third, 9000);
    while !place.check_codes().is_empty() {}
    check(&mut client, &second, &more);
    server.stop();
    // What came back holds its share: two others go.
    for number in [1, 4] {
        fs::rename(place.disk(number), place.path(&format!("gone-{number}"))).unwrap();
    }
    let server = place.serve();
    let (mut client, root) = connect(&place);
    for (name, model) in [("degraded", &more), ("later", &last)] {
        let directory = client.lookup(&root, name).unwrap();
        check(&mut client, &directory, model);
    }
    server.stop();
}

/// A disk goes while a client writes, and is back later: the node never stopped.
#[test]
fn a_disk_that_goes_under_load_comes_back_by_itself() {
    let (place, server) = Place::with_volume_on("6x64M", ("5", "raid4"));
    let (mut client, root) = connect(&place);
    let before = client.make_directory(&root, "before").unwrap();
    let model = fill(&mut client, &before, 1);
    let away = place.path("away");
    fs::rename(place.disk(2), &away).unwrap();
    let during = client.make_directory(&root, "during").unwrap();
    let more = fill(&mut client, &during, 5000);
    while place.check_codes() != ["AGGR_DEGRADED"] {}
    fs::rename(&away, place.disk(2)).unwrap();
    while !place.check_codes().is_empty() {}
    check(&mut client, &before, &model);
    server.stop();
    // It holds its share: another goes.
    fs::rename(place.disk(4), place.path("gone")).unwrap();
    let server = place.serve();
    let (mut client, root) = connect(&place);
    for (name, model) in [("before", &model), ("during", &more)] {
        let directory = client.lookup(&root, name).unwrap();
        check(&mut client, &directory, model);
    }
    server.stop();
}

/// A spare takes the place of a disk that is failed, by itself; another is copied to.
#[test]
fn spares_take_places_by_themselves() {
    let (place, server) = Place::with_volume_on("7x64M", ("5", "dp"));
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    place.ok(&["disk", "spare", "add", "d6"]);
    let role = |number: usize| place.disk_info(number)["role"].clone();
    assert_eq!(role(6), "spare");
    place.ok(&["disk", "fail", "d2", "--yes"]);
    while !place.check_codes().is_empty() {}
    assert_eq!(role(6), "parity");
    check(&mut client, &root, &model);
    // One that works is copied: nothing is degraded meanwhile.
    place.ok(&["disk", "replace", "d4", "d7"]);
    // Its label is erased then; what else is on it nobody knows any more.
    while !place.disk_info(4)["aggregate"].is_null() {
        assert!(place.check_codes().is_empty());
    }
    assert_eq!(role(7), "data");
    check(&mut client, &root, &model);
    server.stop();
}

/// While a client reads a volume over and over and compares, two disks of six are failed, replaced
/// and rebuilt: it never sees a difference.
#[test]
fn a_reader_notices_nothing_of_two_failures() {
    let (place, server) = Place::with_volume_on("8x64M", ("6", "dp"));
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (place, model, is_over) = (&place, &model, &is_over);
        let over = Over(is_over);
        let reader = scope.spawn(move || {
            let (mut client, root) = connect(place);
            let mut rounds = 0;
            while !is_over.load(Ordering::Relaxed) || rounds == 0 {
                check(&mut client, &root, model);
                rounds += 1;
            }
            rounds
        });
        let plan = place.ok(&["disk", "fail", "d3", "--dry-run"]);
        assert!(plan.contains("1 more disk may fail then"), "{plan}");
        for (disk, left) in [("d3", 1), ("d6", 0)] {
            place.refused(&["disk", "fail", disk], 2);
            place.ok(&["disk", "fail", disk, "--yes"]);
            let status = place.json(&["status"]);
            let message = status["checks"][0]["message"].as_str().unwrap();
            assert!(message.contains("failed by an administrator"), "{message}");
            assert!(message.contains(&format!("; {left} more disk")), "{message}");
        }
        let error = place.refused(&["disk", "fail", "d1", "--yes"], 4);
        assert!(error.contains("cannot do without one more disk"), "{error}");
        place.ok(&["disk", "replace", "d3", "d7"]);
        place.ok(&["disk", "replace", "d6", "d8"]);
        while !place.check_codes().is_empty() {}
        drop(over);
        assert!(reader.join().unwrap() > 0);
    });
    place.ok(&["disk", "fail", "d1", "--yes"]);
    place.ok(&["disk", "fail", "d2", "--yes"]);
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    server.stop();
}

/// The name of a disk that the aggregate does without.
fn lost_disk(place: &Place) -> String {
    let disks = place.json(&["aggr", "show", "a1"])["disks"].clone();
    let lost = disks.as_array().unwrap().iter().find(|disk| disk["state"] == "missing").unwrap();
    lost["name"].as_str().unwrap().to_owned()
}
