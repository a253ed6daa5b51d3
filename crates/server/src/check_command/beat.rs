//! A thread beside a check: it answers for disks that hang, and tells the server that the check
//! still goes on.
//!
//! Invariants: the thread ends with the [`Beat`]. Once something was lost it stays lost.
//!
//! Fails: never; a server that does not answer, or does not know the check any more, is told by
//! [`Beat::is_lost`].

use admin_api::AdminError;
use platform::sync::{Condvar, Mutex};
use platform::thread::spawn;
use platform::watched::Watch;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often it looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// So many looks pass between two calls of the server.
const LOOKS_PER_CALL: u32 = 5;

/// Tells the server that the check goes on.
pub(crate) type Keep = Box<dyn Fn() -> Result<(), AdminError> + Send>;

#[derive(Default)]
struct State {
    is_over: bool,
    lost: Option<AdminError>,
}

type Shared = Arc<(Mutex<State>, Condvar)>;

/// See the module.
pub(crate) struct Beat {
    shared: Shared,
    thread: Option<JoinHandle<()>>,
}

impl Beat {
    /// Starts it.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start(watch: Arc<Watch>, keep: Option<Keep>) -> io::Result<Self> {
        let shared = Shared::default();
        let same = Arc::clone(&shared);
        let thread = spawn("check-beat", move || go_on(&same, &watch, keep.as_ref()))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Whether the server does not know the check any more, or is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.shared.0.lock().lost.is_some()
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.shared.0.lock().is_over = true;
        self.shared.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn go_on((state, changed): &(Mutex<State>, Condvar), watch: &Watch, keep: Option<&Keep>) {
    let mut looks = 0;
    let mut held = state.lock();
    while !held.is_over {
        changed.wait_for(&mut held, INTERVAL);
        if held.is_over {
            return;
        }
        drop(held);
        watch.expire();
        looks += 1;
        let mut lost = None;
        if let Some(keep) = keep.filter(|_| looks % LOOKS_PER_CALL == 0) {
            lost = keep().err();
        }
        held = state.lock();
        if held.lost.is_none() {
            held.lost = lost;
        }
    }
}
