//! A block that failed its proof, or cannot be read: it is made good from parity, and proved again.
//!
//! The block, its identity or both may be wrong: a lost write loses either. So there are candidates
//! for both: the block as read and the blocks that follow from parity; the checksum block as read
//! and those that follow from parity. The first pair that proves is taken, and what the disk lacks
//! of it is written there. First those candidates are tried that follow if all other blocks are
//! right.

use crate::error::ReadFailure;
use crate::io::Io;
use crate::layout::{Location, Missing};
use crate::proof::Proof;
use crate::request::{BlockRead, ReadDone};
use crate::stripe::{CHECKSUM_ROW, Column, RowSet, get_row};
use ondisk::identity::{BlockIdentity, ChecksumBlock};
use std::sync::Arc;
use units::{BlockRef, Pvbn};

/// The good block, and what must be written so that the disk has it too.
struct Verdict {
    block: BlockRef,
    is_block_wrong: bool,
    good_checksums: Option<BlockRef>,
}

impl Verdict {
    /// The rows that the disk does not have as they are.
    fn wrong(&self, row: usize) -> RowSet {
        let mut wrong = RowSet::EMPTY;
        if self.is_block_wrong {
            wrong.insert(row);
        }
        if self.good_checksums.is_some() {
            wrong.insert(CHECKSUM_ROW);
        }
        wrong
    }
}

impl Io {
    pub(super) fn reconstruct(
        self: &Arc<Self>,
        read: BlockRead,
        location: Location,
        done: ReadDone,
    ) {
        let job = move |io: &Arc<Self>| io.reconstruct_locked(read, location, done);
        self.lock_tetris(location.tetris(), Box::new(job));
    }

    fn reconstruct_locked(self: &Arc<Self>, read: BlockRead, location: Location, done: ReadDone) {
        let tetris = location.tetris();
        if self.members.geometry().locate(read.pvbn).is_none() {
            // The group was removed meanwhile.
            self.unlock_tetris(tetris);
            return done(Err(ReadFailure::OutOfRange { pvbn: read.pvbn }));
        }
        let queued = {
            let state = self.state.lock();
            state.tetrises.get(&tetris).and_then(|tetris| tetris.queued(read.pvbn))
        };
        if let Some(block) = queued {
            self.unlock_tetris(tetris);
            done(Ok(block));
            return;
        }
        let missing = self.members.missing_at(tetris);
        if self.members.has_lost(tetris.group) {
            // Nothing follows from the others; and one that hangs would be waited for, each block
            // in its turn.
            self.unlock_tetris(tetris);
            return done(Err(self.damaged(&read, location)));
        }
        let mut rows = RowSet::one(location.row());
        rows.insert(CHECKSUM_ROW);
        let wants = vec![rows; self.members.group(tetris.group).members.len()];
        let (io, asked) = (Arc::clone(self), wants.clone());
        self.load(
            tetris,
            missing,
            &wants,
            Box::new(move |columns| {
                io.count_unreadable(tetris, missing, &asked, &columns);
                let verdict = io
                    .judge(&read, location, &columns, 1)
                    .or_else(|| io.judge(&read, location, &columns, usize::MAX));
                let is_other = verdict.is_none() && io.is_other(&read, location, &columns);
                if verdict.is_none() && !is_other {
                    io.state.lock().counters.damaged_blocks += 1;
                }
                let member = io.members.group(tetris.group).code().member(location.disk);
                let wrong = match &verdict {
                    Some(verdict) => verdict.wrong(location.row()),
                    None if is_other || is_whole(&read, location.row(), &columns[member]) => {
                        RowSet::EMPTY
                    }
                    None => RowSet::one(location.row()),
                };
                let gave_wrong = RowSet(wrong.0 & columns[member].rows().0);
                io.count_rotten(tetris, (member, missing), gave_wrong);
                io.conclude(read, location, missing, verdict, done);
            }),
        );
    }

    fn damaged(&self, read: &BlockRead, location: Location) -> ReadFailure {
        let group = self.members.group(location.group);
        let disk = group.name(group.code().member(location.disk));
        ReadFailure::Damaged { pvbn: read.pvbn, disk, expected: read.proof.expectation() }
    }

    /// Looks at so many blocks from parity, and as many checksum blocks.
    fn judge(
        &self,
        read: &BlockRead,
        location: Location,
        columns: &[Column],
        candidates_max: usize,
    ) -> Option<Verdict> {
        let code = self.members.group(location.group).code();
        let own = &columns[code.member(location.disk)];
        // Those from parity are marked.
        let blocks = |row: usize| {
            let own = own.get(row).map(|block| (Arc::clone(block), false));
            let known = get_row(columns, row);
            let from_parity: Vec<_> =
                code.candidates(&known, location.disk).take(candidates_max).collect();
            own.into_iter().chain(from_parity.into_iter().map(|block| (block, true)))
        };
        let row = location.row();
        let checksums: Vec<_> = blocks(CHECKSUM_ROW).collect();
        for (block, is_block_wrong) in blocks(row) {
            let agrees = |checksums: &BlockRef| match &read.proof {
                Proof::Content(_) => names(checksums, row, read.pvbn, &block),
                proof @ (Proof::Identity { .. } | Proof::Owned(_)) => {
                    proof.holds(read.pvbn, row, &block, Some(checksums))
                }
            };
            let is_good = match &read.proof {
                Proof::Content(is_right) => is_right(&block),
                Proof::Identity { .. } | Proof::Owned(_) => {
                    checksums.iter().any(|(checksums, _)| agrees(checksums))
                }
            };
            if is_good {
                let agreeing = checksums.iter().find(|(checksums, _)| agrees(checksums));
                let good_checksums =
                    agreeing.filter(|(_, differs)| *differs).map(|(block, _)| Arc::clone(block));
                return Some(Verdict { block, is_block_wrong, good_checksums });
            }
        }
        None
    }

    /// Whether what the disk has proves itself as another block, or as none: then nothing is known
    /// to be damaged, and the pointer leads to where its block is no more (decision 12).
    fn is_other(&self, read: &BlockRead, location: Location, columns: &[Column]) -> bool {
        let own = &columns[self.members.group(location.group).code().member(location.disk)];
        let (Some(block), Some(checksums)) = (own.get(location.row()), own.get(CHECKSUM_ROW))
        else {
            return false;
        };
        let identity = &ChecksumBlock::view(checksums).identities[location.row()];
        matches!(read.proof, Proof::Content(_) | Proof::Owned(_))
            && (names(checksums, location.row(), read.pvbn, block)
                || *identity == BlockIdentity::zeroed())
    }

    fn conclude(
        self: &Arc<Self>,
        read: BlockRead,
        location: Location,
        missing: Missing,
        verdict: Option<Verdict>,
        done: ReadDone,
    ) {
        let (tetris, group) = (location.tetris(), self.members.group(location.group));
        let member = group.code().member(location.disk);
        let Some(verdict) = verdict else {
            self.unlock_tetris(tetris);
            done(Err(self.damaged(&read, location)));
            return;
        };
        let is_missing = missing.contains(member);
        let mut repair = Column::new();
        {
            let mut state = self.state.lock();
            if is_missing {
                state.counters.degraded_reads += 1;
            } else {
                if verdict.is_block_wrong {
                    repair.set(location.row(), Arc::clone(&verdict.block));
                }
                if let Some(checksums) = verdict.good_checksums {
                    repair.set(CHECKSUM_ROW, checksums);
                    state.cache.forget(tetris);
                }
                state.counters.repaired_blocks += u64::from(!repair.rows().is_empty());
            }
        }
        let mut columns = vec![Column::new(); group.members.len()];
        columns[member] = repair;
        let (io, block) = (Arc::clone(self), verdict.block);
        let finish = Box::new(move |()| {
            io.unlock_tetris(tetris);
            done(Ok(block));
        });
        self.write_columns(tetris, missing, &columns, finish);
    }
}

/// Whether a disk has a block with its own identity, if not the one that is looked for.
fn is_whole(read: &BlockRead, row: usize, own: &Column) -> bool {
    let found = own.get(row).zip(own.get(CHECKSUM_ROW));
    found.is_some_and(|(block, checksums)| names(checksums, row, read.pvbn, block))
}

/// Whether a checksum block names this content at this place.
fn names(checksums: &BlockRef, row: usize, pvbn: Pvbn, block: &BlockRef) -> bool {
    let identity = &ChecksumBlock::view(checksums).identities[row];
    identity.validate().is_ok() && identity.pvbn() == pvbn && identity.has_checksum_of(block)
}
