//! Features of the format: listed, and lacking.

use crate::files::{check, connect, fill};
use crate::place::Place;
use ondisk::features::{FeatureClass, FeatureScope};
use ondisk::newer::with_feature;
use std::fs;
use std::path::{Path, PathBuf};
use units::Block;

const BLOCK_BYTES: usize = 4096;

/// Has a newer build give a block of a file a feature.
fn use_feature(path: &Path, at: usize, of: FeatureScope, class: FeatureClass, name: &str) {
    let mut content = fs::read(path).unwrap();
    let bytes = &mut content[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES];
    let newer = with_feature(&Block::from_prefix(bytes), of, class, (40, name));
    bytes.copy_from_slice(newer.bytes());
    fs::write(path, content).unwrap();
}

fn journal(place: &Place) -> PathBuf {
    let mut files = fs::read_dir(place.path("state/journal")).unwrap();
    files.next().unwrap().unwrap().path()
}

/// The content of all disks and of the journal.
fn content(place: &Place) -> Vec<Vec<u8>> {
    let disks = (1..=4).map(|number| place.disk(number));
    disks.chain([journal(place)]).map(|path| fs::read(path).unwrap()).collect()
}

/// The features of the aggregate in JSON, each as "NAME SCOPE CLASS SUPPORTED".
fn listed(place: &Place) -> Vec<String> {
    let shown = place.json(&["aggr", "show", "a1"]);
    let checked = place.json(&["upgrade", "check"]);
    assert_eq!(checked["aggregates"][0]["features"], shown["features"]);
    let text = |value: &serde_json::Value| value.to_string().replace('"', "");
    let features = shown["features"].as_array().unwrap().iter();
    let fields = ["feature", "scope", "class", "supported"];
    features.map(|one| fields.map(|field| text(&one[field])).join(" ")).collect()
}

#[test]
fn features_are_listed_and_a_start_that_lacks_one_changes_nothing() {
    let (place, server) = Place::with_volume_on("4x64M", ("4", "dp"));
    let own = [
        "disk-numbers disk compatible true",
        "double-parity disk incompatible true",
        "snapshot-schedule volume compatible true",
    ];
    assert_eq!(listed(&place), own);
    let report = place.ok(&["upgrade", "check"]);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = report.lines().map(words).collect();
    for line in [
        "double-parity disk label incompatible has it a1",
        "moved-blocks volume incompatible has it -",
    ] {
        assert!(lines.iter().any(|found| found == line), "{report}");
    }
    let (mut client, root) = connect(&place);
    let model = fill(&mut client, &root, 1);
    server.stop();
    for copy in [0, 1] {
        let harmless = (FeatureScope::Log, FeatureClass::Compatible);
        use_feature(&journal(&place), copy, harmless.0, harmless.1, "harmless");
    }
    // The bit is there after consistency points of a build that lacks the feature.
    for _ in 0..2 {
        let server = place.serve();
        assert_eq!(listed(&place)[own.len()..], ["harmless log compatible false"]);
        let shown = place.ok(&["aggr", "show", "a1"]);
        assert!(shown.contains("harmless (journal; compatible; this build lacks it)"), "{shown}");
        server.stop();
    }
    // One copy of a header is enough, and one disk that parity could do without.
    let incompatible = FeatureClass::Incompatible;
    let places = [
        (journal(&place), 1, FeatureScope::Log, "uses the feature 'later'"),
        (place.disk(2), 0, FeatureScope::Disk, "a newer build of Stroop labelled these disks"),
        (place.disk(3), 8, FeatureScope::Aggregate, "uses the feature 'later'"),
    ];
    for (path, at, scope, why) in places {
        let whole = fs::read(&path).unwrap();
        use_feature(&path, at, scope, incompatible, "later");
        let before = content(&place);
        let server = place.serve();
        let refusal = place.json(&["upgrade", "check"])["aggregates"][0]["refusal"].to_string();
        assert!(refusal.contains(why), "{scope}: {refusal}");
        assert!(place.ok(&["upgrade", "check"]).contains("a1 is out of service: "));
        assert_eq!(place.check_codes()[0], "AGGR_OFFLINE", "{scope}");
        server.stop();
        assert!(content(&place) == before, "{scope}: the start that was refused has written");
        fs::write(&path, whole).unwrap();
    }
    let server = place.serve();
    let (mut client, root) = connect(&place);
    check(&mut client, &root, &model);
    server.stop();
}
