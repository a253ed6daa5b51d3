//! Aggregates that grow under load: a disk joins the group, or a group joins.
//!
//! Invariants: an aggregate grows once in a life. A growth that was answered is kept by every
//! start after it; one that was cut off has happened or not, and is tried again with other disks.

use crate::choices::Choices;
use crate::finding::Finding;
use crate::machine::{AGGREGATE, Machine, Promise, promise};
use aggregate::AggregateError;
use dblade::{AddDisks, EngineError, Joining};
use ondisk::label::RaidKind;
use platform::Disk;
use raid::RaidError;
use std::sync::Arc;
use units::Block;

/// Blocks of a joining disk, from the first of its data area, that hold somebody's garbage.
const GARBAGE_BLOCKS: u64 = 96;

/// Blocks of an object store that joins, at least: 64 MiB.
const OBJECT_BLOCKS_MIN: u64 = 16 << 10;

/// How an aggregate grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// So many disks join the group.
    Disks(usize),
    /// A group of so many disks joins.
    Group(RaidKind, usize),
    /// An object store joins.
    Objects,
}

impl Growth {
    /// One that an aggregate of this kind may take.
    #[must_use]
    pub fn choose(choices: &mut Choices, kind: RaidKind) -> Self {
        if kind != RaidKind::None && choices.chance(60) {
            return Self::Disks(1 + choices.index(2));
        }
        let kind = choices.pick(&[RaidKind::None, RaidKind::Raid4, kind]);
        match kind {
            RaidKind::None => Self::Group(kind, 1),
            kind => Self::Group(kind, kind.parity_disks() + 1 + choices.index(2)),
        }
    }

    const fn disks(self) -> usize {
        match self {
            Self::Disks(count) | Self::Group(_, count) => count,
            Self::Objects => 1,
        }
    }
}

/// How far it is.
#[derive(Default)]
pub struct Growing {
    under_way: Option<Promise<Result<(), EngineError>>>,
    /// The size before, until it was answered.
    answered_blocks: Option<u64>,
    joined_count: u32,
}

impl Machine<'_> {
    /// Has the aggregate grow, if it is to and did not.
    pub fn grow(&mut self) {
        let (Some(growth), Some(aggregate)) = (self.plan.growth, self.aggregate()) else { return };
        let has_grown = self.growing.answered_blocks.is_some() || self.is_growing();
        // Or a cut off growth had happened all the same.
        if has_grown || aggregate.parts.store.geometry().end() > self.first_end() {
            return;
        }
        let blocks = match growth {
            // Nothing moves in an aggregate that is nearly full.
            Growth::Objects => self.plan.disk_blocks.max(OBJECT_BLOCKS_MIN),
            _ => self.plan.disk_blocks,
        };
        let disks = (0..growth.disks()).map(|_| self.joining_disk(blocks)).collect();
        let to = match growth {
            Growth::Disks(_) => Joining::Group(0),
            Growth::Group(kind, group_size) => Joining::NewGroups { kind, group_size },
            Growth::Objects => Joining::NewGroups { kind: RaidKind::None, group_size: 1 },
        };
        self.trace.meet(match growth {
            Growth::Disks(_) => "growth: disks join the group",
            Growth::Group(..) => "growth: a group joins",
            Growth::Objects => "growth: an object store joins",
        });
        self.trace.note(format!("the aggregate grows by {growth:?}"));
        let engine = Arc::clone(&self.engine);
        let media = (growth == Growth::Objects).then_some(media::Profile::Object);
        let request = AddDisks { disks, to, media, force: true, zeroing: Arc::default() };
        let under_way = promise(|done| engine.add_disks(AGGREGATE, request, done));
        self.growing.under_way = Some(under_way);
    }

    fn joining_disk(&mut self, blocks: u64) -> Arc<dyn Disk> {
        let name = format!("joined{}", self.growing.joined_count);
        self.growing.joined_count += 1;
        let disk = self.world.add_disk(&name, blocks);
        for block in 0..GARBAGE_BLOCKS {
            let garbage = Block::from_prefix(&[block as u8 | 1; 64]);
            self.world.write_block(&name, media::DATA_START + block, &garbage);
        }
        self.watch.over(disk)
    }

    /// Whether disks are being added.
    #[must_use]
    pub const fn is_growing(&self) -> bool {
        self.growing.under_way.is_some()
    }

    /// The engine that was asked is no more.
    pub fn forget_growth(&mut self) {
        self.growing.under_way = None;
    }

    /// Takes in how a growth ended.
    pub fn poll_growth(&mut self) -> Result<(), Finding> {
        let outcome = self.growing.under_way.as_ref().and_then(|one| one.lock().take());
        let Some(outcome) = outcome else { return Ok(()) };
        self.growing.under_way = None;
        match outcome {
            Ok(()) => {}
            // One after the other.
            Err(EngineError::Aggregate(AggregateError::Raid(RaidError::Growing))) => {
                self.trace.meet("growth: refused while a group leaves");
                return Ok(());
            }
            Err(error) => return Err(self.refused("add disks", &error.to_string())),
        }
        self.trace.note("the aggregate has grown".to_owned());
        let Some(aggregate) = self.aggregate() else { return Ok(()) };
        self.growing.answered_blocks = Some(aggregate.parts.store.geometry().end().get());
        self.check_growth()
    }

    /// Whether the aggregate has the size that was answered.
    pub fn check_growth(&self) -> Result<(), Finding> {
        let (Some(expected), Some(aggregate)) = (self.growing.answered_blocks, self.aggregate())
        else {
            return Ok(());
        };
        let geometry = aggregate.parts.store.geometry();
        let (found, end) = (aggregate.size_blocks(), geometry.end().get());
        // Groups may have left, and others not know of it yet.
        let is_whole = found == geometry.blocks() || geometry.removed_blocks() > 0;
        if is_whole && end == expected && expected > self.first_end().get() {
            return Ok(());
        }
        Err(Finding::Media(format!("{expected} blocks were answered, {found} of {end} are there")))
    }

    /// The PVBN after the last of the aggregate as it was made.
    pub(crate) fn first_end(&self) -> units::Pvbn {
        let regions = media::regions_of(self.plan.disk_blocks);
        let data_disks = (self.plan.disks - self.plan.kind.parity_disks()) as u64;
        units::Pvbn(data_disks * media::DeviceLayout { regions }.data_blocks())
    }
}
