//! The aggregate in service: what its parts share, what waits, and what begins a consistency point.
//!
//! [`aggregate`] is the aggregate, [`member`] what it knows of a volume, [`state`] where its
//! consistency points are, [`action`] what may be asked of a freeze, [`guarantees`] the room that
//! it keeps for volumes. Its methods on the way to a consistency point are in [`requests`], those
//! at its end in service in [`failure`], those of messages that wait for blocks in [`loads`].
//!
//! Invariants: the room knows of the rooms above it what [`aggregate::Routines`] names, and no
//! more.

pub mod action;
pub mod aggregate;
mod failure;
pub mod guarantees;
mod loads;
pub mod member;
pub mod pins;
mod requests;
pub mod state;
pub mod statistics;
pub(crate) use failure::MemoryHolder;
