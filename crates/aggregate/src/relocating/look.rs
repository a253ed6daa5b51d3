//! Looking through container maps for blocks to move: all entries, those that a temperature scan
//! comes by, or those of what clients have read.
//!
//! Invariants: a look changes nothing; what it takes out of a volume's queue is said apart
//! ([`QueueChange`]).

use crate::allocation::refill::{Tier, is_near};
use crate::containers::{
    Container, container_key, container_lookup, entries_of, first_of, node_of,
};
use crate::relocation::moves::{Aged, BATCH_BLOCKS, Batch, Move};
use crate::relocation::plan::Queue;
use cowfs::buftree;
use cowfs::pointer::Pointer;
use cowfs::reader::{Progress, Reader};
use ondisk::pointer::{AGE_COLD, AGE_STAYS, PhysicalPointer};
use ondisk::root::VOL_INFO_VVBN;
use platform::mutation::{self, Rule};
use raid::Geometry;
use units::{Fbn, VolumeId, Vvbn};

/// Nodes that one message looks at: 32 Ki entries of a container map.
const NODES_PER_MESSAGE: usize = 64;

/// Age from which on a block that is read is made young: below it would cost a write to win an
/// eighth of the days.
const AGE_WORTH_NOTING: u8 = 2;

/// What a look works on.
pub(crate) struct Look<'a> {
    pub volume: VolumeId,
    pub container: &'a Container,
    pub geometry: &'a Geometry,
    pub reader: &'a Reader<'a>,
    /// There is room in object stores, as far as is known.
    pub has_object_room: bool,
    pub has_near_room: bool,
}

/// What a look takes out of a volume's queue.
#[derive(Default)]
pub(crate) struct QueueChange {
    /// Where looking at all of the map goes on, if it was looked at.
    sweep: Option<Option<Vvbn>>,
    reads: Vec<Vvbn>,
    /// Those of `reads` that the volume's own map does not have. A clone's parent may have them.
    pub(crate) inherited: Vec<Vvbn>,
}

impl QueueChange {
    pub(crate) fn apply(self, queue: &mut Queue, batch: &Batch) {
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
    /// What the policy has moved next.
    pub(crate) fn for_moves(&self, queue: &Queue, change: &mut QueueChange) -> Progress<Batch> {
        if !queue.tiering.is_cooling() {
            return self.everything(queue, change);
        }
        if queue.reads.is_empty() {
            return self.scan(queue);
        }
        self.reads(queue, change)
    }

    /// What lies on disks, of a volume of which everything moves.
    fn everything(&self, queue: &Queue, change: &mut QueueChange) -> Progress<Batch> {
        let mut batch = Batch::new(self.volume, queue.tiering.policy);
        let mut sweep = queue.sweep;
        let mut noted = queue.nodes.iter();
        while batch.nodes.len() < NODES_PER_MESSAGE && batch.moves.len() < BATCH_BLOCKS {
            let node = match noted.next() {
                Some(node) => *node,
                None => {
                    let Some(from) = sweep else { break };
                    let node = self.next_node(from)?;
                    sweep = node.map(|node| first_of(node + 1));
                    let Some(node) = node else { break };
                    node
                }
            };
            if !batch.nodes.insert(node) {
                continue;
            }
            for vvbn in entries_of(node) {
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

    /// The first node that has an entry at or after a VVBN.
    fn next_node(&self, from: Vvbn) -> Progress<Option<u64>> {
        let (root, key) = (&self.container.root, container_key(self.volume));
        let (from, end) = (from.in_container(), Fbn::END);
        let found = buftree::next_present(root, &key, from, end, self.reader)?;
        Ok(found.map(|fbn| node_of(fbn.in_volume())))
    }

    fn entry(&self, vvbn: Vvbn) -> Progress<PhysicalPointer> {
        container_lookup(self.volume, self.container, vvbn, self.reader)
    }

    /// Some nodes of the scan under way.
    fn scan(&self, queue: &Queue) -> Progress<Batch> {
        let mut batch = Batch::new(self.volume, queue.tiering.policy);
        let mut scan = queue.scan;
        while batch.nodes.len() < NODES_PER_MESSAGE && batch.moves.len() < BATCH_BLOCKS {
            let Some(node) = self.next_node(first_of(scan.next))? else {
                (scan.next, scan.is_running) = (0, false);
                break;
            };
            batch.nodes.insert(node);
            scan.next = node + 1;
            for vvbn in entries_of(node) {
                let from = self.entry(vvbn)?;
                let is_block = !from.is_hole() && vvbn != VOL_INFO_VVBN;
                if is_block && is_near(self.geometry, from.pvbn) && from.age != AGE_STAYS {
                    self.cool(&mut batch, vvbn, from);
                }
            }
        }
        batch.scan = Some(scan);
        Ok(batch)
    }

    fn cool(&self, batch: &mut Batch, vvbn: Vvbn, from: PhysicalPointer) {
        let age = (from.age + 1).min(AGE_COLD);
        if age != from.age {
            batch.aged.push(Aged { vvbn, to: PhysicalPointer { age, ..from } });
        }
        let is_cold = age == AGE_COLD || mutation::broken(Rule::HotBlockMoved);
        if is_cold && self.has_object_room {
            batch.moves.push(Move::new((self.volume, vvbn), from, Tier::Object));
        }
    }

    /// What clients have read: it is young again, or moves back.
    fn reads(&self, queue: &Queue, change: &mut QueueChange) -> Progress<Batch> {
        let mut batch = Batch::new(self.volume, queue.tiering.policy);
        let reads: Vec<Vvbn> = queue.reads.iter().take(BATCH_BLOCKS).copied().collect();
        let mut inherited = Vec::new();
        for vvbn in reads.iter().copied() {
            let from = self.entry(vvbn)?;
            if from.is_hole() {
                inherited.push(vvbn);
                continue;
            }
            let node = node_of(vvbn);
            if !is_near(self.geometry, from.pvbn) {
                if self.has_near_room {
                    batch.nodes.insert(node);
                    batch.moves.push(Move::new((self.volume, vvbn), from, Tier::Near));
                }
            } else if (AGE_WORTH_NOTING..=AGE_COLD).contains(&from.age) {
                batch.nodes.insert(node);
                batch.aged.push(Aged { vvbn, to: PhysicalPointer { age: 0, ..from } });
            }
        }
        (change.reads, change.inherited) = (reads, inherited);
        Ok(batch)
    }
}
