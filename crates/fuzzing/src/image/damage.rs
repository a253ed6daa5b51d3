//! Damages to an image, drawn from the input.
//!
//! Invariants: a damage of a block in the data area leaves its checksums true, unless it is one
//! that is meant to break them; what has a checksum of its own is sealed anew. Parity is left as it
//! was: a block that proves itself is believed without it.

use super::base::{Base, Place, identity_place};
use super::forge;
use crate::input::Input;
use cowfs::content::{Content, content_checksum};
use media::{SUPERBLOCK_BLOCK, SUPERBLOCK_SLOTS};
use ondisk::damage::Damage;
use ondisk::identity::{BlockIdentity, ChecksumBlock, REGION_DATA_BLOCKS};
use ondisk::label::DiskLabel;
use ondisk::log::{LOG_BATCH_MAGIC, LogBatch, LogHeader};
use ondisk::root::Superblock;
use platform::simulated::SimulatedWorld;
use simulator::machine::logs::LOG_DISK;
use units::{BLOCK_SIZE, Block};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// Longest stretch that is copied or zeroed within a block.
const STRETCH_BYTES_MAX: usize = 300;

/// Damages the disks of a world.
pub(crate) struct Damager<'a> {
    world: &'a SimulatedWorld,
    base: &'a Base,
}

impl<'a> Damager<'a> {
    /// Of a world that holds `base`.
    pub(crate) const fn new(world: &'a SimulatedWorld, base: &'a Base) -> Self {
        Self { world, base }
    }

    /// One damage.
    pub(crate) fn one(&mut self, input: &mut Input<'_>) {
        let kind = input.byte() % 16;
        let place = self.place(input);
        let before = self.read(&place);
        let mut after = before.clone();
        match kind {
            // Which nothing makes up for.
            0 => {
                self.change(&mut after, &before, input);
                return self.world.write_block(&place.disk, place.block, &after);
            }
            // A whole block in another's place.
            10 | 11 => after = self.read(&self.place(input)),
            12 => after = Block::zeroed(),
            // The identity beside the block.
            13 => return self.change_identity(&place, input),
            _ => {
                for _ in 0..=kind % 3 {
                    self.change(&mut after, &before, input);
                }
            }
        }
        self.seal(&place, &before, &mut after);
        self.world.write_block(&place.disk, place.block, &after);
    }

    fn place(&self, input: &mut Input<'_>) -> Place {
        self.base.places[input.index(self.base.places.len())].clone()
    }

    fn read(&self, place: &Place) -> Block {
        let Some(block) = self.world.read_block(&place.disk, place.block) else {
            unreachable!("the places are those of the world's disks")
        };
        Block::clone(&block)
    }

    /// Changes some of a block's bytes: of those that are not zero mostly, where structures are.
    fn change(&self, block: &mut Block, before: &Block, input: &mut Input<'_>) {
        let at = place_in(before, input);
        match input.below(8) {
            0 => block[at] ^= 1 << input.below(8),
            1 => block[at] = input.byte(),
            2 => put(block, at & !1, &(input.u32() as u16).to_le_bytes()),
            3 => put(block, at & !3, &input.u32().to_le_bytes()),
            4 => put(block, at & !7, &input.u64().to_le_bytes()),
            5 => {
                let from = place_in(before, input);
                let count = 1 + input.index(STRETCH_BYTES_MAX);
                let bytes = before[from..BLOCK_SIZE.min(from + count)].to_vec();
                put(block, at, &bytes);
            }
            6 => {
                let other = self.read(&self.place(input));
                let count = 1 + input.index(STRETCH_BYTES_MAX);
                put(block, at, &other[at..BLOCK_SIZE.min(at + count)]);
            }
            _ => {
                let count = 1 + input.index(STRETCH_BYTES_MAX);
                put(block, at, &vec![0; count]);
            }
        }
    }

    /// Changes what stands beside a block of where it belongs; the identity itself is sound.
    fn change_identity(&self, place: &Place, input: &mut Input<'_>) {
        // Blocks of the log have none.
        let identity = place.owner.as_ref().and_then(|_| identity_place(place.block));
        let Some((checksums, row)) = identity else { return };
        let place = Place { block: checksums, ..place.clone() };
        let mut block = self.read(&place);
        let at = row * size_of::<BlockIdentity>() + input.index(size_of::<BlockIdentity>());
        block[at] ^= input.byte();
        self.seal(&place, &block.clone(), &mut block);
        self.world.write_block(&place.disk, place.block, &block);
    }

    /// Makes the checksums fit.
    fn seal(&self, place: &Place, before: &Block, after: &mut Block) {
        if &*place.disk == LOG_DISK {
            return self.seal_log(place, after);
        }
        let slots = SUPERBLOCK_BLOCK..SUPERBLOCK_BLOCK + SUPERBLOCK_SLOTS as u64;
        if slots.contains(&place.block) {
            *after = superblock(after).to_block();
            return;
        }
        let Some((_, _)) = identity_place(place.block) else {
            return seal_label_or_identities(after);
        };
        let content = match &place.owner {
            Some(owner) if owner.volume.get() != 0 => match (owner.kind, owner.level) {
                (2, _) | (_, 1..) => Content::Pointers,
                (3, _) => Content::Inodes,
                (4, _) => Content::Snapshots,
                _ => Content::Data,
            },
            _ => Content::Data,
        };
        let at = forge::place(after);
        forge::keep(after, at, content_checksum(before, content), |block| {
            content_checksum(block, content)
        });
    }

    /// The log's header, or the batch that begins in the block.
    fn seal_log(&self, place: &Place, after: &mut Block) {
        let Ok(mut header) = LogHeader::read_from_bytes(after.bytes().as_slice()) else {
            unreachable!("a log header is as large as a block")
        };
        if let Err(Damage::Checksum { computed, .. }) = header.validate() {
            header.checksum.set(computed);
            *after = Block::from_prefix(header.as_bytes());
            return;
        }
        // A batch may begin in a block before.
        self.world.write_block(&place.disk, place.block, after);
        for first in (0..=place.block).rev() {
            let Some(block) = self.world.read_block(&place.disk, first) else { return };
            let Ok((batch, _)) = LogBatch::read_from_prefix(block.bytes()) else { return };
            if batch.magic.get() == LOG_BATCH_MAGIC {
                return self.seal_batch(place, first, batch, after);
            }
        }
    }

    fn seal_batch(&self, place: &Place, first: u64, mut batch: LogBatch, after: &mut Block) {
        let count = (batch.byte_count.get() as usize).div_ceil(BLOCK_SIZE).min(1 << 9) as u64;
        let blocks = (first..first + count).map_while(|at| self.world.read_block(LOG_DISK, at));
        let bytes: Vec<u8> = blocks.flat_map(|block| block.to_vec()).collect();
        let range = size_of::<LogBatch>()..batch.byte_count.get() as usize;
        let Some(following) = bytes.get(range) else { return };
        batch.checksum.set(batch.computed_checksum([following]));
        if first == place.block {
            put(after, 0, batch.as_bytes());
        } else if let Some(block) = self.world.read_block(LOG_DISK, first) {
            let mut block = Block::clone(&block);
            put(&mut block, 0, batch.as_bytes());
            self.world.write_block(LOG_DISK, first, &block);
        }
    }
}

fn superblock(block: &Block) -> Superblock {
    let Ok(found) = Superblock::read_from_bytes(block.bytes().as_slice()) else {
        unreachable!("a superblock is as large as a block")
    };
    found
}

/// A label, or the identities of a checksum block.
fn seal_label_or_identities(block: &mut Block) {
    if DiskLabel::is_claimed_by(block) {
        let mut label = DiskLabel::new_zeroed();
        label.as_mut_bytes().copy_from_slice(block.bytes());
        if let Err(Damage::Checksum { computed, .. }) = label.validate() {
            label.checksum.set(computed);
            *block = Block::from_prefix(label.as_bytes());
        }
        return;
    }
    let identities = &mut ChecksumBlock::view_mut(block).identities;
    for identity in identities.iter_mut().take(REGION_DATA_BLOCKS) {
        if let Err(Damage::Checksum { computed, .. }) = identity.validate() {
            identity.self_check.set(computed);
        }
    }
}

fn put(block: &mut Block, at: usize, bytes: &[u8]) {
    let end = BLOCK_SIZE.min(at + bytes.len());
    block[at..end].copy_from_slice(&bytes[..end - at]);
}

/// A place in a block: three times of four the n-th byte that is not zero.
fn place_in(block: &Block, input: &mut Input<'_>) -> usize {
    let choice = input.below(4 * BLOCK_SIZE as u64) as usize;
    if choice >= 3 * BLOCK_SIZE {
        return choice - 3 * BLOCK_SIZE;
    }
    let used: Vec<usize> = (0..BLOCK_SIZE).filter(|at| block[*at] != 0).collect();
    used.get(choice % used.len().max(1)).copied().unwrap_or(choice % BLOCK_SIZE)
}
