//! The list of all metrics.
//!
//! Invariants: names begin with `stroop_` and end in their base unit (`_seconds`, `_bytes`,
//! `_ratio`), counters in `_total`; a name is declared once; bounds of buckets increase. All of it
//! is checked by this file's tests. Names are an interface: dashboards depend on them, so a name
//! is changed only with an entry in CHANGELOG.md.

use serde::{Deserialize, Serialize};

/// What a metric does over time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Only grows, from zero at the start of the server.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by size.
    Histogram,
}

/// What a metric's integer counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Nanoseconds; shown to Prometheus as seconds.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Millionths of one; shown to Prometheus as a fraction.
    Millionths,
    /// Things.
    Count,
}

/// A metric's declaration.
#[derive(Debug)]
pub struct Definition {
    /// The name in Prometheus.
    pub name: &'static str,
    /// One sentence.
    pub help: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The unit of updates.
    pub unit: Unit,
    /// The names of the labels, in the order in which handles are asked for.
    pub labels: &'static [&'static str],
    /// Upper bounds of a histogram's buckets, in `unit`; one more bucket holds what is above.
    pub bounds: &'static [u64],
}

impl Definition {
    const fn new(name: &'static str, help: &'static str, kind: Kind, unit: Unit) -> Self {
        Self { name, help, kind, unit, labels: &[], bounds: &[] }
    }

    const fn by(mut self, labels: &'static [&'static str]) -> Self {
        self.labels = labels;
        self
    }

    const fn with_bounds(mut self, bounds: &'static [u64]) -> Self {
        self.bounds = bounds;
        self
    }
}

const fn counter(name: &'static str, unit: Unit, help: &'static str) -> Definition {
    Definition::new(name, help, Kind::Counter, unit)
}

const fn gauge(name: &'static str, unit: Unit, help: &'static str) -> Definition {
    Definition::new(name, help, Kind::Gauge, unit)
}

const fn durations(name: &'static str, help: &'static str) -> Definition {
    Definition::new(name, help, Kind::Histogram, Unit::Nanoseconds)
        .with_bounds(DURATION_NANOSECONDS)
}

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// From a cached read (10 us) to a stuck disk (10 s) in steps of about 2.2, so that a quantile
/// read off the buckets is right within that factor; 19 numbers a series.
const DURATION_NANOSECONDS: &[u64] = &[
    10 * MICROSECOND,
    25 * MICROSECOND,
    50 * MICROSECOND,
    100 * MICROSECOND,
    250 * MICROSECOND,
    500 * MICROSECOND,
    MILLISECOND,
    2_500 * MICROSECOND,
    5 * MILLISECOND,
    10 * MILLISECOND,
    25 * MILLISECOND,
    50 * MILLISECOND,
    100 * MILLISECOND,
    250 * MILLISECOND,
    500 * MILLISECOND,
    SECOND,
    2_500 * MILLISECOND,
    5 * SECOND,
    10 * SECOND,
];

/// Told apart: an answer from memory or flash, a disk's, a busy disk's, a queue, a stall.
const VOLUME_DURATION_NANOSECONDS: &[u64] =
    &[250 * MICROSECOND, MILLISECOND, 5 * MILLISECOND, 50 * MILLISECOND, 500 * MILLISECOND];

macro_rules! metrics {
    ($($(#[$doc:meta])* $name:ident = $definition:expr;)*) => {
        $($(#[$doc])* pub static $name: Definition = $definition;)*

        /// All of them, in the order of this file.
        pub static ALL: &[&Definition] = &[$(&$name),*];
    };
}

metrics! {
    /// Labels: version. Always 1.
    BUILD = gauge(
        "stroop_build_info", Unit::Count,
        "1, with the version of the server as its label.",
    ).by(&["version"]);
    /// Labels: operation, protocol.
    OPERATION_DURATION = durations(
        "stroop_op_duration_seconds",
        "Time from the call of a protocol for an operation to its answer.",
    ).by(&["op", "protocol"]);
    /// Labels: operation (`read`, `write`, `other`), protocol, volume. Coarser than the above, by
    /// operation and by time, because there may be a thousand volumes (decision 45).
    VOLUME_OPERATION_DURATION = durations(
        "stroop_volume_op_duration_seconds",
        "Time from the call of a protocol for an operation on a volume to its answer.",
    ).by(&["op", "protocol", "volume"]).with_bounds(VOLUME_DURATION_NANOSECONDS);
    /// Labels: direction (`read`, `write`), protocol, volume.
    VOLUME_TRANSFERRED = counter(
        "stroop_volume_transferred_bytes_total", Unit::Bytes,
        "Bytes that clients read from and wrote to a volume.",
    ).by(&["direction", "protocol", "volume"]);
    /// Labels: volume, kind (`live`, `snapshots`, `tiered`, `delayed_free`,
    /// `available`, `size`).
    VOLUME_BYTES = gauge(
        "stroop_volume_bytes", Unit::Bytes,
        "Space of a volume, attributed.",
    ).by(&["volume", "kind"]);
    /// Labels: volume.
    VOLUME_FILES = gauge(
        "stroop_volume_files", Unit::Count,
        "Files, directories and other inodes that a volume has in use.",
    ).by(&["volume"]);
    /// Labels: aggregate, state. 1 for the state that the aggregate is in.
    AGGREGATE_STATE = gauge(
        "stroop_aggregate_state", Unit::Count,
        "1 for the state that an aggregate is in.",
    ).by(&["aggregate", "state"]);
    /// Labels: aggregate, kind (`size`, `used`, `tiered`, `metadata`, `reserve`, `free`, and
    /// `leaving` for what is free in a group that leaves).
    AGGREGATE_BYTES = gauge(
        "stroop_aggregate_bytes", Unit::Bytes,
        "Space of an aggregate, attributed.",
    ).by(&["aggregate", "kind"]);
    /// Labels: aggregate, phase (`freezing`, `cleaning_members`, `cleaning_aggregate`, `syncing`,
    /// `sealing`, `committing`, and `all` for the whole).
    CP_DURATION = durations(
        "stroop_cp_duration_seconds",
        "Length of the phases of consistency points; phase=all is the whole.",
    ).by(&["aggregate", "phase"]);
    /// Labels: aggregate.
    CP_COMMITTED = counter(
        "stroop_cp_total", Unit::Count,
        "Consistency points that were committed.",
    ).by(&["aggregate"]);
    /// Labels: aggregate.
    CP_BACK_TO_BACK = counter(
        "stroop_cp_back_to_back_total", Unit::Count,
        "Consistency points until whose end operations waited for room: the disks cannot keep up.",
    ).by(&["aggregate"]);
    /// Labels: aggregate.
    CP_BLOCKS = counter(
        "stroop_cp_blocks_total", Unit::Count,
        "4 KiB blocks that consistency points wrote.",
    ).by(&["aggregate"]);
    /// Labels: aggregate, kind (`group`, `volume`).
    PICKED_AREAS = counter(
        "stroop_aa_picked_total", Unit::Count,
        "Allocation areas that were chosen to be filled.",
    ).by(&["aggregate", "kind"]);
    /// Labels: aggregate, kind (`group`, `volume`).
    PICKED_FREE_BLOCKS = counter(
        "stroop_aa_picked_free_blocks_total", Unit::Count,
        "Blocks of the chosen areas that were free when they were chosen.",
    ).by(&["aggregate", "kind"]);
    /// Labels: aggregate, kind (`group`, `volume`).
    PICKED_BLOCKS = counter(
        "stroop_aa_picked_blocks_total", Unit::Count,
        "Blocks of the chosen areas, used ones included.",
    ).by(&["aggregate", "kind"]);
    /// Labels: aggregate.
    EMPTIED_AREAS = counter(
        "stroop_aa_emptied_total", Unit::Count,
        "Allocation areas that were gone through to empty them, ahead of being filled or to leave.",
    ).by(&["aggregate"]);
    /// Labels: aggregate, kind (`moved`, of volumes; `rewritten`, of the aggregate itself).
    EMPTYING_BLOCKS = counter(
        "stroop_aa_emptying_blocks_total", Unit::Count,
        "Blocks that were written elsewhere to empty allocation areas.",
    ).by(&["aggregate", "kind"]);
    /// Labels: aggregate.
    SPLIT_BLOCKS = counter(
        "stroop_clone_split_blocks_total", Unit::Count,
        "Blocks that clones shared with their parents and that were copied to split them.",
    ).by(&["aggregate"]);
    /// Labels: aggregate.
    REALLOCATED_BLOCKS = counter(
        "stroop_reallocated_blocks_total", Unit::Count,
        "Blocks of files that were written elsewhere so that they lie in order (read reallocation).",
    ).by(&["aggregate"]);
    /// Labels: aggregate.
    CHAINS = counter(
        "stroop_chains_written_total", Unit::Count,
        "Runs of consecutive blocks that were written to one disk, each by one request.",
    ).by(&["aggregate"]);
    /// Labels: aggregate.
    CHAIN_BLOCKS = counter(
        "stroop_chain_blocks_total", Unit::Count,
        "Blocks in these runs, parity and identities included; by runs it is their mean length.",
    ).by(&["aggregate"]);
    /// Labels: aggregate, kind (`full`, `partial`).
    STRIPES = counter(
        "stroop_stripes_written_total", Unit::Count,
        "Stripes written to groups with parity; full ones cost no read.",
    ).by(&["aggregate", "kind"]);
    /// Labels: volume.
    DELAYED_FREE_BLOCKS = gauge(
        "stroop_delayed_free_blocks", Unit::Count,
        "Blocks freed by clients that are not yet free in the aggregate.",
    ).by(&["volume"]);
    /// Labels: aggregate.
    LOG_USED = gauge(
        "stroop_log_used_bytes", Unit::Bytes,
        "Bytes of the operation log that the next consistency point will retire.",
    ).by(&["aggregate"]);
    /// Labels: aggregate.
    LOG_SIZE = gauge(
        "stroop_log_size_bytes", Unit::Bytes,
        "Bytes that fit into the half of the operation log that fills.",
    ).by(&["aggregate"]);
    /// Set once, at the start.
    REPLAYED_OPERATIONS = gauge(
        "stroop_replayed_operations", Unit::Count,
        "Operations replayed from the log when the server started.",
    );
    /// Labels: aggregate, disk, state. 1 for the state that a disk of an aggregate is in.
    DISK_STATE = gauge(
        "stroop_disk_state", Unit::Count,
        "1 for the state that a disk of an aggregate is in.",
    ).by(&["aggregate", "disk", "state"]);
    /// Labels: disk, operation (`read`, `write`, `flush`).
    DISK_OPERATIONS = counter(
        "stroop_disk_ops_total", Unit::Count,
        "Requests that a disk of an aggregate has ended.",
    ).by(&["disk", "op"]);
    /// Labels: disk, operation. By requests it is their mean time.
    DISK_TIME = counter(
        "stroop_disk_op_seconds_total", Unit::Nanoseconds,
        "Time of these requests, added up; requests that overlap each count in full.",
    ).by(&["disk", "op"]);
    /// Labels: disk, direction (`read`, `write`).
    DISK_TRANSFERRED = counter(
        "stroop_disk_transferred_bytes_total", Unit::Bytes,
        "Bytes that these requests read and wrote.",
    ).by(&["disk", "direction"]);
    /// Labels: disk, kind (`read`, `write`, `checksum`).
    DISK_ERRORS = counter(
        "stroop_disk_errors_total", Unit::Count,
        "I/O errors and blocks that failed their proof, by disk.",
    ).by(&["disk", "kind"]);
    /// Labels: aggregate.
    REPAIRED_BLOCKS = counter(
        "stroop_repaired_blocks_total", Unit::Count,
        "Damaged blocks that were rebuilt from parity and written back.",
    ).by(&["aggregate"]);
    /// Labels: consumer (`clean`, `dirty`, `moving`, `volumes`, `spare`, `metrics`, `other`).
    MEMORY_BYTES = gauge(
        "stroop_memory_bytes", Unit::Bytes,
        "Memory of the server by who has it: blocks in caches, metrics, and all else.",
    ).by(&["consumer"]);
    /// No labels.
    MEMORY_LIMIT = gauge(
        "stroop_memory_limit_bytes", Unit::Bytes,
        "The cap on the server's memory.",
    );
    /// No labels.
    MEMORY_PEAK = gauge(
        "stroop_memory_peak_bytes", Unit::Bytes,
        "The most memory that the server had at one time.",
    );
    /// Labels: protocol.
    CLIENT_CONNECTIONS = gauge(
        "stroop_client_connections", Unit::Count,
        "Open client connections.",
    ).by(&["protocol"]);
    /// Labels: state (`mounted`, `missing`).
    MOUNTS = gauge(
        "stroop_mounts", Unit::Count,
        "Mounts on the server's own machine that it is to keep.",
    ).by(&["state"]);
    /// No labels.
    NFS_REFUSED_MOUNTS = counter(
        "stroop_nfs_refused_mounts_total", Unit::Count,
        "Mounts that no export rule allowed.",
    );
    /// No labels.
    NFS_DENIED_CALLS = counter(
        "stroop_nfs_denied_calls_total", Unit::Count,
        "Calls for a volume that no export rule let their client use.",
    );
    /// Labels: kind, state. Jobs that are over are not counted.
    JOBS = gauge(
        "stroop_jobs", Unit::Count,
        "Jobs that are not over, by kind and state.",
    ).by(&["kind", "state"]);
    /// Labels: code, severity. 1 while the check stands.
    HEALTH_CHECK = gauge(
        "stroop_health_check", Unit::Count,
        "1 for each health check that stands.",
    ).by(&["code", "severity"]);
    /// No labels.
    UPTIME = gauge(
        "stroop_uptime_seconds", Unit::Nanoseconds,
        "Time since the server started.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_conventions() {
        let mut seen = BTreeSet::new();
        for definition in ALL {
            let name = definition.name;
            assert!(seen.insert(name), "{name} is declared twice");
            assert!(name.starts_with("stroop_"), "{name}");
            assert!(!["_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end)), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), definition.kind == Kind::Counter, "{name}");
            let stem = name.strip_suffix("_total").unwrap_or(name);
            assert_eq!(stem.ends_with("_seconds"), definition.unit == Unit::Nanoseconds, "{name}");
            assert_eq!(stem.ends_with("_bytes"), definition.unit == Unit::Bytes, "{name}");
            assert_eq!(stem.ends_with("_ratio"), definition.unit == Unit::Millionths, "{name}");
            assert!(definition.help.ends_with('.'), "{name}");
            assert_eq!(definition.bounds.is_empty(), definition.kind != Kind::Histogram, "{name}");
            assert!(definition.bounds.is_sorted_by(|a, b| a < b), "{name}");
        }
    }

    #[test]
    fn the_manual_has_them_all() {
        let manual = include_str!("../../../docs/metrics.md");
        for definition in ALL {
            let labels: Vec<String> =
                definition.labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = if labels.is_empty() { "-".to_owned() } else { labels.join(", ") };
            let row = format!("| `{}` | ", definition.name);
            let line = manual.lines().find(|line| line.starts_with(&row));
            let line = line.unwrap_or_else(|| panic!("docs/metrics.md lacks {}", definition.name));
            assert!(line.ends_with(&format!("| {labels} | {} |", definition.help)), "{line}");
        }
        let rows = manual.lines().filter(|line| line.starts_with("| `stroop_"));
        assert_eq!(rows.count(), ALL.len(), "docs/metrics.md has one that is not there");
    }

    #[test]
    fn labels_are_bounded() {
        for definition in ALL {
            for label in definition.labels {
                assert!(!["client", "path", "snapshot", "le"].contains(label), "{label}");
            }
        }
    }
}
