//! The mix of operations, the sizes of files, and what is drawn from both.
//!
//! [`MIX`] is the mix of SPEC SFS2008 for NFSv3 as Mike Eisler published it (NFS blog of NetApp,
//! April 2008). FlexVol section 5.1.2 had SPEC SFS 3.0, whose mix has more READLINK and
//! READDIRPLUS, fewer GETATTR, and COMMIT. [`FILE_SIZES`] is modelled on the sizes of SPEC SFS:
//! three quarters of the files are below 8 KiB, and most bytes are in the large files. It was not
//! checked against SPEC's own table.
//!
//! Invariants: shares are in percent and add up to a hundred; the same numbers draw the same.

use crate::numbers::Numbers;

/// An operation of the mix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    GetAttributes,
    Lookup,
    Read,
    Access,
    Write,
    SetAttributes,
    ReadDirectoryPlus,
    ReadLink,
    ReadDirectory,
    Create,
    Remove,
    FileSystemStatus,
}

/// Operations and their shares.
pub(super) const MIX: [(Operation, u64); 12] = [
    (Operation::GetAttributes, 26),
    (Operation::Lookup, 24),
    (Operation::Read, 18),
    (Operation::Access, 11),
    (Operation::Write, 10),
    (Operation::SetAttributes, 4),
    (Operation::ReadDirectoryPlus, 2),
    (Operation::ReadLink, 1),
    (Operation::ReadDirectory, 1),
    (Operation::Create, 1),
    (Operation::Remove, 1),
    (Operation::FileSystemStatus, 1),
];

/// Sizes of files in bytes, and their shares.
pub(super) const FILE_SIZES: [(u32, u64); 10] = [
    (1 << 10, 33),
    (2 << 10, 21),
    (4 << 10, 13),
    (8 << 10, 10),
    (16 << 10, 8),
    (32 << 10, 5),
    (64 << 10, 4),
    (128 << 10, 3),
    (256 << 10, 2),
    (1 << 20, 1),
];

/// Most bytes of a READ, WRITE, READDIR or READDIRPLUS.
pub(super) const TRANSFER_BYTES_MAX: u32 = 32 << 10;

impl Operation {
    /// As NFS calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::GetAttributes => "GETATTR",
            Self::Lookup => "LOOKUP",
            Self::Read => "READ",
            Self::Access => "ACCESS",
            Self::Write => "WRITE",
            Self::SetAttributes => "SETATTR",
            Self::ReadDirectoryPlus => "READDIRPLUS",
            Self::ReadLink => "READLINK",
            Self::ReadDirectory => "READDIR",
            Self::Create => "CREATE",
            Self::Remove => "REMOVE",
            Self::FileSystemStatus => "FSSTAT",
        }
    }
}

/// Numbers called `seed`. Seeds that are near each other begin with numbers that are not.
pub(super) const fn numbers(seed: u64) -> Numbers {
    Numbers::new((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// One of `shares`, each as often as its share says.
pub(super) fn drawn<T: Copy>(shares: &[(T, u64)], numbers: &mut Numbers) -> T {
    let mut number = numbers.next(100);
    for (one, share) in shares {
        if number < *share {
            return *one;
        }
        number -= share;
    }
    unreachable!("shares add up to a hundred")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_a_hundred() {
        assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u64>(), 100);
        assert_eq!(FILE_SIZES.iter().map(|(_, share)| share).sum::<u64>(), 100);
    }

    fn check<T: Copy + PartialEq + std::fmt::Debug>(shares: &[(T, u64)]) {
        const DRAWN: u64 = 200_000;
        let mut numbers = numbers(7);
        let found: Vec<T> = (0..DRAWN).map(|_| drawn(shares, &mut numbers)).collect();
        for (one, share) in shares {
            let count = found.iter().filter(|drawn| *drawn == one).count() as u64;
            let wanted = DRAWN / 100 * share;
            assert!(count.abs_diff(wanted) < wanted / 10, "{one:?}: {count} and not {wanted}");
        }
    }

    #[test]
    fn what_is_drawn_keeps_the_shares() {
        check(&MIX);
        check(&FILE_SIZES);
    }

    #[test]
    fn files_have_some_27_kib_on_average_in_multiples_of_four_bytes() {
        let bytes: u64 = FILE_SIZES.iter().map(|(bytes, share)| u64::from(*bytes) * share).sum();
        assert_eq!(bytes / 100, 27_351);
        assert!(FILE_SIZES.iter().all(|(bytes, _)| bytes.is_multiple_of(4)));
    }

    #[test]
    fn the_same_seed_draws_the_same() {
        let list = |seed| -> Vec<Operation> {
            let mut numbers = numbers(seed);
            (0..100).map(|_| drawn(&MIX, &mut numbers)).collect()
        };
        assert_eq!(list(3), list(3));
        assert_ne!(list(3), list(4));
    }
}
