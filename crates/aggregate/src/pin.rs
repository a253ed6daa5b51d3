//! An image that is kept from being overwritten while somebody reads the disks beside the
//! aggregate: the online check.
//!
//! The pin is taken at a commit, in the Aggregate affinity, so it is the image of that very
//! superblock. Superblock slots are overwritten as ever: the reader gets the superblock itself.
//!
//! Writers win. At each commit the pin is given up if it keeps more than a quarter of what is free,
//! if what is left is no more than the reserve, if an operation found no room since, or if
//! remembering it takes more memory than it may. All that it kept is free with that commit.
//!
//! Invariants:
//! - One image is pinned at a time.
//! - What the pin keeps is nobody's room: the budget does not count it as free. So no consistency
//!   point finds less than operations were promised.
//! - A group of disks does not leave while an image is pinned: the image may have blocks on it.
//! - Nothing of a pin outlives a start.
//!
//! Fails: by [`PinError`]. A reader must ask at its end whether the pin held until then: what it
//! read of an image that was given up means nothing.

use crate::aggregate::{Aggregate, free_blocks, reserve_blocks};
use crate::block_side::BlockSide;
use crate::consistency_point::Acted;
use crate::error::AggregateError;
use platform::sync::Mutex;
use std::sync::Arc;
use thiserror::Error;
use units::{BLOCK_SIZE_U64, BlockRef, ByteSize, CpNumber};

/// The share of what is free that a pin may keep.
const HELD_DIVISOR: u64 = 4;

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
    #[error("writers needed the {held} that the check kept from being used again")]
    Room {
        /// What it kept.
        held: ByteSize,
    },
    /// It took too much memory.
    #[error("too much was overwritten meanwhile to remember it: {held}")]
    Memory {
        /// What it kept.
        held: ByteSize,
    },
    /// The aggregate failed.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
}

/// Called when an image is pinned, or cannot be.
pub type PinDone = Box<dyn FnOnce(Result<ImagePin, PinError>) + Send>;
/// Called when a pin has ended, with whether it held until then.
pub type UnpinDone = Box<dyn FnOnce(Result<(), PinError>) + Send>;

#[derive(Default)]
enum State {
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
struct Pinning {
    state: State,
    /// The number of the last pin.
    number: u64,
    held_blocks: u64,
    /// The superblock that is being written, or was last.
    superblock: Option<(CpNumber, BlockRef)>,
}

impl Pins {
    /// A superblock is on its way to the disks.
    pub fn note_superblock(&self, cp: CpNumber, block: &BlockRef) {
        self.0.lock().superblock = Some((cp, BlockRef::clone(block)));
    }
}

impl Aggregate {
    /// Pins the image of the next commit. Remembering what is kept takes `memory_bytes` at most.
    pub fn pin_image(self: &Arc<Self>, memory_bytes: u64, done: PinDone) {
        {
            let mut pins = self.pins.0.lock();
            if !matches!(pins.state, State::None | State::GivenUp(_)) {
                drop(pins);
                return done(Err(PinError::UnderWay));
            }
            pins.state = State::Wanted(memory_bytes);
            pins.number += 1;
        }
        let this = Arc::clone(self);
        let committed = move |outcome: Result<(), AggregateError>| {
            let mut pins = this.pins.0.lock();
            let answer = match (outcome, &pins.state) {
                (Ok(()), State::Held(pin)) => Ok(pin.clone()),
                (Ok(()), State::GivenUp(error)) => Err(error.clone()),
                (Ok(()), _) => Err(PinError::Over),
                (Err(error), _) => {
                    pins.state = State::None;
                    Err(error.into())
                }
            };
            drop(pins);
            done(answer);
        };
        self.request_action(Box::new(|_| Ok(Acted::Done)), Box::new(committed));
    }

    /// Blocks that a pin keeps from being given again.
    ///
    /// # Errors
    /// Why it does not hold any more.
    pub fn pinned_blocks(&self, number: u64) -> Result<u64, PinError> {
        let pins = self.pins.0.lock();
        match &pins.state {
            State::Held(pin) if pin.number == number => Ok(pins.held_blocks),
            State::GivenUp(error) if pins.number == number => Err(error.clone()),
            _ => Err(PinError::Over),
        }
    }

    /// Ends a pin. `done` is called when what it kept may be given again.
    pub fn unpin_image(self: &Arc<Self>, number: u64, done: UnpinDone) {
        let held = self.pinned_blocks(number);
        {
            let mut pins = self.pins.0.lock();
            match held {
                Ok(_) => pins.state = State::Ending,
                Err(error) => {
                    if pins.number == number && matches!(pins.state, State::GivenUp(_)) {
                        pins.state = State::None;
                    }
                    drop(pins);
                    return done(Err(error));
                }
            }
        }
        let committed = |outcome: Result<(), AggregateError>| done(outcome.map_err(PinError::from));
        self.request_action(Box::new(|_| Ok(Acted::Done)), Box::new(committed));
    }

    /// Whether an image is pinned, or is to be.
    pub(crate) fn is_pinned(&self) -> bool {
        !matches!(self.pins.0.lock().state, State::None | State::GivenUp(_))
    }

    /// What may be given from now on, in order: what the consistency point freed, and what a pin
    /// kept that ends with it.
    pub(crate) fn freed(&self, side: &mut BlockSide) -> Vec<u64> {
        let mut freed = side.space.commit();
        let released = self.settle_pin(side, free_blocks(side, &self.parts.store.geometry()));
        if !released.is_empty() {
            freed.extend(released);
            freed.sort_unstable();
        }
        freed
    }

    /// A consistency point has committed: begins a pin, or ends one. `free` is what operations
    /// could be promised without one. The numbers that it kept and keeps no more.
    fn settle_pin(&self, side: &mut BlockSide, free: u64) -> Vec<u64> {
        let mut pins = self.pins.0.lock();
        let is_refused = self.parts.shared.budget.take_refused();
        match pins.state {
            State::Wanted(memory_bytes) => {
                let Some((cp, superblock)) = pins.superblock.clone() else {
                    unreachable!("a commit follows a superblock")
                };
                side.space.pin(memory_bytes);
                pins.held_blocks = 0;
                pins.state = State::Held(ImagePin { number: pins.number, cp, superblock });
                return Vec::new();
            }
            State::Ending => pins.state = State::None,
            State::Held(_) => {
                pins.held_blocks = side.space.held_blocks();
                let held = pins.held_blocks;
                let left = free.saturating_sub(held);
                let is_short = held > free / HELD_DIVISOR
                    || left <= reserve_blocks(self.size_blocks())
                    || is_refused;
                let size = ByteSize(held.saturating_mul(BLOCK_SIZE_U64));
                if held > 0 && is_short {
                    pins.state = State::GivenUp(PinError::Room { held: size });
                } else if side.space.is_pin_overfull() {
                    pins.state = State::GivenUp(PinError::Memory { held: size });
                } else {
                    if held > 0 {
                        // Who finds no room waits for a commit, and gets what is kept.
                        self.parts.shared.budget.note_frees();
                    }
                    return Vec::new();
                }
                tracing::info!(
                    aggregate = %self.parts.identity.name,
                    held = %size,
                    "a check is given up: writers get the room that it kept"
                );
            }
            State::None | State::GivenUp(_) => {}
        }
        drop(pins);
        side.space.unpin()
    }
}
