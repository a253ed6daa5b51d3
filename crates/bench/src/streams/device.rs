//! What the device below a directory reads and writes, by the kernel's count of its sectors.
//!
//! Invariants: whoever uses the device is counted. Fails: where there is no device below, as in
//! memory, nothing is counted.

use crate::summary::DeviceBytes;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The kernel's unit, whatever the device's own is.
const SECTOR_BYTES: u64 = 512;

/// See the module.
pub(super) struct Device {
    statistics: PathBuf,
}

impl Device {
    /// The device that `directory` is on.
    pub fn below(directory: &Path) -> Self {
        let number = directory.metadata().map_or(0, |metadata| metadata.dev());
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        Self { statistics: format!("/sys/dev/block/{major}:{minor}/stat").into() }
    }

    /// Bytes that the device has read and written since the kernel counts.
    pub fn count(&self) -> Option<DeviceBytes> {
        counted(&std::fs::read_to_string(&self.statistics).ok()?)
    }
}

/// Of the file's numbers the third are the sectors that were read, and the seventh those that were
/// written.
fn counted(text: &str) -> Option<DeviceBytes> {
    let mut numbers = text.split_whitespace().map(str::parse::<u64>);
    let read = numbers.nth(2)?.ok()?.checked_mul(SECTOR_BYTES)?;
    let written = numbers.nth(3)?.ok()?.checked_mul(SECTOR_BYTES)?;
    Some(DeviceBytes { read, written })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_counted() {
        let text = "  446216   784926 9550688  4382310   371246  1113 2048   15838 0 12 13\n";
        let expected = DeviceBytes { read: 9_550_688 * 512, written: 2048 * 512 };
        assert_eq!(counted(text), Some(expected));
        assert_eq!(counted("1 2 3"), None);
        assert_eq!(counted(""), None);
    }
}
