//! What a service manager hears of the real binary (sd_notify(3)), and what it gives to shells.

use crate::place::{Place, text};
use std::os::unix::net::UnixDatagram;
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
