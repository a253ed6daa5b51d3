//! A file service that counts the calls of one protocol: how many, how long they took, and the
//! bytes that they moved (decision 45).
//!
//! Invariants: a call and its answer go through unchanged, on the threads on which they come. On
//! its way a call costs two looks at the clock, one small allocation, and a few additions in cache
//! lines of the thread's own shard; no lock is taken.
//!
//! Fails: never.

use file_service::{Call, Caller, Done, FileService, FsError, ReadData, Request, WriteResult};
use platform::Clock;
use std::any::Any;
use std::sync::Arc;
use telemetry::{Class, Observation, Operations, shard_of_thread};

/// The protocols that are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Nfs,
    Fuse,
}

/// Their names, by number.
const PROTOCOLS: &[&str] = &["nfs", "fuse"];

const OPERATIONS: [&str; Request::KINDS.len()] = {
    let mut names = [""; Request::KINDS.len()];
    let mut number = 0;
    while number < names.len() {
        names[number] = Request::KINDS[number].name;
        number += 1;
    }
    names
};

/// What counts the calls of all protocols, with at most so much memory for volumes.
pub(crate) fn operations(memory_bytes: u64) -> Operations {
    Operations::new(&OPERATIONS, PROTOCOLS, (memory_bytes, platform::thread::parallelism()))
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// The number of a call, as it is known when this is compiled.
const fn number_of(name: &str) -> usize {
    let mut number = 0;
    while !is_same(OPERATIONS[number], name) {
        number += 1;
    }
    number
}

const fn class_of(name: &str) -> Class {
    if is_same(name, "read") {
        Class::Read
    } else if is_same(name, "write") || is_same(name, "append") {
        Class::Write
    } else {
        Class::Other
    }
}

/// What an answer needs. There is one for each shard: who holds on to it counts in a cache line
/// that other processors seldom touch.
#[repr(align(64))]
struct Way {
    operations: Arc<Operations>,
    clock: Arc<dyn Clock>,
}

/// See the module.
pub(crate) struct Measured {
    inner: Arc<dyn FileService>,
    protocol: Protocol,
    ways: Box<[Arc<Way>]>,
}

impl Measured {
    /// Counts what `protocol` asks of `inner`.
    pub(crate) fn new(
        inner: Arc<dyn FileService>,
        protocol: Protocol,
        (operations, clock): (&Arc<Operations>, &Arc<dyn Clock>),
    ) -> Self {
        let way = |_| Way { operations: Arc::clone(operations), clock: Arc::clone(clock) };
        let ways = (0..operations.shards()).map(way).map(Arc::new).collect();
        Self { inner, protocol, ways }
    }

    fn measure<C: Call>(&self, caller: &Caller, call: C, done: Done<C::Reply>) {
        // There are as many as shards, a power of two.
        let way = Arc::clone(&self.ways[shard_of_thread() & (self.ways.len() - 1)]);
        let protocol = self.protocol as usize;
        let volume = call.file().map(|file| file.volume.0);
        let began = way.clock.monotonic_nanoseconds();
        let answered = move |answer: Result<C::Reply, FsError>| {
            let bytes = answer.as_ref().map_or(0, |reply| moved_bytes(reply));
            let nanoseconds = way.clock.monotonic_nanoseconds().saturating_sub(began);
            way.operations.observe(&Observation {
                operation: const { number_of(C::KIND.name) },
                protocol,
                volume,
                class: const { class_of(C::KIND.name) },
                nanoseconds,
                bytes,
            });
            done(answer);
        };
        call.send(&*self.inner, caller, Box::new(answered));
    }
}

/// Bytes of data that an answer tells of. The type is known when this is compiled: nothing is
/// looked up here.
fn moved_bytes(reply: &dyn Any) -> u64 {
    if let Some(read) = reply.downcast_ref::<ReadData>() {
        return read.len() as u64;
    }
    reply.downcast_ref::<WriteResult>().map_or(0, |written| written.count.into())
}

file_service::impl_file_service! {
    Measured,
    limits: |measured| measured.inner.limits(),
    call: |measured, caller, call, done| measured.measure(caller, call, done),
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_service::memory::{MemoryFileSystem, VolumeOptions};
    use file_service::{CreateMode, SetAttributes, Stability, calls};
    use platform::linux::SystemClock;
    use telemetry::{Snapshot, Value};

    fn answer<C: Call>(service: &dyn FileService, call: C) -> Result<C::Reply, FsError> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let done = move |answer| drop(sender.send(answer));
        call.send(service, &Caller::root(), Box::new(done));
        receiver.recv().unwrap()
    }

    #[test]
    fn each_call_has_its_number() {
        for (number, kind) in Request::KINDS.iter().enumerate() {
            assert_eq!(number_of(kind.name), number);
        }
        assert_eq!(PROTOCOLS[Protocol::Nfs as usize], "nfs");
        assert_eq!(PROTOCOLS[Protocol::Fuse as usize], "fuse");
    }

    #[test]
    fn calls_are_counted_by_volume_with_their_bytes() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let memory = MemoryFileSystem::new(Arc::clone(&clock));
        memory.add_volume("home", VolumeOptions::default()).unwrap();
        let operations = Arc::new(operations(1 << 20));
        let counting = (&operations, &clock);
        let nfs = Measured::new(Arc::new(memory), Protocol::Nfs, counting);
        let root = answer(&nfs, calls::Root { name: "home".to_owned() }).unwrap().handle;
        operations.know(root.volume.0, "home");
        let (name, mode) = (b"file".to_vec(), CreateMode::Unchecked);
        let set = SetAttributes::default();
        let create = calls::Create { directory: root, name, mode, set };
        let file = answer(&nfs, create).unwrap().0.handle;
        let data = bytes::Bytes::from(vec![7; 3000]);
        let write = calls::Write { file, offset: 0, stability: Stability::Unstable, data };
        answer(&nfs, write).unwrap();
        let read = answer(&nfs, calls::Read { file, offset: 1000, count: 5000 }).unwrap();
        assert_eq!(read.len(), 2000);
        answer(&nfs, calls::Lookup { directory: root, name: b"none".to_vec() }).unwrap_err();
        let snapshot = Snapshot { metrics: operations.snapshot() };
        let count = |name: &str, labels: &[&str]| match snapshot.value(name, labels) {
            Some(Value::Histogram { counts, .. }) => counts.iter().sum(),
            Some(Value::Counter(count)) => *count,
            _ => 0,
        };
        for operation in ["root", "create", "write", "read", "lookup"] {
            assert_eq!(count("stroop_op_duration_seconds", &[operation, "nfs"]), 1, "{operation}");
        }
        for (class, calls) in [("read", 1), ("write", 1), ("other", 2)] {
            let name = "stroop_volume_op_duration_seconds";
            assert_eq!(count(name, &[class, "nfs", "home"]), calls, "{class}");
        }
        let name = "stroop_volume_transferred_bytes_total";
        assert_eq!(count(name, &["write", "nfs", "home"]), 3000);
        assert_eq!(count(name, &["read", "nfs", "home"]), 2000);
    }
}
