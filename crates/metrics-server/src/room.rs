//! The connections that there are, and which of them ends when one more comes.
//!
//! A newcomer always gets in: whoever holds connections open would else keep every scraper out. The
//! connection that has waited longest without a whole request ends for it. If each has sent its
//! request, the oldest ends: its reader does not read.
//!
//! Invariants: no more than the limit are there; a connection that ends leaves.

use platform::Clock;
use platform::sync::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::AbortHandle;

/// How long after a warning the next one may come, with the number of connections that were ended.
const WARNING_INTERVAL_NANOSECONDS: u64 = 60_000_000_000;

/// See the module.
pub(crate) struct Room {
    connections_max: usize,
    clock: Arc<dyn Clock>,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// The oldest first.
    held: VecDeque<Held>,
    /// The number of the next connection.
    next: u64,
    /// How many were ended for newcomers since the last warning, and when that was.
    ended: u64,
    warned_nanoseconds: Option<u64>,
}

struct Held {
    number: u64,
    has_asked: Arc<AtomicBool>,
    task: AbortHandle,
}

/// A connection's place, left when it is dropped.
pub(crate) struct Place {
    room: Arc<Room>,
    number: u64,
    has_asked: Arc<AtomicBool>,
}

impl Place {
    /// The whole request is there.
    pub(crate) fn note_request(&self) {
        self.has_asked.store(true, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.inside.lock().held.retain(|held| held.number != self.number);
    }
}

impl Room {
    pub(crate) fn new(connections_max: usize, clock: Arc<dyn Clock>) -> Self {
        Self { connections_max, clock, inside: Mutex::default() }
    }

    /// Makes a place for a connection that has come, and begins to serve it.
    pub(crate) fn enter(self: &Arc<Self>, serve: impl FnOnce(Place) -> AbortHandle) {
        let has_asked = Arc::<AtomicBool>::default();
        let (number, left) = {
            let mut inside = self.inside.lock();
            inside.next += 1;
            let is_full = inside.held.len() >= self.connections_max;
            (inside.next, if is_full { inside.take_one() } else { None })
        };
        // Not while the lock is held: a task that ends leaves its place.
        if let Some(left) = left {
            left.task.abort();
            self.warn();
        }
        let place = Place { room: Arc::clone(self), number, has_asked: Arc::clone(&has_asked) };
        let task = serve(place);
        // One that has ended already has left before it was in.
        if !task.is_finished() {
            self.inside.lock().held.push_back(Held { number, has_asked, task });
        }
    }

    fn warn(&self) {
        let due = self.inside.lock().take_ended(self.clock.monotonic_nanoseconds());
        let most = self.connections_max;
        if let Some(ended) = due {
            tracing::warn!(
                ended,
                most,
                "too many connections for metrics: those that waited longest were ended"
            );
        }
    }
}

impl Inside {
    /// Takes out the connection that waits longest for a request; else the oldest.
    fn take_one(&mut self) -> Option<Held> {
        let silent = self.held.iter().position(|held| !held.has_asked.load(Ordering::Relaxed));
        let left = self.held.remove(silent.unwrap_or(0));
        self.ended += u64::from(left.is_some());
        left
    }

    /// How many were ended, if a warning is due.
    fn take_ended(&mut self, now_nanoseconds: u64) -> Option<u64> {
        let is_due = self.warned_nanoseconds.is_none_or(|warned| {
            now_nanoseconds.saturating_sub(warned) >= WARNING_INTERVAL_NANOSECONDS
        });
        is_due.then(|| {
            self.warned_nanoseconds = Some(now_nanoseconds);
            std::mem::take(&mut self.ended)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_comes_once_in_a_while_and_counts_all() {
        let mut inside = Inside { ended: 1, ..Inside::default() };
        assert_eq!(inside.take_ended(5), Some(1));
        inside.ended = 30;
        assert_eq!(inside.take_ended(4 + WARNING_INTERVAL_NANOSECONDS), None);
        inside.ended = 31;
        assert_eq!(inside.take_ended(5 + WARNING_INTERVAL_NANOSECONDS), Some(31));
    }
}
