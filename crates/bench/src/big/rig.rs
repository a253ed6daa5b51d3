//! What the big loads run on: an engine on sparse files that can be stopped and opened again, with
//! disks that count their reads, and loads that keep operations in flight and note how long each
//! took.
//!
//! Invariants: the directory is the caller's; what was made in it is removed with the rig.

use crate::node::{BenchError, FileLog, start_threads, wait};
use bytes::Bytes;
use dblade::{Configuration, CreateAggregate, Engine, Service, Tuning, VolumeRequest};
use file_service::{
    Call, Caller, CreateMode, DirectoryPage, FileHandle, FsError, NewNode, SetAttributes,
    Stability, calls,
};
use ondisk::label::RaidKind;
use platform::disk::{DiskOpener, MediaHints, ReadDone, WriteDone};
use platform::linux::{IoEngineKind, SystemClock, SystemEntropy, create_file_disk};
use platform::sync::{Condvar, Mutex};
use platform::thread::JoinHandle;
use platform::{Clock, Disk};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, BlockRef};
use volume::SnapshotRequest;

/// How often consistency points are looked at.
const LOOK: Duration = Duration::from_millis(5);
/// The engine is ticked each time that so many looks have passed.
const LOOKS_PER_TICK: u64 = 10;
/// In what the kernel counts processor time, on all machines that Linux knows.
const TICKS_PER_SECOND: f64 = 100.0;
/// Bytes of one write of a file that is filled.
const FILL_BYTES: u64 = 1 << 20;
/// Such writes in flight.
const FILL_DEPTH: usize = 4;
/// The aggregate's and the volume's name.
pub(super) const NAME: &str = "big";

/// What a rig is made of.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub directory: PathBuf,
    pub disks: usize,
    pub disk_bytes: u64,
    pub volume_bytes: u64,
    pub memory_bytes: u64,
    pub workers: usize,
}

/// Reads of all disks since the start.
#[derive(Default, Debug)]
pub(super) struct Counts {
    pub reads: AtomicU64,
    pub read_blocks: AtomicU64,
}

struct Counted {
    inner: Arc<dyn Disk>,
    counts: Arc<Counts>,
}

impl Disk for Counted {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_blocks(&self) -> u64 {
        self.inner.size_blocks()
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        self.counts.reads.fetch_add(1, Ordering::Relaxed);
        self.counts.read_blocks.fetch_add(count as u64, Ordering::Relaxed);
        self.inner.read(block, count, done);
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        self.inner.write(block, blocks, done);
    }

    fn flush(&self, done: WriteDone) {
        self.inner.flush(done);
    }

    fn hints(&self) -> MediaHints {
        self.inner.hints()
    }
}

/// An engine in service.
struct Running {
    engine: Arc<Engine>,
    service: Arc<Service>,
    threads: Vec<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
    counts: Arc<Counts>,
    cps: Arc<Mutex<Vec<u64>>>,
}

/// See the module.
pub(super) struct Rig {
    shape: Shape,
    running: Option<Running>,
    clock: SystemClock,
}

fn system(what: &'static str) -> impl Fn(std::io::Error) -> BenchError {
    move |error| BenchError::System { what, error }
}

impl Rig {
    /// A new aggregate with one volume; raid4 if it has more than two disks.
    pub fn new(shape: Shape) -> Result<Self, BenchError> {
        std::fs::create_dir_all(&shape.directory).map_err(system("cannot make the directory"))?;
        let mut rig = Self { shape, running: None, clock: SystemClock };
        rig.remove_files();
        for disk in 0..rig.shape.disks {
            create_file_disk(rig.disk_path(disk), rig.shape.disk_bytes)?;
        }
        let (running, disks) = rig.start()?;
        let kind = if rig.shape.disks > 2 { RaidKind::Raid4 } else { RaidKind::None };
        let request = CreateAggregate { force: true, ..CreateAggregate::new(NAME, kind, disks) };
        let engine = Arc::clone(&running.engine);
        rig.running = Some(running);
        wait(|done| engine.create_aggregate(request, done))?;
        rig.add_volume(NAME)?;
        Ok(rig)
    }

    /// Adds a volume as large as the first.
    pub fn add_volume(&self, name: &str) -> Result<(), BenchError> {
        let volume = VolumeRequest::new(name, NAME, self.shape.volume_bytes / BLOCK_SIZE_U64);
        Ok(wait(|done| self.engine().create_volumes(volume, done))?)
    }

    fn disk_path(&self, disk: usize) -> PathBuf {
        self.shape.directory.join(format!("big-disk{disk}.img"))
    }

    fn log_path(&self) -> PathBuf {
        self.shape.directory.join("big-journal.img")
    }

    fn remove_files(&self) {
        for disk in 0..self.shape.disks {
            let _ = std::fs::remove_file(self.disk_path(disk));
        }
        let _ = std::fs::remove_file(self.log_path());
    }

    fn start(&self) -> Result<(Running, Vec<Arc<dyn Disk>>), BenchError> {
        let opener = platform::linux::DiskOpener::new(IoEngineKind::Automatic);
        let opener = Arc::new(opener.map_err(system("cannot start disk I/O"))?);
        let counts = Arc::new(Counts::default());
        let mut disks: Vec<Arc<dyn Disk>> = Vec::new();
        for disk in 0..self.shape.disks {
            let inner = opener.open(&self.disk_path(disk).display().to_string())?;
            disks.push(Arc::new(Counted { inner, counts: Arc::clone(&counts) }));
        }
        let engine = Engine::new(Configuration {
            clock: Arc::new(SystemClock),
            entropy: Arc::new(SystemEntropy),
            logs: Arc::new(FileLog { opener, path: self.log_path() }),
            memory_bytes: self.shape.memory_bytes,
            cp_interval_nanoseconds: 10_000_000_000,
            tuning: Tuning::default(),
        });
        let stopping = Arc::new(AtomicBool::new(false));
        let cps = Arc::new(Mutex::new(Vec::new()));
        let workers = self.shape.workers;
        let threads = start_threads(&engine, &stopping, workers, (LOOK, watch(&cps)));
        let threads = threads.map_err(system("cannot start threads"))?;
        let service = Arc::new(Service(Arc::clone(&engine)));
        Ok((Running { engine, service, threads, stopping, counts, cps }, disks))
    }

    /// Stops the engine, and opens its disks with a new one; how long the opening took in seconds.
    pub fn restart(&mut self) -> Result<f64, BenchError> {
        self.stop()?;
        let (running, disks) = self.start()?;
        let engine = Arc::clone(&running.engine);
        self.running = Some(running);
        let begin = self.now();
        wait(|done| engine.open_aggregate(disks, done))?;
        Ok(self.since(begin))
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let outcome = wait(|done| running.engine.stop(done));
        running.stopping.store(true, Ordering::Release);
        running.engine.scheduler().shutdown();
        for thread in running.threads {
            let _ = thread.join();
        }
        running.engine.halt();
        Ok(outcome?)
    }

    fn running(&self) -> &Running {
        let Some(running) = &self.running else { unreachable!("an engine runs between restarts") };
        running
    }

    pub fn engine(&self) -> &Arc<Engine> {
        &self.running().engine
    }

    pub fn service(&self) -> &Arc<Service> {
        &self.running().service
    }

    pub fn counts(&self) -> &Counts {
        &self.running().counts
    }

    /// Waits until no work on snapshots is left.
    pub fn settle(&self) {
        loop {
            let aggregate = self.engine().aggregate_named(NAME);
            self.commit();
            if !aggregate.is_some_and(|aggregate| aggregate.is_consistency_point_due()) {
                return;
            }
        }
    }

    /// The durations in seconds of the consistency points since the last call.
    pub fn take_cps(&self) -> Vec<f64> {
        let cps = std::mem::take(&mut *self.running().cps.lock());
        cps.into_iter().map(|nanoseconds| nanoseconds as f64 / 1e9).collect()
    }

    pub fn now(&self) -> u64 {
        self.clock.monotonic_nanoseconds()
    }

    pub fn since(&self, begin: u64) -> f64 {
        (self.now() - begin) as f64 / 1e9
    }

    /// Has everything that was done so far committed; how long that took in seconds.
    pub fn commit(&self) -> f64 {
        let begin = self.now();
        if let Some(aggregate) = self.engine().aggregate_named(NAME) {
            let _ = wait(|done| aggregate.request_consistency_point(Some(done)));
        }
        self.since(begin)
    }

    /// Blocks in use in the aggregate, as of the last commit.
    pub fn used_blocks(&self) -> u64 {
        self.engine().aggregate_named(NAME).map_or(0, |aggregate| aggregate.used_blocks())
    }

    /// Makes one call as root and waits for its answer.
    pub fn call<C: Call>(&self, what: &'static str, call: C) -> Result<C::Reply, BenchError> {
        let answer: Result<_, FsError> =
            wait(|done| call.send(&**self.service(), &Caller::root(), done));
        answer.map_err(|error| BenchError::Operation { load: what, error })
    }

    /// The root directory of a volume.
    pub fn root(&self, volume: &str) -> Result<FileHandle, BenchError> {
        Ok(self.call("root", calls::Root { name: volume.to_owned() })?.handle)
    }

    /// Makes a file or finds it.
    pub fn file(&self, directory: FileHandle, name: &str) -> Result<FileHandle, BenchError> {
        let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
        let (entry, _) =
            self.call("create", calls::Create { directory, name: name.into(), mode, set })?;
        Ok(entry.handle)
    }

    /// Makes a directory.
    pub fn folder(&self, directory: FileHandle, name: &str) -> Result<FileHandle, BenchError> {
        let (node, set) = (NewNode::Directory, SetAttributes::default());
        let (entry, _) =
            self.call("mkdir", calls::MakeNode { directory, name: name.into(), node, set })?;
        Ok(entry.handle)
    }

    /// What a name in a directory leads to.
    pub fn find(&self, directory: FileHandle, name: &str) -> Result<FileHandle, BenchError> {
        Ok(self.call("lookup", calls::Lookup { directory, name: name.into() })?.handle)
    }

    /// Removes a file.
    pub fn remove(&self, directory: FileHandle, name: &str) -> Result<(), BenchError> {
        self.call("remove", calls::Remove { directory, name: name.into() }).map(drop)
    }

    /// Sets a file's size.
    pub fn set_size(&self, file: FileHandle, size: u64) -> Result<(), BenchError> {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.call("truncate", calls::SetFileAttributes { file, set }).map(drop)
    }

    /// Entries of a directory behind `cookie`, with attributes.
    pub fn page(
        &self,
        directory: FileHandle,
        cookie: u64,
        entries_max: u32,
    ) -> Result<DirectoryPage, BenchError> {
        let list = calls::ReadDirectory { directory, cookie, entries_max, with_attributes: true };
        self.call("readdirplus", list)
    }

    /// Asks for a change of the first volume's snapshots.
    pub fn snapshot(&self, request: SnapshotRequest) -> Result<(), BenchError> {
        Ok(wait(|done| self.engine().request_snapshot(NAME, request, done))?)
    }

    /// Writes `size` bytes from a file's begin.
    pub fn fill(&self, file: FileHandle, size: u64) -> Result<(), BenchError> {
        let data = Bytes::from(vec![7; FILL_BYTES as usize]);
        let write = |number| calls::Write {
            file,
            offset: number * FILL_BYTES,
            data: data.clone(),
            stability: Stability::Unstable,
        };
        self.load("fill", FILL_DEPTH, 0..size / FILL_BYTES, write).map(drop)
    }

    /// Writes blocks at random within the first `size` bytes of a file.
    pub fn write_at_random(
        &self,
        (file, size): (FileHandle, u64),
        (depth, count): (usize, u64),
        stability: Stability,
        numbers: &mut Numbers,
    ) -> Result<Outcome, BenchError> {
        let data = Bytes::from(vec![9; BLOCK_SIZE]);
        self.load("write", depth, 0..count, |_| {
            let offset = numbers.next(size / BLOCK_SIZE_U64) * BLOCK_SIZE_U64;
            calls::Write { file, offset, data: data.clone(), stability }
        })
    }

    /// Makes the calls of `numbers` as root, with `depth` in flight.
    pub fn load<C: Call>(
        &self,
        load: &'static str,
        depth: usize,
        numbers: std::ops::Range<u64>,
        mut call: impl FnMut(u64) -> C,
    ) -> Result<Outcome, BenchError> {
        let (flight, caller) = (Arc::new(Flight::default()), Caller::root());
        let (begin, processor) = (self.now(), processor_seconds());
        let count = numbers.end - numbers.start;
        for number in numbers {
            flight.enter(depth);
            let (same, started) = (Arc::clone(&flight), self.now());
            let done = move |outcome: Result<C::Reply, FsError>| {
                same.leave(SystemClock.monotonic_nanoseconds() - started, outcome.err());
            };
            call(number).send(&**self.service(), &caller, Box::new(done));
        }
        let latencies = flight.drain().map_err(|error| BenchError::Operation { load, error })?;
        let per_second = count as f64 / self.since(begin);
        let processor_us = (processor_seconds() - processor) * 1e6 / count as f64;
        Ok(Outcome::of(per_second, processor_us, latencies))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // The disks are thrown away: what the last consistency point says matters to nobody.
        let _ = self.stop();
        self.remove_files();
    }
}

/// What a load came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    pub per_second: f64,
    /// Processor time of an operation, consistency points and clients included.
    pub processor_us: f64,
    /// Latency in milliseconds.
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Outcome {
    fn of(per_second: f64, processor_us: f64, mut nanoseconds: Vec<u64>) -> Self {
        nanoseconds.sort_unstable();
        let at = |share: f64| {
            let index = (nanoseconds.len() as f64 * share) as usize;
            let index = index.min(nanoseconds.len().saturating_sub(1));
            nanoseconds.get(index).map_or(0.0, |found| *found as f64 / 1e6)
        };
        Self { per_second, processor_us, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { per_second, processor_us, p50_ms, p99_ms, max_ms } = self;
        write!(
            f,
            "{per_second:.0}/s, {processor_us:.0} us of processor each, p50 {p50_ms:.2}, p99 {p99_ms:.2}, max {max_ms:.1} ms"
        )
    }
}

/// Keeps a number of operations in flight.
#[derive(Default)]
struct Flight {
    state: Mutex<FlightState>,
    changed: Condvar,
}

#[derive(Default)]
struct FlightState {
    running: usize,
    error: Option<FsError>,
    nanoseconds: Vec<u64>,
}

impl Flight {
    fn enter(&self, depth: usize) {
        let mut state = self.state.lock();
        while state.running >= depth {
            self.changed.wait(&mut state);
        }
        state.running += 1;
    }

    fn leave(&self, nanoseconds: u64, error: Option<FsError>) {
        let mut state = self.state.lock();
        state.running -= 1;
        state.nanoseconds.push(nanoseconds);
        state.error = state.error.or(error);
        self.changed.notify_one();
    }

    fn drain(&self) -> Result<Vec<u64>, FsError> {
        let mut state = self.state.lock();
        while state.running > 0 {
            self.changed.wait(&mut state);
        }
        state.error.map_or_else(|| Ok(std::mem::take(&mut state.nanoseconds)), Err)
    }
}

/// A sequence of numbers that looks random, the same in every run.
pub(super) struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// The middle one.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The largest.
pub(super) fn largest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Processor time of this process in seconds, which tells costs apart from a busy machine.
pub(super) fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may hold anything: user and system time are the 12th and 13th fields.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / TICKS_PER_SECOND
}

/// Resident memory of this process in bytes.
pub(super) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * BLOCK_SIZE_U64
}

/// Ticks the engine, and notes how long its consistency points take.
fn watch(cps: &Arc<Mutex<Vec<u64>>>) -> impl FnMut(&Arc<Engine>) + Send + 'static {
    let cps = Arc::clone(cps);
    let (mut seen, mut looks) = (0, 0_u64);
    move |engine| {
        looks += 1;
        if looks.is_multiple_of(LOOKS_PER_TICK) {
            engine.tick();
        }
        let Some(aggregate) = engine.aggregate_named(NAME) else { return };
        let statistics = &aggregate.statistics;
        let done = statistics.consistency_points.load(Ordering::Relaxed);
        if done != seen {
            seen = done;
            cps.lock().push(statistics.last_cp_nanoseconds.load(Ordering::Relaxed));
        }
    }
}
