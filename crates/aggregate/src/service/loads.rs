//! Messages that wait: for blocks from the disks, for room, for free numbers; and the container
//! maps that tell the loader where a block is.

use super::aggregate::Aggregate;
use crate::loader::{ContainerMaps, Loader, Place, PlacesDone, suspend_for_load};
use affinity::{Access, Outcome, Waker};
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Reader, Stop, Wait};
use raid::BlockStore;
use std::sync::Arc;
use units::{VolumeId, Vvbn};

impl Aggregate {
    /// The loader of the aggregate's blocks.
    #[must_use]
    pub fn loader(self: &Arc<Self>) -> Loader {
        Loader {
            maps: Some(Arc::new(Maps(Arc::clone(self)))),
            store: Arc::clone(&self.parts.store) as Arc<dyn BlockStore>,
            cache: Arc::clone(&self.parts.cache),
            lost_blocks: Arc::clone(&self.statistics.lost_blocks),
            under_way: Arc::clone(&self.loads),
        }
    }

    /// Suspends a message until what it waits for is there.
    pub fn suspend(self: &Arc<Self>, wait: Wait, held: &HeldBlocks) -> Outcome {
        match wait {
            Wait::Load(requests) => suspend_for_load(&self.loader(), requests, held),
            Wait::Room => {
                let this = Arc::clone(self);
                Outcome::Suspend(Box::new(move |waker| {
                    // First among those who are woken: a neighbour may give memory back meanwhile.
                    this.wait_for_room(waker);
                    this.parts.shared.dirty.note_waiting();
                }))
            }
            Wait::Blocks => {
                let this = Arc::clone(self);
                Outcome::Suspend(Box::new(move |waker| {
                    if this.pool.wait(waker) {
                        (this.routines.refill)(&this);
                    }
                    if this.is_failed() {
                        // Nothing is stocked any more: it sees that itself.
                        Waker::wake_all(this.pool.end_refill());
                    }
                }))
            }
        }
    }
}

/// The container maps of an aggregate in service.
struct Maps(Arc<Aggregate>);

impl ContainerMaps for Maps {
    fn has_moved(&self, volume: VolumeId) -> bool {
        self.0.has_moved(volume)
    }

    fn note_random_reads(&self, blocks: &[(VolumeId, Vvbn)]) {
        (self.0.routines.note_random_reads)(&self.0, blocks);
    }

    fn places_of(&self, blocks: Vec<(VolumeId, Vvbn)>, done: PlacesDone) {
        let aggregate = Arc::clone(&self.0);
        let (held, mut done) = (HeldBlocks::default(), Some(done));
        let message = move |access: &mut Access<'_>| {
            let side = aggregate.block_side.read(access);
            let reader = Reader { cache: &aggregate.parts.cache, held: &held };
            let mut places = Vec::with_capacity(blocks.len());
            for (volume, vvbn) in &blocks {
                places.push(match side.place_of(*volume, *vvbn, &reader) {
                    Err(Stop::Wait(wait)) => return aggregate.suspend(wait, &held),
                    Ok(pointer) if !pointer.is_hole() => Place::At(pointer.pvbn),
                    Ok(_) => Place::Nowhere,
                    Err(_) => Place::Unknown,
                });
            }
            if let Some(done) = done.take() {
                done(places);
            }
            Outcome::Done
        };
        self.0.parts.scheduler.send(self.0.parts.vbn_affinity, Box::new(message));
    }
}
