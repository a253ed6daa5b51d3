//! A fixed range of seeds with NFS clients finds nothing, meets what it must meet, and replays bit
//! for bit.

use simulator::{FrontEnd, Lives, live_seed, run};

/// Few enough for every build, many enough to meet each situation below.
const SEEDS: u64 = 60;

fn lives() -> Lives {
    Lives { front_end: FrontEnd::Nfs, ..Lives::default() }
}

#[test]
fn clients_over_nfs_find_nothing_and_meet_what_matters() {
    let summary = run(0..SEEDS, &lives(), platform::thread::parallelism(), &|_| {});
    let reports: String = summary.failures.iter().map(simulator::Outcome::report).collect();
    assert!(summary.failures.is_empty(), "{reports}");
    for what in [
        "nfs: a call repeated over its connection",
        "nfs: a call sent over a new connection",
        "nfs: a call read late, over a connection that was given up",
        "nfs: a second answer to a call",
        "nfs: numbers of calls that begin again",
        "nfs: a call refused in an outage",
        "nfs: a handle that was made up is refused",
        "nfs: a handle that was made up locks nothing",
        "outage: back without a start",
        "cut: with a log write under way",
        "cut: during recovery",
    ] {
        assert!(summary.coverage.count(what) > 0, "no seed met '{what}'");
    }
}

#[test]
fn a_life_with_clients_replays_bit_for_bit() {
    let [first, second] = [0, 1].map(|_| live_seed(7, &lives(), false).trace.hash());
    assert_eq!(first, second);
}
