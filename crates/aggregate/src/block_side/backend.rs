//! The aggregate's space as the place where its own image goes.
//!
//! Invariants: a block is in the store's queue and in the cache before anything points at it.

use crate::allocation::pool::BlockPool;
use crate::allocation::refill::Refill;
use crate::owner::block_owner;
use cowfs::cache::BufferCache;
use cowfs::image::Backend;
use cowfs::pointer::BlockPlace;
use cowfs::reader::{Progress, Reader};
use cowfs::space::Space;
use ondisk::pointer::PhysicalPointer;
use platform::Clock;
use raid::{BlockStore, BlockWrite, Geometry};
use std::sync::atomic::{AtomicU64, Ordering};
use units::{BlockRef, CpNumber, Fbn, Pvbn, Vvbn};

/// Places the blocks of the aggregate's image.
pub(crate) struct PhysicalBackend<'a> {
    pub store: &'a dyn BlockStore,
    pub cache: &'a BufferCache,
    pub pool: &'a BlockPool,
    pub refill: &'a mut Refill,
    pub cp: CpNumber,
    pub clock: &'a dyn Clock,
    /// Time in which scores were kept.
    pub scores_nanoseconds: &'a AtomicU64,
}

impl Backend<PhysicalPointer> for PhysicalBackend<'_> {
    fn prepare(
        &mut self,
        space: &mut Space<PhysicalPointer>,
        count: usize,
        reader: &Reader<'_>,
    ) -> Progress<()> {
        while self.pool.len() < count {
            self.refill.stock_tetris(space, self.store, self.pool, reader)?;
        }
        Ok(())
    }

    fn take(&mut self, space: &mut Space<PhysicalPointer>) -> PhysicalPointer {
        let Some(pvbn) = self.pool.take() else { panic!("the pool was not stocked") };
        space.take(pvbn);
        PhysicalPointer::new(pvbn, 0)
    }

    fn write(
        &mut self,
        address: PhysicalPointer,
        block: BlockRef,
        place: BlockPlace,
    ) -> PhysicalPointer {
        let owner = block_owner(&place, Vvbn(0), self.cp);
        let write = BlockWrite::new(address.pvbn, block, owner);
        let check = write.checksum as u16;
        let known = (u32::from(check), place.class());
        self.cache.insert(write.pvbn, known, BlockRef::clone(&write.block));
        self.store.write(write);
        PhysicalPointer::new(address.pvbn, check)
    }

    fn score(
        &mut self,
        space: &mut Space<PhysicalPointer>,
        reader: &Reader<'_>,
    ) -> Progress<Vec<(Fbn, BlockRef)>> {
        let begin = self.clock.monotonic_nanoseconds();
        let settled = self.refill.settle_scores(space, &self.store.geometry(), reader);
        self.refill.put_back_areas();
        let changed = settled.map(|()| self.refill.changed_top_areas());
        let nanoseconds = self.clock.monotonic_nanoseconds().saturating_sub(begin);
        self.scores_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        changed
    }

    fn scored(&mut self, _: &mut Space<PhysicalPointer>) {
        self.refill.note_top_areas_written();
    }

    fn told(&self) -> usize {
        0
    }

    fn revert(&mut self, space: &mut Space<PhysicalPointer>, addresses: Vec<Pvbn>, _: usize) {
        // Their blocks are on their way to the disks: they are free with the commit only.
        for pvbn in addresses {
            space.take(pvbn);
            space.free(pvbn);
        }
    }

    fn is_lost(&self, pvbn: Pvbn) -> bool {
        is_lost(&self.store.geometry(), pvbn)
    }
}

/// Whether a block that cannot be read is lost. An object store that does not answer looks like
/// damage, and passes.
pub(crate) fn is_lost(geometry: &Geometry, pvbn: Pvbn) -> bool {
    geometry.locate(pvbn).is_none_or(|at| !geometry.group(at.group).is_object())
}
