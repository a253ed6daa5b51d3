//! When the server is to stop: SIGTERM, SIGINT, or a request over the admin socket.
//!
//! Invariants: the first request begins the stop and its reason is the one told; a second signal
//! while the server is stopping ends it at once, which loses nothing that was acknowledged,
//! because the log is replayed by the next start.

use platform::sync::{Condvar, Mutex};
use platform::thread::spawn;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io;
use std::sync::Arc;

/// Exit status after a second signal: 128 and the signal's number, as shells count.
pub(crate) const SIGNALLED_STATUS: i32 = 128;

/// Asks for the stop, and is waited on for it. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Shutdown {
    state: Arc<(Mutex<Option<&'static str>>, Condvar)>,
}

impl Shutdown {
    /// Asks for the stop. Returns whether it had been asked for before.
    pub(crate) fn request(&self, reason: &'static str) -> bool {
        let (state, changed) = &*self.state;
        let mut held = state.lock();
        let again = held.is_some();
        held.get_or_insert(reason);
        changed.notify_all();
        again
    }

    /// Waits until the stop is asked for; why.
    pub(crate) fn wait(&self) -> &'static str {
        let (state, changed) = &*self.state;
        let mut held = state.lock();
        loop {
            if let Some(reason) = *held {
                return reason;
            }
            changed.wait(&mut held);
        }
    }

    /// Lets signals ask for the stop, from now on.
    ///
    /// # Errors
    /// If the handlers or their thread cannot be made.
    pub(crate) fn on_signals(&self) -> io::Result<()> {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let shutdown = self.clone();
        spawn("signals", move || {
            for signal in signals.forever() {
                let reason = if signal == SIGINT { "SIGINT" } else { "SIGTERM" };
                if shutdown.request(reason) {
                    tracing::warn!(reason, "ending at once; the next start replays the log");
                    std::process::exit(SIGNALLED_STATUS + signal);
                }
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_is_told_to_all_who_wait() {
        let shutdown = Shutdown::default();
        let waiting = shutdown.clone();
        let waiter = spawn("waiter", move || waiting.wait()).unwrap();
        assert!(!shutdown.request("first"));
        assert!(shutdown.request("second"));
        assert_eq!(waiter.join().unwrap(), "first");
        assert_eq!(shutdown.wait(), "first");
    }
}
