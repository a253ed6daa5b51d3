//! A client on a hard mount, which mirrors its directory: what it changes there it changes in a
//! model, and what it reads must be the model's.
//!
//! It keeps many calls of one connection under way. No two of them touch one name or one file, so
//! the answer to each is known beforehand. When the server was killed, calls are repeated, data
//! that was not committed is written again (RFC 1813 section 4.8), and then everything is compared.
//! So at every moment between calls the model is what must be there, to the byte.
//!
//! Invariants: a name or file of a call under way is in `busy`; `unstable` holds each range whose
//! data a server may lose, with the verifier that came with it; the model's files have one version.
//!
//! Fails: [`Failure::Lost`] if anything read is not the model's, [`Failure::Refused`] if a call is
//! answered with an error that it cannot have.

mod choose;
mod task;

use super::control::Control;
use super::hard_mount::HardMount;
use crate::Failure;
use crate::measure::Recorder;
use crate::pace::Pace;
use crate::random::Random;
use crate::tree::{FileNumber, Node, Operation, Tree};
use nfs_client::{Handle, NfsClient, NfsFailure, Request};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use task::Task;

/// Bytes of a READ.
const READ_BYTES: usize = 128 << 10;
/// Bytes of a WRITE that repeats lost data.
const REWRITE_BYTES: usize = 128 << 10;
/// Handles of removed files that are remembered, to see that they are stale.
const DEAD_HANDLES_MAX: usize = 32;
/// Failed choices in a row after which a client waits for an answer before it chooses again.
const CHOICES_MAX: usize = 40;

/// What a client does, and with how much.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Begins the client's name.
    pub name: &'static str,
    /// Names in each of its directories.
    pub names: u64,
    /// Largest file.
    pub file_bytes_max: usize,
    /// Largest WRITE.
    pub write_bytes_max: usize,
    /// Calls under way.
    pub depth: usize,
    /// Of 100 calls, how many change names, how many write; the others read.
    pub changes: u64,
    /// See `changes`.
    pub writes: u64,
}

/// Directories of a client. Beside their files they have subdirectories that stay empty.
const DIRECTORIES: [&str; 4] = ["d0", "d1", "d2", "d3"];

/// What a client is told.
pub enum Command {
    /// To come to rest and to say what is there; it goes on when `resume` gets something or is
    /// dropped. With `is_settled`, nothing is uncommitted then.
    Pause {
        /// Whether to commit everything.
        is_settled: bool,
        /// Where the model goes.
        reply: Sender<Tree>,
        /// When to go on.
        resume: Receiver<()>,
    },
    /// To compare everything a last time and to end.
    End,
}

/// A range of a file that the server may lose.
struct Unstable {
    start: usize,
    end: usize,
    verifier: u64,
}

/// See the module.
pub struct Mirror {
    name: String,
    shape: Shape,
    random: Random,
    recorder: Arc<Recorder>,
    pace: Pace,
    mount: HardMount,
    connections_seen: u64,
    tree: Tree,
    directories: BTreeMap<String, Handle>,
    handles: BTreeMap<FileNumber, Handle>,
    unstable: BTreeMap<FileNumber, Vec<Unstable>>,
    dead: VecDeque<Handle>,
    tasks: BTreeMap<u32, Task>,
    busy_names: BTreeSet<String>,
    busy_files: BTreeSet<FileNumber>,
    counts: Counts,
}

/// What a client did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Calls answered.
    pub answered: u64,
    /// Calls that were sent again after a kill.
    pub repeated: u64,
    /// Of these, how many the server had already done.
    pub done_before: u64,
    /// Ranges that were written again.
    pub rewritten: u64,
    /// How often everything was compared after a kill.
    pub recoveries: u64,
}

impl Mirror {
    /// Makes the client's directories.
    ///
    /// # Errors
    /// [`Failure::Refused`].
    pub fn new(
        shape: Shape,
        number: u64,
        seed: u64,
        address: SocketAddr,
        control: Arc<Control>,
        recorder: Arc<Recorder>,
        pace: Pace,
    ) -> Result<Self, Failure> {
        let name = format!("{}{number}", shape.name);
        let mut tree = Tree::default();
        let mut directories = BTreeMap::new();
        let mut prepare = || {
            let mut client = NfsClient::connect(address)?;
            let export = client.mount("/home")?;
            let root = client.make_directory(&export, &name)?;
            for directory in DIRECTORIES {
                let handle = client.make_directory(&root, directory)?;
                tree.apply(&Operation::MakeDirectory(directory.to_owned()));
                directories.insert(directory.to_owned(), handle);
            }
            directories.insert(String::new(), root);
            Ok(())
        };
        prepare().map_err(|failure: NfsFailure| Failure::Refused {
            worker: name.clone(),
            operation: "mount".to_owned(),
            reason: failure.to_string(),
        })?;
        let mut random = Random::new(seed);
        let first_xid = u32::try_from(random.below(1 << 31)).unwrap_or(0);
        Ok(Self {
            mount: HardMount::new(&name, first_xid, address, control),
            name,
            shape,
            random,
            recorder,
            pace,
            connections_seen: 0,
            tree,
            directories,
            handles: BTreeMap::new(),
            unstable: BTreeMap::new(),
            dead: VecDeque::new(),
            tasks: BTreeMap::new(),
            busy_names: BTreeSet::new(),
            busy_files: BTreeSet::new(),
            counts: Counts::default(),
        })
    }

    /// Its directory's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it did.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Works until it is told to end.
    ///
    /// # Errors
    /// The first [`Failure`].
    pub fn work(&mut self, commands: &Receiver<Command>) -> Result<(), Failure> {
        loop {
            match commands.try_recv() {
                Ok(Command::Pause { is_settled, reply, resume }) => {
                    self.rest()?;
                    if is_settled {
                        self.settle()?;
                    }
                    let _ = reply.send(self.tree.clone()); // whoever asked may have ended
                    let _ = resume.recv();
                }
                Ok(Command::End) | Err(TryRecvError::Disconnected) => {
                    self.rest()?;
                    self.settle()?;
                    return self.compare();
                }
                Err(TryRecvError::Empty) => {}
            }
            self.recover_if_reconnected()?;
            if self.pace.is_limited() {
                // As many as are under way at a time, and then a rest.
                self.pace.wait(self.shape.depth as u64);
                self.begin_some();
                self.drain()?;
            } else {
                self.begin_some();
                if !self.tasks.is_empty() {
                    self.step()?;
                }
            }
        }
    }

    fn begin_some(&mut self) {
        while self.mount.outstanding() < self.shape.depth {
            let Some((task, request)) = self.choose() else { return };
            self.begin(task, request);
        }
    }

    /// Waits for all answers; afterwards the server has what the model has.
    fn rest(&mut self) -> Result<(), Failure> {
        self.drain()?;
        self.recover_if_reconnected()
    }

    fn recover_if_reconnected(&mut self) -> Result<(), Failure> {
        while self.connections_seen != self.mount.connections() {
            let is_first = self.connections_seen == 0;
            self.connections_seen = self.mount.connections();
            if !is_first {
                self.drain()?;
                self.settle()?;
                self.compare()?;
                self.counts.recoveries += 1;
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Failure> {
        while !self.tasks.is_empty() {
            self.step()?;
        }
        Ok(())
    }

    /// Begins a call beyond the choices, when there is room for it.
    fn queue(&mut self, task: Task, request: Request) -> Result<(), Failure> {
        while self.mount.outstanding() >= self.shape.depth {
            self.step()?;
        }
        self.begin(task, request);
        Ok(())
    }

    fn begin(&mut self, task: Task, request: Request) {
        for name in &task.names {
            let is_free = self.busy_names.insert(name.clone());
            assert!(is_free, "{name} is busy");
        }
        for file in &task.files {
            let is_free = self.busy_files.insert(*file);
            assert!(is_free, "file {file} is busy");
        }
        let xid = self.mount.start(request);
        self.tasks.insert(xid, task);
    }

    /// Takes one answer in.
    fn step(&mut self) -> Result<(), Failure> {
        let done = self.mount.wait()?;
        let Some(task) = self.tasks.remove(&done.xid) else {
            unreachable!("each call has its task")
        };
        self.counts.answered += 1;
        if done.is_repeated {
            self.counts.repeated += 1;
            self.recorder.record_over_kill();
        } else {
            self.recorder.record(task.what.class(), done.latency_ns);
        }
        for name in &task.names {
            self.busy_names.remove(name);
        }
        for file in &task.files {
            self.busy_files.remove(file);
        }
        let follow_up = self.finish(task, &done.results, done.is_repeated)?;
        if let Some((task, request)) = follow_up {
            self.begin(task, request);
        }
        Ok(())
    }

    /// Commits everything, and writes again what was lost.
    fn settle(&mut self) -> Result<(), Failure> {
        while !self.unstable.is_empty() {
            let files: Vec<FileNumber> = self.unstable.keys().copied().collect();
            for file in files {
                let request = Request::commit(&self.handles[&file]);
                self.queue(Task::commit(file, true), request)?;
            }
            self.drain()?;
        }
        Ok(())
    }

    /// Compares all names and files with the model; nothing may be under way or unstable.
    fn compare(&mut self) -> Result<(), Failure> {
        for directory in DIRECTORIES {
            let request = Request::list_plus(&self.directories[directory], 0, 0);
            self.queue(Task::list(directory), request)?;
        }
        let files: Vec<(FileNumber, usize)> = self
            .tree
            .files
            .iter()
            .map(|(number, file)| (*number, file.versions.last().map_or(0, |data| data.len())))
            .collect();
        self.drain()?;
        for (file, size) in files {
            let handle = self.handles[&file].clone();
            self.queue(Task::attributes(file, false), Request::attributes(&handle))?;
            for offset in (0..size).step_by(READ_BYTES) {
                let request = Request::read(&handle, offset as u64, READ_BYTES as u32);
                self.queue(Task::read(file, offset, READ_BYTES, false), request)?;
            }
        }
        for handle in self.dead.clone() {
            self.queue(Task::dead(), Request::attributes(&handle))?;
        }
        self.drain()
    }

    fn lost(&self, what: String) -> Failure {
        Failure::Lost { who: self.name.clone(), what }
    }

    fn path_of(&self, file: FileNumber) -> String {
        let path = self.tree.names.iter().find(|(_, node)| **node == Node::File(file));
        path.map_or_else(|| format!("file {file}"), |(path, _)| path.clone())
    }
}
