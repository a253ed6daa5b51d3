//! When volumes of the recovery queue are to be purged.
//!
//! Invariants: no volume is purged before its time. The time that is left is read from the wall
//! clock once, when this process first sees the volume in the queue. From then on the clock that is
//! never set counts it: a clock that is set while the server runs purges nothing early. Each volume
//! is seen for [`SEEN_NANOSECONDS_MIN`] at least: a machine whose clock is wrong when it starts has
//! so much time to set it right. A volume that came back and was deleted again has a new time.

use dblade::Keeping;
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use std::collections::BTreeMap;
use units::{Timestamp, VolumeUuid};

/// A volume is seen for so long before it is purged.
const SEEN_NANOSECONDS_MIN: u64 = admin_api::recovery_queue::QUEUE_SECONDS_MIN * 1_000_000_000;

/// By volume, for how long it was to be kept, and when that ends by the clock that is never set.
#[derive(Default)]
pub(crate) struct Due(Mutex<BTreeMap<VolumeUuid, (Keeping, u64)>>);

impl Due {
    /// Whether a volume of the queue is to be purged now. If it cannot be, it is tried again later.
    pub(super) fn is_over(
        &self,
        volume: VolumeUuid,
        keeping: Keeping,
        (now, wall): (u64, Timestamp),
    ) -> bool {
        let mut ends = self.0.lock();
        let known = ends.get(&volume).filter(|(of, _)| *of == keeping).map(|(_, end)| *end);
        let end = known.unwrap_or_else(|| now.saturating_add(left_nanoseconds(&keeping, wall)));
        let is_over = now >= end || mutation::broken(Rule::PurgedEarly);
        let next = if is_over { now.saturating_add(SEEN_NANOSECONDS_MIN) } else { end };
        ends.insert(volume, (keeping, next));
        is_over
    }

    /// Volumes are not in the queue any more.
    pub(super) fn forget_unless(&self, is_kept: impl Fn(VolumeUuid) -> bool) {
        self.0.lock().retain(|volume, _| is_kept(*volume));
    }
}

/// What is left of a volume's time, in nanoseconds. A wall clock that is behind the deletion leaves
/// no more than the whole.
fn left_nanoseconds(keeping: &Keeping, wall: Timestamp) -> u64 {
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

    #[test]
    fn a_volume_that_is_deleted_again_has_a_new_time_and_a_clock_that_is_set_changes_none() {
        let at = |seconds: i64| Timestamp(seconds * SECOND);
        let (due, volume) = (Due::default(), VolumeUuid([1; 16]));
        let is_over = |keeping, seconds: u64, wall| {
            due.is_over(volume, keeping, (seconds * SECOND as u64, at(wall)))
        };
        let hour = Keeping { deleted: at(0), purge_after: at(3_600) };
        assert!(!is_over(hour, 0, 0));
        assert!(!is_over(hour, 3_590, 1_000_000), "somebody set the clock");
        let again = Keeping { deleted: at(3_591), purge_after: at(3_591 + 7_200) };
        assert!(!is_over(again, 3_591, 3_591));
        assert!(!is_over(again, 10_790, 10_790));
        assert!(is_over(again, 10_791, 10_791));
        assert!(!is_over(again, 10_792, 10_792), "it was asked for a moment ago");
        assert!(is_over(again, 11_391, 11_391));
    }
}
