//! Moving blocks to another place in the aggregate: to groups in an object store, for volumes whose
//! policy says so (the Fabric Pool of FreeSpace section 3.1), and back; and out of areas that are
//! to be empty ([`areas`]).
//!
//! The container map is the truth about where a volume's block lies (decision 11), so a move
//! changes nothing but that: snapshots share it, and pointers keep a hint that is wrong from then
//! on, which readers find out ([`crate::loader`]).
//!
//! 1. *Look*: for a policy that moves everything, nodes of container maps with new entries, or all
//!    of them after a start, are read for blocks that lie on disks; for one that heeds age, all
//!    nodes now and then, and the entries of what clients have read ([`cool`]).
//! 2. *Ask* the volume which of them its active image has, where that matters.
//! 3. *Read*: a batch of them, each proved by its identity, which says whose it is.
//! 4. At the next consistency point the blocks are written to new numbers with the same identity,
//!    and the container map is told together with what else changed in it; the old numbers are free
//!    when it has committed.
//!
//! Invariants:
//! - A block is moved only if no consistency point has changed its entry since the container map
//!   that it was found in; the one that moves it included.
//! - Only data of files moves to object stores. Maps, nodes, inodes and what is read at a start
//!   stay on disks.
//! - The volume's record says that blocks were moved no later than the first one moves.
//!
//! Throttle: one batch of each sort at a time, and none is placed but by a consistency point.
//!
//! Fails: a block that cannot be read stays where it is. Without room nothing moves.

mod areas;
pub(crate) mod cool;
mod count;
mod plan;
mod read;
pub mod tiering;

use crate::aggregate::Aggregate;
use crate::block_side::BlockSide;
use crate::member::container_inode;
use crate::refill::{Tier, tier_of};
use affinity::{Access, Outcome};
use cool::Look;
use cowfs::budget::{Spender, VOLUME_OVERHEAD_BLOCKS};
use cowfs::buftree::{self, FileKey};
use cowfs::content::Content;
use cowfs::pointer::Pointer;
use cowfs::reader::{HeldBlocks, Progress, Reader, Stop, Wait};
use ondisk::features::MOVED_BLOCKS;
use ondisk::pointer::{AGE_STAYS, PhysicalPointer};
use ondisk::root::VOL_INFO_VVBN;
use plan::{Aged, Batch, Move, Placed, Queue};
use platform::mutation::{self, Rule};
use raid::Geometry;
use read::{Wanted, may_move, read_all};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use units::{Fbn, Pvbn, VolumeId};

pub(crate) use plan::Placing;
pub use plan::Relocation;
use tiering::TieringPolicy;

/// Blocks that a batch is filled up to, by whole nodes: 4 MiB, an object.
const BATCH_BLOCKS: usize = 1024;
/// Free blocks below which nothing is moved: what a batch takes until its commit, several times.
pub(crate) const FREE_BLOCKS_MIN: u64 = 4 * BATCH_BLOCKS as u64;
/// Nodes that one message looks at: 32 Ki entries of a container map.
const NODES_PER_MESSAGE: usize = 64;

fn container_key(volume: VolumeId) -> FileKey {
    FileKey { volume: VolumeId(0), inode: container_inode(volume), content: Content::Data }
}

/// Whether a block lies on disks while it could lie in an object store.
fn is_near(geometry: &Geometry, pvbn: Pvbn) -> bool {
    geometry.locate(pvbn).is_some_and(|at| tier_of(geometry.group(at.group)) == Tier::Near)
}

impl Aggregate {
    /// Goes on after a commit: a start and a change of policy end in one.
    fn relocate(self: &Arc<Self>, side: &mut BlockSide) {
        let geometry = self.parts.store.geometry();
        let has = |tier| geometry.groups().iter().any(|group| tier_of(group) == tier);
        if !(has(Tier::Near) && has(Tier::Object)) {
            return;
        }
        let has_work = side.relocation.next_volume().is_some();
        if has_work && !std::mem::replace(&mut side.relocation.is_running, true) {
            self.send_look();
        }
    }

    /// What a consistency point has moved is moved; `freed` was freed by it.
    pub(crate) fn relocated(self: &Arc<Self>, side: &mut BlockSide, freed: &[u64]) {
        let geometry = self.parts.store.geometry();
        let relocation = &mut side.relocation;
        for queue in relocation.volumes.values_mut() {
            let fresh = std::mem::take(&mut queue.fresh);
            queue.add(fresh);
        }
        let placed = relocation.placed.take();
        relocation.is_running &= placed.is_none();
        relocation.has_batch &= placed.is_none();
        let placed = placed.unwrap_or_default();
        let emptied = relocation.areas.take_placed();
        if !relocation.has_batch && !relocation.areas.is_running() {
            relocation.changed.clear();
        }
        let statistics = &self.statistics;
        statistics.moved_blocks.fetch_add(placed.len() as u64, Ordering::Relaxed);
        let returned = placed.iter().filter(|one| is_near(&geometry, one.to)).count();
        statistics.returned_blocks.fetch_add(returned as u64, Ordering::Relaxed);
        statistics.emptying_moved_blocks.fetch_add(emptied.len() as u64, Ordering::Relaxed);
        for Placed { from, checksum, to } in placed.into_iter().chain(emptied) {
            self.parts.cache.note_moved(from, checksum, to);
        }
        relocation.is_full &= freed.iter().all(|pvbn| is_near(&geometry, Pvbn(*pvbn)));
        self.relocate(side);
        self.clean_areas(side);
    }

    /// At a freeze: promises room for what is to be moved; whether there is something.
    pub(crate) fn promise_moves(self: &Arc<Self>, access: &mut Access<'_>) -> bool {
        let side = self.block_side.write(access);
        self.begin_scans(side);
        let has_batch = self.promise_batch(side);
        let has_area = self.promise_area(side);
        // A group that is to leave is looked at again after each commit.
        has_batch || has_area || side.settings.leaving_group.is_some()
    }

    fn promise_batch(self: &Arc<Self>, side: &mut BlockSide) -> bool {
        let Some(volume) = side.relocation.batch.as_ref().map(|batch| batch.volume) else {
            return false;
        };
        let policy = side.relocation.volumes.get(&volume).map(|queue| queue.tiering.policy);
        let slot = side.slot_of(volume);
        let Some(batch) = &mut side.relocation.batch else { unreachable!("looked at above") };
        // It was looked for under the policy that there is.
        let slot = slot.filter(|_| policy == Some(batch.policy));
        // The blocks and what is freed, and each node of the container map with one above it.
        let blocks = 2 * (batch.moves.len() + batch.nodes.len());
        let cost = blocks as u64 + VOLUME_OVERHEAD_BLOCKS;
        let Some(slot) = slot.filter(|_| self.parts.shared.budget.promise(cost, Spender::Common))
        else {
            side.relocation.drop_batch();
            return false;
        };
        batch.is_promised = true;
        let record = &mut side.table[slot].record;
        if let (Some(scan), Some(queue)) = (batch.scan, side.relocation.volumes.get_mut(&volume)) {
            scan.store(record);
            queue.scan = scan;
            side.dirty_slots.insert(slot);
        }
        if !batch.moves.is_empty() {
            record.features.set(&MOVED_BLOCKS);
            side.dirty_slots.insert(slot);
            self.moved_volumes.write().insert(volume);
        }
        true
    }

    pub(super) fn send_look(self: &Arc<Self>) {
        let this = Arc::clone(self);
        let held = HeldBlocks::default();
        let message = move |access: &mut Access<'_>| match this.look_for_moves(access, &held) {
            Ok(Some(batch)) => {
                this.ask_member(batch);
                Outcome::Done
            }
            Ok(None) => Outcome::Done,
            Err(Stop::Wait(wait @ Wait::Load(_))) => this.suspend(wait, &held),
            Err(stop) => {
                let name = &this.parts.identity.name;
                tracing::warn!(aggregate = %name, %stop, "nothing is moved");
                let side = this.block_side.write(access);
                let old = std::mem::take(&mut side.relocation);
                let Relocation { stock, areas, changed, .. } = old;
                side.relocation = Relocation { stock, areas, changed, ..Relocation::default() };
                Outcome::Done
            }
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    /// Finds blocks to move; `None` if there are none, or there is no room.
    fn look_for_moves(
        self: &Arc<Self>,
        access: &mut Access<'_>,
        held: &HeldBlocks,
    ) -> Progress<Option<Batch>> {
        let geometry = self.parts.store.geometry();
        let reader = Reader { cache: &self.parts.cache, held };
        // Nor from an aggregate that is being closed: it waits for each request to a disk that
        // hangs.
        let has_room =
            !self.is_failed() && self.parts.shared.budget.free_blocks() >= FREE_BLOCKS_MIN;
        let side = self.block_side.write(access);
        let has_near_room = self.has_near_room(side, &geometry);
        let relocation = &mut side.relocation;
        let volume = relocation.next_volume().filter(|_| has_room);
        let Some((volume, queue)) =
            volume.and_then(|one| Some((one, relocation.volumes.get(&one)?)))
        else {
            relocation.is_running = false;
            return Ok(None);
        };
        let Some(container) = side.containers.get(&volume).filter(|one| one.is_live()) else {
            relocation.volumes.remove(&volume);
            self.send_look();
            return Ok(None);
        };
        let look = Look {
            volume,
            container,
            geometry: &geometry,
            reader: &reader,
            has_object_room: !relocation.is_full,
            has_near_room,
        };
        let mut queue_change = QueueChange::default();
        let batch = match look.for_moves(queue, &mut queue_change) {
            Ok(batch) => batch,
            Err(stop @ Stop::Wait(_)) => return Err(stop),
            Err(stop) => {
                let name = &self.parts.identity.name;
                tracing::warn!(aggregate = %name, %volume, %stop, "nothing of the volume is moved");
                relocation.volumes.remove(&volume);
                self.send_look();
                return Ok(None);
            }
        };
        let Some(queue) = relocation.volumes.get_mut(&volume) else { unreachable!("found above") };
        queue_change.apply(queue, &batch);
        relocation.last = Some(volume);
        relocation.has_batch = !batch.is_empty();
        if batch.is_empty() {
            // On with the next nodes, or volume.
            queue.scan = batch.scan.unwrap_or(queue.scan);
            self.send_look();
            return Ok(None);
        }
        Ok(Some(batch))
    }

    /// Has the volume say which of the blocks its active image has, if those are to stay.
    fn ask_member(self: &Arc<Self>, mut batch: Batch) {
        let member = self.state.lock().members.get(&batch.volume).map(Arc::clone);
        let asked = member.filter(|_| batch.asks_member());
        let Some(member) = asked else { return self.read_batch(batch) };
        let numbers = batch.moves.iter().map(|one| one.vvbn).collect();
        let this = Arc::clone(self);
        let answered = move |is_active: Vec<bool>| {
            let mut is_active = is_active.into_iter();
            let is_broken = mutation::broken(Rule::ActiveBlockMoved);
            // What nobody can tell stays.
            batch.moves.retain(|one| {
                !is_active.next().unwrap_or(true) || is_broken || one.to == Tier::Near
            });
            this.read_batch(batch);
        };
        member.find_active(numbers, Box::new(answered));
    }

    /// Reads what is to be moved, from blocks in a row with one request.
    fn read_batch(self: &Arc<Self>, mut batch: Batch) {
        if batch.moves.is_empty() {
            return self.send_ready(batch);
        }
        batch.moves.sort_unstable_by_key(|one| one.from.pvbn);
        let wanted = batch.moves.iter().map(Wanted::of).collect();
        let this = Arc::clone(self);
        read_all(self, wanted, move |found| {
            for (one, found) in batch.moves.iter_mut().zip(found) {
                one.found = found;
            }
            this.send_ready(batch);
        });
    }

    /// What was read waits for the next consistency point.
    fn send_ready(self: &Arc<Self>, batch: Batch) {
        let this = Arc::clone(self);
        let mut batch = Some(batch);
        let message = move |access: &mut Access<'_>| {
            let Some(mut batch) = batch.take() else { return Outcome::Done };
            batch.sort_out();
            let side = this.block_side.write(access);
            if batch.is_empty() {
                side.relocation.has_batch = false;
                if let Some(queue) = side.relocation.volumes.get_mut(&batch.volume) {
                    queue.scan = batch.scan.unwrap_or(queue.scan);
                }
                this.send_look();
                return Outcome::Done;
            }
            // A few blocks that were read are in no hurry: they go with the next consistency point.
            let is_asked_for = batch.scan.is_some()
                || batch.policy == TieringPolicy::All
                || batch.nodes.len() + batch.moves.len() >= BATCH_BLOCKS / 4;
            side.relocation.batch = Some(batch);
            if is_asked_for {
                this.request_consistency_point(None);
            }
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }
}

/// What a look takes out of a volume's queue.
#[derive(Default)]
struct QueueChange {
    /// Where looking at all of the map goes on, if it was looked at.
    sweep: Option<Option<u64>>,
    reads: Vec<u64>,
}

impl QueueChange {
    fn apply(self, queue: &mut Queue, batch: &Batch) {
        if let Some(sweep) = self.sweep {
            queue.nodes.retain(|node| !batch.nodes.contains(node));
            queue.sweep = sweep;
        }
        self.reads.iter().for_each(|vvbn| {
            queue.reads.remove(vvbn);
        });
    }
}

impl Look<'_> {
    /// What lies on disks, of a volume of which everything moves.
    /// What the policy has moved next.
    fn for_moves(&self, queue: &Queue, change: &mut QueueChange) -> Progress<Batch> {
        if !queue.tiering.is_cooling() {
            return self.everything(queue, change);
        }
        if queue.reads.is_empty() {
            return self.scan(queue);
        }
        let (batch, reads) = self.reads(queue)?;
        change.reads = reads;
        Ok(batch)
    }

    fn everything(&self, queue: &Queue, change: &mut QueueChange) -> Progress<Batch> {
        let mut batch = Batch::new(self.volume, queue.tiering.policy);
        let mut sweep = queue.sweep;
        let mut noted = queue.nodes.iter();
        while batch.nodes.len() < NODES_PER_MESSAGE && batch.moves.len() < BATCH_BLOCKS {
            let node = match noted.next() {
                Some(node) => *node,
                None => {
                    let Some(from) = sweep else { break };
                    let key = container_key(self.volume);
                    let (root, end) = (&self.container.root, Fbn(u64::MAX));
                    let next = buftree::next_present(root, &key, Fbn(from), end, self.reader)?;
                    sweep = next.map(|at| {
                        (at.get() / PhysicalPointer::FANOUT + 1) * PhysicalPointer::FANOUT
                    });
                    let Some(at) = next else { break };
                    at.get() / PhysicalPointer::FANOUT
                }
            };
            if !batch.nodes.insert(node) {
                continue;
            }
            let first = node * PhysicalPointer::FANOUT;
            for vvbn in first..first + PhysicalPointer::FANOUT {
                let from = self.entry(vvbn)?;
                let is_block = !from.is_hole() && vvbn != VOL_INFO_VVBN;
                if is_block && is_near(self.geometry, from.pvbn) {
                    batch.moves.push(Move::new((self.volume, vvbn), from, Tier::Object));
                }
            }
        }
        change.sweep = Some(sweep);
        Ok(batch)
    }
}

impl Batch {
    /// Drops what could not be read, and what stays on disks for good.
    fn sort_out(&mut self) {
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
