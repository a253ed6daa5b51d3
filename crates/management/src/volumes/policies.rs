//! Policies of volumes in the words of the interface and of the engine.

use admin_api::{
    Guarantee, Reallocation, SnapshotAutodelete, TieringPolicy, VolumeCreate, VolumeSet,
};
use dblade::{AutogrowMax, Tiering};
use units::BLOCK_SIZE_U64;

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

pub(crate) const fn shown_reallocation(reallocation: dblade::Reallocation) -> Reallocation {
    match reallocation {
        dblade::Reallocation::Auto => Reallocation::Auto,
        dblade::Reallocation::Off => Reallocation::Off,
    }
}

pub(crate) fn shown_autogrow_max(maximum: AutogrowMax) -> Option<u64> {
    (maximum.0 > 0).then_some(maximum.0 * BLOCK_SIZE_U64)
}

/// Up to whole blocks; 0: the volume does not grow.
pub(crate) const fn stored_autogrow_max(maximum_bytes: u64) -> AutogrowMax {
    AutogrowMax(maximum_bytes.div_ceil(BLOCK_SIZE_U64))
}

pub(crate) const fn stored_reallocation(reallocation: Reallocation) -> dblade::Reallocation {
    match reallocation {
        Reallocation::Auto => dblade::Reallocation::Auto,
        Reallocation::Off => dblade::Reallocation::Off,
    }
}

pub(crate) const fn shown_autodelete(which: dblade::SnapshotAutodelete) -> SnapshotAutodelete {
    match which {
        dblade::SnapshotAutodelete::Off => SnapshotAutodelete::Off,
        dblade::SnapshotAutodelete::Scheduled => SnapshotAutodelete::Scheduled,
        dblade::SnapshotAutodelete::All => SnapshotAutodelete::All,
    }
}

pub(crate) const fn stored_autodelete(which: SnapshotAutodelete) -> dblade::SnapshotAutodelete {
    match which {
        SnapshotAutodelete::Off => dblade::SnapshotAutodelete::Off,
        SnapshotAutodelete::Scheduled => dblade::SnapshotAutodelete::Scheduled,
        SnapshotAutodelete::All => dblade::SnapshotAutodelete::All,
    }
}

pub(crate) const fn shown_guarantee(guarantee: dblade::Guarantee) -> Guarantee {
    match guarantee {
        dblade::Guarantee::None => Guarantee::None,
        dblade::Guarantee::Volume => Guarantee::Volume,
    }
}

pub(crate) const fn stored_guarantee(guarantee: Guarantee) -> dblade::Guarantee {
    match guarantee {
        Guarantee::None => dblade::Guarantee::None,
        Guarantee::Volume => dblade::Guarantee::Volume,
    }
}

/// What a volume's tiering is to be, if it is to be another.
pub(crate) fn changed_tiering(wanted: &VolumeSet, before: Tiering) -> Option<Tiering> {
    let policy = wanted.tiering_policy.map_or(before.policy, stored_policy);
    // Days that were chosen for another policy say nothing of this one.
    let kept = before.cooling_days.filter(|_| policy == before.policy);
    let cooling_days = wanted.tiering_minimum_cooling_days.or(kept);
    wanted.changes_tiering().then_some(Tiering { policy, cooling_days })
}

pub(crate) const fn stored_tiering(wanted: &VolumeCreate) -> Tiering {
    let policy = stored_policy(wanted.tiering_policy);
    Tiering { policy, cooling_days: wanted.tiering_minimum_cooling_days }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_of_policies_is_what_is_shown() {
        for which in SnapshotAutodelete::ALL {
            assert_eq!(shown_autodelete(stored_autodelete(which)), which);
        }
        for guarantee in Guarantee::ALL {
            assert_eq!(shown_guarantee(stored_guarantee(guarantee)), guarantee);
        }
        for reallocation in [Reallocation::Auto, Reallocation::Off] {
            assert_eq!(shown_reallocation(stored_reallocation(reallocation)), reallocation);
        }
    }

    #[test]
    fn a_largest_size_is_rounded_up_to_blocks_and_zero_is_none() {
        assert_eq!(shown_autogrow_max(stored_autogrow_max(0)), None);
        assert_eq!(shown_autogrow_max(stored_autogrow_max(4097)), Some(8192));
    }

    /// Who sets something else does not have the blocks of a volume begin to cool anew.
    #[test]
    fn the_tiering_is_set_only_if_it_is_given() {
        let wanted = VolumeSet {
            name: "home".to_owned(),
            tiering_policy: None,
            tiering_minimum_cooling_days: None,
            reallocate: Some(Reallocation::Off),
            autogrow_max_bytes: None,
            snapshot_policy: None,
            snapshot_autodelete: None,
            guarantee: None,
        };
        let before = Tiering { policy: dblade::TieringPolicy::Auto, cooling_days: Some(5) };
        assert_eq!(changed_tiering(&wanted, before), None);
        let wanted = VolumeSet { tiering_minimum_cooling_days: Some(7), ..wanted };
        let longer = Tiering { cooling_days: Some(7), ..before };
        assert_eq!(changed_tiering(&wanted, before), Some(longer));
        let cold = Some(TieringPolicy::SnapshotOnly);
        let wanted =
            VolumeSet { tiering_policy: cold, tiering_minimum_cooling_days: None, ..wanted };
        let policy = dblade::TieringPolicy::SnapshotOnly;
        assert_eq!(changed_tiering(&wanted, before), Some(Tiering { policy, cooling_days: None }));
    }

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
