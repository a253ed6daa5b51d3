//! What is to be moved, and what a consistency point does about it. No I/O but the writing of what
//! is placed.
//!
//! Invariants: see [`crate::relocating`].

use super::areas::{AreaBatch, AreaCleaning, MetafileBlock, Stage};
use super::moves::{Batch, Entries, Move, Placed, Placing};
use super::scan::Scan;
use super::splits::{self, Looked, PlacedSplit, SplitBatch, Splits};
use super::tiering::{Tiering, TieringPolicy};
use crate::allocation::pool::BlockPool;
use crate::allocation::refill::{Refill, Tier, is_near};
use crate::containers::{Container, MemberCleaned, VolumeSlot, node_of};
use crate::owner::content_of;
use cowfs::content::content_checksum;
use cowfs::reader::{Progress, Reader};
use cowfs::space::Space;
use ondisk::features::FeatureScope;
use ondisk::identity::BlockOwner;
use ondisk::pointer::PhysicalPointer;
use ondisk::records::VolumeRecord;
use platform::mutation::{self, Rule};
use raid::{BlockStore, BlockWrite};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use units::{Pvbn, VolumeId, Vvbn};

/// Nodes that are remembered for a volume; beyond that all of its map is looked at.
const NODES_MAX: usize = 1 << 16;

/// What is to be moved, and how far that is.
#[derive(Default)]
pub struct Relocation {
    pub(crate) volumes: BTreeMap<VolumeId, Queue>,
    /// Numbers in object stores, given to this.
    pub(crate) stock: VecDeque<Pvbn>,
    /// What was read, until a consistency point takes it.
    pub(crate) batch: Option<Batch>,
    /// What a consistency point has placed, until it commits.
    pub(crate) placed: Option<Vec<Placed>>,
    /// Areas that are being emptied.
    pub(crate) areas: AreaCleaning,
    /// Clones that are being split.
    pub(crate) splits: Splits,
    /// Entries that consistency points have changed since what is to be moved was looked for, or
    /// that the running one changes.
    pub(crate) changed: BTreeSet<(VolumeId, Vvbn)>,
    /// A message looks, or there is a batch.
    pub(crate) is_running: bool,
    /// Blocks are being read or wait for a consistency point.
    pub(crate) has_batch: bool,
    /// The volume that was looked at last: they take turns.
    pub(crate) last: Option<VolumeId>,
    /// No object store has room.
    pub(crate) is_full: bool,
}

/// A volume of which some blocks are to lie in object stores.
pub(crate) struct Queue {
    pub(crate) tiering: Tiering,
    /// Lowest-level nodes of its container map to look at, if all of it is to.
    pub(crate) nodes: BTreeSet<u64>,
    /// The same, of the consistency point that is running.
    pub(crate) fresh: BTreeSet<u64>,
    /// Where looking at all of the map goes on.
    pub(crate) sweep: Option<Vvbn>,
    /// How its blocks cool, if their age counts.
    pub(crate) scan: Scan,
    /// Blocks that clients have read.
    pub(crate) reads: BTreeSet<Vvbn>,
}

impl Queue {
    fn new(tiering: Tiering, scan: Scan) -> Self {
        Self {
            tiering,
            nodes: BTreeSet::new(),
            fresh: BTreeSet::new(),
            sweep: (tiering.policy == TieringPolicy::All).then_some(Vvbn(0)),
            scan,
            reads: BTreeSet::new(),
        }
    }

    /// Whether there is something to look at; `is_full`: no object store has room.
    pub(crate) fn has_work(&self, is_full: bool) -> bool {
        let is_near = self.sweep.is_some() || !self.nodes.is_empty();
        let is_cooling = self.tiering.is_cooling();
        is_near && !is_full || is_cooling && (self.scan.is_running || !self.reads.is_empty())
    }

    pub(crate) fn add(&mut self, nodes: impl IntoIterator<Item = u64>) {
        if self.tiering.policy != TieringPolicy::All {
            return;
        }
        self.nodes.extend(nodes);
        if self.nodes.len() > NODES_MAX {
            *self = Self::new(self.tiering, self.scan);
        }
    }
}

impl Relocation {
    /// As the volumes' records say.
    #[must_use]
    pub fn of<'a>(slots: impl Iterator<Item = &'a VolumeSlot>) -> Self {
        let mut relocation = Self::default();
        for slot in slots {
            relocation.set(VolumeId(slot.record.volume.get()), &slot.record);
        }
        relocation
    }

    /// From now on a volume's blocks are moved as its record says.
    pub fn set(&mut self, volume: VolumeId, record: &VolumeRecord) {
        self.splits.set(volume, record);
        let tiering = Tiering::of(record);
        // Ages and scans are the volume's. Of a volume that this build must not write they stay.
        let is_kept = record.features.forbids_writing(FeatureScope::Volume).is_some();
        if tiering.policy == TieringPolicy::None || is_kept {
            self.volumes.remove(&volume);
        } else {
            self.volumes.insert(volume, Queue::new(tiering, Scan::of(record)));
        }
        self.drop_batch_of(volume);
    }

    /// A volume is deleted.
    pub(crate) fn remove(&mut self, volume: VolumeId) {
        self.volumes.remove(&volume);
        self.splits.clones.remove(&volume);
        self.drop_batch_of(volume);
    }

    fn drop_batch_of(&mut self, volume: VolumeId) {
        if self.batch.as_ref().is_some_and(|batch| batch.volume == volume && !batch.is_promised) {
            self.drop_batch();
        }
    }

    /// Numbers in object stores that were given and not used.
    pub(crate) fn in_stock(&self) -> Vec<Pvbn> {
        self.stock.iter().copied().collect()
    }

    /// There are more disks.
    pub(crate) const fn grow(&mut self) {
        self.is_full = false;
    }

    /// Numbers that are held for blocks to come.
    pub(crate) fn stocked(&self) -> u64 {
        self.stock.len() as u64
    }

    /// The next volume with something to look at.
    pub(crate) fn next_volume(&self) -> Option<VolumeId> {
        let has_work =
            |(volume, queue): (&VolumeId, &Queue)| queue.has_work(self.is_full).then_some(*volume);
        let after = self.last.map_or(VolumeId(0), |last| VolumeId(last.get() + 1));
        let mut all = self.volumes.range(after..).chain(self.volumes.range(..after));
        all.find_map(has_work)
    }

    /// What volumes have changed in their container maps is to be looked at after the commit.
    pub(crate) fn note(&mut self, cleaned: &[MemberCleaned]) {
        for member in cleaned {
            let volume = member.volume;
            let queue = self.volumes.get_mut(&volume);
            let is_moving = self.is_running || self.areas.is_running() || self.splits.is_running();
            if queue.is_some() || is_moving {
                let changed = member.updates.iter().map(|(vvbn, _)| (volume, *vvbn));
                self.changed.extend(changed);
            }
            if let Some(queue) = queue.filter(|one| one.tiering.policy == TieringPolicy::All) {
                let placed = member.updates.iter().filter(|(_, to)| to.is_some());
                queue.fresh.extend(placed.map(|(vvbn, _)| node_of(*vvbn)));
            }
        }
    }

    /// The batch will not be moved, or not now.
    pub(crate) fn drop_batch(&mut self) {
        (self.is_running, self.has_batch) = (false, false);
        if let Some(Batch { volume, nodes, .. }) = self.batch.take() {
            self.put_back(volume, nodes);
        }
    }

    pub(crate) fn put_back(&mut self, volume: VolumeId, nodes: BTreeSet<u64>) {
        if let Some(queue) = self.volumes.get_mut(&volume) {
            queue.add(nodes);
        }
    }

    /// Makes sure that there are numbers for the batch that is to be placed, as far as there is
    /// room.
    ///
    /// # Errors
    /// What to wait for.
    pub(crate) fn take_stock(
        &mut self,
        refill: &mut Refill,
        space: &mut Space<PhysicalPointer>,
        store: &dyn BlockStore,
        pool: &BlockPool,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        let promised = self.batch.as_ref().filter(|batch| batch.is_promised);
        let moves = promised.map_or(&[][..], |batch| &batch.moves);
        let wanted = |tier| moves.iter().filter(|one| one.to == tier).count();
        let (near, wanted) = (
            wanted(Tier::Near) + self.areas.promised() + self.splits.promised(),
            wanted(Tier::Object),
        );
        while pool.len() < near {
            let found = refill.next_tetris(Tier::Near, space, store, reader)?;
            if found.is_empty() {
                break;
            }
            pool.stock(found.into_iter());
        }
        while self.stock.len() < wanted {
            let found = refill.next_tetris(Tier::Object, space, store, reader)?;
            if found.is_empty() {
                self.is_full = true;
                return Ok(());
            }
            self.stock.extend(found);
        }
        Ok(())
    }

    /// Places what was promised: its changes go with those of the volumes.
    pub(crate) fn place(&mut self, to: &mut Placing<'_>, cleaned: &mut Vec<MemberCleaned>) {
        let mut entries = Entries::new();
        if let Some(batch) = self.batch.take_if(|batch| batch.is_promised) {
            let volume = batch.volume;
            let aged = batch.aged.into_iter().map(|one| ((volume, one.vvbn), one.to));
            self.keep(aged, to, &mut entries);
            let (placed, _) = self.place_moves(batch.moves, to, &mut entries);
            // What is known of them elsewhere is old.
            self.changed.extend(entries.keys());
            self.placed = Some(placed);
            if self.is_full {
                // The rest, when there is room.
                self.put_back(volume, batch.nodes);
            }
        }
        if let Some(batch) = self.areas.take_promised() {
            self.place_area(batch, to, &mut entries);
        }
        if let Some(batch) = self.splits.take_promised() {
            self.place_split(batch, to, &mut entries);
        }
        for ((volume, vvbn), pointer) in entries {
            let at = cleaned.iter().position(|member| member.volume == volume);
            let at = at.unwrap_or_else(|| {
                cleaned.push(MemberCleaned::of(volume));
                cleaned.len() - 1
            });
            cleaned[at].updates.push((vvbn, Some(pointer)));
        }
    }

    /// Whether an entry is as it was when it was looked up, and the volume there to stay.
    fn is_unchanged(&self, (volume, vvbn): (VolumeId, Vvbn), to: &Placing<'_>) -> bool {
        let is_changed =
            self.changed.contains(&(volume, vvbn)) && !mutation::broken(Rule::ChangedBlockMoved);
        let container = to.containers.get(&volume);
        !is_changed && container.is_some_and(Container::is_live)
    }

    /// Has blocks stay where they are, with these entries.
    pub(crate) fn keep(
        &self,
        kept: impl Iterator<Item = ((VolumeId, Vvbn), PhysicalPointer)>,
        to: &Placing<'_>,
        entries: &mut Entries,
    ) {
        entries.extend(kept.filter(|(block, _)| self.is_unchanged(*block, to)));
    }

    /// Writes blocks that were read to other places; false with the rest if numbers run out.
    pub(crate) fn place_moves(
        &mut self,
        moves: Vec<Move>,
        to: &mut Placing<'_>,
        entries: &mut Entries,
    ) -> (Vec<Placed>, bool) {
        let geometry = to.store.geometry();
        let mut placed = Vec::new();
        for Move { volume, vvbn, found, from, to: tier } in moves {
            let found = found.filter(|_| self.is_unchanged((volume, vvbn), to));
            let Some((block, owner)) = found else { continue };
            let number = match tier {
                Tier::Object => self.stock.pop_front(),
                Tier::Near => to.pool.take_if(|pvbn| is_near(&geometry, pvbn)),
            };
            let Some(pvbn) = number else { return (placed, false) };
            to.space.take(pvbn);
            let checksum = content_checksum(&block, content_of(&owner));
            let write = BlockWrite::new(pvbn, block, BlockOwner { cp: to.cp, ..owner });
            // Nobody has used what is moved from disks to disks: it is as old as it was.
            let is_kept = tier == Tier::Near && is_near(&geometry, from.pvbn);
            let age = if is_kept { from.age } else { 0 };
            let pointer =
                PhysicalPointer { age, ..PhysicalPointer::new(pvbn, write.checksum as u16) };
            to.store.write(write);
            entries.insert((volume, vvbn), pointer);
            self.changed.insert((volume, vvbn));
            placed.push(Placed { from: from.pvbn, checksum, to: pvbn });
        }
        (placed, true)
    }

    /// Places what empties a part of an area.
    pub(crate) fn place_area(
        &mut self,
        batch: AreaBatch,
        to: &mut Placing<'_>,
        entries: &mut Entries,
    ) {
        if !mutation::broken(Rule::OwnBlocksStay) {
            self.areas.rewritten = batch.rewritten;
        }
        self.keep(batch.kept.into_iter(), to, entries);
        let (placed, is_whole) = self.place_moves(batch.moves, to, entries);
        self.areas.lacks_room = !is_whole;
        self.areas.stage = Stage::Placed(placed, is_whole.then_some(batch.next));
    }

    /// Writes blocks of ancestors as the clone's own.
    fn place_split(&mut self, batch: SplitBatch, to: &mut Placing<'_>, entries: &mut Entries) {
        let SplitBatch { clone, moves, looked, next, .. } = batch;
        let nodes = moves.iter().map(|one| node_of(one.vvbn)).collect();
        let (placed, is_whole) = self.place_moves(moves, to, entries);
        let looked = Looked { copied: placed.len() as u64, ..looked };
        let placed = PlacedSplit { clone, looked, nodes, is_whole, next };
        self.splits.lacks_room = !is_whole;
        self.splits.stage = splits::Stage::Placed(placed);
    }

    /// Blocks of the aggregate's metafiles that the running consistency point is to write again.
    pub(crate) fn take_rewritten(&mut self) -> Vec<MetafileBlock> {
        std::mem::take(&mut self.areas.rewritten)
    }
}
