//! Rows of a tetris: sets of them, and their blocks.

use ondisk::identity::{REGION_BLOCKS, REGION_DATA_BLOCKS};
use units::BlockRef;

/// The row of checksum blocks.
pub(crate) const CHECKSUM_ROW: usize = REGION_DATA_BLOCKS;

/// The set of all data rows.
pub(crate) const DATA_ROWS: RowSet = RowSet(u64::MAX >> 1);

/// A set of rows: a bit for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct RowSet(pub u64);

impl RowSet {
    pub(crate) const EMPTY: Self = Self(0);
    /// All rows, that of checksum blocks as well.
    pub(crate) const ALL: Self = Self(u64::MAX);

    pub(crate) const fn one(row: usize) -> Self {
        Self(1 << row)
    }

    pub(crate) const fn contains(self, row: usize) -> bool {
        self.0 >> row & 1 == 1
    }

    pub(crate) const fn insert(&mut self, row: usize) {
        self.0 |= 1 << row;
    }

    pub(crate) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The rows, in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        (0..REGION_BLOCKS).filter(move |row| self.contains(*row))
    }

    /// Runs of consecutive rows: first row and how many.
    pub(crate) fn runs(self) -> impl Iterator<Item = (usize, usize)> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let first = rest.trailing_zeros() as usize;
            let count = (rest >> first).trailing_ones() as usize;
            rest &= u64::MAX.checked_shl((first + count) as u32).unwrap_or(0);
            Some((first, count))
        })
    }
}

/// The blocks of one disk's region, as far as they are known.
#[derive(Clone)]
pub(crate) struct Column(Vec<Option<BlockRef>>);

impl Column {
    pub(crate) fn new() -> Self {
        Self(vec![None; REGION_BLOCKS])
    }

    pub(crate) fn get(&self, row: usize) -> Option<&BlockRef> {
        self.0[row].as_ref()
    }

    pub(crate) fn set(&mut self, row: usize, block: BlockRef) {
        self.0[row] = Some(block);
    }

    pub(crate) fn remove(&mut self, row: usize) {
        self.0[row] = None;
    }

    /// The rows whose blocks are known.
    pub(crate) fn rows(&self) -> RowSet {
        let mut rows = RowSet::EMPTY;
        for (row, block) in self.0.iter().enumerate() {
            if block.is_some() {
                rows.insert(row);
            }
        }
        rows
    }
}

/// Sets a row of several columns, a block each.
pub(crate) fn set_row(columns: &mut [Column], row: usize, blocks: Vec<BlockRef>) {
    for (column, block) in columns.iter_mut().zip(blocks) {
        column.set(row, block);
    }
}

/// A row of all columns.
pub(crate) fn get_row(columns: &[Column], row: usize) -> Vec<Option<&BlockRef>> {
    columns.iter().map(|column| column.get(row)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_the_set() {
        let check = |set: u64, expected: &[(usize, usize)]| {
            assert_eq!(RowSet(set).runs().collect::<Vec<_>>(), expected);
        };
        check(0, &[]);
        check(u64::MAX, &[(0, 64)]);
        check(1 << 63 | 0b1101, &[(0, 1), (2, 2), (63, 1)]);
        check(0b11 << 62, &[(62, 2)]);
        assert_eq!(RowSet(0b101).iter().collect::<Vec<_>>(), [0, 2]);
    }
}
