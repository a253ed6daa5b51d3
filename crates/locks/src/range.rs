//! Ranges of bytes in a file.
//!
//! Invariant: a range is not empty. The last byte is part of it; one that ends with [`u64::MAX`]
//! goes on to wherever the file ends.

/// Some bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Range {
    start: u64,
    last: u64,
}

impl Range {
    /// All bytes.
    pub const WHOLE: Self = Self { start: 0, last: u64::MAX };

    /// From `start` to `last`, both included; `None` if there is nothing between.
    #[must_use]
    pub const fn new(start: u64, last: u64) -> Option<Self> {
        if start <= last { Some(Self { start, last }) } else { None }
    }

    /// `length` bytes from `start`, to the end of the file if `length` is zero; `None` if they
    /// reach beyond the last byte that a file can have.
    #[must_use]
    pub const fn of_length(start: u64, length: u64) -> Option<Self> {
        if length == 0 {
            return Some(Self { start, last: u64::MAX });
        }
        match start.checked_add(length - 1) {
            Some(last) => Some(Self { start, last }),
            None => None,
        }
    }

    /// The first byte.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// The last byte.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Its length as [`Self::of_length`] takes it: zero to the end of the file.
    #[must_use]
    pub const fn length(&self) -> u64 {
        if self.last == u64::MAX { 0 } else { self.last - self.start + 1 }
    }

    /// Whether there is a byte in both.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    /// Whether both together are one range.
    pub(crate) const fn touches(&self, other: &Self) -> bool {
        self.overlaps(other)
            || (self.last != u64::MAX && self.last + 1 == other.start)
            || (other.last != u64::MAX && other.last + 1 == self.start)
    }

    /// The smallest range that holds both.
    pub(crate) fn join(&self, other: &Self) -> Self {
        Self { start: self.start.min(other.start), last: self.last.max(other.last) }
    }

    /// What is left of this range before and behind `hole`, which overlaps it.
    pub(crate) fn without(&self, hole: &Self) -> [Option<Self>; 2] {
        let before = hole.start.checked_sub(1).and_then(|last| Self::new(self.start, last));
        let behind = hole.last.checked_add(1).and_then(|start| Self::new(start, self.last));
        [before, behind]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, last: u64) -> Range {
        Range::new(start, last).unwrap()
    }

    #[test]
    fn lengths_and_ends_agree() {
        assert_eq!(Range::of_length(3, 0), Range::new(3, u64::MAX));
        assert_eq!(Range::of_length(3, 2), Range::new(3, 4));
        assert_eq!(Range::of_length(u64::MAX, 1), Range::new(u64::MAX, u64::MAX));
        assert_eq!(Range::of_length(u64::MAX, 2), None);
        assert_eq!(Range::new(4, 3), None);
        assert_eq!((range(3, 4).length(), Range::WHOLE.length()), (2, 0));
    }

    #[test]
    fn ranges_meet_where_they_should() {
        assert!(range(0, 4).overlaps(&range(4, 9)) && !range(0, 4).overlaps(&range(5, 9)));
        assert!(range(0, 4).touches(&range(5, 9)) && !range(0, 3).touches(&range(5, 9)));
        assert!(range(5, u64::MAX).touches(&range(0, 4)));
        let left = |hole| range(3, 9).without(&hole);
        assert_eq!(left(range(5, 6)), [Range::new(3, 4), Range::new(7, 9)]);
        assert_eq!(left(range(0, 6)), [None, Range::new(7, 9)]);
        assert_eq!(left(range(4, u64::MAX)), [Range::new(3, 3), None]);
        assert_eq!(left(Range::WHOLE), [None, None]);
    }
}
