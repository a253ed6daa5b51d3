//! Row-diagonal parity by its definition, apart from the engine's way to compute it: what parity
//! must be, and lost blocks by elimination.
//!
//! A block is 256 sub-blocks of 16 bytes. The columns of a row are row parity (column 0) and the
//! data disks in order. In row `i` the sub-blocks of all columns add up to zero. Sub-block `i` of
//! column `j` is on diagonal `i + j` and on anti-diagonal `i - j`, modulo 257; the second and third
//! parity disks hold the sums of the first 256 of them.
//!
//! Invariant: a solution is told only where the equations have one and no other.

use rustc_hash::FxHashMap;
use std::sync::Arc;
use units::{Block, BlockRef};

const PRIME: usize = 257;
const SUB_BLOCKS: usize = PRIME - 1;
const SUB_BLOCK_BYTES: usize = 16;
/// Sums of three kinds, and unknown sub-blocks of three columns.
const EQUATIONS_MAX: usize = 3 * SUB_BLOCKS;
const WORDS: usize = EQUATIONS_MAX / u64::BITS as usize;

type Bits = [u64; WORDS];

/// Which sum a sub-block of a column is part of; none, if it is one that is not stored.
fn line(parity: usize, column: usize, sub_block: usize) -> Option<usize> {
    let line = match parity {
        0 => sub_block,
        1 => (sub_block + column) % PRIME,
        _ => (sub_block + PRIME - column % PRIME) % PRIME,
    };
    (line < SUB_BLOCKS).then_some(line)
}

fn sub_block(block: &Block, index: usize) -> u128 {
    let (sub_blocks, _) = block.as_chunks::<SUB_BLOCK_BYTES>();
    sub_blocks.get(index).map_or(0, |bytes| u128::from_le_bytes(*bytes))
}

/// What parity disk `parity` must hold, given the columns of the row: row parity (ignored for row
/// parity itself), then the data disks.
pub(crate) fn parity_of(parity: usize, columns: &[&Block]) -> Block {
    let mut sums = [0_u128; SUB_BLOCKS];
    for (column, block) in columns.iter().enumerate().skip(usize::from(parity == 0)) {
        for index in 0..SUB_BLOCKS {
            if let Some(line) = line(parity, column, index) {
                sums[line] ^= sub_block(block, index);
            }
        }
    }
    to_block(sums.iter())
}

fn to_block<'a>(sub_blocks: impl Iterator<Item = &'a u128>) -> Block {
    let bytes: Vec<u8> = sub_blocks.flat_map(|value| value.to_le_bytes()).collect();
    Block::from_prefix(&bytes)
}

/// Which disks of a group are lost: parity disks, then data disks.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Pattern {
    data_disks: usize,
    parity_disks: usize,
    lost: Vec<usize>,
    wanted: usize,
}

/// Finds lost blocks; what it worked out for a set of lost disks it keeps.
#[derive(Default)]
pub(crate) struct Solver {
    /// For each sub-block that is wanted, the sums that add up to it.
    solutions: FxHashMap<Pattern, Option<Arc<Vec<Bits>>>>,
}

impl Solver {
    /// The block of data disk `wanted` of a row: of the parity disks, then of `data_disks`. Blocks
    /// that are not there are lost, and `wanted` in any case.
    pub fn solve(
        &mut self,
        row: &[Option<&BlockRef>],
        data_disks: usize,
        wanted: usize,
    ) -> Option<BlockRef> {
        let parity_disks = row.len() - data_disks;
        let wanted = parity_disks + wanted;
        let lost: Vec<usize> =
            (0..row.len()).filter(|at| row[*at].is_none() || *at == wanted).collect();
        let pattern = Pattern { data_disks, parity_disks, lost, wanted };
        let solution = self.solutions.entry(pattern.clone());
        let solution = solution.or_insert_with(|| pattern.solution().map(Arc::new)).clone()?;
        let sums = pattern.known_sums(row);
        let found: Vec<u128> = solution
            .iter()
            .map(|of| {
                let parts =
                    sums.iter().enumerate().filter(|(at, _)| of[at / 64] >> (at % 64) & 1 == 1);
                parts.fold(0, |all, (_, sum)| all ^ sum)
            })
            .collect();
        Some(Arc::new(to_block(found.iter())))
    }
}

impl Pattern {
    /// A column's disk: row parity is the first parity disk.
    const fn disk(&self, column: usize) -> usize {
        match column {
            0 => 0,
            _ => self.parity_disks + column - 1,
        }
    }

    fn is_lost(&self, disk: usize) -> bool {
        self.lost.contains(&disk)
    }

    fn unknown_columns(&self) -> Vec<usize> {
        (0..=self.data_disks).filter(|column| self.is_lost(self.disk(*column))).collect()
    }

    /// The sums that are known to be zero, or to be what a parity disk holds.
    fn parities(&self) -> Vec<usize> {
        let is_known = |parity: &usize| *parity == 0 || !self.is_lost(*parity);
        (0..self.parity_disks).filter(is_known).collect()
    }

    /// What the unknown sub-blocks of each sum add up to.
    fn known_sums(&self, row: &[Option<&BlockRef>]) -> Vec<u128> {
        let mut sums = vec![0; self.parities().len() * SUB_BLOCKS];
        for (at, parity) in self.parities().into_iter().enumerate() {
            let sums = &mut sums[at * SUB_BLOCKS..][..SUB_BLOCKS];
            if let Some(block) = row[parity].filter(|_| parity > 0) {
                sums.iter_mut().enumerate().for_each(|(at, sum)| *sum = sub_block(block, at));
            }
            for column in 0..=self.data_disks {
                let known = row[self.disk(column)].filter(|_| !self.is_lost(self.disk(column)));
                let Some(block) = known else { continue };
                for index in 0..SUB_BLOCKS {
                    if let Some(line) = line(parity, column, index) {
                        sums[line] ^= sub_block(block, index);
                    }
                }
            }
        }
        sums
    }

    /// Gauss and Jordan's elimination over bits; `None` if there is more than one solution.
    fn solution(&self) -> Option<Vec<Bits>> {
        let (columns, parities) = (self.unknown_columns(), self.parities());
        let unknowns = columns.len() * SUB_BLOCKS;
        if self.parity_disks == 0 || columns.len() > parities.len() {
            return None;
        }
        // Left the unknown sub-blocks of each equation, right which sums were added to it.
        let mut equations: Vec<(Bits, Bits)> =
            (0..parities.len() * SUB_BLOCKS).map(|at| ([0; WORDS], bit(at))).collect();
        for (first, parity) in parities.iter().enumerate() {
            for (place, column) in columns.iter().enumerate() {
                for index in 0..SUB_BLOCKS {
                    if let Some(line) = line(*parity, *column, index) {
                        let equation = &mut equations[first * SUB_BLOCKS + line].0;
                        add(equation, &bit(place * SUB_BLOCKS + index));
                    }
                }
            }
        }
        for unknown in 0..unknowns {
            let is_set =
                |equation: &(Bits, Bits)| equation.0[unknown / 64] >> (unknown % 64) & 1 == 1;
            let pivot = (unknown..equations.len()).find(|at| is_set(&equations[*at]))?;
            equations.swap(unknown, pivot);
            let (left, right) = equations[unknown];
            for (at, equation) in equations.iter_mut().enumerate() {
                if at != unknown && is_set(equation) {
                    add(&mut equation.0, &left);
                    add(&mut equation.1, &right);
                }
            }
        }
        let place = columns.iter().position(|column| self.disk(*column) == self.wanted)?;
        let wanted = equations.iter().skip(place * SUB_BLOCKS).take(SUB_BLOCKS);
        Some(wanted.map(|(_, right)| *right).collect())
    }
}

fn bit(at: usize) -> Bits {
    let mut bits = [0; WORDS];
    bits[at / 64] = 1 << (at % 64);
    bits
}

fn add(into: &mut Bits, from: &Bits) {
    into.iter_mut().zip(from).for_each(|(into, from)| *into ^= from);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(seed: u64) -> BlockRef {
        let mut block = Block::zeroed();
        let mut state = seed;
        for bytes in block.chunks_exact_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed | 1);
            bytes.copy_from_slice(&(state ^ state >> 29).to_le_bytes());
        }
        Arc::new(block)
    }

    fn row(data_disks: usize, parity_disks: usize) -> Vec<BlockRef> {
        let data: Vec<BlockRef> = (1..=data_disks as u64).map(block).collect();
        let mut row: Vec<BlockRef> = Vec::new();
        for parity in 0..parity_disks {
            let first = row.first().unwrap_or(&data[0]);
            let columns: Vec<&Block> =
                std::iter::once(first).chain(&data).map(|block| &**block).collect();
            let parity = Arc::new(parity_of(parity, &columns));
            row.push(parity);
        }
        row.extend(data);
        row
    }

    #[test]
    fn as_many_lost_disks_are_found_as_there_are_parity_disks_and_no_more() {
        for parity_disks in 1..=3 {
            let (data_disks, mut solver) = (4, Solver::default());
            let row = row(data_disks, parity_disks);
            for lost in 1_u32..1 << row.len() {
                let known: Vec<_> = row
                    .iter()
                    .enumerate()
                    .map(|(at, block)| (lost >> at & 1 == 0).then_some(block))
                    .collect();
                let is_possible = lost.count_ones() as usize <= parity_disks;
                let is_lost = |at: &usize| lost >> (parity_disks + at) & 1 == 1;
                for wanted in (0..data_disks).filter(is_lost) {
                    let found = solver.solve(&known, data_disks, wanted);
                    let expected = is_possible.then(|| Arc::clone(&row[parity_disks + wanted]));
                    assert!(found == expected, "{parity_disks} lost {lost:b}: {wanted}");
                }
            }
        }
    }
}
