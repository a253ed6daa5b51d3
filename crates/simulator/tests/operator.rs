//! A fixed range of seeds with an operator finds nothing, meets what it must meet, and replays bit
//! for bit.

use simulator::{Lives, live_seed, run};

/// Few enough for every build, many enough to meet each situation below.
const SEEDS: u64 = 100;

fn lives() -> Lives {
    Lives { operator: true, ..Lives::default() }
}

#[test]
fn an_operator_finds_nothing_and_meets_what_matters() {
    let summary = run(0..SEEDS, &lives(), platform::thread::parallelism(), &|_| {});
    let reports: String = summary.failures.iter().map(simulator::Outcome::report).collect();
    assert!(summary.failures.is_empty(), "{reports}");
    for what in [
        "operator: volume create",
        "operator: volume delete",
        "operator: volume set",
        "operator: snapshot create",
        "operator: snapshot delete",
        "operator: snapshot restore",
        "operator: export rules changed",
        "operator: mounts",
        "operator: scrub",
        "operator: spares",
        "operator: disk fail",
        "operator: disk replace",
        "operator: disk zero",
        "operator: disks join",
        "operator: a group leaves",
        "operator: jobs changed",
        "operator: a disk of the aggregate goes",
        "operator: a disk that went is there again",
        "operator: work with disks is over",
        "operator: a call refused",
        "operator: a call that was cut off has happened",
        "operator: a call that was cut off has not happened",
        "operator: the aggregate is made again after a cut",
        "operator: a clean stop",
        "operator: a disk that left is told",
        "operator: a disk that returned is told",
        "operator: a replaced disk is told",
        "operator: an outage is told",
        "cut: during recovery",
    ] {
        assert!(summary.coverage.count(what) > 0, "no seed met '{what}'");
    }
}

/// The power went when the aggregate was made and its spare was not: a finding, though nothing was
/// answered.
#[test]
fn regression_an_aggregate_is_made_and_a_cut_leaves_it_without_its_spares() {
    for seed in [1179, 1379] {
        let outcome = live_seed(seed, &lives(), false);
        assert!(outcome.finding.is_none(), "{}", outcome.report());
    }
}

/// All of a disk was filled, and the labels that say so were being written: its job was refused
/// another rate as if the node had failed, and not because the work was over.
#[test]
fn regression_a_job_whose_work_is_over_is_refused_as_one_that_is_over() {
    let outcome = live_seed(70213, &lives(), false);
    assert!(outcome.finding.is_none(), "{}", outcome.report());
}

#[test]
fn a_life_with_an_operator_replays_bit_for_bit() {
    let [first, second] = [0, 1].map(|_| live_seed(7, &lives(), false).trace.hash());
    assert_eq!(first, second);
}
