//! When volumes of the recovery queue are to be purged.
//!
//! Invariants: no volume is purged before its time. The time that is left is read from the wall
//! clock once, when the volume is first seen by this process, and is counted by the clock that is
//! never set from then on: a clock that is set while the server runs purges nothing early. The
//! first [`SEEN_NANOSECONDS_MIN`] of a process purge nothing at all: a machine whose clock is wrong
//! when it starts has it set right by then.

use dblade::Keeping;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use units::{Timestamp, VolumeUuid};

/// A volume is seen for so long before it is purged.
pub(super) const SEEN_NANOSECONDS_MIN: u64 = 600 * 1_000_000_000;

/// When volumes of the queue are to be purged, by the clock that is never set.
#[derive(Default)]
pub(crate) struct Due(pub Mutex<BTreeMap<VolumeUuid, u64>>);

/// What is left of a volume's time, in nanoseconds. A wall clock that is behind the deletion leaves
/// no more than the whole.
pub(super) fn left_nanoseconds(keeping: &Keeping, wall: Timestamp) -> u64 {
    let begin = keeping.deleted.get().max(wall.get());
    let left = keeping.purge_after.get().saturating_sub(begin);
    u64::try_from(left).unwrap_or(0).max(SEEN_NANOSECONDS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn the_time_that_is_left_is_not_less_for_a_clock_that_is_behind_nor_more_than_the_whole() {
        let at = |seconds: i64| Timestamp(seconds * SECOND);
        let keeping = Keeping { deleted: at(10_000), purge_after: at(20_000) };
        let left = |wall| left_nanoseconds(&keeping, at(wall)) as i64 / SECOND;
        assert_eq!(left(10_000), 10_000);
        assert_eq!(left(15_000), 5_000);
        assert_eq!(left(-50_000), 10_000, "the clock is behind");
        assert_eq!(left(19_900), 600, "some of it is to pass in this process");
        assert_eq!(left(1_000_000), 600);
        let odd = Keeping { deleted: Timestamp(i64::MIN), purge_after: Timestamp(i64::MAX) };
        assert_eq!(left_nanoseconds(&odd, Timestamp(i64::MIN)), i64::MAX as u64);
    }
}
