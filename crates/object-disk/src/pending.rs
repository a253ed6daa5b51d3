//! What is in memory and not yet in the store: changed blocks, uploads under way, discarded blocks,
//! and who waits for what. No I/O: `disk.rs` carries out what [`Pending::next_upload`] says and
//! reports with [`Pending::complete`].
//!
//! A change goes into its object's *dirty* set. An upload takes the set as a whole; changes that
//! come meanwhile begin the next one. Uploads of an object are numbered, and a flush waits for the
//! number that has the last change before it.
//!
//! Invariants:
//! - One upload of an object at a time.
//! - A block is looked for among dirty ones, discarded ones, those being uploaded, and in the
//!   store: in this order the newest is found first.
//! - A discarded block is not dirty. An object of which all blocks are discarded is deleted at the
//!   next flush, in the turn of its uploads: what is written later is put later.
//! - A failed upload's blocks are dirty again unless they were changed or discarded meanwhile.
//!
//! Fails: an upload that fails fails the flushes that wait for it, and writes that wait for room:
//! no room will come of it. A later flush tries again.

use crate::geometry::{Extent, Geometry, ObjectId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use units::BlockRef;

mod bitmap;

pub(crate) use bitmap::Bitmap;

/// Changed blocks of an object, by their numbers in it.
pub(crate) type Changes = BTreeMap<u32, BlockRef>;

/// What is to be done with an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Body {
    /// Put it with these changes, and zeros where nothing is kept.
    Put { changes: Arc<Changes>, zeros: Bitmap },
    /// Delete it.
    Delete,
}

/// Something to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Upload {
    pub(crate) object: ObjectId,
    pub(crate) body: Body,
}

/// Where the content of a block is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// Here.
    Block(BlockRef),
    /// It is zeros.
    Zeros,
    /// In the store.
    Stored,
}

/// Who is to be told that something has ended.
#[derive(Debug)]
pub(crate) struct Finished<W, F, E> {
    pub(crate) writes: Vec<(W, Result<(), E>)>,
    pub(crate) flushes: Vec<(F, Result<(), E>)>,
}

#[derive(Default)]
struct Object {
    dirty: Changes,
    /// The place in the order of objects that became dirty.
    dirty_since: u64,
    in_flight: Option<Arc<Changes>>,
    uploads_started: u64,
    discarded: Option<Bitmap>,
}

impl Object {
    fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.in_flight.is_none() && self.discarded.is_none()
    }

    fn is_all_discarded(&self) -> bool {
        self.discarded.as_ref().is_some_and(Bitmap::is_full)
    }
}

struct Flush<F, E> {
    waiter: F,
    /// The uploads that it waits for.
    uploads: BTreeMap<ObjectId, u64>,
    error: Option<E>,
}

/// See the module. `W` and `F` are those who wait for writes and flushes.
pub(crate) struct Pending<W, F, E> {
    geometry: Geometry,
    blocks_max: usize,
    uploads_max: usize,
    discarded_objects_max: usize,
    objects: BTreeMap<ObjectId, Object>,
    /// Blocks that are dirty or in flight.
    blocks_count: usize,
    in_flight_count: usize,
    /// Objects that are dirty, those that have been for longest first.
    order: BTreeMap<u64, ObjectId>,
    next_order: u64,
    /// Objects that a flush waits for.
    wanted: BTreeSet<ObjectId>,
    /// Objects that are dirty as a whole.
    full: BTreeSet<ObjectId>,
    /// Objects of which all blocks are discarded, until they are deleted.
    emptied: BTreeSet<ObjectId>,
    discard_order: VecDeque<ObjectId>,
    parked: VecDeque<(u64, Vec<BlockRef>, W)>,
    flushes: Vec<Flush<F, E>>,
}

impl<W, F, E: Clone> Pending<W, F, E> {
    pub(crate) fn new(
        geometry: Geometry,
        blocks_max: usize,
        uploads_max: usize,
        discarded_objects_max: usize,
    ) -> Self {
        assert!(uploads_max > 0, "something can be uploaded");
        Self {
            geometry,
            blocks_max,
            uploads_max,
            discarded_objects_max,
            objects: BTreeMap::new(),
            blocks_count: 0,
            in_flight_count: 0,
            order: BTreeMap::new(),
            next_order: 0,
            wanted: BTreeSet::new(),
            full: BTreeSet::new(),
            emptied: BTreeSet::new(),
            discard_order: VecDeque::new(),
            parked: VecDeque::new(),
            flushes: Vec::new(),
        }
    }

    /// Takes a write, or has it wait until there is room. Gives its waiter back if it was taken.
    pub(crate) fn write(&mut self, block: u64, blocks: Vec<BlockRef>, waiter: W) -> Option<W> {
        if self.parked.is_empty() && self.has_room(blocks.len()) {
            self.insert(block, blocks);
            return Some(waiter);
        }
        self.parked.push_back((block, blocks, waiter));
        None
    }

    /// A single write that is larger than the room there is ever goes alone.
    fn has_room(&self, count: usize) -> bool {
        self.blocks_count == 0 || self.blocks_count + count <= self.blocks_max
    }

    fn insert(&mut self, block: u64, blocks: Vec<BlockRef>) {
        for (block, content) in (block..).zip(blocks) {
            let (id, within) = self.geometry.place(block);
            let object = self.objects.entry(id).or_default();
            if object.dirty.is_empty() {
                object.dirty_since = self.next_order;
                self.order.insert(self.next_order, id);
                self.next_order += 1;
            }
            if let Some(discarded) = &mut object.discarded {
                discarded.clear(within);
                self.emptied.remove(&id);
            }
            if object.dirty.insert(within, content).is_none() {
                self.blocks_count += 1;
            }
            let is_data = matches!(id, ObjectId::Data(_));
            if is_data && object.dirty.len() == self.geometry.blocks_of(id) as usize {
                self.full.insert(id);
            }
        }
    }

    /// Blocks that nobody needs any more. Gives back the writes for which this made room.
    #[must_use]
    pub(crate) fn discard(&mut self, extent: &Extent) -> Vec<W> {
        let (id, blocks) = (extent.object, self.geometry.blocks_of(extent.object));
        let object = self.objects.entry(id).or_default();
        if object.discarded.is_none() {
            object.discarded = Some(Bitmap::new(blocks));
            self.discard_order.push_back(id);
        }
        let Some(discarded) = &mut object.discarded else { unreachable!("it was made above") };
        for within in extent.within.clone() {
            if object.dirty.remove(&within).is_some() {
                self.blocks_count -= 1;
                self.full.remove(&id);
            }
            discarded.set(within);
        }
        if discarded.is_full() {
            self.emptied.insert(id);
        }
        if object.dirty.is_empty() {
            self.order.remove(&object.dirty_since);
        }
        self.forget_discards();
        self.admit_parked()
    }

    /// Keeps the knowledge of discarded blocks within its limit; the oldest goes first. What those
    /// blocks read as changes from zeros to what is stored, as it may.
    fn forget_discards(&mut self) {
        while self.discard_order.len() > self.discarded_objects_max {
            let Some(id) = self.discard_order.pop_front() else { return };
            self.emptied.remove(&id);
            if let Some(object) = self.objects.get_mut(&id) {
                object.discarded = None;
                // A flush may wait for it, and then it must be uploaded all the same.
                if object.is_idle() && !self.wanted.contains(&id) {
                    self.objects.remove(&id);
                }
            }
        }
    }

    /// Where the content of a block is.
    pub(crate) fn look(&self, id: ObjectId, within: u32) -> Found {
        let Some(object) = self.objects.get(&id) else { return Found::Stored };
        if let Some(block) = object.dirty.get(&within) {
            return Found::Block(Arc::clone(block));
        }
        if object.discarded.as_ref().is_some_and(|discarded| discarded.has(within)) {
            return Found::Zeros;
        }
        let in_flight = object.in_flight.as_ref().and_then(|changes| changes.get(&within));
        in_flight.map_or(Found::Stored, |block| Found::Block(Arc::clone(block)))
    }

    /// Waits for all changes so far. Gives the waiter back if there are none.
    pub(crate) fn flush(&mut self, waiter: F) -> Option<F> {
        let mut uploads = BTreeMap::new();
        for (id, object) in &self.objects {
            if !object.dirty.is_empty() || self.emptied.contains(id) {
                uploads.insert(*id, object.uploads_started + 1);
                self.wanted.insert(*id);
            } else if object.in_flight.is_some() {
                uploads.insert(*id, object.uploads_started);
            }
        }
        if uploads.is_empty() {
            return Some(waiter);
        }
        self.flushes.push(Flush { waiter, uploads, error: None });
        None
    }

    /// Whether anybody waits for a write or a flush.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.parked.is_empty() || !self.flushes.is_empty()
    }

    /// What to do next: what flushes wait for, then objects that are whole, then what makes room.
    pub(crate) fn next_upload(&mut self) -> Option<Upload> {
        if self.in_flight_count >= self.uploads_max {
            return None;
        }
        let is_free =
            |id: &&ObjectId| self.objects.get(*id).is_none_or(|object| object.in_flight.is_none());
        let wanted = self.wanted.iter().find(is_free);
        let chosen = wanted.or_else(|| self.full.iter().find(is_free)).or_else(|| {
            let makes_room = !self.parked.is_empty();
            self.order.values().find(is_free).filter(|_| makes_room)
        });
        let id = *chosen?;
        Some(self.start(id))
    }

    fn start(&mut self, id: ObjectId) -> Upload {
        let blocks = self.geometry.blocks_of(id);
        let object = self.objects.entry(id).or_default();
        assert!(object.in_flight.is_none(), "one upload of an object at a time");
        self.wanted.remove(&id);
        self.full.remove(&id);
        if !object.dirty.is_empty() {
            self.order.remove(&object.dirty_since);
        }
        let changes = Arc::new(std::mem::take(&mut object.dirty));
        object.in_flight = Some(Arc::clone(&changes));
        object.uploads_started += 1;
        self.in_flight_count += 1;
        if object.is_all_discarded() {
            assert!(changes.is_empty(), "a discarded block is not dirty");
            self.emptied.remove(&id);
            return Upload { object: id, body: Body::Delete };
        }
        let zeros = object.discarded.clone().unwrap_or_else(|| Bitmap::new(blocks));
        Upload { object: id, body: Body::Put { changes, zeros } }
    }

    /// An upload has ended.
    pub(crate) fn complete(&mut self, id: ObjectId, result: &Result<(), E>) -> Finished<W, F, E> {
        let Some(object) = self.objects.get_mut(&id) else {
            unreachable!("an object that is uploaded is known")
        };
        let Some(changes) = object.in_flight.take() else { unreachable!("an upload ends once") };
        self.in_flight_count -= 1;
        let number = object.uploads_started;
        match result {
            Ok(()) => self.blocks_count -= changes.len(),
            Err(_) => self.take_back(id, &changes),
        }
        let idle = self.objects.get(&id).is_some_and(Object::is_idle);
        if idle && !self.wanted.contains(&id) {
            self.objects.remove(&id);
        }
        let writes = match result {
            Ok(()) => self.admit_parked().into_iter().map(|waiter| (waiter, Ok(()))).collect(),
            Err(error) => {
                let failed = self.parked.drain(..);
                failed.map(|(_, _, waiter)| (waiter, Err(error.clone()))).collect()
            }
        };
        Finished { writes, flushes: self.end_flushes(id, number, result) }
    }

    fn take_back(&mut self, id: ObjectId, changes: &Changes) {
        let Some(object) = self.objects.get_mut(&id) else { return };
        if object.is_all_discarded() {
            self.emptied.insert(id);
        }
        let was_clean = object.dirty.is_empty();
        for (within, block) in changes {
            let is_discarded = object.discarded.as_ref().is_some_and(|it| it.has(*within));
            if is_discarded || object.dirty.contains_key(within) {
                self.blocks_count -= 1;
            } else {
                object.dirty.insert(*within, Arc::clone(block));
            }
        }
        if was_clean && !object.dirty.is_empty() {
            object.dirty_since = self.next_order;
            self.order.insert(self.next_order, id);
            self.next_order += 1;
        }
    }

    fn admit_parked(&mut self) -> Vec<W> {
        let mut admitted = Vec::new();
        while let Some((_, blocks, _)) = self.parked.front() {
            if !self.has_room(blocks.len()) {
                break;
            }
            if let Some((block, blocks, waiter)) = self.parked.pop_front() {
                self.insert(block, blocks);
                admitted.push(waiter);
            }
        }
        admitted
    }

    fn end_flushes(
        &mut self,
        id: ObjectId,
        number: u64,
        result: &Result<(), E>,
    ) -> Vec<(F, Result<(), E>)> {
        for flush in &mut self.flushes {
            if flush.uploads.get(&id).is_some_and(|awaited| *awaited <= number) {
                flush.uploads.remove(&id);
                if let Err(error) = result {
                    flush.error.get_or_insert_with(|| error.clone());
                }
            }
        }
        let ended = self.flushes.extract_if(.., |flush| flush.uploads.is_empty());
        ended.map(|flush| (flush.waiter, flush.error.map_or(Ok(()), Err))).collect()
    }

    /// Blocks that are kept in memory.
    #[cfg(test)]
    pub(crate) fn blocks_count(&self) -> usize {
        self.blocks_count
    }
}

#[cfg(test)]
mod tests;
