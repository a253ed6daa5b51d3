//! The real binary: init, serve, commands over the socket, signals.
//!
//! Every wait is for an event (a line of the log, the end of a process), never for time.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Output, Stdio};

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap() };
        let state = place.path("state").display().to_string();
        let made = place.stroop(&[
            "init",
            "--dev-disks",
            "4x64M",
            "--nfs",
            "127.0.0.1:0",
            "--state-dir",
            &state,
        ]);
        assert!(made.status.success(), "{made:?}");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stroop"));
        command.env_remove("STROOP_SOCKET").env("STROOP_CONFIG", self.path("stroop.toml"));
        command
    }

    fn stroop(&self, words: &[&str]) -> Output {
        self.command().args(words).output().unwrap()
    }

    fn serve(&self) -> Server {
        let mut command = self.command();
        command.arg("serve").stderr(Stdio::piped()).stdin(Stdio::null());
        let mut server = Server::spawn(&mut command);
        let mut text = String::new();
        while !text.contains("ready") {
            text.clear();
            assert!(server.log.read_line(&mut text).unwrap() > 0, "the server ended");
        }
        server
    }
}

struct Server {
    child: Child,
    log: BufReader<ChildStderr>,
}

impl Server {
    fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log }
    }

    fn end(&mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

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
