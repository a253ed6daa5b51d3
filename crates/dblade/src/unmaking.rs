//! What was written of an aggregate that could not be made is taken back: the labels of its disks,
//! and its log.
//!
//! Invariants: only labels of this aggregate are erased, before anything else was asked of its
//! disks or when all of that has ended: no write of it lands on a disk that is another's by then.
//!
//! Fails: never; a disk that cannot be erased keeps the label of an aggregate that nobody has, and
//! the log of the server says so.

use crate::engine::{Done, Engine};
use crate::error::EngineError;
use crate::outages::Remains;
use crate::retiring::{self, LogRemoval};
use aggregate::Aggregate;
use media::{Device, MediaError};
use platform::Disk;
use platform::completion::{Sender, gather};
use std::sync::Arc;
use units::AggregateUuid;

/// An aggregate that is being made: what is to be taken back if that fails.
pub(crate) struct Begun {
    pub aggregate: AggregateUuid,
    pub disks: Vec<Arc<dyn Disk>>,
}

/// The first consistency point failed. Requests of it may be under way still, on disks that hang:
/// labels and log are taken back when the store and the log are gone.
pub(crate) fn close(
    engine: &Arc<Engine>,
    (aggregate, begun): (Arc<Aggregate>, Begun),
    error: EngineError,
    done: Done<()>,
) {
    aggregate.halt();
    let (parts, this) = (&aggregate.parts, Arc::clone(engine));
    let same = Arc::clone(engine);
    let ended = Box::new(move |_| same.end_unmaking());
    let cause = error.clone();
    engine.leave(Remains {
        aggregate: begun.aggregate,
        parts: vec![parts.store.remains(), parts.log.remains()],
        affinity: Some(parts.affinity),
        then: Some(Box::new(move || give_up(&this, begun, cause, ended))),
    });
    drop(aggregate);
    // Whoever asked does not wait for a disk or a log that hangs.
    done(Err(error));
}

/// Takes back what was begun, and then says why it failed.
pub(crate) fn give_up(engine: &Arc<Engine>, begun: Begun, error: EngineError, done: Done<()>) {
    let Begun { aggregate, disks } = begun;
    let same = Arc::clone(engine);
    let parts = gather(disks.len(), move |_: Vec<()>| {
        let removed = move |removed: Result<LogRemoval, EngineError>| {
            if !matches!(removed, Ok(LogRemoval::Removed)) {
                tracing::warn!(%aggregate, ?removed, "the log of an aggregate not made is left");
            }
            done(Err(error));
        };
        let copies = retiring::copies(&same, aggregate);
        retiring::remove_all(copies, Ok(LogRemoval::Removed), Box::new(removed));
    });
    for (disk, part) in disks.into_iter().zip(parts) {
        erase_if_its(disk, aggregate, part);
    }
}

fn erase_if_its(disk: Arc<dyn Disk>, aggregate: AggregateUuid, done: Sender<()>) {
    let name = disk.name().to_owned();
    let ended = move |outcome: Result<(), MediaError>| {
        if let Err(error) = outcome {
            tracing::warn!(disk = name, %error, "the label of an aggregate not made is left");
        }
        done(());
    };
    let opened = move |device: Result<Device, MediaError>| match device {
        Ok(device) if device.label().aggregate == aggregate => {
            Arc::new(device).erase_label_last(Box::new(ended));
        }
        Ok(_) => ended(Ok(())),
        Err(error) => ended(Err(error)),
    };
    media::open(disk, Box::new(opened));
}
