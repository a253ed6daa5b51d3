//! `stroop check aggr` with and without a running server: what is whole is not blamed, what is
//! damaged is named, and the exit status says which.

use crate::faults::rot;
use crate::files::{connect, content, fill};
use crate::place::{Over, Place, text};
use nfs_client::{NfsClient, Request};
use ondisk::identity::{BlockIdentity, ChecksumBlock, REGION_BLOCKS};
use ondisk::root::metafile;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{BLOCK_SIZE, Block};

pub const CHECK: [&str; 3] = ["check", "aggr", "a1"];

/// Runs a check that must be made; what it says, with its exit status.
pub fn checked(place: &Place) -> (Value, i32) {
    let output = place.stroop(&[&CHECK[..], &["-o", "json"]].concat());
    let code = output.status.code().unwrap();
    assert!(code == 0 || code == 8, "{}", text(&output.stderr));
    (serde_json::from_slice(&output.stdout).unwrap(), code)
}

#[track_caller]
pub fn expect_nothing(place: &Place, mode: &str) -> Value {
    let (found, code) = checked(place);
    assert_eq!((code, &found["mode"]), (0, &mode.into()), "{found:#}");
    assert_eq!(found["findings"], Value::Array(Vec::new()));
    found
}

/// The findings of a check that must have some.
#[track_caller]
fn expect_some(place: &Place) -> Vec<Value> {
    let (found, code) = checked(place);
    let findings = found["findings"].as_array().unwrap().clone();
    assert!(code == 8 && !findings.is_empty(), "{found:#}");
    for finding in &findings {
        assert!(!finding["text"].as_str().unwrap().is_empty(), "{finding}");
        assert!(!finding["action"].as_str().unwrap().is_empty(), "{finding}");
    }
    findings
}

/// Flips a bit of the newest block of a place in a file for which `choose` says so.
pub fn damage(place: &Place, disks: usize, choose: impl Fn(&BlockIdentity) -> bool) {
    let mut newest: BTreeMap<(u64, u64), (u64, usize, usize)> = BTreeMap::new();
    for disk in 1..=disks {
        let bytes = fs::read(place.disk(disk)).unwrap();
        let first = media::DATA_START as usize;
        for region in (first..bytes.len() / BLOCK_SIZE - REGION_BLOCKS).step_by(REGION_BLOCKS) {
            let at = (region + REGION_BLOCKS - 1) * BLOCK_SIZE;
            let block = Block::from_prefix(&bytes[at..at + BLOCK_SIZE]);
            for (row, identity) in ChecksumBlock::view(&block).identities.iter().enumerate() {
                let key = (identity.inode.get(), identity.fbn.get());
                let cp = identity.cp.get();
                if choose(identity) && newest.get(&key).is_none_or(|found| found.0 < cp) {
                    newest.insert(key, (cp, disk, region + row));
                }
            }
        }
    }
    let (_, disk, block) = *newest.values().next().expect("there is such a block");
    let mut bytes = fs::read(place.disk(disk)).unwrap();
    bytes[block * BLOCK_SIZE + 77] ^= 4;
    fs::write(place.disk(disk), bytes).unwrap();
}

#[test]
fn what_is_whole_is_not_blamed() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    fill(&mut client, &root, 1);
    place.ok(&["snapshot", "create", "home@one"]);
    let found = expect_nothing(&place, "online");
    assert_eq!((&found["snapshots"], &found["parity_checked"]), (&1.into(), &false.into()));
    let told = place.ok(&CHECK);
    assert!(told.starts_with("a1: online, as of consistency point "), "{told}");
    assert!(told.contains("parity is not looked at while the server writes"), "{told}");
    assert!(told.contains("a1: nothing found in "), "{told}");
    place.refused(&["check", "aggr", "a9"], 3);
    place.refused(&["check", "aggr", "../a1"], 2);
    let needs = place.refused(&[&CHECK[..], &["--memory", "1M"]].concat(), 1);
    assert!(needs.contains("--memory allows 1MiB"), "{needs}");
    // Another socket is no server, but the server has the lock.
    let busy = place.refused(&[&["--socket", "/nowhere"], &CHECK[..]].concat(), 4);
    assert!(busy.contains("runs a server"), "{busy}");
    server.kill();
    let found = expect_nothing(&place, "offline");
    assert_eq!((&found["clean_stop"], &found["parity_checked"]), (&false.into(), &false.into()));
    assert!(place.ok(&CHECK).contains("parity is not looked at: the log notes stripes"));
    let server = place.serve();
    server.stop();
    let before: Vec<Vec<u8>> = (1..=4).map(|disk| fs::read(place.disk(disk)).unwrap()).collect();
    let found = expect_nothing(&place, "offline");
    assert_eq!((&found["clean_stop"], &found["parity_checked"]), (&true.into(), &true.into()));
    assert!(found["parity_stripes"].as_u64().unwrap() > 100, "{found}");
    assert!(place.ok(&CHECK).contains("a1: offline, after a clean stop"));
    for (disk, content) in (1..=4).zip(&before) {
        assert!(fs::read(place.disk(disk)).unwrap() == *content, "disk {disk} was written");
    }
    place.refused(&["check", "aggr", "a9"], 3);
}

#[test]
fn damage_is_named_with_its_file() {
    let (place, server) = Place::with_volume();
    let (mut client, root) = connect(&place);
    let directory = client.make_directory(&root, "work").unwrap();
    fill(&mut client, &directory, 1);
    place.ok(&["snapshot", "create", "home@one"]);
    server.stop();
    let whole: Vec<Vec<u8>> = (1..=4).map(|disk| fs::read(place.disk(disk)).unwrap()).collect();
    // A block of data that parity makes good.
    damage(&place, 4, |identity| {
        identity.volume.get() == 1 && identity.level == 0 && {
            identity.inode.get() > 64 && identity.fbn.get() == 700
        }
    });
    let findings = expect_some(&place);
    let of = |finding: &Value, field: &str| finding[field].clone();
    let finding = &findings[0];
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!((of(finding, "kind"), of(finding, "block")), ("repairable".into(), 700.into()));
    assert_eq!((of(finding, "volume"), of(finding, "path")), ("home".into(), "/work/large".into()));
    let output = place.stroop(&CHECK);
    assert_eq!(output.status.code(), Some(8));
    let told = text(&output.stdout);
    assert!(told.contains("repairable: home: /work/large (inode "), "{told}");
    assert!(told.contains("do: stroop scrub start a1"), "{told}");
    assert!(told.contains("a1: 1 problem found in "), "{told}");
    // The same beside a server, which has not read the block.
    let server = place.serve();
    let findings = expect_some(&place);
    assert_eq!((findings.len(), of(&findings[0], "path")), (1, "/work/large".into()));
    server.stop();
    for (disk, content) in (1..=4).zip(&whole) {
        fs::write(place.disk(disk), content).unwrap();
    }
    expect_nothing(&place, "offline");
    // Parity that nobody reads.
    assert!(rot(&place.disk(1), |index| index * 37) > 100);
    let findings = expect_some(&place);
    assert!(findings.iter().all(|finding| of(finding, "kind") == "redundancy"), "{findings:#?}");
    fs::write(place.disk(1), &whole[0]).unwrap();
    // The superblock slots of a disk.
    let mut bytes = whole[2].clone();
    for slot in 0..2 {
        bytes[(media::SUPERBLOCK_BLOCK as usize + slot) * BLOCK_SIZE + 100] ^= 1;
    }
    fs::write(place.disk(3), bytes).unwrap();
    let findings = expect_some(&place);
    assert!(findings.iter().all(|finding| of(finding, "kind") == "superblock"), "{findings:#?}");
    assert!(findings[0]["disk"].as_str().unwrap().ends_with("d3.img"), "{findings:#?}");
}

/// Without parity a node of a file's tree is lost: the server quarantines the file when it changes.
#[test]
fn a_quarantined_file_is_named() {
    let (place, server) = Place::with_volume_on("2x64M", ("2", "none"));
    let (mut client, root) = connect(&place);
    let file = client.create(&root, "torn").unwrap();
    client.write(&file, 0, &content(1, 3_000_000), false).unwrap();
    client.commit(&file).unwrap();
    server.stop();
    damage(&place, 2, |identity| {
        identity.volume.get() == 1 && identity.inode.get() > 64 && identity.level == 1
    });
    let findings = expect_some(&place);
    let is = |kind: &str, findings: &[Value]| {
        let mut found = findings.iter();
        found.any(|finding| finding["kind"] == kind && finding["path"] == "/torn")
    };
    assert!(is("lost", &findings) && !is("quarantined", &findings), "{findings:#?}");
    let server = place.serve();
    let (mut client, root) = connect(&place);
    let file = client.lookup(&root, "torn").unwrap();
    let _ = client.write(&file, 0, &content(2, 4096), false);
    let _ = client.commit(&file);
    place.ok(&["snapshot", "create", "home@after"]);
    let findings = expect_some(&place);
    assert!(is("quarantined", &findings), "{findings:#?}");
    server.stop();
    let findings = expect_some(&place);
    assert!(is("quarantined", &findings), "{findings:#?}");
}

/// A volume that lost a block of its free map is read-only from its next consistency point on.
#[test]
fn a_read_only_volume_is_named() {
    let (place, server) = Place::with_volume_on("2x64M", ("2", "none"));
    let (mut client, root) = connect(&place);
    fill(&mut client, &root, 1);
    server.stop();
    damage(&place, 2, |identity| {
        let inode = identity.inode.get();
        identity.volume.get() == 1 && inode == metafile::ACTIVE_MAP && identity.level == 0
    });
    let server = place.serve();
    let (mut client, root) = connect(&place);
    if let Ok(file) = client.create(&root, "more") {
        let _ = client.write(&file, 0, &content(3, 9000), true);
    }
    // Whether it is made or not, consistency points come of it.
    let _ = place.stroop(&["snapshot", "create", "home@after"]);
    let _ = place.stroop(&["snapshot", "create", "home@again"]);
    let findings = expect_some(&place);
    let is_named = |finding: &Value| finding["kind"] == "read_only" && finding["volume"] == "home";
    assert!(findings.iter().any(is_named), "{findings:#?}");
    server.stop();
}

/// Writes files, writes over them and removes them, until it is over.
fn load(place: &Place, number: u64, is_over: &AtomicBool) -> u64 {
    let mut client = NfsClient::connect(place.nfs_address()).unwrap();
    let root = client.mount("/home").unwrap();
    let directory = client.make_directory(&root, &format!("load{number}")).unwrap();
    let mut rounds = 0;
    while !is_over.load(Ordering::Relaxed) {
        rounds += 1;
        let name = format!("file{}", rounds % 7);
        let _ = client.remove(&directory, &name);
        let file = client.create(&directory, &name).unwrap();
        for piece in 0..8 {
            let data = content(rounds << 8 | piece, 60_000);
            let at = piece * 50_000;
            client.call(&Request::write(&file, at, &data, piece % 4 == 0)).unwrap();
        }
        client.commit(&file).unwrap();
    }
    rounds
}

#[test]
fn a_check_under_load_blames_nothing() {
    let (place, server) = Place::with_volume_on("4x128M", ("4", "raid4"));
    let (mut client, root) = connect(&place);
    fill(&mut client, &root, 1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        for number in 0..3 {
            let (place, is_over) = (&place, &is_over);
            scope.spawn(move || load(place, number, is_over));
        }
        for round in 0..12 {
            // Consistency points come every ten seconds by themselves.
            place.ok(&["snapshot", "create", &format!("home@s{round}")]);
            expect_nothing(&place, "online");
            if round > 1 {
                place.ok(&["snapshot", "delete", &format!("home@s{}", round - 2), "--yes"]);
            }
            // Another call is answered while a check goes on, and a second check is refused or
            // made, never mixed with the first.
            let start = || place.command().args(CHECK).stdout(Stdio::piped()).spawn().unwrap();
            let beside = [start(), start()].map(|child| child.wait_with_output());
            for output in beside.map(Result::unwrap) {
                assert!(matches!(output.status.code(), Some(0 | 4)), "{output:?}");
            }
        }
    });
    server.stop();
    expect_nothing(&place, "offline");
}

/// The server cannot open the aggregate, and has the disks of another.
#[test]
fn an_aggregate_out_of_service_is_checked_beside_one_in_service() {
    let (place, server) = Place::with_volume_on("4x64M", ("2", "none"));
    let (mut client, root) = connect(&place);
    fill(&mut client, &root, 1);
    let mut journals = fs::read_dir(place.path("state/journal")).unwrap();
    let journal = journals.next().unwrap().unwrap().path();
    place.ok(&["aggr", "create", "a2", "--disks", "2", "--raid", "none"]);
    server.kill();
    fs::rename(&journal, place.path("away")).unwrap();
    let server = place.serve();
    expect_nothing(&place, "offline");
    assert!(place.ok(&["check", "aggr", "a2"]).starts_with("a2: online"));
    server.stop();
}
