//! Broken rules are noticed: one of each kind of checker, few enough for every build. The whole
//! list is `simulator mutations`; what it came to stands in docs/testing.md.

use platform::mutation::Rule;
use simulator::Lives;
use simulator::mutations::try_rule;

/// Each of the rules below takes a tenth of them.
const SEEDS: u64 = 100;

#[test]
fn rules_broken_on_purpose_are_noticed() {
    let jobs = platform::thread::parallelism();
    for rule in [
        Rule::SuperblockBeforeBlocks,
        Rule::FreeForgotten,
        Rule::SnapshotHoldIgnored,
        Rule::LogAcknowledgedEarly,
        Rule::RecordReplayedTwice,
        Rule::ParityStale,
        Rule::CacheEntryKept,
        Rule::RestartAfterMutation,
    ] {
        let row = try_rule(rule, 0..SEEDS, &Lives::default(), jobs);
        assert!(row.outcome.is_some(), "{}: nobody noticed in {SEEDS} seeds", rule.name());
    }
}
