//! What is wrong in a tetris of which everything was read, and what of it may be written anew.
//!
//! Only identities tell whether a row was ever written. A row without an identity belongs to
//! nobody; its parity is neither checked nor made. In a row with an identity parity must be right.
//!
//! Two blocks may contradict each other though each is whole. A disk that acknowledged a write of
//! block and identity and lost it still has the pair from before, which proves itself. Then parity
//! is the only copy of what was written, and to make it agree with the disk would destroy that
//! copy. So parity is written only where something else bears the data out: another parity block of
//! the row; the parity of its identities; or a check of the parity found which shows that it is no
//! block's at all. (The checks are linear: the difference between a stale parity and the right one
//! has a check that fits, what has rotted has none.)
//!
//! Where nothing bears the data out, the stale disk is looked for. It is the disk with which all
//! parity blocks agree, at least two of them, where its identity is then of a later consistency
//! point. Or it is the disk that holds nothing where parity names a block for just that place. If
//! no disk is found the row is told as damaged and left alone: a reader of the row knows by its
//! pointer which side is right.
//!
//! Where a crash ended a consistency point there are blocks that contradict their identities and
//! belong to nobody. They are no damage. The owner of the store is asked which blocks are in use
//! ([`super::use_of_blocks`]), and the place is judged again as if the unused blocks had no
//! identity. A row that is unused on all disks holds no acknowledged write, so its parity is made
//! to agree with the disks whatever it contradicts. If it were left, the parity of the identities
//! of the whole tetris could not be made good, and nobody would be told.
//!
//! Where the notes of stripes were lost with the log, parity of stripes that were being written is
//! wrong, and nothing else bears it out. Then data counts ([`Place::trusts_data`]), unless the
//! parity blocks agree on a later write of one disk: as after any crash without such notes, a write
//! that a disk lost before cannot be told from one that parity has missed.
//!
//! Invariants: only what is wrong is written, so that a torn write takes nothing from what the
//! other disks can give. Parity of a row is written only if what missing disks have in the row can
//! be had without the parity blocks that are written.

use crate::layout::Missing;
use crate::stripe::{
    Answer, CHECKSUM_ROW, Code, Column, DATA_ROWS, RowSet, identity_proves, xor_known,
};
use ondisk::identity::{BlockIdentity, ChecksumBlock};
use std::sync::Arc;
use units::{BlockRef, Pvbn, zero_block};

/// A tetris and its group.
pub(crate) struct Place {
    pub code: Code,
    /// The PVBN of each data disk's block in the first row.
    pub first: Vec<Pvbn>,
    /// Disks that are not there.
    pub missing: Missing,
    /// Disks that would not be there after a crash now.
    pub missing_after_crash: Missing,
    /// Whether data counts where parity contradicts it.
    pub trusts_data: bool,
    /// Rows of each data disk that are known to be nobody's; empty where nobody was asked.
    pub unused: Vec<RowSet>,
    /// The rows of checksum blocks of the parity disks when that was asked. Every write of the
    /// tetris changes them: while they are the same, what was nobody's still is.
    pub names_when_asked: Vec<Option<BlockRef>>,
}

/// What the parity disks have of the row of checksum blocks.
pub(crate) fn names_in_parity(code: Code, found: &[Column]) -> Vec<Option<BlockRef>> {
    let parity = found.iter().take(code.parity_disks);
    parity.map(|column| column.get(CHECKSUM_ROW).cloned()).collect()
}

impl Place {
    fn is_unused(&self, disk: usize, row: usize) -> bool {
        self.unused.get(disk).is_some_and(|rows| rows.contains(row))
    }

    /// Whether damage that was found is of nobody's blocks.
    fn is_nobodys(&self, (disk, row): (Option<usize>, usize)) -> bool {
        let mut disks = (0..self.code.data_disks).filter(|at| disk.is_none_or(|disk| disk == *at));
        match row {
            CHECKSUM_ROW => disks.all(|disk| DATA_ROWS.iter().all(|row| self.is_unused(disk, row))),
            row => disks.all(|disk| self.is_unused(disk, row)),
        }
    }
}

/// What is to be written, and what cannot be.
pub(crate) struct Verdict {
    /// For each data disk: durable before the parity is begun.
    pub repairs: Vec<Column>,
    /// For each parity disk.
    pub parity: Vec<Column>,
    /// What is damaged beyond repair: the data disk, unless it is a row's parity, and the row.
    pub damaged: Vec<(Option<usize>, usize)>,
}

impl Verdict {
    /// Blocks that are to be written in these columns: in data rows, and checksum blocks.
    pub(crate) fn count(columns: &[Column]) -> (u64, u64) {
        let rows = columns.iter().map(Column::rows);
        rows.fold((0, 0), |(data, checksums), rows| {
            let of_data = RowSet(rows.0 & DATA_ROWS.0).0.count_ones();
            let of_checksums = u64::from(rows.contains(CHECKSUM_ROW));
            (data + u64::from(of_data), checksums + of_checksums)
        })
    }
}

/// Judges what was found, all rows of all disks.
pub(crate) fn judge(place: &Place, answer: Answer) -> Verdict {
    let mut verdict = judge_all(place, answer);
    verdict.damaged.retain(|found| !place.is_nobodys(*found));
    verdict
}

fn judge_all(place: &Place, answer: Answer) -> Verdict {
    let data_disks = place.code.data_disks;
    let nothing = Verdict {
        repairs: vec![Column::new(); data_disks],
        parity: vec![Column::new(); place.code.parity_disks],
        damaged: Vec::new(),
    };
    let lost_checksums =
        (0..data_disks).filter(|disk| answer.damaged[*disk].contains(CHECKSUM_ROW));
    let lost: Vec<_> = lost_checksums.map(|disk| (Some(disk), CHECKSUM_ROW)).collect();
    if !lost.is_empty() {
        // Of the blocks beside it nothing is known.
        return Verdict { damaged: lost, ..nothing };
    }
    let Answer { columns, repairs, found, damaged, .. } = answer;
    let nobodys = vec![RowSet::EMPTY; data_disks];
    let mut judge = Judge { place, columns, repairs, found, nobodys };
    let (made, lost) = judge.look_at_identities(&damaged);
    if made.is_empty() {
        return nothing;
    }
    let lost_rows = lost.iter().fold(RowSet::EMPTY, |rows, (_, row)| rows.union(RowSet::one(*row)));
    let mut damaged: Vec<_> = lost.into_iter().map(|(disk, row)| (Some(disk), row)).collect();
    let sound = made.without(lost_rows);
    let mut contradicting = judge.contradicting(sound);
    if !contradicting.is_empty()
        && (judge.repair_stale_disk(contradicting, sound) || place.trusts_data)
    {
        contradicting = RowSet::EMPTY;
    }
    damaged.extend(contradicting.iter().map(|row| (None, row)));
    let mut rows = sound.without(contradicting);
    judge.repair_nameless(rows);
    if contradicting.is_empty() && lost_rows.is_empty() {
        rows.insert(CHECKSUM_ROW);
    }
    let parity = judge.parity(rows, &mut damaged);
    Verdict { repairs: judge.repairs, parity, damaged }
}

struct Judge<'a> {
    place: &'a Place,
    /// What counts, of each data disk.
    columns: Vec<Column>,
    /// What of it the disks do not have.
    repairs: Vec<Column>,
    /// As read, parity disks first.
    found: Vec<Column>,
    /// Rows of each data disk whose identity names what a crash left there: it counts for nothing.
    nobodys: Vec<RowSet>,
}

impl Judge<'_> {
    fn identity(&self, disk: usize, row: usize) -> Option<&BlockIdentity> {
        let checksums = self.columns[disk].get(CHECKSUM_ROW)?;
        Some(&ChecksumBlock::view(checksums).identities[row])
    }

    /// Whether an identity is that of a block which was written to this place.
    fn is_own(&self, disk: usize, row: usize, identity: &BlockIdentity) -> bool {
        let own = self.place.first[disk].offset(row as u64);
        own != Pvbn(0) && identity.pvbn() == own && identity.validate().is_ok()
    }

    fn is_named(&self, disk: usize, row: usize) -> bool {
        !self.nobodys[disk].contains(row)
            && self.identity(disk, row).is_some_and(|identity| self.is_own(disk, row, identity))
    }

    fn is_missing(&self, disk: usize) -> bool {
        self.place.missing.contains(self.place.code.member(disk))
    }

    /// What the identities of each row differ by from their row parity.
    fn identity_differences(&self) -> Option<BlockRef> {
        let parity = self.found.first().filter(|_| self.place.code.parity_disks > 0)?;
        let columns = std::iter::once(parity).chain(&self.columns);
        xor_known(columns.map(|column| column.get(CHECKSUM_ROW)))
    }

    /// Rows in which parity has the identity of a block where the disk has zeros.
    fn named_by_parity(&self) -> RowSet {
        let mut rows = RowSet::EMPTY;
        let Some(differences) = self.identity_differences() else { return rows };
        let differences = &ChecksumBlock::view(&differences).identities;
        for row in DATA_ROWS.iter() {
            let is_named = |disk: usize| {
                self.identity(disk, row) == Some(&BlockIdentity::zeroed())
                    && self.is_own(disk, row, &differences[row])
            };
            if (0..self.columns.len()).any(is_named) {
                rows.insert(row);
            }
        }
        rows
    }

    /// The rows that were ever written, and the blocks in them that no one has. What is to be
    /// repaired elsewhere is left: it is nobody's, or not proved.
    fn look_at_identities(&mut self, damaged: &[RowSet]) -> (RowSet, Vec<(usize, usize)>) {
        let (mut made, mut lost) = (self.named_by_parity(), Vec::new());
        for row in DATA_ROWS.iter() {
            let mut is_lost = false;
            for (disk, damaged) in damaged.iter().enumerate() {
                if !self.is_named(disk, row) {
                    continue;
                }
                let identity = self.identity(disk, row);
                let block = self.columns[disk].get(row);
                let is_proved = identity
                    .zip(block)
                    .is_some_and(|(identity, block)| identity_proves(identity, block));
                let is_whole = is_proved && !damaged.contains(row);
                if !is_whole && self.place.is_unused(disk, row) {
                    self.nobodys[disk].insert(row);
                    if self.place.trusts_data {
                        made.insert(row);
                    }
                    if damaged.contains(row) && !self.is_missing(disk) {
                        // It counts as zeros, so the disk must hold them before parity does.
                        self.columns[disk].set(row, zero_block());
                        self.repairs[disk].set(row, zero_block());
                    }
                    continue;
                }
                made.insert(row);
                if !is_whole {
                    lost.push((disk, row));
                    is_lost = true;
                }
            }
            for disk in 0..self.columns.len() {
                let is_proved = self.is_named(disk, row) && !lost.contains(&(disk, row));
                if !is_proved && (is_lost || !made.contains(row)) {
                    self.repairs[disk].remove(row);
                }
            }
        }
        (made, lost)
    }

    /// The parity disks of which a row was read.
    fn read_parity(&self, row: usize) -> impl Iterator<Item = (usize, &BlockRef)> {
        let parity = self.found.iter().take(self.place.code.parity_disks).enumerate();
        parity.filter_map(move |(at, column)| Some((at, column.get(row)?)))
    }

    /// What parity must be.
    fn encode(&self, row: usize) -> Vec<BlockRef> {
        let blocks = self.columns.iter().map(|column| {
            let Some(block) = column.get(row) else {
                unreachable!("every block that was asked for was resolved")
            };
            block
        });
        self.place.code.encode(blocks)
    }

    /// What the parity blocks of a row say: that it is right, or that it is not.
    fn votes(&self, row: usize) -> (usize, usize) {
        let expected = self.encode(row);
        let (yes, no): (Vec<_>, Vec<_>) =
            self.read_parity(row).partition(|(at, block)| **block == expected[*at]);
        (yes.len(), no.len())
    }

    /// Whether a row is nobody's on all disks, and was not written since that was asked.
    fn is_nobodys_row(&self, row: usize) -> bool {
        self.place.is_nobodys((None, row))
            && self.place.names_when_asked == names_in_parity(self.place.code, &self.found)
    }

    /// Rows of which neither block nor identity is borne out by any parity, though there is some,
    /// and that may hold what somebody wrote.
    fn contradicting(&self, sound: RowSet) -> RowSet {
        let mut rows = RowSet::EMPTY;
        let doubtful: Vec<usize> = sound
            .iter()
            .filter(|row| matches!(self.votes(*row), (0, 1..)) && !self.is_nobodys_row(*row))
            .collect();
        if doubtful.is_empty() || self.votes(CHECKSUM_ROW).0 > 0 {
            return rows;
        }
        let differences = self.identity_differences();
        for row in doubtful {
            let identity =
                differences.as_ref().map(|block| &ChecksumBlock::view(block).identities[row]);
            let is_borne_out = identity.is_some_and(|identity| {
                *identity == BlockIdentity::zeroed() || self.is_rotten(row, identity)
            });
            if !is_borne_out {
                rows.insert(row);
            }
        }
        rows
    }

    /// Whether the one parity block of a row is no sum of blocks that ever were.
    fn is_rotten(&self, row: usize, difference: &BlockIdentity) -> bool {
        let mut read = self.read_parity(row);
        let (Some((0, block)), None) = (read.next(), read.next()) else { return false };
        let data = self.columns.iter().map(|column| column.get(row));
        let sum = xor_known(data.chain([Some(block)]));
        let fits =
            |sum: BlockRef| difference.validate().is_ok() && difference.has_checksum_of(&sum);
        !sum.is_some_and(fits)
    }

    /// A row as it is known, but for one disk.
    fn row_without(&self, disk: usize, row: usize) -> Vec<Option<&BlockRef>> {
        let parity = self.found.iter().take(self.place.code.parity_disks);
        let mut blocks = get_row_of(parity.chain(&self.columns), row);
        blocks[self.place.code.member(disk)] = None;
        blocks
    }

    /// What a disk would have to hold for as many parity blocks of a row as possible to be right,
    /// and how many then are.
    fn as_parity_says(&self, disk: usize, row: usize) -> Option<(BlockRef, usize)> {
        let known = self.row_without(disk, row);
        let code = self.place.code;
        let candidates = code.candidates(&known, disk).take(code.parity_disks);
        let judged = candidates.map(|candidate| {
            let own = (0..code.data_disks).filter_map(|at| match at == disk {
                true => Some(&candidate),
                false => self.columns[at].get(row),
            });
            let expected = code.encode(own);
            let agree = self.read_parity(row).filter(|(at, block)| **block == expected[*at]);
            let agree = agree.count();
            (candidate, agree)
        });
        judged.max_by_key(|(_, agree)| *agree)
    }

    /// The same if then all of them are right.
    fn as_all_parity_says(&self, disk: usize, row: usize) -> Option<BlockRef> {
        let (block, agree) = self.as_parity_says(disk, row)?;
        (agree == self.read_parity(row).count()).then_some(block)
    }

    /// Finds the one disk that lost writes, block and identity, and takes what it should hold.
    /// False if there is none, or no telling which.
    fn repair_stale_disk(&mut self, rows: RowSet, sound: RowSet) -> bool {
        let mut stale = (0..self.columns.len())
            .filter_map(|disk| self.as_not_stale(disk, rows).map(|column| (disk, column)));
        let (Some((disk, column)), None) = (stale.next(), stale.next()) else { return false };
        drop(stale);
        let before = (self.columns[disk].clone(), self.repairs[disk].clone());
        for row in column.rows().iter() {
            if let Some(block) = column.get(row) {
                self.columns[disk].set(row, Arc::clone(block));
                self.repairs[disk].set(row, Arc::clone(block));
            }
        }
        let is_resolved = self.contradicting(sound).is_empty();
        if !is_resolved {
            (self.columns[disk], self.repairs[disk]) = before;
        }
        is_resolved
    }

    /// What a disk would hold if all that is wrong in these rows is that it is stale.
    fn as_not_stale(&self, disk: usize, rows: RowSet) -> Option<Column> {
        if self.is_missing(disk) {
            return None;
        }
        let names = self.as_all_parity_says(disk, CHECKSUM_ROW)?;
        let mut checksums = Arc::clone(self.columns[disk].get(CHECKSUM_ROW)?);
        let mut column = Column::new();
        let mut votes = self.read_parity(CHECKSUM_ROW).count();
        for row in rows.iter() {
            let identity = ChecksumBlock::view(&names).identities[row];
            let block = self.as_all_parity_says(disk, row)?;
            votes = votes.min(self.read_parity(row).count());
            let is_later = match self.identity(disk, row) {
                Some(found) if self.is_own(disk, row, found) => {
                    votes > 1 && identity.cp.get() > found.cp.get()
                }
                // Nothing was ever there: the place alone tells.
                _ => true,
            };
            if !is_later
                || !self.is_own(disk, row, &identity)
                || !identity_proves(&identity, &block)
            {
                return None;
            }
            ChecksumBlock::view_mut(Arc::make_mut(&mut checksums)).identities[row] = identity;
            column.set(row, block);
        }
        column.set(CHECKSUM_ROW, checksums);
        Some(column)
    }

    /// Blocks that nobody named have no proof; but where two parity blocks agree on what was there,
    /// that counts, rather than both being made to agree with what is.
    fn repair_nameless(&mut self, rows: RowSet) {
        for row in rows.iter() {
            if !matches!(self.votes(row), (0, 2..)) {
                continue;
            }
            let nameless = (0..self.columns.len()).filter(|disk| !self.is_named(*disk, row));
            let found = nameless
                .filter_map(|disk| Some((disk, self.as_parity_says(disk, row)?)))
                .find(|(_, (_, agree))| *agree > 1);
            let Some((disk, (block, _))) = found else { continue };
            if !self.is_missing(disk) {
                self.repairs[disk].set(row, Arc::clone(&block));
            }
            self.columns[disk].set(row, block);
        }
    }

    /// The parity blocks that are to be written, of some rows.
    fn parity(&self, rows: RowSet, damaged: &mut Vec<(Option<usize>, usize)>) -> Vec<Column> {
        let code = self.place.code;
        let mut parity = vec![Column::new(); code.parity_disks];
        for row in rows.iter() {
            let expected = self.encode(row);
            let wrong: Vec<usize> = (0..code.parity_disks)
                .filter(|at| !self.place.missing.contains(*at))
                .filter(|at| self.found[*at].get(row) != Some(&expected[*at]))
                .collect();
            if wrong.is_empty() {
                continue;
            }
            if !self.can_do_without(&wrong, row) {
                damaged.push((None, row));
                continue;
            }
            for at in wrong {
                parity[at].set(row, Arc::clone(&expected[at]));
            }
        }
        parity
    }

    /// Whether what missing disks would hold can be had without some parity blocks of the row.
    fn can_do_without(&self, wrong: &[usize], row: usize) -> bool {
        let code = self.place.code;
        let is_missing = |disk: &usize| self.place.missing_after_crash.contains(code.member(*disk));
        let parity = self.found.iter().take(code.parity_disks);
        let mut known = get_row_of(parity.chain(&self.columns), row);
        wrong.iter().for_each(|at| known[*at] = None);
        (0..code.data_disks).filter(is_missing).for_each(|disk| known[code.member(disk)] = None);
        (0..code.data_disks).filter(is_missing).all(|disk| {
            let own = self.columns[disk].get(row);
            let is_needed = row == CHECKSUM_ROW || self.is_named(disk, row);
            !is_needed || code.candidates(&known, disk).any(|candidate| Some(&candidate) == own)
        })
    }
}

fn get_row_of<'a>(
    columns: impl Iterator<Item = &'a Column>,
    row: usize,
) -> Vec<Option<&'a BlockRef>> {
    columns.map(|column| column.get(row)).collect()
}
