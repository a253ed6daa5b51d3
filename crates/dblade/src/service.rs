//! The engine as a file service: each call finds its volume, becomes an operation, and is sent to
//! its affinity.
//!
//! Most calls are operations as they are, of which [`CarryOut`] has a list. Reads, writes and
//! commits are in [`crate::data`], sizes in [`crate::statistics`], holds in [`crate::holds`].
//!
//! Invariants: no call blocks. A handle of a volume that is gone or offline is `Stale`.

use crate::engine::Engine;
use crate::host::{Asker, Host};
use crate::messages::{Ask, Mutate};
use crate::served::{ServedVolume, Standing, VolumeKind};
use affinity::{AffinityId, Message};
use cowfs::pointer::Pointer;
use cowfs::reader::HeldBlocks;
use file_service::{
    Attributes, Call, Caller, Done, Durability, FileHandle, FsError, Limits, calls,
};
use operations::{Mutation, Query, Scope, Scoped};
use std::sync::Arc;
use units::Timestamp;

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

/// A message, and the affinity that it goes to.
pub(crate) type Addressed = (AffinityId, Box<dyn Message>);

/// Work on a volume of either pointer format.
pub(crate) trait Work<T> {
    /// The message that does it.
    fn message<P: Pointer>(self, host: Host<P>, done: Done<T>) -> Addressed;
}

/// A query, and its time.
pub(crate) struct AskWork<Q>(pub Q, pub Timestamp);

impl<Q: Query + 'static> Work<Q::Reply> for AskWork<Q>
where
    Q::Reply: 'static,
{
    fn message<P: Pointer>(self, host: Host<P>, done: Done<Q::Reply>) -> Addressed {
        let Self(query, now) = self;
        let (affinity, held) = (host.logical_affinity(), HeldBlocks::default());
        (affinity, Box::new(Ask { host, query, now, held, done: Some(done) }))
    }
}

/// A mutation, its time, and when it is answered.
struct MutateWork<M>(M, Timestamp, Durability);

impl<M: Mutation + 'static> Work<M::Reply> for MutateWork<M>
where
    M::Reply: 'static,
{
    fn message<P: Pointer>(self, host: Host<P>, done: Done<M::Reply>) -> Addressed {
        let Self(mutation, now, durability) = self;
        let (affinity, held) = (host.logical_affinity(), HeldBlocks::default());
        (affinity, Box::new(Mutate { host, mutation, now, durability, held, done: Some(done) }))
    }
}

/// The engine as front ends see it.
pub struct Service(pub Arc<Engine>);

impl Service {
    pub(crate) fn on<T: 'static>(&self, file: FileHandle, work: impl Work<T>, done: Done<T>) {
        let engine = Arc::clone(&self.0);
        let Some(served) = engine.volume_of(&file) else {
            return done(Err(engine.absence_of(file.volume)));
        };
        send((engine, served), Asker::Client, work, done);
    }

    pub(crate) fn ask<Q: Query + 'static>(
        &self,
        file: FileHandle,
        query: Q,
        now: Timestamp,
        done: Done<Q::Reply>,
    ) where
        Q::Reply: 'static,
    {
        self.on(file, AskWork(query, now), done);
    }

    pub(crate) fn mutate<M: Mutation + 'static>(
        &self,
        file: FileHandle,
        mutation: M,
        (now, durability): (Timestamp, Durability),
        done: Done<M::Reply>,
    ) where
        M::Reply: 'static,
    {
        self.on(file, MutateWork(mutation, now, durability), done);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.configuration.clock.wall()
    }

    pub(crate) fn scope(&self, caller: &Caller) -> Scope {
        Scope { caller: caller.clone(), now: self.now() }
    }
}

/// Sends work on a volume, running it here if its affinity is free.
fn send<T: 'static>(
    (engine, served): (Arc<Engine>, Arc<ServedVolume>),
    asker: Asker,
    work: impl Work<T>,
    done: Done<T>,
) {
    let scheduler = engine.scheduler.clone();
    let (affinity, message) = match served.kind.clone() {
        VolumeKind::Flexible(volume) => {
            work.message(Host { asker, engine, served, fronted: volume }, done)
        }
        VolumeKind::Traditional(volume) => {
            work.message(Host { asker, engine, served, fronted: volume }, done)
        }
    };
    scheduler.send_direct(affinity, message);
}

/// The handle of a volume's root directory.
fn root_of(served: &ServedVolume) -> FileHandle {
    served.environment.handle(
        units::InodeNumber(ondisk::root::metafile::ROOT_DIRECTORY),
        operations::format::ROOT_GENERATION,
        units::SnapshotId::ACTIVE,
    )
}

/// See [`Engine::root_attributes`].
pub(crate) fn root_attributes(engine: &Arc<Engine>, volume: &str, done: Done<Attributes>) {
    let Some(served) = engine.volume_named(volume) else {
        return done(Err(FsError::NotFound));
    };
    let query = calls::GetAttributes { file: root_of(&served) };
    ask_as_node((engine, &served), query, done);
}

/// Asks something of a volume for the node itself.
pub(crate) fn ask_as_node<Q: Query + 'static>(
    (engine, served): (&Arc<Engine>, &Arc<ServedVolume>),
    query: Q,
    done: Done<Q::Reply>,
) where
    Q::Reply: 'static,
{
    let work = AskWork(query, engine.configuration.clock.wall());
    send((Arc::clone(engine), Arc::clone(served)), Asker::Node, work, done);
}

/// Changes something of a volume for the node itself.
pub(crate) fn mutate_as_node<M: Mutation + 'static>(
    (engine, served): (&Arc<Engine>, &Arc<ServedVolume>),
    mutation: M,
    done: Done<M::Reply>,
) where
    M::Reply: 'static,
{
    let work = MutateWork(mutation, engine.configuration.clock.wall(), Durability::Logged);
    send((Arc::clone(engine), Arc::clone(served)), Asker::Node, work, done);
}

/// A call that the engine carries out.
pub(crate) trait CarryOut: Call {
    fn carry_out(self, service: &Service, caller: &Caller, done: Done<Self::Reply>);
}

file_service::impl_file_service! {
    Service,
    limits: |service| limits(service.0.configuration.memory_bytes),
    call: |service, caller, call, done| call.carry_out(service, caller, done),
}

/// Calls that are queries: nothing changes.
macro_rules! queries {
    ($($call:ident($file:ident))*) => {
        $(impl CarryOut for calls::$call {
            fn carry_out(self, service: &Service, caller: &Caller, done: Done<Self::Reply>) {
                let (file, scope) = (self.$file, service.scope(caller));
                let now = scope.now;
                service.ask(file, Scoped { scope, call: self }, now, done);
            }
        })*
    };
}

/// Calls that are mutations.
macro_rules! mutations {
    ($($call:ident($file:ident))*) => {
        $(impl CarryOut for calls::$call {
            fn carry_out(self, service: &Service, caller: &Caller, done: Done<Self::Reply>) {
                let (file, scope) = (self.$file, service.scope(caller));
                let when = (scope.now, scope.caller.durability);
                service.mutate(file, Scoped { scope, call: self }, when, done);
            }
        })*
    };
}

queries! {
    Access(file) Lookup(directory) ReadLink(file) ReadDirectory(directory)
    GetXattr(file) ListXattrs(file) Seek(file)
}

mutations! {
    SetFileAttributes(file) Create(directory) CreateUnnamed(directory) Link(directory)
    Remove(directory) RemoveDirectory(directory) Rename(from_directory)
    SetXattr(file) RemoveXattr(file) Allocate(file)
}

impl CarryOut for calls::Root {
    fn carry_out(self, service: &Service, _: &Caller, done: Done<Self::Reply>) {
        let Some(served) = service.0.volume_named(&self.name) else {
            let is_away = service.0.away_with_name(&self.name).is_some();
            return done(Err(if is_away { FsError::Offline } else { FsError::NotFound }));
        };
        if served.standing() == Standing::Offline {
            // Whoever mounts it is told what a stranger is.
            return done(Err(FsError::NotFound));
        }
        service.ask(root_of(&served), operations::GetRoot, service.now(), done);
    }
}

impl CarryOut for calls::GetAttributes {
    fn carry_out(self, service: &Service, _: &Caller, done: Done<Self::Reply>) {
        service.ask(self.file, self, service.now(), done);
    }
}

impl CarryOut for calls::MakeNode {
    fn carry_out(self, service: &Service, caller: &Caller, done: Done<Self::Reply>) {
        let entropy = &service.0.configuration.entropy;
        let hash_seed = [entropy.next_u64(), entropy.next_u64()];
        let (file, scope) = (self.directory, service.scope(caller));
        let when = (scope.now, scope.caller.durability);
        service.mutate(file, operations::MakeNode { scope, call: self, hash_seed }, when, done);
    }
}
