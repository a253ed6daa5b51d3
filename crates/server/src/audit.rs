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
//! - A record that a crash cut short ends with its line: the next one begins a line of its own.
//! - Nothing that may hold a secret is recorded ([`mod@record`]).
//!
//! Fails: never to its caller; see above.

mod record;

use admin_server::{Audit, Change};
use management::AuditFailure;
use platform::sync::Mutex;
use record::{lost, record};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use units::Timestamp;

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

/// The file, where it is open.
#[derive(Default)]
struct State {
    open: Option<Open>,
    /// Records that were not written since the last one that was.
    lost_records: u64,
    /// Why not.
    cause: String,
}

struct Open {
    file: File,
    size_bytes: u64,
}

/// The records of a node.
pub(crate) struct AuditFile {
    directory: PathBuf,
    file_bytes_max: u64,
    state: Mutex<State>,
}

impl AuditFile {
    /// The records in a state directory, which may have none yet.
    pub(crate) fn new(state_directory: &Path) -> Self {
        Self {
            directory: state_directory.to_owned(),
            file_bytes_max: FILE_BYTES_MAX,
            state: Mutex::default(),
        }
    }

    /// Why changes are not recorded; `None` while they are.
    pub(crate) fn failure(&self) -> Option<AuditFailure> {
        let state = self.state.lock();
        (state.lost_records > 0).then(|| AuditFailure {
            path: self.path().display().to_string(),
            cause: state.cause.clone(),
            lost_records: state.lost_records,
        })
    }

    fn path(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// The path of an older file; the younger, the lower its number.
    fn older(&self, number: u32) -> PathBuf {
        self.directory.join(format!("{FILE}.{number}"))
    }

    fn append(&self, state: &mut State, now: Timestamp, line: &str) -> io::Result<()> {
        let mut text = String::new();
        if state.lost_records > 0 {
            text.push_str(&lost(now, state.lost_records));
        }
        text.push_str(line);
        let size_bytes = text.len() as u64;
        let mut open = match state.open.take() {
            Some(open) => open,
            None => self.open()?,
        };
        if open.size_bytes > 0 && open.size_bytes + size_bytes > self.file_bytes_max {
            drop(open);
            self.put_aside()?;
            open = self.open()?;
        }
        open.file.write_all(text.as_bytes())?;
        open.file.sync_data()?;
        open.size_bytes += size_bytes;
        state.open = Some(open);
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
        let (uid, pid) = (change.peer.uid, change.peer.pid);
        let (command, result) = (change.request.name(), record::result(change));
        tracing::info!(uid, pid, command, result, "a change was asked for");
        let mut state = self.state.lock();
        match self.append(&mut state, change.began, &line) {
            Ok(()) if state.lost_records > 0 => {
                tracing::info!(path = %self.path().display(), "changes are recorded again");
                (state.lost_records, state.cause) = (0, String::new());
            }
            Ok(()) => {}
            Err(error) => {
                state.lost_records += 1;
                state.cause = error.to_string();
                let (path, record) = (self.path(), line.trim_end());
                tracing::error!(path = %path.display(), %error, record, "a change is not recorded");
            }
        }
    }
}

#[cfg(test)]
mod tests;
