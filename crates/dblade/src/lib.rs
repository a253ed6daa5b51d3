//! The D-blade: the engine of a node, put together (the picture of ARCHITECTURE.md).
//!
//! It owns the scheduler, the aggregates and the volumes of a node; takes file service requests,
//! finds the affinity, and runs the operations as messages; logs what they did; opens aggregates
//! after a stop or a crash, replaying what the last consistency point does not have.
//!
//! Architecture invariants:
//! - This crate knows no protocol and no wire; front ends know it as a
//!   [`file_service::FileService`].
//! - It starts no thread: messages run on the threads that send requests, on those that the owner
//!   lends to [`affinity::Scheduler::worker_loop`], and on the disks' completion threads.
//! - An operation is answered when its log record is durable, or has its place in the order
//!   ([`file_service::Durability`]).
//!
//! Fails: [`EngineError`] for administrators, [`file_service::FsError`] for clients. An aggregate
//! that cannot write goes out of service; the others go on.

#![forbid(unsafe_code)]

mod admin;
mod background;
mod change;
mod clones;
mod create;
mod data;
mod disks;
mod engine;
mod error;
mod features;
mod holds;
mod host;
mod log_copies;
mod log_places;
mod lost_log;
mod mending;
mod messages;
mod names;
mod offline;
mod open;
mod outage;
mod outages;
mod probe;
mod quotas;
mod reallocating;
mod recovery_queue;
mod replay;
mod retiring;
mod scattered;
mod scrub;
mod served;
mod service;
mod spares;
mod statistics;
mod summary;
mod tending;
mod tree_paths;
mod trees;
mod unmaking;

pub use admin::VolumeRequest;
pub use aggregate::{
    AreaChoice, AutogrowMax, Guarantee, Reallocation, SnapshotAutodelete, SnapshotSchedule,
    Tiering, TieringPolicy, Tuning, VOLUMES_MAX, VolumeChange,
};
pub use clones::CloneRequest;
pub use cowfs::image::GivenUp;
pub use cowfs::quotas::{Limits, QuotaChange, QuotaTarget};
pub use cowfs::spans::SnapshotSpans;
pub use create::{CreateAggregate, groups_of};
pub use disks::{AddDisks, Joining};
pub use engine::{
    BlockMemory, Configuration, Done, Engine, LogPlace, LogProvider, LogUnavailable, LostLog,
};
pub use error::EngineError;
pub use features::FeatureInUse;
pub use nvlog::{CopyState, CopyStatus};
pub use ondisk::quota::{QuotaKey, QuotaKind};
pub use open::Recovery;
pub use operations::quota_trees::TreeAnswer;
pub use outages::Outage;
pub use probe::Probe;
pub use retiring::{LogCopy, LogRemoval};
pub use served::{CloneOrigin, Queued, ServedVolume, VolumeKind, VolumeNames};
pub use service::Service;
pub use summary::{AggregateSummary, SnapshotSummary, VolumeSummary};
pub use volume::VolumeDamage;
pub use volume::differences::{Change, Difference, Differences, Found};
pub use volume::quota_lists::{LISTED_QUOTAS_MAX, Listed, Quota, QuotaList};
pub use volume::recovery_queue::Keeping;
pub use volume::{growth_room_blocks, new_room_blocks, room_blocks_max};

#[cfg(test)]
mod tests;
