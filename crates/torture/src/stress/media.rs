//! Where the disks of a stressed engine are: in memory, completed by a few threads, or in files.
//!
//! Disks in memory are those of the simulated world: its power cuts lose or tear what was not
//! flushed. Disks in files lie behind gates. A gate that is shut lets nothing through in either
//! direction, which is what the death of a process means to its disks.
//!
//! Invariants: of a life that was ended by [`Media::end`] no completion runs later and no request
//! reaches a disk; a request that was under way has been done or not.
//!
//! Fails: with what the operating system says.

use crate::Failure;
use crate::random::Random;
use dblade::{LogProvider, LogUnavailable};
use platform::disk::DiskOpener as _;
use platform::linux::{DiskOpener, IoEngineKind, create_file_disk};
use platform::simulated::SimulatedWorld;
use platform::sync::{Condvar, Mutex};
use platform::thread::{JoinHandle, spawn};
use platform::{Disk, MediaHints, ReadDone, WriteDone};
use std::path::PathBuf;
use std::sync::Arc;
use units::{AggregateUuid, BLOCK_SIZE_U64, BlockRef};

/// Threads that complete requests to disks in memory.
const COMPLETERS: usize = 3;

/// How disks are made.
#[derive(Clone, Debug)]
pub enum Place {
    /// In memory.
    Memory,
    /// Files in this directory.
    Files(PathBuf),
}

/// How a life ends if not by a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The process dies, the machine goes on.
    Kill,
    /// The power goes; of disks in files it is as a kill.
    PowerCut,
}

/// Sizes of the disks.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Disks of the aggregate.
    pub disks: usize,
    /// Blocks of each.
    pub disk_blocks: u64,
    /// Blocks of the log's.
    pub log_blocks: u64,
}

/// See the module.
pub struct Media {
    sizes: Sizes,
    body: Body,
}

enum Body {
    Memory { world: SimulatedWorld, bell: Arc<Bell>, threads: Vec<JoinHandle<()>> },
    Files { disks: Vec<Arc<dyn Disk>>, paths: Vec<PathBuf>, door: Mutex<Arc<Door>> },
}

impl Media {
    /// New disks, which hold nothing.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn new(place: &Place, sizes: Sizes, seed: u64) -> Result<Self, Failure> {
        let body = match place {
            Place::Memory => Self::in_memory(sizes, seed)?,
            Place::Files(directory) => {
                let names = (0..sizes.disks).map(|disk| format!("disk{disk}-{seed}.img"));
                let mut paths: Vec<_> = names.map(|name| directory.join(name)).collect();
                paths.push(directory.join(format!("log-{seed}.img")));
                let wrong = |error| Failure::Machine {
                    what: format!("make disks in {}", directory.display()),
                    error: std::io::Error::other(error),
                };
                let opener = DiskOpener::new(IoEngineKind::Threads)
                    .map_err(Failure::machine("start an I/O engine"))?;
                let mut disks = Vec::new();
                for (index, path) in paths.iter().enumerate() {
                    let is_log = index == sizes.disks;
                    let blocks = if is_log { sizes.log_blocks } else { sizes.disk_blocks };
                    create_file_disk(path, blocks * BLOCK_SIZE_U64).map_err(wrong)?;
                    disks.push(opener.open(&path.display().to_string()).map_err(wrong)?);
                }
                Body::Files { disks, paths, door: Mutex::default() }
            }
        };
        Ok(Self { sizes, body })
    }

    fn in_memory(sizes: Sizes, seed: u64) -> Result<Body, Failure> {
        let world = SimulatedWorld::new(seed);
        for disk in 0..sizes.disks {
            world.add_disk(&format!("disk{disk}"), sizes.disk_blocks);
        }
        world.add_disk("log", sizes.log_blocks);
        let bell = Arc::new(Bell::default());
        let ring = Arc::clone(&bell);
        world.set_submit_hook(Some(Arc::new(move || ring.ring())));
        let mut threads = Vec::new();
        for number in 0..COMPLETERS {
            let (world, bell) = (world.clone(), Arc::clone(&bell));
            let body = move || {
                let _guard = super::abort::AbortOnPanic;
                bell.serve(&world);
            };
            let thread = spawn(&format!("completer-{number}"), body);
            threads.push(thread.map_err(Failure::machine("start a thread"))?);
        }
        Ok(Body::Memory { world, bell, threads })
    }

    /// The aggregate's disks, for one life, and its log's.
    #[must_use]
    pub fn open(&self) -> (Vec<Arc<dyn Disk>>, Arc<dyn LogProvider>) {
        let mut disks: Vec<Arc<dyn Disk>> = match &self.body {
            Body::Memory { world, .. } => {
                let names = (0..self.sizes.disks).map(|disk| format!("disk{disk}"));
                let names = names.chain([String::from("log")]);
                names.filter_map(|name| world.disk(&name).map(|disk| disk as _)).collect()
            }
            Body::Files { disks, door, .. } => {
                let door = door.lock();
                let gate = |disk: &Arc<dyn Disk>| -> Arc<dyn Disk> {
                    Arc::new(Gate { inner: Arc::clone(disk), door: Arc::clone(&door) })
                };
                disks.iter().map(gate).collect()
            }
        };
        let log = disks.split_off(self.sizes.disks).remove(0);
        (disks, Arc::new(OneLog(log)))
    }

    /// Ends a life: what was opened before is dead.
    pub fn end(&self, how: End) {
        match &self.body {
            Body::Memory { world, bell, .. } => {
                match how {
                    End::Kill => world.kill(),
                    End::PowerCut => world.power_cut(),
                }
                bell.rest();
            }
            Body::Files { door, .. } => {
                let old = std::mem::take(&mut *door.lock());
                old.shut();
                old.rest();
            }
        }
    }
}

impl Drop for Media {
    fn drop(&mut self) {
        match &mut self.body {
            Body::Memory { world, bell, threads } => {
                world.set_submit_hook(None);
                bell.end();
                for thread in threads.drain(..) {
                    let _ = thread.join();
                }
                world.clear();
            }
            Body::Files { paths, .. } => {
                for path in paths {
                    let _ = std::fs::remove_file(path);
                }
            }
        }
    }
}

/// The log is this disk, whichever aggregate's.
struct OneLog(Arc<dyn Disk>);

impl LogProvider for OneLog {
    fn create(&self, aggregate: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        self.open(aggregate).map_err(|error| error.to_string())
    }

    fn open(&self, _: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        Ok(Arc::clone(&self.0))
    }
}

/// Rings when there is a request to complete.
#[derive(Default)]
struct Bell {
    state: Mutex<Ringing>,
    changed: Condvar,
}

#[derive(Default)]
struct Ringing {
    rings: u64,
    /// Threads that complete something.
    busy: usize,
    is_over: bool,
}

impl Bell {
    fn ring(&self) {
        self.state.lock().rings += 1;
        self.changed.notify_all();
    }

    fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }

    fn rest(&self) {
        let mut state = self.state.lock();
        while state.busy > 0 {
            self.changed.wait(&mut state);
        }
    }

    /// Completes requests, in the order that the world's seed chooses, until the end.
    fn serve(&self, world: &SimulatedWorld) {
        let mut state = self.state.lock();
        while !state.is_over {
            let seen = state.rings;
            state.busy += 1;
            drop(state);
            while world.step() {}
            state = self.state.lock();
            state.busy -= 1;
            self.changed.notify_all();
            while state.rings == seen && !state.is_over {
                self.changed.wait(&mut state);
            }
        }
    }
}

/// What the gates of one life share.
struct Door {
    state: Mutex<Passing>,
    changed: Condvar,
}

struct Passing {
    is_open: bool,
    under_way: usize,
}

impl Default for Door {
    fn default() -> Self {
        let state = Mutex::new(Passing { is_open: true, under_way: 0 });
        Self { state, changed: Condvar::new() }
    }
}

impl Door {
    fn enter(&self) -> bool {
        let mut state = self.state.lock();
        state.under_way += usize::from(state.is_open);
        state.is_open
    }

    /// A request is over, and whoever waited for it has been told.
    fn leave(&self) {
        self.state.lock().under_way -= 1;
        self.changed.notify_all();
    }

    fn is_open(&self) -> bool {
        self.state.lock().is_open
    }

    /// Lets nothing through any more.
    fn shut(&self) {
        self.state.lock().is_open = false;
    }

    /// Waits until the disks have done what was under way.
    fn rest(&self) {
        let mut state = self.state.lock();
        while state.under_way > 0 {
            self.changed.wait(&mut state);
        }
    }
}

/// A disk behind a door.
struct Gate {
    inner: Arc<dyn Disk>,
    door: Arc<Door>,
}

impl Gate {
    /// A completion that is dropped when the door is shut.
    fn guard<T: 'static>(
        &self,
        done: Box<dyn FnOnce(T) + Send>,
    ) -> Option<Box<dyn FnOnce(T) + Send>> {
        if !self.door.enter() {
            return None;
        }
        let door = Arc::clone(&self.door);
        Some(Box::new(move |outcome| {
            if door.is_open() {
                done(outcome);
            } else {
                drop(done);
            }
            door.leave();
        }))
    }
}

impl Disk for Gate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size_blocks(&self) -> u64 {
        self.inner.size_blocks()
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        if let Some(done) = self.guard(done) {
            self.inner.read(block, count, done);
        }
    }

    fn write(&self, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        if let Some(done) = self.guard(done) {
            self.inner.write(block, blocks, done);
        }
    }

    fn flush(&self, done: WriteDone) {
        if let Some(done) = self.guard(done) {
            self.inner.flush(done);
        }
    }

    fn write_durable(self: Arc<Self>, block: u64, blocks: Vec<BlockRef>, done: WriteDone) {
        if let Some(done) = self.guard(done) {
            Arc::clone(&self.inner).write_durable(block, blocks, done);
        }
    }

    fn hints(&self) -> MediaHints {
        self.inner.hints()
    }
}

/// How a life ends, by chance; `None` for a clean stop.
#[must_use]
pub fn choose_end(random: &mut Random) -> Option<End> {
    match random.below(3) {
        0 => None,
        1 => Some(End::Kill),
        _ => Some(End::PowerCut),
    }
}
