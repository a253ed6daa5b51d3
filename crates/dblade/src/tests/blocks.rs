//! Finding where a block lies on the disks, to damage it.

use super::{DISK_BLOCKS, DISKS};
use ondisk::identity::{BlockIdentity, ChecksumBlock, REGION_BLOCKS};
use platform::simulated::SimulatedWorld;

/// The disk and the place on it of the newest block whose identity `is_it` says is sought.
pub(super) fn find(
    world: &SimulatedWorld,
    is_it: impl Fn(&BlockIdentity) -> bool,
) -> (String, u64) {
    let mut newest: Option<(u64, String, u64)> = None;
    for disk in (0..DISKS).map(|disk| format!("disk{disk}")) {
        let mut region = media::DATA_START;
        while region + REGION_BLOCKS as u64 <= DISK_BLOCKS {
            let checksums = region + REGION_BLOCKS as u64 - 1;
            let block = world.read_block(&disk, checksums).unwrap();
            for (row, identity) in (0..).zip(&ChecksumBlock::view(&block).identities) {
                let cp = identity.cp.get();
                if is_it(identity) && newest.as_ref().is_none_or(|(other, ..)| *other < cp) {
                    newest = Some((cp, disk.clone(), region + row));
                }
            }
            region += REGION_BLOCKS as u64;
        }
    }
    let (_, disk, block) = newest.expect("there is such a block");
    (disk, block)
}
