//! Events, as a user lists and follows them.

use super::*;
use crate::arguments::{Cli, ClientCommand, Command};
use admin_api::memory::MemoryAdministration;
use admin_api::{
    AggregateCreate, DiskFail, RaidKind, Remote, Reply, Request, ScrubAction, ScrubChange,
    Transport, dispatch,
};
use clap::Parser as _;
use platform::sync::Mutex;
use std::io::Write;

/// A server that ends after so many calls, and on which a disk fails with each one.
struct Dying {
    node: MemoryAdministration,
    calls_left: Mutex<usize>,
}

impl Transport for Dying {
    fn call(&self, request: Request) -> Result<Reply, AdminError> {
        let mut left = self.calls_left.lock();
        if *left == 0 {
            return Err(AdminError::new(Code::Unreachable, "cannot reach the server at", "x"));
        }
        *left -= 1;
        let reply = dispatch(&self.node, &request);
        fail_disk(&self.node, "/disks/d2");
        reply
    }
}

fn fail_disk(node: &MemoryAdministration, disk: &str) {
    let _ = node.disk_fail(&DiskFail { disk: disk.to_owned(), dry_run: false });
}

/// A node on which a scrub was begun and ended, and a disk failed.
fn node() -> MemoryAdministration {
    let node = MemoryAdministration::with_disks(4);
    let disks = node.disk_list().unwrap().into_iter().map(|disk| disk.name).collect();
    node.aggregate_create(&AggregateCreate::new("a1", disks, RaidKind::Dp)).unwrap();
    for action in [ScrubAction::Start, ScrubAction::Stop] {
        let (aggregate, rate_bytes_per_second) = ("a1".to_owned(), None);
        node.scrub_change(&ScrubChange { aggregate, action, rate_bytes_per_second }).unwrap();
    }
    fail_disk(&node, "/disks/d1");
    node
}

fn typed(line: &str, node: &dyn Administration, out: &mut dyn Write) -> (u8, String) {
    let cli = Cli::try_parse_from(line.split_whitespace()).unwrap();
    let Command::Client(command @ ClientCommand::Event(_)) = &cli.command else {
        panic!("{line} is about no events")
    };
    let mut err = Vec::new();
    let program = "./stroop --config x".to_owned();
    let (err_out, input) = (&mut err, None);
    let mut terminal = Terminal {
        out,
        err: err_out,
        input,
        colour: false,
        columns: None,
        is_screen: false,
        program,
    };
    let status = crate::commands::run(command, &cli.options, node, &mut terminal);
    (status, String::from_utf8(err).unwrap())
}

fn ok(line: &str) -> String {
    let mut out = Vec::new();
    assert_eq!(typed(line, &node(), &mut out), (0, String::new()), "{line}");
    String::from_utf8(out).unwrap()
}

#[test]
fn events_are_listed_with_what_to_do() {
    let expected = "\
1970-01-01T00:00:01Z  info     SCRUB_STARTED  a1: as an administrator asked for
1970-01-01T00:00:02Z  info     SCRUB_CANCELLED  a1: as an administrator asked for
1970-01-01T00:00:03Z  warning  DISK_FAILED  /disks/d1: aggregate a1 does without it
      next: stroop status
";
    assert_eq!(ok("stroop event list"), expected);
    assert_eq!(ok("stroop event tail"), expected);
    assert_eq!(ok("stroop event list --severity warning -o name"), "3\n");
    assert_eq!(ok("stroop event list --most 2 -o name"), "2\n3\n");
    assert_eq!(ok("stroop event list --since 1970-01-01T00:00:02Z -o name"), "2\n3\n");
    assert_eq!(ok("stroop event list --since 1s -o name"), "2\n3\n");
    assert_eq!(ok("stroop event list --since 2026-01-01T00:00:00Z"), "no events\n");
    assert_eq!(ok("stroop event tail --after 2 -o name"), "3\n");
    let json: serde_json::Value = serde_json::from_str(&ok("stroop event list -o json")).unwrap();
    assert_eq!((&json["num_records"], &json["records"][2]["sequence"]), (&3.into(), &3.into()));
    let event = &json["records"][2];
    assert_eq!((&event["code"], &event["severity"]), (&"DISK_FAILED".into(), &"warning".into()));
    assert_eq!(event["time"], "1970-01-01T00:00:03Z");
    for wrong in ["--since yesterday", "--severity bad", "--most 0"] {
        let line = format!("stroop event list {wrong}");
        assert!(Cli::try_parse_from(line.split_whitespace()).is_err(), "{wrong}");
    }
}

#[test]
fn events_are_followed_until_the_server_ends() {
    let server = Remote(Dying { node: node(), calls_left: Mutex::new(2) });
    let mut out = Vec::new();
    let (status, error) = typed("stroop event tail -f --most 1 -o json", &server, &mut out);
    let events: Vec<serde_json::Value> = String::from_utf8(out)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let shown: Vec<(u64, &str)> = events
        .iter()
        .map(|one| (one["sequence"].as_u64().unwrap(), one["object"].as_str().unwrap()))
        .collect();
    assert_eq!(shown, [(3, "/disks/d1"), (4, "/disks/d2")]);
    assert_eq!(status, Code::Unreachable.exit_status());
    assert!(error.contains("events up to number 4 were shown"), "{error}");
    assert!(error.contains("./stroop --config x event tail -f --after 4"), "{error}");
}

#[test]
fn events_that_are_not_kept_any_more_are_counted() {
    let told = |asked: EventList| {
        let cli = Cli::try_parse_from(["stroop", "event", "tail"]).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let program = "stroop".to_owned();
        let mut terminal = Terminal {
            out: &mut out,
            err: &mut err,
            input: None,
            colour: false,
            columns: None,
            is_screen: false,
            program,
        };
        let events = node().event_list(&EventList { after: Some(2), ..asked }).unwrap();
        show(&events, &asked, &cli.options, &mut terminal).unwrap();
        String::from_utf8(err).unwrap()
    };
    let asked = EventList { after: Some(1), ..EventList::default() };
    assert_eq!(told(asked), "not kept any more: 1 event after number 1\n");
    assert_eq!(told(EventList { after: Some(2), ..asked }), "");
    assert_eq!(told(EventList { severity: Some(EventSeverity::Warning), ..asked }), "");
}

/// Says after a line that nobody reads any more.
struct Head(Vec<u8>);

impl Write for Head {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.contains(&b'\n') {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn whoever_has_seen_enough_ends_it() {
    let mut head = Head(Vec::new());
    assert_eq!(typed("stroop event tail -f", &node(), &mut head), (0, String::new()));
    assert!(head.0.starts_with(b"1970-01-01T00:00:01Z"));
}
