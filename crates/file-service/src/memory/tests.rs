//! Tests of the memory backend: what the books say after each operation.

mod content;
mod model;
mod namespace;

use super::{MemoryFileSystem, VolumeOptions};
use crate::{
    Attributes, Caller, CreateMode, Done, Durability, Entry, FileHandle, FileService, FsError,
    NewNode, NodeChange, RenameFlags, SetAttributes, Stability,
};
use platform::Clock;
use platform::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use units::Timestamp;

/// A clock that each reading moves by one.
struct CountingClock(AtomicI64);

impl Clock for CountingClock {
    fn wall(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        0
    }
}

/// Runs a call and takes its answer, which must have come by the time it returns, once.
fn call<T: Send + 'static>(run: impl FnOnce(Done<T>)) -> Result<T, FsError> {
    let slot = Arc::new(Mutex::new(None));
    let inner = Arc::clone(&slot);
    run(Box::new(move |answer| {
        assert!(inner.lock().replace(answer).is_none(), "answered twice");
    }));
    let answer = slot.lock().take();
    answer.expect("answered")
}

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Arc::new([]), durability: Durability::Logged }
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

/// A volume and short names for the calls that tests make most.
struct Fixture {
    service: MemoryFileSystem,
    root: FileHandle,
}

impl Fixture {
    fn new() -> Self {
        Self::with_options(VolumeOptions { root_mode: 0o777, ..VolumeOptions::default() })
    }

    fn with_options(options: VolumeOptions) -> Self {
        let service = MemoryFileSystem::new(Arc::new(CountingClock(AtomicI64::new(1))));
        service.add_volume("home", options).unwrap();
        let root = call(|done| service.root("home", done)).unwrap().handle;
        Self { service, root }
    }

    fn create(&self, caller: &Caller, directory: FileHandle, name: &str) -> Result<Entry, FsError> {
        let guarded = CreateMode::Guarded;
        call(|done| {
            self.service.create(caller, directory, name.as_bytes(), guarded, mode(0o644), done);
        })
        .map(|made| made.0)
    }

    fn file(&self, name: &str) -> FileHandle {
        self.create(&Caller::root(), self.root, name).unwrap().handle
    }

    fn make(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &str,
        node: NewNode,
    ) -> Result<Entry, FsError> {
        call(|done| {
            self.service.make_node(caller, directory, name.as_bytes(), node, mode(0o755), done);
        })
        .map(|made| made.0)
    }

    fn directory(&self, parent: FileHandle, name: &str) -> FileHandle {
        self.make(&Caller::root(), parent, name, NewNode::Directory).unwrap().handle
    }

    fn lookup(&self, directory: FileHandle, name: &str) -> Result<FileHandle, FsError> {
        let root = Caller::root();
        call(|done| self.service.lookup(&root, directory, name.as_bytes(), done))
            .map(|entry| entry.handle)
    }

    fn get(&self, file: FileHandle) -> Attributes {
        call(|done| self.service.attributes(file, done)).unwrap()
    }

    fn set(
        &self,
        caller: &Caller,
        file: FileHandle,
        set: SetAttributes,
    ) -> Result<NodeChange, FsError> {
        call(|done| self.service.set_attributes(caller, file, set, done))
    }

    fn write(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u32, FsError> {
        let data = bytes.to_vec().into();
        call(|done| self.service.write(caller, file, offset, data, Stability::Unstable, done))
            .map(|result| result.count)
    }

    fn read(&self, file: FileHandle, offset: u64, count: u32) -> Vec<u8> {
        let root = Caller::root();
        call(|done| self.service.read(&root, file, offset, count, done)).unwrap().to_vec()
    }

    fn link(&self, file: FileHandle, directory: FileHandle, name: &str) -> Result<(), FsError> {
        let root = Caller::root();
        call(|done| self.service.link(&root, file, directory, name.as_bytes(), done)).map(|_| ())
    }

    fn remove(&self, directory: FileHandle, name: &str) -> Result<(), FsError> {
        let root = Caller::root();
        call(|done| self.service.remove(&root, directory, name.as_bytes(), done)).map(|_| ())
    }

    fn remove_directory(&self, directory: FileHandle, name: &str) -> Result<(), FsError> {
        let root = Caller::root();
        call(|done| self.service.remove_directory(&root, directory, name.as_bytes(), done))
            .map(|_| ())
    }

    fn rename(
        &self,
        from: (FileHandle, &str),
        to: (FileHandle, &str),
        flags: RenameFlags,
    ) -> Result<(), FsError> {
        let root = Caller::root();
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        call(|done| self.service.rename(&root, from, to, flags, done)).map(|_| ())
    }

    fn move_to(&self, from: (FileHandle, &str), to: (FileHandle, &str)) -> Result<(), FsError> {
        self.rename(from, to, RenameFlags::default())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.service.verify();
        }
    }
}
