//! How much a check looks at, and how far it has come.
//!
//! Invariants: a check of media that are being written ([`Scope::is_live`]) reads again before it
//! calls anything wrong, because parity and checksum blocks may be on their way just then. It does
//! not look at the parity of whole stripes.
//!
//! Fails: never.

/// What a check looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scope {
    /// The parity of every stripe with a block in use.
    pub has_parity: bool,
    /// Marks of damage that the engine has met and lives with: files that it refuses, volumes that
    /// are read-only, superblock slots that cannot be read.
    pub has_marks: bool,
    /// The media are being written, and nothing that the superblock reaches is overwritten.
    pub is_live: bool,
}

impl Scope {
    /// Everything that must hold of media at rest, whatever the engine has met.
    pub const AT_REST: Self = Self { has_parity: true, has_marks: false, is_live: false };
    /// All damage of media at rest, for an administrator.
    pub const OFFLINE: Self = Self { has_parity: true, has_marks: true, is_live: false };
    /// The same of media at rest after a crash: stripes that were being written have parity that
    /// is not right yet.
    pub const AFTER_A_CRASH: Self = Self { has_parity: false, has_marks: true, is_live: false };
    /// The same of media that are being written.
    pub const ONLINE: Self = Self { has_parity: false, has_marks: true, is_live: true };
}

/// How far a check has come.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Progress {
    /// Blocks that were proved.
    pub blocks: u64,
    /// Blocks in use, as the superblock counts them.
    pub blocks_total: u64,
    /// Stripes whose parity was computed.
    pub stripes: u64,
    /// Stripes whose parity is to be computed; zero until the check comes to parity.
    pub stripes_total: u64,
}

impl Progress {
    /// How much is done, in hundredths: never more than 100.
    #[must_use]
    pub fn percent(&self, scope: &Scope) -> u64 {
        let part = |done: u64, total: u64| done.min(total).saturating_mul(100) / total.max(1);
        let blocks = part(self.blocks, self.blocks_total);
        match (scope.has_parity, self.stripes_total) {
            (false, _) => blocks,
            (true, 0) => blocks / 2,
            (true, stripes) => 50 + part(self.stripes, stripes) / 2,
        }
    }
}

/// Learns how far a check has come; whether it is to go on.
pub type Watch<'a> = Box<dyn FnMut(&Progress) -> bool + 'a>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_hundred_at_most() {
        let progress = Progress { blocks: 30, blocks_total: 20, stripes: 0, stripes_total: 0 };
        assert_eq!(progress.percent(&Scope::ONLINE), 100);
        assert_eq!(progress.percent(&Scope::OFFLINE), 50);
        let progress = Progress { stripes: 9, stripes_total: 10, ..progress };
        assert_eq!(progress.percent(&Scope::OFFLINE), 95);
        assert_eq!(Progress::default().percent(&Scope::ONLINE), 0);
    }
}
