//! Broken rules are noticed: one of each kind of checker, few enough for every build. The whole
//! list is `simulator mutations`; what it came to stands in docs/testing.md.

use platform::mutation::{Rule, break_rule};
use platform::sync::Mutex;
use simulator::runs::mutations::{lives_of, try_rule};
use simulator::runs::shrink::shrink;
use simulator::{Lives, live_seed};

/// One rule is broken at a time in the whole process.
static ONE: Mutex<()> = Mutex::new(());

/// Most of the rules below take a tenth of a hundred. Which one is found how early is chance, and
/// is another with each new thing that lives do.
const SEEDS: u64 = 600;

#[test]
fn rules_broken_on_purpose_are_noticed() {
    let _one = ONE.lock();
    let jobs = platform::thread::parallelism();
    for rule in [
        Rule::SuperblockBeforeBlocks,
        Rule::PinnedBlockUsed,
        Rule::FreeForgotten,
        Rule::ScoreForgotten,
        Rule::SnapshotHoldIgnored,
        Rule::LogAcknowledgedEarly,
        Rule::RecordReplayedTwice,
        Rule::ParityStale,
        Rule::CacheEntryKept,
        Rule::RestartAfterMutation,
        Rule::RepeatedWriteDoneAgain,
        Rule::SupersededCopyFails,
        Rule::SealUnchecked,
        Rule::ReadOnlyFeatureWritten,
        Rule::NewerLogPassedOver,
        Rule::LocksInGrace,
        Rule::ChangeAnsweredEarly,
        Rule::RulesToldEarly,
        Rule::AccessListIgnored,
        Rule::InheritanceNotReplayed,
        Rule::QuotaPassed,
        Rule::QuotaNotGivenBack,
        Rule::TreeNotInherited,
    ] {
        let row = try_rule(rule, 0..SEEDS, &lives_of(rule), jobs);
        assert!(row.outcome.is_some(), "{}: nobody noticed in {SEEDS} seeds", rule.name());
    }
}

#[test]
fn a_finding_shrinks_to_a_life_that_replays() {
    let _one = ONE.lock();
    let rule = Rule::FreeForgotten;
    let row = try_rule(rule, 0..SEEDS, &Lives::default(), 1);
    let found = row.outcome.expect("it is noticed");
    break_rule(Some(rule));
    let small = shrink(found.seed, &Lives::default(), &mut |_| ()).expect("it is noticed again");
    let text = small.reduction.to_string();
    let reduction = text.parse().expect("what is printed is read back");
    let again = live_seed(found.seed, &Lives { reduction, ..Lives::default() }, false);
    break_rule(None);
    assert_eq!(again.trace.hash(), small.trace.hash(), "{text}");
    assert!(small.trace.operations < found.trace.operations / 2, "{text}");
}
