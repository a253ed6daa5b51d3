//! Splitting clones from their parents, for administrators. The job says how far it is.
//!
//! Invariants: a split that was answered goes on after a restart, and its rate with its job.

use crate::volumes::origins::{Origins, clone_of};
use crate::volumes::room::Volumes;
use admin_api::{AdminError, CloneSplit, Code, SplitInfo};
use aggregate::split_cost_blocks;
use dblade::ServedVolume;
use std::sync::Arc;
use units::{BLOCK_SIZE_U64, ByteSize};

const SPLIT: &str = "cannot split clone";

impl Volumes {
    pub(crate) fn split_clone(&self, wanted: &CloneSplit) -> Result<SplitInfo, AdminError> {
        let _turn = self.node.turn();
        let clone = self.find(SPLIT, &wanted.name)?;
        let (name, engine) = (clone.name(), &self.node.engine);
        let error = || AdminError::new(Code::Conflict, SPLIT, &name);
        let info = self.split_info(&clone, wanted.dry_run);
        let info =
            info.ok_or_else(|| error().because("it is no clone").try_next("stroop clone list"))?;
        if wanted.stop == !clone.aggregate.is_splitting(clone.environment.volume) {
            let is =
                if wanted.stop { "it is not being split" } else { "it is being split already" };
            if wanted.stop || !wanted.dry_run {
                return Err(error().because(is).try_next("stroop job list"));
            }
        }
        if wanted.stop {
            let stop = |done| engine.stop_split(&name, done);
            self.node.waits.request(SPLIT, &name, stop)?;
            tracing::info!(volume = name, "the split was stopped, for an administrator");
            return Ok(self.split_info(&clone, false).unwrap_or(info));
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
            self.node.waits.request(SPLIT, &name, split)?;
            tracing::info!(volume = name, ?rate, "a clone is split, for an administrator");
        }
        Ok(info)
    }

    /// What a split takes; `None` if the volume is no clone.
    fn split_info(&self, clone: &Arc<ServedVolume>, dry_run: bool) -> Option<SplitInfo> {
        let clone_of = clone_of(self, clone, &mut Origins::default())?;
        let blocks = clone.inherited_blocks();
        Some(SplitInfo {
            name: clone.name(),
            clone_of,
            aggregate: clone.aggregate.parts.identity.name.clone(),
            shared_bytes: blocks * BLOCK_SIZE_U64,
            cost_bytes: split_cost_blocks(blocks) * BLOCK_SIZE_U64,
            free_bytes: clone.aggregate.split_room_blocks() * BLOCK_SIZE_U64,
            dry_run,
        })
    }
}
