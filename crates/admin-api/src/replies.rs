//! What is answered: the same structures that `-o json` prints.
//!
//! Invariants: every byte of a volume's or an aggregate's space is attributed to one of the named
//! fields; fields are added, never renamed or given another meaning.

use crate::changes::LeavingGroup;
use crate::error::{AdminError, Code};
use crate::exports::ExportRule;
use crate::policies::{Guarantee, Reallocation, SnapshotAutodelete, TieringPolicy};
use crate::protection::Protection;
use crate::requests::{Owner, RaidKind};
use crate::schedules::SnapshotPolicy;
use crate::scrub::ScrubInfo;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(match self { $(Self::$variant => $word,)* })
            }
        }
    };
}

words! {
    /// The node in one word.
    Health {
        /// All checks pass.
        Ok = "OK",
        /// Something needs attention; data is served and safe for now.
        Warning = "WARNING",
        /// Something is not served, or data is at risk.
        Error = "ERROR",
    }
}
words! {
    /// How bad a failed check is.
    Severity {
        /// Worth attention.
        Warning = "warning",
        /// Service or data at risk.
        Error = "error",
    }
}
words! {
    /// What a disk is to the node.
    DiskState {
        /// Free to be used.
        Unused = "unused",
        /// Part of an aggregate.
        InUse = "in use",
        /// Holds something that is not ours.
        Foreign = "foreign",
        /// Being zeroed: to be free of what it holds, or to join an aggregate.
        Zeroing = "zeroing",
        /// Part of an aggregate, in the place of one that is gone, and not yet whole.
        Rebuilding = "rebuilding",
        /// Part of an aggregate and failed.
        Failed = "failed",
        /// Part of an aggregate and not there.
        Missing = "missing",
        /// Cannot be read.
        Unreadable = "unreadable",
    }
}
words! {
    /// What a disk holds in its RAID group.
    DiskRole {
        /// Data.
        Data = "data",
        /// Parity.
        Parity = "parity",
        /// Nothing: it waits for the place of another, or is filled to take it.
        Spare = "spare",
    }
}
words! {
    /// How an aggregate is.
    AggregateState {
        /// All disks are there.
        Online = "online",
        /// A disk is gone; data is complete.
        Degraded = "DEGRADED",
        /// Data cannot be served.
        Offline = "OFFLINE",
    }
}
words! {
    /// How a volume is.
    VolumeState {
        /// Served.
        Online = "online",
        /// Served, read-only: damage was found, say.
        ReadOnly = "READ-ONLY",
        /// Not served.
        Offline = "OFFLINE",
        /// Going: its space is being freed.
        Deleting = "deleting",
    }
}

/// A disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskInfo {
    /// The disk's name: the short one that the node gave it, for life, or its path while it has
    /// none.
    pub name: String,
    /// Its path, or what else the configuration calls it. Nothing of a disk that is not there.
    #[serde(default)]
    pub path: Option<String>,
    /// Its size.
    pub size_bytes: u64,
    /// What it is to the node.
    pub state: DiskState,
    /// The aggregate that it belongs to.
    pub aggregate: Option<String>,
    /// What it holds there.
    pub role: Option<DiskRole>,
    /// The RAID group that it is in, counted from 0.
    pub group: Option<u32>,
    /// What its medium is, as users write it: by its label, or as it tells of itself. Nothing where
    /// it cannot be read.
    #[serde(default)]
    pub media: Option<String>,
    /// What was found on a foreign disk, or why it cannot be read.
    pub note: Option<String>,
    /// Blocks that could not be read, and reads that were not answered in time, since the disk was
    /// labelled or cleared.
    pub read_errors: u64,
    /// Writes that failed, or were not answered in time, since then.
    pub write_errors: u64,
    /// Blocks that failed their proof since then.
    pub checksum_errors: u64,
    /// Whether it had so many errors that it should be replaced.
    #[serde(default)]
    pub sick: bool,
}

impl DiskInfo {
    /// A disk of which no more is known.
    #[must_use]
    pub const fn new(name: String, state: DiskState) -> Self {
        Self {
            name,
            path: None,
            size_bytes: 0,
            state,
            aggregate: None,
            role: None,
            group: None,
            media: None,
            note: None,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            sick: false,
        }
    }
}

/// How a disk shows where it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiskLocated {
    /// The disk.
    pub disk: String,
    /// Whether its enclosure has a light for it; in any case it is read every other second, which
    /// its own light shows.
    pub enclosure_light: bool,
    /// For how many seconds; 0 if no longer.
    pub seconds: u64,
}

/// An aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AggregateInfo {
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: AggregateState,
    /// What protects its first group, and groups that are added without a word about it.
    pub raid: RaidKind,
    /// How many disk failures the whole aggregate survives.
    #[serde(default)]
    pub protection: Protection,
    /// Whether it is one traditional volume.
    pub traditional: bool,
    /// Usable size, parity and identities not counted.
    pub size_bytes: u64,
    /// In use, metadata included.
    pub used_bytes: u64,
    /// Of the used: what of its volumes lies in object stores.
    #[serde(default)]
    pub tiered_bytes: u64,
    /// Of the used: the aggregate's own metadata.
    pub metadata_bytes: u64,
    /// Held back so that deleting works when all else is full.
    pub reserve_bytes: u64,
    /// Free for all volumes.
    pub free_bytes: u64,
    /// Free, and guaranteed to volumes: each has its own.
    #[serde(default)]
    pub guaranteed_bytes: u64,
    /// Bytes that were guaranteed to volumes and are not there: room was lost since.
    #[serde(default)]
    pub guarantee_lacking_bytes: u64,
    /// The sizes of its volumes together, without those in the recovery queue.
    #[serde(default)]
    pub provisioned_bytes: u64,
    /// Disks with data.
    pub data_disks: u64,
    /// Disks with parity.
    pub parity_disks: u64,
    /// RAID groups.
    pub groups: u64,
    /// Volumes, without those in the recovery queue.
    pub volumes: u64,
    /// Volumes in the recovery queue.
    #[serde(default)]
    pub deleted_volumes: u64,
    /// Of the used: the space that comes back when the volumes in the recovery queue are purged.
    #[serde(default)]
    pub deleted_bytes: u64,
    /// The number of the last consistency point.
    pub consistency_point: u64,
    /// How long it took.
    pub consistency_point_duration_ns: u64,
    /// What one half of the operation log takes: its size, or a quarter of the engine's memory.
    pub log_size_bytes: u64,
    /// How much of it the next consistency point will retire.
    pub log_used_bytes: u64,
    /// The copies of its journal, those that should be there and are not included.
    #[serde(default)]
    pub journal_copies: Vec<JournalCopy>,
    /// Damaged blocks rebuilt from parity since the start.
    pub repaired_blocks: u64,
    /// Its last scrub, or the one under way.
    pub scrub: ScrubInfo,
    /// Whether allocation areas are emptied ahead of being filled.
    #[serde(default)]
    pub area_cleaning: bool,
    /// The group that is being emptied to leave, if one is.
    #[serde(default)]
    pub leaving: Option<LeavingGroup>,
    /// Its disks.
    pub disks: Vec<DiskInfo>,
}

/// What a copy of a journal is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalCopyState {
    /// It has everything.
    Whole,
    /// It is written like the others, and has everything with the next consistency point.
    Joining,
    /// It is not written.
    Lost,
}

/// A copy of an aggregate's journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JournalCopy {
    /// Where it is: a file or a device.
    pub name: String,
    /// What it is.
    pub state: JournalCopyState,
    /// Why it is lost, if it is.
    #[serde(default)]
    pub cause: Option<String>,
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Its name.
    pub name: String,
    /// Its number within the aggregate.
    pub id: u32,
    /// The aggregate that it lives in.
    pub aggregate: String,
    /// How it is.
    pub state: VolumeState,
    /// Whether an administrator took it offline. Nothing is wrong with it then, and it comes back
    /// when it is told to.
    #[serde(default)]
    pub taken_offline: bool,
    /// Whether it is a traditional volume, an aggregate of its own.
    pub traditional: bool,
    /// Which of its blocks lie in the object stores of its aggregate.
    #[serde(default)]
    pub tiering_policy: TieringPolicy,
    /// Days after which a block is cold, where the policy heeds age.
    #[serde(default)]
    pub tiering_minimum_cooling_days: Option<u16>,
    /// Whether reads reallocate.
    #[serde(default)]
    pub reallocate: Reallocation,
    /// The size that it grows to by itself where room is short; `None` if it does not grow.
    #[serde(default)]
    pub autogrow_max_bytes: Option<u64>,
    /// The snapshots that the node takes by itself.
    #[serde(default = "SnapshotPolicy::none")]
    pub snapshot_policy: SnapshotPolicy,
    /// Which snapshots are deleted where room is short.
    #[serde(default)]
    pub snapshot_autodelete: SnapshotAutodelete,
    /// How much room its aggregate keeps for it.
    #[serde(default)]
    pub guarantee: Guarantee,
    /// What of its aggregate is free and only the volume may take.
    #[serde(default)]
    pub guaranteed_bytes: u64,
    /// Of the used: what lies in object stores.
    #[serde(default)]
    pub tiered_bytes: u64,
    /// Its size.
    pub size_bytes: u64,
    /// Used by its present files, metadata included.
    pub live_bytes: u64,
    /// Used by snapshots only.
    pub snapshot_bytes: u64,
    /// Freed by clients and not yet free in the aggregate.
    pub delayed_free_bytes: u64,
    /// Room left: the smaller of the volume's and its aggregate's.
    pub available_bytes: u64,
    /// Files and directories.
    pub files: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Who owned the root directory when it was made.
    pub owner: Owner,
    /// When it was made.
    pub created: Time,
    /// The snapshot that a clone began with; `None` if the volume is no clone.
    #[serde(default)]
    pub clone_of: Option<CloneOf>,
    /// Of the used: what a clone shares with its ancestors, which have it.
    #[serde(default)]
    pub inherited_bytes: u64,
    /// Who may mount it over NFS, in order.
    pub exports: Vec<ExportRule>,
    /// Where it is mounted on this machine.
    pub mountpoints: Vec<String>,
    /// Files that were found damaged beyond parity since the start.
    pub damaged_files: Vec<DamagedFile>,
    /// Why it takes no changes, or is not served: what it cannot live without is damaged beyond
    /// parity.
    #[serde(default)]
    pub damage: Option<String>,
    /// The feature of the format for which it takes no changes, or is not served: a newer build
    /// wrote the volume, and this build lacks the feature. Nothing is damaged.
    #[serde(default)]
    pub lacking_feature: Option<String>,
}

/// The snapshot that a clone began with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CloneOf {
    /// The volume, the clone's parent.
    pub volume: String,
    /// Its snapshot.
    pub snapshot: String,
}

/// A file of which a block that leads to its content cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DamagedFile {
    /// Its inode number.
    pub inode: u64,
    /// The block of the aggregate that cannot be read; 0 if the block is not known.
    pub block: u64,
    /// The file was removed, and at most so many bytes of it stay in use. `None`: the file is
    /// quarantined, and its content is refused with an I/O error.
    pub leaked_bytes: Option<u64>,
}

impl VolumeInfo {
    /// Bytes used by files and snapshots.
    #[must_use]
    pub const fn used_bytes(&self) -> u64 {
        self.live_bytes.saturating_add(self.snapshot_bytes)
    }
}

/// A snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// The volume.
    pub volume: String,
    /// Its name.
    pub name: String,
    /// Its number within the volume.
    pub id: u32,
    /// When it was taken.
    pub created: Time,
    /// What deleting it alone would free; `None` where that could not be counted: the volume is
    /// damaged, it took too long, or the snapshot was just taken.
    pub exclusive_bytes: Option<u64>,
    /// What deleting it together with all older ones would free.
    #[serde(default)]
    pub with_older_bytes: Option<u64>,
    /// The clones that began with it, in order of name. It cannot be deleted before they are.
    #[serde(default)]
    pub clones: Vec<String>,
    /// An administrator holds it: it cannot be deleted before it is released.
    #[serde(default)]
    pub held: bool,
}

/// What a destructive act takes with it, or would.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Removal {
    /// The full name of what goes.
    pub object: String,
    /// What goes with it, a line each: "12 snapshots", "exported to 10.0.0.0/8".
    pub consequences: Vec<String>,
    /// Space that comes back, in the background. 0 also where that is not known; a consequence says
    /// so then. Of snapshots a dry run alone tells it.
    pub freed_bytes: u64,
    /// Until when it is kept in the recovery queue, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<Time>,
    /// The volume's name in the recovery queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_as: Option<String>,
    /// Whether nothing was done.
    pub dry_run: bool,
    /// Names the plan: the deed may carry it, and is refused if another one would be carried out.
    /// Empty if the act has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub plan: String,
}

impl Removal {
    /// An act that frees no space, and has no plan that the deed could carry.
    #[must_use]
    pub const fn new(object: String, consequences: Vec<String>, dry_run: bool) -> Self {
        Self {
            object,
            consequences,
            freed_bytes: 0,
            kept_until: None,
            kept_as: None,
            dry_run,
            plan: String::new(),
        }
    }

    /// Checks that `plan` is the plan that the administrator was shown, if a plan was.
    ///
    /// # Errors
    /// `Conflict` if it is another one.
    pub fn check_plan(
        message: &str,
        object: &str,
        plan: &str,
        shown: Option<&str>,
    ) -> Result<(), AdminError> {
        if shown.is_none_or(|shown| shown == plan) {
            return Ok(());
        }
        Err(AdminError::new(Code::Conflict, message, object)
            .because("what would go has changed since it was shown; nothing was done")
            .try_next("the same command again, which shows what goes now"))
    }
}

/// A volume's export rules.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeExports {
    /// The volume.
    pub volume: String,
    /// The rules, in order.
    pub rules: Vec<ExportRule>,
}

/// What was made durable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Synced {
    /// The volumes, in order of name.
    pub volumes: Vec<String>,
}

/// A mount on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MountInfo {
    /// The volume.
    pub volume: String,
    /// The directory.
    pub mountpoint: String,
    /// Whether this machine keeps writes in its page cache and sends them later.
    #[serde(default)]
    pub write_back: bool,
    /// Why it is not there, though it is to be there until it is unmounted.
    #[serde(default)]
    pub missing: Option<String>,
}

/// A failed check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HealthCheck {
    /// A stable word for scripts: `AGGR_DEGRADED`.
    pub code: String,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub object: String,
    /// What is the case.
    pub message: String,
    /// What is being done about it.
    pub now: Vec<Activity>,
    /// What to do about it.
    pub action: String,
}

/// Something that is being done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Activity {
    /// What.
    pub what: String,
    /// How much of it is done.
    pub done_percent: u64,
    /// How fast it gets on, if that is known.
    pub bytes_per_second: Option<u64>,
    /// How long it will still take, if that is known.
    pub left_ns: Option<u64>,
}

/// Where a protocol is served.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Listener {
    /// `nfs`, `admin`.
    pub protocol: String,
    /// The address or path.
    pub address: String,
}

/// What the start had to replay from the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recovery {
    /// Operations.
    pub operations: u64,
    /// Their records' bytes.
    pub bytes: u64,
    /// In this time.
    pub duration_ns: u64,
}

/// A part of the server's memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryConsumer {
    /// Blocks that are `clean`, `dirty` or `moving` between clients, caches and disks; `spare` for
    /// blocks to come; `other` than blocks.
    pub name: String,
    /// How much.
    pub bytes: u64,
}

impl MemoryConsumer {
    /// A part of this size.
    #[must_use]
    pub fn new(name: &str, bytes: u64) -> Self {
        Self { name: name.to_owned(), bytes }
    }
}

/// The server's memory, as the operating system counts it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryUse {
    /// The cap.
    pub limit_bytes: u64,
    /// In use.
    pub used_bytes: u64,
    /// The most that was in use at one time.
    pub peak_bytes: u64,
    /// Who has it.
    pub consumers: Vec<MemoryConsumer>,
}

/// The node at a glance.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StatusReply {
    /// Version of the server.
    pub version: String,
    /// The node's name.
    pub node: String,
    /// The node in one word.
    pub health: Health,
    /// The checks that do not pass.
    pub checks: Vec<HealthCheck>,
    /// What is being done that no check is about.
    #[serde(default)]
    pub now: Vec<Activity>,
    /// Since when the server has been running.
    pub started: Time,
    /// For how long.
    pub uptime_ns: u64,
    /// What the start had to replay; `None` after a clean stop.
    pub recovery: Option<Recovery>,
    /// Memory.
    pub memory: MemoryUse,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// Its aggregates.
    pub aggregates: Vec<AggregateInfo>,
    /// How many volumes there are.
    pub volumes: u64,
    /// Those that an administrator took offline, in order of name.
    #[serde(default)]
    pub offline_volumes: Vec<String>,
    /// Mounts on this machine.
    pub mounts: Vec<MountInfo>,
    /// All metrics.
    pub metrics: telemetry::Snapshot,
}

impl StatusReply {
    /// The word that fits these checks.
    #[must_use]
    pub fn health_of(checks: &[HealthCheck]) -> Health {
        match checks.iter().map(|check| check.severity).max() {
            None => Health::Ok,
            Some(Severity::Warning) => Health::Warning,
            Some(Severity::Error) => Health::Error,
        }
    }
}
