//! What a node with many idle volumes costs: the time to make one among many, the node's memory,
//! and its starts after a stop and after a kill.
//!
//! Invariants: all volumes of a step are made with one command; the time of a creation is the
//! command's, divided by the volumes. Memory is what the kernel says of the node's process
//! (`VmRSS`), once it has rested. A kill comes when nothing was written for as long.

use super::start::StartBench;
use crate::node::BenchError;
use crate::process::{NodeProcess, NodeShape, pause};
use crate::summary::{Row, Series, Unit};
use platform::Clock;
use platform::linux::SystemClock;

/// How long a node rests before its memory is looked at, in pauses: longer than the interval of
/// consistency points, 10 s.
const REST_PAUSES: usize = 110;
/// The size of each volume.
const VOLUME_SIZE: &str = "1G";

/// What a step measures, in this order.
const FIGURES: [(&str, Unit); 6] = [
    ("create, each", Unit::Duration),
    ("memory, made", Unit::Size),
    ("start after stop", Unit::Duration),
    ("memory after stop", Unit::Size),
    ("start after kill", Unit::Duration),
    ("memory after kill", Unit::Size),
];

/// Rounds of more and more volumes.
pub(super) fn with_volumes(
    bench: &StartBench,
    rows: &mut Vec<Row>,
    progress: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    // Volumes are made and none is deleted.
    let mut counts = bench.volumes.clone();
    counts.sort_unstable();
    counts.dedup();
    let mut found: Vec<[Vec<f64>; FIGURES.len()]> =
        counts.iter().map(|_| Default::default()).collect();
    for round in 1..=bench.node.rounds {
        let mut node = NodeProcess::start(&bench.node, NodeShape::default())?;
        let mut made = 0;
        for (count, series) in counts.iter().zip(&mut found) {
            progress(&format!("{count} volumes: round {round} of {}", bench.node.rounds));
            let figures = step(&mut node, made, *count)?;
            made = made.max(*count);
            for (series, figure) in series.iter_mut().zip(figures) {
                series.extend(figure);
            }
        }
    }
    for (count, series) in counts.iter().zip(found) {
        for ((name, unit), rounds) in FIGURES.into_iter().zip(series) {
            if !rounds.is_empty() {
                let load = format!("{count} volumes: {name}");
                rows.push(Row { load, unit, ours: Series::of(rounds), beside: Vec::new() });
            }
        }
    }
    Ok(())
}

/// Makes the volumes that are missing, and starts the node again.
fn step(
    node: &mut NodeProcess,
    made: usize,
    count: usize,
) -> Result<[Option<f64>; FIGURES.len()], BenchError> {
    let names: Vec<String> = (made..count).map(|number| format!("v{number}")).collect();
    let mut each = None;
    if !names.is_empty() {
        let mut words = vec!["volume", "create", "--size", VOLUME_SIZE];
        words.extend(names.iter().map(String::as_str));
        let begin = SystemClock.monotonic_nanoseconds();
        node.command(&words)?;
        let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
        each = Some(nanoseconds as f64 / names.len() as f64);
    }
    let made = Some(memory_at_rest(node)?);
    node.stop();
    let stopped = (Some(node.start_again()? as f64), Some(memory_at_rest(node)?));
    node.kill();
    let killed = (Some(node.start_again()? as f64), Some(memory_at_rest(node)?));
    Ok([each, made, stopped.0, stopped.1, killed.0, killed.1])
}

fn memory_at_rest(node: &NodeProcess) -> Result<f64, BenchError> {
    (0..REST_PAUSES).for_each(|_| pause());
    let status = node.json(&["status"])?;
    Ok(status["memory"]["used_bytes"].as_u64().unwrap_or(0) as f64)
}
