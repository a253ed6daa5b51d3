//! Operations as messages (decisions 4, 10).
//!
//! A message runs its operation on a transaction. If the operation waits, so does the message,
//! having changed nothing. A mutation is carried out by [`crate::change`], and answered when the
//! caller's [`Durability`] is met.
//!
//! Invariants: every message calls its `done` once.

use crate::change::{DecidedMutation, change};
use crate::host::{Halt, Host, Logged};
use affinity::{Access, Message, Outcome};
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Reader, Wait};
use cowfs::transaction::Transaction;
use file_service::{Done, Durability};
use operations::{Files, Mutation, Query};
use platform::mutation::{self, Rule};
use units::Timestamp;

/// A mutation on its way.
pub(crate) struct Mutate<P: Pointer, M: Mutation> {
    pub host: Host<P>,
    pub mutation: M,
    pub now: Timestamp,
    pub durability: Durability,
    pub held: HeldBlocks,
    pub done: Option<Done<M::Reply>>,
}

impl<P: Pointer, M: Mutation> Mutate<P, M> {
    fn attempt(&self, access: &mut Access<'_>) -> Result<(M::Reply, Logged), Halt> {
        let Self { host, mutation, now, held, .. } = self;
        let front = host.fronted.front();
        let logical = front.logical.write(access);
        let (mut reply, (position, file)) = change(host, logical, |logical| {
            logical.trim();
            let reader = Reader { cache: front.cache(), held };
            let transaction = Transaction::new(logical, reader, *now);
            DecidedMutation::decide(mutation, transaction, &host.served.environment)
        })?;
        // In the same run of the message: nobody reaps a file before it is held.
        mutation.hold(&mut reply, front.logical.write(access), |file| host.engine.losses(file));
        let was_logged = position.is_some_and(|position| position.get().is_multiple_of(8));
        if was_logged && mutation::broken(Rule::RestartAfterMutation) {
            return Err(Halt::Wait(Wait::Room));
        }
        // What it saw of others may still be on its way to the log.
        let position = position.or_else(|| host.served.aggregate.parts.log.last_position());
        Ok((reply, (position, file)))
    }
}

impl<P: Pointer, M: Mutation> Message for Mutate<P, M>
where
    M::Reply: 'static,
{
    fn run(&mut self, access: &mut Access<'_>) -> Outcome {
        match self.attempt(access) {
            Ok((reply, logged)) => {
                if let Some(done) = self.done.take() {
                    self.host.answer(reply, logged, self.durability, done);
                }
                Outcome::Done
            }
            Err(halt) => self.host.halt(halt, &self.held, &mut self.done),
        }
    }
}

/// A query on its way.
pub(crate) struct Ask<P: Pointer, Q: Query> {
    pub host: Host<P>,
    pub query: Q,
    pub now: Timestamp,
    pub held: HeldBlocks,
    pub done: Option<Done<Q::Reply>>,
}

impl<P: Pointer, Q: Query> Ask<P, Q> {
    fn attempt(&self, access: &mut Access<'_>) -> Result<Q::Reply, Halt> {
        let logical = self.host.fronted.front().logical.write(access);
        self.host.check(logical)?;
        logical.trim();
        let reader = Reader { cache: self.host.fronted.front().cache(), held: &self.held };
        let mut transaction = Transaction::new(logical, reader, self.now);
        let environment = &self.host.served.environment;
        Ok(self.query.execute(&mut Files::new(&mut transaction, environment))?)
    }
}

impl<P: Pointer, Q: Query> Message for Ask<P, Q> {
    fn run(&mut self, access: &mut Access<'_>) -> Outcome {
        match self.attempt(access) {
            Ok(reply) => {
                if let Some(done) = self.done.take() {
                    done(Ok(reply));
                }
                Outcome::Done
            }
            Err(halt) => self.host.halt(halt, &self.held, &mut self.done),
        }
    }
}
