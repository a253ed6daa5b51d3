//! A volume as messages hold it: whether operations may run, their way to the log, and how they are
//! answered.
//!
//! Invariants: nobody is answered before what was promised by the caller's [`Durability`] is true.

use crate::engine::Engine;
use crate::served::{Fronted, ServedVolume, Standing};
use affinity::{AffinityId, Message, Outcome};
use aggregate::AggregateError;
use cowfs::logical::Logical;
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Stop, Wait};
use file_service::{Done, Durability, FsError};
use nvlog::{LogFull, LogPosition};
use operations::{OperationStop, Record};
use platform::DiskError;
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::InodeNumber;

/// For whom a message works.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// A client: not served while the volume is offline.
    Client,
    /// The node itself.
    Node,
}

/// A volume as its messages hold it.
pub(crate) struct Host<P: Pointer> {
    pub asker: Asker,
    pub engine: Arc<Engine>,
    pub served: Arc<ServedVolume>,
    pub fronted: Arc<dyn Fronted<P>>,
}

impl<P: Pointer> Clone for Host<P> {
    fn clone(&self) -> Self {
        Self {
            asker: self.asker,
            engine: Arc::clone(&self.engine),
            served: Arc::clone(&self.served),
            fronted: Arc::clone(&self.fronted),
        }
    }
}

/// The last record of an operation, and the file that it has written to, if any.
pub(crate) type Logged = (Option<LogPosition>, Option<InodeNumber>);

/// Why a run did not come to its end.
pub(crate) enum Halt {
    /// Run again after this.
    Wait(Wait),
    /// Answer this.
    Error(FsError),
}

/// What clients are told: to wait for disks that are away; of all else, that it failed.
pub(crate) const fn refusal(failure: &AggregateError) -> FsError {
    if failure.is_of_disks() { FsError::Offline } else { FsError::Io }
}

fn refusal_of(served: &ServedVolume) -> FsError {
    served.aggregate.failure().as_ref().map_or(FsError::Io, refusal)
}

impl From<OperationStop> for Halt {
    fn from(stop: OperationStop) -> Self {
        match stop.fs_error() {
            Some(error) => {
                if !matches!(
                    stop,
                    OperationStop::Error(_) | OperationStop::Cow(Stop::NoSpace | Stop::OverQuota)
                ) {
                    tracing::error!(%stop, "an operation met damage");
                }
                Self::Error(error)
            }
            None => Self::Wait(stop.wait().cloned().unwrap_or(Wait::Room)),
        }
    }
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        OperationStop::Cow(stop).into()
    }
}

impl<P: Pointer> Host<P> {
    /// Whether operations can run now.
    pub fn check(&self, logical: &Logical<P>) -> Result<(), Halt> {
        if self.served.aggregate.is_failed() {
            return Err(Halt::Error(self.refusal()));
        }
        if self.served.is_gone() {
            let volume = self.served.environment.identity;
            return Err(Halt::Error(self.engine.absence_of(volume)));
        }
        if self.asker == Asker::Client {
            match self.served.standing() {
                Standing::Online => {}
                Standing::GoingOffline => return Err(Halt::Error(FsError::Offline)),
                Standing::Offline => return Err(Halt::Error(FsError::Stale)),
            }
        }
        if self.fronted.front().is_unreadable() {
            return Err(Halt::Error(FsError::Io));
        }
        if logical.suspended && !mutation::broken(Rule::OperationsDuringRestore) {
            return Err(Halt::Wait(Wait::Room));
        }
        Ok(())
    }

    /// Whether operations that change something can run now.
    pub fn check_change(&self, logical: &Logical<P>) -> Result<(), Halt> {
        self.check(logical)?;
        let is_refused = self.fronted.front().is_read_only();
        if is_refused { Err(Halt::Error(FsError::ReadOnly)) } else { Ok(()) }
    }

    /// What clients are told of an aggregate that has failed.
    fn refusal(&self) -> FsError {
        refusal_of(&self.served)
    }

    /// Appends an operation's records to the log; the last one's position.
    pub fn log(&self, records: &[Record]) -> Result<Option<LogPosition>, Halt> {
        let aggregate = &self.served.aggregate;
        let cp = aggregate.filling();
        let mut last = None;
        for record in records {
            match aggregate.parts.log.append(cp, record.kind, &record.parts()) {
                Ok(position) => last = Some(position),
                Err(LogFull::Half { .. }) => {
                    // It may have what needs no consistency point: commits of blocks that were
                    // frozen already.
                    aggregate.force();
                    return Err(Halt::Wait(Wait::Room));
                }
                Err(LogFull::NotRetired) => return Err(Halt::Wait(Wait::Room)),
                // The aggregate stops, and somebody asks it still.
                Err(LogFull::Closed) => return Err(Halt::Error(FsError::Offline)),
                Err(full) => {
                    tracing::error!(%full, "an operation cannot be logged");
                    return Err(Halt::Error(FsError::Io));
                }
            }
        }
        Ok(last)
    }

    /// Answers an operation that was applied.
    pub fn answer<R: Send + 'static>(
        &self,
        reply: R,
        (position, file): Logged,
        durability: Durability,
        done: Done<R>,
    ) {
        let log = &self.served.aggregate.parts.log;
        match position.filter(|_| durability == Durability::Logged) {
            None => done(Ok(reply)),
            Some(position) => {
                let (fronted, served) = (Arc::clone(&self.fronted), Arc::clone(&self.served));
                let before = fronted.front().given_up_count();
                let durable = move |outcome: Result<(), DiskError>| {
                    let front = fronted.front();
                    // A consistency point may have dropped it meanwhile, for damage. The log is not
                    // needed any more then, and who waits for it is told that all is durable.
                    let is_gone = front.is_read_only()
                        || file.is_some_and(|file| front.has_given_up(file, before));
                    done(match outcome {
                        Ok(()) if !is_gone => Ok(reply),
                        // Copies of the log fail with the disks whose labels name them.
                        _ if served.aggregate.is_failed() => Err(refusal_of(&served)),
                        _ => Err(FsError::Io),
                    });
                };
                log.when_durable(position, Box::new(durable));
            }
        }
        self.engine.watch_pressure(&self.served.aggregate);
    }

    /// Suspends or answers a message that was halted.
    pub fn halt<R>(&self, halt: Halt, held: &HeldBlocks, done: &mut Option<Done<R>>) -> Outcome {
        match halt {
            Halt::Wait(wait) => self.served.aggregate.suspend(wait, held),
            Halt::Error(error) => {
                // A block that cannot be read is no news where disks are away.
                let is_failed = error == FsError::Io && self.served.aggregate.is_failed();
                let error = if is_failed { self.refusal() } else { error };
                if let Some(done) = done.take() {
                    done(Err(error));
                }
                Outcome::Done
            }
        }
    }

    /// The affinity of the volume's logical side.
    pub fn logical_affinity(&self) -> AffinityId {
        self.fronted.front().affinities.logical
    }

    /// Sends a message to the logical affinity, running it here if that is free.
    pub fn send_logical(&self, message: Box<dyn Message>) {
        self.engine.scheduler.send_direct(self.logical_affinity(), message);
    }
}
