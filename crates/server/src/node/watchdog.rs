//! The watchdog of the service manager (sd_watchdog_enabled(3)): it restarts a server of which it
//! has heard nothing for `WATCHDOG_USEC`.
//!
//! Invariants: `WATCHDOG=1` is sent only after a message has run through the engine since the last
//! look, which no message that hangs lets by ([`dblade::Probe`]), and after the ticker has ticked,
//! which takes the locks of the engine and of each aggregate. A disk that hangs is no reason to
//! restart the server: nothing here waits for a disk.
//!
//! Fails: when the thread cannot be started. Without a service manager that wants to hear of the
//! server nothing is started.

use super::threads::Watcher;
use crate::notify::notify;
use dblade::{Engine, Probe};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Looks within the service manager's patience: one of them may come to nothing.
const LOOKS: u32 = 4;

/// Tells the service manager from now on that the server does not hang; `None` if nobody asked.
///
/// # Errors
/// When the thread cannot be started.
pub(super) fn start(engine: &Arc<Engine>, ticks: Arc<AtomicU64>) -> io::Result<Option<Watcher>> {
    let variable = |name| std::env::var(name).ok();
    let own = std::process::id();
    let patience =
        patience(variable("WATCHDOG_USEC").as_deref(), variable("WATCHDOG_PID").as_deref(), own);
    let Some(patience) = patience else { return Ok(None) };
    let engine = Arc::clone(engine);
    let mut signs = Signs::new(Box::new(move || Probe::ask(&engine)), ticks);
    let look = move || match signs.of_life() {
        true => notify("WATCHDOG=1"),
        false => tracing::error!(
            looks = signs.silent_looks,
            "the engine hangs: nothing was run since the last look; the service manager ends this \
             server if that lasts"
        ),
    };
    Watcher::start("watchdog", patience / LOOKS, look).map(Some)
}

/// How long the service manager waits for a sign of life of the process `own`.
fn patience(microseconds: Option<&str>, process: Option<&str>, own: u32) -> Option<Duration> {
    let is_meant = process.is_none_or(|process| process.parse() == Ok(own));
    let microseconds = microseconds?.parse().ok().filter(|_| is_meant)?;
    Some(Duration::from_micros(microseconds)).filter(|patience| !patience.is_zero())
}

/// What tells a server that works from one that hangs.
struct Signs {
    ask: Box<dyn FnMut() -> Probe + Send>,
    asked: Probe,
    ticks: Arc<AtomicU64>,
    ticks_seen: u64,
    /// Looks in a row without a sign of life.
    silent_looks: u64,
}

impl Signs {
    fn new(mut ask: Box<dyn FnMut() -> Probe + Send>, ticks: Arc<AtomicU64>) -> Self {
        let (asked, ticks_seen) = (ask(), ticks.load(Ordering::Relaxed));
        Self { ask, asked, ticks, ticks_seen, silent_looks: 0 }
    }

    /// Whether there was one of each kind since the last look that found them.
    fn of_life(&mut self) -> bool {
        let ticks = self.ticks.load(Ordering::Relaxed);
        if !self.asked.is_answered() || ticks == self.ticks_seen {
            self.silent_looks += 1;
            return false;
        }
        self.ticks_seen = ticks;
        self.asked = (self.ask)();
        self.silent_looks = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platform::sync::Mutex;

    #[test]
    fn both_signs_are_wanted_anew_for_each_look() {
        let asked = Arc::new(Mutex::new(Probe::default()));
        let (ticks, same) = (Arc::new(AtomicU64::new(0)), Arc::clone(&asked));
        let ask = move || {
            let probe = Probe::default();
            *same.lock() = probe.clone();
            probe
        };
        let mut signs = Signs::new(Box::new(ask), Arc::clone(&ticks));
        let tick = || ticks.fetch_add(1, Ordering::Relaxed);
        assert!(!signs.of_life());
        tick();
        assert!(!signs.of_life(), "no worker has answered");
        assert_eq!(signs.silent_looks, 2);
        asked.lock().answer();
        assert!(signs.of_life());
        assert!(!signs.of_life(), "a sign counts once");
        asked.lock().answer();
        assert!(!signs.of_life(), "the ticker hangs");
        tick();
        assert!(signs.of_life());
        assert_eq!(signs.silent_looks, 0);
    }

    #[test]
    fn the_service_manager_says_how_long_it_waits_and_for_whom() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(patience(Some("1000000"), None, 7), second);
        assert_eq!(patience(Some("1000000"), Some("7"), 7), second);
        for (microseconds, process) in [
            (None, None),
            (Some("0"), None),
            (Some("soon"), None),
            (Some("1000000"), Some("8")),
            (Some("1000000"), Some("?")),
        ] {
            assert_eq!(patience(microseconds, process, 7), None, "{microseconds:?} {process:?}");
        }
    }
}
