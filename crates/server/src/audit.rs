//! The record of changes: who had this node do what over the admin socket, and how that ended.
//!
//! Format: `audit.jsonl` in the state directory, mode 0600, a JSON object a line, with the fields
//! of [`mod@record`]. `"lost_records"` alone with a time stands for changes whose records could not be
//! written: the server's log has them.
//!
//! Invariants:
//! - A record is durable before the client has its answer, unless writing it fails.
//! - A change never fails because of its record: the change is made by then. The record goes to
//!   the server's log instead, `status` says `AUDIT_FAILED`, and the next change tries again.
//! - At most [`FILES_MAX`] files of [`FILE_BYTES_MAX`] each; the oldest records go first.
//! - A record that an error cut short is taken back. A record that a crash cut short ends with its
//!   line: the next one begins a line of its own.
//! - A record is written where it is looked for: a file that was moved away, or removed, is left
//!   alone, and another one is begun.
//! - Only changes wait for the file. [`AuditFile::failure`] never does: `status` and the watch ask
//!   it, and a state directory that hangs must not stop them.
//! - Nothing that may hold a secret is recorded ([`mod@record`]).
//!
//! Fails: never to its caller; see above.

mod record;

use admin_api::Request;
use admin_server::{Audit, Change};
use management::AuditFailure;
use platform::sync::Mutex;
use record::{lacks_a_secret, lost, record};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// The file that is written to. Older ones have a number behind it: `audit.jsonl.1` is the youngest
/// of them.
const FILE: &str = "audit.jsonl";
/// A file of this size is put aside: some 50,000 changes, and quick to search.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files in all, the one that is written to included: 80 MiB of a system's disk.
const FILES_MAX: u32 = 5;
const _: () = {
    assert!(FILE_BYTES_MAX > 2 * admin_api::frame::REQUEST_BYTES_MAX as u64, "a record fits");
    assert!(FILES_MAX >= 2);
};

/// What the file lacks.
#[derive(Default)]
struct Gap {
    /// Records that were not written since the last one that was.
    lost_records: u64,
    /// Why not.
    cause: String,
}

struct Open {
    file: File,
    size_bytes: u64,
}

impl Open {
    /// Whether the file is the one that is there: somebody may have moved it away, or removed it.
    fn is_at(&self, path: &Path) -> bool {
        let own = self.file.metadata().map(|found| (found.dev(), found.ino()));
        let found = fs::metadata(path).map(|found| (found.dev(), found.ino()));
        matches!((own, found), (Ok(own), Ok(found)) if own == found)
    }

    /// Adds a text to the file. If it cannot be written, the file is as it was: half a text, or the
    /// line of lost records without the record behind it, would be told a second time.
    fn append(
        &mut self,
        text: &str,
        write: impl FnOnce(&mut File, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        write(&mut self.file, text.as_bytes()).inspect_err(|_| {
            // A file that cannot be cut either has a line too much, and the error is told anyway.
            let _ = self.file.set_len(self.size_bytes);
        })?;
        self.size_bytes += text.len() as u64;
        Ok(())
    }
}

/// The records of a node.
pub(crate) struct AuditFile {
    directory: PathBuf,
    file_bytes_max: u64,
    /// The file, where it is open. Held while a record is written and made durable, so that records
    /// are written one after the other.
    open: Mutex<Option<Open>>,
    /// Never held over I/O. Only who holds `open` changes it.
    gap: Mutex<Gap>,
}

impl AuditFile {
    /// The records in a state directory, which may have none yet.
    pub(crate) fn new(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.to_owned(),
            file_bytes_max: FILE_BYTES_MAX,
            open: Mutex::default(),
            gap: Mutex::default(),
        }
    }

    /// Why changes are not recorded; `None` while they are.
    pub(crate) fn failure(&self) -> Option<AuditFailure> {
        let gap = self.gap.lock();
        (gap.lost_records > 0).then(|| AuditFailure {
            path: self.path().display().to_string(),
            cause: gap.cause.clone(),
            lost_records: gap.lost_records,
        })
    }

    fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// The path of an older file; the younger, the lower its number.
    fn older(&self, number: u32) -> PathBuf {
        self.directory.join(format!("{FILE}.{number}"))
    }

    /// Writes a text of whole lines and makes it durable.
    fn append(&self, held: &mut Option<Open>, text: &str) -> io::Result<()> {
        let size_bytes = text.len() as u64;
        let mut open = match held.take().filter(|open| open.is_at(&self.path())) {
            Some(open) => open,
            None => self.open()?,
        };
        if open.size_bytes > 0 && open.size_bytes + size_bytes > self.file_bytes_max {
            drop(open);
            self.put_aside()?;
            open = self.open()?;
        }
        open.append(text, |file, bytes| {
            file.write_all(bytes)?;
            file.sync_data()
        })?;
        *held = Some(open);
        Ok(())
    }

    fn open(&self) -> io::Result<Open> {
        let path = self.path();
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).mode(0o600).open(&path)?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        let mut size_bytes = file.metadata()?.len();
        if size_bytes > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
                size_bytes += 1;
            }
        }
        File::open(&self.directory)?.sync_all()?;
        Ok(Open { file, size_bytes })
    }

    /// Makes each file one older; the oldest goes.
    fn put_aside(&self) -> io::Result<()> {
        for number in (1..FILES_MAX - 1).rev() {
            match fs::rename(self.older(number), self.older(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        fs::rename(self.path(), self.older(1))
    }
}

impl Audit for AuditFile {
    fn changed(&self, change: &Change<'_>) {
        let line = record(change);
        tracing::info!(record = line.trim_end(), "a change was asked for");
        let mut open = self.open.lock();
        let lost_records = self.gap.lock().lost_records;
        let gap = (lost_records > 0).then(|| lost(change.began, lost_records));
        match self.append(&mut open, &(gap.unwrap_or_default() + &line)) {
            Ok(()) if lost_records > 0 => {
                *self.gap.lock() = Gap::default();
                tracing::info!(path = %self.path().display(), "changes are recorded again");
            }
            Ok(()) => {}
            Err(error) => {
                *self.gap.lock() = Gap { lost_records: lost_records + 1, cause: error.to_string() };
                let (path, record) = (self.path(), line.trim_end());
                tracing::error!(path = %path.display(), %error, record, "a change is not recorded");
            }
        }
    }

    fn may_hold_secret(&self, request: &Request) -> bool {
        lacks_a_secret(request)
    }
}

#[cfg(test)]
mod tests;
