//! Benches leave nothing behind, also when they are interrupted.

use crate::mounts::can_mount;
use crate::place::{Place, Server};
use std::fs;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs a bench until it says `line`; its directory, and the bench.
fn begin(place: &Place, words: &[&str], line: &str) -> (PathBuf, Server) {
    let directory = place.path("bench");
    let mut command = Command::new(env!("CARGO_BIN_EXE_stroop"));
    command.arg("bench").args(words).arg("--directory").arg(&directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut bench = Server::spawn(&mut command);
    let mut said = String::new();
    while !said.contains(line) {
        said.clear();
        assert!(bench.log.read_line(&mut said).unwrap() > 0, "the bench ended");
    }
    (directory, bench)
}

fn interrupt(bench: &mut Server) {
    bench.signal("INT");
    let (status, said) = bench.end();
    assert_eq!(status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted") && !said.contains("cannot remove"), "{said}");
}

/// Mounts, loop devices and control groups of a bench.
fn traces(directory: &Path, bench: u32) -> Vec<String> {
    let (directory, group) = (directory.to_str().unwrap(), format!("stroop-bench-{bench}"));
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let loops = fs::read_dir("/sys/block").unwrap().map(|it| it.unwrap().path());
    let images = loops.map(|device| read(&device.join("loop/backing_file")));
    let mounts = read(Path::new("/proc/mounts"));
    let mut found: Vec<String> = mounts.lines().map(str::to_owned).chain(images).collect();
    found.retain(|line| line.contains(directory));
    let mut groups = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(parent) = groups.pop() {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        for path in entries.filter(|it| it.file_type().unwrap().is_dir()).map(|it| it.path()) {
            if path.ends_with(&group) {
                found.push(path.display().to_string());
            }
            groups.push(path);
        }
    }
    found
}

/// Whether a process has this word on its command line.
fn runs(word: &Path) -> bool {
    let word = word.to_str().unwrap();
    let mut processes = fs::read_dir("/proc").unwrap();
    processes.any(|entry| {
        let line = fs::read(entry.unwrap().path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    })
}

#[test]
fn an_engine_that_is_measured_leaves_no_disks() {
    let place = Place::new();
    let words = ["engine", "--file-size", "16M", "--rounds", "1000"];
    let (directory, mut bench) = begin(&place, &words, "raw writes");
    assert!(directory.exists());
    interrupt(&mut bench);
    assert!(!directory.exists(), "it was made for the bench");
}

#[test]
fn a_node_that_is_measured_is_stopped_and_leaves_no_files() {
    let place = Place::new();
    fs::create_dir(place.path("bench")).unwrap();
    fs::write(place.path("bench/own"), "a user's").unwrap();
    let words = ["nfs", "--file-size", "16M", "--rounds", "1000", "--seconds", "0.1"];
    let (directory, mut bench) = begin(&place, &words, "round 1 of");
    assert!(runs(&directory), "its node runs");
    interrupt(&mut bench);
    assert!(!runs(&directory));
    let left: Vec<_> =
        fs::read_dir(&directory).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["own"]);
}

/// The directory below the mount of a node that was stopped stayed immutable, and with it the
/// bench's directory.
#[test]
fn regression_a_mount_that_is_measured_leaves_no_directory() {
    if fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        eprintln!("skipped: /dev/fuse cannot be opened");
        return;
    }
    let place = Place::new();
    let words = ["fuse", "--file-size", "16M", "--rounds", "1000", "--seconds", "0.1"];
    let (directory, mut bench) = begin(&place, &words, "round 1 of");
    interrupt(&mut bench);
    assert!(!runs(&directory), "its node has ended");
    assert!(!directory.exists(), "it was made for the bench");
}

/// timeout(1) sends SIGTERM to the bench and then to its process group. The second one ended the
/// bench in the middle of its cleaning up: servers and a directory stayed.
#[test]
fn regression_a_signal_that_comes_twice_is_one_wish() {
    let place = Place::new();
    let words = ["nfs", "--file-size", "16M", "--rounds", "1000", "--seconds", "0.1"];
    let (directory, mut bench) = begin(&place, &words, "round 1 of");
    bench.signal("TERM");
    let mut said = String::new();
    while !said.contains("interrupted") {
        said.clear();
        assert!(bench.log.read_line(&mut said).unwrap() > 0, "the bench ended");
    }
    bench.signal("TERM");
    let (status, said) = bench.end();
    assert_eq!(status.code(), Some(143), "{said}");
    assert!(!runs(&directory), "its servers have ended");
    assert!(!directory.exists(), "it was made for the bench");
}

/// The mix is answered on both kinds of volume at each load, and nothing of the nodes stays.
#[test]
fn a_mix_of_operations_is_offered_to_both_kinds_of_volume() {
    let place = Place::new();
    let directory = place.path("bench");
    let place_name = directory.display().to_string();
    let options = ["--memory", "128M", "--sizes", "10", "--rounds", "1", "--seconds", "0.1"];
    let words = ["bench", "flexvol", "9", "--directory", &place_name];
    let report = place.json(&[words.as_slice(), &options].concat());
    let records = report["records"].as_array().unwrap();
    assert_eq!(records.len(), 1 + 7 * 4, "the peak and seven load points: {report}");
    for record in records {
        assert!(record["figures"]["median"].as_u64().unwrap() > 0, "{record}");
        let is_offered = record["load"].as_str().unwrap().ends_with("offered");
        assert_eq!(record["beside"].as_array().unwrap().is_empty(), is_offered, "{record}");
        if !is_offered {
            assert_eq!(record["beside"][0]["name"], "traditional", "{record}");
            assert!(record["beside"][0]["figures"]["median"].as_u64().unwrap() > 0, "{record}");
        }
    }
    let notes = report["notes"].to_string();
    assert!(notes.contains("FlexVol -4.4 %; asked for -3.0 % or better"), "{notes}");
    assert!(!runs(&directory), "its nodes have ended");
    assert!(!directory.exists(), "it was made for the bench");
}

/// Each side does each load, a peer reads from the disk what it reads cold, and all of it goes.
#[test]
fn local_file_systems_are_measured_beside_a_mount_and_removed() {
    if !can_mount() {
        return;
    }
    const FILE_BYTES: u64 = 16 << 20;
    let place = Place::new();
    let directory = place.path("bench");
    let place_name = directory.display().to_string();
    let size = FILE_BYTES.to_string();
    let options = ["--file-size", &size, "--rounds", "1", "--seconds", "0.1", "--only", "one disk"];
    let words = ["bench", "compare", "local", "--directory", &place_name];
    let report = place.json(&[words.as_slice(), &options].concat());
    let notes = report["notes"].to_string();
    let records = report["records"].as_array().unwrap();
    assert_eq!(records.len(), 7 + 3, "all loads, and three with write-back: {report}");
    for record in records {
        let load = record["load"].as_str().unwrap();
        assert!(record["figures"]["median"].as_u64().unwrap() > 0, "{record}");
        let beside = record["beside"].as_array().unwrap();
        let named = |name: &str| beside.iter().find(|beside| beside["name"] == name);
        assert_eq!(named("bare disk").is_some(), !load.starts_with("overwrite"), "{record}");
        for peer in ["XFS", "btrfs"] {
            let Some(beside) = named(peer) else {
                assert!(notes.contains(&format!("{peer} is left out")), "{record} {notes}");
                continue;
            };
            let figures = &beside["figures"];
            assert!(figures["median"].as_u64().unwrap() > 0, "{record}");
            // Where the directory is on a device whose bytes are counted.
            let read = figures["device_read_bytes"].as_u64().unwrap_or(FILE_BYTES);
            assert!(!load.starts_with("read cold") || read >= FILE_BYTES, "{record}");
        }
    }
    assert!(!directory.exists(), "it was made for the bench");
    assert_eq!(traces(&directory, 0), Vec::<String>::new());
}

#[test]
fn local_file_systems_that_are_measured_are_unmounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let has_btrfs = ["/sbin", "/usr/sbin", "/usr/bin"]
        .iter()
        .any(|directory| Path::new(directory).join("mkfs.btrfs").exists());
    // While it measures a mount of ours, and while it measures one of another.
    let peer = has_btrfs.then_some("write warm on one disk, btrfs");
    for until in ["read cold on one disk, stroop"].into_iter().chain(peer) {
        let words = ["compare", "local", "--file-size", "64M", "--rounds", "1000"];
        let (directory, mut bench) = begin(&place, &words, until);
        let id = bench.child.id();
        assert!(!traces(&directory, id).is_empty(), "there is something to remove");
        interrupt(&mut bench);
        assert!(!runs(&directory), "its node has ended");
        assert!(!directory.exists(), "it was made for the bench");
        assert_eq!(traces(&directory, id), Vec::<String>::new());
    }
}
