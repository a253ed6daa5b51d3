//! Looks at the source: one at a time, each shown to all who ask within a moment.
//!
//! Invariants: at most [`TEXTS_MAX`] looks are in memory. If somebody still reads an older one, the
//! newest is shown until he has ended: a slow reader makes metrics older, by the time of a
//! connection at most, and takes no memory. A look that hangs has the turn until it ends.

use crate::limits::{Limits, TEXTS_MAX};
use crate::{Look, Source};
use platform::Clock;
use platform::sync::Mutex;
use std::sync::{Arc, Weak};
use tokio::time::timeout;

#[derive(Default)]
struct Kept {
    /// The newest, and when it was made.
    newest: Option<(u64, Arc<Look>)>,
    /// All that somebody has.
    all: Vec<Weak<Look>>,
}

/// See the module.
pub(crate) struct Looks {
    clock: Arc<dyn Clock>,
    limits: Limits,
    kept: Mutex<Kept>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Looks {
    pub(crate) fn new(clock: Arc<dyn Clock>, limits: Limits) -> Self {
        Self { clock, limits, kept: Mutex::default(), turn: Arc::default() }
    }

    /// The newest look, if it is to be shown.
    fn newest(&self) -> Option<Arc<Look>> {
        let mut kept = self.kept.lock();
        kept.all.retain(|look| look.strong_count() > 0);
        let (made, newest) = kept.newest.as_ref()?;
        let age = self.clock.monotonic_nanoseconds().saturating_sub(*made);
        let is_fresh = u128::from(age) < self.limits.fresh_for.as_nanos();
        let is_full = kept.all.len() >= TEXTS_MAX;
        (is_fresh || is_full).then(|| Arc::clone(newest))
    }

    fn keep(&self, look: Look) {
        let look = Arc::new(look);
        let mut kept = self.kept.lock();
        kept.all.push(Arc::downgrade(&look));
        kept.newest = Some((self.clock.monotonic_nanoseconds(), look));
    }

    #[cfg(test)]
    pub(crate) fn alive(&self) -> usize {
        self.kept.lock().all.iter().filter(|look| look.strong_count() > 0).count()
    }

    /// What the source says; none if it does not answer in time.
    pub(crate) async fn look(self: &Arc<Self>, source: Arc<dyn Source>) -> Option<Arc<Look>> {
        if let Some(newest) = self.newest() {
            return Some(newest);
        }
        let this = Arc::clone(self);
        let looked = async {
            let turn = Arc::clone(&this.turn).lock_owned().await;
            // Somebody else may have looked meanwhile.
            if let Some(newest) = this.newest() {
                return Some(newest);
            }
            let same = Arc::clone(&this);
            let looking = tokio::task::spawn_blocking(move || {
                same.keep(source.look());
                drop(turn);
            });
            looking.await.ok()?;
            this.kept.lock().newest.as_ref().map(|(_, look)| Arc::clone(look))
        };
        timeout(self.limits.look_max, looked).await.ok().flatten()
    }
}
