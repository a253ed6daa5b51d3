//! Mutual exclusion in a tetris, without waiting threads: work that must wait is queued.

use crate::geometry::TetrisId;
use crate::store::Inner;
use std::sync::Arc;

/// Work that has a tetris to itself, from its start until it calls [`Inner::unlock_tetris`].
pub(crate) type Job = Box<dyn FnOnce(&Arc<Inner>) + Send>;

impl Inner {
    /// Runs the job as soon as it can have the tetris to itself.
    pub(crate) fn lock_tetris(self: &Arc<Self>, tetris: TetrisId, job: Job) {
        {
            let mut state = self.state.lock();
            let entry = state.tetrises.entry(tetris).or_default();
            if entry.busy {
                entry.waiting.push_back(job);
                return;
            }
            entry.busy = true;
        }
        job(self);
    }

    /// The job with the tetris is over; the next one runs.
    pub(crate) fn unlock_tetris(self: &Arc<Self>, tetris: TetrisId) {
        let next = {
            let mut state = self.state.lock();
            let Some(entry) = state.tetrises.get_mut(&tetris) else {
                unreachable!("a busy tetris is not forgotten")
            };
            assert!(entry.busy, "only the job that has the tetris gives it back");
            let next = entry.waiting.pop_front();
            entry.busy = next.is_some();
            if next.is_none() && entry.filling.is_empty() && entry.expected_blocks == 0 {
                state.tetrises.remove(&tetris);
            }
            next
        };
        if let Some(job) = next {
            job(self);
        }
    }
}
