//! What the bare disk does: one file, written and flushed as a log is.

use crate::node::BenchError;
use std::fs::{File, OpenOptions, remove_file};
use std::io::Write;
use std::path::Path;

/// A file for one kind of raw write, removed at the end.
pub(crate) struct RawFile {
    file: File,
    path: std::path::PathBuf,
}

impl RawFile {
    /// A new file in `directory`.
    pub fn create(directory: &Path) -> Result<Self, BenchError> {
        let path = directory.join("bench-raw.img");
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path);
        let what = "cannot make the raw file";
        let file = file.map_err(|error| BenchError::System { what, error })?;
        Ok(Self { file, path })
    }

    /// Appends `bytes`.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        let what = "cannot write the raw file";
        self.file.write_all(bytes).map_err(|error| BenchError::System { what, error })
    }

    /// Appends `bytes` and makes them durable.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), BenchError> {
        let what = "cannot write the raw file";
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_data());
        written.map_err(|error| BenchError::System { what, error })
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        let _ = remove_file(&self.path);
    }
}
