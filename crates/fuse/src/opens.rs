//! The files that the kernel has open, each under a number that it is told as the file's handle.
//!
//! The kernel drops the RELEASEs that it has not sent when a file system is unmounted or cut off,
//! so what is still in here when the last event loop ends must be released then, or unlinked
//! files would be held for ever.
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
    open: HashMap<u64, Hold>,
}

impl Opens {
    /// The number of a file that was held now.
    pub(crate) fn add(&self, hold: Hold) -> u64 {
        let mut table = self.0.lock();
        table.numbers_used += 1;
        let number = table.numbers_used;
        table.open.insert(number, hold);
        number
    }

    /// What an open file holds.
    pub(crate) fn hold(&self, number: u64) -> Option<Hold> {
        self.0.lock().open.get(&number).copied()
    }

    /// Takes back one [`Self::add`].
    pub(crate) fn remove(&self, number: u64) -> Option<Hold> {
        self.0.lock().open.remove(&number)
    }

    /// What all open files hold; none are open from then on.
    pub(crate) fn drain(&self) -> Vec<Hold> {
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
        assert_eq!(opens.remove(1), None);
        let numbers = [opens.add(hold), opens.add(hold), opens.add(later)];
        assert_eq!((opens.hold(numbers[2]), opens.remove(numbers[0])), (Some(later), Some(hold)));
        assert_eq!((opens.remove(numbers[0]), opens.hold(numbers[0])), (None, None));
        assert!(!numbers.contains(&opens.add(hold)), "never used again");
        assert_eq!(opens.remove(numbers[2]), Some(later));
        assert_eq!(opens.drain(), [hold, hold]);
        assert_eq!(opens.remove(numbers[1]), None);
    }
}
