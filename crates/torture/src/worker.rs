//! A writer: random operations on a directory of its own, over FUSE or NFS, until the server is
//! gone; and what was promised of them.
//!
//! Invariants: an operation is chosen so that it must succeed; `durable` holds everything up to the
//! last operation whose answer promised durability, `pending` what was answered since, `in_flight`
//! what never was. What promises what is docs/semantics.md: over NFS every answer but that of an
//! unstable write; over FUSE fsync of anything and writes of `O_DSYNC` files.
//!
//! Fails: [`Failure::Refused`] if an operation is answered with an error while the server lives;
//! [`Failure::Lost`] if what is there is none of the trees that may be.

use crate::Failure;
use crate::found::{Found, FoundKind, read_tree};
use crate::measure::{Class, Recorder, now_ns};
use crate::pace::Pace;
use crate::power::history::{Allowed, History, Meter};
use crate::random::Random;
use crate::tree::{FileNumber, Node, Operation, Tree, parent};
use nfs_client::{Handle, NfsClient, NfsFailure, STALE, Setting};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Directories that a writer makes and removes; names within them come on top.
const DIRECTORIES: [&str; 4] = ["", "a/", "b/", "a/c/"];
/// Names in each directory.
const NAMES: u64 = 10;
/// Largest file. Past a few blocks, so that there are pointer blocks, and cheap to compare.
const FILE_BYTES_MAX: u64 = 300_000;
/// Largest write; within what FUSE and NFS transfer at once, so it is one operation.
const WRITE_BYTES_MAX: u64 = 40_000;
/// Answered operations without a promise before a writer asks for one: each costs a comparison.
const PENDING_MAX: usize = 24;
/// Handles of removed files that are remembered, to see that they are stale.
const DEAD_HANDLES_MAX: usize = 32;

/// How a writer reaches its directory.
enum Door {
    Fuse,
    Nfs(NfsDoor),
}

struct NfsDoor {
    client: NfsClient,
    /// The writer's directory.
    root: Handle,
    handles: BTreeMap<FileNumber, Handle>,
    dead: Vec<Handle>,
    /// The write verifier, and whether a write since the last start is uncommitted.
    verifier: Option<u64>,
}

/// A writer, which lives longer than servers do.
pub struct Worker {
    name: String,
    random: Random,
    /// Where its directory is on the mount.
    directory: PathBuf,
    door: Door,
    durable: Tree,
    pending: Vec<Operation>,
    current: Tree,
    in_flight: Option<Operation>,
    /// Operations answered in all rounds.
    answered: u64,
    recorder: Option<Arc<Recorder>>,
    history: Option<History>,
    pace: Pace,
}

enum Refusal {
    Os(io::Error),
    Nfs(NfsFailure),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Os(error)
    }
}

impl From<NfsFailure> for Refusal {
    fn from(error: NfsFailure) -> Self {
        Self::Nfs(error)
    }
}

impl Worker {
    /// A writer over the mount.
    ///
    /// # Errors
    /// If its directory cannot be made.
    pub fn over_fuse(name: &str, seed: u64, mountpoint: &Path) -> Result<Self, Failure> {
        let directory = mountpoint.join(name);
        fs::create_dir(&directory).map_err(Failure::at("make", &directory))?;
        sync_directory(&directory).map_err(Failure::at("fsync", &directory))?;
        Ok(Self::new(name, seed, directory, Door::Fuse))
    }

    /// A writer over NFS. What is there is read through the mount as well.
    ///
    /// # Errors
    /// If its directory cannot be made.
    pub fn over_nfs(
        name: &str,
        seed: u64,
        mountpoint: &Path,
        address: SocketAddr,
    ) -> Result<Self, Failure> {
        let connect = || {
            let mut client = NfsClient::connect(address)?;
            let export = client.mount("/home")?;
            let root = client.make_directory(&export, name)?;
            let (handles, dead) = (BTreeMap::new(), Vec::new());
            Ok(NfsDoor { client, root, handles, dead, verifier: None })
        };
        let failed = |error: NfsFailure| Failure::Refused {
            worker: name.to_owned(),
            operation: "mount".to_owned(),
            reason: error.to_string(),
        };
        let door = Door::Nfs(connect().map_err(failed)?);
        Ok(Self::new(name, seed, mountpoint.join(name), door))
    }

    fn new(name: &str, seed: u64, directory: PathBuf, door: Door) -> Self {
        Self {
            name: name.to_owned(),
            random: Random::new(seed),
            directory,
            door,
            durable: Tree::default(),
            pending: Vec::new(),
            current: Tree::default(),
            in_flight: None,
            answered: 0,
            recorder: None,
            history: None,
            pace: Pace::unlimited(),
        }
    }

    /// From now on notes how long operations take, and takes its time.
    pub fn record_to(&mut self, recorder: Arc<Recorder>, pace: Pace) {
        (self.recorder, self.pace) = (Some(recorder), pace);
    }

    /// From now on keeps a history; what is there is durable.
    pub fn begin_history(&mut self, meter: Meter) {
        self.history = Some(History::new(meter, self.current.clone()));
    }

    /// Ends the history.
    #[must_use]
    pub fn end_history(&mut self) -> Option<History> {
        self.history.take()
    }

    /// Operations that were answered in this writer's life.
    #[must_use]
    pub const fn answered(&self) -> u64 {
        self.answered
    }

    /// Works until the server is gone, which `is_killed` says before it is so.
    ///
    /// # Errors
    /// [`Failure::Refused`] if an operation fails while the server lives.
    pub fn work(&mut self, is_killed: &AtomicBool) -> Result<(), Failure> {
        loop {
            self.pace.wait(1);
            let operation = self.choose();
            self.in_flight = Some(operation.clone());
            if let Some(history) = &mut self.history {
                history.ask(operation.clone());
            }
            let began_ns = now_ns();
            let performed = self.perform(&operation);
            if let (Some(recorder), Ok(())) = (&self.recorder, &performed) {
                recorder.record(self.class(&operation), now_ns() - began_ns);
            }
            if let Err(refusal) = performed {
                if is_killed.load(Ordering::SeqCst) {
                    return Ok(());
                }
                return Err(Failure::Refused {
                    worker: self.name.clone(),
                    operation: format!("{operation:?}"),
                    reason: match refusal {
                        Refusal::Os(error) => error.to_string(),
                        Refusal::Nfs(error) => error.to_string(),
                    },
                });
            }
            self.note_answer(operation);
        }
    }

    const fn class(&self, operation: &Operation) -> Class {
        match self.door {
            Door::Nfs(_) => Class::of_nfs_change(operation),
            Door::Fuse => Class::of_fuse_change(operation),
        }
    }

    fn note_answer(&mut self, operation: Operation) {
        self.in_flight = None;
        self.answered += 1;
        let promises = match (&self.door, &operation) {
            (_, Operation::Write { stable, .. }) => *stable,
            (Door::Nfs(_), _) | (_, Operation::Commit(_) | Operation::SyncDirectory) => true,
            (Door::Fuse, _) => false,
        };
        if let Some(history) = &mut self.history {
            history.answer(promises);
        }
        self.current.apply(&operation);
        self.pending.push(operation);
        if promises {
            self.durable = self.current.clone();
            self.pending.clear();
        }
    }

    fn choose(&mut self) -> Operation {
        if self.pending.len() >= PENDING_MAX {
            let mut files = self.current.names.keys();
            let file = files.rfind(|path| self.current.file_number(path).is_some());
            return file.map_or(Operation::SyncDirectory, |path| Operation::Commit(path.clone()));
        }
        loop {
            let operation = self.any_operation();
            if self.current.allows(&operation) {
                return operation;
            }
        }
    }

    fn any_operation(&mut self) -> Operation {
        let path = self.any_path();
        let random = &mut self.random;
        match random.below(40) {
            0..=5 => Operation::Create(path),
            6..=17 => {
                let length = 1 + random.below(WRITE_BYTES_MAX);
                // Often a whole number of blocks, often at the end, as programs write.
                let length = if random.one_in(3) { length.next_multiple_of(4096) } else { length };
                let size = self.current.size(&path).unwrap_or(0) as u64;
                let offset = match random.below(4) {
                    0 => 0,
                    1 => size,
                    2 => random.below(size + 1),
                    _ => random.below(FILE_BYTES_MAX - WRITE_BYTES_MAX),
                };
                let data = Arc::new(random.bytes(length as usize));
                let offset = offset.min(FILE_BYTES_MAX) as usize;
                Operation::Write { path, offset, data, stable: random.one_in(3) }
            }
            18..=19 => Operation::Truncate(path, random.below(FILE_BYTES_MAX) as usize),
            20 => Operation::Truncate(path, 0),
            21..=22 => Operation::SetMode(path, 0o400 | random.below(0o400) as u32),
            23..=24 => Operation::Link(path, self.any_path()),
            25..=28 => Operation::Rename(path, self.any_path()),
            29..=31 => Operation::Remove(path),
            32 => Operation::MakeDirectory(self.any_directory()),
            33 => Operation::RemoveDirectory(self.any_directory()),
            34 => Operation::Rename(self.any_directory(), self.any_directory()),
            35 => {
                let length = 1 + random.below(200) as usize;
                Operation::Symlink(path, "x".repeat(length))
            }
            36..=38 => Operation::Commit(path),
            _ => Operation::SyncDirectory,
        }
    }

    fn any_path(&mut self) -> String {
        let directory = DIRECTORIES[self.random.below(DIRECTORIES.len() as u64) as usize];
        format!("{directory}n{}", self.random.below(NAMES))
    }

    fn any_directory(&mut self) -> String {
        let named = &DIRECTORIES[1..];
        let directory = named[self.random.below(named.len() as u64) as usize];
        directory.trim_end_matches('/').to_owned()
    }

    fn perform(&mut self, operation: &Operation) -> Result<(), Refusal> {
        match &mut self.door {
            Door::Fuse => Ok(perform_on_mount(&self.directory, operation)?),
            Door::Nfs(door) => Ok(door.perform(&self.current, operation)?),
        }
    }

    /// After a restart: compares what is there with what may be, and takes it for what is.
    ///
    /// # Errors
    /// [`Failure::Lost`].
    pub fn verify(&mut self, address: SocketAddr) -> Result<(), Failure> {
        let found = read_tree(&self.directory)?;
        let later = self.pending.drain(..).chain(self.in_flight.take()).collect();
        let allowed = Allowed { durable: self.durable.clone(), later };
        let mut tree = self.compare(allowed, &found)?;
        tree.settle(&found);
        self.durable = tree.clone();
        self.current = tree;
        let Door::Nfs(door) = &mut self.door else { return Ok(()) };
        door.verify(address, &self.current, &found)
            .map_err(|what| Failure::Lost { who: self.name.clone(), what })
    }

    /// After a power cut at a moment of this history: compares what is there with what may be.
    ///
    /// # Errors
    /// [`Failure::Lost`].
    pub fn verify_allowed(&self, allowed: Allowed) -> Result<(), Failure> {
        let found = read_tree(&self.directory)?;
        self.compare(allowed, &found).map(drop)
    }

    /// Which of the trees that may be is there.
    fn compare(&self, allowed: Allowed, found: &BTreeMap<String, Found>) -> Result<Tree, Failure> {
        let Allowed { durable: mut tree, later } = allowed;
        let mut differences = tree.difference(found);
        let mut tried = vec![format!("nothing more: {}", differences.join("; "))];
        let last = later.len().saturating_sub(1);
        for (index, operation) in later.iter().enumerate() {
            if differences.is_empty() {
                break;
            }
            // Over NFS an operation is there whole or not at all.
            match self.door {
                Door::Fuse if index == last => tree.apply_in_part(operation),
                _ => tree.apply(operation),
            }
            differences = tree.difference(found);
            tried.push(format!("{operation:?}: {}", differences.join("; ")));
        }
        if differences.is_empty() {
            return Ok(tree);
        }
        let what = format!(
            "none of the trees that may be; since the last promise{}",
            tried.iter().map(|line| format!("\n  {line}")).collect::<String>()
        );
        Err(Failure::Lost { who: self.name.clone(), what })
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

fn perform_on_mount(directory: &Path, operation: &Operation) -> io::Result<()> {
    let at = |path: &String| directory.join(path);
    match operation {
        Operation::Create(path) => {
            let file =
                OpenOptions::new().write(true).create_new(true).mode(0o644).open(at(path))?;
            // The mode is not what the process's mask leaves of it.
            file.set_permissions(Permissions::from_mode(0o644))
        }
        Operation::Write { path, offset, data, stable } => {
            let mut options = OpenOptions::new();
            let flags = if *stable { libc::O_DSYNC } else { 0 };
            let file = options.write(true).custom_flags(flags).open(at(path))?;
            file.write_all_at(data, *offset as u64)
        }
        Operation::Truncate(path, size) => {
            OpenOptions::new().write(true).open(at(path))?.set_len(*size as u64)
        }
        Operation::SetMode(path, mode) => {
            fs::set_permissions(at(path), Permissions::from_mode(*mode))
        }
        Operation::Link(from, to) => fs::hard_link(at(from), at(to)),
        Operation::Rename(from, to) => fs::rename(at(from), at(to)),
        Operation::Remove(path) => fs::remove_file(at(path)),
        Operation::MakeDirectory(path) => fs::create_dir(at(path)),
        Operation::RemoveDirectory(path) => fs::remove_dir(at(path)),
        Operation::Symlink(path, text) => symlink(text, at(path)),
        Operation::Commit(path) => OpenOptions::new().write(true).open(at(path))?.sync_all(),
        Operation::SyncDirectory => sync_directory(directory),
    }
}

impl NfsDoor {
    fn perform(&mut self, tree: &Tree, operation: &Operation) -> Result<(), NfsFailure> {
        match operation {
            Operation::Create(path) => {
                let directory = self.directory(parent(path))?;
                let handle = self.client.create(&directory, name(path))?;
                // The tree gives numbers in order of creation.
                let mut after = tree.clone();
                after.apply(operation);
                self.handles.extend(after.file_number(path).map(|number| (number, handle)));
            }
            Operation::Write { path, offset, data, stable } => {
                let file = self.lookup(path)?;
                let verifier = self.client.write(&file, *offset as u64, data, *stable)?;
                self.see_verifier(verifier);
            }
            Operation::Truncate(path, size) => {
                let file = self.lookup(path)?;
                self.client.set(&file, Setting::Size(*size as u64))?;
            }
            Operation::SetMode(path, mode) => {
                let file = self.lookup(path)?;
                self.client.set(&file, Setting::Mode(*mode))?;
            }
            Operation::Link(from, to) => {
                let (file, directory) = (self.lookup(from)?, self.directory(parent(to))?);
                self.client.link(&file, &directory, name(to))?;
            }
            Operation::Rename(from, to) => {
                let (source, target) = (self.directory(parent(from))?, self.directory(parent(to))?);
                self.client.rename((&source, name(from)), (&target, name(to)))?;
            }
            Operation::Remove(path) => {
                let directory = self.directory(parent(path))?;
                self.client.remove(&directory, name(path))?;
            }
            Operation::MakeDirectory(path) => {
                let directory = self.directory(parent(path))?;
                self.client.make_directory(&directory, name(path))?;
            }
            Operation::RemoveDirectory(path) => {
                let directory = self.directory(parent(path))?;
                self.client.remove_directory(&directory, name(path))?;
            }
            Operation::Symlink(path, text) => {
                let directory = self.directory(parent(path))?;
                self.client.symlink(&directory, name(path), text)?;
            }
            Operation::Commit(path) => {
                let file = self.lookup(path)?;
                let verifier = self.client.commit(&file)?;
                self.see_verifier(verifier);
            }
            Operation::SyncDirectory => {
                let root = self.root.clone();
                self.client.lookup(&root, ".")?;
            }
        }
        Ok(())
    }

    fn directory(&mut self, path: &str) -> Result<Handle, NfsFailure> {
        let mut handle = self.root.clone();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            handle = self.client.lookup(&handle, name)?;
        }
        Ok(handle)
    }

    fn lookup(&mut self, path: &str) -> Result<Handle, NfsFailure> {
        let directory = self.directory(parent(path))?;
        self.client.lookup(&directory, name(path))
    }

    /// One server has one verifier: another one means that uncommitted data may be lost.
    fn see_verifier(&mut self, verifier: u64) {
        let known = *self.verifier.get_or_insert(verifier);
        assert_eq!(known, verifier, "the verifier changed while the server lived");
    }

    /// Whether the handles of before lead to the same files, and those of removed files nowhere.
    fn verify(
        &mut self,
        address: SocketAddr,
        tree: &Tree,
        found: &BTreeMap<String, Found>,
    ) -> Result<(), String> {
        self.client = NfsClient::connect(address).map_err(|error| error.to_string())?;
        let mut seen = Vec::new();
        for (path, node) in &tree.names {
            let (Node::File(number), Some(there)) = (node, found.get(path)) else { continue };
            let FoundKind::File(content) = &there.kind else { continue };
            let Some(handle) = self.handles.get(number) else {
                // Its creation was never answered.
                let handle = self.lookup(path).map_err(|error| format!("{path}: {error}"))?;
                self.handles.insert(*number, handle);
                continue;
            };
            seen.push(*number);
            let read = self.client.read(handle).map_err(|error| format!("{path}: {error}"))?;
            if read != **content {
                return Err(format!("{path} read over NFS is not the same as over FUSE"));
            }
        }
        self.check_dead(tree)?;
        let before = self.verifier.take();
        let Some(number) = seen.first() else { return Ok(()) };
        let Some(handle) = self.handles.get(number) else { return Ok(()) };
        let after = self.client.commit(handle).map_err(|error| error.to_string())?;
        self.verifier = Some(after);
        if before == Some(after) {
            Err("the verifier is that of before".to_owned())
        } else {
            Ok(())
        }
    }

    fn check_dead(&mut self, tree: &Tree) -> Result<(), String> {
        let gone = self.handles.extract_if(.., |number, _| !tree.files.contains_key(number));
        self.dead.extend(gone.map(|(_, handle)| handle));
        let excess = self.dead.len().saturating_sub(DEAD_HANDLES_MAX);
        self.dead.drain(..excess);
        for handle in &self.dead {
            match self.client.read(handle) {
                Err(NfsFailure::Status(STALE)) => {}
                Err(error) => return Err(format!("a removed file's handle: {error}")),
                Ok(content) => {
                    return Err(format!("a removed file is there: {} bytes", content.len()));
                }
            }
        }
        Ok(())
    }
}

/// The last part of a path.
fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
