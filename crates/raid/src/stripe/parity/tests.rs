//! Every way in which as many disks as there are parity disks can fail, against a model that adds
//! up sub-blocks one by one.

use super::*;
use crate::tests::model::random_block;
use platform::simulated::SimulatedWorld;

const SUB_BLOCKS: usize = 256;

fn random_row(code: Code, seed: u64) -> Vec<BlockRef> {
    let world = SimulatedWorld::new(seed);
    let data: Vec<_> = (0..code.data_disks).map(|_| Arc::new(random_block(&world))).collect();
    let mut row = code.encode(data.iter());
    row.extend(data);
    row
}

/// Parity by its definition: sub-block `i` of column `j` is on diagonal `i + j` and on
/// anti-diagonal `i - j`.
pub(crate) fn naive_parity(data: &[BlockRef], which: usize) -> Block {
    let mut sums = vec![[0_u8; 16]; PRIME];
    let mut row = Block::zeroed();
    for block in data {
        xor_bytes(row.bytes_mut(), block.bytes());
    }
    let columns = std::iter::once(&row).chain(data.iter().map(|block| &**block));
    for (column, block) in columns.enumerate() {
        for sub_block in 0..SUB_BLOCKS {
            let line = match which {
                ROW => return row,
                DIAGONAL => (sub_block + column) % PRIME,
                _ => (sub_block + PRIME - column) % PRIME,
            };
            xor_bytes(&mut sums[line], &block.bytes()[sub_block * 16..][..16]);
        }
    }
    Block::from_prefix(&sums[..SUB_BLOCKS].concat())
}

#[test]
fn parity_is_what_it_is_defined_as() {
    for data_disks in [1, 2, 5, 29] {
        let code = Code { data_disks, parity_disks: 3 };
        let row = random_row(code, data_disks as u64);
        for which in [ROW, DIAGONAL, ANTI_DIAGONAL] {
            let expected = naive_parity(&row[3..], which);
            assert!(*row[which] == expected, "{data_disks} disks, parity {which}");
        }
    }
}

#[test]
fn every_combination_of_lost_disks_is_found_again() {
    for (data_disks, parity_disks) in
        [(1, 1), (4, 1), (1, 2), (6, 2), (30, 2), (1, 3), (2, 3), (7, 3)]
    {
        let code = Code { data_disks, parity_disks };
        let row = random_row(code, data_disks as u64);
        let disks: Vec<usize> = (0..row.len()).collect();
        for lost in (1..=parity_disks).flat_map(|count| subsets(&disks, count)) {
            let known: Vec<_> =
                row.iter().enumerate().map(|(at, b)| (!lost.contains(&at)).then_some(b)).collect();
            for member in lost.iter().copied().filter(|at| *at >= parity_disks) {
                let mut ways = 0;
                for candidate in code.candidates(&known, member - parity_disks) {
                    assert!(candidate == row[member], "{code:?} lost {lost:?}: {member}");
                    ways += 1;
                }
                assert!(ways > 0, "{code:?} lost {lost:?}");
            }
        }
    }
}

#[test]
fn one_disk_more_gives_no_candidate() {
    let code = Code { data_disks: 5, parity_disks: 2 };
    let row = random_row(code, 1);
    let known: Vec<_> =
        row.iter().enumerate().map(|(at, b)| (!(2..=4).contains(&at)).then_some(b)).collect();
    assert_eq!(code.candidates(&known, 0).count(), 0);
    let none = Code { data_disks: 5, parity_disks: 0 };
    assert_eq!(none.candidates(&known[2..], 0).count(), 0);
}

#[test]
fn damage_that_nobody_told_of_is_found_by_proof() {
    let world = SimulatedWorld::new(3);
    for (parity_disks, damaged_count) in [(1, 1), (2, 2), (3, 3)] {
        let code = Code { data_disks: 6, parity_disks };
        let row = random_row(code, 9);
        let disks: Vec<usize> = (0..row.len()).collect();
        for damaged in subsets(&disks, damaged_count) {
            let mut found = row.clone();
            damaged.iter().for_each(|at| found[*at] = Arc::new(random_block(&world)));
            let known: Vec<_> = found.iter().map(Some).collect();
            for member in damaged.iter().copied().filter(|at| *at >= parity_disks) {
                let wanted = member - parity_disks;
                let is_found = code.candidates(&known, wanted).any(|found| found == row[member]);
                assert!(is_found, "{code:?} damaged {damaged:?}: {member}");
            }
        }
    }
}

#[test]
fn a_disk_of_zeros_changes_no_parity() {
    let small = Code { data_disks: 3, parity_disks: 3 };
    let row = random_row(small, 4);
    let large = Code { data_disks: 4, ..small };
    let zero = zero_block();
    let grown = large.encode(row[3..].iter().chain([&zero]));
    assert!(grown == row[..3]);
}

/// All ways, those too that can be known to give nothing new.
fn all_ways(code: Code, row: &Row<'_>, wanted: usize) -> Vec<BlockRef> {
    let is_unknown = |at: &usize| *at == wanted || row[code.member(*at)].is_none();
    let data: Vec<usize> = (0..code.data_disks).collect();
    let parity: Vec<usize> = (0..code.parity_disks).filter(|at| row[*at].is_some()).collect();
    let mut found = Vec::new();
    for unknown in (0..=parity.len()).flat_map(|count| subsets(&data, count)) {
        if data.iter().filter(|at| is_unknown(at)).all(|at| unknown.contains(at)) {
            for trusted in subsets(&parity, unknown.len()) {
                found.push(code.solve(row, wanted, &unknown, &trusted));
            }
        }
    }
    found
}

#[test]
fn ways_that_are_left_out_give_nothing_new() {
    let world = SimulatedWorld::new(5);
    for parity_disks in 1..=3 {
        let code = Code { data_disks: 4, parity_disks };
        let disks: Vec<usize> = (0..4 + parity_disks).collect();
        let damages = (0..=2).flat_map(|count| subsets(&disks, count));
        for (damaged, lost) in damages.flat_map(|set| (0..=2).map(move |lost| (set.clone(), lost)))
        {
            let mut found = random_row(code, 6);
            damaged.iter().for_each(|at| found[*at] = Arc::new(random_block(&world)));
            let known: Vec<_> = found
                .iter()
                .enumerate()
                .map(|(at, block)| (at < 4 + parity_disks - lost).then_some(block))
                .collect();
            for wanted in 0..4 {
                let all = all_ways(code, &known, wanted);
                let some: Vec<BlockRef> = code.candidates(&known, wanted).collect();
                let what = format!("{code:?} damaged {damaged:?}, {lost} lost: {wanted}");
                assert!(all.iter().all(|one| some.contains(one)), "{what}");
                assert!(some.iter().all(|one| all.contains(one)), "{what}");
            }
        }
    }
}
