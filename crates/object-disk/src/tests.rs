//! The disk over stores in memory and in a directory, that fail as they are told to.
//!
//! Waits are for completions and for the store's own events, never for time.

mod exclusive;
mod faults;
mod model;
mod rig;
mod traffic;
