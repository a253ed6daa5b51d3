//! A fixed range of seeds finds nothing, meets what it must meet, and every seed replays bit for
//! bit.

use simulator::runs::boundaries::live_boundaries;
use simulator::{Lives, Summary, live_seed, run};

/// Few enough for every build, many enough to meet each situation below.
const SEEDS: u64 = 240;

#[test]
fn the_first_seeds_find_nothing_and_meet_what_matters() {
    let summary = run(0..SEEDS, &Lives::default(), platform::thread::parallelism(), &|_| {});
    let reports: String = summary.failures.iter().map(simulator::Outcome::report).collect();
    assert!(summary.failures.is_empty(), "{reports}");
    assert_eq!(summary.seeds, SEEDS);
    for what in [
        "cut: syncing",
        "cut: sealing",
        "cut: during recovery",
        "cut: with a log write under way",
        "crash: operations lost that may be",
        "replay with records",
        "snapshot restored",
        "volume created",
        "volume deleted",
        "crash: the aggregate was not made",
        "crash: before a volume is created",
        "fault: log refuses writes",
        "no space",
        "open: degraded",
        "schedule: a message in the middle of another",
        "schedule: consistency points starve",
        "store: blocks repaired from parity",
        "world: unflushed writes torn",
    ] {
        assert!(summary.coverage.count(what) > 0, "no seed met '{what}'");
    }
}

#[test]
fn a_seed_replays_bit_for_bit() {
    let mut hashes = Vec::new();
    for seed in [1, 2, 3, 17, 42] {
        let [first, second] =
            [0, 1].map(|_| live_seed(seed, &Lives::default(), false).trace.hash());
        assert_eq!(first, second, "seed {seed}");
        hashes.push(first);
    }
    hashes.dedup();
    assert_eq!(hashes.len(), 5, "different seeds are different lives");
}

#[test]
fn a_cut_at_each_boundary_of_a_seed_finds_nothing() {
    let mut summary = Summary::default();
    let found = live_boundaries(1, &Lives::default(), &mut summary);
    assert!(found.is_none(), "{}", found.map(|outcome| outcome.report()).unwrap_or_default());
    assert!(summary.seeds > 100, "{} boundaries are none of a whole life", summary.seeds);
}

/// Lives that end with structures of a newer build.
#[test]
fn features_that_the_build_lacks_refuse_what_they_must_and_nothing_else() {
    let lives = Lives { lacking: true, ..Lives::default() };
    let summary = run(0..120, &lives, platform::thread::parallelism(), &|_| {});
    let reports: String = summary.failures.iter().map(simulator::Outcome::report).collect();
    assert!(summary.failures.is_empty(), "{reports}");
    for what in [
        "lacking: a label refuses the start",
        "lacking: a superblock refuses the start",
        "lacking: the log refuses the start",
        "lacking: a volume is read-only",
        "lacking: a volume is out of service",
        "lacking: a compatible feature is kept",
    ] {
        assert!(summary.coverage.count(what) > 0, "no seed met '{what}'");
    }
}

/// After a crash the orphans of a traditional volume were reaped, and it went on saying that space
/// was coming back: an operation for which there was no room waited for ever.
#[test]
fn regression_a_full_traditional_volume_refuses_after_orphans_were_reaped() {
    for seed in [2868, 3181] {
        let outcome = live_seed(seed, &Lives::default(), false);
        assert!(outcome.finding.is_none(), "{}", outcome.report());
    }
}

/// A group that could lose three disks was to leave, and waited for a scrub. The log had left it,
/// for the one disk that stayed: more copies were missed, which there was no place for.
#[test]
fn regression_a_log_has_as_many_copies_as_the_groups_that_stay_have_disks_for() {
    let outcome = live_seed(5648, &Lives::default(), false);
    assert!(outcome.finding.is_none(), "{}", outcome.report());
}

/// Rot of a parity disk, beside identities that it could not read: a row that was nobody's kept
/// these from being made good, and nobody was told; of rows in use a scrub told, as it must.
#[test]
fn regression_parity_that_rots_beside_unreadable_identities_is_made_good_or_told() {
    let lives = Lives { sick: true, ..Lives::default() };
    for seed in [28282, 1152] {
        let outcome = live_seed(seed, &lives, false);
        assert!(outcome.finding.is_none(), "{}", outcome.report());
    }
}
