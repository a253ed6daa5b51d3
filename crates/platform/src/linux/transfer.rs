//! One request on its way through the kernel, in as many system calls as it takes.
//!
//! Invariants: the buffers belong to the transfer from its making to its end, so the kernel never
//! writes to memory that someone else has; `moved_bytes` only grows; the completion runs once,
//! after the transfer has let go of the file.

use crate::linux::file::DiskFile;
use crate::linux::window::Admission;
use crate::stage::{self, Queue, Stage};
use crate::{DiskError, ReadDone, WriteDone};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, BlockRef, UnwrittenBlock};

/// Buffers in one system call: the kernel's own limit (`UIO_MAXIOV`).
const VECTORS_MAX: usize = 1024;
/// The finest alignment of direct I/O anywhere.
const SECTOR_BYTES: usize = 512;

pub(super) enum Body {
    /// The blocks hold nothing before the kernel has filled them.
    Read {
        blocks: Vec<UnwrittenBlock>,
        done: ReadDone,
    },
    /// `durable`: each call returns when what it wrote is durable.
    Write {
        blocks: Vec<BlockRef>,
        durable: bool,
        done: WriteDone,
    },
    Flush {
        done: WriteDone,
    },
}

/// A request under way.
pub(super) struct Transfer {
    file: Arc<DiskFile>,
    first_block: u64,
    body: Body,
    moved_bytes: usize,
    /// How it passed its device's window.
    admission: Admission,
    /// Whether the call under way is direct I/O: then it is owed a retry without.
    is_direct: bool,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the raw pointers in `vectors` lead to blocks that `body` owns and that do not move;
// they are used by one thread at a time, the one that owns the transfer, and by the kernel.
unsafe impl Send for Transfer {}

/// What the kernel is to be asked next. The pointers are good until the transfer is touched again.
pub(super) enum Call {
    Read { descriptor: i32, vectors: *const libc::iovec, count: u32, offset: u64 },
    Write { descriptor: i32, vectors: *const libc::iovec, count: u32, offset: u64, flags: i32 },
    Flush { descriptor: i32 },
}

/// What follows from an answer.
pub(super) enum Progress {
    /// Ask again.
    Again,
    /// It is over.
    Over(Result<(), DiskError>),
}

impl Transfer {
    pub(super) fn read(
        file: Arc<DiskFile>,
        first_block: u64,
        count: usize,
        done: ReadDone,
    ) -> Self {
        let mut blocks: Vec<_> = std::iter::repeat_with(UnwrittenBlock::new).take(count).collect();
        // Blocks that were given back together lie together: in the order of their addresses they
        // are fewer pieces for the device.
        blocks.sort_unstable_by_key(|block| block.address());
        Self::new(file, first_block, Body::Read { blocks, done })
    }

    pub(super) fn write(
        file: Arc<DiskFile>,
        first_block: u64,
        blocks: Vec<BlockRef>,
        durable: bool,
        done: WriteDone,
    ) -> Self {
        Self::new(file, first_block, Body::Write { blocks, durable, done })
    }

    pub(super) fn flush(file: Arc<DiskFile>, done: WriteDone) -> Self {
        Self::new(file, 0, Body::Flush { done })
    }

    fn new(file: Arc<DiskFile>, first_block: u64, body: Body) -> Self {
        let (moved_bytes, admission, is_direct) = (0, Admission::default(), false);
        Self { file, first_block, body, moved_bytes, admission, is_direct, vectors: Vec::new() }
    }

    /// Whether it needs no system call at all: a read or write of nothing.
    pub(super) fn is_empty(&self) -> bool {
        match &self.body {
            Body::Read { blocks, .. } => blocks.is_empty(),
            Body::Write { blocks, .. } => blocks.is_empty(),
            Body::Flush { .. } => false,
        }
    }

    /// Blocks that it moves.
    pub(super) fn block_count(&self) -> usize {
        match &self.body {
            Body::Read { blocks, .. } => blocks.len(),
            Body::Write { blocks, .. } => blocks.len(),
            Body::Flush { .. } => 0,
        }
    }

    /// Whether it counts for its device's window: a write that nobody outside waits for.
    fn is_windowed(&self) -> bool {
        matches!(&self.body, Body::Write { blocks, durable: false, .. } if !blocks.is_empty())
    }

    /// Where it is counted while it is in the device; what passes a window is counted there.
    const fn queue(&self) -> Option<Queue> {
        match &self.body {
            Body::Read { .. } => Some(Queue::DeviceReads),
            Body::Write { durable: true, .. } => Some(Queue::DurableWrites),
            Body::Write { .. } => None,
            Body::Flush { .. } => Some(Queue::DeviceFlushes),
        }
    }

    /// It is on its way to the device. It has to pass [`Self::release`] later.
    pub(super) fn begin(&self) {
        let Some(queue) = self.queue() else { return };
        queue.add(1);
        if queue != Queue::DeviceFlushes {
            self.file.window.begin_urgent();
        }
    }

    /// It is over.
    fn end(&self) {
        let Some(queue) = self.queue() else { return };
        queue.add(-1);
        if queue != Queue::DeviceFlushes {
            self.file.window.end_urgent();
        }
    }

    /// Passes its device's window, or stays there.
    pub(super) fn admit(self) -> Option<Self> {
        if !self.is_windowed() {
            return Some(self);
        }
        let file = Arc::clone(&self.file);
        file.window.admit(self)
    }

    /// Leaves its device, when it is over, and the device's window: what enters instead.
    pub(super) fn release(&self) -> Vec<Self> {
        self.end();
        if !self.is_windowed() {
            return Vec::new();
        }
        self.file.window.release(self.block_count(), self.admission)
    }

    /// It passes its device's window.
    pub(super) const fn note_admission(&mut self, admission: Admission) {
        self.admission = admission;
    }

    /// Whether it is to be durable at its end.
    pub(super) fn is_durable_write(&self) -> bool {
        matches!(self.body, Body::Write { durable: true, .. })
    }

    /// The system call that comes next.
    pub(super) fn next_call(&mut self) -> Call {
        let descriptor = self.file.file.as_raw_fd();
        let offset = self.first_block * BLOCK_SIZE_U64 + self.moved_bytes as u64;
        let (skipped, within) = (self.moved_bytes / BLOCK_SIZE, self.moved_bytes % BLOCK_SIZE);
        self.is_direct = self.file.is_direct();
        self.vectors.clear();
        match &mut self.body {
            Body::Flush { .. } => return Call::Flush { descriptor },
            Body::Read { blocks, .. } => {
                for block in blocks.iter_mut().skip(skipped).take(VECTORS_MAX) {
                    append(&mut self.vectors, block.as_mut_ptr());
                }
            }
            Body::Write { blocks, .. } => {
                for block in blocks.iter().skip(skipped).take(VECTORS_MAX) {
                    append(&mut self.vectors, block.bytes().as_ptr().cast_mut());
                }
            }
        }
        if let Some(first) = self.vectors.first_mut() {
            // SAFETY: `within` is less than a block, so the pointer stays inside of its block.
            first.iov_base = unsafe { first.iov_base.cast::<u8>().add(within) }.cast();
            first.iov_len -= within;
        }
        let (vectors, count) = (self.vectors.as_ptr(), self.vectors.len() as u32);
        match self.body {
            Body::Read { .. } => Call::Read { descriptor, vectors, count, offset },
            Body::Write { durable: true, .. } => {
                Call::Write { descriptor, vectors, count, offset, flags: libc::RWF_DSYNC }
            }
            _ => Call::Write { descriptor, vectors, count, offset, flags: 0 },
        }
    }

    /// Takes the kernel's answer: bytes moved, or a negative error number.
    pub(super) fn advance(&mut self, answer: i64) -> Progress {
        let Ok(moved) = usize::try_from(answer) else {
            return self.advance_after_error(i32::try_from(-answer).unwrap_or(libc::EIO));
        };
        let (total, reads) = match &self.body {
            Body::Read { blocks, .. } => (blocks.len() * BLOCK_SIZE, true),
            Body::Write { blocks, .. } => (blocks.len() * BLOCK_SIZE, false),
            Body::Flush { .. } => return Progress::Over(self.lasting()),
        };
        self.moved_bytes += moved;
        assert!(self.moved_bytes <= total, "the kernel moved more than it was asked");
        if self.moved_bytes == total {
            let lasts = if self.is_durable_write() { self.lasting() } else { Ok(()) };
            return Progress::Over(lasts);
        }
        // Only the end of the file stops a read short of a sector.
        if reads && (moved == 0 || !self.moved_bytes.is_multiple_of(SECTOR_BYTES)) {
            return Progress::Over(Err(self.file.out_of_range(self.first_block)));
        }
        if moved == 0 {
            return Progress::Over(Err(self.file.io_error(self.first_block, "wrote nothing")));
        }
        Progress::Again
    }

    /// What is durable in a file counts if the next start finds the file. It is looked at after the
    /// kernel is done, so that nothing is acknowledged that went into a file without its name. That
    /// costs a microsecond or two, a durable write some twenty at the least.
    fn lasting(&self) -> Result<(), DiskError> {
        if self.file.has_left() {
            return Err(DiskError::Gone { disk: self.file.name.clone() });
        }
        Ok(())
    }

    fn advance_after_error(&self, number: i32) -> Progress {
        match number {
            libc::EINTR | libc::EAGAIN => Progress::Again,
            // Direct I/O of this device wants more than 512-byte alignment: go without.
            libc::EINVAL if self.is_direct && self.file.leave_direct() => Progress::Again,
            libc::ENODEV | libc::ENXIO => {
                Progress::Over(Err(DiskError::Gone { disk: self.file.name.clone() }))
            }
            _ => {
                let kind = io::Error::from_raw_os_error(number).to_string();
                Progress::Over(Err(self.file.io_error(self.first_block, &kind)))
            }
        }
    }

    /// Tells the owner. The file is let go first: an owner that reopens the disk finds it free.
    pub(super) fn finish(self, result: Result<(), DiskError>) {
        let _stage = stage::enter(Stage::Complete);
        let Self { file, body, .. } = self;
        drop(file);
        match body {
            Body::Read { blocks, done } => {
                // SAFETY: a read is successful when the kernel has moved all bytes of all blocks.
                let filled = |block: UnwrittenBlock| Arc::new(unsafe { block.assume_written() });
                done(result.map(|()| blocks.into_iter().map(filled).collect()));
            }
            Body::Write { blocks, done, .. } => {
                drop(blocks);
                done(result);
            }
            Body::Flush { done } => done(result),
        }
    }
}

/// Appends a block to what a call moves. One that lies right behind the last is one piece with it.
fn append(vectors: &mut Vec<libc::iovec>, base: *mut u8) {
    if let Some(last) = vectors.last_mut()
        && last.iov_base.addr() + last.iov_len == base.addr()
    {
        last.iov_len += BLOCK_SIZE;
        return;
    }
    vectors.push(libc::iovec { iov_base: base.cast(), iov_len: BLOCK_SIZE });
}
