//! Single operations on an engine in memory, for tools that count instructions.
//!
//! One thread, disks that are a map, no clock that moves: the same operations make the same
//! instructions, whatever else the machine does. `cargo xtask callgrind` runs each operation twice
//! with different counts and divides the difference, so that what is prepared cancels out.
//!
//! An operation is a call of the engine. With `nfs-` before its name it is an NFS call of a client
//! ([`protocol`]).
//!
//! Invariants: the preparation does not depend on the count; one operation is under way, or one
//! batch of NFS calls; no consistency point begins but where the operation is one.

mod protocol;

use crate::memory::{Completions, MemoryDisk};
use crate::node::BenchError;
use bytes::Bytes;
use dblade::{
    Configuration, CreateAggregate, Engine, LogProvider, LogUnavailable, Service, Tuning,
    VolumeRequest,
};
use file_service::{
    Caller, CreateMode, Done, FileHandle, FileService, FsError, SetAttributes, Stability, calls,
};
use ondisk::label::RaidKind;
use platform::completion;
use platform::{Clock, Disk, Entropy};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use units::{AggregateUuid, Timestamp};

/// What can be counted.
pub const OPERATIONS: [&str; 17] = [
    "getattr",
    "lookup",
    "read-4k",
    "write-4k-unstable",
    "write-4k-stable",
    "create",
    "remove",
    "commit",
    "write-4k-and-cp",
    "nfs-getattr",
    "nfs-lookup",
    "nfs-read-4k",
    "nfs-write-4k-unstable",
    "nfs-write-4k-stable",
    "nfs-create",
    "nfs-remove",
    "nfs-commit",
];
/// Most operations of a run; as many files are prepared.
pub const OPERATIONS_MAX: u64 = 12_000;

const BLOCK_BYTES: u64 = 4096;
/// The file that is read and written; a power of two above [`OPERATIONS_MAX`], so that no block is
/// written twice.
const FILE_BLOCKS: u64 = 1 << 14;
const _: () = assert!(FILE_BLOCKS >= OPERATIONS_MAX && FILE_BLOCKS.is_power_of_two());
const DISK_BLOCKS: u64 = 1 << 20;
/// Large enough that half of it takes all stable writes of a run.
const LOG_BLOCKS: u64 = 1 << 18;
const MEMORY_BYTES: u64 = 2 << 30;

/// A clock that does not move: nothing happens because of the time.
struct StillClock;

impl Clock for StillClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_parts(1_600_000_000, 0)
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        1_000_000_000
    }
}

/// Numbers that differ, the same in every run.
#[derive(Default)]
struct Counted(AtomicU64);

impl Entropy for Counted {
    fn next_u64(&self) -> u64 {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1).wrapping_mul(ODD)
    }
}

struct Logs(Arc<Completions>);

impl LogProvider for Logs {
    fn create(&self, _: AggregateUuid) -> Result<Arc<dyn Disk>, String> {
        Ok(MemoryDisk::new("log".to_owned(), LOG_BLOCKS, &self.0))
    }

    fn open(&self, _: AggregateUuid) -> Result<Arc<dyn Disk>, LogUnavailable> {
        Err(LogUnavailable::Failed("nothing is kept here".to_owned()))
    }
}

/// An engine with one volume, a file, and a directory of files.
struct World {
    engine: Arc<Engine>,
    service: Service,
    completions: Arc<Completions>,
    clock: Arc<dyn Clock>,
    caller: Caller,
}

/// The name of a file in the directory.
fn name_of_file(number: u64) -> String {
    format!("file-{number}")
}

impl World {
    fn new() -> Result<Self, BenchError> {
        let completions = Arc::new(Completions::default());
        let clock: Arc<dyn Clock> = Arc::new(StillClock);
        let engine = Engine::new(Configuration {
            clock: Arc::clone(&clock),
            entropy: Arc::new(Counted::default()),
            logs: Arc::new(Logs(Arc::clone(&completions))),
            memory_bytes: MEMORY_BYTES,
            cp_interval_nanoseconds: u64::MAX,
            tuning: Tuning::default(),
        });
        let service = Service(Arc::clone(&engine));
        let world = Self { engine, service, completions, clock, caller: Caller::root() };
        let disk = |number| -> Arc<dyn Disk> {
            MemoryDisk::new(format!("d{number}"), DISK_BLOCKS, &world.completions)
        };
        let (disks, kind) = ((0..4).map(disk).collect(), RaidKind::Raid4);
        let request = CreateAggregate { force: true, ..CreateAggregate::new("a", kind, disks) };
        world.wait(|done| world.engine.create_aggregate(request, done))?;
        let volume = VolumeRequest::new("v", "a", DISK_BLOCKS);
        world.wait(|done| world.engine.create_volumes(volume, done))?;
        Ok(world)
    }

    /// Runs messages and completions, in order, until the answer is there.
    fn wait<T: Send + 'static>(&self, start: impl FnOnce(Box<dyn FnOnce(T) + Send>)) -> T {
        completion::wait(start, || self.run_one())
    }

    /// Runs the next message or completion; whether there was one.
    fn run_one(&self) -> bool {
        self.engine.scheduler().run_one(&mut |_| 0) || self.completions.run_one()
    }

    fn ask<T: Send + 'static>(&self, start: impl FnOnce(Done<T>)) -> Result<T, BenchError> {
        let answer = self.wait(start);
        answer.map_err(|error: FsError| BenchError::Operation { load: "preparing", error })
    }

    /// Makes everything clean.
    fn consistency_point(&self) -> Result<(), BenchError> {
        for aggregate in self.engine.aggregates() {
            let committed = self.wait(|done| aggregate.request_consistency_point(Some(done)));
            let what = "the engine";
            committed.map_err(|error| BenchError::Server { what, why: error.to_string() })?;
        }
        Ok(())
    }

    fn create(&self, directory: FileHandle, number: u64) -> Result<FileHandle, BenchError> {
        let name = name_of_file(number);
        let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
        let made = self.ask(|done| {
            self.service.create(
                &self.caller,
                calls::Create { directory, name: name.as_bytes().to_vec(), mode, set },
                done,
            );
        });
        made.map(|(entry, _)| entry.handle)
    }

    fn write(
        &self,
        file: FileHandle,
        block: u64,
        data: &Bytes,
        how: Stability,
    ) -> Result<(), BenchError> {
        let offset = block % FILE_BLOCKS * BLOCK_BYTES;
        let data = data.clone();
        let written = self.ask(|done| {
            self.service.write(
                &self.caller,
                calls::Write { file, offset, data, stability: how },
                done,
            )
        });
        written.map(|_| ())
    }
}

/// Runs the operation called `name` so many times.
///
/// # Errors
/// [`BenchError`].
pub fn run_operation(name: &str, count: u64) -> Result<(), BenchError> {
    let known = || OPERATIONS.join(", ");
    if !OPERATIONS.contains(&name) || count > OPERATIONS_MAX {
        return Err(BenchError::NoLoad { known: known() });
    }
    let world = World::new()?;
    let root = world
        .ask(|done| {
            world.service.root(&Caller::root(), calls::Root { name: "v".to_owned() }, done)
        })?
        .handle;
    let data = Bytes::from(vec![7; BLOCK_BYTES as usize]);
    let file = world.create(root, OPERATIONS_MAX)?;
    for block in 0..FILE_BLOCKS {
        world.write(file, block, &data, Stability::Unstable)?;
    }
    if name.ends_with("remove") {
        (0..OPERATIONS_MAX).try_for_each(|number| world.create(root, number).map(|_| ()))?;
    }
    world.consistency_point()?;
    if let Some(name) = name.strip_prefix(protocol::PREFIX) {
        return protocol::run(&world, name, count);
    }
    for number in 0..count {
        let block = number.wrapping_mul(7919);
        match name {
            "getattr" => {
                world.ask(|done| {
                    world.service.attributes(&Caller::root(), calls::GetAttributes { file }, done)
                })?;
            }
            "lookup" => {
                let name = name_of_file(OPERATIONS_MAX);
                world.ask(|done| {
                    world.service.lookup(
                        &world.caller,
                        calls::Lookup { directory: root, name: name.as_bytes().to_vec() },
                        done,
                    );
                })?;
            }
            "read-4k" => {
                let offset = block % FILE_BLOCKS * BLOCK_BYTES;
                let bytes = BLOCK_BYTES as u32;
                world.ask(|done| {
                    world.service.read(
                        &world.caller,
                        calls::Read { file, offset, count: bytes },
                        done,
                    )
                })?;
            }
            "write-4k-unstable" | "write-4k-and-cp" => {
                world.write(file, block, &data, Stability::Unstable)?;
            }
            "write-4k-stable" => world.write(file, block, &data, Stability::FileSync)?,
            "create" => {
                world.create(root, number)?;
            }
            "remove" => {
                let name = name_of_file(number);
                world.ask(|done| {
                    world.service.remove(
                        &world.caller,
                        calls::Remove { directory: root, name: name.as_bytes().to_vec() },
                        done,
                    );
                })?;
            }
            _ => {
                world.ask(|done| {
                    world.service.commit(&world.caller, calls::Commit::of(file), done)
                })?;
            }
        }
    }
    if name == "write-4k-and-cp" {
        world.consistency_point()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_runs() {
        for name in OPERATIONS.into_iter().filter(|name| !name.ends_with("remove")) {
            run_operation(name, 32).unwrap();
        }
        assert!(run_operation("no such", 1).is_err());
    }
}
