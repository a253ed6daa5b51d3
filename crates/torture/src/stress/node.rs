//! An engine with threads of its own, for one life: as `server` assembles it, but for what lies
//! above the file service.
//!
//! Invariants: after [`Node::stop`] or [`Node::kill`] no thread of it runs; an operation that was
//! refused or not answered before the kill began is a finding, one after it is not.

use crate::Failure;
use crate::stress::abort::AbortOnPanic;
use crate::stress::answer::{Answer, Desk};
use crate::stress::media::{End, Media};
use dblade::{
    Configuration, CreateAggregate, Engine, EngineError, Recovery, Service, Tuning, VolumeRequest,
};
use file_service::{Caller, DirectoryPage, Done, FileHandle, FileService, FsError, calls};
use ondisk::label::RaidKind;
use platform::linux::{SystemClock, SystemEntropy};
use platform::sync::{Condvar, Mutex};
use platform::thread::{JoinHandle, spawn};
use platform::watched::Watch;
use platform::{Clock, Disk};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use volume::SnapshotRequest;

/// The aggregate's name.
pub const AGGREGATE: &str = "a1";
/// The volume in which every client has files of its own.
pub const OWN: &str = "own";
/// The volume in which all clients work on the same names.
pub const SHARED: &str = "shared";
/// How often the engine is ticked: more often than a server does.
const TICK: Duration = Duration::from_millis(10);
/// Consistency points come at least this often.
const CP_INTERVAL_NANOSECONDS: u64 = 500_000_000;
/// No disk here fails; a machine that is busy must not look as if one did.
const DISK_TIMEOUT_NANOSECONDS: u64 = 3_600_000_000_000;

/// What one life is like.
#[derive(Clone, Copy, Debug)]
pub struct Variety {
    /// Threads that run messages.
    pub workers: usize,
    /// The engine's memory: little, so that blocks are evicted and writers wait for room.
    pub memory_bytes: u64,
    /// How much one COMMIT logs.
    pub commit_bytes_max: u64,
}

/// See the module.
pub struct Node {
    /// The engine.
    pub engine: Arc<Engine>,
    /// It as a file service.
    pub service: Arc<Service>,
    is_killed: AtomicBool,
    /// Where its clients wait; `None` when it is dead.
    desks: Mutex<Option<Vec<Arc<Desk>>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    ending: Arc<(Mutex<bool>, Condvar)>,
    disks: Vec<Arc<dyn Disk>>,
}

impl Node {
    /// Starts an engine with its threads; it has no aggregate.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn start(media: &Media, variety: &Variety) -> Result<Self, Failure> {
        let (disks, logs) = media.open();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let watch = Watch::new(Arc::clone(&clock), DISK_TIMEOUT_NANOSECONDS);
        let disks = disks.into_iter().map(|disk| watch.over(disk)).collect();
        let tuning = Tuning { commit_bytes_max: variety.commit_bytes_max, ..Tuning::default() };
        let engine = Engine::new(Configuration {
            clock,
            entropy: Arc::new(SystemEntropy),
            logs,
            memory_bytes: variety.memory_bytes,
            cp_interval_nanoseconds: CP_INTERVAL_NANOSECONDS,
            tuning,
        });
        let service = Arc::new(Service(Arc::clone(&engine)));
        let ending = Arc::new((Mutex::new(false), Condvar::new()));
        let mut threads = Vec::new();
        let mut run = |name: &str, body: Box<dyn FnOnce() + Send>| {
            let guarded = move || {
                let _guard = AbortOnPanic;
                body();
            };
            spawn(name, guarded).map(|thread| threads.push(thread))
        };
        for number in 0..variety.workers {
            let scheduler = engine.scheduler().clone();
            run(&format!("worker-{number}"), Box::new(move || scheduler.worker_loop()))
                .map_err(Failure::machine("start a worker"))?;
        }
        let (ticked, end) = (Arc::clone(&engine), Arc::clone(&ending));
        run("ticker", Box::new(move || tick(&ticked, &watch, &end)))
            .map_err(Failure::machine("start the ticker"))?;
        let (is_killed, threads) = (AtomicBool::new(false), Mutex::new(threads));
        let desks = Mutex::new(Some(Vec::new()));
        let node = Self { engine, service, is_killed, desks, threads, ending, disks };
        node.enter();
        Ok(node)
    }

    /// The calling thread is a client of this node from now on.
    pub fn enter(&self) {
        let desk = Desk::sit_down();
        match &mut *self.desks.lock() {
            Some(desks) => desks.push(desk),
            None => desk.close(),
        }
    }

    /// Makes the aggregate and its volumes.
    ///
    /// # Errors
    /// [`Failure::Refused`].
    pub fn create(&self, kind: RaidKind, volume_blocks: u64) -> Result<(), Failure> {
        let disks = self.disks.clone();
        let request = CreateAggregate::new(AGGREGATE, kind, disks);
        self.command("make an aggregate", |done| self.engine.create_aggregate(request, done))?;
        for name in [OWN, SHARED] {
            let volume = VolumeRequest::new(name, AGGREGATE, volume_blocks);
            self.command("make a volume", |done| self.engine.create_volumes(volume, done))?;
        }
        Ok(())
    }

    /// Opens the aggregate.
    ///
    /// # Errors
    /// [`Failure::Refused`].
    pub fn open(&self) -> Result<Recovery, Failure> {
        let disks = self.disks.clone();
        self.command("open the aggregate", |done| self.engine.open_aggregate(disks, done))
    }

    /// Has an administrator's request carried out.
    ///
    /// # Errors
    /// [`Failure::Refused`]; [`Failure::Stopped`] after a kill.
    pub fn command<T: Send + 'static>(
        &self,
        what: &str,
        start: impl FnOnce(dblade::Done<T>),
    ) -> Result<T, Failure> {
        let answer: Option<Result<T, EngineError>> = Answer::to(start).wait();
        if self.is_killed.load(Ordering::SeqCst) && !matches!(answer, Some(Ok(_))) {
            return Err(Failure::Stopped);
        }
        let outcome = answer.map(|outcome| outcome.map_err(|error| error.to_string()));
        outcome.unwrap_or_else(|| Err("it was never answered".to_owned())).map_err(|reason| {
            let worker = "administrator".to_owned();
            Failure::Refused { worker, operation: what.to_owned(), reason }
        })
    }

    /// A snapshot's request.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn snapshot(&self, volume: &str, request: SnapshotRequest) -> Result<(), Failure> {
        let what = format!("{request:?} of {volume}");
        self.command(&what, |done| self.engine.request_snapshot(volume, request, done))
    }

    /// A consistency point.
    ///
    /// # Errors
    /// As [`Self::command`].
    pub fn consistency_point(&self) -> Result<(), Failure> {
        let Some(aggregate) = self.engine.aggregate_named(AGGREGATE) else {
            return Err(Failure::Stopped);
        };
        self.command("make a consistency point", |done: dblade::Done<()>| {
            let done = move |outcome: Result<(), _>| done(outcome.map_err(EngineError::from));
            aggregate.request_consistency_point(Some(Box::new(done)));
        })
    }

    /// The root directory of a volume.
    ///
    /// # Errors
    /// [`Failure::Refused`]; [`Failure::Stopped`] after a kill.
    pub fn root(&self, volume: &str) -> Result<FileHandle, Failure> {
        let answer = Answer::to(|done: Done<_>| {
            self.service.root(&Caller::root(), calls::Root { name: volume.to_owned() }, done)
        });
        let entry = self.outcome(answer)?.map_err(|error| Failure::Refused {
            worker: volume.to_owned(),
            operation: "root".to_owned(),
            reason: error.to_string(),
        })?;
        Ok(entry.handle)
    }

    /// Waits for an operation's answer.
    ///
    /// # Errors
    /// [`Failure::Stopped`] if the node was killed meanwhile; [`Failure::Server`] if the answer
    /// will never come, or is one that no healthy node gives.
    pub fn outcome<T: Send + 'static>(
        &self,
        answer: Answer<Result<T, FsError>>,
    ) -> Result<Result<T, FsError>, Failure> {
        let answer = answer.wait();
        if let Some(Ok(value)) = answer {
            return Ok(Ok(value));
        }
        if self.is_killed.load(Ordering::SeqCst) {
            return Err(Failure::Stopped);
        }
        match answer {
            None => Err(Failure::Server("an operation was never answered".to_owned())),
            Some(Err(error @ (FsError::Io | FsError::Offline | FsError::BadHandle))) => {
                Err(Failure::Server(format!("an operation was answered: {error}")))
            }
            Some(outcome) => Ok(outcome),
        }
    }

    /// Asks the service, and waits.
    ///
    /// # Errors
    /// As [`Self::outcome`].
    pub fn ask<T: Send + 'static>(
        &self,
        start: impl FnOnce(&Service, Done<T>),
    ) -> Result<Result<T, FsError>, Failure> {
        self.outcome(Answer::to(|done| start(&self.service, done)))
    }

    /// Reads a directory of at most `entries_max` entries, with their attributes.
    ///
    /// # Errors
    /// As [`Self::outcome`].
    pub fn list(
        &self,
        directory: FileHandle,
        entries_max: u32,
    ) -> Result<Result<DirectoryPage, FsError>, Failure> {
        let call =
            calls::ReadDirectory { directory, cookie: 0, entries_max, with_attributes: true };
        self.ask(|service, done| service.read_directory(&Caller::root(), call, done))
    }

    /// Why the aggregate is out of service, if it is.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let aggregate = self.engine.aggregate_named(AGGREGATE)?;
        aggregate.failure().map(|failure| failure.to_string())
    }

    /// Stops cleanly. Clients must have ended.
    ///
    /// # Errors
    /// [`Failure::Refused`] if the last consistency point failed.
    pub fn stop(&self, media: &Media) -> Result<(), Failure> {
        let stopped = self.command("stop", |done| self.engine.stop(done));
        self.end_threads(|| self.engine.scheduler().shutdown());
        // A consistency point may have begun after the last one: the end of the process cuts it.
        media.end(End::Kill);
        self.forget();
        stopped
    }

    /// Stops where it is, in the middle of what clients do: nothing is answered any more. When the
    /// clients have noticed, [`Self::forget`] is to be called.
    pub fn kill(&self, media: &Media, how: End) {
        self.is_killed.store(true, Ordering::SeqCst);
        self.engine.scheduler().halt();
        media.end(how);
        self.end_threads(|| {});
        let desks = self.desks.lock().take();
        desks.into_iter().flatten().for_each(|desk| desk.close());
    }

    /// Has the engine let go of everything: its parts know of each other.
    pub fn forget(&self) {
        self.engine.halt();
    }

    fn end_threads(&self, before: impl FnOnce()) {
        *self.ending.0.lock() = true;
        self.ending.1.notify_all();
        before();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// Ticks the engine until the end.
fn tick(engine: &Arc<Engine>, watch: &Watch, ending: &(Mutex<bool>, Condvar)) {
    let mut is_over = ending.0.lock();
    while !*is_over {
        ending.1.wait_for(&mut is_over, TICK);
        drop(is_over);
        watch.expire();
        engine.tick();
        is_over = ending.0.lock();
    }
}
