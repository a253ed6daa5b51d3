//! A member that is nothing but a map from block numbers to blocks: the naive model of a container.
//!
//! What changed since the last freeze it writes at the next one, each block at a number from the
//! pool, and tells the aggregate of it. Which image a consistency point has is what the map was at
//! its freeze.
//!
//! Invariants: the [`Model`] outlives the aggregate, so that it says what an aggregate must hold
//! that is opened after a power cut.

use crate::test_support::Rig;
use crate::*;
use affinity::{Access, AffinityId, AffinityKind, Outcome};
use cowfs::cache::Class;
use cowfs::content::Content;
use cowfs::pointer::{BlockPlace, Pointer};
use cowfs::reader::{HeldBlocks, Wait};
use ondisk::pointer::PhysicalPointer;
use ondisk::records::{STATE_ONLINE, VOLUME_FLEXIBLE, VolumeRecord, name_field};
use ondisk::root::metafile;
use platform::sync::Mutex;
use raid::{BlockRead, BlockWrite, Proof};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use units::{Block, BlockRef, CpNumber, InodeNumber, Pvbn, VolumeId, VolumeUuid, Vvbn};
use zerocopy::little_endian::{U32, U64};

/// Blocks of volumes by their numbers.
pub type Blocks = BTreeMap<(VolumeId, Vvbn), BlockRef>;

/// What the aggregate must hold.
#[derive(Default)]
pub struct Model(Mutex<State>);

#[derive(Default)]
struct State {
    /// As it is now.
    blocks: Blocks,
    /// What changed since the last freeze.
    changed: BTreeMap<(VolumeId, Vvbn), Option<BlockRef>>,
    /// As it was at the freeze of each consistency point.
    images: BTreeMap<CpNumber, Blocks>,
    serial: u64,
}

impl Model {
    /// Writes a block with a content that was never there before.
    pub fn set(&self, volume: VolumeId, vvbn: Vvbn) {
        let mut state = self.0.lock();
        state.serial += 1;
        let words = [state.serial, vvbn.get(), u64::from(volume.get())];
        let block = Block::shared(&words.map(u64::to_le_bytes).concat());
        state.blocks.insert((volume, vvbn), Arc::clone(&block));
        state.changed.insert((volume, vvbn), Some(block));
    }

    /// Frees a block number, if it has a block.
    pub fn free(&self, volume: VolumeId, vvbn: Vvbn) {
        let mut state = self.0.lock();
        if state.blocks.remove(&(volume, vvbn)).is_some() {
            state.changed.insert((volume, vvbn), None);
        }
    }

    /// Forgets a volume that was deleted.
    pub fn delete(&self, volume: VolumeId) {
        let mut state = self.0.lock();
        state.blocks.retain(|(of, _), _| *of != volume);
        state.changed.retain(|(of, _), _| *of != volume);
    }

    /// The blocks as they are now.
    pub fn blocks(&self) -> Blocks {
        self.0.lock().blocks.clone()
    }

    /// After a power cut: what counts is the image of this consistency point.
    pub fn go_back_to(&self, cp: CpNumber) {
        let mut state = self.0.lock();
        state.blocks = state.images[&cp].clone();
        state.changed.clear();
    }

    fn note_image(&self, cp: CpNumber) {
        let mut state = self.0.lock();
        let image = state.blocks.clone();
        state.images.insert(cp, image);
        while state.images.len() > 3 {
            state.images.pop_first();
        }
    }

    fn take_changed(&self, volume: VolumeId) -> Vec<(Vvbn, Option<BlockRef>)> {
        let mut state = self.0.lock();
        let all = std::mem::take(&mut state.changed).into_iter();
        let (its, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.partition(|((of, _), _)| *of == volume);
        state.changed = others;
        its.into_iter().map(|((_, vvbn), block)| (vvbn, block)).collect()
    }
}

/// See the module.
pub struct Host {
    volume: VolumeId,
    affinity: AffinityId,
    aggregate: Weak<Aggregate>,
    model: Arc<Model>,
}

/// The block that an entry of a container map leads to, from the disks.
pub fn read(rig: &Rig, (volume, vvbn): (VolumeId, Vvbn), entry: &PhysicalPointer) -> BlockRef {
    let owner = block_owner(&place_of(volume, vvbn), vvbn, CpNumber(0));
    let (pvbn, check) = (entry.pvbn, entry.check);
    let proof = Proof::Identity { owner, check };
    let found = rig.wait(|done| rig.aggregate.parts.store.read(BlockRead { pvbn, proof }, done));
    found.expect("the block is what the entry says")
}

/// The place of a member's block in its file.
fn place_of(volume: VolumeId, vvbn: Vvbn) -> BlockPlace {
    let inode = InodeNumber(metafile::FIRST_FILE + vvbn.get() % 3);
    BlockPlace { volume, inode, level: 0, index: vvbn.get(), content: Content::Data }
}

impl Host {
    /// Has an aggregate that was opened, or made, visit a volume of the model.
    pub fn join(aggregate: &Arc<Aggregate>, model: &Arc<Model>, volume: VolumeId) {
        let scheduler = &aggregate.parts.scheduler;
        let of_volume = scheduler.add(aggregate.parts.affinity, AffinityKind::Volume);
        let affinity = scheduler.add(of_volume, AffinityKind::VolumeVbn);
        let (weak, model) = (Arc::downgrade(aggregate), Arc::clone(model));
        aggregate.add_member(Arc::new(Self { volume, affinity, aggregate: weak, model }));
    }

    /// Makes a volume with the next number, and with a block: no image is without its container.
    pub fn make(rig: &Rig, model: &Arc<Model>) -> VolumeId {
        let (made, model) = (Arc::new(Mutex::new(None)), Arc::clone(model));
        let noted = Arc::clone(&made);
        let action = move |scope: &mut FreezeScope<'_, '_>| {
            let side = scope.block_side();
            let volume = VolumeId(side.next_volume);
            side.add_volume(record_of(volume));
            model.set(volume, Vvbn(1));
            Self::join(scope.aggregate, &model, volume);
            *noted.lock() = Some(volume);
            Ok(Acted::Done)
        };
        let done = rig.wait(|done| rig.aggregate.request_action(Box::new(action), done));
        done.expect("there is a slot");
        made.lock().take().expect("it was made")
    }

    /// Deletes a volume: its blocks are freed in the background.
    pub fn delete(rig: &Rig, model: &Arc<Model>, volume: VolumeId) {
        let model = Arc::clone(model);
        let action = move |scope: &mut FreezeScope<'_, '_>| {
            scope.aggregate.remove_member(volume);
            scope.block_side().delete_volume(volume);
            model.delete(volume);
            Ok(Acted::Done)
        };
        let done = rig.wait(|done| rig.aggregate.request_action(Box::new(action), done));
        done.expect("it is there");
    }
}

fn record_of(volume: VolumeId) -> VolumeRecord {
    let mut record = VolumeRecord::empty();
    let name = name_field(&format!("volume {volume}")).expect("it is short");
    (record.name, record.name_size) = name;
    (record.state, record.kind) = (STATE_ONLINE, VOLUME_FLEXIBLE);
    record.volume = U32::new(volume.get());
    record.container_inode = U64::new(container_inode(volume).get());
    record.size_blocks = U64::new(1 << 20);
    record.identity = VolumeUuid([volume.get() as u8; 16]);
    record
}

/// An image on its way.
struct Write {
    host: (VolumeId, AffinityId),
    aggregate: Arc<Aggregate>,
    cp: CpNumber,
    changed: Vec<(Vvbn, Option<BlockRef>)>,
}

impl Cleaning for Write {
    fn begin(self: Box<Self>) {
        let Self { host: (volume, affinity), aggregate, cp, changed } = *self;
        let scheduler = aggregate.parts.scheduler.clone();
        let mut reserved: Vec<Pvbn> = Vec::new();
        let message = move |_: &mut Access<'_>| {
            if aggregate.is_failed() {
                return Outcome::Done;
            }
            let wanted = changed.iter().filter(|(_, block)| block.is_some()).count();
            reserved.extend(aggregate.pool.reserve(wanted + 3 - reserved.len()));
            if reserved.len() < wanted {
                return aggregate.suspend(Wait::Blocks, &HeldBlocks::default());
            }
            let unused = reserved.split_off(wanted);
            let mut numbers = reserved.iter().copied();
            let update = |(vvbn, block): &(Vvbn, Option<BlockRef>)| {
                let place = |block: &BlockRef| {
                    let pvbn = numbers.next().expect("so many were reserved");
                    let owner = block_owner(&place_of(volume, *vvbn), *vvbn, cp);
                    let write = BlockWrite::new(pvbn, Arc::clone(block), owner);
                    let pointer = PhysicalPointer::new(pvbn, write.checksum as u16);
                    let parts = &aggregate.parts;
                    let known = (pointer.check(), Class::Data);
                    parts.cache.insert(pvbn, known, Arc::clone(block));
                    parts.store.write(write);
                    pointer
                };
                (*vvbn, block.as_ref().map(place))
            };
            let updates = changed.iter().map(update).collect();
            aggregate.pool.forfeit(std::mem::take(&mut reserved), unused.into_iter());
            aggregate.member_cleaned(MemberCleaned { updates, ..MemberCleaned::of(volume) });
            Outcome::Done
        };
        scheduler.send(affinity, Box::new(message));
    }
}

impl Member for Host {
    fn id(&self) -> VolumeId {
        self.volume
    }

    fn freeze(&self, _: &mut Access<'_>, context: &FreezeContext) -> Option<Box<dyn Cleaning>> {
        let cp = context.cp;
        self.model.note_image(cp);
        let changed = self.model.take_changed(self.volume);
        if changed.is_empty() {
            return None;
        }
        let aggregate = self.aggregate.upgrade().expect("a member is part of it");
        Some(Box::new(Write { host: (self.volume, self.affinity), aggregate, cp, changed }))
    }

    fn find_active(&self, numbers: Vec<Vvbn>, done: ActiveDone) {
        let blocks = self.model.blocks();
        done(numbers.iter().map(|vvbn| blocks.contains_key(&(self.volume, *vvbn))).collect());
    }

    fn let_go(&self, _: &mut Access<'_>) {}

    fn publish(&self, _: &mut Access<'_>, _: &Published<'_>) -> bool {
        false
    }
}
