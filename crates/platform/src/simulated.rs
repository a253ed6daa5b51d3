//! The simulated world: one thread, one seed.
//!
//! A [`SimulatedWorld`] owns a virtual clock, a source of randomness and disks. Disk requests
//! queue; nothing happens until the driver completes one, by [`SimulatedWorld::complete_one`] or,
//! chosen by the seed, by [`SimulatedWorld::step`]. A [`SimulatedWorld::power_cut`] drops what is
//! pending and keeps, loses or tears at 512-byte grain everything that no flush covers.
//!
//! Invariants:
//! - The same seed and the same calls give the same run, bit for bit: all state is in ordered
//!   maps, and every choice comes from the seed's generator.
//! - A request's effect and its completion happen together, at the completion; a completion runs
//!   with no lock held and may submit more.
//! - After a power cut or a restore, handles opened before are dead: what they submit is dropped
//!   without a completion, as on a machine without power.
//!
//! Faults are set by call ([`SimulatedWorld::fail_block`] and its like) or happen by the seed at
//! the rates of [`FaultRates`].

mod disk;
mod image;
mod perform;
mod world;

#[cfg(test)]
mod tests;

pub use disk::{FaultRates, SimulatedDisk};
pub use image::{Fate, WorldImage};
pub use world::{IoKind, PendingIo, SimulatedWorld, SubmitHook, WorldCounters};
