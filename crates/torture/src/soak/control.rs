//! What the threads of a soak know of the server: whether it is being killed, and whether to stop.
//!
//! Invariants: a kill is begun here before it happens and over only when a start after it is ready,
//! so a client that loses its connection can tell a kill from a server that drops it.
//!
//! Fails: not; [`Control::check`] tells threads that the soak is over because of a finding.

use crate::Failure;
use crate::measure::now_ns;
use platform::sync::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

#[derive(Clone, Copy, Default)]
struct Lives {
    kills_begun: u64,
    starts_ready: u64,
    /// The start after which the volume was mounted last.
    mounted: Option<u64>,
    /// When a kill or start happened last.
    since_ns: u64,
}

/// See the module.
#[derive(Default)]
pub struct Control {
    lives: Mutex<Lives>,
    changed: Condvar,
    is_abandoned: AtomicBool,
    process: AtomicU32,
}

impl Control {
    /// The server runs, as this process.
    pub fn set_process(&self, process: Option<u32>) {
        self.process.store(process.unwrap_or(0), Ordering::SeqCst);
    }

    /// The server's process, while it runs.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        Some(self.process.load(Ordering::SeqCst)).filter(|process| *process != 0)
    }

    /// Before the server is killed, or stopped.
    pub fn begin_kill(&self) {
        let mut lives = self.lives.lock();
        lives.kills_begun += 1;
        lives.since_ns = now_ns();
        self.set_process(None);
    }

    /// After the start that follows.
    pub fn end_kill(&self, process: Option<u32>) {
        let mut lives = self.lives.lock();
        lives.starts_ready += 1;
        assert_eq!(lives.starts_ready, lives.kills_begun, "each start follows a kill");
        lives.since_ns = now_ns();
        self.set_process(process);
        self.changed.notify_all();
    }

    /// The volume is mounted by the server of the present life.
    pub fn set_mounted(&self) {
        let mut lives = self.lives.lock();
        lives.mounted = Some(lives.starts_ready);
    }

    /// Whether it is.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        let lives = *self.lives.lock();
        lives.mounted == Some(lives.starts_ready) && lives.kills_begun == lives.starts_ready
    }

    /// Names the present life of the server, or the last one while it is being killed.
    #[must_use]
    pub fn life(&self) -> u64 {
        self.lives.lock().starts_ready
    }

    /// Whether the server of that life may be gone.
    #[must_use]
    pub fn is_over(&self, life: u64) -> bool {
        self.lives.lock().kills_begun > life
    }

    /// For how long the server has been running undisturbed; nothing while it is being killed.
    #[must_use]
    pub fn steady_ns(&self) -> Option<u64> {
        let lives = *self.lives.lock();
        (lives.kills_begun == lives.starts_ready).then(|| now_ns() - lives.since_ns)
    }

    /// Waits for the next start, but no longer than this.
    pub fn wait(&self, time: Duration) {
        let mut lives = self.lives.lock();
        let _ = self.changed.wait_for(&mut lives, time);
    }

    /// Ends all threads as soon as they look.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::SeqCst);
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// [`Failure::Stopped`] if not.
    pub fn check(&self) -> Result<(), Failure> {
        let is_abandoned = self.is_abandoned.load(Ordering::SeqCst);
        if is_abandoned { Err(Failure::Stopped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_over_from_before_its_kill_on() {
        let control = Control::default();
        let life = control.life();
        assert!(!control.is_over(life) && control.steady_ns().is_some());
        control.begin_kill();
        // Whoever still meets the old server is of the old life, too.
        assert_eq!(control.life(), life);
        assert!(control.is_over(life) && control.steady_ns().is_none());
        control.end_kill(Some(7));
        assert!(control.life() != life && !control.is_over(control.life()));
        assert_eq!(control.process(), Some(7));
    }
}
