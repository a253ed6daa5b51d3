//! The short forms of `kill_loop`, `flush_points`, `soak` and `attacks`: the real binary, small
//! disks, one round for each program, a round of power cuts, some seconds of soak, each attack.
//!
//! Skipped, saying so, without root or /dev/fuse, or the tools that power cuts need.

#![allow(clippy::unwrap_used, reason = "a test's helpers")]

use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use torture::attacks;
use torture::node::Sizes;
use torture::power;
use torture::programs::Kind;
use torture::rounds::{Plan, run};
use torture::site::Site;
use torture::soak;

/// Why this machine cannot run it.
fn obstacle() -> Option<String> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse cannot be opened ({error})"));
    }
    let output = Command::new("id").arg("-u").output();
    let is_root = output.is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    (!is_root).then(|| "only root may mount here".to_owned())
}

/// The server of the same build, made if it is not there or older than its sources. It is the one
/// that the workspace's tests have: to build it by itself, with fewer features, would build most
/// crates once more.
fn server() -> PathBuf {
    let mut place = std::env::current_exe().unwrap();
    place.pop(); // the test's name
    place.pop(); // deps
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["test", "--no-run", "--quiet", "--workspace", "--test", "end_to_end"]);
    if place.ends_with("release") {
        build.arg("--release");
    }
    assert!(build.status().unwrap().success(), "the server does not build");
    place.join("stroop")
}

/// Works in a directory that goes afterwards.
fn on_site<T>(work: impl FnOnce(&mut Site<'_>) -> T) -> T {
    let (binary, directory) = (server(), tempfile::tempdir().unwrap());
    // Some programs work as other users.
    std::fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let mut tell = |line: &str| println!("{line}");
    work(&mut Site { binary: &binary, directory: directory.path(), tell: &mut tell })
}

fn sizes() -> Sizes {
    let size = |text: &str| text.to_owned();
    Sizes {
        disks: size("4x512M"),
        disks_count: 4,
        volume: size("1G"),
        memory: size("128M"),
        journal: size("32M"),
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_sigkill() {
    if let Some(obstacle) = obstacle() {
        println!("skipped: {obstacle}");
        return;
    }
    let plan = Plan { rounds: Kind::ALL.len() as u64, seed: 5, sizes: sizes() };
    let summary = on_site(|site| run(site, &plan));
    println!("{}", summary.unwrap());
}

#[test]
fn nothing_acknowledged_is_lost_at_flushes_of_the_disks() {
    let tool = power::devices::missing_tool().map(|(tool, _)| format!("{tool} is not installed"));
    if let Some(obstacle) = obstacle().or(tool) {
        println!("skipped: {obstacle}");
        return;
    }
    let plan = power::Plan {
        duration: Duration::ZERO,
        life: Duration::from_secs(3),
        cuts_per_round: 5,
        seed: 5,
        sizes: Sizes::small(),
    };
    let summary = on_site(|site| power::run(site, &plan));
    println!("{}", summary.unwrap());
}

#[test]
fn clients_go_on_over_kills_and_lose_nothing() {
    if let Some(obstacle) = obstacle() {
        println!("skipped: {obstacle}");
        return;
    }
    let outcome = on_site(|site| {
        let plan = soak::Plan {
            duration: Duration::from_secs(25),
            kill_every: Some(Duration::from_secs(6)),
            operations_per_second: 2000,
            seed: 5,
            sizes: sizes(),
            snapshots_kept: 1,
            inspect_every: 2,
            output: site.directory.to_owned(),
        };
        soak::run(site, &plan)
    });
    outcome.unwrap();
}

#[test]
fn attacks_keep_nobody_out_and_the_memory_below_its_cap() {
    if let Some(obstacle) = obstacle() {
        println!("skipped: {obstacle}");
        return;
    }
    let duration = Duration::from_millis(500);
    let plan = attacks::Plan { duration, rounds: 1, only: None };
    println!("{}", on_site(|site| attacks::run(site, &plan)).unwrap());
}
