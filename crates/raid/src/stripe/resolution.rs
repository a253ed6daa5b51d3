//! Finds out what blocks of a tetris hold before its parity is computed anew.
//!
//! Parity is the only second copy. So a block that is folded into new parity is proved first, by
//! its identity; where that fails, old parity gives a candidate, and if the candidate is proved it
//! replaces the block. A block that neither way proves was never written, or is lost: then what
//! was read counts, so that parity agrees with the disk.
//!
//! Identities may be wrong too: a checksum block whose last write was lost is whole, and old. So
//! the row of checksum blocks is compared with its parity, and where they differ the blocks tell
//! which identity is right. With parity to spare that is so for disks that are away, too: what they
//! hold follows in several ways, and one that takes a wrong checksum block for right has it wrong.
//!
//! Invariant: the caller has the tetris to itself.

use crate::layout::{Group, Missing, TetrisId};
use crate::stripe::parity::{Code, xor_known};
use crate::stripe::rows::{CHECKSUM_ROW, Column, DATA_ROWS, RowSet, get_row, set_row};
use ondisk::identity::{BlockIdentity, ChecksumBlock};
use platform::mutation::{self, Rule};
use std::sync::Arc;
use units::{Block, BlockRef, zero_block};

/// What is to be found out.
pub(crate) struct Question {
    pub tetris: TetrisId,
    pub missing: Missing,
    /// The rows of each data disk that matter.
    pub rows: Vec<RowSet>,
    /// The rows of the parity disks that are read in any case.
    pub parity: RowSet,
    /// Blocks of data disks that are known already and need no proof.
    pub given: Vec<Column>,
}

/// What was found out.
pub(crate) struct Answer {
    /// The blocks of each data disk: all rows that were asked for.
    pub columns: Vec<Column>,
    /// Blocks that differ from what the disk has, or could give: to be written there.
    pub repairs: Vec<Column>,
    /// Blocks made good from parity.
    pub repaired_blocks: u64,
    /// Of them those that each data disk gave, and gave wrong.
    pub wrong: Vec<RowSet>,
    /// Blocks that could not be read, nor made good.
    pub damaged_blocks: u64,
    /// Where they are, on each data disk.
    pub damaged: Vec<RowSet>,
    /// Whether some of them are on disks that are there: another time they may be read.
    pub is_unreadable: bool,
    /// What was read, of all disks of the group, parity disks first.
    pub found: Vec<Column>,
}

impl Answer {
    /// The columns of the parity disks, in rows that were asked for.
    pub(crate) fn parity(&self, code: Code, rows: RowSet) -> Vec<Column> {
        parity_of(&self.columns, code, rows)
    }
}

/// The columns of the parity disks, in rows of which every data block is known.
pub(crate) fn parity_of(data: &[Column], code: Code, rows: RowSet) -> Vec<Column> {
    let mut parity = vec![Column::new(); code.parity_disks];
    for row in rows.iter() {
        let blocks = data.iter().map(|column| {
            let Some(block) = column.get(row) else {
                unreachable!("every block that was asked for was resolved")
            };
            block
        });
        set_row(&mut parity, row, code.encode(blocks));
    }
    parity
}

/// What is read in any case: the rows asked for, and for rows of a missing disk all others.
pub(crate) fn first_wants(question: &Question, group: &Group) -> Vec<RowSet> {
    let code = group.code();
    let mut wants = vec![question.parity; code.parity_disks];
    wants.extend(&question.rows);
    for (disk, rows) in question.rows.iter().enumerate() {
        let unknown = rows.without(question.given[disk].rows());
        if group.device(code.member(disk), question.missing).is_none() {
            wants.iter_mut().for_each(|want| *want = want.union(unknown));
        }
    }
    let is_checked = |(rows, given): (&RowSet, &Column)| {
        rows.contains(CHECKSUM_ROW) && given.get(CHECKSUM_ROW).is_none()
    };
    if let Some(parity) = group.parity(question.missing).next()
        && question.rows.iter().zip(&question.given).any(is_checked)
    {
        wants[parity].insert(CHECKSUM_ROW);
    }
    for (want, given) in wants[code.parity_disks..].iter_mut().zip(&question.given) {
        *want = want.without(given.rows());
    }
    wants
}

/// The rows of which some block was not proved, if there is parity to ask.
pub(crate) fn doubtful_rows(question: &Question, columns: &[Column], group: &Group) -> RowSet {
    if columns.iter().take(group.code().parity_disks).all(|column| column.rows().is_empty())
        && !group.has_parity(question.missing)
    {
        return RowSet::EMPTY;
    }
    let data = &columns[group.code().parity_disks..];
    let mut doubtful = differing_identities(columns, group.code());
    for (disk, rows) in question.rows.iter().enumerate() {
        let checksums = data[disk].get(CHECKSUM_ROW);
        for row in rows.without(question.given[disk].rows()).iter() {
            let is_known = match row {
                CHECKSUM_ROW => checksums.is_some(),
                _ => is_proved(checksums, row, data[disk].get(row)),
            };
            if !is_known {
                doubtful.insert(row);
            }
        }
    }
    if !doubtful.is_empty() {
        doubtful.insert(CHECKSUM_ROW);
    }
    doubtful
}

/// The rows whose identities, of row parity and the data disks, do not add up to zero. Where not
/// all of these are known: all rows, if the identities of a disk follow from the others in ways
/// that differ, or are not what follows, for that does not tell which rows.
fn differing_identities(columns: &[Column], code: Code) -> RowSet {
    let known = get_row(columns, CHECKSUM_ROW);
    let data = &known[code.parity_disks..];
    let Some(sum) = xor_known(known[..1].iter().chain(data).copied()) else {
        let wanted = data.iter().position(Option::is_none).unwrap_or(0);
        let ways = code.candidates(&known, wanted).take(code.parity_disks);
        let mut all = data[wanted].cloned().into_iter().chain(ways);
        let first = all.next();
        let do_agree = all.all(|other| first.as_ref() == Some(&other));
        return if do_agree { RowSet::EMPTY } else { DATA_ROWS };
    };
    let mut differing = RowSet::EMPTY;
    let identities = &ChecksumBlock::view(&sum).identities;
    for (row, identity) in identities.iter().enumerate().take(CHECKSUM_ROW) {
        if *identity != BlockIdentity::zeroed() {
            differing.insert(row);
        }
    }
    differing
}

/// Prefers what is in `known`.
pub(crate) fn merge(loaded: &mut [Column], known: &[Column]) {
    for (into, from) in loaded.iter_mut().zip(known) {
        for row in from.rows().iter() {
            if let Some(block) = from.get(row) {
                into.set(row, Arc::clone(block));
            }
        }
    }
}

/// Whether a block has the content that its identity names.
pub(crate) fn is_proved(
    checksums: Option<&BlockRef>,
    row: usize,
    block: Option<&BlockRef>,
) -> bool {
    let (Some(checksums), Some(block)) = (checksums, block) else { return false };
    let identity = &ChecksumBlock::view(checksums).identities[row];
    identity_proves(identity, block)
}

pub(crate) fn identity_proves(identity: &BlockIdentity, block: &Block) -> bool {
    mutation::broken(Rule::IdentityUnchecked)
        || identity.validate().is_ok() && identity.has_checksum_of(block)
}

/// A question, what was read for it, and the answer as far as it is there.
pub(crate) struct Resolution<'a> {
    question: &'a Question,
    /// As read: all disks of the group.
    columns: Vec<Column>,
    code: Code,
    answer: Answer,
}

impl<'a> Resolution<'a> {
    pub(crate) fn new(question: &'a Question, columns: Vec<Column>, code: Code) -> Self {
        let data_disks = question.rows.len();
        let answer = Answer {
            columns: question.given.clone(),
            repairs: vec![Column::new(); data_disks],
            repaired_blocks: 0,
            wrong: vec![RowSet::EMPTY; data_disks],
            damaged_blocks: 0,
            damaged: vec![RowSet::EMPTY; data_disks],
            is_unreadable: false,
            found: Vec::new(),
        };
        Self { question, columns, code, answer }
    }

    /// All but what was found.
    pub(crate) fn run(mut self) -> Answer {
        for disk in 0..self.question.rows.len() {
            let given = self.question.given[disk].rows();
            let rows = self.question.rows[disk].without(given);
            // Identities first: the other rows are proved by them.
            if rows.contains(CHECKSUM_ROW) {
                self.decide_checksums(disk);
            }
            let data_rows = RowSet(rows.0 & DATA_ROWS.0);
            for row in data_rows.iter() {
                self.decide(disk, row);
            }
        }
        self.answer
    }

    /// What was read of a data disk.
    fn column(&self, disk: usize) -> &Column {
        &self.columns[self.code.member(disk)]
    }

    const fn is_missing(&self, disk: usize) -> bool {
        self.question.missing.contains(self.code.member(disk))
    }

    fn decide_checksums(&mut self, disk: usize) {
        let Some(decided) = self.decided_checksums(disk) else {
            self.answer.damaged_blocks += 1;
            self.answer.damaged[disk].insert(CHECKSUM_ROW);
            self.answer.is_unreadable |= !self.is_missing(disk);
            // Not written: what cannot be read now may be another time.
            return self.settle(disk, CHECKSUM_ROW, zero_block(), false);
        };
        let differs = self.column(disk).get(CHECKSUM_ROW) != Some(&decided);
        let is_missing = self.is_missing(disk);
        self.answer.repaired_blocks += u64::from(differs && !is_missing);
        if differs && !is_missing && self.column(disk).get(CHECKSUM_ROW).is_some() {
            self.answer.wrong[disk].insert(CHECKSUM_ROW);
        }
        self.settle(disk, CHECKSUM_ROW, decided, differs);
    }

    /// The checksum block as found, with what parity knows better.
    fn decided_checksums(&self, disk: usize) -> Option<BlockRef> {
        let found = self.column(disk).get(CHECKSUM_ROW);
        let row = get_row(&self.columns, CHECKSUM_ROW);
        let mut candidates = self.code.candidates(&row, disk);
        let first = candidates.next();
        let begin = match (found, first) {
            (Some(found), Some(first)) if *found != first => {
                self.merge(disk, Arc::clone(found), &first, true)
            }
            (Some(found), _) => return Some(Arc::clone(found)),
            (None, first) => first?,
        };
        Some(candidates.fold(begin, |merged, one| self.merge(disk, merged, &one, false)))
    }

    /// Of the identities that were found and those that follow from parity, the ones that the
    /// blocks bear out.
    /// One that no block bears out counts only if it `may_fill` a place where none was found.
    fn merge(
        &self,
        disk: usize,
        mut found: BlockRef,
        candidate: &BlockRef,
        may_fill: bool,
    ) -> BlockRef {
        if found == *candidate {
            return found;
        }
        let merging = ChecksumBlock::view_mut(Arc::make_mut(&mut found));
        let candidates = ChecksumBlock::view(candidate).identities;
        let pairs = merging.identities.iter_mut().zip(candidates).enumerate();
        for (row, (found, candidate)) in pairs.take(CHECKSUM_ROW) {
            if *found == candidate || candidate.validate().is_err() {
                continue;
            }
            let known = get_row(&self.columns, row);
            let is_borne_out = |identity: &BlockIdentity| {
                let own = known[self.code.member(disk)].cloned().into_iter();
                let mut blocks = own.chain(self.code.candidates(&known, disk));
                blocks.any(|block| identity_proves(identity, &block))
            };
            let is_better = may_fill && found.validate().is_err()
                || !is_borne_out(found) && is_borne_out(&candidate);
            if is_better {
                *found = candidate;
            }
        }
        found
    }

    fn decide(&mut self, disk: usize, row: usize) {
        let checksums = self.answer.columns[disk].get(CHECKSUM_ROW).cloned();
        let proves = |block: &BlockRef| is_proved(checksums.as_ref(), row, Some(block));
        let found = self.column(disk).get(row).cloned();
        if let Some(found) = found.as_ref().filter(|found| proves(found)) {
            self.settle(disk, row, Arc::clone(found), false);
            return;
        }
        let is_named = checksums.as_ref().is_some_and(|checksums| {
            ChecksumBlock::view(checksums).identities[row].validate().is_ok()
        });
        let (good, any) = {
            let known = get_row(&self.columns, row);
            let mut candidates = self.code.candidates(&known, disk).peekable();
            let any = if found.is_none() { candidates.peek().cloned() } else { None };
            // Of a block that nobody named no candidate is better than another: none is computed.
            (if is_named { candidates.find(proves) } else { None }, any)
        };
        let is_unknown = found.is_none();
        match (good, found.or(any)) {
            (Some(good), _) => {
                let is_missing = self.is_missing(disk);
                self.answer.repaired_blocks += u64::from(!is_missing);
                if !is_missing && !is_unknown {
                    self.answer.wrong[disk].insert(row);
                }
                self.settle(disk, row, good, true);
            }
            (None, Some(block)) => self.settle(disk, row, block, is_unknown),
            (None, None) => {
                self.answer.damaged_blocks += 1;
                self.answer.damaged[disk].insert(row);
                self.answer.is_unreadable |= is_named && !self.is_missing(disk);
                self.settle(disk, row, zero_block(), false);
            }
        }
    }

    /// What counts from now on, and whether the disk has it yet.
    fn settle(&mut self, disk: usize, row: usize, block: BlockRef, differs: bool) {
        if differs && !self.is_missing(disk) {
            self.answer.repairs[disk].set(row, Arc::clone(&block));
        }
        self.answer.columns[disk].set(row, block);
    }
}
