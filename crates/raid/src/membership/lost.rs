//! What is known of a disk that went, and of the consistency points that it may hold.

use media::MediaError;

/// Whether all of the disk is out of reach, rather than a block of it: then it makes no sense to go
/// on with a group that needs it, even for reading.
pub(crate) const fn is_away(error: &MediaError) -> bool {
    matches!(error, MediaError::Disk(error) if error.is_of_disk())
}

/// What is known of a disk that went.
pub(crate) struct Lost {
    /// It holds what consistency points up to this one wrote. `None`: all that is known of from
    /// before the first write of this start.
    pub trusted_cp: Option<u64>,
    pub fate: Fate,
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Settling,
    Settled,
    Torn,
}

/// Consistency points, as far as blocks tell of them.
#[derive(Default)]
pub(crate) struct Points {
    /// The latest of which a block was written.
    pub written: u64,
    /// The latest that completed; `None` before the first write.
    pub complete: Option<u64>,
    /// The first since the start: of the same number as the one that was under way if the power
    /// went before.
    pub first: Option<u64>,
}
