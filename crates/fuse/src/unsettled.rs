//! Files that were written and closed, and that nobody asked to be durable.
//!
//! The kernel answers `sync` without a word to a FUSE server, so a program that copies files and
//! calls `sync` would find them empty after a crash. So what was written to a file is made durable
//! soon after its close: a beat comes [`BEAT_INTERVAL`] after the first close, and commits the
//! files that were closed until then. Many files, or much data, are not logged one by one: one
//! consistency point has them all (decision 40).
//!
//! Invariants:
//! - A file is in the set from the close of a descriptor that is open for writing until a beat asks
//!   for it. With two beats a second it is durable within a second, if the disks keep up.
//! - The requests of one beat end before the next begins, so at most [`FILES_MAX`] are under way.
//! - The end of the mount asks for what is left, at once.
//!
//! Fails: nobody is told. A file that is gone needs nothing. What was lost with its aggregate is
//! lost as any unstable data; a program that must know calls `fsync`.

use file_service::{Caller, Done, FileHandle, FileService, calls};
use platform::sync::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// From a first close to the beat that settles it.
pub(crate) const BEAT_INTERVAL: Duration = Duration::from_millis(500);
/// A file waits for one beat, and its data for the disks.
const _: () = assert!(BEAT_INTERVAL.as_millis() * 2 <= 1000);
/// Most files that a beat commits one by one.
const FILES_MAX: usize = 256;
/// Most bytes, written to all of them together, that a beat puts into the log: as much as the
/// engine logs of one file, before it prefers a consistency point.
const BYTES_MAX: u64 = 8 << 20;

/// The files of one mount.
pub(crate) struct Unsettled {
    service: Arc<dyn FileService>,
    caller: Caller,
    root: FileHandle,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    closed: Closed,
    /// Requests of the last beat that are not answered.
    under_way: usize,
    /// The mount has ended.
    is_over: bool,
}

/// What was closed since the last beat.
#[derive(Default)]
struct Closed {
    files: BTreeSet<FileHandle>,
    bytes: u64,
}

impl Closed {
    /// Whether one consistency point for all is the better way.
    fn is_much(&self) -> bool {
        self.files.len() > FILES_MAX || self.bytes > BYTES_MAX
    }
}

impl fmt::Debug for Unsettled {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Unsettled").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Unsettled {
    pub(crate) fn new(service: Arc<dyn FileService>, caller: Caller, root: FileHandle) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self { service, caller, root, state, changed }
    }

    /// A close of a file, to which so many bytes were written that no close told before.
    pub(crate) fn closed(&self, file: FileHandle, bytes: u64) {
        let mut state = self.state.lock();
        let is_first = state.closed.files.is_empty();
        state.closed.bytes = state.closed.bytes.saturating_add(bytes);
        // One more than are committed one by one says that there are many.
        if state.closed.files.len() <= FILES_MAX {
            state.closed.files.insert(file);
        }
        drop(state);
        if is_first {
            self.changed.notify_all();
        }
    }

    /// Asks for what was closed, unless the last beat's requests are still under way.
    pub(crate) fn beat(self: &Arc<Self>) {
        let closed = {
            let mut state = self.state.lock();
            if state.under_way > 0 {
                return;
            }
            std::mem::take(&mut state.closed)
        };
        self.ask(closed);
    }

    fn ask(self: &Arc<Self>, closed: Closed) {
        if closed.is_much() {
            self.begin(1);
            let call = calls::SyncVolume { file: self.root };
            return self.service.sync(&self.caller, call, self.answered());
        }
        self.begin(closed.files.len());
        for file in closed.files {
            self.service.commit(&self.caller, calls::Commit::of(file), self.answered());
        }
    }

    fn begin(&self, requests: usize) {
        self.state.lock().under_way += requests;
    }

    fn answered<T>(self: &Arc<Self>) -> Done<T> {
        let this = Arc::clone(self);
        Box::new(move |_| {
            this.state.lock().under_way -= 1;
            this.changed.notify_all();
        })
    }

    /// How many files wait for a beat.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.state.lock().closed.files.len()
    }

    /// The work of the mount's thread: beats, until the end.
    pub(crate) fn keep_settling(self: &Arc<Self>) {
        while self.wait_for_beat() {
            self.beat();
        }
    }

    /// Waits until a beat is due; false at the end.
    fn wait_for_beat(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_over && (state.closed.files.is_empty() || state.under_way > 0) {
            self.changed.wait(&mut state);
        }
        if !state.is_over {
            // Only the end notifies here: something is closed already, and nothing is under way.
            self.changed.wait_for(&mut state, BEAT_INTERVAL);
        }
        !state.is_over
    }

    /// Ends the thread of [`Self::keep_settling`].
    pub(crate) fn end_beats(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    /// The end of the mount: asks for all that is left.
    pub(crate) fn end(self: &Arc<Self>) {
        self.end_beats();
        let left = std::mem::take(&mut self.state.lock().closed);
        self.ask(left);
    }
}

#[cfg(test)]
mod tests;
