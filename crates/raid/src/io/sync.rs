//! Making writes durable: all batches, then all disks, then the labels that a failure changed.

use crate::io::Io;
use crate::layout::TetrisId;
use crate::request::SyncDone;
use std::sync::Arc;

impl Io {
    pub(crate) fn sync(self: &Arc<Self>, done: SyncDone) {
        let filling: Vec<TetrisId> = {
            let mut state = self.state.lock();
            state
                .tetrises
                .iter_mut()
                .filter_map(|(id, tetris)| {
                    tetris.expected_blocks = 0;
                    (!tetris.filling.is_empty()).then_some(*id)
                })
                .collect()
        };
        for tetris in filling {
            self.start_batch(tetris);
        }
        {
            let mut state = self.state.lock();
            let bound = state.next_batch;
            state.sync_waiters.push((bound, done));
        }
        self.poll_syncs();
    }

    /// A batch is over.
    pub(super) fn end_batch(self: &Arc<Self>, number: u64) {
        let was_open = self.state.lock().open_batches.remove(&number);
        assert!(was_open, "a batch ends once");
        self.poll_syncs();
    }

    /// Goes on with those that waited for batches that are over.
    fn poll_syncs(self: &Arc<Self>) {
        let ready = {
            let mut state = self.state.lock();
            let oldest = state.open_batches.first().copied().unwrap_or(u64::MAX);
            let waiters = std::mem::take(&mut state.sync_waiters);
            let (ready, waiting) =
                waiters.into_iter().partition::<Vec<_>, _>(|(bound, _)| *bound <= oldest);
            state.sync_waiters = waiting;
            ready
        };
        for (bound, done) in ready {
            let io = Arc::clone(self);
            self.members.flush(Box::new(move |result| {
                if result.is_ok() {
                    io.state.lock().notes.forget_written(bound);
                }
                done(result);
            }));
        }
    }
}
