//! What an administrator can ask of a node: requests, replies, errors, and the one trait that the
//! node implements.
//!
//! The table in [`administration`] is the whole interface: the trait, the messages on the wire, the
//! dispatcher of the server and the proxy of the client all come from it. `admin-server` carries
//! it over a socket, `cli` shows it, `server` implements it over the engine, and the module
//! `memory` (feature `testing`) implements it without one, so that each can be tested without the
//! others.
//!
//! Architecture invariant: this crate opens no socket and no file, and knows no engine crate.
//!
//! Invariants:
//! - Sizes are bytes, durations nanoseconds, both integers; times are RFC 3339 ([`Time`]).
//! - A request that reaches an implementation has passed its [`Validate`]: names are well formed
//!   and sizes within limits.
//! - An error names the object, the cause and the next step ([`AdminError`]).
//!
//! Fails: by [`AdminError`]; its [`Code`] decides the exit status of the command line.

#![forbid(unsafe_code)]

pub mod administration;
pub mod area_map;
pub mod changes;
pub mod check;
pub mod creation;
pub mod differences;
pub mod duration;
mod effect;
pub mod error;
pub mod events;
pub mod exports;
pub mod features;
pub mod frame;
pub mod jobs;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
pub mod names;
pub mod policies;
pub mod protection;
pub mod quotas;
pub mod rate;
pub mod recovery_queue;
pub mod replies;
pub mod requests;
pub mod schedules;
pub mod scrub;
pub mod space;
pub mod splits;
pub mod time;
pub mod titles;

pub use administration::{Administration, Remote, Reply, Request, Transport, dispatch};
pub use area_map::{AREA_CELLS_MAX, AggregateMap, AreaCell, GroupAreas, MapShow};
pub use changes::{
    AggregateDelete, AggregateOnline, AggregateSet, GroupRemove, LeavingGroup, VolumeOffline,
    VolumeRename, VolumeResize, VolumeSet,
};
pub use check::{CheckBegun, CheckBlocks, CheckHeld, CheckKeep, CheckPin, CheckRead, CheckedState};
pub use creation::{CloneCreate, VolumeCreate};
pub use differences::{FileChange, FileDifference, SnapshotDiff, SnapshotDifferences};
pub use error::{AdminError, Code};
pub use events::{EVENTS_MAX, Event, EventList, EventSeverity};
pub use exports::{Access, ExportRule, Network, Squash, matching_rule};
pub use features::{
    AggregateFeatures, FeatureClass, FeatureScope, FeatureUse, KnownFeature, UpgradeReport,
};
pub use jobs::{JobAction, JobChange, JobInfo, JobKind, JobName, JobState};
pub use policies::{
    Guarantee, Reallocation, SnapshotAutodelete, TieringPolicy, parse_autogrow_max,
};
pub use protection::Protection;
pub use quotas::{
    QuotaDelete, QuotaInfo, QuotaKind, QuotaLimits, QuotaList, QuotaReport, QuotaSet, QuotaState,
};
pub use rate::{RATE_BYTES_MIN, RateLimit};
pub use recovery_queue::{DeletedVolume, VolumeDelete, VolumePurge, VolumeUndelete};
pub use replies::{
    Activity, AggregateInfo, AggregateState, CloneOf, DamagedFile, DiskInfo, DiskLocated, DiskRole,
    DiskState, Health, HealthCheck, JournalCopy, JournalCopyState, Listener, MemoryConsumer,
    MemoryUse, MountInfo, Recovery, Removal, Severity, SnapshotInfo, StatusReply, Synced,
    VolumeExports, VolumeInfo, VolumeState,
};
pub use requests::{
    AggregateAdd, AggregateCreate, DiskClear, DiskFail, DiskLocate, DiskReplace, DiskZero,
    ExportAdd, ExportRemove, GROUP_DISKS_MAX, LOCATE_SECONDS_MAX, MountCreate, MountRemove, Named,
    Owner, RaidKind, SnapshotDelete, SnapshotHold, SnapshotName, SnapshotRestore, SpareAdd,
    SpareRemove, Validate, VolumeFilter,
};
pub use schedules::{Schedule, SnapshotPolicy};
pub use scrub::{ScrubAction, ScrubChange, ScrubInfo, ScrubState};
pub use space::{AggregateSpace, VolumeShare, VolumeSpace};
pub use splits::{CloneSplit, SplitInfo};
pub use time::Time;
