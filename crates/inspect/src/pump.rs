//! Waiting for disks: in the simulated world by driving it, in the real one on a condition.
//!
//! Invariants: no lock is held while the world is driven.
//!
//! Fails: `None` when the world was driven [`IDLE_CALLS_MAX`] times and the answer has not come.

use platform::completion::Sender;
use platform::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Calls of the driver for one answer. A simulated world needs one; a driver that waits a little
/// at each call waits long enough for any disk.
const IDLE_CALLS_MAX: u32 = 1_000_000;
/// How long a pause is: longer than a disk takes to write a stripe.
const PAUSE: Duration = Duration::from_millis(200);
/// The same of a driven world, in calls of the driver.
const PAUSE_CALLS: u32 = 64;

/// How to wait.
pub(crate) enum Pump<'a> {
    /// Call this until the answer is there.
    Drive(&'a mut dyn FnMut()),
    /// Sleep until it is.
    Condition,
}

impl Pump<'_> {
    /// Gives whoever writes the media time to end what is under way.
    pub fn pause(&mut self) {
        match self {
            Self::Drive(drive) => (0..PAUSE_CALLS).for_each(|_| drive()),
            Self::Condition => {
                let (never, changed) = (Mutex::new(()), Condvar::new());
                // Nobody notifies: this is how to wait for a time.
                changed.wait_for(&mut never.lock(), PAUSE);
            }
        }
    }

    /// Starts a call and waits for what it answers.
    pub fn wait<T: Send + 'static>(&mut self, start: impl FnOnce(Sender<T>)) -> Option<T> {
        let answer = Arc::new((Mutex::new(None), Condvar::new()));
        let shared = Arc::clone(&answer);
        start(Box::new(move |value| {
            *shared.0.lock() = Some(value);
            shared.1.notify_all();
        }));
        match self {
            Self::Drive(drive) => {
                for _ in 0..IDLE_CALLS_MAX {
                    if let Some(value) = answer.0.lock().take() {
                        return Some(value);
                    }
                    drive();
                }
                answer.0.lock().take()
            }
            Self::Condition => {
                let mut value = answer.0.lock();
                while value.is_none() {
                    answer.1.wait(&mut value);
                }
                value.take()
            }
        }
    }
}
