//! A disk that only the server can read, because it has the lease of an object range: each read is
//! a call of the server.
//!
//! Invariants: a call never blocks whoever makes it: requests wait for one of a few threads, each
//! with a connection of its own. The threads end when the disk is dropped.
//!
//! Fails: with [`DiskError::Io`] if the server cannot read, or is gone. Writes always fail.

use admin_api::check::{CHECK_READ_BLOCKS_MAX, from_hexadecimal};
use admin_api::{Administration, CheckBlocks, CheckKeep, CheckRead};
use platform::sync::{Condvar, Mutex};
use platform::thread::spawn;
use platform::{Disk, DiskError, ReadDone, WriteDone};
use std::collections::VecDeque;
use std::sync::Arc;
use units::{BLOCK_SIZE, Block, BlockRef};

/// Requests that are under way at once: a store answers late and many at a time.
const THREADS: usize = 8;

struct Request {
    block: u64,
    count: usize,
    done: ReadDone,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Request>,
    is_over: bool,
}

type Shared = Arc<(Mutex<Queue>, Condvar)>;

/// See the module.
pub(crate) struct RemoteDisk {
    name: String,
    size_blocks: u64,
    shared: Shared,
}

impl RemoteDisk {
    /// A disk of the aggregate that `keep` names; `connect` makes a way to the server.
    ///
    /// # Errors
    /// Why the server cannot read it.
    pub(crate) fn open<N: Administration + 'static>(
        name: &str,
        keep: &CheckKeep,
        connect: impl Fn() -> Arc<N>,
    ) -> Result<Self, String> {
        let shared = Shared::default();
        let first = read(&*connect(), keep, name, 0, 1)?;
        for thread in 0..THREADS {
            let (node, shared) = (connect(), Arc::clone(&shared));
            let (keep, name) = (keep.clone(), name.to_owned());
            let work = move || serve(&shared, |at, count| blocks(&*node, &keep, &name, at, count));
            spawn(&format!("remote-disk-{thread}"), work).map_err(|error| error.to_string())?;
        }
        Ok(Self { name: name.to_owned(), size_blocks: first.size_blocks, shared })
    }
}

fn read(
    node: &dyn Administration,
    keep: &CheckKeep,
    disk: &str,
    block: u64,
    count: u32,
) -> Result<CheckBlocks, String> {
    let (aggregate, number) = (keep.aggregate.clone(), keep.number);
    let request = CheckRead { aggregate, number, disk: disk.to_owned(), block, count };
    node.check_read(&request).map_err(|error| error.to_string())
}

/// Reads any number of blocks.
fn blocks(
    node: &dyn Administration,
    keep: &CheckKeep,
    disk: &str,
    mut block: u64,
    count: usize,
) -> Result<Vec<BlockRef>, DiskError> {
    let mut found = Vec::with_capacity(count);
    while found.len() < count {
        let failed = |kind: String| DiskError::Io { disk: disk.to_owned(), block, kind };
        let some = u32::try_from(count - found.len()).unwrap_or(u32::MAX);
        let some = some.min(CHECK_READ_BLOCKS_MAX);
        let answer = read(node, keep, disk, block, some).map_err(failed)?;
        let bytes = from_hexadecimal(&answer.data).unwrap_or_default();
        if bytes.len() != some as usize * BLOCK_SIZE {
            return Err(failed("the server sent something else than blocks".to_owned()));
        }
        found.extend(bytes.chunks(BLOCK_SIZE).map(|block| Arc::new(Block::from_prefix(block))));
        block += u64::from(some);
    }
    Ok(found)
}

fn serve(
    (queue, changed): &(Mutex<Queue>, Condvar),
    read: impl Fn(u64, usize) -> Result<Vec<BlockRef>, DiskError>,
) {
    let mut held = queue.lock();
    loop {
        if let Some(Request { block, count, done }) = held.requests.pop_front() {
            drop(held);
            done(read(block, count));
            held = queue.lock();
        } else if held.is_over {
            return;
        } else {
            changed.wait(&mut held);
        }
    }
}

impl Disk for RemoteDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_blocks(&self) -> u64 {
        self.size_blocks
    }

    fn read(&self, block: u64, count: usize, done: ReadDone) {
        self.shared.0.lock().requests.push_back(Request { block, count, done });
        self.shared.1.notify_one();
    }

    fn write(&self, block: u64, _: Vec<BlockRef>, done: WriteDone) {
        let (disk, kind) = (self.name.clone(), "it was opened for reading".to_owned());
        done(Err(DiskError::Io { disk, block, kind }));
    }

    fn flush(&self, done: WriteDone) {
        done(Ok(()));
    }
}

impl Drop for RemoteDisk {
    fn drop(&mut self) {
        self.shared.0.lock().is_over = true;
        self.shared.1.notify_all();
    }
}
