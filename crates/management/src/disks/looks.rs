//! Which disks were flushed since they were written to, as far as looks at them tell.
//!
//! A process that was killed may have written or erased a label and not flushed it. What is decided
//! by it would be undone by a power cut, so a look flushes the disk. One that finds what the last
//! look found does not: disks are looked at each second while one is missed.
//!
//! Invariants: what is the same as before was flushed when it was found first, and was not written
//! in between by anybody who has not flushed it. So this process forgets a disk that it opens to
//! write to.

use ondisk::label::DiskLabel;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use units::DiskUuid;

/// What a label says that is another after each change of it; nothing of a disk without one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(Option<(DiskUuid, u64)>);

impl Mark {
    pub(crate) fn of(label: Option<&DiskLabel>) -> Self {
        Self(label.map(|label| (label.disk, label.sequence.get())))
    }
}

/// What was found and is durable, by the name of the disk.
#[derive(Default)]
pub(crate) struct Looks(Mutex<BTreeMap<String, Mark>>);

impl Looks {
    /// Whether the disk was found like this, and flushed.
    pub(crate) fn is_durable(&self, disk: &str, mark: Mark) -> bool {
        self.0.lock().get(disk) == Some(&mark)
    }

    /// The disk was flushed after this was found on it.
    pub(crate) fn note(&self, disk: &str, mark: Mark) {
        self.0.lock().insert(disk.to_owned(), mark);
    }

    /// The disk is about to be written to.
    pub(crate) fn forget(&self, disk: &str) {
        self.0.lock().remove(disk);
    }
}
