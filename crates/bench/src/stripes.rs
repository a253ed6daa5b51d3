//! How many of the stripes that an aggregate writes are full: under sequential load, and under
//! random overwrites of a file that was overwritten twice before (FreeSpace sections 2.3 and
//! 3.3.1).

use crate::flight::Flight;
use crate::node::{BenchError, Node, NodePlan, wait};
use crate::numbers::Numbers;
use crate::raid::RaidBench;
use crate::summary::{Row, Series, Unit};
use bytes::Bytes;
use file_service::{
    Caller, CreateMode, Done, FileHandle, FileService, FsError, SetAttributes, Stability, calls,
};
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// Of an aggregate's blocks the file takes so many hundredths.
const FILLED_PERCENT: u64 = 60;
/// How often the file was overwritten in whole when random overwrites are measured.
const AGED_TIMES: u64 = 2;
const LARGE: u64 = 1 << 20;
const MEMORY_BYTES: u64 = 256 << 20;
const WORKERS: usize = 2;
const DEPTH: usize = 64;

struct Load<'a> {
    node: &'a Node,
    file: FileHandle,
    /// Written so many bytes at a time.
    io_bytes: u64,
}

/// The shares, of as many rounds as the bench has.
pub(crate) fn stripes(bench: &RaidBench) -> Result<Vec<Row>, BenchError> {
    let (disk_bytes, memory_bytes, workers) = (bench.disk.0, MEMORY_BYTES, WORKERS);
    let plan = NodePlan { disk_bytes, memory_bytes, workers, traditional: false };
    let node = Node::start(&bench.directory, plan)?;
    let file = make(&node)?;
    let Some(aggregate) = node.engine.aggregate_named("bench") else {
        unreachable!("the node has made it")
    };
    let rounds = bench.rounds as u64;
    let bytes = aggregate.size_blocks() * BLOCK_SIZE_U64 / 100 * FILLED_PERCENT;
    let round_bytes = (bytes / rounds / LARGE).max(1) * LARGE;
    let sequential = Load { node: &node, file, io_bytes: LARGE };
    let shares = (0..rounds).map(|round| {
        let first = round * round_bytes / LARGE;
        sequential.share((first..first + round_bytes / LARGE).collect())
    });
    let mut rows = vec![row("full stripes, sequential writes", shares.collect::<Result<_, _>>()?)];
    let random = Load { io_bytes: BLOCK_SIZE_U64, ..sequential };
    let blocks = rounds * round_bytes / BLOCK_SIZE_U64;
    let mut numbers = Numbers::new(11);
    let mut overwrite =
        |count: u64| random.share((0..count).map(|_| numbers.next(blocks)).collect());
    for _ in 0..AGED_TIMES {
        overwrite(blocks)?;
    }
    let shares = (0..rounds).map(|_| overwrite(blocks / rounds)).collect::<Result<_, _>>()?;
    rows.push(row("full stripes, random overwrites, aged", shares));
    Ok(rows)
}

fn row(load: &str, shares: Vec<f64>) -> Row {
    let load = format!("{load} raid4 3+1");
    Row { load, unit: Unit::Percent, ours: Series::of(shares), beside: Vec::new() }
}

fn failed(error: FsError) -> BenchError {
    BenchError::Operation { load: "full stripes", error }
}

fn make(node: &Node) -> Result<FileHandle, BenchError> {
    let root = wait(|done: Done<_>| {
        node.service.root(&Caller::root(), calls::Root { name: "bench".to_owned() }, done)
    })
    .map_err(failed)?
    .handle;
    let made = wait(|done| {
        let (mode, set) = (CreateMode::Unchecked, SetAttributes::default());
        node.service.create(
            &Caller::root(),
            calls::Create { directory: root, name: b"data".to_vec(), mode, set },
            done,
        );
    });
    made.map(|(entry, _)| entry.handle).map_err(failed)
}

impl Load<'_> {
    /// Writes at these offsets, in units of an operation, and takes a consistency point: the
    /// percentage of full stripes among those written.
    fn share(&self, offsets: Vec<u64>) -> Result<f64, BenchError> {
        let Some(aggregate) = self.node.engine.aggregate_named("bench") else {
            unreachable!("the node has made it")
        };
        let before = aggregate.parts.store.status().counters;
        let (flight, data) = (Arc::new(Flight::default()), vec![5; self.io_bytes as usize]);
        let (caller, data) = (Caller::root(), Bytes::from(data));
        for offset in offsets {
            flight.enter(DEPTH);
            let same = Arc::clone(&flight);
            let done = Box::new(move |outcome| same.leave(outcome, 0));
            let (at, data) = (offset * self.io_bytes, data.clone());
            self.node.service.write(
                &caller,
                calls::Write { file: self.file, offset: at, data, stability: Stability::Unstable },
                done,
            );
        }
        flight.drain().map_err(failed)?;
        aggregate.force();
        let committed = wait(|done| aggregate.request_consistency_point(Some(done)));
        committed.map_err(dblade::EngineError::from)?;
        let after = aggregate.parts.store.status().counters;
        let full = (after.full_stripes - before.full_stripes) as f64;
        Ok(100.0 * full / ((after.stripes - before.stripes) as f64).max(1.0))
    }
}
