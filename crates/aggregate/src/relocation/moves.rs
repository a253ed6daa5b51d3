//! Blocks on their way to another place: a batch, each of its moves, and where they are placed.
//!
//! Invariants: see [`crate::relocating`].

use super::scan::Scan;
use super::tiering::TieringPolicy;
use crate::allocation::pool::BlockPool;
use crate::allocation::refill::Tier;
use crate::containers::Container;
use cowfs::space::Space;
use ondisk::identity::BlockOwner;
use ondisk::pointer::{AGE_STAYS, PhysicalPointer};
use ondisk::root::metafile;
use raid::BlockStore;
use std::collections::{BTreeMap, BTreeSet};
use units::{BlockRef, CpNumber, Pvbn, VolumeId, Vvbn};

/// Blocks that a batch is filled up to, by whole nodes: 4 MiB, an object.
pub(crate) const BATCH_BLOCKS: usize = 1024;
/// Free blocks below which nothing is moved: what a batch takes until its commit, several times.
pub(crate) const FREE_BLOCKS_MIN: u64 = 4 * BATCH_BLOCKS as u64;
/// What an identity calls a block of a file.
const KIND_DATA: u8 = 1;

/// A block that was read, and whose it is; `None` if it cannot be read.
pub(crate) type Found = Option<(BlockRef, BlockOwner)>;

/// Whether a block may move: maps, nodes, inodes and what is read at a start may not.
fn may_move(owner: &BlockOwner) -> bool {
    owner.inode.get() >= metafile::FIRST_FILE && owner.kind == KIND_DATA && owner.level == 0
}

/// Blocks of a volume on their way.
pub(crate) struct Batch {
    pub(crate) volume: VolumeId,
    pub(crate) policy: TieringPolicy,
    pub(crate) nodes: BTreeSet<u64>,
    pub(crate) moves: Vec<Move>,
    /// Blocks that are to stay, with another age.
    pub(crate) aged: Vec<Aged>,
    /// Where the temperature scan is that found them, if one did.
    pub(crate) scan: Option<Scan>,
    /// Room was promised by the freeze of the consistency point that is running.
    pub(crate) is_promised: bool,
}

impl Batch {
    pub(crate) const fn new(volume: VolumeId, policy: TieringPolicy) -> Self {
        Self {
            volume,
            policy,
            nodes: BTreeSet::new(),
            moves: Vec::new(),
            aged: Vec::new(),
            scan: None,
            is_promised: false,
        }
    }

    /// Whether the volume is to say which of the blocks its active image has.
    pub(crate) fn asks_member(&self) -> bool {
        let is_out = |one: &Move| one.to == Tier::Object;
        self.policy == TieringPolicy::SnapshotOnly && self.moves.iter().any(is_out)
    }

    /// Whether nothing is to be written.
    pub(crate) const fn is_empty(&self) -> bool {
        self.moves.is_empty() && self.aged.is_empty()
    }

    /// Drops what could not be read, and what stays on disks for good.
    pub(crate) fn sort_out(&mut self) {
        let Self { moves, aged, policy, .. } = self;
        moves.retain(|one| {
            let Some((_, owner)) = &one.found else { return false };
            if may_move(owner) {
                return true;
            }
            if *policy != TieringPolicy::All && one.to == Tier::Object {
                // It is not looked at again.
                aged.retain(|other| other.vvbn != one.vvbn);
                let to = PhysicalPointer { age: AGE_STAYS, ..one.from };
                aged.push(Aged { vvbn: one.vvbn, to });
            }
            false
        });
    }
}

pub(crate) struct Move {
    pub(crate) volume: VolumeId,
    pub(crate) vvbn: Vvbn,
    pub(crate) from: PhysicalPointer,
    pub(crate) to: Tier,
    pub(crate) found: Found,
}

impl Move {
    /// One of a block that is to be read.
    pub(crate) const fn new(
        (volume, vvbn): (VolumeId, Vvbn),
        from: PhysicalPointer,
        to: Tier,
    ) -> Self {
        Self { volume, vvbn, from, to, found: None }
    }
}

/// A block that stays where it is, and the entry that it gets.
pub(crate) struct Aged {
    pub(crate) vvbn: Vvbn,
    pub(crate) to: PhysicalPointer,
}

pub(crate) struct Placed {
    pub(crate) from: Pvbn,
    /// As pointers in the volume say it.
    pub(crate) checksum: u32,
    pub(crate) to: Pvbn,
}

/// What container maps say of blocks from the consistency point on that is running.
pub(crate) type Entries = BTreeMap<(VolumeId, Vvbn), PhysicalPointer>;

/// Where a consistency point places what moves.
pub(crate) struct Placing<'a> {
    pub space: &'a mut Space<PhysicalPointer>,
    pub store: &'a dyn BlockStore,
    /// Numbers on disks, if nothing else is left in it.
    pub pool: &'a BlockPool,
    pub containers: &'a BTreeMap<VolumeId, Container>,
    pub cp: CpNumber,
}
