//! The files that the kernel has open, each under a number that it is told as the file's handle.
//!
//! The kernel drops the RELEASEs that it has not sent when a file system is unmounted or cut off,
//! so what is still in here when the last event loop ends must be released then, or unlinked
//! files would be held for ever.
//!
//! What was written to a file since it was opened, and may be in memory only, is counted: it is
//! made durable soon after the close ([`crate::unsettled`]). An FSYNC makes durable what was
//! written before it. The count is the file's: the kernel writes back through any descriptor that
//! is open for writing, so what a program wrote may come through another program's.
//!
//! Invariants: a number names one open file and is never used again; each hold is handed out for
//! release once; the close of each descriptor that is open for writing tells what is not durable
//! and was not told before; a write counts as durable or told only if it was answered before the
//! FSYNC that succeeded, or the close.

use file_service::{FileHandle, Hold};
use platform::sync::Mutex;
use std::collections::HashMap;

#[derive(Default)]
pub(crate) struct Opens(Mutex<Table>);

#[derive(Default)]
struct Table {
    numbers_used: u64,
    open: HashMap<u64, Open>,
    /// Of the files that are open for writing.
    written: HashMap<FileHandle, Written>,
}

#[derive(Clone, Copy)]
struct Open {
    hold: Hold,
    is_for_writing: bool,
}

/// What was written to a file since it was first opened for writing.
#[derive(Default)]
struct Written {
    /// How many times it is open for writing.
    opens: usize,
    begun_bytes: u64,
    answered_bytes: u64,
    /// Durable, or told at a close.
    settled_bytes: u64,
}

/// An open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    pub hold: Hold,
    /// Bytes that were written to the file, need not be durable, and were not told before.
    pub written_bytes: u64,
}

impl Table {
    /// Of a descriptor that is open for writing: what was written to its file.
    fn written(&mut self, number: u64) -> Option<&mut Written> {
        let open = self.open.get(&number).filter(|open| open.is_for_writing)?;
        self.written.get_mut(&open.hold.file)
    }

    fn close(&mut self, Open { hold, is_for_writing }: Open) -> Opened {
        let written = self.written.get_mut(&hold.file).filter(|_| is_for_writing);
        let Some(written) = written else { return Opened { hold, written_bytes: 0 } };
        let written_bytes = written.begun_bytes.saturating_sub(written.settled_bytes);
        written.settled_bytes = written.settled_bytes.max(written.answered_bytes);
        written.opens -= 1;
        if written.opens == 0 {
            self.written.remove(&hold.file);
        }
        Opened { hold, written_bytes }
    }
}

impl Opens {
    /// The number of a file that was held now.
    pub(crate) fn add(&self, hold: Hold, is_for_writing: bool) -> u64 {
        let mut table = self.0.lock();
        table.numbers_used += 1;
        let number = table.numbers_used;
        table.open.insert(number, Open { hold, is_for_writing });
        if is_for_writing {
            table.written.entry(hold.file).or_default().opens += 1;
        }
        number
    }

    /// What an open file holds.
    pub(crate) fn hold(&self, number: u64) -> Option<Hold> {
        self.0.lock().open.get(&number).map(|opened| opened.hold)
    }

    /// So many bytes are being written through an open file, and may stay in memory.
    pub(crate) fn writes(&self, number: u64, bytes: u64) {
        if let Some(written) = self.0.lock().written(number) {
            written.begun_bytes = written.begun_bytes.saturating_add(bytes);
        }
    }

    /// A write of so many bytes, of which [`Self::writes`] was told, is answered.
    pub(crate) fn wrote(&self, number: u64, bytes: u64) {
        if let Some(written) = self.0.lock().written(number) {
            written.answered_bytes = written.answered_bytes.saturating_add(bytes);
        }
    }

    /// An FSYNC begins: how many bytes are durable if it succeeds, for [`Self::synced`].
    pub(crate) fn syncs(&self, number: u64) -> u64 {
        self.0.lock().written(number).map_or(0, |written| written.answered_bytes)
    }

    /// An FSYNC succeeded, for which [`Self::syncs`] gave so many bytes.
    pub(crate) fn synced(&self, number: u64, bytes: u64) {
        if let Some(written) = self.0.lock().written(number) {
            written.settled_bytes = written.settled_bytes.max(bytes);
        }
    }

    /// The files that are open for writing.
    pub(crate) fn written(&self) -> Vec<FileHandle> {
        self.0.lock().written.keys().copied().collect()
    }

    /// Takes back one [`Self::add`].
    pub(crate) fn remove(&self, number: u64) -> Option<Opened> {
        let mut table = self.0.lock();
        let open = table.open.remove(&number)?;
        Some(table.close(open))
    }

    /// All open files; none are open from then on.
    pub(crate) fn drain(&self) -> Vec<Opened> {
        let mut table = self.0.lock();
        let open = std::mem::take(&mut table.open);
        open.into_values().map(|open| table.close(open)).collect()
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
        let number = opens.add(Hold { file: FILE, losses: 0 }, true);
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
        let numbers = [opens.add(hold, true), opens.add(hold, false), opens.add(later, true)];
        let removed = opens.remove(numbers[0]);
        assert_eq!((opens.hold(numbers[2]), removed), (Some(later), Some(opened(hold, 0))));
        assert_eq!((opens.remove(numbers[0]), opens.hold(numbers[0])), (None, None));
        assert!(!numbers.contains(&opens.add(hold, false)), "never used again");
        opens.writes(numbers[0], 7);
        opens.writes(numbers[2], 7);
        opens.writes(numbers[2], 8);
        assert_eq!(opens.remove(numbers[2]), Some(opened(later, 15)));
        assert_eq!(opens.drain(), [opened(hold, 0), opened(hold, 0)]);
        assert_eq!(opens.remove(numbers[1]), None);
    }

    /// What a program wrote came through another's descriptor, which stayed open: after the first
    /// program's close nobody asked for it.
    #[test]
    fn regression_the_close_of_one_writer_tells_what_came_through_another() {
        let opens = Opens::default();
        let open = |is_for_writing| opens.add(Hold { file: FILE, losses: 0 }, is_for_writing);
        let told = |number| opens.remove(number).unwrap().written_bytes;
        let (stays, reader, writer, later) = (open(true), open(false), open(true), open(true));
        opens.writes(stays, 100);
        opens.writes(stays, 20);
        opens.wrote(stays, 100);
        assert_eq!(told(reader), 0, "who only reads has written nothing");
        assert_eq!(told(writer), 120);
        assert_eq!(told(later), 20, "what was under way at the first close");
        opens.wrote(stays, 20);
        opens.writes(stays, 3);
        opens.wrote(stays, 3);
        let (reader, writer) = (open(false), open(true));
        assert_eq!(opens.syncs(reader), 0, "it may outlive the count");
        opens.synced(writer, opens.syncs(writer));
        opens.writes(stays, 1);
        assert_eq!(told(stays), 1, "an FSYNC through another descriptor is of the whole file");
    }
}
