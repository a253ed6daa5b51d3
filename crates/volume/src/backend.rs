//! A flexible volume's two spaces as the place where its image goes: a VVBN from its own, a PVBN
//! from its aggregate (FlexVol section 3.3).
//!
//! Invariants: each placed block has an update of the container map. A block that is reallocated
//! keeps its VVBN: the update alone says where it lies now.

use aggregate::{Aggregate, ContainerUpdate, block_owner};
use cowfs::content::Content;
use cowfs::image::Backend;
use cowfs::pointer::{BlockPlace, Pointer};
use cowfs::reader::{Progress, Reader, Stop, Wait};
use cowfs::scatter::Runs;
use cowfs::space::Space;
use ondisk::identity::crc32c;
use ondisk::pointer::{DualPointer, PhysicalPointer};
use platform::stage::{self, Stage};
use raid::BlockWrite;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use units::{BlockRef, CpNumber, Fbn, Pvbn, Vvbn};

/// Free PVBNs that a volume takes from the pool at once.
const RESERVE_BLOCKS: usize = 64;

/// What a volume's cleaning holds of the aggregate, and owes it.
#[derive(Default)]
pub(crate) struct Holdings {
    pub reserved: VecDeque<Pvbn>,
    pub used: Vec<Pvbn>,
    pub updates: Vec<ContainerUpdate>,
    /// Of those used, the ones whose blocks are nobody's: free again with the commit.
    pub wasted: Vec<Pvbn>,
    /// Where blocks have lain that lie elsewhere now, under their numbers.
    pub reallocated_from: Runs,
    /// And where they lie now.
    pub reallocated: Runs,
}

impl Holdings {
    /// Takes over what another has told the aggregate; its numbers were forfeited.
    pub fn join(&mut self, other: Self) {
        self.updates.extend(other.updates);
        self.wasted.extend(other.wasted);
        self.reallocated_from.join(other.reallocated_from);
        self.reallocated.join(other.reallocated);
    }
}

/// See the module.
pub(crate) struct DualBackend<'a> {
    pub aggregate: &'a Aggregate,
    pub holdings: &'a mut Holdings,
    pub cp: CpNumber,
}

impl DualBackend<'_> {
    /// Makes sure that `count` PVBNs are at hand.
    pub fn reserve(&mut self, count: usize) -> Progress<()> {
        let missing = count.saturating_sub(self.holdings.reserved.len());
        if missing > 0 {
            let found = self.aggregate.pool.reserve(missing.max(RESERVE_BLOCKS));
            self.holdings.reserved.extend(found);
        }
        if self.holdings.reserved.len() >= count { Ok(()) } else { Err(Stop::Wait(Wait::Blocks)) }
    }

    /// Writes a block at a VVBN and any PVBN.
    pub fn write_at(&mut self, vvbn: Vvbn, block: BlockRef, place: BlockPlace) -> DualPointer {
        let Some(pvbn) = self.holdings.reserved.pop_front() else {
            panic!("block numbers of the aggregate were not reserved")
        };
        self.holdings.used.push(pvbn);
        self.put(DualPointer { vvbn, pvbn, flags: 0, checksum: 0 }, block, place)
    }

    /// Writes a block of the tree anew at any PVBN; its VVBN, and so every snapshot, follows it.
    pub fn write_elsewhere(
        &mut self,
        old: DualPointer,
        block: BlockRef,
        place: BlockPlace,
    ) -> DualPointer {
        let pointer = self.write_at(old.vvbn, block, place);
        self.holdings.reallocated_from.note(old.pvbn);
        self.holdings.reallocated.note(pointer.pvbn);
        if self.aggregate.has_moved(place.volume) {
            // Snapshots name the old place.
            self.aggregate.parts.cache.note_moved(old.pvbn, old.checksum, pointer.pvbn);
        }
        pointer
    }

    /// Undoes updates of the container map beyond the first so many. Their blocks are on their way
    /// to the disks, so their places are free with the commit only.
    pub fn waste(&mut self, told: usize) {
        let undone = self.holdings.updates.split_off(told);
        let places = undone.into_iter().filter_map(|(_, pointer)| pointer.map(|one| one.pvbn));
        self.holdings.wasted.extend(places);
    }

    fn put(&mut self, address: DualPointer, block: BlockRef, place: BlockPlace) -> DualPointer {
        let checking = stage::enter(Stage::Checksum);
        let checksum = DualPointer::check_of(&block, place.content);
        let whole = if place.content == Content::Data { checksum } else { crc32c(&block) };
        drop(checking);
        let DualPointer { vvbn, pvbn, .. } = address;
        let owner = block_owner(&place, vvbn, self.cp);
        let known = (checksum, place.class());
        self.aggregate.parts.cache.insert(pvbn, known, BlockRef::clone(&block));
        self.aggregate.parts.store.write(BlockWrite { pvbn, block, owner, checksum: whole });
        let update = PhysicalPointer::new(pvbn, whole as u16);
        self.holdings.updates.push((vvbn, Some(update)));
        DualPointer { vvbn, pvbn, flags: 0, checksum }
    }
}

impl Backend<DualPointer> for DualBackend<'_> {
    fn prepare(
        &mut self,
        space: &mut Space<DualPointer>,
        count: usize,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        space.fill_pool(count, reader)?;
        self.reserve(count)
    }

    fn take(&mut self, space: &mut Space<DualPointer>) -> DualPointer {
        let vvbn = space.take_from_pool();
        let Some(pvbn) = self.holdings.reserved.pop_front() else {
            panic!("block numbers of the aggregate were not reserved")
        };
        self.holdings.used.push(pvbn);
        DualPointer { vvbn, pvbn, flags: 0, checksum: 0 }
    }

    fn write(&mut self, address: DualPointer, block: BlockRef, place: BlockPlace) -> DualPointer {
        self.put(address, block, place)
    }

    fn write_again(
        &mut self,
        _: &mut Space<DualPointer>,
        old: DualPointer,
        block: BlockRef,
        place: BlockPlace,
    ) -> DualPointer {
        self.write_elsewhere(old, block, place)
    }

    fn score(
        &mut self,
        space: &mut Space<DualPointer>,
        reader: &Reader<'_>,
    ) -> Progress<Vec<(Fbn, BlockRef)>> {
        let clock = &self.aggregate.parts.clock;
        let begin = clock.monotonic_nanoseconds();
        let settled = space.settle_scores(reader);
        space.put_back_areas();
        let changed = settled.map(|()| space.changed_top_areas());
        let nanoseconds = clock.monotonic_nanoseconds().saturating_sub(begin);
        let spent = &self.aggregate.statistics.volume_scores_nanoseconds;
        spent.fetch_add(nanoseconds, Ordering::Relaxed);
        changed
    }

    fn scored(&mut self, space: &mut Space<DualPointer>) {
        space.note_top_areas_written();
    }

    fn told(&self) -> usize {
        self.holdings.updates.len()
    }

    fn revert(&mut self, space: &mut Space<DualPointer>, addresses: Vec<Vvbn>, told: usize) {
        space.forfeit(addresses);
        self.waste(told);
    }

    fn is_lost(&self, pvbn: Pvbn) -> bool {
        self.aggregate.is_lost(pvbn)
    }
}
