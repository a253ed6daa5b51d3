//! Metrics: one list of definitions, one registry per node, lock-free updates.
//!
//! Every metric of the product is declared in [`definitions`], with its name, unit and labels, and
//! nowhere else: that file is the reference for dashboards. A node owns one [`Registry`]; a crate
//! asks it once for a [`Counter`], [`Gauge`] or [`Histogram`] and keeps the handle, which is a few
//! atomics and no lock. What every request counts is in [`Operations`], sharded by thread.
//! `stroop status -o json`, `stroop metrics` and `/metrics` show a [`Snapshot`].
//!
//! Architecture invariant: this crate knows nothing of storage; whoever measures depends on it.
//!
//! Invariants:
//! - Base units inside: durations are nanoseconds, sizes bytes, ratios millionths. Only the text
//!   for Prometheus turns them into seconds and fractions.
//! - A label's values are bounded: volumes, aggregates, kinds; never a client, path or snapshot.
//!   Past [`SERIES_PER_METRIC_MAX`] further values share one overflow series.
//! - Nothing here is global, so two nodes in one process (the simulator) do not mix.
//!
//! Fails: a wrong kind or number of labels is a programming error and panics when the handle is
//! asked for, never when it is updated.

#![forbid(unsafe_code)]

pub mod definitions;
pub mod exposition;
mod handles;
mod operations;
mod prometheus;
mod registry;
mod snapshot;

pub use definitions::{Definition, Kind, Unit};
pub use handles::{Counter, Gauge, Histogram};
pub use operations::{Class, Observation, Operations, VolumeKey, shard_of_thread};
pub use prometheus::render_prometheus;
pub use registry::{Registry, SERIES_PER_METRIC_MAX, Sum};
pub use snapshot::{MetricSnapshot, SeriesSnapshot, Snapshot, Value};
