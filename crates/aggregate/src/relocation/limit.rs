//! How fast a group that leaves may be emptied, or a clone split, if there is a limit.
//!
//! What is read to be moved is paid for with an allowance that time earns. When it is spent the
//! next blocks of the group, or of the clone, wait, and a tick says when they need wait no longer.
//!
//! Invariants: without a limit nothing waits. Time comes with [`MoveLimit::tick`] and with
//! nothing else.

use raid::Allowance;
use units::BLOCK_SIZE_U64;

/// See the module.
#[derive(Default)]
pub(crate) struct MoveLimit {
    allowance: Allowance,
    /// The time of the last tick.
    now: Option<u64>,
    /// The next blocks had to wait when it would have been their turn.
    is_waiting: bool,
}

impl MoveLimit {
    /// How many bytes a second may be moved from now on; `None` if there is no limit.
    pub(crate) const fn set_rate(&mut self, rate: Option<u64>) {
        self.allowance = Allowance::new(rate);
    }

    pub(crate) const fn rate(&self) -> Option<u64> {
        self.allowance.rate()
    }

    /// Whether more blocks may be moved now. If not they wait for a tick.
    pub(crate) const fn may_go_on(&mut self) -> bool {
        self.is_waiting = !self.allowance.may_begin();
        !self.is_waiting
    }

    /// Whether the next blocks have to wait.
    pub(crate) const fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Whether the next blocks had to wait, and need wait no longer.
    pub(crate) const fn is_due(&self) -> bool {
        self.is_waiting && self.allowance.may_begin()
    }

    /// So many blocks are moved.
    pub(crate) fn spend(&mut self, blocks: u64) {
        self.allowance.spend(blocks.saturating_mul(BLOCK_SIZE_U64));
    }

    /// Time has passed; see [`Self::is_due`].
    pub(crate) fn tick(&mut self, now: u64) -> bool {
        if let Some(before) = self.now.replace(now) {
            self.allowance.earn(now.saturating_sub(before));
        }
        self.is_due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn who_waits_is_told_when_enough_time_has_passed() {
        let mut limit = MoveLimit::default();
        limit.spend(1000);
        assert!(limit.may_go_on() && !limit.tick(0), "without a limit nothing waits");
        limit.set_rate(Some(10 * BLOCK_SIZE_U64));
        assert!(limit.may_go_on());
        limit.spend(20);
        assert!(!limit.is_due(), "nobody has asked");
        assert!(!limit.may_go_on() && !limit.tick(SECOND), "half of it is not paid yet");
        assert!(!limit.tick(2 * SECOND - 1) && limit.tick(2 * SECOND) && limit.is_due());
        assert!(limit.may_go_on() && !limit.is_due());
        limit.spend(1_000_000);
        assert!(!limit.may_go_on());
        limit.set_rate(None);
        assert!(limit.is_due() && limit.tick(2 * SECOND), "at once");
    }
}
