//! Aggregates that leave service for good, and their logs.
//!
//! Whoever deletes an aggregate has noted that durably before (`management/src/disks/deleted.rs`),
//! and erases its labels when nothing is left of it: see [`Engine::is_closed`].
//!
//! Invariants:
//! - Handles of its volumes are stale from then on.
//! - Nothing of another aggregate is touched, not even on a device that both have had for their
//!   logs.
//! - Nobody waits for a last consistency point: a log or a disk that hangs delays the erasure
//!   alone.
//!
//! Fails: [`EngineError`].

use crate::engine::{Done, Engine, LogProvider, LogUnavailable};
use crate::error::EngineError;
use crate::log_places;
use ondisk::log::{LOG_HEADER_BLOCKS, LogHeader};
use platform::{Disk, DiskError};
use std::sync::Arc;
use units::{AggregateUuid, Block, BlockRef};

/// Blocks at the start of a log's device that are zeroed: as many as are looked at before a device
/// is made a log.
const CLEARED_BLOCKS: usize = 64;

/// See [`Engine::retire_aggregate`].
pub(crate) fn retire(engine: &Arc<Engine>, name: &str, done: Done<()>) {
    let Some(aggregate) = engine.aggregate_named(name) else {
        return done(Err(EngineError::NotFound { kind: "aggregate", name: name.to_owned() }));
    };
    for served in engine.volumes() {
        if Arc::ptr_eq(&served.aggregate, &aggregate) {
            served.set_gone();
            engine.note_gone([served.environment.identity]);
            engine.unregister_volume(&served);
        }
    }
    aggregate.halt();
    // If it has lost its disks just now it is out of service already.
    engine.leave_service(&aggregate, None);
    done(Ok(()));
}

/// What became of the log of an aggregate that is deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogRemoval {
    /// Nothing of it is left.
    Removed,
    /// A device of it cannot be opened, and why: it is gone, or another aggregate has it.
    Left(String),
}

impl LogRemoval {
    /// What became of two copies.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == Self::Removed { other } else { self }
    }
}

/// A place beside its disks where a copy of an aggregate's log may be.
pub struct LogCopy {
    place: Arc<dyn LogProvider>,
    aggregate: AggregateUuid,
}

impl LogCopy {
    /// Takes the copy away. The thread of the caller waits if the place hangs.
    pub fn remove(self, done: Done<LogRemoval>) {
        remove_copy(&*self.place, self.aggregate, done);
    }
}

/// See [`Engine::log_copies_outside`].
pub(crate) fn copies(engine: &Engine, aggregate: AggregateUuid) -> Vec<LogCopy> {
    let places = log_places::outside(engine, aggregate).into_iter();
    places.map(|place| LogCopy { place, aggregate }).collect()
}

/// Takes the copies of a log away, one after another. A copy that fails does not keep the others.
pub(crate) fn remove_all(
    mut copies: Vec<LogCopy>,
    outcome: Result<LogRemoval, EngineError>,
    done: Done<LogRemoval>,
) {
    let Some(copy) = copies.pop() else { return done(outcome) };
    copy.remove(Box::new(move |removed| {
        let both = outcome.and_then(|before| removed.map(|now| before.and(now)));
        remove_all(copies, both, done);
    }));
}

fn remove_copy(place: &dyn LogProvider, aggregate: AggregateUuid, done: Done<LogRemoval>) {
    match place.remove(aggregate) {
        Ok(true) => return done(Ok(LogRemoval::Removed)),
        Ok(false) => {}
        Err(cause) => return done(Err(EngineError::journal(&aggregate.to_string(), &cause))),
    }
    match place.open(aggregate) {
        Ok(disk) => clear_if_its(&disk, aggregate, done),
        Err(LogUnavailable::Missing(_)) => done(Ok(LogRemoval::Removed)),
        Err(LogUnavailable::Failed(cause)) => done(Ok(LogRemoval::Left(cause))),
    }
}

/// Clears a device, if it has the log of the aggregate.
fn clear_if_its(disk: &Arc<dyn Disk>, aggregate: AggregateUuid, done: Done<LogRemoval>) {
    let same = Arc::clone(disk);
    let ended = move |outcome: Result<(), DiskError>| {
        let cleared = outcome.map(|()| LogRemoval::Removed);
        done(cleared.map_err(|error| EngineError::journal(&aggregate.to_string(), &error)));
    };
    let read = move |blocks: Result<Vec<BlockRef>, DiskError>| {
        let blocks = match blocks {
            Ok(blocks) => blocks,
            Err(error) => return ended(Err(error)),
        };
        let is_its = |block: &BlockRef| {
            LogHeader::from_block(block).is_ok_and(|header| header.aggregate == aggregate)
        };
        if !blocks.iter().any(is_its) {
            return ended(Ok(()));
        }
        let zero: BlockRef = Arc::new(Block::zeroed());
        let count = CLEARED_BLOCKS.min(same.size_blocks() as usize);
        same.write_durable(0, vec![zero; count], Box::new(ended));
    };
    disk.read(0, LOG_HEADER_BLOCKS as usize, Box::new(read));
}
