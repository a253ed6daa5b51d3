//! A reader over FUSE: files that were written and synced once, read at random and compared.
//!
//! Invariants: a file's content follows from its number and the seed.
//!
//! Fails: [`Failure::Lost`] if something else is read; [`Failure::Refused`] if a read fails while
//! the server lives.

use crate::Failure;
use crate::measure::{Class, Recorder};
use crate::pace::Pace;
use crate::random::Random;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many files; with their size, a part of the cache.
const FILES: u64 = 64;
/// Bytes of each file.
const FILE_BYTES: usize = 512 << 10;
/// Bytes of a read at most.
const READ_BYTES_MAX: u64 = 64 << 10;

/// See the module.
pub struct Reader {
    directory: PathBuf,
    contents: Vec<Vec<u8>>,
    random: Random,
    pace: Pace,
    recorder: Arc<Recorder>,
    /// Reads that were right.
    pub answered: u64,
}

impl Reader {
    /// Writes the files.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn new(
        seed: u64,
        mountpoint: &Path,
        recorder: Arc<Recorder>,
        pace: Pace,
    ) -> Result<Self, Failure> {
        let directory = mountpoint.join("read");
        fs::create_dir(&directory).map_err(Failure::at("make", &directory))?;
        let content = |number| Random::new(seed.wrapping_add(number)).bytes(FILE_BYTES);
        let contents = (0..FILES).map(content).collect();
        let random = Random::new(seed);
        let reader = Self { directory, contents, random, pace, recorder, answered: 0 };
        for (number, content) in reader.contents.iter().enumerate() {
            let path = reader.path(number);
            let write = || {
                let mut file = File::create(&path)?;
                file.write_all(content)?;
                file.sync_all()
            };
            write().map_err(Failure::at("write", &path))?;
        }
        Ok(reader)
    }

    fn path(&self, number: usize) -> PathBuf {
        self.directory.join(number.to_string())
    }

    /// Reads until the server is gone, which `is_killed` says before it is so.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn work(&mut self, is_killed: &AtomicBool) -> Result<(), Failure> {
        loop {
            self.pace.wait(1);
            let number = self.random.below(FILES) as usize;
            let length = 1 + self.random.below(READ_BYTES_MAX) as usize;
            let offset = self.random.below((FILE_BYTES - length) as u64 + 1) as usize;
            let mut data = vec![0; length];
            match self.read(number, offset, &mut data) {
                Ok(()) if data == self.contents[number][offset..offset + length] => {
                    self.answered += 1;
                }
                Ok(()) => return Err(Self::wrong(number, offset, length)),
                Err(_) if is_killed.load(Ordering::SeqCst) => return Ok(()),
                Err(error) => {
                    return Err(Failure::Refused {
                        worker: "reader".to_owned(),
                        operation: format!("read {}", self.path(number).display()),
                        reason: error.to_string(),
                    });
                }
            }
        }
    }

    fn read(&self, number: usize, offset: usize, data: &mut [u8]) -> io::Result<()> {
        let file = File::open(self.path(number))?;
        self.recorder.time(Class::FuseRead, || file.read_exact_at(data, offset as u64))
    }

    fn wrong(number: usize, offset: usize, length: usize) -> Failure {
        let what = format!("file {number}: {length} bytes at {offset} are not what was written");
        Failure::Lost { who: "reader".to_owned(), what }
    }

    /// Compares all of it.
    ///
    /// # Errors
    /// [`Failure::Lost`].
    pub fn verify(&self) -> Result<(), Failure> {
        for (number, content) in self.contents.iter().enumerate() {
            let path = self.path(number);
            if fs::read(&path).map_err(Failure::at("read", &path))? != *content {
                return Err(Self::wrong(number, 0, FILE_BYTES));
            }
        }
        Ok(())
    }
}
