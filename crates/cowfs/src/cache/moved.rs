//! Where blocks lie of which pointers say something else: hints about hints (decision 12).
//!
//! A pointer names a place and a checksum. When the block was moved, what the container map said
//! of it is kept here under both, so that the next reader need not ask.
//!
//! Invariants: bounded, the oldest goes first; a wrong entry costs a read and nothing else, for
//! what is found is proved by the pointer's checksum.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use units::Pvbn;

/// Blocks that are known to have moved: 3 MiB.
const MOVED_MAX: usize = 1 << 16;

/// Moves that are followed: from disks to objects and back, twice. Who gets no answer asks the
/// container map.
const MOVES_MAX: usize = 4;

#[derive(Default)]
pub(super) struct Moved {
    places: FxHashMap<(Pvbn, u32), Pvbn>,
    order: VecDeque<(Pvbn, u32)>,
}

impl Moved {
    /// Where the block lies, as far as is known: it may have moved more than once.
    pub(super) fn get(&self, hint: Pvbn, check: u32) -> Option<Pvbn> {
        let mut place = *self.places.get(&(hint, check))?;
        for _ in 0..MOVES_MAX {
            match self.places.get(&(place, check)) {
                None => return Some(place),
                Some(next) => place = *next,
            }
        }
        // Round and round: it is where it was once before.
        None
    }

    pub(super) fn note(&mut self, hint: Pvbn, check: u32, place: Pvbn) {
        if self.places.insert((hint, check), place).is_some() {
            return;
        }
        self.order.push_back((hint, check));
        if self.order.len() > MOVED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.places.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{BufferCache, Class};
    use std::sync::Arc;
    use units::Block;

    #[test]
    fn moved_blocks_are_found_under_the_old_place_and_its_new_block_too() {
        let cache = BufferCache::new(100);
        let block = |byte: u8| Arc::new(Block::from_prefix(&[byte]));
        cache.insert(Pvbn(7), (70, Class::Data), block(1));
        assert_eq!(cache.get(Pvbn(7), 70), Some(block(1)));
        // The block moves; another is placed where it was.
        cache.note_moved(Pvbn(7), 70, Pvbn(90));
        cache.insert(Pvbn(7), (71, Class::Data), block(2));
        assert_eq!(cache.get(Pvbn(7), 70), None);
        cache.insert(Pvbn(90), (70, Class::Data), block(1));
        assert_eq!(cache.get(Pvbn(7), 70), Some(block(1)));
        assert_eq!(cache.get(Pvbn(7), 71), Some(block(2)));
        // And moves again.
        cache.note_moved(Pvbn(7), 70, Pvbn(91));
        cache.remove(Pvbn(90));
        assert_eq!((cache.get(Pvbn(7), 70), cache.moved(Pvbn(7), 70)), (None, Some(Pvbn(91))));
    }

    #[test]
    fn a_block_that_moves_on_is_followed_and_one_that_came_back_is_asked_for() {
        let mut moved = Moved::default();
        moved.note(Pvbn(7), 70, Pvbn(90));
        moved.note(Pvbn(90), 70, Pvbn(8));
        moved.note(Pvbn(90), 71, Pvbn(9));
        assert_eq!(
            (moved.get(Pvbn(7), 70), moved.get(Pvbn(90), 70)),
            (Some(Pvbn(8)), Some(Pvbn(8)))
        );
        moved.note(Pvbn(8), 70, Pvbn(7));
        assert_eq!(moved.get(Pvbn(7), 70), None);
    }

    #[test]
    fn the_oldest_go_first() {
        let mut moved = Moved::default();
        for number in 0..MOVED_MAX as u64 + 10 {
            moved.note(Pvbn(number), 1, Pvbn(1 << 30));
            moved.note(Pvbn(number), 1, Pvbn((1 << 40) + number));
        }
        assert_eq!((moved.places.len(), moved.order.len()), (MOVED_MAX, MOVED_MAX));
        assert_eq!(
            (moved.get(Pvbn(9), 1), moved.get(Pvbn(10), 1)),
            (None, Some(Pvbn((1 << 40) + 10)))
        );
    }
}
