//! Closes the write hole after a crash: computes the parity of noted stripes anew.
//!
//! What the disks hold counts. Blocks that were being written belong to no complete consistency
//! point and may be anything; blocks in use were not touched. A block of a disk that was missing
//! when the stripe was noted is taken from the note, for parity is not to be trusted. A disk that
//! has gone since left no copy there: its blocks come from parity, and those that are proved by it
//! are as good as any. Its checksum block is, old or new, whole for every row in which nothing was
//! being written.

use crate::block_store::{StripeNote, SyncDone};
use crate::geometry::TetrisId;
use crate::member::Missing;
use crate::resolve::{Answer, Question};
use crate::rows::{Column, RowSet};
use crate::store::Inner;
use platform::completion::gather;
use platform::mutation::{self, Rule};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Inner {
    pub(crate) fn recover_stripes(self: &Arc<Self>, notes: Vec<StripeNote>, done: SyncDone) {
        if mutation::broken(Rule::ParityNotRecovered) {
            return self.flush(done);
        }
        let notes = self.combine(notes);
        let inner = Arc::clone(self);
        let dones = gather(notes.len(), move |_: Vec<()>| inner.flush(done));
        for (note, done) in notes.into_iter().zip(dones) {
            let tetris = note.tetris;
            self.lock_tetris(
                tetris,
                Box::new(move |inner| {
                    let again = Arc::clone(inner);
                    inner.recover_tetris(
                        note,
                        Box::new(move |()| {
                            again.unlock_tetris(tetris);
                            done(());
                        }),
                    );
                }),
            );
        }
    }

    /// One note for each tetris that exists: all its rows, and of blocks kept twice the latest.
    fn combine(&self, notes: Vec<StripeNote>) -> Vec<StripeNote> {
        let mut combined: BTreeMap<_, StripeNote> = BTreeMap::new();
        for note in notes {
            let group = self.geometry.groups().get(note.tetris.group as usize);
            if group.is_none_or(|group| note.tetris.region >= group.regions) {
                continue;
            }
            let entry = combined.entry(note.tetris);
            let all = entry.or_insert(StripeNote { rows: 0, kept: Vec::new(), ..note });
            all.rows |= note.rows;
            all.kept.extend(note.kept);
        }
        combined.into_values().collect()
    }

    fn recover_tetris(self: &Arc<Self>, note: StripeNote, done: Box<dyn FnOnce(()) + Send>) {
        let group = self.group(note.tetris.group);
        let region = note.tetris.region;
        let missing = self.state.lock().groups[note.tetris.group as usize].missing_at(region);
        if !group.has_parity(missing) {
            done(());
            return;
        }
        let rows = RowSet(note.rows);
        let mut given = vec![Column::new(); group.data_disks];
        for kept in note.kept {
            // Of what a note says of disks that are there, the disks know better.
            let column = given
                .get_mut(kept.disk)
                .filter(|_| missing.contains(group.code().member(kept.disk)));
            if let Some(column) = column.filter(|_| kept.row < u64::BITS as usize) {
                column.set(kept.row, kept.block);
            }
        }
        let tetris = note.tetris;
        let wanted = vec![rows; group.data_disks];
        let question = Question { tetris, missing, rows: wanted, given };
        let inner = Arc::clone(self);
        self.resolve(
            question,
            Box::new(move |answer| {
                inner.write_recovered(&answer, rows, tetris, missing, done);
            }),
        );
    }

    fn write_recovered(
        self: &Arc<Self>,
        answer: &Answer,
        rows: RowSet,
        tetris: TetrisId,
        missing: Missing,
        done: Box<dyn FnOnce(()) + Send>,
    ) {
        if self.has_failed() {
            return done(());
        }
        self.count_damage(answer);
        {
            let mut state = self.state.lock();
            state.cache.forget(tetris);
            state.cache.advance_generation(tetris);
        }
        let mut columns = answer.parity(self.group(tetris.group).code(), rows);
        columns.extend(answer.repairs.clone());
        // A repair of a row that was not noted (a checksum block read for proof) keeps parity
        // right: it was computed from parity.
        self.write_columns(tetris, missing, &columns, done);
    }
}
