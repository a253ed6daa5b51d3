//! Splitting clones from their parents, for administrators. The job says how far it is.
//!
//! Invariants: a split that was answered goes on after a restart, and its rate with its job.

use crate::volumes::origins::{Origins, clone_of};
use crate::volumes::room::Volumes;
use admin_api::{AdminError, CloneSplit, Code, SplitInfo};
use aggregate::splitting;
use dblade::ServedVolume;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, ByteSize};

const SPLIT: &str = "cannot split clone";

pub(crate) fn split_clone(volumes: &Volumes, wanted: &CloneSplit) -> Result<SplitInfo, AdminError> {
    let _turn = volumes.node.turn();
    let clone = volumes.find(SPLIT, &wanted.name)?;
    let (name, engine) = (clone.name(), &volumes.node.engine);
    let error = || AdminError::new(Code::Conflict, SPLIT, &name);
    let info = split_info(volumes, &clone, wanted.dry_run);
    let info =
        info.ok_or_else(|| error().because("it is no clone").try_next("stroop clone list"))?;
    if wanted.stop != clone.aggregate.is_splitting(clone.environment.volume) {
        let is = if wanted.stop { "it is not being split" } else { "it is being split already" };
        if wanted.stop || !wanted.dry_run {
            return Err(error().because(is).try_next("stroop job list"));
        }
    }
    if wanted.stop {
        let stop = |done| engine.stop_split(&name, done);
        volumes.node.waits.request(SPLIT, &name, stop)?;
        tracing::info!(volume = name, "the split was stopped, for an administrator");
        return Ok(split_info(volumes, &clone, false).unwrap_or(info));
    }
    if let Some(damage) = clone.damage() {
        return Err(error().because(format!("the volume is read-only: {damage}")));
    }
    if info.free_bytes < info.cost_bytes {
        let (free, cost) = (ByteSize(info.free_bytes), ByteSize(info.cost_bytes));
        let next = format!("stroop aggr add {} --disks N; or delete snapshots", info.aggregate);
        return Err(error()
            .because(format!("its aggregate has {free} free, and {cost} are needed"))
            .try_next(next));
    }
    if !wanted.dry_run {
        let rate = wanted.rate_bytes_per_second;
        let split = |done| engine.split_clone(&name, rate, done);
        volumes.node.waits.request(SPLIT, &name, split)?;
        tracing::info!(volume = name, ?rate, "a clone is split, for an administrator");
    }
    Ok(info)
}

/// What a split takes; `None` if the volume is no clone.
fn split_info(volumes: &Volumes, clone: &Arc<ServedVolume>, dry_run: bool) -> Option<SplitInfo> {
    let clone_of = clone_of(volumes, clone, &mut Origins::default())?;
    let blocks = clone.inherited_blocks();
    Some(SplitInfo {
        name: clone.name(),
        clone_of,
        aggregate: clone.aggregate.parts.identity.name.clone(),
        shared_bytes: blocks * BLOCK_SIZE_U64,
        cost_bytes: splitting::cost_of(blocks) * BLOCK_SIZE_U64,
        free_bytes: clone.aggregate.split_room_blocks() * BLOCK_SIZE_U64,
        dry_run,
    })
}
