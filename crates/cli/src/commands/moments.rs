//! The time between two questions about work that goes on: the server tells of nothing by
//! itself, it only answers.

use platform::sync::{Condvar, Mutex};
use std::time::Duration;

/// How often the server is asked how far it is.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Waits before the server is asked again.
pub(super) fn let_a_moment_pass() {
    Condvar::new().wait_for(&mut Mutex::new(()).lock(), LOOK_INTERVAL);
}
