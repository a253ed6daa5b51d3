//! Aggregates that grow under load: a disk joins the group, or a group joins.
//!
//! Invariants: an aggregate grows once in a life. A growth that was answered is kept by every
//! start after it; one that was cut off has happened or not, and is tried again with other disks.

use crate::machine::disks::JOINED;
use crate::machine::{AGGREGATE, Machine};
use crate::plan::Growth;
use crate::seed::finding::Finding;
use aggregate::AggregateError;
use dblade::{AddDisks, EngineError, Joining};
use ondisk::label::RaidKind;
use platform::Disk;
use platform::completion::{Promise, promise};
use raid::RaidError;
use std::sync::Arc;
use units::Block;

/// Blocks of a joining disk, from the first of its data area, that hold somebody's garbage.
const GARBAGE_BLOCKS: u64 = 96;

/// Blocks of an object store that joins, at least: 64 MiB.
const OBJECT_BLOCKS_MIN: u64 = 16 << 10;

/// How far it is.
#[derive(Default)]
pub struct Growing {
    under_way: Option<Promise<Result<(), EngineError>>>,
    /// The size before, until it was answered.
    answered_blocks: Option<u64>,
    joined_count: u32,
}

impl Growing {
    /// Has the aggregate grow, if it is to and did not.
    pub fn grow(&mut self, machine: &mut Machine<'_>) {
        let (Some(growth), Some(aggregate)) = (machine.plan.growth, machine.aggregate()) else {
            return;
        };
        let has_grown = self.answered_blocks.is_some() || self.is_under_way();
        // Or a cut off growth had happened all the same.
        if has_grown || aggregate.parts.store.geometry().end() > machine.plan.first_end() {
            return;
        }
        let blocks = match growth {
            // Nothing moves in an aggregate that is nearly full.
            Growth::Objects => machine.plan.disk_blocks.max(OBJECT_BLOCKS_MIN),
            _ => machine.plan.disk_blocks,
        };
        let disks = (0..growth.disks()).map(|_| self.joining_disk(machine, blocks)).collect();
        let to = match growth {
            Growth::Disks(_) => Joining::Group(0),
            Growth::Group(kind, group_size) => Joining::NewGroups { kind, group_size },
            Growth::Objects => Joining::NewGroups { kind: RaidKind::None, group_size: 1 },
        };
        machine.trace.meet(match growth {
            Growth::Disks(_) => "growth: disks join the group",
            Growth::Group(..) => "growth: a group joins",
            Growth::Objects => "growth: an object store joins",
        });
        machine.trace.note(format!("the aggregate grows by {growth:?}"));
        let engine = Arc::clone(&machine.engine);
        let media = (growth == Growth::Objects).then_some(media::Profile::Object);
        let request = AddDisks { disks, to, media, force: true, zeroing: Arc::default() };
        let under_way = promise(|done| engine.add_disks(AGGREGATE, request, done));
        self.under_way = Some(under_way);
    }

    fn joining_disk(&mut self, machine: &mut Machine<'_>, blocks: u64) -> Arc<dyn Disk> {
        let name = format!("{JOINED}{}", self.joined_count);
        self.joined_count += 1;
        let disk = machine.world.add_disk(&name, blocks);
        for block in 0..GARBAGE_BLOCKS {
            let garbage = Block::from_prefix(&[block as u8 | 1; 64]);
            machine.world.write_block(&name, media::DATA_START + block, &garbage);
        }
        machine.watch.over(disk)
    }

    /// Whether disks are being added.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// The engine that was asked is no more.
    pub fn forget(&mut self) {
        self.under_way = None;
    }

    /// Takes in how a growth ended.
    pub fn poll(&mut self, machine: &mut Machine<'_>) -> Result<(), Finding> {
        let outcome = self.under_way.as_ref().and_then(|one| one.lock().take());
        let Some(outcome) = outcome else { return Ok(()) };
        self.under_way = None;
        match outcome {
            Ok(()) => {}
            // One after the other.
            Err(EngineError::Aggregate(AggregateError::Raid(RaidError::Growing))) => {
                machine.trace.meet("growth: refused while a group leaves");
                return Ok(());
            }
            Err(error) => return Err(machine.refused("add disks", &error.to_string())),
        }
        machine.trace.note("the aggregate has grown".to_owned());
        let Some(aggregate) = machine.aggregate() else { return Ok(()) };
        self.answered_blocks = Some(aggregate.parts.store.geometry().end().get());
        self.check(machine)
    }

    /// Whether the aggregate has the size that was answered.
    pub fn check(&self, machine: &Machine<'_>) -> Result<(), Finding> {
        let (Some(expected), Some(aggregate)) = (self.answered_blocks, machine.aggregate()) else {
            return Ok(());
        };
        let geometry = aggregate.parts.store.geometry();
        let (found, end) = (aggregate.size_blocks(), geometry.end().get());
        // Groups may have left, and others not know of it yet.
        let is_whole = found == geometry.blocks() || geometry.removed_blocks() > 0;
        if is_whole && end == expected && expected > machine.plan.first_end().get() {
            return Ok(());
        }
        Err(Finding::Media(format!("{expected} blocks were answered, {found} of {end} are there")))
    }
}
