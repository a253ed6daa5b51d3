//! How many comparisons of snapshots run at a time.
//!
//! Invariants: a comparison goes on in the engine though its client has gone. So few run at once,
//! and the others are refused: no client keeps the node's administrators out with them.

use platform::sync::Mutex;
use std::sync::Arc;

/// Comparisons at a time.
pub(super) const COMPARISONS_MAX: usize = 4;

/// Those that are under way.
#[derive(Clone, Default)]
pub(crate) struct Comparisons(Arc<Mutex<usize>>);

/// One of them.
pub(super) struct Comparison(Comparisons);

impl Comparisons {
    /// Begins one; `None` if as many as may are under way.
    pub(super) fn begin(&self) -> Option<Comparison> {
        let mut count = self.0.lock();
        (*count < COMPARISONS_MAX).then(|| {
            *count += 1;
            Comparison(self.clone())
        })
    }
}

impl Drop for Comparison {
    fn drop(&mut self) {
        *self.0.0.lock() -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_run_at_a_time() {
        let comparisons = Comparisons::default();
        let mut all: Vec<_> = (0..COMPARISONS_MAX).map(|_| comparisons.begin().unwrap()).collect();
        assert!(comparisons.begin().is_none());
        all.pop();
        assert!(comparisons.begin().is_some());
    }
}
