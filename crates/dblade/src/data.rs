//! Reads and writes: in a stripe's affinity where they fall to one stripe, else in the volume's
//! logical affinity (Waffinity section 4.2).
//!
//! Invariants: as of [`crate::messages`]. A write that may stay in memory is answered when it is
//! applied; COMMIT logs it, or has a consistency point make it durable when there is much.

use crate::messages::{Ask, Halt, Host, Logged, Mutate, refusal};
use crate::service::{Service, Work};
use affinity::{Access, Message, Outcome};
use bytes::Bytes;
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Reader};
use file_service::{
    Allocation, Caller, Done, Durability, FileHandle, FsError, NodeChange, ReadData, SeekTarget,
    Stability, WriteResult,
};
use operations::data::stripe::{self, InStripe, StripeRead, stripe_of_range};
use operations::data::{Allocate, Commit, CommitReply, Read, Seek, WriteMutation, Written};
use platform::mutation::{self, Rule};

/// Reads from a file.
pub(crate) fn read(
    service: &Service,
    caller: &Caller,
    file: FileHandle,
    (offset, count): (u64, u32),
    done: Done<ReadData>,
) {
    let scope = service.scope(caller);
    service.on(file, ReadWork(Read { scope, file, offset, count }), done);
}

struct ReadWork(Read);

impl Work<ReadData> for ReadWork {
    fn on<P: Pointer>(self, host: Host<P>, done: Done<ReadData>) {
        let Read { file, offset, count, .. } = self.0;
        let stripe = stripe_of_range(file.inode, offset, u64::from(count));
        let held = HeldBlocks::default();
        let message = ReadMessage { host: host.clone(), request: self.0, held, done: Some(done) };
        match stripe.filter(|_| !file.is_read_only()) {
            Some(stripe) => {
                let affinity = host.fronted.front().affinities.stripes[stripe];
                host.engine.scheduler.send_direct(affinity, Box::new(InStripeOf(stripe, message)));
            }
            None => host.send_logical(Box::new(message.whole())),
        }
    }
}

/// A message that begins in a stripe's affinity.
struct InStripeOf<M>(usize, M);

struct ReadMessage<P: Pointer> {
    host: Host<P>,
    request: Read,
    held: HeldBlocks,
    done: Option<Done<ReadData>>,
}

impl<P: Pointer> ReadMessage<P> {
    /// The same read for the logical affinity.
    fn whole(self) -> Ask<P, Read> {
        let now = self.request.scope.now;
        Ask { host: self.host, query: self.request, now, held: self.held, done: self.done }
    }

    fn attempt(&self, index: usize, access: &mut Access<'_>) -> Result<InStripe<StripeRead>, Halt> {
        let front = self.host.fronted.front();
        let logical = front.logical.read(access);
        self.host.check(logical)?;
        let stripe = logical.stripes[index].read(access);
        let reader = Reader { cache: self.host.fronted.front().cache(), held: &self.held };
        let environment = &self.host.served.environment;
        Ok(stripe::read(logical, stripe, &reader, environment, &self.request)?)
    }
}

impl<P: Pointer> Message for InStripeOf<ReadMessage<P>> {
    fn run(&mut self, access: &mut Access<'_>) -> Outcome {
        let message = &mut self.1;
        match message.attempt(self.0, access) {
            Ok(InStripe::Done(read)) => {
                if !read.ahead.is_empty() {
                    let loader = message.host.served.aggregate.loader();
                    loader.load(read.ahead, HeldBlocks::default(), Box::new(|| {}));
                }
                if let Some(done) = message.done.take() {
                    done(Ok(read.data));
                }
                Outcome::Done
            }
            Ok(InStripe::Reroute) => {
                let whole = ReadMessage {
                    host: message.host.clone(),
                    request: message.request.clone(),
                    held: message.held.clone(),
                    done: message.done.take(),
                };
                let host = message.host.clone();
                host.send_logical(Box::new(whole.whole()));
                Outcome::Done
            }
            Err(halt) => message.host.halt(halt, &message.held, &mut message.done),
        }
    }
}

/// Writes to a file.
pub(crate) fn write(
    service: &Service,
    caller: &Caller,
    file: FileHandle,
    (offset, data, stability): (u64, Bytes, Stability),
    done: Done<WriteResult>,
) {
    let scope = service.scope(caller);
    let verifier = service.0.verifier();
    let done = move |outcome: Result<Written, FsError>| {
        done(outcome.map(|written| WriteResult {
            count: written.count,
            stability: written.stability,
            verifier,
            change: written.change,
        }));
    };
    let request = WriteMutation { scope, file, offset, data, stability };
    service.on(file, WriteWork(request), Box::new(done));
}

struct WriteWork(WriteMutation);

impl Work<Written> for WriteWork {
    fn on<P: Pointer>(self, host: Host<P>, done: Done<Written>) {
        let WriteMutation { file, offset, ref data, .. } = self.0;
        let stripe = stripe_of_range(file.inode, offset, data.len() as u64);
        let held = HeldBlocks::default();
        let message = WriteMessage { host: host.clone(), request: self.0, held, done: Some(done) };
        match stripe.filter(|_| !file.is_read_only()) {
            Some(stripe) => {
                let affinity = host.fronted.front().affinities.stripes[stripe];
                host.engine.scheduler.send_direct(affinity, Box::new(InStripeOf(stripe, message)));
            }
            None => host.send_logical(Box::new(message.whole())),
        }
    }
}

struct WriteMessage<P: Pointer> {
    host: Host<P>,
    request: WriteMutation,
    held: HeldBlocks,
    done: Option<Done<Written>>,
}

/// When a write is answered: one that may stay in memory waits for nothing.
fn durability(request: &WriteMutation) -> Durability {
    match request.stability {
        Stability::Unstable => Durability::Ordered,
        Stability::DataSync | Stability::FileSync => Durability::Logged,
    }
}

impl<P: Pointer> WriteMessage<P> {
    /// The same write for the logical affinity.
    fn whole(self) -> Mutate<P, WriteMutation> {
        Mutate {
            host: self.host,
            now: self.request.scope.now,
            durability: durability(&self.request),
            mutation: self.request,
            held: self.held,
            done: self.done,
        }
    }

    fn attempt(
        &self,
        index: usize,
        access: &mut Access<'_>,
    ) -> Result<InStripe<(Written, Logged)>, Halt> {
        let front = self.host.fronted.front();
        let (above, mut beneath) = access.split(front.affinities.stripes[index]);
        let logical = front.logical.read_above(&above);
        self.host.check_change(logical)?;
        let stripe = logical.stripes[index].write(&mut beneath);
        let reader = Reader { cache: self.host.fronted.front().cache(), held: &self.held };
        let environment = &self.host.served.environment;
        match stripe::write(logical, stripe, &reader, environment, &self.request)? {
            InStripe::Reroute => Ok(InStripe::Reroute),
            InStripe::Done(prepared) => {
                let position = match prepared.record() {
                    Some(record) => self.host.log(std::slice::from_ref(record))?,
                    None => None,
                };
                let file = Some(self.request.file.inode);
                Ok(InStripe::Done((prepared.apply(), (position, file))))
            }
        }
    }
}

impl<P: Pointer> Message for InStripeOf<WriteMessage<P>> {
    fn run(&mut self, access: &mut Access<'_>) -> Outcome {
        let message = &mut self.1;
        match message.attempt(self.0, access) {
            Ok(InStripe::Done((written, logged))) => {
                if let Some(done) = message.done.take() {
                    let durability = durability(&message.request);
                    message.host.answer(written, logged, durability, done);
                }
                Outcome::Done
            }
            Ok(InStripe::Reroute) => {
                let whole = WriteMessage {
                    host: message.host.clone(),
                    request: message.request.clone(),
                    held: message.held.clone(),
                    done: message.done.take(),
                };
                let host = message.host.clone();
                host.send_logical(Box::new(whole.whole()));
                Outcome::Done
            }
            Err(halt) => message.host.halt(halt, &message.held, &mut message.done),
        }
    }
}

/// Makes what was written to a file durable.
pub(crate) fn commit(service: &Service, caller: &Caller, file: FileHandle, done: Done<NodeChange>) {
    // COMMIT and fsync promise durability whoever asks.
    let caller = Caller { durability: Durability::Logged, ..caller.clone() };
    let scope = service.scope(&caller);
    let engine = std::sync::Arc::clone(&service.0);
    let (again, same_scope) = (Service(std::sync::Arc::clone(&engine)), scope.clone());
    let answer = move |outcome: Result<CommitReply, FsError>| match outcome {
        Ok(CommitReply::Logged(change)) => done(Ok(change)),
        Ok(CommitReply::TooMuchToLog(change)) if mutation::broken(Rule::BigCommitAnswered) => {
            done(Ok(change));
        }
        Ok(CommitReply::TooMuchToLog(change)) => match engine.volume_of(&file) {
            None => done(Err(engine.absence_of(&file))),
            Some(served) => {
                // The consistency point may have given up the file, or the volume: its data is
                // gone then, and asking again tells.
                let asked = move |outcome: Result<CommitReply, FsError>| {
                    done(outcome.map(|_| change));
                };
                let committed = move |outcome: Result<(), aggregate::AggregateError>| match outcome
                {
                    Ok(()) => again.mutate(file, same_scope, Commit { file }, Box::new(asked)),
                    Err(error) => asked(Err(refusal(&error))),
                };
                served.aggregate.request_consistency_point(Some(Box::new(committed)));
            }
        },
        Err(error) => done(Err(error)),
    };
    service.mutate(file, scope, Commit { file }, Box::new(answer));
}

/// fallocate.
pub(crate) fn allocate(
    service: &Service,
    caller: &Caller,
    file: FileHandle,
    (allocation, offset, length): (Allocation, u64, u64),
    done: Done<NodeChange>,
) {
    let scope = service.scope(caller);
    let mutation = Allocate { scope: scope.clone(), file, allocation, offset, length };
    service.mutate(file, scope, mutation, done);
}

/// SEEK.
pub(crate) fn seek(
    service: &Service,
    file: FileHandle,
    (offset, target): (u64, SeekTarget),
    done: Done<u64>,
) {
    service.ask(file, Seek { file, offset, target }, done);
}
