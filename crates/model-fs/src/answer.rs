//! Waiting for a call's answer.
//!
//! Invariants: the answer may come on any thread, before the call returns or later. That it comes
//! once at most is in the callback's type; that it will never come is seen when the callback is
//! dropped.

use file_service::{Done, FsError};
use platform::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Most turns to wait for one answer. A simulator's turn is one completion or message; no single
/// call needs a million of them, so more means that the answer will never come.
pub const DRIVES_MAX: u32 = 1_000_000;

type Place<T> = Mutex<Option<Result<T, FsError>>>;

/// Where a call's answer goes.
pub struct Answer<T>(Arc<Place<T>>);

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoAnswer {
    /// None yet.
    NotYet,
    /// The callback was dropped without a call, or the answer was taken already.
    Never,
}

impl<T: Send + 'static> Answer<T> {
    /// Makes a call with a callback that answers here.
    pub fn to(call: impl FnOnce(Done<T>)) -> Self {
        let place = Arc::new(Mutex::new(None));
        let inner = Arc::clone(&place);
        call(Box::new(move |answer| *inner.lock() = Some(answer)));
        Self(place)
    }

    /// Takes the answer if it is there.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn take(&self) -> Result<Result<T, FsError>, NoAnswer> {
        // The callback holds the other reference: if it is gone before the look, no answer can
        // come after it.
        let is_called_or_dropped = Arc::strong_count(&self.0) == 1;
        // Orders the look below after the drop, which releases (the count is read relaxed).
        fence(Ordering::Acquire);
        match self.0.lock().take() {
            Some(answer) => Ok(answer),
            None if is_called_or_dropped => Err(NoAnswer::Never),
            None => Err(NoAnswer::NotYet),
        }
    }

    /// Calls `drive` until the answer is there; `None` after [`DRIVES_MAX`] calls or if it
    /// will never come.
    pub fn wait(&self, drive: &mut dyn FnMut()) -> Option<Result<T, FsError>> {
        for _ in 0..DRIVES_MAX {
            match self.take() {
                Ok(answer) => return Some(answer),
                Err(NoAnswer::NotYet) => drive(),
                Err(NoAnswer::Never) => return None,
            }
        }
        None
    }
}
