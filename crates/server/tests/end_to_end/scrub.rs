//! Scrubs of a running server's aggregate: rot that nobody reads is found, repaired, and told.

use crate::faults::rot;
use crate::files::{check, connect, fill};
use crate::place::Place;
use inspect::Inspector;
use platform::DiskOpener as _;
use platform::linux::{DiskOpener, IoEngineKind};
use serde_json::Value;

fn scrub(place: &Place) -> Value {
    place.json(&["scrub", "status", "a1"])
}

/// A scrub from its beginning to its end.
fn scrub_all(place: &Place) -> Value {
    let started = place.ok(&["scrub", "start", "a1"]);
    assert!(started.starts_with("a1: scrub "), "{started}");
    while scrub(place)["state"] == "running" {}
    let done = scrub(place);
    assert_eq!(done["state"], "finished");
    assert_eq!(done["done_bytes"], done["size_bytes"]);
    done
}

/// Whether the independent reader finds nothing wrong on the disks.
fn is_clean(place: &Place, disks: usize) -> bool {
    let opener = DiskOpener::new(IoEngineKind::Automatic).unwrap();
    let disks = (1..=disks).map(|number| opener.open(&place.disk(number).display().to_string()));
    let disks = disks.collect::<Result<Vec<_>, _>>().unwrap();
    let report = Inspector::open_blocking(disks).unwrap().check().unwrap();
    println!("{report}");
    report.is_clean()
}

/// On a disk of data and on one of parity, while the server runs and nobody reads.
#[test]
fn rot_that_nobody_reads_is_found_and_repaired() {
    for harmed in [1, 3] {
        let (place, server) = Place::with_volume();
        let (mut client, root) = connect(&place);
        let model = fill(&mut client, &root, 1);
        assert!(place.ok(&["status"]).contains("never"));
        let unread = scrub(&place);
        assert_eq!((&unread["state"], &unread["started"]), (&"never".into(), &Value::Null));
        server.stop();
        assert!(rot(&place.disk(harmed), |index| index * 37) > 100);
        assert!(!is_clean(&place, 4), "there is something to be found");
        let server = place.serve();
        let found = scrub_all(&place);
        let of = |field: &str| found[field].as_u64().unwrap();
        let repaired = [
            of("repaired_data_blocks"),
            of("repaired_checksum_blocks"),
            of("repaired_parity_blocks"),
        ];
        assert!(repaired.iter().sum::<u64>() > 100, "{found}");
        assert_eq!(of("repaired_parity_blocks") > 0, harmed == 1, "{found}");
        assert_eq!(of("damaged_blocks"), 0, "{found}");
        let told = format!("found {0}, repaired {0}", repaired.iter().sum::<u64>());
        assert!(place.ok(&["status"]).contains(&told), "{told}");
        assert!(place.ok(&["scrub", "status", "a1"]).contains(&told), "{told}");
        server.stop();
        assert!(is_clean(&place, 4));
        // What it found it still knows; the next finds nothing.
        let server = place.serve();
        assert!(place.ok(&["aggr", "list"]).contains(&told), "{told}");
        scrub_all(&place);
        assert!(place.ok(&["status"]).contains("ok, just now"));
        let (mut client, root) = connect(&place);
        check(&mut client, &root, &model);
        server.stop();
    }
}

/// As slow as it may be, paused and resumed, and killed on the way: it goes on where it was.
#[test]
fn a_scrub_goes_on_after_a_kill_and_stays_paused() {
    let (place, server) = Place::with_volume();
    place.refused(&["scrub", "pause", "a1"], 4);
    place.refused(&["scrub", "start", "a9"], 3);
    place.refused(&["scrub", "start", "a1", "--rate", "1"], 2);
    place.ok(&["scrub", "start", "a1", "--rate", "16M"]);
    place.refused(&["scrub", "start", "a1"], 4);
    // A sixteenth of 256 MiB is when the labels say how far it is.
    while scrub(&place)["done_bytes"].as_u64().unwrap() < 40 << 20 {}
    assert!(place.ok(&["status"]).contains("running"));
    server.kill();
    let server = place.serve();
    let after = scrub(&place);
    assert_eq!(after["state"], "running");
    assert!(after["done_bytes"].as_u64().unwrap() >= 16 << 20, "{after}");
    assert_eq!(after["rate_bytes_per_second"], 16 << 20);
    let paused = place.ok(&["scrub", "pause", "a1"]);
    assert!(paused.contains("paused at"), "{paused}");
    server.kill();
    let server = place.serve();
    assert_eq!(scrub(&place)["state"], "paused");
    place.ok(&["scrub", "resume", "a1", "--rate", "10G"]);
    while scrub(&place)["state"] == "running" {}
    assert!(place.ok(&["status"]).contains("ok, just now"));
    place.ok(&["scrub", "start", "a1", "--rate", "1M"]);
    let stopped = place.ok(&["scrub", "stop", "a1"]);
    assert!(stopped.contains("stopped at 0%"), "{stopped}");
    server.stop();
}
