//! Clones that are being split: whose turn it is, and which blocks are on their way.
//!
//! Invariants: see [`crate::relocating`]'s splitting, whose messages go from stage to stage.

use super::moves::Move;
use crate::containers::{VolumeSlot, node_of};
use crate::relocation::limit::MoveLimit;
use cowfs::budget::VOLUME_OVERHEAD_BLOCKS;
use ondisk::features::FeatureScope;
use ondisk::records::{STATE_ONLINE, VolumeRecord};
use std::collections::{BTreeMap, BTreeSet};
use units::{VolumeId, Vvbn};

/// Passes in a row that copy nothing, and find what cannot be read, until a split gives up: a block
/// that moves while it is read is found by the next pass.
const VAIN_PASSES_MAX: u32 = 2;

/// What is being split, and how far that is.
#[derive(Default)]
pub(crate) struct Splits {
    pub clones: BTreeMap<VolumeId, Pass>,
    pub stage: Stage,
    /// The clone that had its turn last.
    pub last: Option<VolumeId>,
    /// There was no room for the last batch: no consistency point is begun for the next.
    pub lacks_room: bool,
    /// A pass has ended that has copied something, or found what it could not read: another begins
    /// with the next commit.
    pub wants_pass: bool,
}

/// How far the pass through a clone's block numbers is.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Pass {
    /// All numbers before this one are the clone's own, or their blocks cannot be read.
    pub next: Vvbn,
    /// Blocks that the pass has copied.
    copied: u64,
    /// Blocks that it could not read.
    unreadable: u64,
    /// Blocks in an object store that did not answer.
    away: u64,
    /// Passes before it that were in vain.
    vain_passes: u32,
    /// It has begun anew: the next look comes after another commit than the last.
    pub is_over: bool,
}

/// How a pass ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PassEnd {
    /// There may be more for the next.
    Another,
    /// What is left cannot be read.
    Vain,
}

/// What became of blocks that were looked at.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Looked {
    pub copied: u64,
    /// They are lost, or nobody can tell where they are.
    pub unreadable: u64,
    /// They are in an object store that does not answer.
    pub away: u64,
}

impl Pass {
    /// A batch was looked at.
    pub(crate) const fn note(&mut self, looked: Looked) {
        self.copied += looked.copied;
        self.unreadable += looked.unreadable;
        self.away += looked.away;
    }

    /// Whether the next pass is to follow at once: it may find more, or say that there is no more.
    /// For an object store it waits.
    pub(crate) const fn wants_next(&self) -> bool {
        self.copied > 0 || self.unreadable > 0 && self.away == 0
    }

    /// The pass has come to the end.
    pub(crate) fn end(&mut self) -> PassEnd {
        let is_vain = self.copied == 0 && self.unreadable > 0 && self.away == 0;
        let vain_passes = if is_vain { self.vain_passes + 1 } else { 0 };
        *self = Self { vain_passes, is_over: true, ..Self::default() };
        match vain_passes >= VAIN_PASSES_MAX {
            true => PassEnd::Vain,
            false => PassEnd::Another,
        }
    }
}

#[derive(Default)]
pub(crate) enum Stage {
    #[default]
    Idle,
    /// The clone is asked for numbers, or they are looked up, or blocks are read.
    Looking,
    /// The numbers are looked up after the commit to come.
    Found(Numbers),
    /// The next consistency point takes the blocks.
    Ready(SplitBatch),
    /// The running one has taken them.
    Placed(PlacedSplit),
}

/// Numbers that a clone uses and may have inherited.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    pub clone: VolumeId,
    pub numbers: Vec<Vvbn>,
    /// Where the pass goes on; `None`: nowhere.
    pub next: Option<Vvbn>,
    /// The clone could not look at all of its maps.
    pub is_damaged: bool,
}

/// Blocks of ancestors that were read, to be written as the clone's own.
pub(crate) struct SplitBatch {
    pub clone: VolumeId,
    pub moves: Vec<Move>,
    pub looked: Looked,
    pub next: Option<Vvbn>,
    pub is_promised: bool,
}

impl SplitBatch {
    /// Blocks that a consistency point may take for it.
    pub(crate) fn cost_blocks(&self) -> u64 {
        let nodes: BTreeSet<u64> = self.moves.iter().map(|one| node_of(one.vvbn)).collect();
        cost_blocks(self.moves.len() as u64, nodes.len() as u64)
    }
}

/// What copies of so many blocks take, whose entries are in so many nodes of a container map: each
/// node with one above it, and the volume's record and what leads to it.
pub(crate) const fn cost_blocks(copies: u64, nodes: u64) -> u64 {
    copies + 2 * nodes + VOLUME_OVERHEAD_BLOCKS
}

/// What a consistency point has placed of a batch.
pub(crate) struct PlacedSplit {
    pub clone: VolumeId,
    pub looked: Looked,
    /// Nodes of the clone's container map that have entries of the copies.
    pub nodes: BTreeSet<u64>,
    /// Numbers ran out: the pass does not go on.
    pub is_whole: bool,
    pub next: Option<Vvbn>,
}

/// Whether a record has its volume split. One that this build must not write stays as it is.
fn is_split(record: &VolumeRecord) -> bool {
    let is_writable = record.features.forbids_writing(FeatureScope::Volume).is_none();
    record.state == STATE_ONLINE && record.split_blocks.get() != 0 && is_writable
}

impl Splits {
    /// From now on a clone is split, or not, as its record says.
    pub(crate) fn set(&mut self, volume: VolumeId, record: &VolumeRecord) {
        match is_split(record) {
            true => drop(self.clones.entry(volume).or_default()),
            false => drop(self.clones.remove(&volume)),
        }
    }

    pub(crate) const fn is_running(&self) -> bool {
        !matches!(self.stage, Stage::Idle)
    }

    /// The clone whose turn it is among those that `may_go_on`.
    pub(crate) fn next_clone(
        &self,
        mut may_go_on: impl FnMut(&VolumeId, &Pass) -> bool,
    ) -> Option<VolumeId> {
        let after = self.last.map_or(VolumeId(0), |last| VolumeId(last.get() + 1));
        let mut all = self.clones.range(after..).chain(self.clones.range(..after));
        all.find_map(|(volume, pass)| may_go_on(volume, pass).then_some(*volume))
    }

    /// Numbers that the running consistency point needs for it.
    pub(crate) fn promised(&self) -> usize {
        match &self.stage {
            Stage::Ready(batch) if batch.is_promised => batch.moves.len(),
            _ => 0,
        }
    }

    pub(crate) fn take_promised(&mut self) -> Option<SplitBatch> {
        match std::mem::take(&mut self.stage) {
            Stage::Ready(batch) if batch.is_promised => Some(batch),
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// A consistency point has committed: what it has placed.
    pub(crate) fn take_placed(&mut self) -> Option<PlacedSplit> {
        match std::mem::take(&mut self.stage) {
            Stage::Placed(placed) => Some(placed),
            other => {
                self.stage = other;
                None
            }
        }
    }
}

/// What status knows of the splits under way, and how fast they may be.
#[derive(Default)]
pub(crate) struct SplitStates {
    pub states: BTreeMap<VolumeId, SplitState>,
    /// Clones whose last split gave up, since the start.
    pub failed: BTreeSet<VolumeId>,
    /// Free blocks on disks as of the last commit, where object stores have others.
    pub near_free_blocks: Option<u64>,
    /// When splits that do nothing were last looked at.
    pub looked_at: u64,
}

impl SplitStates {
    /// As volumes' records say. One that is not among those that are split is damaged.
    pub(crate) fn of(table: &[VolumeSlot], splits: &Splits) -> Self {
        let volume = |slot: &VolumeSlot| VolumeId(slot.record.volume.get());
        let all = table.iter().filter(|slot| is_split(&slot.record));
        let (split, damaged): (Vec<_>, Vec<_>) =
            all.partition(|slot| splits.clones.contains_key(&volume(slot)));
        let state = |slot: &VolumeSlot| {
            let blocks = slot.record.split_blocks.get();
            let state = SplitState { blocks, ..SplitState::default() };
            (volume(slot), state)
        };
        let failed = damaged.into_iter().map(volume).collect();
        Self { states: split.into_iter().map(state).collect(), failed, ..Self::default() }
    }
}

/// A split that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloneSplit {
    /// The clone.
    pub clone: VolumeId,
    /// Blocks that it had inherited when the split began.
    pub blocks: u64,
    /// Bytes a second that are copied at most; `None` if there is no limit.
    pub rate: Option<u64>,
}

#[derive(Default)]
pub(crate) struct SplitState {
    pub limit: MoveLimit,
    /// Blocks that the clone had inherited when the split began.
    pub blocks: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_gives_up_after_two_passes_in_vain() {
        let mut pass = Pass::default();
        let looked = |copied, unreadable, away| Looked { copied, unreadable, away };
        pass.note(looked(0, 3, 0));
        assert_eq!(pass.end(), PassEnd::Another);
        pass.note(looked(1, 2, 0));
        assert_eq!(pass.end(), PassEnd::Another, "it has copied something");
        assert_eq!(pass.end(), PassEnd::Another, "there was nothing");
        for _ in 0..3 {
            pass.note(looked(0, 1, 1));
            assert!(!pass.wants_next(), "not at once");
            assert_eq!(pass.end(), PassEnd::Another, "an object store may answer again");
        }
        for expected in [PassEnd::Another, PassEnd::Vain] {
            assert!(pass.is_over && pass.next == Vvbn(0));
            pass.note(looked(0, 2, 0));
            assert_eq!(pass.end(), expected);
        }
    }

    #[test]
    fn clones_take_turns() {
        let mut splits = Splits::default();
        let mut record = VolumeRecord::empty();
        record.state = STATE_ONLINE;
        record.set_split_blocks(7);
        for volume in [3, 5, 9] {
            splits.set(VolumeId(volume), &record);
        }
        for expected in [3, 5, 9, 3] {
            splits.last = splits.next_clone(|_, _| true);
            assert_eq!(splits.last, Some(VolumeId(expected)));
        }
        assert_eq!(splits.next_clone(|volume, _| volume.get() == 3), Some(VolumeId(3)));
        assert_eq!(splits.next_clone(|_, _| false), None);
        record.set_split_blocks(0);
        splits.set(VolumeId(5), &record);
        assert_eq!(splits.next_clone(|_, _| true), Some(VolumeId(9)));
    }
}
