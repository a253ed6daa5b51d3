//! Which image is pinned, for whoever reads the disks beside the aggregate.
//!
//! Invariants: see [`crate::administration`], which begins and ends pins.

use crate::error::AggregateError;
use platform::sync::{Mutex, MutexGuard};
use thiserror::Error;
use units::{BlockRef, ByteSize, CpNumber};

/// A pinned image.
#[derive(Clone, Debug)]
pub struct ImagePin {
    /// Names the pin, in this start of the aggregate.
    pub number: u64,
    /// The consistency point whose image it is.
    pub cp: CpNumber,
    /// Its superblock.
    pub superblock: BlockRef,
}

/// Why an image is not pinned, or not any more.
#[derive(Clone, Debug, Error)]
pub enum PinError {
    /// Another one is.
    #[error("another check of it is under way")]
    UnderWay,
    /// There is no such pin.
    #[error("the check is over")]
    Over,
    /// Writers needed the room.
    #[error("clients needed the {held} that the check kept from reuse")]
    Room {
        /// What it kept.
        held: ByteSize,
    },
    /// It took too much memory.
    #[error("clients overwrote more during the check than it can keep: {held}")]
    Memory {
        /// What it kept.
        held: ByteSize,
    },
    /// The aggregate failed.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
}

#[derive(Default)]
pub(crate) enum State {
    #[default]
    None,
    /// The next commit pins its image; memory that it may take.
    Wanted(u64),
    Held(ImagePin),
    /// The next commit ends it.
    Ending,
    /// It was given up, and its reader has not asked yet.
    GivenUp(PinError),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Pins(Mutex<Pinning>);

#[derive(Default)]
pub(crate) struct Pinning {
    pub state: State,
    /// The number of the last pin.
    pub number: u64,
    pub held_blocks: u64,
    /// The superblock that is being written, or was last.
    pub superblock: Option<(CpNumber, BlockRef)>,
}

impl Pins {
    /// A superblock is on its way to the disks.
    pub fn note_superblock(&self, cp: CpNumber, block: &BlockRef) {
        self.0.lock().superblock = Some((cp, BlockRef::clone(block)));
    }

    /// The pin, and what it keeps.
    pub fn lock(&self) -> MutexGuard<'_, Pinning> {
        self.0.lock()
    }

    /// Whether an image is pinned, or is to be.
    pub fn is_pinned(&self) -> bool {
        !matches!(self.0.lock().state, State::None | State::GivenUp(_))
    }
}
