//! The files that the kernel has open, each under a number that it is told as the file's handle.
//!
//! The kernel drops the RELEASEs that it has not sent when a file system is unmounted or cut off,
//! so what is still in here when the last event loop ends must be released then, or unlinked
//! files would be held for ever.
//!
//! What was written through an open file, and may be in memory only, is counted: it is made durable
//! soon after the close ([`crate::unsettled`]). An FSYNC makes durable what was written before it.
//!
//! Invariants: a number names one open file and is never used again; each hold is handed out for
//! release once; a write counts as durable only if it was answered before an FSYNC that succeeded
//! began.

use file_service::Hold;
use platform::sync::Mutex;
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Opens(Mutex<Table>);

#[derive(Default)]
struct Table {
    numbers_used: u64,
    open: HashMap<u64, Counted>,
}

/// An open file, and what was written through it since it was opened.
struct Counted {
    hold: Hold,
    begun_bytes: u64,
    answered_bytes: u64,
    durable_bytes: u64,
}

impl Counted {
    const fn opened(&self) -> Opened {
        let written_bytes = self.begun_bytes.saturating_sub(self.durable_bytes);
        Opened { hold: self.hold, written_bytes }
    }
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
        let counted = Counted { hold, begun_bytes: 0, answered_bytes: 0, durable_bytes: 0 };
        table.open.insert(number, counted);
        number
    }

    /// What an open file holds.
    pub(crate) fn hold(&self, number: u64) -> Option<Hold> {
        self.0.lock().open.get(&number).map(|opened| opened.hold)
    }

    /// So many bytes are being written through an open file, and may stay in memory.
    pub(crate) fn writes(&self, number: u64, bytes: u64) {
        if let Some(counted) = self.0.lock().open.get_mut(&number) {
            counted.begun_bytes = counted.begun_bytes.saturating_add(bytes);
        }
    }

    /// A write of so many bytes, of which [`Self::writes`] was told, is answered.
    pub(crate) fn wrote(&self, number: u64, bytes: u64) {
        if let Some(counted) = self.0.lock().open.get_mut(&number) {
            counted.answered_bytes = counted.answered_bytes.saturating_add(bytes);
        }
    }

    /// An FSYNC begins: how many bytes are durable if it succeeds, for [`Self::synced`].
    pub(crate) fn syncs(&self, number: u64) -> u64 {
        self.0.lock().open.get(&number).map_or(0, |counted| counted.answered_bytes)
    }

    /// An FSYNC succeeded, for which [`Self::syncs`] gave so many bytes.
    pub(crate) fn synced(&self, number: u64, bytes: u64) {
        if let Some(counted) = self.0.lock().open.get_mut(&number) {
            counted.durable_bytes = counted.durable_bytes.max(bytes);
        }
    }

    /// Takes back one [`Self::add`].
    pub(crate) fn remove(&self, number: u64) -> Option<Opened> {
        self.0.lock().open.remove(&number).map(|counted| counted.opened())
    }

    /// All open files; none are open from then on.
    pub(crate) fn drain(&self) -> Vec<Opened> {
        let open = std::mem::take(&mut self.0.lock().open);
        open.into_values().map(|counted| counted.opened()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_service::FileHandle;
    use units::{Generation, InodeNumber, SnapshotId, VolumeUuid};

    const FILE: FileHandle = FileHandle {
        volume: VolumeUuid([1; 16]),
        inode: InodeNumber(7),
        generation: Generation(1),
        snapshot: SnapshotId::ACTIVE,
    };

    #[test]
    fn what_an_fsync_made_durable_is_not_counted() {
        let opens = Opens::default();
        let number = opens.add(Hold { file: FILE, losses: 0 });
        opens.writes(number, 100);
        opens.writes(number, 20);
        opens.wrote(number, 20);
        let synced = opens.syncs(number);
        opens.writes(number, 3);
        opens.wrote(number, 3);
        opens.wrote(number, 100);
        opens.synced(number, synced);
        let all = opens.syncs(number);
        opens.synced(number, synced);
        assert_eq!((synced, all), (20, 123));
        assert_eq!(opens.remove(number).unwrap().written_bytes, 103);
        opens.synced(number, all);
        assert_eq!(opens.syncs(number), 0);
    }

    #[test]
    fn each_open_is_released_once() {
        let (hold, later) = (Hold { file: FILE, losses: 0 }, Hold { file: FILE, losses: 1 });
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
