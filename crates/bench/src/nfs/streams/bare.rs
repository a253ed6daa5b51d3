//! The bare disk: a file beside those of the node, past the page cache, as a program would use it
//! that does nothing else.
//!
//! Invariants: a write is timed until it is durable; the file is removed.

use crate::node::BenchError;
use crate::numbers::Numbers;
use platform::Clock as _;
use platform::linux::SystemClock;
use platform::thread::spawn;
use rustix::io::{preadv, pwritev};
use std::fs::{File, OpenOptions, remove_file};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use units::BLOCK_SIZE_U64;

/// Blocks of a request in order.
const REQUEST_BLOCKS: u64 = 256;
/// Requests in order that are under way.
const DEPTH: usize = 8;

/// Moves the blocks of a request that has this number; how many bytes it moved.
trait Request:
    Fn(&File, u64, &mut [Page]) -> rustix::io::Result<usize> + Send + Sync + 'static
{
}

impl<F> Request for F where
    F: Fn(&File, u64, &mut [Page]) -> rustix::io::Result<usize> + Send + Sync + 'static
{
}

/// Several of them are one buffer.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_SIZE_U64 as usize]);

impl Page {
    const ZEROS: Self = Self([0; BLOCK_SIZE_U64 as usize]);
}

/// See the module.
pub(super) struct BareDisk {
    file: Arc<File>,
    path: PathBuf,
    bytes: u64,
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
        Ok(Self { file: Arc::new(direct.unwrap_or(file)), path, bytes })
    }

    /// Bytes a second of writing all of it in order, and making that durable.
    pub fn write(&self) -> Result<f64, BenchError> {
        // Not all the same, so that nothing is gained by noticing.
        let block = |number: u64| {
            let mut page = Page::ZEROS;
            page.0[..64].fill(number as u8);
            page
        };
        let blocks: Arc<Vec<Page>> = Arc::new((0..REQUEST_BLOCKS).map(block).collect());
        let write = move |file: &File, at: u64, _: &mut [Page]| {
            let slices: Vec<_> = blocks.iter().map(|block| IoSlice::new(&block.0)).collect();
            pwritev(file, &slices, at * REQUEST_BLOCKS * BLOCK_SIZE_U64)
        };
        self.in_order(write, true)
    }

    /// Bytes a second of reading all of it in order.
    pub fn read(&self) -> Result<f64, BenchError> {
        let read = |file: &File, at: u64, blocks: &mut [Page]| {
            read_blocks(file, at * REQUEST_BLOCKS, blocks)
        };
        self.in_order(read, false)
    }

    fn in_order(&self, request: impl Request, is_made_durable: bool) -> Result<f64, BenchError> {
        let count = self.bytes / BLOCK_SIZE_U64 / REQUEST_BLOCKS;
        let (next, request) = (AtomicU64::new(0), Arc::new(request));
        let next = Arc::new(next);
        let body = move |file: &File, _| {
            let mut blocks = vec![Page::ZEROS; REQUEST_BLOCKS as usize];
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= count {
                    return Ok(0);
                }
                let moved = request(file, at, &mut blocks)?;
                if moved as u64 != REQUEST_BLOCKS * BLOCK_SIZE_U64 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        };
        let begin = SystemClock.monotonic_nanoseconds();
        self.with_threads(DEPTH, body)?;
        if is_made_durable {
            self.file.sync_data().map_err(failed)?;
        }
        let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
        Ok((count * REQUEST_BLOCKS * BLOCK_SIZE_U64) as f64 * 1e9 / nanoseconds as f64)
    }

    /// Reads of a block anywhere, a second.
    pub fn read_random(&self, depth: usize, nanoseconds: u64) -> Result<f64, BenchError> {
        let blocks = self.bytes / BLOCK_SIZE_U64;
        let begin = SystemClock.monotonic_nanoseconds();
        let body = move |file: &File, number: u64| {
            let (mut numbers, mut block) = (Numbers::new(number), [Page::ZEROS]);
            let mut count = 0;
            // One at the least: a thread may begin late.
            loop {
                read_blocks(file, numbers.next(blocks), &mut block)?;
                count += 1;
                if SystemClock.monotonic_nanoseconds() - begin >= nanoseconds {
                    return Ok(count);
                }
            }
        };
        let count = self.with_threads(depth, body)?;
        let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
        Ok(count as f64 * 1e9 / nanoseconds as f64)
    }

    /// Runs `body` on `count` threads, each with a number of its own; the sum of their results.
    fn with_threads(
        &self,
        count: usize,
        body: impl Fn(&File, u64) -> io::Result<u64> + Send + Sync + 'static,
    ) -> Result<u64, BenchError> {
        let body = Arc::new(body);
        let start = |number: u64| {
            let (body, file) = (Arc::clone(&body), Arc::clone(&self.file));
            spawn("bare-disk", move || body(&file, number))
        };
        let threads: Result<Vec<_>, _> = (1..=count as u64).map(start).collect();
        let mut sum = 0;
        for thread in threads.map_err(failed)? {
            let ended = thread.join().map_err(|_| io::Error::other("a thread panicked"));
            sum += ended.flatten().map_err(failed)?;
        }
        Ok(sum)
    }
}

impl Drop for BareDisk {
    fn drop(&mut self) {
        let _ = remove_file(&self.path);
    }
}

/// Past the page cache.
const O_DIRECT: i32 = rustix::fs::OFlags::DIRECT.bits() as i32;

fn failed(error: io::Error) -> BenchError {
    BenchError::System { what: "cannot use the bare disk", error }
}

fn read_blocks(file: &File, at: u64, blocks: &mut [Page]) -> rustix::io::Result<usize> {
    let mut slices: Vec<_> = blocks.iter_mut().map(|block| IoSliceMut::new(&mut block.0)).collect();
    preadv(file, &mut slices, at * BLOCK_SIZE_U64)
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
            let mut block = [Page::ZEROS];
            read_blocks(&disk.file, REQUEST_BLOCKS + 3, &mut block).unwrap();
            assert_eq!(block[0].0[..64], [3; 64]);
        }
        std::fs::remove_dir(directory).unwrap();
    }
}
