//! The real world: Linux's clock, randomness, files and block devices.
//!
//! [`DiskOpener`] opens [`FileDisk`]s by path. They share an [`IoEngine`]: io_uring where the
//! kernel allows it, a few threads with `preadv` and `pwritev` elsewhere. I/O goes past the page
//! cache (`O_DIRECT`) where the file system allows it.
//!
//! [`BlockAllocator`] packs blocks densely, for servers whose memory has a cap.
//!
//! Invariants:
//! - Completions run on the engine's threads, never on the caller's.
//! - One process has a disk at a time: an advisory lock, and `O_EXCL` on block devices. A disk that
//!   is opened with [`DiskAccess::ReadBeside`] is read beside that process, and cannot be written.
//! - A completion that panics ends the process: its caller would wait for ever.
//!
//! Fails: what the operating system reports becomes a [`crate::DiskError`]; a file that is shorter
//! than it was gives `OutOfRange`.

mod activity;
#[expect(unsafe_code, reason = "an allocator of raw memory")]
mod blocks;
mod clock;
#[expect(unsafe_code, reason = "system calls on buffers by their addresses")]
mod engine;
mod file;
#[expect(unsafe_code, reason = "mallopt of the C library")]
mod heap;
mod queue;
mod scheduling;
#[expect(unsafe_code, reason = "an allocator")]
mod slab;
#[expect(unsafe_code, reason = "buffers that the kernel fills")]
mod transfer;
#[expect(unsafe_code, reason = "memory that is shared with the kernel")]
mod uring;
mod window;

#[cfg(test)]
mod tests;

pub use activity::Activity;
pub use blocks::{BLOCK_FOOTPRINT_BYTES, BlockAllocator, release_memory};
pub use clock::{SystemClock, SystemEntropy};
pub use engine::{IoEngine, IoEngineKind, completion_threads_count};
pub use file::{DiskAccess, DiskOpener, FileDisk, create_file_disk};
pub use heap::{HeapLimits, limit_heap};
pub use scheduling::{prefer_short_slices, work_in_batches};
