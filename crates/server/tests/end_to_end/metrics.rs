//! `/metrics` and its neighbours over HTTP, and what is made for them in `packaging/`.

use crate::files::{connect, content};
use crate::place::Place;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

/// A place whose server shows metrics on a free port of this machine.
fn place() -> Place {
    let place = Place::new();
    let path = place.path("stroop.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(path, config.replace("[listen]\n", "[listen]\nmetrics = \"0\"\n")).unwrap();
    place
}

fn address(place: &Place) -> SocketAddr {
    let status = place.json(&["status"]);
    let listeners = status["listeners"].as_array().unwrap();
    let metrics = listeners.iter().find(|listener| listener["protocol"] == "metrics").unwrap();
    metrics["address"].as_str().unwrap().parse().unwrap()
}

/// Status and body of the answer to GET.
fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: stroop\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The value of a series; none if it is not there.
fn value(text: &str, series: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    rest.map(|rest| rest.parse().unwrap())
}

/// Connections that there may be at a time (docs/metrics.md).
const CONNECTIONS_MAX: usize = 16;

/// How often a test asks for what is to come: some minutes.
const TRIES_MAX: usize = 20_000;

/// Metrics that are at least as new as what `is_new` waits for: they are shown for a second.
fn until(address: SocketAddr, is_new: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    for _ in 0..TRIES_MAX {
        let (status, shown) = get(address, "/metrics");
        assert_eq!(status, 200, "{shown}");
        if is_new(&shown) {
            return shown;
        }
        text = shown;
    }
    panic!("what was waited for did not come: {text}");
}

/// Waits until `is_so`.
fn wait_until(place: &Place, is_so: impl Fn() -> bool) {
    assert!((0..TRIES_MAX).any(|_| is_so()), "{}", place.ok(&["status"]));
}

/// Names of metrics in a text, without the ends of a histogram's samples.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let words = text.split(|letter| !is_part(letter));
    let names = words.filter(|word| word.starts_with("stroop_"));
    let stem = |name: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name).to_owned()
    };
    names.map(stem).collect()
}

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn what_clients_do_is_shown_over_http() {
    let place = place();
    let server = place.serve();
    let address = address(&place);
    assert!(address.ip().is_loopback(), "a port alone is one of this machine: {address}");
    place.ok(&["aggr", "create", "a1", "--disks", "4", "--raid", "raid4"]);
    let export = "127.0.0.1:rw:none:insecure";
    for volume in ["home", "gone"] {
        place.ok(&["volume", "create", volume, "--size", "50M", "--export", export]);
    }
    let (mut client, root) = connect(&place);
    let file = client.create(&root, "file").unwrap();
    let data = content(1, 100_000);
    client.write(&file, 0, &data, true).unwrap();
    assert!(client.read(&file).unwrap() == data);
    place.ok(&["sync"]);
    place.ok(&["disk", "fail", "d4", "--yes"]);

    let read = "stroop_volume_transferred_bytes_total\
                {direction=\"read\",protocol=\"nfs\",volume=\"home\"}";
    let is_read = |text: &str| value(text, read).is_some_and(|bytes| bytes >= 100_000.0);
    let text = until(address, |text| is_read(text) && text.contains("stroop_health_check"));
    assert_eq!(telemetry::exposition::check(&text), Ok(()), "{text}");
    for (series, least) in [
        ("stroop_op_duration_seconds_count{op=\"write\",protocol=\"nfs\"}", 1.0),
        ("stroop_op_duration_seconds_count{op=\"create\",protocol=\"nfs\"}", 1.0),
        (
            "stroop_volume_op_duration_seconds_bucket\
             {op=\"write\",protocol=\"nfs\",volume=\"home\",le=\"+Inf\"}",
            1.0,
        ),
        (
            "stroop_volume_transferred_bytes_total\
             {direction=\"write\",protocol=\"nfs\",volume=\"home\"}",
            100_000.0,
        ),
        ("stroop_aggregate_state{aggregate=\"a1\",state=\"degraded\"}", 1.0),
        ("stroop_cp_duration_seconds_count{aggregate=\"a1\",phase=\"syncing\"}", 1.0),
        ("stroop_cp_total{aggregate=\"a1\"}", 1.0),
        ("stroop_log_size_bytes{aggregate=\"a1\"}", 1e6),
        ("stroop_volume_files{volume=\"home\"}", 2.0),
        ("stroop_memory_bytes{consumer=\"metrics\"}", 1e4),
        ("stroop_client_connections{protocol=\"nfs\"}", 1.0),
    ] {
        let found = value(&text, series);
        assert!(found.is_some_and(|found| found >= least), "{series} {found:?}\n{text}");
    }
    assert_eq!(value(&text, "stroop_cp_back_to_back_total{aggregate=\"a1\"}"), Some(0.0));
    let of_disks = |name: &str, labels: &str| {
        text.lines().filter(|line| line.starts_with(name) && line.contains(labels)).count()
    };
    assert_eq!(of_disks("stroop_disk_state{", "state=\"in_use\""), 3);
    assert_eq!(of_disks("stroop_disk_state{", "state=\"failed\""), 1);
    assert!(of_disks("stroop_disk_ops_total{", "op=\"flush\"") >= 3);

    let shown: BTreeSet<String> = names(&text);
    let typed = names(&place.ok(&["metrics"]));
    assert_eq!(shown, typed, "the command shows the same");
    for path in ["packaging/grafana/stroop.json", "packaging/prometheus/stroop-alerts.yml"] {
        let used = names(&fs::read_to_string(repository(path)).unwrap());
        assert!(used.len() > 5, "{path}: {used:?}");
        let strange: Vec<&String> = used.difference(&shown).collect();
        assert!(strange.is_empty(), "{path} names what is not there: {strange:?}");
    }

    let (status, health) = get(address, "/healthz");
    assert!(status == 200 && health.starts_with("WARNING\n"), "{health}");
    assert!(health.contains("warning AGGR_DEGRADED"), "{health}");
    assert_eq!(get(address, "/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(get(address, "/state/audit.jsonl").0, 404);

    // Whatever had the volume as its label goes with it.
    place.ok(&["volume", "delete", "gone", "--yes"]);
    until(address, |text| !text.contains("volume=\"gone\""));
    server.stop();
    TcpStream::connect(address).unwrap_err();
}

#[test]
fn metrics_are_off_unless_they_are_configured() {
    let (place, _server) = Place::with_volume();
    let status = place.json(&["status"]);
    let listeners = status["listeners"].as_array().unwrap();
    assert!(listeners.iter().all(|listener| listener["protocol"] != "metrics"), "{status}");
}

/// Counters stood still after an outage until they passed their old values, and no free space was
/// shown meanwhile, as of a full aggregate.
#[test]
fn regression_counters_of_an_aggregate_go_on_after_an_outage() {
    let (place, server) = Place::with_volume_on("3x64M", ("3", "raid4"));
    let (mut client, root) = connect(&place);
    let points = || {
        let text = place.ok(&["metrics"]);
        value(&text, "stroop_cp_total{aggregate=\"a1\"}").unwrap()
    };
    let space = "stroop_aggregate_bytes{aggregate=\"a1\",kind=\"free\"}";
    for number in 0..10 {
        place.ok(&["snapshot", "create", &format!("home@before-{number}")]);
    }
    let before = points();
    assert!(before > 10.0, "{before}");
    assert!(place.ok(&["metrics"]).contains(space));
    let away = |number: usize| place.path(&format!("away-{number}"));
    for number in [1, 2] {
        fs::rename(place.disk(number), away(number)).unwrap();
    }
    // Sooner or later it is written to the disks, which shows that they are gone.
    let _ = client.create(&root, "file");
    let is_away = || place.check_codes().contains(&"AGGR_OFFLINE".to_owned());
    wait_until(&place, is_away);
    let text = place.ok(&["metrics"]);
    assert!(!text.contains("stroop_aggregate_bytes{aggregate=\"a1\""), "{text}");
    assert_eq!(
        value(&text, "stroop_aggregate_state{aggregate=\"a1\",state=\"offline\"}"),
        Some(1.0)
    );
    for number in [1, 2] {
        fs::rename(away(number), place.disk(number)).unwrap();
    }
    wait_until(&place, || !is_away());
    let back = points();
    assert!(back >= before, "{back} < {before}");
    place.ok(&["snapshot", "create", "home@after"]);
    let after = points();
    assert!(after > back, "{after} after {back}");
    assert!(place.ok(&["metrics"]).contains(space));
    server.stop();
}

/// Scrapers that do not read, as many as there may be, hold up neither other scrapers, nor clients,
/// nor the stop.
#[test]
fn slow_scrapers_cost_only_themselves() {
    let place = place();
    let server = place.serve();
    let address = address(&place);
    let slow: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a").unwrap();
            stream
        })
        .collect();
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(get(address, path).0, 200, "{path}");
    }
    assert!(place.check_codes().is_empty());
    server.stop();
    drop(slow);
}

/// A port that another has is told at the start, with the key to change.
#[test]
fn a_port_in_use_is_told() {
    let place = place();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let path = place.path("stroop.toml");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(path, config.replace("metrics = \"0\"", &format!("metrics = \"{address}\"")))
        .unwrap();
    let refused = place.refused(&["serve"], 4);
    assert!(refused.contains("cannot show metrics on"), "{refused}");
    assert!(refused.contains("another [listen] metrics in"), "{refused}");
}
