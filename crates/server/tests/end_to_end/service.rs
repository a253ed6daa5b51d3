//! What a service manager hears of the real binary (sd_notify(3)), and what it gives to shells.

use crate::place::{Place, text};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;
use std::time::Duration;

/// Ends a test that hears nothing; no test passes by it.
const SILENCE_MAX: Duration = Duration::from_secs(120);

#[test]
fn a_service_manager_hears_when_the_server_is_ready_that_it_lives_and_that_it_stops() {
    let place = Place::new();
    let path = place.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(SILENCE_MAX)).unwrap();
    let hear = || {
        let mut bytes = [0; 64];
        let length = manager.recv(&mut bytes).unwrap();
        text(&bytes[..length])
    };
    let mut command = place.command();
    command.arg("serve").env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut server = command.spawn().unwrap();
    let mut heard = vec![hear()];
    while heard.iter().filter(|state| *state == "WATCHDOG=1").count() < 3 {
        heard.push(hear());
    }
    assert!(heard.contains(&"READY=1".to_owned()), "{heard:?}");
    place.ok(&["shutdown"]);
    while heard.last().unwrap() != "STOPPING=1" {
        heard.push(hear());
    }
    assert!(server.wait().unwrap().success());
}

/// A number of a user that nothing here belongs to.
const OTHER_USER: u32 = 54_321;

/// One start by root left files that the service's user could not open, and the service never
/// started again.
#[test]
fn root_starts_no_server_on_the_directory_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can give a directory away");
        return;
    }
    let place = Place::new();
    let give_away = |name: &str| {
        std::os::unix::fs::chown(place.path(name), Some(OTHER_USER), Some(OTHER_USER)).unwrap();
    };
    give_away("state");
    let refused = place.refused(&["serve"], 5);
    assert!(refused.contains(&format!("it belongs to user {OTHER_USER}")), "{refused}");
    assert!(refused.contains(&format!("sudo -u '#{OTHER_USER}' ")), "{refused}");
    let entries = fs::read_dir(place.path("state")).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["disks"], "it made nothing");
    // A check by root makes the lock; it is the owner's.
    place.stroop(&["check", "aggr", "a1"]);
    let lock = place.path("state/stroop.lock");
    assert_eq!(fs::metadata(&lock).unwrap().uid(), OTHER_USER);

    // The lock of a server that root ran before this was refused.
    std::os::unix::fs::chown(&lock, Some(0), Some(0)).unwrap();
    fs::set_permissions(&lock, fs::Permissions::from_mode(0o600)).unwrap();
    let open = fs::Permissions::from_mode(0o711);
    fs::set_permissions(place.path(""), open.clone()).unwrap();
    fs::set_permissions(place.path("stroop.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    let mut command = place.command();
    let output = command.arg("serve").uid(OTHER_USER).gid(OTHER_USER).output();
    let Ok(output) = output else {
        println!("skipped: another user cannot run the program here");
        return;
    };
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{told}");
    assert!(told.contains("stroop.lock") && told.contains("sudo chown -R --reference="), "{told}");
}

#[test]
fn pages_and_completions_are_made_without_a_server_or_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stroop"));
        command.env("STROOP_CONFIG", "/nowhere/stroop.toml").args(words).output().unwrap()
    };
    let made = run(&["manual", directory.path().to_str().unwrap()]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(directory.path().join("stroop-aggr-create.1").exists());
    let missing = run(&["manual", directory.path().join("none").to_str().unwrap()]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("cannot write the manual to"), "{missing:?}");
    let bash = run(&["completion", "bash"]);
    assert!(bash.status.success() && text(&bash.stdout).contains("complete -F _stroop"));
}
