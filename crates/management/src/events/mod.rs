//! Events: what happens to disks, aggregates and long work, in the order in which it is seen.
//!
//! Once a second, and around calls that begin or end work, the room looks at the engine, and
//! compares with what it knew: the health checks that do not pass ([`conditions`]), the disks of
//! each aggregate ([`disks`]), the jobs that began and ended ([`works`]), the sizes of volumes that
//! grow ([`growth`]), the limits that users come to ([`quotas`]). What differs has happened. It
//! goes into a ring ([`ring`]) and into the log; a file keeps the ring and what was known
//! ([`stored`]), so that a restart neither repeats nor loses what came before (decision 39).
//!
//! Codes are an interface: scripts match on them, so one is added, never renamed.
//!
//! | code | means |
//! | --- | --- |
//! | `SERVER_STARTED`, `SERVER_STOPPED` | the server; a warning if the one before ended without a stop |
//! | `EVENTS_DAMAGED` | entries of the file of events could not be read |
//! | `JOBS_DAMAGED` | the file of jobs could not be used |
//! | `AGGR_OPENED` | an aggregate came into service, and what was replayed |
//! | `AGGR_NOT_FOUND` | no disk of an aggregate is there any more that was known before |
//! | `AGGR_DELETED` | an administrator deleted an aggregate |
//! | `JOURNAL_REPLACED` | the journal of an aggregate was lost, and a new one was made |
//! | `DISK_MISSING` | a disk of an aggregate left, or was not found at the start |
//! | `DISK_FAILED` | a disk failed, or an administrator failed it |
//! | `DISK_RETURNED` | such a disk is there again, or was taken back |
//! | `DISK_REPLACED` | another disk has the place of a disk |
//! | `DISK_ERRORS` | a disk had errors; what was wrong was made good from parity where it could |
//! | `DISK_SICK`, `DISK_SICK_CLEARED` | a disk has had too many errors; or they were forgotten |
//! | `SPARE_TAKEN` | a spare has the place of a disk, or is filled to take it |
//! | `SPARE_GONE` | a disk is no spare any more, and has no place |
//! | `VOLUME_GREW` | a volume has grown by itself |
//! | `SNAPSHOT_AUTODELETED` | a volume has deleted snapshots by itself, for want of room |
//! | `QUOTA_SOFT_PASSED` | a user, a group or a tree uses more than a soft limit; once an hour |
//! | `QUOTA_REFUSED` | an operation would have passed a hard limit, and was refused; once an hour |
//! | `SCRUB_STARTED`, `_ENDED`, `_FAILED`, `_CANCELLED` | a job; so, too, for `REBUILD`, `RESYNC`, `REPLACEMENT`, `EVACUATION`, `ZEROING`, `GROWTH`, `DELETION` |
//! | each code of a health check | the check does not pass any more (`status/health.rs`) |
//! | the same with `_CLEARED` | the check passes again |
//!
//! Invariants:
//! - The engine is only asked, and nothing waits for it.
//! - No thread of the engine, and no call of an administrator, waits for the file.
//! - Of an aggregate that is not in sight nothing is said to have changed.
//! - What is told has its number for good: events are listed when the file has them.
//!
//! Fails: never. A file that cannot be read costs what is damaged of it, never the start, and is
//! kept aside; one that cannot be written is tried again every second, and events are listed
//! meanwhile.

mod conditions;
mod disks;
mod growth;
mod quotas;
mod ring;
mod room;
mod stored;
mod works;

pub(crate) use room::Events;
