//! Tiering policies in the words of the interface and of the engine.

use admin_api::{TieringPolicy, VolumeCreate};
use dblade::Tiering;

pub(crate) const fn shown_policy(policy: dblade::TieringPolicy) -> TieringPolicy {
    match policy {
        dblade::TieringPolicy::None => TieringPolicy::None,
        dblade::TieringPolicy::SnapshotOnly => TieringPolicy::SnapshotOnly,
        dblade::TieringPolicy::Auto => TieringPolicy::Auto,
        dblade::TieringPolicy::All => TieringPolicy::All,
    }
}

pub(crate) const fn stored_policy(policy: TieringPolicy) -> dblade::TieringPolicy {
    match policy {
        TieringPolicy::None => dblade::TieringPolicy::None,
        TieringPolicy::SnapshotOnly => dblade::TieringPolicy::SnapshotOnly,
        TieringPolicy::Auto => dblade::TieringPolicy::Auto,
        TieringPolicy::All => dblade::TieringPolicy::All,
    }
}

pub(crate) const fn stored_tiering(wanted: &VolumeCreate) -> Tiering {
    let policy = stored_policy(wanted.tiering_policy);
    Tiering { policy, cooling_days: wanted.tiering_minimum_cooling_days }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stand-in of the tests says the same days as the engine.
    #[test]
    fn the_days_of_policies_are_the_engines() {
        for policy in [
            TieringPolicy::None,
            TieringPolicy::SnapshotOnly,
            TieringPolicy::Auto,
            TieringPolicy::All,
        ] {
            let stored = Tiering { policy: stored_policy(policy), cooling_days: None };
            assert_eq!(stored.days(), policy.default_cooling_days());
            assert_eq!(shown_policy(stored.policy), policy);
        }
    }
}
