//! The only doors to the outside world (decision 6): clock, disk, randomness, threads and locks.
//!
//! Engine crates see the traits of this crate and nothing of the operating system. Two worlds
//! implement them: [`linux`], the real one, and [`simulated`], one thread and one seed, where every
//! completion, torn write and power cut is chosen by the seed and replays bit for bit.
//!
//! Invariants:
//! - A [`Disk`] call never blocks and never runs its completion before it returns.
//! - What a completed `flush` covers survives a power cut; anything else may be lost or torn at
//!   512-byte grain, in any order.
//! - Only `server`, `simulator`, `bench` and tests name [`linux`] or [`simulated`].

#![deny(unsafe_code)]

pub mod clock;
pub mod completion;
pub mod disk;
pub mod entropy;
pub mod linux;
#[expect(unsafe_code, reason = "advice to the kernel about pages")]
pub mod memory;
pub mod mutation;
pub mod privacy;
pub mod round;
pub mod simulated;
pub mod stage;
pub mod sync;
pub mod thread;
pub mod watched;

pub use clock::Clock;
pub use disk::{Disk, DiskError, DiskOpener, MediaHints, ReadDone, WriteDone};
pub use entropy::{Entropy, Seeded};
