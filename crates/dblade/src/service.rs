//! The engine as a file service: each call finds its volume, becomes an operation, and is sent to
//! its affinity.
//!
//! Invariants: no call blocks. A handle of a volume that is not online is `Stale`.

use crate::background::reap;
use crate::engine::Engine;
use crate::messages::{Ask, Host, Mutate, refusal};
use crate::served::VolumeKind;
use affinity::{Access, Outcome};
use bytes::Bytes;
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Reader};
use file_service::{
    Allocation, Attributes, Caller, CreateMode, DirectoryPage, Done, Entry, FileHandle,
    FileService, FileSystemStatistics, FsError, Hold, Limits, NewNode, NodeChange, ReadData,
    RenameFlags, SeekTarget, SetAttributes, Stability, WriteResult, XattrSetMode,
};
use operations::{Mutation, Query, Scope};
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// Largest file: 64 TiB. Promises of space count the nodes of a tree that reaches 112 TiB.
const FILE_BYTES_MAX: u64 = 1 << 46;

/// Largest READ and WRITE: beyond it protocols and kernels gain nothing.
const TRANSFER_BYTES_MAX: u64 = 1 << 20;
/// And however little memory there is.
const TRANSFER_BYTES_MIN: u64 = 128 << 10;
/// The share of the engine's memory that one transfer may take: clients keep dozens under way.
const TRANSFER_SHARE: u64 = 512;

/// The limits that clients are told.
pub(crate) fn limits(memory_bytes: u64) -> Limits {
    let share = (memory_bytes / TRANSFER_SHARE).max(1);
    // A power of two, as clients like them.
    let share = (1 << share.ilog2()).clamp(TRANSFER_BYTES_MIN, TRANSFER_BYTES_MAX);
    Limits {
        transfer_bytes_max: share as u32,
        file_bytes_max: FILE_BYTES_MAX,
        links_max: file_service::rules::entries::LINKS_MAX,
        name_bytes_max: 255,
    }
}

/// See [`FileService::losses`].
fn losses(engine: &Engine, file: &FileHandle) -> u64 {
    engine.register.read().losses.get(&file.file_system).copied().unwrap_or(0)
}

/// Work on a volume of either pointer format.
pub(crate) trait Work<T> {
    fn on<P: Pointer>(self, host: Host<P>, done: Done<T>);
}

struct AskWork<Q>(Q);

impl<Q: Query + 'static> Work<Q::Reply> for AskWork<Q>
where
    Q::Reply: 'static,
{
    fn on<P: Pointer>(self, host: Host<P>, done: Done<Q::Reply>) {
        let now = host.engine.configuration.clock.wall();
        let held = HeldBlocks::default();
        let message = Ask { host: host.clone(), query: self.0, now, held, done: Some(done) };
        host.send_logical(Box::new(message));
    }
}

struct MutateWork<M>(M, Scope);

impl<M: Mutation + 'static> Work<M::Reply> for MutateWork<M>
where
    M::Reply: 'static,
{
    fn on<P: Pointer>(self, host: Host<P>, done: Done<M::Reply>) {
        let message = Mutate {
            host: host.clone(),
            mutation: self.0,
            now: self.1.now,
            durability: self.1.caller.durability,
            held: HeldBlocks::default(),
            done: Some(done),
        };
        host.send_logical(Box::new(message));
    }
}

/// The engine as front ends see it.
pub struct Service(pub Arc<Engine>);

impl Service {
    pub(crate) fn on<T: 'static>(&self, file: FileHandle, work: impl Work<T>, done: Done<T>) {
        let engine = Arc::clone(&self.0);
        let Some(served) = engine.volume_of(&file) else {
            return done(Err(engine.absence_of(&file)));
        };
        match served.kind.clone() {
            VolumeKind::Flexible(volume) => {
                work.on(Host { engine, served, fronted: volume }, done);
            }
            VolumeKind::Traditional(volume) => {
                work.on(Host { engine, served, fronted: volume }, done);
            }
        }
    }

    pub(crate) fn ask<Q: Query + 'static>(&self, file: FileHandle, query: Q, done: Done<Q::Reply>)
    where
        Q::Reply: 'static,
    {
        self.on(file, AskWork(query), done);
    }

    pub(crate) fn mutate<M: Mutation + 'static>(
        &self,
        file: FileHandle,
        scope: Scope,
        mutation: M,
        done: Done<M::Reply>,
    ) where
        M::Reply: 'static,
    {
        self.on(file, MutateWork(mutation, scope), done);
    }

    pub(crate) fn scope(&self, caller: &Caller) -> Scope {
        Scope { caller: caller.clone(), now: self.0.configuration.clock.wall() }
    }
}

impl FileService for Service {
    fn limits(&self) -> Limits {
        limits(self.0.configuration.memory_bytes)
    }

    fn losses(&self, file: &FileHandle) -> u64 {
        losses(&self.0, file)
    }

    fn write_verifier(&self) -> u64 {
        self.0.verifier()
    }

    fn root(&self, name: &str, done: Done<Entry>) {
        let Some(served) = self.0.volume_named(name) else {
            let is_away = self.0.register.read().away_names.contains_key(name);
            return done(Err(if is_away { FsError::Offline } else { FsError::NotFound }));
        };
        let file = served.environment.handle(
            units::InodeNumber(ondisk::root::metafile::ROOT_DIRECTORY),
            operations::format::ROOT_GENERATION,
            units::SnapshotId::ACTIVE,
        );
        self.ask(file, operations::GetRoot, done);
    }

    fn attributes(&self, file: FileHandle, done: Done<Attributes>) {
        self.ask(file, operations::GetAttributes { file }, done);
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileHandle,
        set: SetAttributes,
        done: Done<NodeChange>,
    ) {
        let scope = self.scope(caller);
        let mutation = operations::SetFileAttributes { scope: scope.clone(), file, set };
        self.mutate(file, scope, mutation, done);
    }

    fn access(
        &self,
        caller: &Caller,
        file: FileHandle,
        wanted: u32,
        done: Done<(u32, Attributes)>,
    ) {
        self.ask(file, operations::Access { scope: self.scope(caller), file, wanted }, done);
    }

    fn lookup(&self, caller: &Caller, directory: FileHandle, name: &[u8], done: Done<Entry>) {
        let (scope, name) = (self.scope(caller), name.to_vec());
        self.ask(directory, operations::Lookup { scope, directory, name }, done);
    }

    fn read_link(&self, caller: &Caller, file: FileHandle, done: Done<(Vec<u8>, Attributes)>) {
        self.ask(file, operations::ReadLink { scope: self.scope(caller), file }, done);
    }

    fn read(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        count: u32,
        done: Done<ReadData>,
    ) {
        crate::data::read(self, caller, file, (offset, count), done);
    }

    fn write(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        data: Bytes,
        stability: Stability,
        done: Done<WriteResult>,
    ) {
        crate::data::write(self, caller, file, (offset, data, stability), done);
    }

    fn commit(&self, caller: &Caller, file: FileHandle, done: Done<NodeChange>) {
        crate::data::commit(self, caller, file, done);
    }

    fn create(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        mode: CreateMode,
        set: SetAttributes,
        done: Done<(Entry, NodeChange)>,
    ) {
        let (scope, name) = (self.scope(caller), name.to_vec());
        let mutation = operations::Create { scope: scope.clone(), directory, name, mode, set };
        self.mutate(directory, scope, mutation, done);
    }

    fn make_node(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        node: NewNode,
        set: SetAttributes,
        done: Done<(Entry, NodeChange)>,
    ) {
        let (scope, name) = (self.scope(caller), name.to_vec());
        let entropy = &self.0.configuration.entropy;
        let hash_seed = [entropy.next_u64(), entropy.next_u64()];
        let mutation =
            operations::MakeNode { scope: scope.clone(), directory, name, node, set, hash_seed };
        self.mutate(directory, scope, mutation, done);
    }

    fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
        done: Done<(Attributes, NodeChange)>,
    ) {
        let (scope, name) = (self.scope(caller), name.to_vec());
        let mutation = operations::Link { scope: scope.clone(), file, directory, name };
        self.mutate(directory, scope, mutation, done);
    }

    fn remove(&self, caller: &Caller, directory: FileHandle, name: &[u8], done: Done<NodeChange>) {
        let (scope, name) = (self.scope(caller), name.to_vec());
        let mutation = operations::Remove { scope: scope.clone(), directory, name };
        self.mutate(directory, scope, mutation, done);
    }

    fn remove_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        done: Done<NodeChange>,
    ) {
        let (scope, name) = (self.scope(caller), name.to_vec());
        let mutation = operations::RemoveDirectory { scope: scope.clone(), directory, name };
        self.mutate(directory, scope, mutation, done);
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
        flags: RenameFlags,
        done: Done<(NodeChange, NodeChange)>,
    ) {
        let scope = self.scope(caller);
        let mutation = operations::Rename {
            scope: scope.clone(),
            from_directory: from.0,
            from_name: from.1.to_vec(),
            to_directory: to.0,
            to_name: to.1.to_vec(),
            flags,
        };
        self.mutate(from.0, scope, mutation, done);
    }

    fn read_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        cookie: u64,
        entries_max: u32,
        with_attributes: bool,
        done: Done<DirectoryPage>,
    ) {
        let scope = self.scope(caller);
        let query =
            operations::ReadDirectory { scope, directory, cookie, entries_max, with_attributes };
        self.ask(directory, query, done);
    }

    fn statistics(&self, file: FileHandle, done: Done<FileSystemStatistics>) {
        self.on(file, StatisticsWork(file), done);
    }

    fn get_xattr(&self, caller: &Caller, file: FileHandle, name: &[u8], done: Done<Vec<u8>>) {
        let (scope, name) = (self.scope(caller), name.to_vec());
        self.ask(file, operations::GetXattr { scope, file, name }, done);
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        file: FileHandle,
        name: &[u8],
        value: &[u8],
        mode: XattrSetMode,
        done: Done<()>,
    ) {
        let (scope, name, value) = (self.scope(caller), name.to_vec(), value.to_vec());
        let mutation = operations::SetXattr { scope: scope.clone(), file, name, value, mode };
        self.mutate(file, scope, mutation, done);
    }

    fn list_xattrs(&self, caller: &Caller, file: FileHandle, done: Done<Vec<Vec<u8>>>) {
        self.ask(file, operations::ListXattrs { scope: self.scope(caller), file }, done);
    }

    fn remove_xattr(&self, caller: &Caller, file: FileHandle, name: &[u8], done: Done<()>) {
        let (scope, name) = (self.scope(caller), name.to_vec());
        let mutation = operations::RemoveXattr { scope: scope.clone(), file, name };
        self.mutate(file, scope, mutation, done);
    }

    fn allocate(
        &self,
        caller: &Caller,
        file: FileHandle,
        allocation: Allocation,
        offset: u64,
        length: u64,
        done: Done<NodeChange>,
    ) {
        crate::data::allocate(self, caller, file, (allocation, offset, length), done);
    }

    fn seek(&self, file: FileHandle, offset: u64, target: SeekTarget, done: Done<u64>) {
        crate::data::seek(self, file, (offset, target), done);
    }

    fn hold(&self, file: FileHandle, done: Done<Hold>) {
        self.on(file, HoldWork(file), done);
    }

    fn release(&self, hold: Hold) {
        self.on(hold.file, ReleaseWork(hold), Box::new(|_| {}));
    }
}

struct StatisticsWork(FileHandle);

impl Work<FileSystemStatistics> for StatisticsWork {
    fn on<P: Pointer>(self, host: Host<P>, done: Done<FileSystemStatistics>) {
        let same = host.clone();
        // A handle whose file is gone is stale for this call as for any other.
        let found = move |outcome: Result<Attributes, FsError>| match outcome {
            Ok(_) => count_room(same, done),
            Err(error) => done(Err(error)),
        };
        let query = operations::GetAttributes { file: self.0 };
        AskWork(query).on(host, Box::new(found));
    }
}

/// What is free less than this part of a volume is worth waiting for a consistency point, if that
/// makes room.
const LOW_SHARE: u64 = 8;
/// The share of free blocks that files cannot have: the nodes of their trees, of the container's,
/// and what an operation is promised and may come not to use.
const NODES_SHARE: u64 = 64;
/// And at least.
const NODES_BLOCKS: u64 = 64;

/// Answers with the room there is. Where something is being freed a consistency point begins at
/// once; where there is little room, the answer is of the time after it.
fn count_room<P: Pointer>(host: Host<P>, done: Done<FileSystemStatistics>) {
    let served = Arc::clone(&host.served);
    if !host.fronted.front().shared.may_gain_room() {
        return done(Ok(statistics(&host)));
    }
    if served.available_blocks() >= served.size_blocks / LOW_SHARE {
        if !served.aggregate.is_consistency_point_due() {
            served.aggregate.request_consistency_point(None);
        }
        return done(Ok(statistics(&host)));
    }
    let committed = move |outcome: Result<(), aggregate::AggregateError>| {
        done(outcome.map(|()| statistics(&host)).map_err(|error| refusal(&error)));
    };
    served.aggregate.request_consistency_point(Some(Box::new(committed)));
}

fn statistics<P: Pointer>(host: &Host<P>) -> FileSystemStatistics {
    let served = &host.served;
    let total = served.size_blocks;
    let free = served.available_blocks().min(total);
    let available = free.saturating_sub(free / NODES_SHARE + NODES_BLOCKS);
    let used_inodes = host.fronted.front().shared.used_inodes();
    let total_files = (total * BLOCK_SIZE_U64 / 4096).min(u64::from(u32::MAX));
    FileSystemStatistics {
        total_bytes: total * BLOCK_SIZE_U64,
        free_bytes: free * BLOCK_SIZE_U64,
        available_bytes: available * BLOCK_SIZE_U64,
        total_files,
        free_files: total_files.saturating_sub(used_inodes),
    }
}

struct HoldWork(FileHandle);

impl Work<Hold> for HoldWork {
    fn on<P: Pointer>(self, host: Host<P>, done: Done<Hold>) {
        let (file, held, mut done) = (self.0, HeldBlocks::default(), Some(done));
        let same = host.clone();
        let message = move |access: &mut Access<'_>| {
            let logical = same.fronted.front().logical.write(access);
            let reader = Reader { cache: same.fronted.front().cache(), held: &held };
            let environment = &same.served.environment;
            let outcome = same
                .check(logical)
                .and_then(|()| Ok(operations::holds::hold(logical, &reader, environment, file)?));
            match outcome {
                Ok(()) => {
                    if let Some(done) = done.take() {
                        // The aggregate does not come back before this message has ended.
                        done(Ok(Hold { file, losses: self::losses(&same.engine, &file) }));
                    }
                    Outcome::Done
                }
                Err(halt) => same.halt(halt, &held, &mut done),
            }
        };
        host.send_logical(Box::new(message));
    }
}

struct ReleaseWork(Hold);

impl Work<()> for ReleaseWork {
    fn on<P: Pointer>(self, host: Host<P>, done: Done<()>) {
        let (Hold { file, losses }, mut done) = (self.0, Some(done));
        let same = host.clone();
        let message = move |access: &mut Access<'_>| {
            let logical = same.fronted.front().logical.write(access);
            let environment = &same.served.environment;
            // Holds from before an outage are gone; those that there are now are of others.
            let is_known = losses == self::losses(&same.engine, &file);
            if is_known && operations::holds::release(logical, environment, file) {
                reap(&same, file.inode);
            }
            if let Some(done) = done.take() {
                done(Ok(()));
            }
            Outcome::Done
        };
        host.send_logical(Box::new(message));
    }
}
