//! What is to be moved, and what a consistency point does about it. No I/O but the writing of what
//! is placed.
//!
//! Invariants: see [`super`].

use crate::block_side::Container;
use crate::member::MemberCleaned;
use crate::refill::{Refill, Tier};
use cowfs::pointer::Pointer;
use cowfs::reader::{Progress, Reader};
use cowfs::space::Space;
use ondisk::identity::BlockOwner;
use ondisk::pointer::PhysicalPointer;
use platform::mutation::{self, Rule};
use raid::{BlockStore, BlockWrite};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use units::{BlockRef, CpNumber, Pvbn, VolumeId};

/// Nodes that are remembered for a volume; beyond that all of its map is looked at.
const NODES_MAX: usize = 1 << 16;

/// What is to be moved, and how far that is.
#[derive(Default)]
pub struct Relocation {
    pub(super) volumes: BTreeMap<VolumeId, Queue>,
    /// Numbers in object stores, given to this.
    pub(super) stock: VecDeque<Pvbn>,
    /// What was read, until a consistency point takes it.
    pub(super) batch: Option<Batch>,
    /// What a consistency point has placed, until it commits.
    pub(super) placed: Option<Vec<Placed>>,
    /// Entries that consistency points have changed since the batch was looked for, or that the
    /// running one changes.
    pub(super) changed: BTreeSet<(VolumeId, u64)>,
    /// A message looks, or there is a batch.
    pub(super) is_running: bool,
    /// Blocks are being read or wait for a consistency point.
    pub(super) has_batch: bool,
    /// The volume that was looked at last: they take turns.
    pub(super) last: Option<VolumeId>,
    /// No object store has room.
    pub(super) is_full: bool,
}

/// A volume of which everything is to lie in object stores.
#[derive(Default)]
pub(super) struct Queue {
    /// Lowest-level nodes of its container map to look at.
    pub(super) nodes: BTreeSet<u64>,
    /// The same, of the consistency point that is running.
    pub(super) fresh: BTreeSet<u64>,
    /// Where looking at all of the map goes on.
    pub(super) sweep: Option<u64>,
}

impl Queue {
    pub(super) fn everything() -> Self {
        Self { sweep: Some(0), ..Self::default() }
    }

    pub(super) fn has_work(&self) -> bool {
        self.sweep.is_some() || !self.nodes.is_empty()
    }

    pub(super) fn add(&mut self, nodes: impl IntoIterator<Item = u64>) {
        self.nodes.extend(nodes);
        if self.nodes.len() > NODES_MAX {
            *self = Self::everything();
        }
    }
}

/// Blocks of a volume on their way.
pub(super) struct Batch {
    pub(super) volume: VolumeId,
    pub(super) nodes: BTreeSet<u64>,
    pub(super) moves: Vec<Move>,
    /// Room was promised by the freeze of the consistency point that is running.
    pub(super) is_promised: bool,
}

pub(super) struct Move {
    pub(super) vvbn: u64,
    pub(super) from: PhysicalPointer,
    pub(super) found: Option<(BlockRef, BlockOwner)>,
}

pub(super) struct Placed {
    pub(super) from: Pvbn,
    pub(super) checksum: u32,
    pub(super) to: Pvbn,
}

impl Relocation {
    /// For volumes of which everything is to lie in object stores.
    #[must_use]
    pub fn of(volumes: impl Iterator<Item = VolumeId>) -> Self {
        let volumes = volumes.map(|volume| (volume, Queue::everything())).collect();
        Self { volumes, ..Self::default() }
    }

    /// From now on a volume's blocks are moved, or no longer.
    pub fn set(&mut self, volume: VolumeId, is_moved: bool) {
        if is_moved {
            self.volumes.insert(volume, Queue::everything());
        } else {
            self.volumes.remove(&volume);
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

    /// The next volume with something to look at.
    pub(super) fn next_volume(&self) -> Option<VolumeId> {
        let has_work = |(volume, queue): (&VolumeId, &Queue)| queue.has_work().then_some(*volume);
        let after = self.last.map_or(VolumeId(0), |last| VolumeId(last.get() + 1));
        let mut all = self.volumes.range(after..).chain(self.volumes.range(..after));
        all.find_map(has_work)
    }

    /// What volumes have changed in their container maps is to be looked at after the commit.
    pub(crate) fn note(&mut self, cleaned: &[MemberCleaned]) {
        for member in cleaned {
            let volume = member.volume;
            let queue = self.volumes.get_mut(&volume);
            if queue.is_some() || self.is_running {
                let changed = member.updates.iter().map(|(vvbn, _)| (volume, *vvbn));
                self.changed.extend(changed);
            }
            if let Some(queue) = queue {
                let placed = member.updates.iter().filter(|(_, to)| to.is_some());
                queue.fresh.extend(placed.map(|(vvbn, _)| vvbn / PhysicalPointer::FANOUT));
            }
        }
    }

    /// The batch will not be moved, or not now.
    pub(super) fn drop_batch(&mut self) {
        (self.is_running, self.has_batch) = (false, false);
        if let Some(Batch { volume, nodes, .. }) = self.batch.take() {
            self.put_back(volume, nodes);
        }
    }

    pub(super) fn put_back(&mut self, volume: VolumeId, nodes: BTreeSet<u64>) {
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
        reader: &Reader<'_>,
    ) -> Progress<()> {
        let promised = self.batch.as_ref().filter(|batch| batch.is_promised);
        let wanted = promised.map_or(0, |batch| batch.moves.len());
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

    /// Places the batch: its changes go with those of the volumes.
    pub(crate) fn place(
        &mut self,
        space: &mut Space<PhysicalPointer>,
        store: &dyn BlockStore,
        containers: &BTreeMap<VolumeId, Container>,
        cp: CpNumber,
        cleaned: &mut Vec<MemberCleaned>,
    ) {
        let Some(batch) = self.batch.take_if(|batch| batch.is_promised) else { return };
        let volume = batch.volume;
        let placed = self.placed.insert(Vec::new());
        if containers.get(&volume).is_none_or(|container| container.deleting) {
            return;
        }
        let at = cleaned.iter().position(|member| member.volume == volume).unwrap_or_else(|| {
            cleaned.push(MemberCleaned { volume, updates: Vec::new() });
            cleaned.len() - 1
        });
        let updates = &mut cleaned[at].updates;
        let is_changed = |vvbn| {
            self.changed.contains(&(volume, vvbn)) && !mutation::broken(Rule::ChangedBlockMoved)
        };
        for Move { vvbn, found, from } in batch.moves {
            let Some((block, owner)) = found.filter(|_| !is_changed(vvbn)) else { continue };
            let Some(pvbn) = self.stock.pop_front() else { break };
            space.take(pvbn.get());
            let write = BlockWrite::new(pvbn, block, BlockOwner { cp, ..owner });
            let checksum = write.checksum;
            store.write(write);
            updates.push((vvbn, Some(PhysicalPointer { pvbn, check: checksum as u16 })));
            placed.push(Placed { from: from.pvbn, checksum, to: pvbn });
        }
        if self.is_full {
            // The rest, when there is room.
            self.put_back(volume, batch.nodes);
        }
        if cleaned[at].updates.is_empty() {
            cleaned.remove(at);
        }
    }
}
