//! What a request does to a disk's image, faults included.

use crate::DiskError;
use crate::disk::is_in_range;
use crate::simulated::image::DiskImage;
use crate::simulated::world::WorldCounters;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;
use units::{BLOCK_SIZE, BlockRef};

pub(super) fn check(
    image: &DiskImage,
    disk: &str,
    block: u64,
    count: usize,
) -> Result<(), DiskError> {
    if image.faults.gone {
        return Err(DiskError::Gone { disk: disk.to_owned() });
    }
    if !is_in_range(block, count, image.size_blocks) {
        let size_blocks = image.size_blocks;
        return Err(DiskError::OutOfRange { disk: disk.to_owned(), block, size_blocks });
    }
    Ok(())
}

pub(super) fn read(
    image: &mut DiskImage,
    disk: &str,
    block: u64,
    count: usize,
    chance: &mut Chance<'_>,
) -> Result<Vec<BlockRef>, DiskError> {
    check(image, disk, block, count)?;
    let rates = image.faults.rates;
    let mut blocks = Vec::with_capacity(count);
    for block in block..block + count as u64 {
        if chance.happens(rates.latent_error_per_million) {
            chance.counters.latent_errors += 1;
            image.faults.unreadable.insert(block);
        }
        if chance.happens(rates.bit_flip_per_million) {
            chance.counters.flipped_bits += 1;
            let bit = chance.random.next_u32() as usize;
            image.corrupt(block, |bytes| flip(bytes, bit));
        }
        if image.faults.unreadable.contains(&block) {
            let kind = "simulated latent error".to_owned();
            return Err(DiskError::Io { disk: disk.to_owned(), block, kind });
        }
        blocks.push(image.current(block));
    }
    Ok(blocks)
}

pub(super) fn write(
    image: &mut DiskImage,
    disk: &str,
    block: u64,
    blocks: Vec<BlockRef>,
    chance: &mut Chance<'_>,
) -> Result<(), DiskError> {
    check(image, disk, block, blocks.len())?;
    let rates = image.faults.rates;
    may_refuse(rates.write_error_per_million, disk, block, chance)?;
    for (block, content) in (block..).zip(blocks) {
        if image.faults.unwritable.contains(&block) {
            let kind = "simulated write error".to_owned();
            return Err(DiskError::Io { disk: disk.to_owned(), block, kind });
        }
        let lost = image.faults.lose_next.remove(&block);
        if lost || chance.happens(rates.lost_write_per_million) {
            chance.counters.lost_writes += 1;
            continue;
        }
        let target = match image.faults.misdirect_next.remove(&block) {
            Some(target) => target,
            None if chance.happens(rates.misdirected_write_per_million) => {
                chance.counters.misdirected_writes += 1;
                chance.random.next_u64() % image.size_blocks
            }
            None => block,
        };
        image.faults.unreadable.remove(&target);
        image.apply(target, content);
    }
    Ok(())
}

/// A flush; what it covers is the caller's business.
pub(super) fn flush(
    image: &DiskImage,
    disk: &str,
    chance: &mut Chance<'_>,
) -> Result<(), DiskError> {
    check(image, disk, 0, 0)?;
    may_refuse(image.faults.rates.write_error_per_million, disk, 0, chance)
}

fn may_refuse(
    rate_per_million: u32,
    disk: &str,
    block: u64,
    chance: &mut Chance<'_>,
) -> Result<(), DiskError> {
    if !chance.happens(rate_per_million) {
        return Ok(());
    }
    chance.counters.refused_writes += 1;
    let kind = "simulated write error".to_owned();
    Err(DiskError::Io { disk: disk.to_owned(), block, kind })
}

/// Decides what happens, and counts it.
pub(super) struct Chance<'a> {
    pub random: &'a mut ChaCha8Rng,
    pub counters: &'a mut WorldCounters,
}

impl Chance<'_> {
    /// Draws only where the rate is not zero, so that turning a fault on does not change runs
    /// without.
    fn happens(&mut self, rate_per_million: u32) -> bool {
        rate_per_million > 0 && self.random.next_u32() % 1_000_000 < rate_per_million
    }
}

pub(super) fn flip(bytes: &mut units::Block, bit: usize) {
    let bit = bit % (BLOCK_SIZE * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}
