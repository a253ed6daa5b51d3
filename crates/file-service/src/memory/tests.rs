//! Tests of the memory backend: what the books say after each operation.

mod content;
mod model;
mod namespace;

use super::{MemoryFileSystem, VolumeOptions};
use crate::{
    Attributes, Call, Caller, CreateMode, Entry, FileHandle, FsError, NewNode, NodeChange,
    RenameFlags, SetAttributes, Stability, calls,
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

/// The answer to a call, which must have come by the time it returns, once.
fn ask<C: Call>(service: &MemoryFileSystem, caller: &Caller, call: C) -> Result<C::Reply, FsError> {
    let slot = Arc::new(Mutex::new(None));
    let inner = Arc::clone(&slot);
    let done = Box::new(move |answer| {
        assert!(inner.lock().replace(answer).is_none(), "answered twice");
    });
    call.send(service, caller, done);
    let answer = slot.lock().take();
    answer.expect("answered")
}

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Arc::new([]), ..Caller::root() }
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
        let root =
            ask(&service, &Caller::root(), calls::Root { name: "home".to_owned() }).unwrap().handle;
        Self { service, root }
    }

    fn create(&self, caller: &Caller, directory: FileHandle, name: &str) -> Result<Entry, FsError> {
        let guarded = CreateMode::Guarded;
        ask(
            &self.service,
            caller,
            calls::Create {
                directory,
                name: name.as_bytes().to_vec(),
                mode: guarded,
                set: mode(0o644),
            },
        )
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
        ask(
            &self.service,
            caller,
            calls::MakeNode { directory, name: name.as_bytes().to_vec(), node, set: mode(0o755) },
        )
        .map(|made| made.0)
    }

    fn directory(&self, parent: FileHandle, name: &str) -> FileHandle {
        self.make(&Caller::root(), parent, name, NewNode::Directory).unwrap().handle
    }

    fn lookup(&self, directory: FileHandle, name: &str) -> Result<FileHandle, FsError> {
        let root = Caller::root();
        ask(&self.service, &root, calls::Lookup { directory, name: name.as_bytes().to_vec() })
            .map(|entry| entry.handle)
    }

    fn get(&self, file: FileHandle) -> Attributes {
        ask(&self.service, &Caller::root(), calls::GetAttributes { file }).unwrap()
    }

    fn set(
        &self,
        caller: &Caller,
        file: FileHandle,
        set: SetAttributes,
    ) -> Result<NodeChange, FsError> {
        ask(&self.service, caller, calls::SetFileAttributes { file, set })
    }

    fn write(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u32, FsError> {
        let data = bytes.to_vec().into();
        ask(
            &self.service,
            caller,
            calls::Write { file, offset, data, stability: Stability::Unstable },
        )
        .map(|result| result.count)
    }

    fn read(&self, file: FileHandle, offset: u64, count: u32) -> Vec<u8> {
        let root = Caller::root();
        ask(&self.service, &root, calls::Read { file, offset, count }).unwrap().to_vec()
    }

    fn link(&self, file: FileHandle, directory: FileHandle, name: &str) -> Result<(), FsError> {
        let root = Caller::root();
        ask(&self.service, &root, calls::Link { file, directory, name: name.as_bytes().to_vec() })
            .map(|_| ())
    }

    fn remove(&self, directory: FileHandle, name: &str) -> Result<(), FsError> {
        let root = Caller::root();
        ask(&self.service, &root, calls::Remove { directory, name: name.as_bytes().to_vec() })
            .map(|_| ())
    }

    fn remove_directory(&self, directory: FileHandle, name: &str) -> Result<(), FsError> {
        let root = Caller::root();
        ask(
            &self.service,
            &root,
            calls::RemoveDirectory { directory, name: name.as_bytes().to_vec() },
        )
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
        ask(&self.service, &root, calls::Rename::between(from, to, flags)).map(|_| ())
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
