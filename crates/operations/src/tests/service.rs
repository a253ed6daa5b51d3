//! The file service over the volume in memory, so that what checks any service checks the
//! operations.

use super::engine::{BLOCKS, State};
use crate::data::stripe::{self, InStripe, stripe_of_range};
use crate::data::{Allocate, Commit, CommitReply, Read, Seek, WriteMutation, Written};
use crate::{
    Access, Create, GetAttributes, GetRoot, GetXattr, Link, ListXattrs, Lookup, MakeNode, Mutation,
    Query, ReadDirectory, ReadLink, Remove, RemoveDirectory, RemoveXattr, Rename, Scope,
    SetFileAttributes, SetXattr,
};
use affinity::Partition;
use bytes::Bytes;
use cowfs::reader::Reader;
use file_service::{
    Allocation, Attributes, Caller, CreateMode, DirectoryPage, Done, Entry, FileHandle,
    FileService, FileSystemStatistics, FsError, Hold, Limits, NewNode, NodeChange, ReadData,
    RenameFlags, SeekTarget, SetAttributes, Stability, WriteResult, XattrSetMode,
};
use platform::Clock;
use platform::sync::Mutex;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Timestamp};

/// How the volume behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Behaviour {
    /// Reads and writes go to stripes first.
    pub stripes: bool,
    /// A consistency point begins or ends every so many calls; 0: never.
    pub calls_between: u64,
}

pub struct Service {
    pub state: Mutex<State>,
    behaviour: Behaviour,
    calls: Mutex<u64>,
}

impl Service {
    pub fn new(behaviour: Behaviour) -> Arc<Self> {
        let (state, calls) = (Mutex::new(State::new(BLOCKS)), Mutex::new(0));
        Arc::new(Self { state, behaviour, calls })
    }

    fn scope(&self, caller: &Caller) -> Scope {
        let now: Timestamp = self.state.lock().clock.wall();
        Scope { caller: caller.clone(), now }
    }

    /// A consistency point's steps between calls: a beginning here, its end some calls later.
    fn tick(&self) {
        let mut calls = self.calls.lock();
        *calls += 1;
        let every = self.behaviour.calls_between;
        if every == 0 {
            return;
        }
        let mut state = self.state.lock();
        match *calls % every {
            0 => state.freeze(),
            // Sometimes short, sometimes until the next begins.
            step if step == 1 + *calls / every % every => state.publish(),
            _ => {}
        }
    }

    fn query<Q: Query>(&self, query: &Q, done: Done<Q::Reply>) {
        self.tick();
        let answer = self.state.lock().query(query);
        done(answer);
    }

    fn mutate<M: Mutation>(&self, mutation: &M, done: Done<M::Reply>) {
        self.tick();
        let answer = self.state.lock().mutate(mutation);
        done(answer);
    }
}

impl State {
    /// A read as it would be routed.
    pub fn read(&mut self, request: &Read, stripes: bool) -> Result<ReadData, FsError> {
        let at = stripe_of_range(request.file.inode, request.offset, request.count.into());
        let Some(at) = at.filter(|_| stripes) else { return self.query(request) };
        let done = self.run(|state, held| {
            let State { logical, scheduler, cache, environment, .. } = state;
            scheduler.exclusive(|access| {
                let (logical, stripe) =
                    Partition::write_beneath(logical, |logical| &logical.stripes[at], access);
                let reader = Reader { cache, held };
                stripe::read(logical, stripe, &reader, environment, request)
            })
        })?;
        match done {
            InStripe::Done(read) => {
                self.in_stripe += 1;
                Ok(read.data)
            }
            InStripe::Reroute => self.query(request),
        }
    }

    /// A write as it would be routed.
    pub fn write(&mut self, request: &WriteMutation, stripes: bool) -> Result<Written, FsError> {
        let length = request.data.len().min(1 << 20) as u64;
        let at = stripe_of_range(request.file.inode, request.offset, length);
        let Some(at) = at.filter(|_| stripes) else { return self.mutate(request) };
        let done = self.run(|state, held| {
            let State { logical, scheduler, cache, environment, log, .. } = state;
            scheduler.exclusive(|access| {
                let (logical, stripe) =
                    Partition::write_beneath(logical, |logical| &logical.stripes[at], access);
                let reader = Reader { cache, held };
                let write = stripe::write(logical, stripe, &reader, environment, request)?;
                Ok(match write {
                    InStripe::Reroute => None,
                    InStripe::Done(write) => {
                        log.extend(write.record().map(super::engine::logged));
                        Some(write.apply())
                    }
                })
            })
        })?;
        match done {
            Some(written) => {
                self.in_stripe += 1;
                Ok(written)
            }
            None => self.mutate(request),
        }
    }
}

impl FileService for Service {
    fn limits(&self) -> Limits {
        self.state.lock().environment.limits
    }

    fn write_verifier(&self) -> u64 {
        9
    }

    fn root(&self, _: &str, done: Done<Entry>) {
        self.query(&GetRoot, done);
    }

    fn attributes(&self, file: FileHandle, done: Done<Attributes>) {
        self.query(&GetAttributes { file }, done);
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileHandle,
        set: SetAttributes,
        done: Done<NodeChange>,
    ) {
        self.mutate(&SetFileAttributes { scope: self.scope(caller), file, set }, done);
    }

    fn access(
        &self,
        caller: &Caller,
        file: FileHandle,
        wanted: u32,
        done: Done<(u32, Attributes)>,
    ) {
        self.query(&Access { scope: self.scope(caller), file, wanted }, done);
    }

    fn lookup(&self, caller: &Caller, directory: FileHandle, name: &[u8], done: Done<Entry>) {
        let scope = self.scope(caller);
        self.query(&Lookup { scope, directory, name: name.to_vec() }, done);
    }

    fn read_link(&self, caller: &Caller, file: FileHandle, done: Done<(Vec<u8>, Attributes)>) {
        self.query(&ReadLink { scope: self.scope(caller), file }, done);
    }

    fn read(
        &self,
        caller: &Caller,
        file: FileHandle,
        offset: u64,
        count: u32,
        done: Done<ReadData>,
    ) {
        self.tick();
        let request = Read { scope: self.scope(caller), file, offset, count };
        let answer = self.state.lock().read(&request, self.behaviour.stripes);
        done(answer);
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
        self.tick();
        let scope = self.scope(caller);
        let request = WriteMutation { scope, file, offset, data, stability };
        let answer = self.state.lock().write(&request, self.behaviour.stripes);
        done(answer.map(|written| WriteResult {
            count: written.count,
            stability: written.stability,
            verifier: 9,
            change: written.change,
        }));
    }

    fn commit(&self, _: &Caller, file: FileHandle, done: Done<NodeChange>) {
        self.tick();
        let mut state = self.state.lock();
        let answer = state.mutate(&Commit { file });
        let answer = answer.map(|reply| match reply {
            CommitReply::Logged(change) => change,
            CommitReply::TooMuchToLog(change) => {
                state.consistency_point();
                change
            }
        });
        drop(state);
        done(answer);
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
        self.mutate(&Create { scope, directory, name, mode, set }, done);
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
        let hash_seed = [scope.now.get() as u64, 11];
        self.mutate(&MakeNode { scope, directory, name, node, set, hash_seed }, done);
    }

    fn link(
        &self,
        caller: &Caller,
        file: FileHandle,
        directory: FileHandle,
        name: &[u8],
        done: Done<(Attributes, NodeChange)>,
    ) {
        let scope = self.scope(caller);
        self.mutate(&Link { scope, file, directory, name: name.to_vec() }, done);
    }

    fn remove(&self, caller: &Caller, directory: FileHandle, name: &[u8], done: Done<NodeChange>) {
        let scope = self.scope(caller);
        self.mutate(&Remove { scope, directory, name: name.to_vec() }, done);
    }

    fn remove_directory(
        &self,
        caller: &Caller,
        directory: FileHandle,
        name: &[u8],
        done: Done<NodeChange>,
    ) {
        let scope = self.scope(caller);
        self.mutate(&RemoveDirectory { scope, directory, name: name.to_vec() }, done);
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (FileHandle, &[u8]),
        to: (FileHandle, &[u8]),
        flags: RenameFlags,
        done: Done<(NodeChange, NodeChange)>,
    ) {
        let rename = Rename {
            scope: self.scope(caller),
            from_directory: from.0,
            from_name: from.1.to_vec(),
            to_directory: to.0,
            to_name: to.1.to_vec(),
            flags,
        };
        self.mutate(&rename, done);
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
        let list = ReadDirectory { scope, directory, cookie, entries_max, with_attributes };
        self.query(&list, done);
    }

    fn statistics(&self, file: FileHandle, done: Done<FileSystemStatistics>) {
        let answer = self.state.lock().query(&GetAttributes { file });
        done(answer.map(|_| FileSystemStatistics {
            total_bytes: BLOCKS * BLOCK_SIZE_U64,
            ..FileSystemStatistics::default()
        }));
    }

    fn get_xattr(&self, caller: &Caller, file: FileHandle, name: &[u8], done: Done<Vec<u8>>) {
        let scope = self.scope(caller);
        self.query(&GetXattr { scope, file, name: name.to_vec() }, done);
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
        let (scope, name) = (self.scope(caller), name.to_vec());
        self.mutate(&SetXattr { scope, file, name, value: value.to_vec(), mode }, done);
    }

    fn list_xattrs(&self, caller: &Caller, file: FileHandle, done: Done<Vec<Vec<u8>>>) {
        self.query(&ListXattrs { scope: self.scope(caller), file }, done);
    }

    fn remove_xattr(&self, caller: &Caller, file: FileHandle, name: &[u8], done: Done<()>) {
        let scope = self.scope(caller);
        self.mutate(&RemoveXattr { scope, file, name: name.to_vec() }, done);
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
        let scope = self.scope(caller);
        self.mutate(&Allocate { scope, file, allocation, offset, length }, done);
    }

    fn seek(&self, file: FileHandle, offset: u64, target: SeekTarget, done: Done<u64>) {
        self.query(&Seek { file, offset, target }, done);
    }

    fn hold(&self, file: FileHandle, done: Done<Hold>) {
        self.tick();
        let answer = self.state.lock().hold(file);
        done(answer.map(|()| Hold { file, losses: 0 }));
    }

    fn release(&self, hold: Hold) {
        self.state.lock().release(hold.file);
    }
}
