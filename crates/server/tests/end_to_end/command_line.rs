//! Commands over the socket, signals, configuration: a server without aggregates.

use crate::place::{Place, Server, json, text};
use std::io::BufRead as _;
use std::process::Stdio;

#[test]
fn a_server_answers_until_it_is_told_to_stop() {
    let place = Place::new();
    let mut server = place.serve();
    let status = json(&place.stroop(&["status", "-o", "json"]));
    assert_eq!(status["health"], "OK");
    let disks = json(&place.stroop(&["disk", "list", "-o", "json"]));
    assert_eq!(disks["num_records"], 4);
    assert_eq!(disks["records"][0]["size_bytes"], 64 << 20);
    let missing = place.stroop(&["volume", "show", "home"]);
    assert_eq!(missing.status.code(), Some(3), "{missing:?}");
    server.signal("TERM");
    let (status, log) = server.end();
    assert!(status.success() && log.contains("SIGTERM") && log.contains("stopped"), "{log}");
    let gone = place.stroop(&["status"]);
    assert_eq!(gone.status.code(), Some(6), "{gone:?}");
    assert!(text(&gone.stderr).contains("serve"));
}

#[test]
fn shutdown_over_the_socket_is_clean() {
    let place = Place::new();
    let mut server = place.serve();
    assert!(place.stroop(&["shutdown"]).status.success());
    assert!(server.end().0.success());
}

#[test]
fn a_second_server_is_refused_and_a_killed_one_leaves_nothing_in_the_way() {
    let place = Place::new();
    let mut first = place.serve();
    let second = place.stroop(&["serve"]);
    assert_eq!(second.status.code(), Some(4), "{second:?}");
    let process = format!("process {} ", first.child.id());
    assert!(text(&second.stderr).contains(&process), "{}", text(&second.stderr));
    first.child.kill().unwrap();
    first.end();
    let mut third = place.serve();
    assert!(place.stroop(&["status", "--check"]).status.success());
    third.signal("INT");
    assert!(third.end().0.success());
}

#[test]
fn a_wrong_configuration_names_file_line_and_key() {
    let place = Place::new();
    let config = place.path("stroop.toml");
    let text_before = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text_before.replace("memory =", "memroy =")).unwrap();
    for words in [&["serve"][..], &["status"]] {
        let refused = place.stroop(words);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let error = text(&refused.stderr);
        let expected = "stroop.toml, line 7: unknown key 'node.memroy'; did you mean 'memory'?";
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn usage_errors_end_with_status_2_and_help_with_0() {
    let place = Place::new();
    assert_eq!(place.stroop(&["volume", "create"]).status.code(), Some(2));
    assert_eq!(place.stroop(&["dance"]).status.code(), Some(2));
    assert_eq!(place.stroop(&["--help"]).status.code(), Some(0));
    assert_eq!(place.stroop(&["--version"]).status.code(), Some(0));
    let version = place.ok(&["--version"]);
    assert!(version.contains("format on disk: writes version "), "{version}");
    assert!(place.ok(&["-V"]).contains("(format "), "one line has it, too");
    assert!(place.ok(&["help", "volume", "create"]).contains("--tiering-policy"));
    let again = place.stroop(&["init"]);
    assert_eq!(again.status.code(), Some(4), "{again:?}");
}

#[test]
fn a_log_in_json_is_json() {
    let place = Place::new();
    let mut command = place.command();
    command.args(["serve", "--log-format", "json"]).stderr(Stdio::piped());
    let mut server = Server::spawn(&mut command);
    let mut line = String::new();
    server.log.read_line(&mut line).unwrap();
    let event: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(event["fields"]["message"], "starting");
}
