//! What a request does to a disk's image, faults included.

use crate::DiskError;
use crate::disk::is_in_range;
use crate::simulated::image::DiskImage;
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
    choices: &mut ChaCha8Rng,
) -> Result<Vec<BlockRef>, DiskError> {
    check(image, disk, block, count)?;
    let rates = image.faults.rates;
    let mut blocks = Vec::with_capacity(count);
    for block in block..block + count as u64 {
        if happens(rates.latent_error_per_million, choices) {
            image.faults.unreadable.insert(block);
        }
        if happens(rates.bit_flip_per_million, choices) {
            let bit = choices.next_u32() as usize;
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
    choices: &mut ChaCha8Rng,
) -> Result<(), DiskError> {
    check(image, disk, block, blocks.len())?;
    let rates = image.faults.rates;
    for (block, content) in (block..).zip(blocks) {
        if image.faults.unwritable.contains(&block) {
            let kind = "simulated write error".to_owned();
            return Err(DiskError::Io { disk: disk.to_owned(), block, kind });
        }
        let lost = image.faults.lose_next.remove(&block);
        if lost || happens(rates.lost_write_per_million, choices) {
            continue;
        }
        let target = match image.faults.misdirect_next.remove(&block) {
            Some(target) => target,
            None if happens(rates.misdirected_write_per_million, choices) => {
                choices.next_u64() % image.size_blocks
            }
            None => block,
        };
        image.faults.unreadable.remove(&target);
        image.apply(target, content);
    }
    Ok(())
}

/// Draws only where the rate is not zero, so that turning a fault on does not change runs without.
fn happens(rate_per_million: u32, choices: &mut ChaCha8Rng) -> bool {
    rate_per_million > 0 && choices.next_u32() % 1_000_000 < rate_per_million
}

pub(super) fn flip(bytes: &mut units::Block, bit: usize) {
    let bit = bit % (BLOCK_SIZE * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
}
