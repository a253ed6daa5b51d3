//! Parity over one row of a group: XOR, and for `dp` and `tp` row-diagonal parity (RDP, RTP) in the
//! prime 257, so that a row of blocks is complete in itself.
//!
//! The columns of a row are the data blocks and P, the row parity. Each has a number of places that
//! it is rotated by: P none, the first data disk one, and so on. Then (see [`ring`])
//!
//! ```text
//! P = sum of the data blocks
//! D = sum of all columns, each rotated forwards      (diagonals)
//! A = sum of all columns, each rotated backwards     (anti-diagonals)
//! ```
//!
//! with the 257th coefficient of D and A left out. Nothing is lost by that: in a row whose columns
//! add up to zero the coefficients of each sum do, too, so the others tell it. A disk that joins a
//! group changes no parity as long as it holds zeros.
//!
//! Invariants: as many unknown columns can be found as parity blocks are trusted, whichever. Three
//! unknowns take one more step than the two of row-diagonal parity: of the three sums two are
//! brought to unknowns `b` and `c` alone, and their sum to `c`.

use crate::stripe::parity::ring::{PRIME, Polynomial, add_rotated, xor_bytes};
use ondisk::label::RaidKind;
use std::sync::Arc;
use units::{Block, BlockRef, zero_block};

mod ring;

#[cfg(test)]
pub(crate) mod tests;

/// P's place among the parity disks of a group.
const ROW: usize = 0;

/// D's.
const DIAGONAL: usize = 1;

/// A's.
const ANTI_DIAGONAL: usize = 2;

/// How a group's rows are made: none to three parity blocks, then so many data blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Code {
    pub data_disks: usize,
    pub parity_disks: usize,
}

/// The parity blocks of a row of a group of this kind: one block of each data disk.
#[must_use]
pub fn parity_of_row(kind: RaidKind, data: &[BlockRef]) -> Vec<BlockRef> {
    let code = Code { data_disks: data.len(), parity_disks: kind.parity_disks() };
    code.encode(data.iter())
}

/// A row's blocks, parity included, as far as they are known.
pub(crate) type Row<'a> = [Option<&'a BlockRef>];

impl Code {
    /// A data disk's place among all disks of its group. Parity disks come first, so that a data
    /// disk which joins moves no other.
    pub(crate) const fn member(self, data_disk: usize) -> usize {
        self.parity_disks + data_disk
    }

    /// The parity blocks of a row of data blocks.
    pub(crate) fn encode<'a>(self, data: impl Iterator<Item = &'a BlockRef>) -> Vec<BlockRef> {
        let data: Vec<_> = data.collect();
        debug_assert_eq!(data.len(), self.data_disks, "a block of each data disk");
        if self.parity_disks == 0 {
            return Vec::new();
        }
        let mut parity = vec![xor(data.iter().copied())];
        for which in DIAGONAL..self.parity_disks {
            let mut rotated = Block::shared(parity[ROW].bytes());
            let sum = Arc::make_mut(&mut rotated);
            for (index, block) in data.iter().enumerate() {
                add_rotated(sum, block, rotation(which, index + 1));
            }
            parity.push(rotated);
        }
        parity
    }

    /// The block of data disk `wanted` as it follows from others, in all ways there are: first
    /// those that trust every data block known, by parity blocks in order, then those that distrust
    /// one of them, and so on. A proof tells the right one.
    ///
    /// Where several trust every block known and agree, the row with what they give satisfies every
    /// parity block; each other way has one solution only, which is that one. So they are the last.
    pub(crate) fn candidates<'a>(
        self,
        row: &'a Row<'a>,
        wanted: usize,
    ) -> impl Iterator<Item = BlockRef> + 'a {
        let is_unknown = |at: &usize| row[self.member(*at)].is_none();
        let unknown: Vec<usize> =
            (0..self.data_disks).filter(|at| *at == wanted || is_unknown(at)).collect();
        let known: Vec<usize> =
            (0..self.data_disks).filter(|at| *at != wanted && !is_unknown(at)).collect();
        let parity: Vec<usize> = (0..self.parity_disks).filter(|at| row[*at].is_some()).collect();
        let distrusted_max = parity.len().saturating_sub(unknown.len());
        let is_possible = unknown.len() <= parity.len();
        let distrusts = (0..=distrusted_max).flat_map(move |count| subsets(&known, count));
        let ways = distrusts.filter(move |_| is_possible).flat_map(move |distrusted| {
            let unknown: Vec<usize> = unknown.iter().chain(&distrusted).copied().collect();
            let trusts = subsets(&parity, unknown.len()).into_iter();
            trusts.map(move |trusted| (distrusted.is_empty(), unknown.clone(), trusted))
        });
        let (mut trusting, mut do_agree) = (None, true);
        ways.map_while(move |(trusts_all, unknown, trusted)| {
            // There are several if one may be distrusted.
            if !trusts_all && do_agree {
                return None;
            }
            let block = self.solve(row, wanted, &unknown, &trusted);
            if trusts_all {
                do_agree &= *trusting.get_or_insert_with(|| Arc::clone(&block)) == block;
            }
            Some(block)
        })
    }

    /// Data disk `wanted`, one of `unknown`, by as many parity blocks as there are unknown ones.
    fn solve(self, row: &Row<'_>, wanted: usize, unknown: &[usize], trusted: &[usize]) -> BlockRef {
        // The wanted one comes last: it is found first.
        let mut columns: Vec<usize> =
            unknown.iter().filter(|at| **at != wanted).map(|at| at + 1).collect();
        let known: Vec<_> = (0..self.data_disks)
            .filter(|at| !unknown.contains(at))
            .filter_map(|at| row[self.member(at)].map(|block| (at + 1, block)))
            .chain(row[ROW].filter(|_| trusted.contains(&ROW)).map(|p| (0, p)))
            .collect();
        if !trusted.contains(&ROW) {
            columns.push(0);
        }
        columns.push(wanted + 1);
        if columns.len() == 1 {
            // The row's sum is zero.
            return xor(known.iter().map(|(_, block)| *block));
        }
        let sum = |which: usize| {
            let mut sum = match row[which] {
                Some(parity) if which != ROW => Polynomial::of_diagonal(parity),
                _ => Polynomial::zero(),
            };
            for (column, block) in &known {
                sum.add(block, rotation(which, *column));
            }
            sum
        };
        let rows = sum(ROW);
        match (columns.as_slice(), trusted) {
            ([other, own], [.., which]) => {
                let (other, own) = (rotation(*which, *other), rotation(*which, *own));
                let mut rest = sum(*which);
                rest.add_shifted(&rows, other);
                rest.block_of(other, own)
            }
            ([first, second, own], _) => {
                let (first, second, own) = (*first, *second, *own);
                let back = |column| rotation(ANTI_DIAGONAL, column);
                let mut rest = sum(DIAGONAL);
                rest.add_shifted(&rows, first);
                let mut anti = sum(ANTI_DIAGONAL);
                anti.add_shifted(&rows, back(first));
                // Both are of the second and ours alone now; this makes the second's share equal.
                rest.add_shifted(&anti, (first + second) % PRIME);
                let quotient = rest.quotient(first, own);
                quotient.block_of(0, (second + PRIME - own) % PRIME)
            }
            _ => unreachable!("as many parity blocks as unknown ones: {columns:?}, {trusted:?}"),
        }
    }
}

/// Places that a column is rotated by in a parity block.
const fn rotation(which: usize, column: usize) -> usize {
    match which {
        ROW => 0,
        DIAGONAL => column,
        _ => (PRIME - column) % PRIME,
    }
}

/// All subsets of a size, those of the first members first.
fn subsets(of: &[usize], count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in of.iter().enumerate() {
        for mut rest in subsets(&of[at + 1..], count - 1) {
            rest.insert(0, *first);
            all.push(rest);
        }
    }
    all
}

/// The XOR of all blocks.
pub(crate) fn xor<'a>(mut blocks: impl Iterator<Item = &'a BlockRef>) -> BlockRef {
    let Some(first) = blocks.next() else { return zero_block() };
    let mut result = Block::shared(first.bytes());
    let sum = Arc::make_mut(&mut result);
    blocks.for_each(|block| xor_bytes(sum.bytes_mut(), block.bytes()));
    result
}

/// The XOR of all blocks, if none is unknown.
pub(crate) fn xor_known<'a>(
    blocks: impl Iterator<Item = Option<&'a BlockRef>>,
) -> Option<BlockRef> {
    blocks.collect::<Option<Vec<_>>>().map(|blocks| xor(blocks.into_iter()))
}
