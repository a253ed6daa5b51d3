//! The copies of an aggregate's log, where the configuration names several places for it.
//!
//! An aggregate is opened with one copy that has everything, and made with one. The others join
//! when it is in service ([`mend_logs`]), like one that comes back after it failed; they
//! have everything with the consistency point after. The labels say which ones do.
//!
//! Invariants: a disk is taken for a copy only if it holds a log of the same aggregate, or is
//! blank; what it holds of the log counts for nothing then.
//!
//! Fails: never; why a copy is not there is told by [`nvlog::Log::copies`].

use crate::engine::{Engine, LogPlace, LogProvider, LogUnavailable};
use crate::mending::{Mending, Turn};
use aggregate::Aggregate;
use nvlog::{CopyState, CopyWitness, Log, LogError, LogIdentity, OpenDone, Places};
use platform::sync::Mutex;
use platform::{Disk, DiskError, WriteDone};
use raid::{ManagedStore, StoreError};
use std::sync::{Arc, Weak};
use units::{AggregateUuid, BlockRef, CpNumber, LogUuid};

/// Blocks at the start of a disk that must be zero if a log is made on it: the places where file
/// systems and other logs keep what says so.
pub(crate) const PROBED_BLOCKS: usize = 64;

/// The labels of an aggregate, which the log must not keep alive.
struct Labels(Weak<dyn ManagedStore>);

impl CopyWitness for Labels {
    fn record(&self, whole: &[u64], done: WriteDone) {
        let gone = || DiskError::Gone { disk: "of the labels".to_owned() };
        let Some(store) = self.0.upgrade() else { return done(Err(gone())) };
        let labelled = move |outcome: Result<(), StoreError>| {
            done(outcome.map_err(|error| {
                let (disk, kind) = ("of the labels".to_owned(), error.to_string());
                DiskError::Io { disk, block: 0, kind }
            }));
        };
        store.set_log_copies(whole, Box::new(labelled));
    }
}

/// The places where the log of an aggregate may be.
pub(crate) fn log_places(engine: &Engine, aggregate: AggregateUuid) -> Vec<Arc<dyn LogProvider>> {
    let logs = &engine.configuration.logs;
    let places = logs.places(aggregate);
    if places.is_empty() {
        return vec![Arc::clone(logs)];
    }
    places.into_iter().map(|place| place.provider).collect()
}

/// Opens the log of an aggregate from the best of these disks.
pub(crate) fn open_log_on(
    engine: &Engine,
    store: &Arc<dyn ManagedStore>,
    disks: Vec<Arc<dyn Disk>>,
    identity: LogIdentity,
    committed: CpNumber,
    (replacement, accepts_loss): (LogUuid, bool),
    done: OpenDone,
) {
    let whole = store.log_copies().whole();
    let is_alone = engine.configuration.logs.places(identity.aggregate).len() < 2;
    if let ([disk], true) = (&*disks, is_alone && whole == [0]) {
        return Log::open(disk, identity, committed, done);
    }
    let witness = Arc::new(Labels(Arc::downgrade(store)));
    let opened = |outcome: Result<nvlog::FoundCopies, LogError>| {
        done(outcome.map(|found| (found.log, found.records)));
    };
    let places = Places { disks, whole, witness, replacement, accepts_loss };
    nvlog::open_copies(places, identity, committed, Box::new(opened));
}

/// Has the logs of all aggregates in service have a copy in each place, as far as that can be.
/// A place that fails is tried again later. It opens disks, so it may take a while.
pub(crate) fn mend_logs(engine: &Engine) {
    for aggregate in engine.aggregates() {
        let places = engine.configuration.logs.places(aggregate.parts.identity.aggregate);
        if places.len() > 1 && !aggregate.is_failed() {
            places.into_iter().for_each(|place| mend_log(engine, &aggregate, place));
        }
    }
}

fn mend_log(engine: &Engine, aggregate: &Arc<Aggregate>, place: LogPlace) {
    let identity = aggregate.parts.identity.aggregate;
    let log = &aggregate.parts.log;
    let is_there = || {
        log.copies().iter().any(|copy| {
            copy.disk == place.name && matches!(copy.state, CopyState::Whole | CopyState::Joining)
        })
    };
    let now = engine.configuration.clock.monotonic_nanoseconds();
    let turn = (identity, place.name.clone());
    if is_there() || log.is_closed() || !engine.mending.lock().begin(&turn, now) {
        return;
    }
    // It may have joined in the turn before.
    if is_there() {
        return engine.mending.lock().end(&turn);
    }
    let found = match place.provider.open(identity) {
        Err(LogUnavailable::Missing(_)) => place.provider.create(identity),
        found => found.map_err(|error| error.to_string()),
    };
    match found {
        Ok(disk) => {
            let copy = engine.configuration.entropy.next_u64().max(1);
            let (aggregate, mending) = (Arc::clone(aggregate), Arc::clone(&engine.mending));
            Joining { aggregate, disk, copy, turn, mending }.look();
        }
        Err(cause) => {
            log.lack(&place.name, cause);
            engine.mending.lock().end(&turn);
        }
    }
}

/// A disk that is to hold a copy of a log.
struct Joining {
    aggregate: Arc<Aggregate>,
    disk: Arc<dyn Disk>,
    /// The identity of the copy.
    copy: u64,
    turn: Turn,
    mending: Arc<Mutex<Mending>>,
}

impl Joining {
    /// Looks what it holds.
    fn look(self) {
        let (disk, identity) = (Arc::clone(&self.disk), self.aggregate.parts.log.identity());
        let looked = move |outcome: Result<(), LogError>| match outcome {
            Ok(()) | Err(LogError::OtherLog { .. }) => self.join(),
            Err(LogError::NotALog { .. }) => self.join_if_blank(),
            Err(error) => self.give_up(&error),
        };
        nvlog::look(&disk, identity, Box::new(looked));
    }

    fn join_if_blank(self) {
        let disk = Arc::clone(&self.disk);
        let probed = usize::try_from(disk.size_blocks()).unwrap_or(PROBED_BLOCKS);
        let read = move |outcome: Result<Vec<BlockRef>, DiskError>| match outcome {
            Ok(blocks) if blocks.iter().all(|block| block.is_zero()) => self.join(),
            Ok(_) => self.give_up(&"it holds no log, and is not blank"),
            Err(error) => self.give_up(&error),
        };
        disk.read(0, probed.min(PROBED_BLOCKS), Box::new(read));
    }

    fn join(self) {
        let (log, disk) = (Arc::clone(&self.aggregate.parts.log), Arc::clone(&self.disk));
        let copy = self.copy;
        let joined = move |outcome: Result<(), LogError>| match outcome {
            Ok(()) => {
                let disk = self.disk.name();
                tracing::info!(disk, aggregate = self.name(), "a copy of the journal joins");
                self.mending.lock().end(&self.turn);
                // It has everything when this one is durable.
                self.aggregate.force();
                self.aggregate.request_consistency_point(None);
            }
            Err(error) => self.give_up(&error),
        };
        log.join(copy, disk, Box::new(joined));
    }

    fn name(&self) -> &str {
        &self.aggregate.parts.identity.name
    }

    fn give_up(self, cause: &dyn std::fmt::Display) {
        self.aggregate.parts.log.lack(&self.turn.1, cause.to_string());
        self.mending.lock().end(&self.turn);
    }
}
