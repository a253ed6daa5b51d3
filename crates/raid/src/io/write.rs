//! Writes a batch of blocks to a tetris, with identities and parity.
//!
//! Full stripes need no reading. Of a stripe that is written in part the parity of the other blocks
//! is found out first, in the cheaper of two ways (see `stripe/stable.rs`). Disks need no zeroing.
//! Rows next to one another go to a disk in one request, the checksum block included.

use crate::error::StoreError;
use crate::io::Io;
use crate::io::tetris::Batch;
use crate::layout::{Location, Missing, TetrisId};
use crate::partial_parity_log::PartialParityNote;
use crate::stripe::{
    Answer, CHECKSUM_ROW, Code, Column, DATA_ROWS, Question, RowSet, note, rows_to_modify, set_row,
    stable_parity, sums,
};
use ondisk::identity::{BlockIdentity, ChecksumBlock, crc32c};
use platform::mutation::{self, Rule};
use platform::stage::{self, Stage};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{Block, BlockRef, zero_block};

/// A batch on its way.
struct BatchWrite {
    tetris: TetrisId,
    number: u64,
    missing: Missing,
    /// Whether there is parity to keep right, or will be once a disk is rebuilt.
    has_parity: bool,
    /// The new blocks of each data disk.
    fresh: Vec<Column>,
    /// Their identities, by row.
    identities: Vec<Vec<(usize, BlockIdentity)>>,
    /// What it writes of each data disk, and what was written before and may not be durable.
    written: Vec<RowSet>,
    /// Rows of which old parity is read, and not the stable blocks.
    modified: RowSet,
    /// The epoch of its note, if it has one.
    epoch: Option<u64>,
}

/// The parity of stable blocks, by row.
type StableParity = BTreeMap<usize, Vec<BlockRef>>;

/// What goes to the disks.
struct Plan {
    /// For each disk of the group.
    columns: Vec<Column>,
    /// The checksum blocks of the data disks, as far as they are known.
    checksums: Vec<Option<BlockRef>>,
    /// If stripes are written in part.
    note: Option<PartialParityNote>,
}

impl Io {
    /// Has what is queued for a tetris written as soon as the tetris is free.
    pub(crate) fn start_batch(self: &Arc<Self>, tetris: TetrisId) {
        let number = {
            let mut state = self.state.lock();
            let number = state.next_batch;
            let entry = state.tetrises.entry(tetris).or_default();
            if std::mem::replace(&mut entry.is_batch_queued, true) {
                // A batch waits already and takes all there is when it begins.
                return;
            }
            state.next_batch += 1;
            state.open_batches.insert(number);
            number
        };
        self.lock_tetris(tetris, Box::new(move |io| io.begin_batch(tetris, number)));
    }

    fn begin_batch(self: &Arc<Self>, tetris: TetrisId, number: u64) {
        let missing = self.members.missing_at(tetris);
        let batch = {
            let mut state = self.state.lock();
            let Some(entry) = state.tetrises.get_mut(&tetris) else {
                unreachable!("a busy tetris is not forgotten")
            };
            entry.is_batch_queued = false;
            let batch = Arc::new(std::mem::take(&mut entry.filling));
            entry.in_flight = Some(Arc::clone(&batch));
            state.cache.advance_generation(tetris);
            batch
        };
        let preparing = stage::enter(Stage::Parity);
        let write = BatchWrite::new(self, tetris, number, &batch, missing);
        drop(preparing);
        // Before the group diverges from a disk that is not there its labels say so.
        self.members.write_labels(tetris.group);
        self.ask(write);
    }

    /// Finds out what the batch has to know, and writes it.
    fn ask(self: &Arc<Self>, write: BatchWrite) {
        let question = write.question(self);
        let io = Arc::clone(self);
        self.resolve(question, Box::new(move |answer| io.write_batch(write, &answer)));
    }

    fn write_batch(self: &Arc<Self>, mut write: BatchWrite, answer: &Answer) {
        if self.members.has_failed() {
            // What could not be read counts as lost in the answer, and may be there another time:
            // with more disks away than parity covers nothing may be written in its place.
            return self.finish_batch(&write, &[]);
        }
        let preparing = stage::enter(Stage::Parity);
        let Some(stable) = write.stable(self, answer) else {
            drop(preparing);
            // Old parity is not right, or what it was made of: all else is read.
            write.modified = RowSet::EMPTY;
            return self.ask(write);
        };
        let mut plan = write.plan(self, answer, &stable);
        drop(preparing);
        {
            let counters = &mut self.state.lock().counters;
            counters.tetris_writes += 1;
            counters.partial_tetris_writes += u64::from(plan.note.is_some());
            let (touched, full) = write.stripes();
            counters.stripes += touched;
            counters.full_stripes += full;
            counters.modified_stripes += u64::from(write.modified.0.count_ones());
        }
        self.count_damage(answer);
        self.blame(write.tetris, write.missing, answer);
        let note = plan.note.take().filter(|_| !mutation::broken(Rule::StripeNotNoted));
        let Some(note) = note else {
            self.write_plan(write, plan);
            return;
        };
        let noted = move |io: &Arc<Self>, result: Result<u64, StoreError>| match result {
            Ok(epoch) => {
                write.epoch = Some(epoch);
                io.write_plan(write, plan);
            }
            Err(cause) => {
                io.members.fail_store(cause);
                io.finish_batch(&write, &[]);
            }
        };
        self.note_stripes(note, Box::new(noted));
    }

    fn write_plan(self: &Arc<Self>, write: BatchWrite, plan: Plan) {
        let io = Arc::clone(self);
        let checksums = plan.checksums;
        self.write_columns(
            write.tetris,
            write.missing,
            &plan.columns,
            Box::new(move |()| io.finish_batch(&write, &checksums)),
        );
    }

    fn finish_batch(self: &Arc<Self>, write: &BatchWrite, checksums: &[Option<BlockRef>]) {
        let has_failed = self.members.has_failed();
        // The blocks are let go of outside the lock.
        let (batch, hook) = {
            let mut state = self.state.lock();
            let Some(entry) = state.tetrises.get_mut(&write.tetris) else {
                unreachable!("a busy tetris is not forgotten")
            };
            let batch = entry.in_flight.take();
            state.cache.advance_generation(write.tetris);
            if has_failed {
                state.cache.forget(write.tetris);
            } else {
                for (disk, block) in checksums.iter().enumerate() {
                    if let Some(block) = block {
                        state.cache.insert_from_writer(write.tetris, disk, Arc::clone(block));
                    }
                }
            }
            (batch, state.write_hook.clone())
        };
        // Before the batch ends: a `sync` that waits for it may end with what it writes.
        if let Some(hook) = hook {
            hook(batch.map_or(0, |batch| batch.len() as u64));
        }
        if let Some(epoch) = write.epoch {
            self.end_note(epoch);
        }
        self.unlock_tetris(write.tetris);
        self.end_batch(write.number);
    }

    /// Columns with the checksum blocks that are cached, for all data disks of a group.
    fn cached_columns(&self, tetris: TetrisId) -> Vec<Column> {
        let state = self.state.lock();
        let cached = |disk| {
            let mut column = Column::new();
            if let Some(block) = state.cache.get_from_writer(tetris, disk) {
                column.set(CHECKSUM_ROW, block);
            }
            column
        };
        (0..self.members.group(tetris.group).data_disks).map(cached).collect()
    }
}

impl BatchWrite {
    fn new(io: &Io, tetris: TetrisId, number: u64, batch: &Batch, missing: Missing) -> Self {
        let group = io.members.group(tetris.group);
        let (geometry, has_parity) = (io.members.geometry(), group.code().parity_disks > 0);
        let mut fresh = vec![Column::new(); group.data_disks];
        let mut identities = vec![Vec::new(); group.data_disks];
        for (pvbn, write) in batch {
            let Some(location @ Location { disk, .. }) = geometry.locate(*pvbn) else {
                unreachable!("what is queued was located")
            };
            debug_assert_eq!(write.checksum, crc32c(&write.block), "the writer's checksum");
            let identity = BlockIdentity::of_checksum(&write.owner, *pvbn, write.checksum);
            fresh[disk].set(location.row(), Arc::clone(&write.block));
            identities[disk].push((location.row(), identity));
        }
        let rows = fresh.iter().map(Column::rows).collect();
        let written = match has_parity {
            true => io.state.lock().notes.add_written(tetris, number, rows),
            false => rows,
        };
        let (modified, epoch) = (RowSet::EMPTY, None);
        let mut write = Self {
            tetris,
            number,
            missing,
            has_parity,
            fresh,
            identities,
            written,
            modified,
            epoch,
        };
        write.modified = rows_to_modify(&group, missing, write.touched(), &write.written);
        write
    }

    /// All rows in which something is written.
    fn touched(&self) -> RowSet {
        self.fresh.iter().fold(RowSet::EMPTY, |rows, column| rows.union(column.rows()))
    }

    /// Stripes in which something is written, and those in which everything is; none if there is no
    /// parity to read for.
    fn stripes(&self) -> (u64, u64) {
        let full =
            self.fresh.iter().fold(DATA_ROWS, |rows, column| RowSet(rows.0 & column.rows().0));
        let count = |rows: RowSet| u64::from(rows.0.count_ones());
        if self.has_parity { (count(self.touched()), count(full)) } else { (0, 0) }
    }

    fn question(&self, io: &Io) -> Question {
        let touched = self.touched();
        let rows = self.fresh.iter().zip(&self.written).map(|(column, written)| {
            let fresh = column.rows();
            let mut rows = RowSet::EMPTY;
            if self.has_parity && !touched.is_empty() {
                // Of a modified row what is overwritten matters, of any other what stays.
                let modified = RowSet(self.modified.0 & written.0);
                rows = touched.without(fresh).without(self.modified).union(modified);
            }
            let is_partial = !fresh.is_empty() && fresh != DATA_ROWS;
            if is_partial || self.has_parity && fresh.is_empty() && !touched.is_empty() {
                rows.insert(CHECKSUM_ROW);
            }
            rows
        });
        Question {
            tetris: self.tetris,
            missing: self.missing,
            rows: rows.collect(),
            parity: self.modified,
            given: io.cached_columns(self.tetris),
        }
    }

    /// The parity of the stable blocks of each row that is written in part; `None` if more must be
    /// read for it.
    fn stable(&self, io: &Io, answer: &Answer) -> Option<StableParity> {
        let mut stable = StableParity::new();
        if !self.has_parity {
            return Some(stable);
        }
        let code = io.members.group(self.tetris.group).code();
        let is_partial = |row: usize| self.written.iter().any(|written| !written.contains(row));
        for row in self.touched().iter().filter(|row| is_partial(*row)) {
            stable.insert(row, stable_parity(code, answer, &self.written, row)?);
        }
        Some(stable)
    }

    fn plan(&self, io: &Io, answer: &Answer, stable: &StableParity) -> Plan {
        let code = io.members.group(self.tetris.group).code();
        let mut columns = answer.repairs.clone();
        let mut checksums: Vec<_> =
            answer.columns.iter().map(|column| column.get(CHECKSUM_ROW).cloned()).collect();
        for (disk, fresh) in self.fresh.iter().enumerate() {
            if fresh.rows().is_empty() {
                continue;
            }
            for row in fresh.rows().iter() {
                if let Some(block) = fresh.get(row) {
                    columns[disk].set(row, Arc::clone(block));
                }
            }
            let old = checksums[disk].take().filter(|_| fresh.rows() != DATA_ROWS);
            checksums[disk] = Some(Arc::new(self.identify(disk, old)));
        }
        for (disk, block) in checksums.iter().enumerate() {
            if let Some(block) = block.as_ref().filter(|_| !self.fresh[disk].rows().is_empty()) {
                columns[disk].set(CHECKSUM_ROW, Arc::clone(block));
            }
        }
        let mut parity = vec![Column::new(); code.parity_disks];
        if self.has_parity && !self.touched().is_empty() {
            parity = self.parity(code, answer, stable, &checksums);
        }
        columns.splice(0..0, parity);
        let place = (self.tetris, code);
        let note = match self.has_parity {
            true => note(place, self.touched(), &self.written, stable, &checksums),
            false => None,
        };
        Plan { columns, checksums, note }
    }

    /// The checksum block of a disk, with the identities of its new blocks.
    fn identify(&self, disk: usize, old: Option<BlockRef>) -> Block {
        let mut block = Block::clone(&old.unwrap_or_else(zero_block));
        let checksums = ChecksumBlock::view_mut(&mut block);
        for identity in &mut checksums.identities {
            // No block's: what was on the disk before it was ours.
            if identity.validate().is_err() {
                *identity = BlockIdentity::zeroed();
            }
        }
        for (row, identity) in &self.identities[disk] {
            checksums.identities[*row] = *identity;
        }
        block
    }

    /// The columns of the parity disks.
    fn parity(
        &self,
        code: Code,
        answer: &Answer,
        stable: &StableParity,
        checksums: &[Option<BlockRef>],
    ) -> Vec<Column> {
        let mut parity = vec![Column::new(); code.parity_disks];
        for row in self.touched().iter() {
            let is_partial = self.fresh.iter().any(|fresh| fresh.get(row).is_none());
            if is_partial && mutation::broken(Rule::ParityStale) {
                continue;
            }
            let zero = zero_block();
            let blocks = (0..code.data_disks).map(|disk| {
                if !self.written[disk].contains(row) {
                    return &zero;
                }
                let old = || answer.columns[disk].get(row);
                let Some(block) = self.fresh[disk].get(row).or_else(old) else {
                    unreachable!("what an earlier batch wrote was resolved")
                };
                block
            });
            let written = code.encode(blocks);
            let whole = stable.get(&row).map(|stable| sums(stable, &written));
            set_row(&mut parity, row, whole.unwrap_or(written));
        }
        let checksums = checksums.iter().map(|block| {
            let Some(block) = block else {
                unreachable!("every checksum block is new or was resolved")
            };
            block
        });
        set_row(&mut parity, CHECKSUM_ROW, code.encode(checksums));
        parity
    }
}
