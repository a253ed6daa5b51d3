//! Management of a node: what administrators may ask of its disks, aggregates and volumes.
//!
//! [`Management`] implements `admin_api::Administration` over the engine (`dblade`). It also does
//! what nobody has to ask for: it finds the aggregates on the disks when the node starts, opens
//! them again when their disks are back, and gives aggregates in service the disks that they miss.
//!
//! Each subject has a room (a folder or a file) with its own state. Imports between rooms run one
//! way, from the bottom of this list to its top:
//!
//! | room | what it has |
//! | --- | --- |
//! | [`ports`] | what a node gets from outside: disks, journals, front ends, its process |
//! | `waits`, `patience`, `refusals`, `pace` | waiting for the engine; its errors and figures in words |
//! | `fields`, `keeping` | texts that outlive restarts, and their files |
//! | `node` | what all rooms share: engine, clock, turn, what could not be opened |
//! | `disks` | the node's disks as such, whoever uses them |
//! | `exports`, `scrub` | export rules as they are stored; scrubs |
//! | `aggregates` | aggregates, their groups and spares |
//! | `disk_administration` | disks that are failed, replaced, zeroed, looked for |
//! | `volumes` | volumes, their snapshots and export rules |
//! | `jobs` | long work of the engine, with numbers that outlive restarts |
//! | `checks` | checks that another process makes |
//! | `recovery` | aggregates that are opened at the start, and later |
//! | `status` | health checks, the node at a glance, metrics |
//! | `events` | what has happened, in a ring that outlives restarts |
//! | `management`, `administration` | the rooms together, and the calls of administrators |
//!
//! Architecture invariant: what is above this crate (the binary, the command line) names neither
//! raid nor media nor ondisk; what a node gets from outside comes through [`ports`] and the traits
//! of `platform`, so that a simulated node is managed like a real one.
//!
//! Invariants: calls of `Administration` may block; threads that run messages of the engine never
//! make them. Changes are made one at a time, in the turn of administrators.
//!
//! Fails: by `admin_api::AdminError`, with the engine's own words as the cause.

#![forbid(unsafe_code)]

mod administration;
mod aggregates;
mod checks;
mod disk_administration;
mod disks;
mod events;
mod exports;
mod fields;
mod jobs;
mod keeping;
mod management;
mod node;
mod pace;
mod patience;
pub mod ports;
mod recovery;
mod refusals;
mod scrub;
mod status;
mod volumes;
mod waits;

pub use disks::{DiskOwner, owner_of};
pub use fields::beginning_of;
pub use management::{Management, Parts};
pub use ondisk::versions::{FORMAT_VERSION, FORMAT_VERSION_MIN};
pub use patience::Patience;
pub use ports::{
    AuditFailure, DiskSource, FrontEnds, JournalPlaces, Light, LockListTrouble, Process, Refused,
    StateFile,
};
pub use waits::{Driver, Waits};
