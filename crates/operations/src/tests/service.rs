//! The file service over the volume in memory, so that what checks any service checks the
//! operations.

use super::engine::{BLOCKS, State};
use crate::data::stripe::{self, InStripe, stripe_of_range};
use crate::data::{CommitReply, Written};
use crate::{GetRoot, MakeNode, Mutation, Query, Scope, Scoped};
use affinity::Partition;
use cowfs::reader::Reader;
use file_service::{
    Call, Caller, CommitResult, Done, FileSystemStatistics, FsError, Hold, ReadData, WriteResult,
    calls,
};
use platform::Clock;
use platform::sync::Mutex;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, Timestamp};

/// What writes and commits say of it.
const VERIFIER: u64 = 9;

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
    pub fn read(
        &mut self,
        request: &Scoped<calls::Read>,
        stripes: bool,
    ) -> Result<ReadData, FsError> {
        let at = stripe_of_range(
            request.call.file.inode,
            request.call.offset,
            request.call.count.into(),
        );
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
    pub fn write(
        &mut self,
        request: &Scoped<calls::Write>,
        stripes: bool,
    ) -> Result<Written, FsError> {
        let length = request.call.data.len().min(1 << 20) as u64;
        let at = stripe_of_range(request.call.file.inode, request.call.offset, length);
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

/// A call, carried out.
trait CarryOut: Call {
    fn carry_out(self, service: &Service, scope: Scope, done: Done<Self::Reply>);
}

file_service::impl_file_service! {
    Service,
    limits: |service| service.state.lock().environment.limits,
    call: |service, caller, call, done| call.carry_out(service, service.scope(caller), done),
}

macro_rules! carried_out {
    ($($name:ident: |$call:ident, $service:ident, $scope:pat_param, $done:ident| $body:expr;)*) => {
        $(impl CarryOut for calls::$name {
            fn carry_out(self, $service: &Service, $scope: Scope, $done: Done<Self::Reply>) {
                let $call = self;
                $body;
            }
        })*
    };
}

macro_rules! queries {
    ($($name:ident)*) => {
        carried_out! { $($name: |call, service, scope, done| {
            service.query(&Scoped { scope, call }, done)
        };)* }
    };
}

macro_rules! mutations {
    ($($name:ident)*) => {
        carried_out! { $($name: |call, service, scope, done| {
            service.mutate(&Scoped { scope, call }, done)
        };)* }
    };
}

queries! { Access Lookup ReadLink ReadDirectory GetXattr ListXattrs Seek }

mutations! {
    SetFileAttributes Create CreateUnnamed Link Remove RemoveDirectory Rename SetXattr RemoveXattr
    Allocate
}

carried_out! {
    Root: |_call, service, _, done| service.query(&GetRoot, done);
    GetAttributes: |call, service, _, done| service.query(&call, done);
    Read: |call, service, scope, done| {
        service.tick();
        let request = Scoped { scope, call };
        let answer = service.state.lock().read(&request, service.behaviour.stripes);
        done(answer)
    };
    Write: |call, service, scope, done| {
        service.tick();
        let request = Scoped { scope, call };
        let answer = service.state.lock().write(&request, service.behaviour.stripes);
        done(answer.map(|written| WriteResult {
            count: written.count,
            stability: written.stability,
            verifier: VERIFIER,
            change: written.change,
        }))
    };
    Append: |call, service, scope, done| {
        let written = move |answer: Result<Written, FsError>| {
            done(answer.map(|written| WriteResult {
                count: written.count,
                stability: written.stability,
                verifier: VERIFIER,
                change: written.change,
            }));
        };
        service.mutate(&Scoped { scope, call }, Box::new(written));
    };
    Commit: |call, service, _, done| {
        service.tick();
        let mut state = service.state.lock();
        let answer = state.mutate(&call).map(|reply| match reply {
            CommitReply::Logged(change) => change,
            CommitReply::TooMuchToLog(change) => {
                state.consistency_point();
                change
            }
        });
        drop(state);
        done(answer.map(|change| CommitResult { change, verifier: VERIFIER }))
    };
    SyncVolume: |_call, service, _, done| {
        service.tick();
        service.state.lock().consistency_point();
        done(Ok(()))
    };
    MakeNode: |call, service, scope, done| {
        let hash_seed = [scope.now.get() as u64, 11];
        service.mutate(&MakeNode { scope, call, hash_seed }, done)
    };
    Statistics: |call, service, _, done| {
        let exists = calls::GetAttributes { file: call.file };
        let answer = service.state.lock().query(&exists);
        done(answer.map(|_| FileSystemStatistics {
            total_bytes: BLOCKS * BLOCK_SIZE_U64,
            ..FileSystemStatistics::default()
        }))
    };
    HoldFile: |call, service, _, done| {
        service.tick();
        let answer = service.state.lock().hold(call.file);
        done(answer.map(|()| Hold { file: call.file, losses: 0 }))
    };
    ReleaseHold: |call, service, _, done| {
        service.state.lock().release(call.hold.file);
        done(Ok(()))
    };
}
