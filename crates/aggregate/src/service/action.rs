//! What may be asked of a consistency point, and what its freeze gives to it.
//!
//! Invariants: an action runs while nothing else of the aggregate does.

use super::aggregate::Aggregate;
use crate::block_side::side::BlockSide;
use crate::error::AggregateError;
use affinity::Access;
use ondisk::records::VolumeRecord;
use std::sync::Arc;
use units::VolumeId;

/// Called when a consistency point has committed, or cannot.
pub type CpDone = Box<dyn FnOnce(Result<(), AggregateError>) + Send>;
/// Done at a freeze.
pub type Action = Box<dyn FnMut(&mut FreezeScope<'_, '_>) -> Result<Acted, AggregateError> + Send>;

/// What an action came to.
#[derive(Clone, Debug)]
pub enum Acted {
    /// It is carried out.
    Done,
    /// There is no room now, and a commit may make some: it is to be called at the next freeze.
    /// It has changed nothing, and fails with this if no commit comes.
    PutOff(AggregateError),
}

/// What an action works on: the whole aggregate, with nothing else running.
pub struct FreezeScope<'a, 'run> {
    /// The aggregate.
    pub aggregate: &'a Arc<Aggregate>,
    /// Opens all its cells.
    pub access: &'a mut Access<'run>,
}

impl FreezeScope<'_, '_> {
    /// Adds a clone of `parent` with the next number.
    ///
    /// # Panics
    /// If the record has another number, or the table is full.
    pub fn add_clone(&mut self, record: VolumeRecord, parent: VolumeId) {
        let side = self.block_side();
        let clone = VolumeId(side.next_volume);
        side.add_volume(record);
        side.note_clones();
        self.aggregate.parents.write().insert(clone, parent);
    }

    /// The aggregate's own file system.
    pub fn block_side(&mut self) -> &mut BlockSide {
        self.aggregate.block_side.write(self.access)
    }
}
