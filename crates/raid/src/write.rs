//! Writes a batch of blocks to a tetris, with identities and parity.
//!
//! Full stripes need no reading. In a stripe that is written in part the other blocks are read and
//! parity is computed from all of them (reconstruct-write): old parity need not be right, so disks
//! need no zeroing. Rows next to one another go to a disk in one request, the checksum block
//! included.

use crate::block_store::{KeptBlock, StripeNote};
use crate::error::StoreError;
use crate::geometry::{Location, TetrisId};
use crate::member::Missing;
use crate::parity::Code;
use crate::resolve::{Answer, Question};
use crate::rows::{CHECKSUM_ROW, Column, DATA_ROWS, RowSet, set_row};
use crate::store::{Batch, Inner};
use ondisk::identity::{BlockIdentity, ChecksumBlock, crc32c};
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::{Block, BlockRef, zero_block};

/// A batch on its way.
struct BatchWrite {
    tetris: TetrisId,
    number: u64,
    missing: Missing,
    /// Disks that could not be used after a crash now: their blocks go into the note.
    missing_after_crash: Missing,
    /// Whether there is parity to keep right.
    has_parity: bool,
    /// The new blocks of each data disk.
    fresh: Vec<Column>,
    /// Their identities, by row.
    identities: Vec<Vec<(usize, BlockIdentity)>>,
}

/// What goes to the disks.
struct Plan {
    /// For each disk of the group.
    columns: Vec<Column>,
    /// The checksum blocks of the data disks, as far as they are known.
    checksums: Vec<Option<BlockRef>>,
    /// If stripes are written in part.
    note: Option<StripeNote>,
}

impl Inner {
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
        self.lock_tetris(tetris, Box::new(move |inner| inner.begin_batch(tetris, number)));
    }

    fn begin_batch(self: &Arc<Self>, tetris: TetrisId, number: u64) {
        let (batch, missing) = {
            let mut state = self.state.lock();
            let disks = &state.groups[tetris.group as usize];
            let missing = disks.missing_at(tetris.region);
            let missing_after_crash = disks.missing_after_crash_at(tetris.region);
            let Some(entry) = state.tetrises.get_mut(&tetris) else {
                unreachable!("a busy tetris is not forgotten")
            };
            entry.is_batch_queued = false;
            let batch = Arc::new(std::mem::take(&mut entry.filling));
            entry.in_flight = Some(Arc::clone(&batch));
            state.cache.advance_generation(tetris);
            (batch, (missing, missing_after_crash))
        };
        let write = BatchWrite::new(self, tetris, number, &batch, missing);
        // Before the group diverges from a disk that is not there its labels say so.
        self.write_labels(tetris.group);
        let question = write.question(self);
        let inner = Arc::clone(self);
        self.resolve(question, Box::new(move |answer| inner.write_batch(write, &answer)));
    }

    fn write_batch(self: &Arc<Self>, write: BatchWrite, answer: &Answer) {
        if self.has_failed() {
            // What could not be read counts as lost in the answer, and may be there another time:
            // with more disks away than parity covers nothing may be written in its place.
            return self.finish_batch(&write, &[]);
        }
        let mut plan = write.plan(self, answer);
        {
            let counters = &mut self.state.lock().counters;
            counters.tetris_writes += 1;
            counters.partial_tetris_writes += u64::from(plan.note.is_some());
            let (touched, full) = write.stripes();
            counters.stripes += touched;
            counters.full_stripes += full;
        }
        self.count_damage(answer);
        let note = plan.note.take().filter(|_| !mutation::broken(Rule::StripeNotNoted));
        let Some(note) = note else {
            self.write_plan(write, plan);
            return;
        };
        let inner = Arc::clone(self);
        self.journal.note(
            vec![note],
            Box::new(move |result| match result {
                Ok(()) => inner.write_plan(write, plan),
                Err(cause) => {
                    inner.fail_store(StoreError::Journal { cause });
                    inner.finish_batch(&write, &[]);
                }
            }),
        );
    }

    fn write_plan(self: &Arc<Self>, write: BatchWrite, plan: Plan) {
        let inner = Arc::clone(self);
        let checksums = plan.checksums;
        self.write_columns(
            write.tetris,
            write.missing,
            &plan.columns,
            Box::new(move |()| inner.finish_batch(&write, &checksums)),
        );
    }

    fn finish_batch(self: &Arc<Self>, write: &BatchWrite, checksums: &[Option<BlockRef>]) {
        {
            let mut state = self.state.lock();
            let Some(entry) = state.tetrises.get_mut(&write.tetris) else {
                unreachable!("a busy tetris is not forgotten")
            };
            entry.in_flight = None;
            state.cache.advance_generation(write.tetris);
            if state.failure.is_some() {
                state.cache.forget(write.tetris);
            } else {
                for (disk, block) in checksums.iter().enumerate() {
                    if let Some(block) = block {
                        state.cache.insert_from_writer(write.tetris, disk, Arc::clone(block));
                    }
                }
            }
        }
        self.unlock_tetris(write.tetris);
        self.end_batch(write.number);
    }

    /// Columns with the checksum blocks that are cached, for all data disks of a group.
    pub(crate) fn cached_columns(&self, tetris: TetrisId) -> Vec<Column> {
        let state = self.state.lock();
        let cached = |disk| {
            let mut column = Column::new();
            if let Some(block) = state.cache.get_from_writer(tetris, disk) {
                column.set(CHECKSUM_ROW, block);
            }
            column
        };
        (0..self.group(tetris.group).data_disks).map(cached).collect()
    }
}

impl BatchWrite {
    fn new(
        inner: &Inner,
        tetris: TetrisId,
        number: u64,
        batch: &Batch,
        (missing, missing_after_crash): (Missing, Missing),
    ) -> Self {
        let group = inner.group(tetris.group);
        let (geometry, has_parity) = (inner.geometry(), group.has_parity(missing));
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
        Self { tetris, number, missing, missing_after_crash, has_parity, fresh, identities }
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

    fn question(&self, inner: &Inner) -> Question {
        let touched = self.touched();
        let rows = self.fresh.iter().map(|column| {
            let fresh = column.rows();
            let mut rows = RowSet::EMPTY;
            if self.has_parity && !touched.is_empty() {
                rows = touched.without(fresh);
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
            parity: RowSet::EMPTY,
            given: inner.cached_columns(self.tetris),
        }
    }

    fn plan(&self, inner: &Inner, answer: &Answer) -> Plan {
        let code = inner.group(self.tetris.group).code();
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
            parity = self.parity(code, answer, &checksums);
        }
        columns.splice(0..0, parity);
        let note = self.note(code, answer, &checksums);
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
    fn parity(&self, code: Code, answer: &Answer, checksums: &[Option<BlockRef>]) -> Vec<Column> {
        let mut parity = vec![Column::new(); code.parity_disks];
        for row in self.touched().iter() {
            let is_partial = self.fresh.iter().any(|fresh| fresh.get(row).is_none());
            if is_partial && mutation::broken(Rule::ParityStale) {
                continue;
            }
            let blocks = self.fresh.iter().zip(&answer.columns).map(|(fresh, old)| {
                let Some(block) = fresh.get(row).or_else(|| old.get(row)) else {
                    unreachable!("every block of a touched row is new or was resolved")
                };
                block
            });
            set_row(&mut parity, row, code.encode(blocks));
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

    /// The note of the stripes that are written in part.
    fn note(
        &self,
        code: Code,
        answer: &Answer,
        checksums: &[Option<BlockRef>],
    ) -> Option<StripeNote> {
        // Not only if there is parity now: a parity disk may be rebuilt from these blocks before
        // they are durable, and hold what a crash takes from the others.
        if code.parity_disks == 0 {
            return None;
        }
        let touched = self.touched();
        let mut rows = RowSet::EMPTY;
        for column in &self.fresh {
            rows = rows.union(touched.without(column.rows()));
            if !touched.is_empty() && column.rows() != DATA_ROWS {
                rows.insert(CHECKSUM_ROW);
            }
        }
        if rows.is_empty() {
            return None;
        }
        let mut kept = Vec::new();
        for (disk, column) in answer.columns.iter().enumerate() {
            let is_forgotten = mutation::broken(Rule::KeptBlocksForgotten);
            if !self.missing_after_crash.contains(code.member(disk)) || is_forgotten {
                continue;
            }
            for row in rows.iter() {
                let block = match row {
                    CHECKSUM_ROW => checksums[disk].as_ref(),
                    _ => column.get(row),
                };
                kept.extend(block.map(|block| KeptBlock { disk, row, block: Arc::clone(block) }));
            }
        }
        Some(StripeNote { tetris: self.tetris, rows: rows.0, kept })
    }
}
