//! The copies of an aggregate's log, where it should have one in each of several places.
//!
//! An aggregate is opened with one copy that has everything, and made with one. Those on its own
//! disks join before its first consistency point ([`join_on_disks`]), so that they have everything
//! when it is in service. The others join then ([`mend_logs`]), like one that comes back after it
//! failed; they have everything with the consistency point after. The labels say which ones do.
//! When there are as many as there should be, copies elsewhere are let go of.
//!
//! Invariants: a disk that is not the aggregate's is taken for a copy only if it holds a log of the
//! same aggregate, or is blank; what a disk holds of the log counts for nothing when it is taken.
//!
//! Fails: never; why a copy is not there is told by [`nvlog::Log::copies`].

use crate::engine::{Engine, LogUnavailable};
use crate::log_places::{self, PlaceKind, WantedPlace};
use crate::mending::{Mending, Turn};
use aggregate::Aggregate;
use nvlog::{CopyState, CopyStatus, CopyWitness, Log, LogError, LogIdentity, OpenDone, Places};
use ondisk::log_copies::LOG_COPIES_MAX;
use platform::completion::gather;
use platform::sync::Mutex;
use platform::{Disk, DiskError, WriteDone};
use raid::{ManagedStore, StoreError};
use std::sync::{Arc, Weak};
use units::{BlockRef, CpNumber, LogUuid};

/// Blocks at the start of a disk that must be zero if a log is made on it: the places where file
/// systems and other logs keep what says so.
pub(crate) const PROBED_BLOCKS: usize = 64;

/// Is called when something has ended.
pub(crate) type Ended = Box<dyn FnOnce() + Send>;

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

    fn log_failed(&self, cause: &DiskError) {
        if let Some(store) = self.0.upgrade() {
            store.note_log_failure(cause);
        }
    }
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
    let is_alone = log_places::is_alone(engine, &**store, identity.aggregate);
    if let ([disk], true) = (&*disks, is_alone) {
        return Log::open(disk, identity, committed, done);
    }
    let witness = Arc::new(Labels(Arc::downgrade(store)));
    let opened = |outcome: Result<nvlog::FoundCopies, LogError>| {
        done(outcome.map(|found| (found.log, found.records)));
    };
    let places = Places { disks, whole, witness, replacement, accepts_loss };
    nvlog::open_copies(places, identity, committed, Box::new(opened));
}

/// Has the logs of all aggregates in service have their copies where they should be, as far as that
/// can be. A place that fails is tried again later. It opens disks, so it may take a while.
pub(crate) fn mend_logs(engine: &Engine) {
    for aggregate in engine.aggregates() {
        let log = &aggregate.parts.log;
        if log.has_copies() && !log.is_closed() && !aggregate.is_failed() {
            mend_log(engine, &aggregate);
        }
    }
}

fn mend_log(engine: &Engine, aggregate: &Arc<Aggregate>) {
    let log = &aggregate.parts.log;
    let (places, count) = log_places::wanted(engine, aggregate);
    let copies = log.copies();
    let is_wanted = |disk: &str| places.iter().any(|place| place.name == disk);
    let whole = copies.iter().filter(|copy| copy.state == CopyState::Whole);
    if count > 0 && whole.filter(|copy| is_wanted(&copy.disk)).count() >= count {
        return let_go(aggregate, &copies, &is_wanted);
    }
    let now = engine.configuration.clock.monotonic_nanoseconds();
    let turn = |place: &WantedPlace| (aggregate.parts.identity.aggregate, place.name.clone());
    let is_there = |place: &WantedPlace| {
        has_copy(log, &place.name) || engine.mending.lock().is_under_way(&turn(place))
    };
    let mut lacking = count.saturating_sub(places.iter().filter(|place| is_there(place)).count());
    if lacking > 0 {
        make_room(aggregate, &copies, &is_wanted);
    }
    for place in places.into_iter().filter(|place| !is_there(place)) {
        if lacking == 0 {
            return;
        }
        let turn = turn(&place);
        lacking -= usize::from(begin_copy(engine, aggregate, place, (turn, now)));
    }
}

/// Has the log of an aggregate that is not in service yet have its copies on the aggregate's disks,
/// as far as that can be; then goes on.
pub(crate) fn join_on_disks(engine: &Engine, aggregate: &Arc<Aggregate>, done: Ended) {
    let log = &aggregate.parts.log;
    let (places, count) = log_places::wanted(engine, aggregate);
    let free = places.into_iter().filter(|place| !has_copy(log, &place.name));
    let on_disks = free.filter_map(|place| match place.kind {
        PlaceKind::OnDisk(disk) => Some(disk),
        PlaceKind::Outside(_) => None,
    });
    let disks: Vec<Arc<dyn Disk>> = on_disks.take(count.saturating_sub(1)).collect();
    if !log.has_copies() || disks.is_empty() {
        return done();
    }
    let parts = gather(disks.len(), move |_: Vec<()>| done());
    for (disk, part) in disks.into_iter().zip(parts) {
        let log = Arc::clone(log);
        let name = disk.name().to_owned();
        let joined = move |outcome: Result<(), LogError>| {
            if let Err(error) = outcome {
                log.lack(&name, error.to_string());
            }
            part(());
        };
        let copy = engine.configuration.entropy.next_u64().max(1);
        aggregate.parts.log.join(copy, disk, Box::new(joined));
    }
}

/// Lets go of a copy that is not wanted where a wanted one could not join: a log has no more copies
/// than [`LOG_COPIES_MAX`]. For a consistency point there is one copy less than there should be.
fn make_room(aggregate: &Arc<Aggregate>, copies: &[CopyStatus], is_wanted: &dyn Fn(&str) -> bool) {
    let written = copies.iter().filter(|copy| !matches!(copy.state, CopyState::Lost(_)));
    let (wanted, superfluous): (Vec<_>, Vec<_>) = written.partition(|copy| is_wanted(&copy.disk));
    if let Some(first) = superfluous.first()
        && wanted.len() + superfluous.len() >= LOG_COPIES_MAX
    {
        let_one_go(aggregate, &first.disk);
    }
}

/// There are as many copies as there should be: what is known of others does not matter.
fn let_go(aggregate: &Arc<Aggregate>, copies: &[CopyStatus], is_wanted: &dyn Fn(&str) -> bool) {
    let log = &aggregate.parts.log;
    log.forget_lost_copies();
    let is_there = |copy: &&CopyStatus| !matches!(copy.state, CopyState::Lost(_));
    let superfluous = copies.iter().filter(is_there).filter(|copy| !is_wanted(&copy.disk));
    let superfluous: Vec<&CopyStatus> = superfluous.collect();
    superfluous.iter().for_each(|copy| let_one_go(aggregate, &copy.disk));
}

fn let_one_go(aggregate: &Arc<Aggregate>, disk: &str) {
    let name = &aggregate.parts.identity.name;
    tracing::info!(disk, aggregate = %name, "a copy of the journal is let go of");
    aggregate.parts.log.leave(disk);
    aggregate.log_has_left();
}

/// Whether a copy of the log is on a disk of this name, and is written.
fn has_copy(log: &Log, disk: &str) -> bool {
    log.copies().iter().any(|copy| {
        copy.disk == disk && matches!(copy.state, CopyState::Whole | CopyState::Joining)
    })
}

/// Begins to have a copy in a place; false if that cannot be, or it is not the place's turn.
fn begin_copy(
    engine: &Engine,
    aggregate: &Arc<Aggregate>,
    place: WantedPlace,
    (turn, now): (Turn, u64),
) -> bool {
    let log = &aggregate.parts.log;
    if !engine.mending.lock().begin(&turn, now) {
        return false;
    }
    // It may have joined in the turn before.
    if has_copy(log, &place.name) {
        engine.mending.lock().end(&turn);
        return true;
    }
    let identity = aggregate.parts.identity.aggregate;
    let (found, is_own) = match place.kind {
        PlaceKind::OnDisk(disk) => (Ok(disk), true),
        PlaceKind::Outside(provider) => (
            match provider.open(identity) {
                Err(LogUnavailable::Missing(_)) => provider.create(identity),
                found => found.map_err(|error| error.to_string()),
            },
            false,
        ),
    };
    match found {
        Ok(disk) => {
            let copy = engine.configuration.entropy.next_u64().max(1);
            let (aggregate, mending) = (Arc::clone(aggregate), Arc::clone(&engine.mending));
            let joining = Joining { aggregate, disk, copy, turn, mending };
            if is_own {
                joining.join()
            } else {
                joining.look()
            }
            true
        }
        Err(cause) => {
            log.lack(&place.name, cause);
            engine.mending.lock().end(&turn);
            false
        }
    }
}

/// A disk that is to hold a copy of a log. Its turn ends with it, however that is.
struct Joining {
    aggregate: Arc<Aggregate>,
    disk: Arc<dyn Disk>,
    /// The identity of the copy.
    copy: u64,
    turn: Turn,
    mending: Arc<Mutex<Mending>>,
}

impl Drop for Joining {
    fn drop(&mut self) {
        self.mending.lock().end(&self.turn);
    }
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
    }
}
