//! How long operations took, by class, and what the server's process and its status say, once an
//! interval.
//!
//! Invariants: an operation is counted in the interval in which it was answered; one that was
//! under way over a kill is counted as such and not among the latencies, because it measures the
//! kill.
//!
//! Fails: not; what cannot be read while the server is down is left empty.

use crate::tree::Operation;
use platform::Clock as _;
use platform::linux::SystemClock;
use platform::sync::Mutex;
use std::fs;

/// Time that only goes forward.
#[must_use]
pub fn now_ns() -> u64 {
    SystemClock.monotonic_nanoseconds()
}

/// Kinds of operations whose latencies are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// GETATTR, LOOKUP.
    NfsAttributes,
    /// READ.
    NfsRead,
    /// WRITE, unstable.
    NfsWriteUnstable,
    /// WRITE, stable.
    NfsWriteStable,
    /// COMMIT.
    NfsCommit,
    /// CREATE, REMOVE, RENAME and the like, SETATTR.
    NfsNames,
    /// READDIRPLUS.
    NfsList,
    /// Reads of files over FUSE.
    FuseRead,
    /// Writes over FUSE, not synced.
    FuseWrite,
    /// fsync, and writes of files opened with `O_DSYNC`.
    FuseSync,
    /// Changes of names and attributes over FUSE.
    FuseNames,
    /// `stroop snapshot create`, from its start to its end.
    Snapshot,
}

impl Class {
    /// The class of a change over NFS.
    #[must_use]
    pub const fn of_nfs_change(operation: &Operation) -> Self {
        match operation {
            Operation::Write { stable: true, .. } => Self::NfsWriteStable,
            Operation::Write { .. } => Self::NfsWriteUnstable,
            Operation::Commit(_) => Self::NfsCommit,
            _ => Self::NfsNames,
        }
    }

    /// The class of a change over FUSE.
    #[must_use]
    pub const fn of_fuse_change(operation: &Operation) -> Self {
        match operation {
            Operation::Write { stable: true, .. }
            | Operation::Commit(_)
            | Operation::SyncDirectory => Self::FuseSync,
            Operation::Write { .. } => Self::FuseWrite,
            _ => Self::FuseNames,
        }
    }

    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::NfsAttributes,
        Self::NfsRead,
        Self::NfsWriteUnstable,
        Self::NfsWriteStable,
        Self::NfsCommit,
        Self::NfsNames,
        Self::NfsList,
        Self::FuseRead,
        Self::FuseWrite,
        Self::FuseSync,
        Self::FuseNames,
        Self::Snapshot,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NfsAttributes => "nfs_attributes",
            Self::NfsRead => "nfs_read",
            Self::NfsWriteUnstable => "nfs_write_unstable",
            Self::NfsWriteStable => "nfs_write_stable",
            Self::NfsCommit => "nfs_commit",
            Self::NfsNames => "nfs_names",
            Self::NfsList => "nfs_list",
            Self::FuseRead => "fuse_read",
            Self::FuseWrite => "fuse_write",
            Self::FuseSync => "fuse_sync",
            Self::FuseNames => "fuse_names",
            Self::Snapshot => "snapshot",
        }
    }
}

/// Latencies of one class in one interval.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Latency {
    /// How many operations.
    pub count: u64,
    /// Half of them took no longer.
    pub median_us: u64,
    /// 99 of 100 took no longer.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

impl Latency {
    fn of(mut all: Vec<u32>) -> Self {
        all.sort_unstable();
        let at = |share: usize| {
            let index = (all.len() * share).div_ceil(100).saturating_sub(1);
            all.get(index).map_or(0, |latency| u64::from(*latency))
        };
        Self { count: all.len() as u64, median_us: at(50), p99_us: at(99), max_us: at(100) }
    }
}

#[derive(Default)]
struct Interval {
    latencies: [Vec<u32>; Class::ALL.len()],
    over_kills: u64,
}

/// Where threads note what they measured.
#[derive(Default)]
pub struct Recorder {
    interval: Mutex<Interval>,
}

impl Recorder {
    /// Notes an operation.
    pub fn record(&self, class: Class, latency_ns: u64) {
        let latency = u32::try_from(latency_ns / 1000).unwrap_or(u32::MAX);
        self.interval.lock().latencies[class as usize].push(latency);
    }

    /// Notes an operation that began now and ends with the call of what is returned.
    pub fn time<T>(&self, class: Class, operation: impl FnOnce() -> T) -> T {
        let began_ns = now_ns();
        let value = operation();
        self.record(class, now_ns() - began_ns);
        value
    }

    /// Notes an operation that had to be sent again.
    pub fn record_over_kill(&self) {
        self.interval.lock().over_kills += 1;
    }

    /// Ends the interval: its latencies, and how many operations were sent again.
    pub fn take(&self) -> ([Latency; Class::ALL.len()], u64) {
        let interval = std::mem::take(&mut *self.interval.lock());
        (interval.latencies.map(Latency::of), interval.over_kills)
    }
}

/// What the kernel says of a process.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// Memory that it has.
    pub resident_kib: u64,
    /// The most that it had.
    pub resident_max_kib: u64,
    /// Open files.
    pub files: u64,
    /// Threads.
    pub threads: u64,
}

impl ProcessUse {
    /// Reads it; nothing if the process is gone.
    #[must_use]
    pub fn read(process: u32) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let files = fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64;
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse().ok()
        };
        Some(Self {
            resident_kib: number("VmRSS:")?,
            resident_max_kib: number("VmHWM:")?,
            files,
            threads: number("Threads:")?,
        })
    }
}

/// What `stroop status` says of the aggregate.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct AggregateUse {
    /// The last consistency point.
    pub consistency_point: u64,
    /// How long it took.
    pub consistency_point_ns: u64,
    /// Bytes in the log.
    pub log_used_bytes: u64,
    /// Bytes that a half of it has.
    pub log_size_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Memory of the cache.
    pub cache_bytes: u64,
}

impl AggregateUse {
    /// Takes it out of the status in JSON.
    #[must_use]
    pub fn of(status: &serde_json::Value) -> Option<Self> {
        let aggregate = status.get("aggregates")?.get(0)?;
        let number = |name: &str| aggregate.get(name)?.as_u64();
        Some(Self {
            consistency_point: number("consistency_point")?,
            consistency_point_ns: number("consistency_point_duration_ns").unwrap_or(0),
            log_used_bytes: number("log_used_bytes")?,
            log_size_bytes: number("log_size_bytes")?,
            used_bytes: number("used_bytes")?,
            cache_bytes: status.get("memory")?.get("used_bytes")?.as_u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_those_of_an_interval() {
        let recorder = Recorder::default();
        for latency in 1..=200 {
            recorder.record(Class::NfsRead, latency * 1000);
        }
        recorder.record_over_kill();
        let (latencies, over_kills) = recorder.take();
        let expected = Latency { count: 200, median_us: 100, p99_us: 198, max_us: 200 };
        assert_eq!(latencies[Class::NfsRead as usize], expected);
        assert_eq!((latencies[Class::NfsList as usize].count, over_kills), (0, 1));
        assert_eq!(recorder.take().0[Class::NfsRead as usize], Latency::default());
    }

    #[test]
    fn classes_are_in_the_order_of_their_numbers() {
        for (index, class) in Class::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, index);
        }
    }

    #[test]
    fn this_process_has_memory_and_files() {
        let used = ProcessUse::read(std::process::id()).unwrap();
        assert!(used.resident_kib > 0 && used.resident_max_kib >= used.resident_kib);
        assert!(used.files > 0 && used.threads > 0);
    }
}
