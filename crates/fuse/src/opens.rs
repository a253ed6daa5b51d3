//! Which files the kernel has open, and how often.
//!
//! The kernel drops the RELEASEs that it has not sent when a file system is unmounted or cut off,
//! so what is still counted here when the last event loop ends must be released then, or unlinked
//! files would be held for ever.

use file_service::FileHandle;
use platform::sync::Mutex;
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Opens(Mutex<HashMap<FileHandle, u64>>);

impl Opens {
    /// The file was held once more.
    pub(crate) fn add(&self, file: FileHandle) {
        *self.0.lock().entry(file).or_default() += 1;
    }

    /// Takes back one [`Self::add`]; false if there is none.
    pub(crate) fn remove(&self, file: FileHandle) -> bool {
        let mut opens = self.0.lock();
        let Some(count) = opens.get_mut(&file) else { return false };
        *count -= 1;
        if *count == 0 {
            opens.remove(&file);
        }
        true
    }

    /// All files, each as often as it is open; none are counted from then on.
    pub(crate) fn drain(&self) -> Vec<FileHandle> {
        let opens = std::mem::take(&mut *self.0.lock());
        let repeat = |(file, count): (FileHandle, u64)| (0..count).map(move |_| file);
        opens.into_iter().flat_map(repeat).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_service::FileSystemId;
    use units::{Generation, InodeNumber, SnapshotId, VolumeId};

    #[test]
    fn opens_are_counted() {
        let file = FileHandle {
            file_system: FileSystemId(1),
            volume: VolumeId(1),
            inode: InodeNumber(7),
            generation: Generation(1),
            snapshot: SnapshotId::ACTIVE,
        };
        let opens = Opens::default();
        assert!(!opens.remove(file));
        opens.add(file);
        opens.add(file);
        assert!(opens.remove(file));
        opens.add(file);
        assert_eq!(opens.drain(), [file, file]);
        assert!(!opens.remove(file));
    }
}
