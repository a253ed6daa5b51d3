//! Benches that are interrupted leave nothing behind.

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
