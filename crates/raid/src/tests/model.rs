//! What all tests of the store need: a world, disks, a store, and the map that it must equal.

use crate::stripe::naive_parity;
use crate::*;
use ondisk::identity::{BlockOwner, crc32c};
use ondisk::label::RaidKind;
use platform::simulated::SimulatedWorld;
use platform::sync::Mutex;
use platform::{Disk, WriteDone};
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{Block, BlockRef, CpNumber, Fbn, InodeNumber, Pvbn, Timestamp, VolumeId, Vvbn};

/// The smallest disks: 63 regions.
pub const DISK_BLOCKS: u64 = media::DISK_BLOCKS_MIN;

/// A journal on a disk of its own: a note is durable when its write has completed. It forgets as
/// early as it may.
pub struct TestJournal {
    disk: Arc<dyn Disk>,
    /// What the store's first epoch is called here.
    first_epoch: u64,
    capacity_blocks: u64,
    pub durable: Notes,
}

/// Notes and their epochs.
pub type Notes = Arc<Mutex<Vec<(u64, PartialParityNote)>>>;

impl PartialParityLog for TestJournal {
    fn capacity_blocks(&self) -> u64 {
        self.capacity_blocks
    }

    fn note(&self, epoch: u64, note: PartialParityNote, done: WriteDone) {
        let epoch = self.first_epoch + epoch;
        let durable = Arc::clone(&self.durable);
        durable.lock().retain(|(old, _)| old + 1 >= epoch);
        self.disk.write(
            0,
            vec![units::zero_block()],
            Box::new(move |result| {
                durable.lock().push((epoch, note));
                done(result);
            }),
        );
    }
}

/// A store in a world, and what it should hold.
pub struct Model {
    pub world: SimulatedWorld,
    pub store: Store,
    pub notes: Notes,
    /// The room for notes of an epoch.
    pub capacity_blocks: u64,
    pub blocks: BTreeMap<Pvbn, BlockRef>,
    /// The consistency point that writes.
    pub cp: u64,
    serial: u64,
}

/// The disks' names: `g0d0`, `g0d1`, ..
pub fn disk_name(group: usize, disk: usize) -> String {
    format!("g{group}d{disk}")
}

pub fn owner_of(pvbn: Pvbn) -> BlockOwner {
    BlockOwner::new(
        (1, 0),
        (VolumeId(3), Vvbn(pvbn.get() + 5)),
        (InodeNumber(pvbn.get() % 7 + 64), Fbn(pvbn.get() / 7)),
        CpNumber(1),
    )
}

/// A proof for what the map says is there.
pub fn proof_of(pvbn: Pvbn, block: &BlockRef, by_content: bool) -> Proof {
    if by_content {
        let checksum = crc32c(block);
        return Proof::Content(Box::new(move |found| crc32c(found) == checksum));
    }
    let owner = BlockOwner { cp: CpNumber(0), ..owner_of(pvbn) };
    Proof::Identity { owner, check: (crc32c(block) & 0xffff) as u16 }
}

impl Model {
    /// An aggregate of groups with so many disks each.
    pub fn new(seed: u64, groups: &[(RaidKind, usize)]) -> Self {
        Self::with_garbage(seed, groups, false)
    }

    /// The same, on disks that are full of garbage.
    pub fn with_garbage(seed: u64, groups: &[(RaidKind, usize)], garbage: bool) -> Self {
        let world = SimulatedWorld::new(seed);
        let mut requests = Vec::new();
        for (group, (kind, count)) in groups.iter().enumerate() {
            let mut disks: Vec<Arc<dyn Disk>> = Vec::new();
            for disk in 0..*count {
                let name = disk_name(group, disk);
                disks.push(world.add_disk(&name, DISK_BLOCKS));
                for block in 0..if garbage { 300 } else { 0 } {
                    let content = random_block(&world);
                    world.write_block(&name, block, &content);
                }
            }
            requests.push(GroupRequest { kind: *kind, disks });
        }
        world.add_disk("journal", 1);
        let notes = Notes::default();
        let request = CreateRequest {
            name: "pool".to_owned(),
            groups: requests,
            created: Timestamp(1),
            force: garbage,
            media: None,
            log_regions: 0,
        };
        let capacity_blocks = u64::MAX;
        let journal = journal(&world, &notes, capacity_blocks);
        let store = world.wait(|done| create(request, &world, journal, done)).unwrap();
        Self { world, store, notes, capacity_blocks, blocks: BTreeMap::new(), cp: 1, serial: 0 }
    }

    /// A group with blocks on its first two data disks.
    pub fn with_blocks(seed: u64, kind: (RaidKind, usize)) -> Self {
        let mut model = Self::new(seed, &[kind]);
        let per_disk = model.store.geometry().group(0).blocks_per_disk();
        for number in 1..40 {
            model.write(Pvbn(number));
            model.write(Pvbn(per_disk + number * 3));
        }
        assert_eq!(model.sync(), Ok(()));
        model
    }

    pub fn choose(&self, end: u64) -> u64 {
        self.world.choose(end)
    }

    pub fn disks(world: &SimulatedWorld) -> Vec<Arc<dyn Disk>> {
        let names = world.disk_names();
        // Not those that were never ours, or are nobody's any more.
        let is_labelled = |name: &str| {
            let last = world.disk(name).map_or(0, |disk| disk.size_blocks() - 1);
            let ends = [0, last].into_iter().filter_map(|end| world.read_block(name, end));
            ends.into_iter().any(|block| ondisk::label::DiskLabel::is_claimed_by(&block))
        };
        let names = names.iter().filter(|name| name.starts_with('g') && is_labelled(name));
        names.map(|name| world.disk(name).unwrap() as Arc<dyn Disk>).collect()
    }

    /// Closes the store and puts it together again.
    pub fn reassemble(&mut self) -> Result<(), RaidError> {
        let journal = journal(&self.world, &self.notes, self.capacity_blocks);
        let has_label = |disk: &Arc<dyn Disk>| {
            let label = self.world.wait(|done| media::read_label(disk, done));
            !matches!(label, Err(media::MediaError::NoLabel { .. }))
        };
        let disks = Self::disks(&self.world).into_iter().filter(has_label).collect();
        let now = platform::Clock::wall(&self.world);
        self.store = self.world.wait(|done| assemble(disks, journal, now, done))?;
        Ok(())
    }

    /// Writes what is queued, with a cut after so many steps; then what was `committed` counts.
    pub fn cut_and_recover(&mut self, steps: u64, committed: BTreeMap<Pvbn, BlockRef>) {
        self.store.sync(Box::new(|_| ()));
        for _ in 0..steps {
            self.world.step();
        }
        self.cut(committed, &[]);
    }

    /// The power goes now, and these disks with it; then what was `committed` counts.
    pub fn cut(&mut self, committed: BTreeMap<Pvbn, BlockRef>, lost: &[usize]) {
        self.store.abandon();
        self.world.power_cut();
        self.blocks = committed;
        lost.iter().for_each(|disk| self.world.set_gone(&disk_name(0, *disk), true));
        self.reassemble().unwrap();
        let notes = self.noted();
        let recovered = self.world.wait(|done| self.store.recover_stripes(notes, done));
        assert_eq!(recovered, Ok(()));
    }

    /// The notes that a start finds.
    pub fn noted(&self) -> Vec<PartialParityNote> {
        self.notes.lock().iter().map(|(_, note)| note.clone()).collect()
    }

    /// A content that was never there before.
    pub fn content(&mut self) -> BlockRef {
        self.serial += 1;
        let mut block = random_block(&self.world);
        block[..8].copy_from_slice(&self.serial.to_le_bytes());
        Arc::new(block)
    }

    pub fn write(&mut self, pvbn: Pvbn) {
        let block = self.content();
        self.blocks.insert(pvbn, Arc::clone(&block));
        let owner = BlockOwner { cp: CpNumber(self.cp), ..owner_of(pvbn) };
        self.store.write(BlockWrite::new(pvbn, block, owner));
    }

    /// Begins to make what was written durable.
    pub fn sync_in_background(&self) {
        self.store.sync(Box::new(|_| ()));
    }

    pub fn sync(&self) -> Result<(), StoreError> {
        self.world.wait(|done| self.store.sync(done))
    }

    /// A consistency point: what was written is durable, then the superblock, then the next begins.
    pub fn commit(&mut self) {
        assert_eq!(self.sync(), Ok(()));
        let slot = (self.cp % 2) as usize;
        let block = Arc::new(Block::from_prefix(&self.cp.to_le_bytes()));
        let done = self.world.wait(|done| self.store.write_superblock(slot, block, done));
        assert_eq!(done, Ok(()));
        self.cp += 1;
    }

    /// Everything comes to rest, disks that are being filled with a superblock.
    pub fn rest(&mut self) {
        self.world.run_until_idle();
        self.commit();
        self.world.run_until_idle();
    }

    pub fn read(&self, pvbn: Pvbn, by_content: bool) -> Result<BlockRef, ReadFailure> {
        let proof = proof_of(pvbn, &self.blocks[&pvbn], by_content);
        self.world.wait(|done| self.store.read(BlockRead { pvbn, proof }, done))
    }

    /// Reads everything, one way or the other.
    pub fn check(&self) {
        for (pvbn, block) in &self.blocks {
            for by_content in [true, false] {
                let found = self.read(*pvbn, by_content);
                assert!(found.as_ref() == Ok(block), "{pvbn} {by_content} {found:?}");
            }
        }
    }

    /// Checks on the disks that parity is what it is defined as, in all rows that hold blocks.
    pub fn check_parity(&self) {
        self.check_disks_of_parity(&[]);
    }

    /// The same where some disks were replaced.
    pub fn check_disks_of_parity(&self, replaced: &[(usize, &str)]) {
        let geometry = self.store.geometry();
        let mut rows = std::collections::BTreeSet::new();
        for pvbn in self.blocks.keys() {
            let location = geometry.locate(*pvbn).unwrap();
            rows.insert((location.tetris(), location.row()));
            rows.insert((location.tetris(), 63));
        }
        for (tetris, row) in rows {
            let group = geometry.group(tetris.group);
            let block = geometry.device_block(tetris, row);
            let disks = (0..group.disks()).map(|disk| {
                let other = replaced.iter().find(|(place, _)| *place == disk);
                let name = other
                    .map_or(disk_name(tetris.group as usize, disk), |(_, name)| (*name).to_owned());
                self.world.read_block(&name, block).unwrap()
            });
            let blocks: Vec<BlockRef> = disks.collect();
            let (parity, data) = blocks.split_at(group.kind.parity_disks());
            for (which, found) in parity.iter().enumerate() {
                let expected = naive_parity(data, which);
                assert!(**found == expected, "{tetris} row {row} parity {which}");
            }
        }
    }

    /// Where a block lies: disk name and block on it.
    pub fn place(&self, pvbn: Pvbn) -> (String, u64) {
        let geometry = self.store.geometry();
        let location = geometry.locate(pvbn).unwrap();
        let block = geometry.device_block(location.tetris(), location.row());
        (self.disk_of(location), block)
    }

    /// Where its checksum block lies.
    pub fn checksum_place(&self, pvbn: Pvbn) -> (String, u64) {
        let geometry = self.store.geometry();
        let location = geometry.locate(pvbn).unwrap();
        let block = geometry.device_block(location.tetris(), 63);
        (self.disk_of(location), block)
    }

    fn disk_of(&self, location: Location) -> String {
        let member = self.store.geometry().group(location.group).member(location.disk);
        disk_name(location.group as usize, member)
    }
}

pub fn journal(
    world: &SimulatedWorld,
    notes: &Notes,
    capacity_blocks: u64,
) -> Arc<dyn PartialParityLog> {
    let (disk, durable) = (world.disk("journal").unwrap(), Arc::clone(notes));
    let first_epoch = durable.lock().iter().map(|(epoch, _)| epoch + 1).max().unwrap_or(0);
    Arc::new(TestJournal { disk, first_epoch, capacity_blocks, durable })
}

pub fn random_block(world: &SimulatedWorld) -> Block {
    let mut block = Block::zeroed();
    let mut state = world.choose(u64::MAX);
    for bytes in block.chunks_exact_mut(8) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        bytes.copy_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    block
}
