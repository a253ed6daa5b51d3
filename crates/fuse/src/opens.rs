//! The files that the kernel has open, each under a number that it is told as the file's handle.
//!
//! The kernel drops the RELEASEs that it has not sent when a file system is unmounted or cut off,
//! so what is still in here when the last event loop ends must be released then, or unlinked
//! files would be held for ever.
//!
//! What was written through an open file, and may be in memory only, is counted: it is made durable
//! soon after the close ([`crate::unsettled`]).
//!
//! Invariants: a number names one open file and is never used again; each hold is handed out for
//! release once.

use file_service::Hold;
use platform::sync::Mutex;
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Opens(Mutex<Table>);

#[derive(Default)]
struct Table {
    numbers_used: u64,
    open: HashMap<u64, Opened>,
}

/// An open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    pub hold: Hold,
    /// Bytes that were written through it and need not be durable.
    pub written_bytes: u64,
}

impl Opens {
    /// The number of a file that was held now.
    pub(crate) fn add(&self, hold: Hold) -> u64 {
        let mut table = self.0.lock();
        table.numbers_used += 1;
        let number = table.numbers_used;
        table.open.insert(number, Opened { hold, written_bytes: 0 });
        number
    }

    /// What an open file holds.
    pub(crate) fn hold(&self, number: u64) -> Option<Hold> {
        self.0.lock().open.get(&number).map(|opened| opened.hold)
    }

    /// So many bytes are being written through an open file, and may stay in memory.
    pub(crate) fn writes(&self, number: u64, bytes: u64) {
        if let Some(opened) = self.0.lock().open.get_mut(&number) {
            opened.written_bytes = opened.written_bytes.saturating_add(bytes);
        }
    }

    /// Takes back one [`Self::add`].
    pub(crate) fn remove(&self, number: u64) -> Option<Opened> {
        self.0.lock().open.remove(&number)
    }

    /// All open files; none are open from then on.
    pub(crate) fn drain(&self) -> Vec<Opened> {
        std::mem::take(&mut self.0.lock().open).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_service::FileHandle;
    use units::{Generation, InodeNumber, SnapshotId, VolumeUuid};

    #[test]
    fn each_open_is_released_once() {
        let file = FileHandle {
            volume: VolumeUuid([1; 16]),
            inode: InodeNumber(7),
            generation: Generation(1),
            snapshot: SnapshotId::ACTIVE,
        };
        let (hold, later) = (Hold { file, losses: 0 }, Hold { file, losses: 1 });
        let opens = Opens::default();
        let opened = |hold, written_bytes| Opened { hold, written_bytes };
        assert_eq!(opens.remove(1), None);
        let numbers = [opens.add(hold), opens.add(hold), opens.add(later)];
        let removed = opens.remove(numbers[0]);
        assert_eq!((opens.hold(numbers[2]), removed), (Some(later), Some(opened(hold, 0))));
        assert_eq!((opens.remove(numbers[0]), opens.hold(numbers[0])), (None, None));
        assert!(!numbers.contains(&opens.add(hold)), "never used again");
        opens.writes(numbers[0], 7);
        opens.writes(numbers[2], 7);
        opens.writes(numbers[2], 8);
        assert_eq!(opens.remove(numbers[2]), Some(opened(later, 15)));
        assert_eq!(opens.drain(), [opened(hold, 0), opened(hold, 0)]);
        assert_eq!(opens.remove(numbers[1]), None);
    }
}
