//! Long reading of a volume's maps and trees, beside clients and consistency points.
//!
//! The work runs as messages of one affinity. Each does a part and sends the next, so that a
//! consistency point, or a client, waits for one of them only.
//!
//! Invariants: nothing is changed. What a message had loaded goes with it, so that the work holds
//! few blocks however large the volume is.
//!
//! Fails: [`AggregateError`], where something cannot be read, the aggregate has failed, or the work
//! may not go on.

use affinity::{Access, AffinityId, Outcome};
use aggregate::{Aggregate, AggregateError};
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop};
use std::sync::Arc;

/// Whether the work may go on. It is asked in each message.
pub type MayGoOn = Box<dyn Fn() -> Result<(), AggregateError> + Send>;

/// Is told what came of the work.
pub type WorkDone<T> = Box<dyn FnOnce(Result<T, AggregateError>) + Send>;

/// Does a part of the work; what has come of it, if that was the last. After a wait the same part
/// is done again.
pub(crate) type Part<T> = Box<
    dyn FnMut(&mut Access<'_>, &Reader<'_>) -> Progress<Result<Option<T>, AggregateError>> + Send,
>;

pub(crate) struct Work<T> {
    pub aggregate: Arc<Aggregate>,
    pub affinity: AffinityId,
    pub part: Part<T>,
    /// What cannot be done where something cannot be read: "the snapshots cannot be compared".
    pub failed: &'static str,
    pub may_go_on: MayGoOn,
    pub done: WorkDone<T>,
}

impl<T: 'static> Work<T> {
    /// Sends the next message.
    pub fn send(self) {
        let (scheduler, affinity) = (self.aggregate.parts.scheduler.clone(), self.affinity);
        let (mut this, held) = (Some(self), HeldBlocks::default());
        let message = move |access: &mut Access<'_>| {
            let Some(mut work) = this.take() else { return Outcome::Done };
            let aggregate = Arc::clone(&work.aggregate);
            let stopping = || Err(AggregateError::Stopping);
            let may_go_on = if aggregate.is_failed() { stopping() } else { (work.may_go_on)() };
            if let Err(error) = may_go_on {
                (work.done)(Err(error));
                return Outcome::Done;
            }
            let reader = Reader { cache: &aggregate.parts.cache, held: &held };
            match (work.part)(access, &reader) {
                Ok(Ok(None)) => work.send(),
                Ok(Ok(Some(outcome))) => (work.done)(Ok(outcome)),
                Ok(Err(error)) => (work.done)(Err(error)),
                Err(Stop::Wait(wait)) => {
                    this = Some(work);
                    return aggregate.suspend(wait, &held);
                }
                Err(stop) => {
                    let text = format!("{}: {stop}", work.failed);
                    (work.done)(Err(AggregateError::Refused(text)));
                }
            }
            Outcome::Done
        };
        scheduler.send(affinity, Box::new(message));
    }
}
