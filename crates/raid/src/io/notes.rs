//! Notes of stripes: room for them, and what was written since the last `sync`.
//!
//! A note is needed until what its batch wrote is durable. From then on the stripe is whole, and
//! its parity is as good as any. Notes must go before the consistency point is complete: they hold
//! blocks, and a consistency point may need any number of them. So notes belong to *epochs*. When
//! the room of an epoch is used up, the next epoch begins in the room of the one before the last.
//! Once all batches of an epoch are over the disks are flushed, and then its notes may be
//! forgotten. A batch that finds no room waits for that. It does not wait for ever: the batches
//! that it waits for have their notes and wait for disks alone.
//!
//! Invariants: an epoch begins only when all batches of the last epoch but one are durable. Notes
//! of one tetris come one after the other, and never in an earlier epoch.
//!
//! Fails: when the store has failed no note is written any more, because no note may be forgotten.
//! A batch that waits for room is told.

use crate::error::StoreError;
use crate::io::Io;
use crate::layout::TetrisId;
use crate::partial_parity_log::PartialParityNote;
use crate::stripe::RowSet;
use platform::mutation::{self, Rule};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Goes on when a note is durable: with its epoch.
pub(crate) type Noted = Box<dyn FnOnce(&Arc<Io>, Result<u64, StoreError>) + Send>;

/// What a batch has written: its number, and the rows of each data disk.
type Written = (u64, Vec<RowSet>);

/// See the module.
pub(crate) struct Notes {
    /// The epoch that notes belong to from now on.
    epoch: u64,
    used_blocks: u64,
    /// Batches under way that have notes of even epochs, and of odd ones.
    pub open: [usize; 2],
    /// What the notes of the epoch before this one protect is durable.
    pub is_former_retired: bool,
    pub is_retiring: bool,
    pub waiting: VecDeque<(PartialParityNote, Noted)>,
    written: BTreeMap<TetrisId, Vec<Written>>,
}

impl Notes {
    pub(crate) const fn new() -> Self {
        Self {
            epoch: 0,
            used_blocks: 0,
            open: [0; 2],
            is_former_retired: true,
            is_retiring: false,
            waiting: VecDeque::new(),
            written: BTreeMap::new(),
        }
    }

    /// A batch writes these rows. Returns all that are not known to be durable.
    pub(crate) fn add_written(
        &mut self,
        tetris: TetrisId,
        number: u64,
        rows: Vec<RowSet>,
    ) -> Vec<RowSet> {
        let mut all = rows.clone();
        let batches = self.written.entry(tetris).or_default();
        if !mutation::broken(Rule::WrittenBlocksForgotten) {
            for (_, before) in batches.iter() {
                for (all, before) in all.iter_mut().zip(before) {
                    *all = all.union(*before);
                }
            }
        }
        batches.push((number, rows));
        all
    }

    /// What batches below a number have written is durable.
    pub(crate) fn forget_written(&mut self, number: u64) {
        self.written.retain(|_, batches| {
            batches.retain(|(batch, _)| *batch >= number);
            !batches.is_empty()
        });
    }

    /// The next note that there is room for, and its epoch.
    pub(crate) fn admit(
        &mut self,
        capacity_blocks: u64,
    ) -> Option<(PartialParityNote, Noted, u64)> {
        let blocks = self.waiting.front()?.0.blocks();
        let has_room = self.used_blocks == 0 || self.used_blocks + blocks <= capacity_blocks;
        if !has_room {
            if !self.is_former_retired {
                return None;
            }
            self.epoch += 1;
            self.used_blocks = 0;
            self.is_former_retired = false;
        }
        self.used_blocks += blocks;
        self.open[(self.epoch % 2) as usize] += 1;
        let (note, noted) = self.waiting.pop_front()?;
        Some((note, noted, self.epoch))
    }

    /// Whether the disks must be flushed now, so that the former epoch can be retired.
    pub(crate) fn begins_to_retire(&mut self) -> bool {
        let is_over = self.open[((self.epoch + 1) % 2) as usize] == 0;
        let begins = !self.is_former_retired && !self.is_retiring && is_over;
        self.is_retiring |= begins;
        begins
    }

    /// Lets go of everyone who waits.
    pub(crate) fn abandon(&mut self) -> VecDeque<(PartialParityNote, Noted)> {
        std::mem::take(&mut self.waiting)
    }
}
