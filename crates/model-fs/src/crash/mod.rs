//! Whether what is found after a crash is something that the history allows.
//!
//! The rule (decision 10): operations survive as a prefix of the order in which they were applied,
//! one that includes every operation whose answer promised durability. Data of writes that were
//! answered as unstable may be lost besides, each block by itself, until a commit of the file or a
//! consistency point; with such a write the file's growth by it, and its side effects on mode,
//! times and capabilities, may be lost. Operations that were never answered may have happened or
//! not, at any moment after they were asked for; of an unstable write each block by itself.
//!
//! An append is a write at the size that the file had in memory when the append's turn came. If a
//! crash loses bytes before it, a hole is there, and the append stays at its offset.
//!
//! How it is decided: the history is replayed on a copy of the model; from the last durable
//! operation on, the tree after each operation is compared with what was found. What unstable
//! writes leave open is not enumerated but carried along as sets of values ([`volatile`]), so the
//! cost is one replay and one comparison for each operation since the last durable one. Only
//! operations in flight multiply that, and there are few.
//!
//! Invariants: everything the rule allows is accepted. More is accepted where the sets forget how
//! one block's loss hangs together with another's.
//!
//! Fails: [`CrashViolation`] with the nearest allowed state and how the image differs from it.

pub mod volatile;

use crate::compare::{Runner, Tolerance};
use crate::image::{Difference, Image, ImageError};
use crate::model::Model;
use crate::observation::Observation;
use crate::operation::Operation;
use file_service::{FsError, Stability};
use std::fmt;
use volatile::Volatile;

/// Most operations in flight at a crash: their orders are tried one by one.
pub const IN_FLIGHT_MAX: usize = 4;
/// Most orders that are tried.
const ORDERS_MAX: usize = 20_000;

/// What a restart may do to an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Answered, and the answer promised that it lasts; with it all operations before.
    Durable,
    /// Answered; it lasts if all logged operations before it do.
    Applied,
    /// A write that was answered as unstable.
    Volatile,
    /// Never answered.
    InFlight {
        /// How many records there were when it was asked for.
        started_after: usize,
    },
}

#[derive(Clone, Debug)]
enum Event {
    Operation(Operation),
    /// The directory at this path became a quota tree.
    Tree(Vec<u8>),
    /// A consistency point was completed.
    Barrier,
}

#[derive(Clone, Debug)]
struct Record {
    event: Event,
    status: Status,
    observation: Option<Observation>,
}

/// What has happened since a known state.
pub struct Journal {
    base: Runner<Model>,
    records: Vec<Record>,
}

/// How an image came to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// How many of the records survive.
    pub surviving: usize,
    /// How many there are, those in flight included.
    pub total: usize,
    /// States that were compared.
    pub compared: usize,
}

/// No state that the history allows is the one that was found.
#[derive(Clone, PartialEq, Debug)]
pub enum CrashViolation {
    /// The nearest allowed state is this.
    State {
        /// The operations that lead to the nearest allowed state.
        nearest: usize,
        /// Its last operation.
        last: Option<Box<Operation>>,
        /// How the image differs from it.
        differences: Vec<Difference>,
    },
    /// More operations in flight than can be tried.
    TooManyOrders,
    /// The model could not be read.
    Image(ImageError),
}

impl fmt::Display for CrashViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State { nearest, last, differences } => {
                write!(formatter, "no allowed state; nearest is that after {nearest} operations")?;
                if let Some(last) = last {
                    write!(formatter, " (the last: {last:?})")?;
                }
                differences.iter().try_for_each(|one| write!(formatter, "\n  {one}"))
            }
            Self::TooManyOrders => write!(formatter, "too many operations in flight"),
            Self::Image(error) => write!(formatter, "the model cannot be read: {error}"),
        }
    }
}

impl std::error::Error for CrashViolation {}

impl From<ImageError> for CrashViolation {
    fn from(error: ImageError) -> Self {
        Self::Image(error)
    }
}

impl Journal {
    /// Begins at the model's state, which must be durable in the subject.
    ///
    /// # Errors
    /// [`ImageError`], which a model never has.
    pub fn new(model: &Runner<Model>) -> Result<Self, ImageError> {
        Ok(Self { base: model.fork()?, records: Vec::new() })
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing has happened.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Notes an operation that was answered, in the order of application. `is_logged` says that
    /// the caller asked for answers only when the log record is durable.
    pub fn answered(&mut self, operation: Operation, observation: Observation, is_logged: bool) {
        let status = status_of(&operation, &observation, is_logged);
        let event = Event::Operation(operation);
        self.records.push(Record { event, status, observation: Some(observation) });
    }

    /// Notes an operation that was under way when the server died; `started_after` is what
    /// [`Self::len`] was when it was asked for.
    pub fn in_flight(&mut self, operation: Operation, started_after: usize) {
        let event = Event::Operation(operation);
        let status = Status::InFlight { started_after };
        self.records.push(Record { event, status, observation: None });
    }

    /// Notes that the directory at a path became a quota tree, while nothing was under way.
    pub fn tree(&mut self, path: Vec<u8>) {
        let (event, status) = (Event::Tree(path), Status::Durable);
        self.records.push(Record { event, status, observation: None });
    }

    /// Notes that all that was answered so far lasts: a consistency point was completed that
    /// began after it.
    pub fn barrier(&mut self) {
        self.records.push(Record {
            event: Event::Barrier,
            status: Status::Durable,
            observation: None,
        });
    }

    /// The log lost records that it had acknowledged: answers promise an order and no more. What
    /// consistency points and snapshots made durable stays so.
    pub fn forget_promises(&mut self) {
        for record in &mut self.records {
            if matches!(record.event, Event::Tree(_)) {
                record.status = Status::Applied;
            }
            let Event::Operation(operation) = &record.event else { continue };
            if record.status == Status::Durable {
                record.status = match operation {
                    Operation::Snapshot(_) => Status::Durable,
                    // It stands where it was asked for, which may be before what was logged first.
                    Operation::Write { .. } | Operation::Append { .. } => Status::Volatile,
                    _ => Status::Applied,
                };
            }
        }
    }

    /// Decides whether `found` is allowed.
    ///
    /// # Errors
    /// [`CrashViolation`].
    pub fn check(&self, found: &Image) -> Result<Verdict, CrashViolation> {
        let in_flight = self.mutations_in_flight();
        if in_flight.len() > IN_FLIGHT_MAX {
            return Err(CrashViolation::TooManyOrders);
        }
        let answered: Vec<usize> =
            (0..self.records.len()).filter(|index| !self.is_in_flight(*index)).collect();
        let mut search = Search { journal: self, found, nearest: None, compared: 0, orders: 0 };
        match search.orders_of(answered, &in_flight)? {
            Some(surviving) => {
                Ok(Verdict { surviving, total: self.records.len(), compared: search.compared })
            }
            None => Err(search.nearest.unwrap_or(CrashViolation::TooManyOrders)),
        }
    }

    fn is_in_flight(&self, index: usize) -> bool {
        matches!(self.records[index].status, Status::InFlight { .. })
    }

    fn mutations_in_flight(&self) -> Vec<usize> {
        let changes = |record: &Record| match &record.event {
            Event::Operation(operation) => operation.is_mutation(),
            Event::Tree(_) | Event::Barrier => false,
        };
        (0..self.records.len())
            .filter(|index| self.is_in_flight(*index) && changes(&self.records[*index]))
            .collect()
    }
}

/// What an answer promises.
fn status_of(operation: &Operation, observation: &Observation, is_logged: bool) -> Status {
    match (operation, observation) {
        (_, Observation::Failed(_) | Observation::Broken(_)) => Status::Applied,
        (_, Observation::Wrote { stability: Stability::Unstable, .. }) => Status::Volatile,
        // Nothing was written, so nothing was logged, and nothing before it has to last.
        (_, Observation::Wrote { count: 0, .. }) => Status::Applied,
        (_, Observation::Wrote { .. }) => Status::Durable,
        // fsync answers for all before it; a snapshot is a consistency point.
        (Operation::Commit { .. } | Operation::Snapshot(_), _) => Status::Durable,
        (operation, _) if is_logged && operation.is_mutation() => Status::Durable,
        _ => Status::Applied,
    }
}

struct Search<'a> {
    journal: &'a Journal,
    found: &'a Image,
    nearest: Option<CrashViolation>,
    compared: usize,
    orders: usize,
}

impl Search<'_> {
    /// Tries `order` with the records in flight `rest` put in where they may be, the likeliest
    /// first: not at all, then late.
    fn orders_of(
        &mut self,
        order: Vec<usize>,
        rest: &[usize],
    ) -> Result<Option<usize>, CrashViolation> {
        let Some((&index, rest)) = rest.split_first() else {
            return self.try_order(&order);
        };
        if let Some(surviving) = self.orders_of(order.clone(), rest)? {
            return Ok(Some(surviving));
        }
        let Status::InFlight { started_after } = self.journal.records[index].status else {
            unreachable!("the rest is in flight")
        };
        let is_before =
            |other: &usize| *other < started_after && !self.journal.is_in_flight(*other);
        let earliest = order.iter().rposition(is_before).map_or(0, |last| last + 1);
        for at in (earliest..=order.len()).rev() {
            let mut longer = order.clone();
            longer.insert(at, index);
            if let Some(surviving) = self.orders_of(longer, rest)? {
                return Ok(Some(surviving));
            }
        }
        Ok(None)
    }

    /// Replays `order` and compares each state that it may have been cut at. How many operations
    /// survive, if one fits.
    fn try_order(&mut self, order: &[usize]) -> Result<Option<usize>, CrashViolation> {
        self.orders += 1;
        if self.orders > ORDERS_MAX {
            return Err(CrashViolation::TooManyOrders);
        }
        let records = &self.journal.records;
        let is_durable = |index: &usize| records[*index].status == Status::Durable;
        let surviving_min = order.iter().rposition(is_durable).map_or(0, |last| last + 1);
        let mut replay = Replay { model: self.journal.base.fork()?, volatile: Volatile::default() };
        for surviving in 0..=order.len() {
            if surviving >= surviving_min && self.compare(&replay, order, surviving)? {
                return Ok(Some(surviving));
            }
            let Some(&index) = order.get(surviving) else { break };
            if !replay.apply(&records[index]) {
                return Ok(None); // the answers that were seen exclude this order
            }
        }
        Ok(None)
    }

    fn compare(
        &mut self,
        replay: &Replay,
        order: &[usize],
        surviving: usize,
    ) -> Result<bool, CrashViolation> {
        self.compared += 1;
        let expected = replay.model.image(&mut || {})?;
        let differences = expected.difference_with(self.found, |expected, found| {
            replay.volatile.difference(expected, found)
        });
        if differences.is_empty() {
            return Ok(true);
        }
        let is_nearer = match &self.nearest {
            Some(CrashViolation::State { differences: nearest, .. }) => {
                differences.len() < nearest.len()
            }
            _ => true,
        };
        if is_nearer {
            let last = surviving.checked_sub(1).and_then(|last| order.get(last));
            let last = last.and_then(|index| match &self.journal.records[*index].event {
                Event::Operation(operation) => Some(Box::new(operation.clone())),
                Event::Tree(_) | Event::Barrier => None,
            });
            self.nearest = Some(CrashViolation::State { nearest: surviving, last, differences });
        }
        Ok(false)
    }
}

/// The history run again.
struct Replay {
    model: Runner<Model>,
    volatile: Volatile,
}

impl Replay {
    /// Runs one record; whether it may be answered as it was.
    fn apply(&mut self, record: &Record) -> bool {
        let operation = match &record.event {
            Event::Operation(operation) => operation,
            Event::Tree(path) => return self.model.make_tree(path).is_ok(),
            Event::Barrier => {
                self.volatile.settle();
                return true;
            }
        };
        let operation = match &record.observation {
            // The server had no room, and did nothing.
            Some(Observation::Failed(
                FsError::NoSpace | FsError::OverQuota | FsError::TryLater,
            )) => {
                return true;
            }
            Some(Observation::Wrote { count, .. }) => operation.clone().writing_at_most(*count),
            _ => operation.clone(),
        };
        let operation = self.placed(operation);
        let is_in_flight = matches!(record.status, Status::InFlight { .. });
        let state = is_in_flight.then(|| self.model.executor.state());
        let is_unstable =
            matches!(operation, Operation::Write { stability: Stability::Unstable, .. });
        let is_volatile = record.status == Status::Volatile || (is_in_flight && is_unstable);
        let before = self.volatile.before(&self.model.executor, &operation, is_volatile);
        let observation = self.model.run(&operation, &mut || {});
        self.volatile.after(&self.model.executor, &operation, &observation, before);
        if observation.is_success() && record.status == Status::Durable {
            match &operation {
                Operation::Commit { file, .. } => {
                    self.volatile.settle_file(self.model.executor.handle(*file));
                }
                Operation::Snapshot(_) => self.volatile.settle(),
                _ => {}
            }
        }
        // Nobody saw the answer of what was in flight, so no slot has its file.
        if let Some(state) = state
            && !matches!(operation, Operation::Snapshot(_))
        {
            self.model.executor.resume(self.model.executor.service(), state);
        }
        record.observation.as_ref().is_none_or(|seen| may_be(&observation, seen))
    }

    /// An append as the write that it is: where the file ends when its turn comes, with all that is
    /// in memory, whether that survives or not.
    fn placed(&self, operation: Operation) -> Operation {
        match operation {
            Operation::Append { who, file, fill, stability } => {
                match self.model.executor.size_of_file(file) {
                    Some(offset) => Operation::Write { who, file, offset, fill, stability },
                    None => operation, // refused
                }
            }
            other => other,
        }
    }
}

/// Whether `seen` can have been the answer where the replay gives `replayed`. Numbers of files
/// differ when an operation in flight comes in between, so only the outcome is compared, and where
/// a file ended that was written to.
fn may_be(replayed: &Observation, seen: &Observation) -> bool {
    match (replayed, seen) {
        (
            Observation::Wrote { size_before: replayed, .. },
            Observation::Wrote { size_before: seen, .. },
        ) => replayed == seen,
        (Observation::Failed(_), _) | (_, Observation::Failed(_)) => {
            Tolerance::WIDE.agrees(replayed, seen)
        }
        _ => replayed.is_success() == seen.is_success(),
    }
}

#[cfg(test)]
mod tests;
