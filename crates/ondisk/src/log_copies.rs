//! Which copies of an aggregate's log have everything: in the labels, because a copy that missed a
//! write cannot tell that it did.
//!
//! Invariants: a copy is named before anybody relies on it alone, and is named no more before
//! anything is acknowledged that it has not. Identities are never given twice. Only the first copy
//! of a log that was made with one copy has the identity 0.
//!
//! Fails: [`LogCopies::validate`] tells [`Damage`].

use crate::damage::Damage;
use std::mem::size_of;
use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Copies that an aggregate's log has at most.
pub const LOG_COPIES_MAX: usize = 4;

/// The copies of a log that have everything.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned,
)]
#[repr(C)]
pub struct LogCopies {
    /// How often this was changed; of two labels the higher counts.
    pub serial: U64,
    /// How many of `whole` are set; 0 of a log that never had more than its first copy.
    pub count: U64,
    /// The identities of the copies that have everything; the others are zero.
    pub whole: [U64; LOG_COPIES_MAX],
}

const _: () = assert!(size_of::<LogCopies>() == 48);

impl LogCopies {
    /// Of a log that never had more than its first copy.
    #[must_use]
    pub fn first_alone() -> Self {
        Self::new_zeroed()
    }

    /// The record after this one.
    ///
    /// # Panics
    /// If there are no copies, or too many.
    #[must_use]
    pub fn next(&self, whole: &[u64]) -> Self {
        assert!((1..=LOG_COPIES_MAX).contains(&whole.len()), "{} copies of a log", whole.len());
        let mut next = Self::new_zeroed();
        next.serial = U64::new(self.serial.get().saturating_add(1));
        next.count = U64::new(whole.len() as u64);
        for (slot, identity) in next.whole.iter_mut().zip(whole) {
            *slot = U64::new(*identity);
        }
        next
    }

    /// The identities of the copies that have everything.
    #[must_use]
    pub fn whole(&self) -> Vec<u64> {
        match self.count.get() {
            0 => vec![0],
            count => self.whole.iter().take(count as usize).map(|one| one.get()).collect(),
        }
    }

    /// # Errors
    /// The first field that cannot be right.
    pub fn validate(&self) -> Result<(), Damage> {
        let wrong = |field| Err(Damage::Field { structure: "disk label", field });
        if self.count.get() > LOG_COPIES_MAX as u64 {
            return wrong("log_copies.count");
        }
        let (set, unset) = self.whole.split_at(self.count.get() as usize);
        if unset.iter().any(|identity| identity.get() != 0) {
            return wrong("log_copies.whole");
        }
        let is_repeated = |at: usize| set[..at].contains(&set[at]);
        if (0..set.len()).any(is_repeated) {
            return wrong("log_copies.whole");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_what_it_was_given_and_counts_up() {
        let first = LogCopies::first_alone();
        assert_eq!(first.whole(), [0]);
        let two = first.next(&[0, 7]);
        assert_eq!((two.serial.get(), two.whole()), (1, vec![0, 7]));
        let other = two.next(&[7]);
        assert_eq!((other.serial.get(), other.whole()), (2, vec![7]));
        for record in [first, two, other] {
            assert_eq!(record.validate(), Ok(()));
        }
    }

    #[test]
    fn what_cannot_be_is_damage() {
        let good = LogCopies::first_alone().next(&[3, 4]);
        let many = LogCopies { count: U64::new(5), ..good };
        let fewer = LogCopies { count: U64::new(1), ..good };
        let twice = LogCopies { whole: [3, 3, 0, 0].map(U64::new), ..good };
        for bad in [many, fewer, twice] {
            assert!(bad.validate().is_err(), "{bad:?}");
        }
    }
}
