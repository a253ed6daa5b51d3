//! When the schedules of volumes were looked at, and what came of it.
//!
//! Invariants: memory only. A volume is looked at once in each hour of the day's clock, whichever
//! way that is set, and again while something of it failed. No look begins before the last one has
//! ended, so that what it asked for is there to be seen.

use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::VolumeUuid;

const RETRY_NANOSECONDS: u64 = 60_000_000_000;

/// The last look at a volume.
struct Look {
    hour: i64,
    /// What was asked of the engine and is not answered.
    pending: usize,
    /// When it is to be looked at again in this hour, by the clock that is never set.
    again: Option<u64>,
    /// What failed of this look.
    found: Option<String>,
    /// What failed of the last look that has ended.
    failure: Option<String>,
}

/// What is known of the schedules of volumes.
#[derive(Clone, Default)]
pub(crate) struct Looks(Arc<Mutex<BTreeMap<VolumeUuid, Look>>>);

impl Looks {
    /// Whether a volume is to be looked at now. If so, the look has begun, with one question.
    pub(super) fn begin(&self, volume: VolumeUuid, (hour, now): (i64, u64)) -> bool {
        let mut looks = self.0.lock();
        let known = looks.get(&volume);
        let is_seen = |look: &&Look| {
            look.pending > 0 || look.hour == hour && look.again.is_none_or(|end| now < end)
        };
        if known.filter(is_seen).is_some() {
            return false;
        }
        let failure = known.and_then(|look| look.failure.clone());
        looks.insert(volume, Look { hour, pending: 1, again: None, found: None, failure });
        true
    }

    /// More was asked for a look under way.
    pub(super) fn ask(&self, volume: VolumeUuid, count: usize) {
        if let Some(look) = self.0.lock().get_mut(&volume) {
            look.pending += count;
        }
    }

    /// One question was answered; whether it was the last of the look. `now` is when the look
    /// began.
    pub(super) fn answer(&self, volume: VolumeUuid, now: u64, failure: Option<String>) -> bool {
        let mut looks = self.0.lock();
        let Some(look) = looks.get_mut(&volume) else { return false };
        look.found = look.found.take().or(failure);
        look.pending = look.pending.saturating_sub(1);
        if look.pending > 0 {
            return false;
        }
        look.failure = look.found.take();
        look.again = look.failure.as_ref().map(|_| now.saturating_add(RETRY_NANOSECONDS));
        true
    }

    /// Only these volumes have schedules. A look under way comes to its end.
    pub(super) fn forget_unless(&self, is_there: impl Fn(VolumeUuid) -> bool) {
        self.0.lock().retain(|volume, look| look.pending > 0 || is_there(*volume));
    }

    /// A volume has another policy: it is looked at anew.
    pub(super) fn forget(&self, volume: VolumeUuid) {
        self.0.lock().retain(|known, look| look.pending > 0 || *known != volume);
    }

    /// Whether snapshots of a volume are being taken.
    pub(super) fn is_pending(&self, volume: VolumeUuid) -> bool {
        self.0.lock().get(&volume).is_some_and(|look| look.pending > 0)
    }

    /// Why the last snapshot of a volume could not be taken, if it could not.
    pub(crate) fn failure(&self, volume: VolumeUuid) -> Option<String> {
        self.0.lock().get(&volume)?.failure.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeUuid = VolumeUuid([1; 16]);

    #[test]
    fn a_volume_is_looked_at_once_an_hour_and_again_after_a_failure() {
        let looks = Looks::default();
        assert!(looks.begin(VOLUME, (7, 0)));
        assert!(!looks.begin(VOLUME, (8, u64::MAX)), "the last look has not ended");
        looks.forget_unless(|_| false);
        assert!(looks.is_pending(VOLUME));
        looks.ask(VOLUME, 2);
        assert!(!looks.answer(VOLUME, 5, None));
        assert!(!looks.answer(VOLUME, 5, Some("full".to_owned())));
        assert_eq!(looks.failure(VOLUME), None);
        assert!(looks.answer(VOLUME, 5, None), "what failed is not forgotten for it");
        assert_eq!(looks.failure(VOLUME).as_deref(), Some("full"));
        assert!(!looks.begin(VOLUME, (7, RETRY_NANOSECONDS)));
        assert!(looks.begin(VOLUME, (7, 5 + RETRY_NANOSECONDS)));
        assert!(looks.failure(VOLUME).is_some(), "nothing has come of it yet");
        assert!(looks.answer(VOLUME, 9, None));
        assert_eq!(looks.failure(VOLUME), None);
        assert!(!looks.begin(VOLUME, (7, u64::MAX)));
        assert!(looks.begin(VOLUME, (8, 0)));
        assert!(looks.answer(VOLUME, 9, None));
        looks.forget(VOLUME);
        assert!(looks.begin(VOLUME, (8, 0)));
    }
}
