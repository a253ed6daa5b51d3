//! Which files the kernel has open, and how often.
//!
//! The kernel drops the RELEASEs that it has not sent when a file system is unmounted or cut off,
//! so what is still counted here when the last event loop ends must be released then, or unlinked
//! files would be held for ever.

use file_service::Hold;
use platform::sync::Mutex;
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Opens(Mutex<HashMap<Hold, u64>>);

impl Opens {
    /// The file was held once more.
    pub(crate) fn add(&self, hold: Hold) {
        *self.0.lock().entry(hold).or_default() += 1;
    }

    /// Takes back one [`Self::add`]; false if there is none.
    pub(crate) fn remove(&self, hold: Hold) -> bool {
        let mut opens = self.0.lock();
        let Some(count) = opens.get_mut(&hold) else { return false };
        *count -= 1;
        if *count == 0 {
            opens.remove(&hold);
        }
        true
    }

    /// All files, each as often as it is open; none are counted from then on.
    pub(crate) fn drain(&self) -> Vec<Hold> {
        let opens = std::mem::take(&mut *self.0.lock());
        let repeat = |(hold, count): (Hold, u64)| (0..count).map(move |_| hold);
        opens.into_iter().flat_map(repeat).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_service::FileHandle;
    use units::{Generation, InodeNumber, SnapshotId, VolumeUuid};

    #[test]
    fn opens_are_counted() {
        let file = FileHandle {
            volume: VolumeUuid([1; 16]),
            inode: InodeNumber(7),
            generation: Generation(1),
            snapshot: SnapshotId::ACTIVE,
        };
        let (hold, later) = (Hold { file, losses: 0 }, Hold { file, losses: 1 });
        let opens = Opens::default();
        assert!(!opens.remove(hold));
        opens.add(hold);
        opens.add(hold);
        assert!(!opens.remove(later), "the aggregate was not away yet");
        assert!(opens.remove(hold));
        opens.add(hold);
        assert_eq!(opens.drain(), [hold, hold]);
        assert!(!opens.remove(hold));
    }
}
