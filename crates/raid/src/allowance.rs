//! How fast work may go that reads or writes much: an allowance of bytes, earned as time passes.
//!
//! Invariants: over a while no more is begun than the rate gives, but for the last step, which may
//! overdraw it. Without a rate nothing is counted, and work may always begin.

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// What may be saved up while work cannot go on: it does not make up for more.
const SAVED_NANOSECONDS_MAX: u64 = NANOSECONDS_PER_SECOND;

/// See the module.
#[derive(Clone, Copy, Default, Debug)]
pub struct Allowance {
    /// Bytes a second; `None` if there is no limit.
    rate: Option<u64>,
    /// What may be begun now, in bytes times nanoseconds a second, so that no tick is too short to
    /// earn anything. The last step may have overdrawn it.
    saved: i128,
}

impl Allowance {
    /// One with which work begins at once, whatever its first step costs.
    #[must_use]
    pub const fn new(rate: Option<u64>) -> Self {
        Self { rate, saved: 1 }
    }

    /// Bytes a second; `None` if there is no limit.
    #[must_use]
    pub const fn rate(&self) -> Option<u64> {
        self.rate
    }

    /// So much time has passed.
    pub fn earn(&mut self, nanoseconds: u64) {
        let Some(rate) = self.rate else { return };
        let earned = |nanoseconds: u64| i128::from(rate) * i128::from(nanoseconds);
        let saved = self.saved.saturating_add(earned(nanoseconds));
        self.saved = saved.min(earned(SAVED_NANOSECONDS_MAX));
    }

    /// Whether a step may begin now.
    #[must_use]
    pub const fn may_begin(&self) -> bool {
        self.rate.is_none() || self.saved > 0
    }

    /// A step costs so many bytes.
    pub fn spend(&mut self, bytes: u64) {
        if self.rate.is_some() {
            let cost = i128::from(bytes) * i128::from(NANOSECONDS_PER_SECOND);
            self.saved = self.saved.saturating_sub(cost);
        }
    }
}
