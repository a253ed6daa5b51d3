//! A naive reference for randomized checking of file systems behind `FileService`.
//!
//! Nothing of the engine is here: the reference is the memory backend of `file-service`, and the
//! thing under test is any other service. The parts, each usable alone:
//!
//! | part | what it does |
//! | --- | --- |
//! | [`Operation`] | one call, its files named by slots, from a small domain; generated from a stream of numbers, hence also a proptest strategy that shrinks |
//! | [`Executor`] | runs operations on a service and yields canonical [`Observation`]s |
//! | [`Runner`], [`compare_step`] | the same sequence on the [`Model`] and on a [`Subject`], answers compared |
//! | [`Image`] | a whole tree: names, attributes, data, extended attributes; `difference` in words |
//! | [`crash`] | whether an image found after a restart is one that the history allows |
//!
//! Invariants:
//! - Deterministic: the same numbers give the same operations, and the model the same answers.
//! - Observations hold nothing that two right services may answer differently: inode numbers and
//!   generations become numbers in the order of first sight, cookies disappear, times are seen
//!   only where a caller set them.
//! - A service that breaks the trait's contract (no answer, cookies that do not ascend, more bytes
//!   than asked for) yields [`Observation::Broken`], which equals nothing.
//!
//! Fails: [`Mismatch`], [`crash::CrashViolation`], with what was expected and found. Waiting for an
//! answer ends after [`answer::DRIVES_MAX`] turns.

#![forbid(unsafe_code)]

pub mod answer;
pub mod build;
pub mod compare;
pub mod crash;
pub mod executor;
pub mod generate;
pub mod image;
mod listing;
pub mod model;
pub mod observation;
pub mod operation;
#[cfg(test)]
mod tests;

pub use compare::{Mismatch, Runner, Tolerance, compare_images, compare_run, compare_step};
pub use executor::{Executor, ExecutorState, Pending};
pub use generate::{Mix, Numbers, operation_strategy};
pub use image::{Difference, Image, ImageError, ImageNode};
pub use model::{Model, PlainSubject, Subject};
pub use observation::{FileView, Observation};
pub use operation::{Guard, Name, Operation, Slot, SnapshotAction, Who};
