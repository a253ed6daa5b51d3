//! What all rooms share: the engine, the clock, the front ends, what could not be opened, and the
//! turn of administrators.
//!
//! Invariants: changes asked for by administrators are made one at a time, in the turn of
//! [`Node::turn`], because each first looks and then acts. The turn is held while the engine works;
//! nobody waits for it but other administrators, never a thread that serves files.

use crate::keeping::Unwritten;
use crate::ports::FrontEnds;
use crate::waits::Waits;
use admin_api::AdminError;
use dblade::{Engine, Queued, ServedVolume};
use ondisk::label::{DiskRole, RaidKind};
use platform::Clock;
use platform::sync::{Mutex, MutexGuard};
use std::sync::Arc;
use units::{AggregateUuid, DiskUuid, Timestamp};

/// What the labels of an aggregate's disks say.
#[derive(Clone, Default, Debug)]
pub(crate) struct Seen {
    /// How the aggregate is protected.
    pub kind: Option<RaidKind>,
    /// The names of all disks that carry its label.
    pub disks: Vec<String>,
    /// Those of them that have a place in it, or wait for one.
    pub own: Vec<SeenDisk>,
    /// Of these disks, the ones that were replaced: they have no place in it any more.
    pub replaced: Vec<String>,
    /// The disks that have a place in it and were not found.
    pub absent: Vec<AbsentDisk>,
}

/// A disk of an aggregate, as its label tells of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SeenDisk {
    pub identity: DiskUuid,
    pub name: String,
    /// The number in its short name.
    pub number: Option<u32>,
}

/// A disk that has a place in an aggregate and was not found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AbsentDisk {
    pub identity: DiskUuid,
    pub group: u32,
    pub role: DiskRole,
}

/// An aggregate that was found and could not be opened.
#[derive(Clone, Debug)]
pub(crate) struct OfflineAggregate {
    /// Its identity.
    pub identity: AggregateUuid,
    /// Its name.
    pub name: String,
    /// What its disks say.
    pub seen: Seen,
    /// Why.
    pub error: AdminError,
    /// If its journal was found to be lost: when its last consistency point was.
    pub journal_lost: Option<Timestamp>,
}

/// A disk that could not be used when the server started.
#[derive(Clone, Debug)]
pub(crate) struct LeftOut {
    /// Its name.
    pub name: String,
    /// Its identity, if its label could be read.
    pub identity: Option<DiskUuid>,
    /// Why.
    pub reason: String,
    /// Another build labelled it, in a version that this one does not read.
    pub is_of_another_build: bool,
}

/// See the module.
pub(crate) struct Node {
    pub engine: Arc<Engine>,
    pub clock: Arc<dyn Clock>,
    pub front_ends: Arc<dyn FrontEnds>,
    pub waits: Waits,
    /// Aggregates that could not be opened.
    pub offline: Mutex<Vec<OfflineAggregate>>,
    /// Disks that could not be used when the server started.
    pub left_out: Mutex<Vec<LeftOut>>,
    /// Files that could not be written.
    pub unwritten: Arc<Unwritten>,
    turns: Mutex<()>,
}

impl Node {
    /// A node that knows nothing as yet.
    pub(crate) fn new(
        engine: Arc<Engine>,
        clock: Arc<dyn Clock>,
        front_ends: Arc<dyn FrontEnds>,
        (waits, unwritten): (Waits, Arc<Unwritten>),
    ) -> Self {
        Self {
            engine,
            clock,
            front_ends,
            waits,
            offline: Mutex::default(),
            left_out: Mutex::default(),
            unwritten,
            turns: Mutex::default(),
        }
    }

    /// The right to make changes, until it is dropped.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turns.lock()
    }

    /// The same, unless somebody has it: for work that is tried again within a second, and must not
    /// wait for a command that hangs.
    pub(crate) fn turn_now(&self) -> Option<MutexGuard<'_, ()>> {
        self.turns.try_lock()
    }

    /// Whether a volume's aggregate is in service: volumes of one whose opening failed half way
    /// are known to the engine and served by nobody.
    pub(crate) fn is_in_service(&self, volume: &ServedVolume) -> bool {
        let name = &volume.aggregate.parts.identity.name;
        let found = self.engine.aggregate_named(name);
        found.is_some_and(|aggregate| Arc::ptr_eq(&aggregate, &volume.aggregate))
    }

    /// The volumes in service, in order of name.
    pub(crate) fn served(&self) -> Vec<Arc<ServedVolume>> {
        let mut volumes = self.engine.volumes();
        volumes.retain(|volume| self.is_in_service(volume) && volume.queued().is_none());
        volumes
    }

    /// The volumes in the recovery queue whose aggregates are in service.
    pub(crate) fn queued(&self) -> Vec<(Arc<ServedVolume>, Queued)> {
        let volumes = self.engine.volumes().into_iter();
        volumes
            .filter(|volume| self.is_in_service(volume))
            .filter_map(|volume| volume.queued().map(|queued| (volume, queued)))
            .collect()
    }
}
