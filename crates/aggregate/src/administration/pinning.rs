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

use crate::block_side::room::{free_blocks, reserve_blocks};
use crate::block_side::side::BlockSide;
use crate::error::AggregateError;
use crate::service::action::Acted;
use crate::service::aggregate::Aggregate;
use crate::service::pins::{ImagePin, PinError, State};
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, ByteSize, Pvbn};

/// The share of what is free that a pin may keep.
const HELD_DIVISOR: u64 = 4;

/// Called when an image is pinned, or cannot be.
pub type PinDone = Box<dyn FnOnce(Result<ImagePin, PinError>) + Send>;
/// Called when a pin has ended, with whether it held until then.
pub type UnpinDone = Box<dyn FnOnce(Result<(), PinError>) + Send>;

impl Aggregate {
    /// Pins the image of the next commit. Remembering what is kept takes `memory_bytes` at most.
    pub fn pin_image(self: &Arc<Self>, memory_bytes: u64, done: PinDone) {
        {
            let mut pins = self.pins.lock();
            if !matches!(pins.state, State::None | State::GivenUp(_)) {
                drop(pins);
                return done(Err(PinError::UnderWay));
            }
            pins.state = State::Wanted(memory_bytes);
            pins.number += 1;
        }
        let this = Arc::clone(self);
        let committed = move |outcome: Result<(), AggregateError>| {
            let mut pins = this.pins.lock();
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
        let pins = self.pins.lock();
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
            let mut pins = self.pins.lock();
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
}

/// What may be given from now on, in order: what the consistency point freed, and what a pin
/// kept that ends with it.
pub(crate) fn freed(aggregate: &Aggregate, side: &mut BlockSide) -> Vec<Pvbn> {
    let mut freed = side.space.commit();
    let released =
        settle_pin(aggregate, side, free_blocks(side, &aggregate.parts.store.geometry()));
    if !released.is_empty() {
        freed.extend(released);
        freed.sort_unstable();
    }
    freed
}

/// A consistency point has committed: begins a pin, or ends one. `free` is what operations
/// could be promised without one. The numbers that it kept and keeps no more.
fn settle_pin(aggregate: &Aggregate, side: &mut BlockSide, free: u64) -> Vec<Pvbn> {
    let mut pins = aggregate.pins.lock();
    let is_refused = aggregate.parts.shared.budget.take_refused();
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
                || left <= reserve_blocks(aggregate.size_blocks())
                || is_refused;
            let size = ByteSize(held.saturating_mul(BLOCK_SIZE_U64));
            if held > 0 && is_short {
                pins.state = State::GivenUp(PinError::Room { held: size });
            } else if side.space.is_pin_overfull() {
                pins.state = State::GivenUp(PinError::Memory { held: size });
            } else {
                if held > 0 {
                    // Who finds no room waits for a commit, and gets what is kept.
                    aggregate.parts.shared.budget.note_frees();
                }
                return Vec::new();
            }
            tracing::info!(
                aggregate = %aggregate.parts.identity.name,
                held = %size,
                "a check is given up: writers get the room that it kept"
            );
        }
        State::None | State::GivenUp(_) => {}
    }
    drop(pins);
    side.space.unpin()
}
