//! Work on paths, which may hang: a path can lead over a network file system, or over the FUSE
//! file system of another program, and the kernel waits for their servers.
//!
//! Invariants:
//! - Each work has a thread of its own, and is waited for for a limited time. What hangs costs its
//!   caller that time, and nobody else anything.
//! - One work at a time has a path, so a path that hangs costs one thread, however often somebody
//!   asks for it. What is to be done in any case is done after the work that hangs, by its thread;
//!   of several, the last one.
//!
//! Fails: [`NoAnswer`]. Work that hangs goes on when its path answers; what it does is its own.

use platform::sync::{Condvar, Mutex};
use platform::thread::spawn;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long a path is waited for: less than a start waits for mounts.
pub(super) const PATH_WAIT_MAX: Duration = Duration::from_secs(4);
/// Most paths that are worked on at a time.
pub(super) const PATHS_MAX: usize = 64;

/// Why work on a path has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    /// The path hangs.
    #[error("the path does not answer: a file system on the way waits for a server that is away")]
    Hangs,
    /// Too many others hang.
    #[error("{PATHS_MAX} other paths do not answer, and no more are tried")]
    TooMany,
    /// There is no thread for the work.
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
}

/// What shares the paths that are worked on.
#[derive(Default)]
struct Busy {
    paths: Mutex<BTreeMap<String, Work>>,
    ended: Condvar,
}

/// The work that a path has.
#[derive(Default)]
struct Work {
    /// Whether it was waited for in vain.
    hangs: bool,
    /// What is done after it.
    then: Option<Box<dyn FnOnce() + Send>>,
}

impl Busy {
    /// The path's work has ended, and so has, after this, what was to be done after it.
    fn end(&self, path: &str) {
        loop {
            let mut paths = self.paths.lock();
            let Some(then) = paths.get_mut(path).and_then(|work| work.then.take()) else {
                paths.remove(path);
                break;
            };
            drop(paths);
            then();
        }
        self.ended.notify_all();
    }
}

/// See the module.
pub(super) struct PathWork {
    busy: Arc<Busy>,
    wait_max: Duration,
}

/// Work that was begun.
pub(super) struct Begun<T> {
    path: String,
    busy: Arc<Busy>,
    done: Arc<(Mutex<Option<T>>, Condvar)>,
}

impl PathWork {
    /// Nobody works on a path.
    pub(super) fn new(wait_max: Duration) -> Self {
        Self { busy: Arc::default(), wait_max }
    }

    /// Whether work on a path was waited for in vain, and goes on.
    pub(super) fn hangs(&self, path: &str) -> bool {
        self.busy.paths.lock().get(path).is_some_and(|work| work.hangs)
    }

    /// Begins work on a path. Work on it that is under way is waited for.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub(super) fn begin<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Begun<T>, NoAnswer> {
        self.enter(path)?;
        self.start(path, work)
    }

    /// Takes a path for work. Work on it that is under way is waited for.
    fn enter(&self, path: &str) -> Result<(), NoAnswer> {
        let mut paths = self.busy.paths.lock();
        let is_busy = |paths: &mut BTreeMap<String, Work>| paths.contains_key(path);
        if paths.get(path).is_some_and(|work| work.hangs)
            || self.busy.ended.wait_while_for(&mut paths, is_busy, self.wait_max).timed_out()
        {
            return Err(NoAnswer::Hangs);
        }
        if paths.len() >= PATHS_MAX {
            return Err(NoAnswer::TooMany);
        }
        paths.insert(path.to_owned(), Work::default());
        Ok(())
    }

    /// Begins work on a path that was taken for it.
    fn start<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Begun<T>, NoAnswer> {
        let done = Arc::new((Mutex::new(None), Condvar::new()));
        let (theirs, busy, name) = (Arc::clone(&done), Arc::clone(&self.busy), path.to_owned());
        let spawned = spawn("path", move || {
            let result = work();
            let (slot, changed) = &*theirs;
            *slot.lock() = Some(result);
            changed.notify_all();
            busy.end(&name);
        });
        match spawned {
            Ok(_) => Ok(Begun { path: path.to_owned(), busy: Arc::clone(&self.busy), done }),
            Err(error) => {
                self.busy.end(path);
                Err(NoAnswer::Thread(error))
            }
        }
    }

    /// Does work on a path, and waits for it as long as for any.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub(super) fn on<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        self.begin(path, work)?.wait(self.wait_max)
    }

    /// The same; if other work on the path hangs, this is done after it.
    ///
    /// # Errors
    /// [`NoAnswer`]; after [`NoAnswer::Hangs`] it is done as soon as the path answers.
    pub(super) fn on_or_after<T: Send + 'static>(
        &self,
        path: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        loop {
            match self.enter(path) {
                Ok(()) => return self.start(path, work)?.wait(self.wait_max),
                Err(NoAnswer::Hangs) => {}
                Err(error) => return Err(error),
            }
            if let Some(other) = self.busy.paths.lock().get_mut(path) {
                other.then = Some(Box::new(move || drop(work())));
                return Err(NoAnswer::Hangs);
            }
        }
    }

    /// How long work is waited for.
    pub(super) const fn wait_max(&self) -> Duration {
        self.wait_max
    }
}

impl<T> Begun<T> {
    /// Waits for the result.
    ///
    /// # Errors
    /// [`NoAnswer::Hangs`] if it is not there in time.
    pub(super) fn wait(self, wait_max: Duration) -> Result<T, NoAnswer> {
        let (slot, changed) = &*self.done;
        let mut result = slot.lock();
        changed.wait_while_for(&mut result, |result| result.is_none(), wait_max);
        if let Some(result) = result.take() {
            return Ok(result);
        }
        drop(result);
        if let Some(work) = self.busy.paths.lock().get_mut(&self.path) {
            work.hangs = true;
        }
        Err(NoAnswer::Hangs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{TryRecvError, channel};

    #[test]
    fn work_that_hangs_is_not_waited_for_and_keeps_no_other_away() {
        let work = PathWork::new(Duration::from_millis(20));
        let (release, released) = channel::<()>();
        let (ended, has_ended) = channel::<()>();
        let hanging = work.on("/hangs", move || {
            let _ = released.recv();
            drop(ended);
        });
        assert!(matches!(hanging, Err(NoAnswer::Hangs)), "{hanging:?}");
        assert!(work.hangs("/hangs") && !work.hangs("/other"));
        let again = work.on("/hangs", || unreachable!("one thread for a path"));
        assert!(matches!(again, Err(NoAnswer::Hangs)), "{again:?}");
        let patient = PathWork { busy: Arc::clone(&work.busy), wait_max: PATH_WAIT_MAX };
        assert_eq!(patient.on("/other", || 7).unwrap(), 7);
        let (then, was_done) = channel::<()>();
        let later = work.on_or_after("/hangs", move || drop(then));
        assert!(matches!(later, Err(NoAnswer::Hangs)), "{later:?}");
        assert_eq!(was_done.try_recv(), Err(TryRecvError::Empty));
        drop(release);
        let _ = (has_ended.recv(), was_done.recv());
        let mut paths = work.busy.paths.lock();
        work.busy.ended.wait_while(&mut paths, |paths| paths.contains_key("/hangs"));
        drop(paths);
        assert_eq!(patient.on("/hangs", || 8).unwrap(), 8);
        assert_eq!(patient.on_or_after("/hangs", || 9).unwrap(), 9);
    }

    #[test]
    fn paths_that_hang_have_a_limit() {
        let work = PathWork::new(PATH_WAIT_MAX);
        let paths = (0..PATHS_MAX).map(|number| (format!("/{number}"), Work::default()));
        work.busy.paths.lock().extend(paths);
        let refused = work.on("/one-more", || ());
        assert!(matches!(refused, Err(NoAnswer::TooMany)), "{refused:?}");
    }
}
