//! Models of devices for tests and benches: what a layout of writes costs on media of each kind
//! (FreeSpace sections 2.6, 3.2 and 4.3), and a device that fails on demand.
//!
//! Each is a [`platform::Disk`] around another, which keeps the content:
//!
//! | model | answers |
//! | --- | --- |
//! | [`SsdModel`] | how many pages does the flash translation layer relocate? |
//! | [`SmrModel`] | which writes stream, which go to the media cache, what is rewritten for them? |
//! | [`HddModel`] | how often does the head move, and what does it cost? |
//! | [`FailingDisk`] | what does the engine do with bad blocks, a hanging disk, a lost one? |
//!
//! Invariants:
//! - What is read is what the inner disk holds: a model counts, it never changes content.
//! - Nothing sleeps and nothing is drawn by chance: the same calls in the same order give the same
//!   figures. Time is modelled, in nanoseconds, as the device's own busy time.
//! - A request is counted when it is submitted, whole, in the order of submission, but where a
//!   model has a write cache; one that reaches past the end of the disk is left to the inner disk
//!   and costs nothing.
//!
//! Does not know: labels, RAID, files; nor does anything that serves data know it.
//!
//! Fails: a configuration that no device could have panics when the model is made.

#![forbid(unsafe_code)]

mod failing;
mod flash;
mod hdd;
mod log_blocks;
mod mechanics;
mod modelled;
mod ranges;
mod shingled;
mod smr;
mod ssd;
mod write_cache;

#[cfg(test)]
mod tests;

pub use failing::{FailingDisk, Failures, Hang};
pub use flash::{FlashSizes, FlashStep, FlashTranslation};
pub use hdd::{HddModel, HddStatistics};
pub use log_blocks::LogBlockTranslation;
pub use mechanics::{HddConfiguration, Mechanics, Motion};
pub use modelled::{Medium, Modelled};
pub use shingled::{CleaningPolicy, ShingledLayout, ShingledSizes, ShingledStep, Source};
pub use smr::{SmrConfiguration, SmrModel, SmrStatistics};
pub use ssd::{FlashMapping, SsdConfiguration, SsdModel, SsdStatistics};
pub use write_cache::WriteCache;
