//! The bare disk: a file beside those of the node, past the page cache, as a program would use it
//! that does nothing else.
//!
//! Invariants: a write is timed until it is durable; the file is removed.

use super::StreamFile;
use crate::measured::Measured;
use crate::node::BenchError;
use std::fs::{OpenOptions, remove_file};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Bytes of a request in order.
const REQUEST_BYTES: usize = 1 << 20;
/// Requests in order that are under way.
const DEPTH: usize = 8;
/// Past the page cache.
const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

/// See the module.
pub(crate) struct BareDisk {
    stream: StreamFile,
    path: PathBuf,
}

impl BareDisk {
    /// A new, sparse file in `directory`.
    pub fn create(directory: &Path, bytes: u64) -> Result<Self, BenchError> {
        let path = directory.join("bench-bare.img");
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let made = options.clone().create_new(true).open(&path);
        let file = made.and_then(|file| file.set_len(bytes).map(|()| file)).map_err(failed)?;
        // A file system that knows no direct I/O has all disks of the node in the page cache, too.
        let direct = options.custom_flags(O_DIRECT).open(&path);
        let stream = StreamFile::new(direct.unwrap_or(file), bytes, REQUEST_BYTES);
        Ok(Self { stream, path })
    }

    /// Bytes a second of writing all of it in order, and making that durable.
    pub fn write(&self) -> Result<f64, BenchError> {
        bytes_per_second(self.stream.write(DEPTH))
    }

    /// Bytes a second of reading all of it in order.
    pub fn read(&self) -> Result<f64, BenchError> {
        bytes_per_second(self.stream.read(DEPTH))
    }

    /// Reads of a block anywhere, a second.
    pub fn read_random(&self, depth: usize, nanoseconds: u64) -> Result<f64, BenchError> {
        let measured = self.stream.read_random(depth, nanoseconds).map_err(failed)?;
        Ok(measured.rate())
    }
}

impl Drop for BareDisk {
    fn drop(&mut self) {
        let _ = remove_file(&self.path);
    }
}

fn bytes_per_second(measured: io::Result<Measured>) -> Result<f64, BenchError> {
    Ok(measured.map_err(failed)?.rate() * REQUEST_BYTES as f64)
}

fn failed(error: io::Error) -> BenchError {
    BenchError::System { what: "cannot use the bare disk", error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_and_read_and_leaves_nothing() {
        let directory = std::env::temp_dir().join(format!("bare-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        {
            let disk = BareDisk::create(&directory, 4 << 20).unwrap();
            assert!(disk.write().unwrap() > 0.0 && disk.read().unwrap() > 0.0);
            assert!(disk.read_random(2, 1_000_000).unwrap() > 0.0);
            let blocks = disk.path.metadata().unwrap().len() / units::BLOCK_SIZE_U64;
            assert_eq!(blocks, 1024);
        }
        std::fs::remove_dir(directory).unwrap();
    }
}
