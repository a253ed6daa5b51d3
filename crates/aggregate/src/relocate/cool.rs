//! Temperature: which blocks of a volume are cold, and which have become hot (the policies
//! `snapshot-only` and `auto`; FreeSpace section 3.1).
//!
//! A block's *age* is in its container map entry, in four bits beside its place: no memory, no file
//! of its own, and nothing to be written where a block is, as its entry is written anyway and says
//! zero then. A *temperature scan* comes by every eighth of the days in which a block cools and
//! makes what is on disks one older. At [`AGE_COLD`] a block may move, and is not written again for
//! its age. Time that a node is off counts once, and a clock that jumps costs a scan too many.
//!
//! What clients read out of sequence, and had to be loaded, becomes young again, or moves back to
//! disks; what scans and backups read stays as it is.
//!
//! Invariants:
//! - An age is raised once by a scan: the position goes into the volume's record with the
//!   consistency point that writes the ages.
//! - Only what no consistency point has changed meanwhile gets an age, as with moves.
//! - Nothing moves to disks that are nearly full.
//!
//! Fails: what was read and not yet noted is forgotten in a crash; so it is when there is too much
//! of it. It costs a later move back.

use super::plan::{Aged, Batch, Move, Queue};
use super::tiering::Tiering;
use super::{BATCH_BLOCKS, NODES_PER_MESSAGE, container_key, is_near};
use crate::aggregate::Aggregate;
use crate::block_side::{BlockSide, Container};
use crate::mount::container_lookup;
use crate::refill::{Tier, tier_of};
use affinity::{Access, Outcome};
use cowfs::buftree;
use cowfs::pointer::Pointer;
use cowfs::reader::{Progress, Reader};
use ondisk::pointer::{AGE_COLD, AGE_STAYS, PhysicalPointer};
use ondisk::records::VolumeRecord;
use ondisk::root::VOL_INFO_VVBN;
use platform::mutation::{self, Rule};
use raid::Geometry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{Fbn, Timestamp, VolumeId, Vvbn};

/// Blocks that were read and not yet noted, at most: 1 MiB. What is beyond that and is wanted again
/// is read again.
const READS_MAX: usize = 1 << 15;
/// Age from which on a block that is read is made young: below it would cost a write to win an
/// eighth of the days.
const AGE_WORTH_NOTING: u8 = 2;
/// One part in so many of the disks must be free for a block to move to them.
const NEAR_FREE_SHARE: u64 = 8;

/// How far the temperature scan of a volume is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scan {
    /// When the last one began.
    pub started: Timestamp,
    /// The lowest-level node of the container map that it goes on with.
    pub next: u64,
    pub is_running: bool,
}

impl Scan {
    pub(super) fn of(record: &VolumeRecord) -> Self {
        let next = record.scan_next.get();
        Self { started: Timestamp(record.scan_started.get()), next, is_running: next > 0 }
    }

    pub(super) fn store(self, record: &mut VolumeRecord) {
        record.scan_started.set(self.started.get());
        record.scan_next.set(if self.is_running { self.next } else { 0 });
    }

    /// Begins the next one if it is time.
    fn begin_if_due(&mut self, tiering: Tiering, now: Timestamp) {
        let period = tiering.scan_period_nanoseconds();
        let is_due = now.get().saturating_sub(self.started.get()) >= period;
        // A clock that was set back must not keep the next one for years.
        let is_ahead = self.started > now;
        if !self.is_running && (is_due || is_ahead) {
            *self = Self { started: now, next: 0, is_running: !is_ahead };
        }
    }
}

/// What clients have read.
#[derive(Default)]
pub(crate) struct Reads {
    blocks: BTreeSet<(VolumeId, u64)>,
    /// A message takes them in.
    is_sent: bool,
}

impl Aggregate {
    /// Notes that blocks of a volume had to be loaded for a client who reads out of sequence.
    pub(crate) fn note_random_reads(self: &Arc<Self>, blocks: &[(VolumeId, Vvbn)]) {
        let must_send = {
            let tiers = self.tiers.read();
            if tiers.cooling.is_empty() {
                return;
            }
            let mut reads = self.reads.lock();
            let cooling = blocks.iter().filter(|(volume, _)| tiers.cooling.contains(volume));
            for (volume, vvbn) in cooling {
                if reads.blocks.len() < READS_MAX {
                    reads.blocks.insert((*volume, vvbn.get()));
                }
            }
            !reads.blocks.is_empty() && !std::mem::replace(&mut reads.is_sent, true)
        };
        if !must_send {
            return;
        }
        let this = Arc::clone(self);
        let message = move |access: &mut Access<'_>| {
            let reads = std::mem::take(&mut *this.reads.lock()).blocks;
            let side = this.block_side.write(access);
            let volumes = &mut side.relocation.volumes;
            let mut room =
                READS_MAX.saturating_sub(volumes.values().map(|one| one.reads.len()).sum());
            for (volume, vvbn) in reads {
                if let Some(queue) = volumes.get_mut(&volume)
                    && room > 0
                {
                    room -= usize::from(queue.reads.insert(vvbn));
                }
            }
            this.relocate(side);
            Outcome::Done
        };
        self.parts.scheduler.send(self.parts.vbn_affinity, Box::new(message));
    }

    /// Begins the temperature scans that it is time for.
    pub(super) fn begin_scans(self: &Arc<Self>, side: &mut BlockSide) {
        let now = self.parts.clock.wall();
        for queue in side.relocation.volumes.values_mut() {
            if queue.tiering.is_cooling() {
                queue.scan.begin_if_due(queue.tiering, now);
            }
        }
        self.relocate(side);
    }

    /// Whether there is room to move blocks to disks.
    pub(super) fn has_near_room(&self, side: &BlockSide, geometry: &Geometry) -> bool {
        let near = geometry.groups().iter().filter(|group| tier_of(group) == Tier::Near);
        // What a group has that is to leave must find room in the others.
        let leaving = side.settings.leaving_group.map_or(0, |group| geometry.group(group).blocks());
        let size = near.map(raid::GroupGeometry::blocks).sum::<u64>().saturating_sub(leaving);
        let objects: u64 = side.table.iter().map(|slot| slot.record.object_blocks.get()).sum();
        let used = side.space.used_blocks.saturating_sub(objects);
        size.saturating_sub(used) > size / NEAR_FREE_SHARE + 2 * BATCH_BLOCKS as u64
    }
}

/// What a look works on.
pub(super) struct Look<'a> {
    pub volume: VolumeId,
    pub container: &'a Container,
    pub geometry: &'a Geometry,
    pub reader: &'a Reader<'a>,
    /// There is room in object stores, as far as is known.
    pub has_object_room: bool,
    pub has_near_room: bool,
}

impl Look<'_> {
    pub(super) fn entry(&self, vvbn: u64) -> Progress<PhysicalPointer> {
        container_lookup(self.volume, self.container, vvbn, self.reader)
    }

    /// Some nodes of the scan under way.
    pub(super) fn scan(&self, queue: &Queue) -> Progress<Batch> {
        let key = container_key(self.volume);
        let mut batch = Batch::new(self.volume, queue.tiering.policy);
        let mut scan = queue.scan;
        while batch.nodes.len() < NODES_PER_MESSAGE && batch.moves.len() < BATCH_BLOCKS {
            let from = Fbn(scan.next * PhysicalPointer::FANOUT);
            let (root, end) = (&self.container.root, Fbn(u64::MAX));
            let next = buftree::next_present(root, &key, from, end, self.reader)?;
            let Some(at) = next else {
                (scan.next, scan.is_running) = (0, false);
                break;
            };
            let node = at.get() / PhysicalPointer::FANOUT;
            batch.nodes.insert(node);
            scan.next = node + 1;
            let first = node * PhysicalPointer::FANOUT;
            for vvbn in first..first + PhysicalPointer::FANOUT {
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

    fn cool(&self, batch: &mut Batch, vvbn: u64, from: PhysicalPointer) {
        let age = (from.age + 1).min(AGE_COLD);
        if age != from.age {
            batch.aged.push(Aged { vvbn, to: PhysicalPointer { age, ..from } });
        }
        let is_cold = age == AGE_COLD || mutation::broken(Rule::HotBlockMoved);
        if is_cold && self.has_object_room {
            batch.moves.push(Move::new((self.volume, vvbn), from, Tier::Object));
        }
    }

    /// What clients have read: it is young again, or moves back. Returns what was looked at, too.
    pub(super) fn reads(&self, queue: &Queue) -> Progress<(Batch, Vec<u64>)> {
        let mut batch = Batch::new(self.volume, queue.tiering.policy);
        let reads: Vec<u64> = queue.reads.iter().take(BATCH_BLOCKS).copied().collect();
        for vvbn in &reads {
            let from = self.entry(*vvbn)?;
            if from.is_hole() {
                continue;
            }
            let node = vvbn / PhysicalPointer::FANOUT;
            if !is_near(self.geometry, from.pvbn) {
                if self.has_near_room {
                    batch.nodes.insert(node);
                    batch.moves.push(Move::new((self.volume, *vvbn), from, Tier::Near));
                }
            } else if (AGE_WORTH_NOTING..=AGE_COLD).contains(&from.age) {
                batch.nodes.insert(node);
                batch.aged.push(Aged { vvbn: *vvbn, to: PhysicalPointer { age: 0, ..from } });
            }
        }
        Ok((batch, reads))
    }
}

/// What is known of volumes and tiers without asking the block side.
#[derive(Default)]
pub(crate) struct Tiers {
    /// Volumes whose blocks have an age.
    pub cooling: BTreeSet<VolumeId>,
    /// Blocks in object stores, as of the last commit.
    pub object_blocks: BTreeMap<VolumeId, u64>,
}

impl Tiers {
    pub(crate) fn of(side: &BlockSide) -> Self {
        let volumes = side.relocation.volumes.iter();
        let cooling = volumes.filter(|(_, queue)| queue.tiering.is_cooling());
        let in_use = side.table.iter().filter(|slot| slot.record.object_blocks.get() > 0);
        let number = |record: &VolumeRecord| VolumeId(record.volume.get());
        Self {
            cooling: cooling.map(|(volume, _)| *volume).collect(),
            object_blocks: in_use
                .map(|slot| (number(&slot.record), slot.record.object_blocks.get()))
                .collect(),
        }
    }
}
