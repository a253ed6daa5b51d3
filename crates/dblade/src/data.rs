//! Reads and writes: in a stripe's affinity where they fall to one stripe, else in the volume's
//! logical affinity (Waffinity section 4.2).
//!
//! Invariants: as of [`crate::messages`]. A write that may stay in memory is answered when it is
//! applied; COMMIT logs it, or has a consistency point make it durable when there is much.

use crate::change::change;
use crate::host::{Halt, Host, Logged, refusal};
use crate::messages::{Ask, Mutate};
use crate::reallocating;
use crate::service::{Addressed, CarryOut, Service, Work};
use affinity::{Access, Message, Outcome};
use aggregate::AggregateError;
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Reader};
use file_service::{
    Caller, CommitResult, Done, Durability, FileHandle, FsError, NodeChange, ReadData, Stability,
    WriteResult, calls,
};
use operations::Scoped;
use operations::data::stripe::{self, InStripe, StripeRead, stripe_of_range};
use operations::data::{CommitReply, Written};
use platform::mutation::{self, Rule};
use std::sync::Arc;

/// A request for a range of a file. It begins in the affinity of a stripe where the range falls to
/// one stripe.
trait OfRange: Clone + Send + 'static {
    /// What is answered.
    type Reply: Send + 'static;
    /// What an attempt in a stripe comes to.
    type Attempted;

    /// The file, the first byte and the count of bytes.
    fn range(&self) -> (FileHandle, u64, u64);

    fn attempt<P: Pointer>(
        &self,
        host: &Host<P>,
        held: &HeldBlocks,
        stripe: usize,
        access: &mut Access<'_>,
    ) -> Result<InStripe<Self::Attempted>, Halt>;

    fn answer<P: Pointer>(
        &self,
        host: &Host<P>,
        attempted: Self::Attempted,
        done: Done<Self::Reply>,
    );

    /// The same request for the logical affinity.
    fn whole<P: Pointer>(
        self,
        host: Host<P>,
        held: HeldBlocks,
        done: Option<Done<Self::Reply>>,
    ) -> Box<dyn Message>;
}

struct RangeWork<R>(R);

impl<R: OfRange> Work<R::Reply> for RangeWork<R> {
    fn message<P: Pointer>(self, host: Host<P>, done: Done<R::Reply>) -> Addressed {
        let (file, offset, length) = self.0.range();
        let stripe = stripe_of_range(file.inode, offset, length).filter(|_| !file.is_read_only());
        let (held, done) = (HeldBlocks::default(), Some(done));
        match stripe {
            Some(stripe) => {
                let affinity = host.fronted.front().affinities.stripes[stripe];
                (affinity, Box::new(InStripeOf { stripe, host, request: self.0, held, done }))
            }
            None => (host.logical_affinity(), self.0.whole(host, held, done)),
        }
    }
}

/// A request that begins in a stripe's affinity.
struct InStripeOf<P: Pointer, R: OfRange> {
    stripe: usize,
    host: Host<P>,
    request: R,
    held: HeldBlocks,
    done: Option<Done<R::Reply>>,
}

impl<P: Pointer, R: OfRange> Message for InStripeOf<P, R> {
    fn run(&mut self, access: &mut Access<'_>) -> Outcome {
        match self.request.attempt(&self.host, &self.held, self.stripe, access) {
            Ok(InStripe::Done(attempted)) => {
                if let Some(done) = self.done.take() {
                    self.request.answer(&self.host, attempted, done);
                }
                Outcome::Done
            }
            Ok(InStripe::Reroute) => {
                let (host, held) = (self.host.clone(), std::mem::take(&mut self.held));
                let whole = self.request.clone().whole(host, held, self.done.take());
                self.host.send_logical(whole);
                Outcome::Done
            }
            Err(halt) => self.host.halt(halt, &self.held, &mut self.done),
        }
    }
}

impl CarryOut for calls::Read {
    fn carry_out(self, service: &Service, caller: &Caller, done: Done<ReadData>) {
        let (file, scope) = (self.file, service.scope(caller));
        service.on(file, RangeWork(Scoped { scope, call: self }), done);
    }
}

impl OfRange for Scoped<calls::Read> {
    type Reply = ReadData;
    type Attempted = StripeRead;

    fn range(&self) -> (FileHandle, u64, u64) {
        (self.call.file, self.call.offset, u64::from(self.call.count))
    }

    fn attempt<P: Pointer>(
        &self,
        host: &Host<P>,
        held: &HeldBlocks,
        stripe: usize,
        access: &mut Access<'_>,
    ) -> Result<InStripe<StripeRead>, Halt> {
        let front = host.fronted.front();
        let logical = front.logical.read(access);
        host.check(logical)?;
        let stripe = logical.stripes[stripe].read(access);
        let reader = Reader { cache: front.cache(), held };
        Ok(stripe::read(logical, stripe, &reader, &host.served.environment, self)?)
    }

    fn answer<P: Pointer>(&self, host: &Host<P>, read: StripeRead, done: Done<ReadData>) {
        if !read.ahead.is_empty() {
            let loader = host.served.aggregate.loader();
            loader.load(read.ahead, HeldBlocks::default(), Box::new(|| {}));
        }
        let takes_all = host.served.aggregate.parts.tuning.reallocates_all;
        let all = || takes_all.then(|| stripe::blocks_beside(&self.call));
        if let Some(scattered) = read.scattered.or_else(all) {
            reallocating::note(&host.served, scattered);
        }
        done(Ok(read.data));
    }

    fn whole<P: Pointer>(
        self,
        host: Host<P>,
        held: HeldBlocks,
        done: Option<Done<ReadData>>,
    ) -> Box<dyn Message> {
        let now = self.scope.now;
        Box::new(Ask { host, query: self, now, held, done })
    }
}

impl CarryOut for calls::Write {
    fn carry_out(self, service: &Service, caller: &Caller, done: Done<WriteResult>) {
        let (file, verifier) = (self.file, service.0.verifier());
        let operation = Scoped { scope: service.scope(caller), call: self };
        service.on(file, RangeWork(VerifiedWrite { operation, verifier }), done);
    }
}

/// A write, and the verifier of the time before it: if the data is lost, a COMMIT tells another.
#[derive(Clone)]
struct VerifiedWrite {
    operation: Scoped<calls::Write>,
    verifier: u64,
}

impl VerifiedWrite {
    /// When it is answered.
    const fn durability(&self) -> Durability {
        durability(self.operation.call.stability)
    }
}

/// When a write is answered: a write that may stay in memory waits for nothing.
const fn durability(stability: Stability) -> Durability {
    match stability {
        Stability::Unstable => Durability::Ordered,
        Stability::DataSync | Stability::FileSync => Durability::Logged,
    }
}

fn write_result(written: Written, verifier: u64) -> WriteResult {
    let Written { count, stability, change } = written;
    WriteResult { count, stability, verifier, change }
}

impl OfRange for VerifiedWrite {
    type Reply = WriteResult;
    type Attempted = (Written, Logged);

    fn range(&self) -> (FileHandle, u64, u64) {
        let call = &self.operation.call;
        (call.file, call.offset, call.data.len() as u64)
    }

    fn attempt<P: Pointer>(
        &self,
        host: &Host<P>,
        held: &HeldBlocks,
        stripe: usize,
        access: &mut Access<'_>,
    ) -> Result<InStripe<(Written, Logged)>, Halt> {
        let front = host.fronted.front();
        let (above, mut beneath) = access.split(front.affinities.stripes[stripe]);
        let logical = front.logical.read_above(&above);
        let (written, logged) = change(host, logical, |logical| {
            let stripe = logical.stripes[stripe].write(&mut beneath);
            let reader = Reader { cache: front.cache(), held };
            let environment = &host.served.environment;
            Ok(stripe::write(logical, stripe, &reader, environment, &self.operation)?)
        })?;
        Ok(match written {
            InStripe::Done(written) => InStripe::Done((written, logged)),
            InStripe::Reroute => InStripe::Reroute,
        })
    }

    fn answer<P: Pointer>(
        &self,
        host: &Host<P>,
        (written, logged): (Written, Logged),
        done: Done<WriteResult>,
    ) {
        let result = write_result(written, self.verifier);
        host.answer(result, logged, self.durability(), done);
    }

    fn whole<P: Pointer>(
        self,
        host: Host<P>,
        held: HeldBlocks,
        done: Option<Done<WriteResult>>,
    ) -> Box<dyn Message> {
        let (now, durability) = (self.operation.scope.now, self.durability());
        let Self { operation: mutation, verifier } = self;
        let done = done.map(|done| -> Done<Written> {
            Box::new(move |outcome| {
                done(outcome.map(|written| write_result(written, verifier)));
            })
        });
        Box::new(Mutate { host, mutation, now, durability, held, done })
    }
}

/// The stripe that an append falls into is known when the append runs: it runs in none.
impl CarryOut for calls::Append {
    fn carry_out(self, service: &Service, caller: &Caller, done: Done<WriteResult>) {
        let (file, verifier, scope) = (self.file, service.0.verifier(), service.scope(caller));
        let when = (scope.now, durability(self.stability));
        let written: Done<Written> =
            Box::new(move |outcome| done(outcome.map(|one| write_result(one, verifier))));
        service.mutate(file, Scoped { scope, call: self }, when, written);
    }
}

impl CarryOut for calls::Commit {
    fn carry_out(self, service: &Service, _: &Caller, done: Done<CommitResult>) {
        // COMMIT and fsync promise durability whoever asks.
        let when = (service.now(), Durability::Logged);
        let (file, known, engine) = (self.file, self.known_losses, Arc::clone(&service.0));
        let (again, asked) = (Service(Arc::clone(&engine)), self.clone());
        let same = Arc::clone(&engine);
        let done: Done<NodeChange> = Box::new(move |outcome| {
            let is_lost = known.is_some_and(|known| known != same.losses(&file));
            done(match outcome {
                _ if is_lost => Err(FsError::Io),
                Ok(change) => Ok(CommitResult { change, verifier: same.verifier() }),
                Err(error) => Err(error),
            });
        });
        let answer = move |outcome: Result<CommitReply, FsError>| match outcome {
            Ok(CommitReply::Logged(change)) => done(Ok(change)),
            Ok(CommitReply::TooMuchToLog(change)) if mutation::broken(Rule::BigCommitAnswered) => {
                done(Ok(change));
            }
            Ok(CommitReply::TooMuchToLog(change)) => match engine.volume_of(&file) {
                None => done(Err(engine.absence_of(file.volume))),
                Some(served) => {
                    // The consistency point may have given up the file, or the volume: its data
                    // is gone then, and asking again tells.
                    let told = move |outcome: Result<CommitReply, FsError>| {
                        done(outcome.map(|_| change));
                    };
                    let ended = move |outcome: Result<(), AggregateError>| match outcome {
                        Ok(()) => again.mutate(file, asked, when, Box::new(told)),
                        Err(error) => told(Err(refusal(&error))),
                    };
                    served.aggregate.request_consistency_point(Some(Box::new(ended)));
                }
            },
            Err(error) => done(Err(error)),
        };
        service.mutate(file, self, when, Box::new(answer));
    }
}

impl CarryOut for calls::SyncVolume {
    fn carry_out(self, service: &Service, _: &Caller, done: Done<()>) {
        let Some(served) = service.0.volume_of(&self.file) else {
            return done(Err(service.0.absence_of(self.file.volume)));
        };
        let ended = move |outcome: Result<(), AggregateError>| {
            done(outcome.map_err(|error| refusal(&error)));
        };
        served.aggregate.request_consistency_point(Some(Box::new(ended)));
    }
}
