//! The file of records: its lines, its bounds, and what becomes of them when it cannot be written.

use super::*;
use admin_api::{Code, DiskFail, Request};
use admin_server::Peer;
use platform::thread::spawn;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::sync::Arc;
use units::Timestamp;

const PEER: Peer = Peer { uid: 1000, pid: 4242 };

fn fail(disk: &str) -> Request {
    Request::DiskFail(DiskFail { disk: disk.to_owned(), dry_run: false })
}

fn change(audit: &AuditFile, request: &Request, result: Result<(), Code>) {
    let began = Timestamp::from_parts(1_800_000_000, 5);
    audit.changed(&Change { peer: PEER, request, result, began, duration_nanoseconds: 7 });
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_record_says_who_did_what_and_how_it_ended() {
    let directory = tempfile::tempdir().unwrap();
    let audit = AuditFile::new(directory.path());
    change(&audit, &fail("d1\n{\"uid\":0}"), Ok(()));
    change(&audit, &Request::Shutdown, Err(Code::NotFound));
    let path = directory.path().join("audit.jsonl");
    let head = json!({ "time": "2027-01-15T08:00:00.000000005Z", "uid": 1000, "pid": 4242 });
    let expected = |rest: Value| {
        let mut all = head.clone();
        all.as_object_mut().unwrap().append(&mut rest.as_object().unwrap().clone());
        all
    };
    let first = expected(json!({
        "command": "disk_fail",
        "arguments": { "disk": "d1\n{\"uid\":0}", "dry_run": false },
        "result": "ok",
        "duration_ns": 7,
    }));
    let second = expected(json!({
        "command": "shutdown", "arguments": {}, "result": "not_found", "duration_ns": 7,
    }));
    assert_eq!(lines(&path), [first, second]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(audit.failure(), None);
}

#[test]
fn regression_a_file_that_was_moved_away_is_begun_anew() {
    let directory = tempfile::tempdir().unwrap();
    let audit = AuditFile::new(directory.path());
    let path = directory.path().join("audit.jsonl");
    let rotated = directory.path().join("audit.jsonl-20261128");
    change(&audit, &fail("d1"), Ok(()));
    fs::rename(&path, &rotated).unwrap();
    change(&audit, &fail("d2"), Ok(()));
    fs::remove_file(&path).unwrap();
    change(&audit, &fail("d3"), Ok(()));
    let disks = |path: &Path| -> Vec<Value> {
        lines(path).iter().map(|line| line["arguments"]["disk"].clone()).collect()
    };
    assert_eq!((disks(&rotated), disks(&path)), (vec![json!("d1")], vec![json!("d3")]));
    assert_eq!(audit.failure(), None);
}

#[test]
fn keys_are_never_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let audit = AuditFile::new(directory.path());
    let wrong = [
        "s3://AKIA:SECRET@bucket/x",
        "s3://bucket/x?secret=SECRET",
        "https://u:SECRET@host/",
        "S3:AKIA:SECRET@bucket/x",
        " s3:/AKIA:SECRET@bucket/x",
        "Object:u:SECRET@host",
    ];
    for disk in wrong {
        change(&audit, &fail(disk), Err(Code::NotFound));
        assert!(audit.may_hold_secret(&fail(disk)), "{disk}");
    }
    let path = directory.path().join("audit.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("SECRET"), "{text}");
    for disk in ["s3://bucket/x", "object:/srv/x", "disks3", "file:/srv/d1"] {
        change(&audit, &fail(disk), Ok(()));
        assert!(!audit.may_hold_secret(&fail(disk)), "{disk}");
        assert_eq!(lines(&path).last().unwrap()["arguments"]["disk"], disk);
    }
}

#[test]
fn the_files_are_bounded_and_the_oldest_records_go_first() {
    let directory = tempfile::tempdir().unwrap();
    let mut audit = AuditFile::new(directory.path());
    audit.file_bytes_max = 1000;
    for number in 0..100 {
        change(&audit, &fail(&format!("disk{number}")), Ok(()));
    }
    let mut kept: Vec<Value> = Vec::new();
    for number in (1..FILES_MAX).rev() {
        kept.append(&mut lines(&audit.older(number)));
    }
    kept.append(&mut lines(&audit.path()));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), FILES_MAX as usize);
    for file in fs::read_dir(directory.path()).unwrap() {
        assert!(file.unwrap().metadata().unwrap().len() <= 1000);
    }
    let first = 100 - kept.len();
    assert!((10..90).contains(&first), "{first}");
    for (at, line) in kept.iter().enumerate() {
        assert_eq!(line["arguments"]["disk"], format!("disk{}", first + at));
    }
}

#[test]
fn a_change_outlives_its_record_and_the_gap_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let audit = AuditFile::new(&state);
    change(&audit, &fail("d1"), Ok(()));
    change(&audit, &fail("d2"), Ok(()));
    let failure = audit.failure().unwrap();
    assert_eq!(failure.lost_records, 2);
    assert!(failure.path.ends_with("state/audit.jsonl"), "{failure:?}");
    assert!(failure.cause.contains("No such file"), "{failure:?}");
    fs::create_dir(&state).unwrap();
    change(&audit, &fail("d3"), Ok(()));
    assert_eq!(audit.failure(), None);
    let found = lines(&audit.path());
    assert_eq!(found.len(), 2);
    assert_eq!(found[0]["lost_records"], 2);
    assert_eq!(found[1]["arguments"]["disk"], "d3");
}

#[test]
fn a_record_that_was_cut_short_keeps_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let audit = AuditFile::new(directory.path());
    fs::write(audit.path(), "{\"time\":\"2026").unwrap();
    change(&audit, &fail("d1"), Ok(()));
    let text = fs::read_to_string(audit.path()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "{\"time\":\"2026");
    assert_eq!(serde_json::from_str::<Value>(lines[1]).unwrap()["arguments"]["disk"], "d1");
    assert_eq!(fs::metadata(audit.path()).unwrap().permissions().mode() & 0o777, 0o600);
}

/// `status` and the watch waited with a change that could not be written, and all events with them.
#[test]
fn regression_a_change_that_hangs_holds_up_nobody_who_asks_for_health() {
    let directory = tempfile::tempdir().unwrap();
    let audit = Arc::new(AuditFile::new(directory.path()));
    let path = audit.path();
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let same = Arc::clone(&audit);
    // More than a pipe takes.
    let writer = move || change(&same, &fail(&"d".repeat(1 << 20)), Ok(()));
    let writer = spawn("writer", writer).unwrap();
    let mut reader = File::open(&path).unwrap();
    reader.read_exact(&mut [0]).unwrap();
    assert!(audit.open.try_lock().is_none(), "the record is being written");
    assert_eq!(audit.failure(), None);
    reader.read_to_end(&mut Vec::new()).unwrap();
    writer.join().unwrap();
    // A pipe cannot be made durable.
    assert_eq!(audit.failure().unwrap().lost_records, 1);
}

/// The line of lost records stayed when the record behind it could not be written, and was told
/// again by the next one.
#[test]
fn regression_a_text_that_an_error_cut_short_is_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let audit = AuditFile::new(directory.path());
    change(&audit, &fail("d1"), Ok(()));
    let mut open = audit.open().unwrap();
    let cut_short = open.append("{\"lost_records\":1}\n{}\n", |file, bytes| {
        file.write_all(&bytes[..21])?;
        Err(io::ErrorKind::StorageFull.into())
    });
    assert_eq!(cut_short.unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(lines(&audit.path()).len(), 1);
    open.append("{}\n", |file, bytes| file.write_all(bytes)).unwrap();
    assert_eq!(lines(&audit.path())[1], json!({}));
}

/// What a subscriber was told.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_log_has_the_whole_record() {
    let directory = tempfile::tempdir().unwrap();
    let audit = AuditFile::new(directory.path());
    let log = Log::default();
    let own = log.clone();
    let subscriber = tracing_subscriber::fmt().json().with_writer(move || own.clone()).finish();
    // A test beside this one may just have reached the same call of `tracing` for the first time.
    // It has no subscriber, and decides then that nobody heeds the call.
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..1000 {
            if !log.0.lock().is_empty() {
                break;
            }
            tracing::callsite::rebuild_interest_cache();
            change(&audit, &fail("d1"), Ok(()));
        }
    });
    let told: Value = serde_json::from_slice(&log.0.lock()).unwrap();
    let record = told["fields"]["record"].as_str().unwrap();
    let recorded = fs::read_to_string(audit.path()).unwrap();
    assert_eq!(Some(record), recorded.lines().last());
    assert_eq!(told["level"], "INFO");
}
