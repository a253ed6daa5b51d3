//! The node's threads: workers that run the engine's messages, and one that ticks.
//!
//! Invariants: every thread that was started is joined by [`Threads::stop`]; the tick's wait is
//! ended by the stop and not waited out.
//!
//! Fails: when the operating system has no room for another thread; those started before are
//! stopped then.

use dblade::Engine;
use platform::sync::{Condvar, Mutex};
use platform::thread::{JoinHandle, spawn, spawn_batch};
use platform::watched::Watch;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often the engine looks whether a consistency point is due, and pushes out what lies in logs
/// without anyone waiting: at most this long an acknowledged unstable change stays in memory only
/// for want of a caller.
const TICK_INTERVAL: Duration = Duration::from_millis(50);

/// How often the node looks whether disks that its aggregates miss are there again: opening a few
/// disks costs little, and nobody waits for it with a stop watch.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Whether the ticker shall end.
pub(super) type Ending = Arc<(Mutex<bool>, Condvar)>;

/// Has a thread end that waits for it.
pub(super) fn end((ending, changed): &(Mutex<bool>, Condvar)) {
    *ending.lock() = true;
    changed.notify_all();
}

/// The threads.
pub(crate) struct Threads {
    engine: Arc<Engine>,
    workers: Vec<JoinHandle<()>>,
    ticker: Option<JoinHandle<()>>,
    ending: Ending,
    ticks: Arc<AtomicU64>,
}

impl Threads {
    /// Starts `workers` workers and the ticker.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start(
        engine: &Arc<Engine>,
        watch: &Arc<Watch>,
        workers: usize,
    ) -> io::Result<Self> {
        let mut threads = Self {
            engine: Arc::clone(engine),
            workers: Vec::with_capacity(workers),
            ticker: None,
            ending: Ending::default(),
            ticks: Arc::default(),
        };
        match threads.spawn_all(watch, workers) {
            Ok(()) => Ok(threads),
            Err(error) => {
                threads.stop(true);
                Err(error)
            }
        }
    }

    fn spawn_all(&mut self, watch: &Arc<Watch>, workers: usize) -> io::Result<()> {
        for number in 0..workers {
            let scheduler = self.engine.scheduler().clone();
            let body = move || scheduler.worker_loop();
            self.workers.push(spawn_batch(&format!("worker-{number}"), body)?);
        }
        let (engine, ending) = (Arc::clone(&self.engine), Arc::clone(&self.ending));
        let (watch, ticks) = (Arc::clone(watch), Arc::clone(&self.ticks));
        let body = move || {
            repeat(TICK_INTERVAL, &ending, || {
                watch.expire();
                engine.tick();
                ticks.fetch_add(1, Ordering::Relaxed);
            });
        };
        self.ticker = Some(spawn("ticker", body)?);
        Ok(())
    }

    /// How often the ticker has ticked, for whoever looks whether it still does.
    pub(crate) fn ticks(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.ticks)
    }

    /// Ends the ticker: from now on consistency points come only when they are asked for.
    pub(crate) fn stop_ticking(&mut self) {
        end(&self.ending);
        if let Some(ticker) = self.ticker.take() {
            join(ticker);
        }
    }

    /// Ends all threads, once no message is left; with `halt` messages that wait are dropped.
    pub(crate) fn stop(mut self, halt: bool) {
        self.stop_ticking();
        if halt {
            self.engine.scheduler().halt();
        } else {
            self.engine.scheduler().shutdown();
        }
        self.workers.drain(..).for_each(join);
    }
}

/// Does something again and again until the end.
fn repeat(interval: Duration, (ending, changed): &(Mutex<bool>, Condvar), mut work: impl FnMut()) {
    let mut held = ending.lock();
    while !*held {
        changed.wait_for(&mut held, interval);
        if *held {
            return;
        }
        drop(held);
        work();
        held = ending.lock();
    }
}

/// A thread that looks at something again and again: for disks which are back (it opens and reads
/// them, which the ticker must not wait for), or whether the node hangs.
pub(crate) struct Watcher {
    thread: JoinHandle<()>,
    ending: Ending,
}

impl Watcher {
    /// Starts it.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(crate) fn start(
        name: &str,
        interval: Duration,
        work: impl FnMut() + Send + 'static,
    ) -> io::Result<Self> {
        let ending = Ending::default();
        let same = Arc::clone(&ending);
        let thread = spawn(name, move || repeat(interval, &same, work))?;
        Ok(Self { thread, ending })
    }

    /// Ends it, and waits for what it is doing.
    pub(crate) fn stop(self) {
        end(&self.ending);
        join(self.thread);
    }
}

pub(super) fn join(thread: JoinHandle<()>) {
    // A panic has ended the process already (see `logging`); in tests it is worth a panic here.
    assert!(thread.join().is_ok(), "a thread of the node panicked");
}
