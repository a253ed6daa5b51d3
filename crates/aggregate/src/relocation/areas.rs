//! Areas that are being emptied: which one, how far that is, and what of it is on its way.
//!
//! Invariants: see [`crate::relocating`]'s areas, whose messages go from stage to stage.

use super::moves::{Found, Move, Placed};
use crate::allocation::refill::Cursor;
use crate::containers::node_of;
use cowfs::budget::VOLUME_OVERHEAD_BLOCKS;
use ondisk::pointer::PhysicalPointer;
use std::collections::BTreeSet;
use units::{Fbn, InodeNumber, Pvbn, VolumeId, Vvbn};

/// Blocks of a tree that are written with one that is written again: those on the way to it.
const PATH_BLOCKS: u64 = 4;

/// What is being emptied, and how far that is.
#[derive(Default)]
pub(crate) struct AreaCleaning {
    pub area: Option<Emptying>,
    /// Another, whose turn it is not: of a group that leaves and has to wait, or of one that stays.
    pub aside: Option<Emptying>,
    pub stage: Stage,
    /// Blocks of the aggregate's metafiles that the running consistency point writes again.
    pub rewritten: Vec<MetafileBlock>,
    /// There was no room for all of the last batch: no consistency point is begun for the next.
    pub lacks_room: bool,
}

/// A file of the aggregate, and a block of it.
pub(crate) type MetafileBlock = (InodeNumber, Fbn);

pub(crate) struct Emptying {
    pub group: u32,
    pub area: u32,
    /// All used blocks before this one were moved, or cannot be.
    pub from: Cursor,
}

#[derive(Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    /// A message looks at the area, or blocks are read, or matched.
    Looking,
    /// They were read, and are matched after the commit to come.
    Found(FoundBlocks),
    /// The next consistency point takes them.
    Ready(AreaBatch),
    /// The running one has; where the area goes on, if that was all of them.
    Placed(Vec<Placed>, Option<Cursor>),
}

/// Blocks of the area that were read.
pub(crate) struct FoundBlocks {
    pub blocks: Vec<(Pvbn, Found)>,
    /// What follows them.
    pub next: Cursor,
}

/// What empties a part of an area.
pub(crate) struct AreaBatch {
    pub moves: Vec<Move>,
    /// Entries of container maps that are written again as they are: the nodes that have them move.
    pub kept: Vec<((VolumeId, Vvbn), PhysicalPointer)>,
    /// Blocks of metafiles that are written again.
    pub rewritten: Vec<MetafileBlock>,
    /// Slots of the volume table that are.
    pub slots: BTreeSet<usize>,
    pub next: Cursor,
    pub is_promised: bool,
}

impl AreaBatch {
    pub(crate) const fn new(next: Cursor) -> Self {
        Self {
            moves: Vec::new(),
            kept: Vec::new(),
            rewritten: Vec::new(),
            slots: BTreeSet::new(),
            next,
            is_promised: false,
        }
    }

    pub(crate) fn volumes(&self) -> BTreeSet<VolumeId> {
        let kept = self.kept.iter().map(|((volume, _), _)| *volume);
        self.moves.iter().map(|one| one.volume).chain(kept).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.own_blocks() == 0 && self.moves.is_empty()
    }

    /// Blocks of the aggregate's own image.
    pub(crate) fn own_blocks(&self) -> u64 {
        (self.kept.len() + self.rewritten.len() + self.slots.len()) as u64
    }

    /// Blocks that a consistency point may take for it.
    pub(crate) fn cost_blocks(&self) -> u64 {
        let node = |one: &Move| (one.volume, node_of(one.vvbn));
        let nodes: BTreeSet<_> = self.moves.iter().map(node).collect();
        // The blocks and what is freed, and each node of a container map with one above it; of each
        // volume the record, the container's inode, and the ways to them.
        2 * (self.moves.len() + nodes.len()) as u64
            + PATH_BLOCKS * (self.own_blocks() + self.volumes().len() as u64)
            + VOLUME_OVERHEAD_BLOCKS
    }
}

impl AreaCleaning {
    pub(crate) const fn is_running(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// Numbers that the running consistency point needs for it.
    pub(crate) fn promised(&self) -> usize {
        match &self.stage {
            Stage::Ready(batch) if batch.is_promised => batch.moves.len(),
            _ => 0,
        }
    }

    pub(crate) fn take_promised(&mut self) -> Option<AreaBatch> {
        match std::mem::take(&mut self.stage) {
            Stage::Ready(batch) if batch.is_promised => Some(batch),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// A consistency point has committed: what it has moved of the area.
    pub(crate) fn take_placed(&mut self) -> Vec<Placed> {
        match std::mem::take(&mut self.stage) {
            Stage::Placed(placed, next) => {
                if let (Some(area), Some(next)) = (&mut self.area, next) {
                    area.from = next;
                }
                placed
            }
            other => {
                self.stage = other;
                Vec::new()
            }
        }
    }
}
