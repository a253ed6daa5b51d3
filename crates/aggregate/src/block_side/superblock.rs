//! Which superblock of an aggregate is the newest.
//!
//! Invariants: an older image is not taken for the newest where a newer one may have committed.
//!
//! Fails: [`AggregateError::NoSuperblock`], [`AggregateError::SuperblockUnreadable`].

use crate::error::AggregateError;
use ondisk::root::Superblock;
use platform::mutation::{self, Rule};
use raid::SuperblockCopy;
use units::{AggregateUuid, Block};

/// The superblock of the last consistency point that may have committed, and its slot.
///
/// A consistency point commits when every disk in use has its superblock, and superblocks go to
/// the two slots in turn. So a disk that shows a superblock tells of every slot that can be read
/// and has not rotted: no later consistency point committed there. Where no disk can tell of a
/// slot, a later one may have committed there, and an older superblock must not be taken for the
/// newest: blocks that it names may have been overwritten.
///
/// # Errors
/// If no superblock is valid, or a slot can be read on no disk that has one.
pub fn choose_superblock(
    copies: &[SuperblockCopy],
    aggregate: &AggregateUuid,
) -> Result<(Superblock, usize), AggregateError> {
    let mut valid: Vec<(&SuperblockCopy, Superblock)> = Vec::new();
    let mut last = String::from("nothing could be read");
    for copy in copies {
        let read = |block| Superblock::from_block(block).or_else(|_| Superblock::mended(block));
        match copy.block.as_deref().map(read) {
            Some(Ok(found)) if found.aggregate == *aggregate => valid.push((copy, found)),
            Some(Ok(_)) => {
                last = format!("disk {} slot {}: of another aggregate", copy.disk, copy.slot);
            }
            Some(Err(damage))
                if damage.is_of_newer_build()
                    && !mutation::broken(Rule::NewerSuperblockPassedOver) =>
            {
                let what = format!("disk {} slot {}", copy.disk, copy.slot);
                return Err(AggregateError::Damaged { what, damage });
            }
            Some(Err(damage)) => last = format!("disk {} slot {}: {damage}", copy.disk, copy.slot),
            None => last = format!("disk {} slot {}: cannot be read", copy.disk, copy.slot),
        }
    }
    let mut best: Option<(Superblock, usize)> = None;
    for (copy, found) in &valid {
        let is_older = |(best, _): &(Superblock, usize)| {
            let is_lower = best.cp() < found.cp();
            // Broken, the lowest wins.
            is_lower != mutation::broken(Rule::LowerSuperblockWins)
        };
        if best.as_ref().is_none_or(is_older) {
            best = Some((*found, copy.slot));
        }
    }
    let Some((superblock, slot)) = best else { return Err(AggregateError::NoSuperblock { last }) };
    let is_readable = |copy: &SuperblockCopy| {
        let block = copy.block.as_deref();
        let has_rotted = |block| {
            Superblock::has_rotted(block, superblock.cp())
                && !mutation::broken(Rule::RottenSlotIgnored)
        };
        block.is_some_and(|block| !has_rotted(block))
    };
    let tells = |copy: &SuperblockCopy| {
        is_readable(copy) && valid.iter().any(|(other, _)| other.disk == copy.disk)
    };
    let untold = copies.iter().find(|copy| {
        let same_slot = |other: &&SuperblockCopy| other.slot == copy.slot;
        !copies.iter().filter(same_slot).any(tells)
    });
    match untold {
        None => Ok((superblock, slot)),
        Some(_) if mutation::broken(Rule::UnreadableSlotIgnored) => Ok((superblock, slot)),
        Some(copy) => Err(AggregateError::SuperblockUnreadable {
            disk: copy.disk.clone(),
            slot: copy.slot,
            found: superblock.cp(),
        }),
    }
}

/// Whether a superblock slot holds a superblock, or was never written. Else a write of it was torn,
/// or it has rotted.
#[must_use]
pub fn is_whole_slot(block: &Block) -> bool {
    block.is_zero() || Superblock::from_block(block).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ondisk::features::FeatureClass;
    use std::sync::Arc;
    use units::CpNumber;

    const AGGREGATE: AggregateUuid = AggregateUuid([7; 16]);

    /// A slot of a disk with the superblock of a consistency point; `None`: it cannot be read.
    fn copy(disk: &str, slot: usize, cp: Option<u64>) -> SuperblockCopy {
        let block = cp.map(|cp| {
            let mut superblock = Superblock::new();
            superblock.aggregate = AGGREGATE;
            superblock.set_cp(CpNumber(cp));
            superblock.root.inode_file.kind = ondisk::inode::KIND_METAFILE;
            superblock.root.snapshot_table.kind = ondisk::inode::KIND_METAFILE;
            Arc::new(superblock.to_block())
        });
        SuperblockCopy { disk: disk.to_owned(), slot, block }
    }

    /// A slot that was never written, or was being written when the power went.
    fn empty(disk: &str, slot: usize) -> SuperblockCopy {
        SuperblockCopy { disk: disk.to_owned(), slot, block: Some(Block::shared(&[])) }
    }

    fn chosen(copies: &[SuperblockCopy]) -> Result<(u64, usize), (String, usize)> {
        match choose_superblock(copies, &AGGREGATE) {
            Ok((superblock, slot)) => Ok((superblock.cp().get(), slot)),
            Err(AggregateError::SuperblockUnreadable { disk, slot, .. }) => Err((disk, slot)),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn the_newest_superblock_of_any_disk_is_chosen() {
        let two = [copy("a", 0, Some(4)), copy("a", 1, Some(3))];
        assert_eq!(chosen(&two), Ok((4, 0)));
        let sealed_on_one = [
            copy("a", 0, Some(4)),
            copy("a", 1, Some(3)),
            copy("b", 0, Some(4)),
            copy("b", 1, Some(5)),
        ];
        assert_eq!(chosen(&sealed_on_one), Ok((5, 1)));
        assert_eq!(chosen(&[copy("a", 0, Some(1)), empty("a", 1)]), Ok((1, 0)));
    }

    /// The only disk opened with the image before the last one, of which blocks had been
    /// overwritten.
    #[test]
    fn regression_a_slot_that_cannot_be_read_is_not_older() {
        assert_eq!(chosen(&[copy("a", 0, Some(4)), copy("a", 1, None)]), Err(("a".to_owned(), 1)));
        // Another disk tells what was committed there.
        let told = [
            copy("a", 0, Some(4)),
            copy("a", 1, None),
            copy("b", 0, Some(4)),
            copy("b", 1, Some(3)),
        ];
        assert_eq!(chosen(&told), Ok((4, 0)));
        // Each tells of one slot, and both together of all.
        let apart =
            [copy("a", 0, Some(4)), copy("a", 1, None), copy("b", 0, None), copy("b", 1, Some(3))];
        assert_eq!(chosen(&apart), Ok((4, 0)));
        // A disk that has no superblock yet knows nothing.
        let newcomer = [copy("a", 0, Some(4)), copy("a", 1, None), empty("b", 0), empty("b", 1)];
        assert_eq!(chosen(&newcomer), Err(("a".to_owned(), 1)));
    }

    /// The newest superblock of the only disk had rotted, and the image before was opened.
    #[test]
    fn regression_a_superblock_that_has_rotted_is_not_older() {
        let rotten = |disk: &str, slot: usize, cp: u64| {
            let mut copy = copy(disk, slot, Some(cp));
            let block = copy.block.as_mut().map(Arc::make_mut);
            block.unwrap().bytes_mut()[300] ^= 1;
            copy
        };
        assert_eq!(chosen(&[copy("a", 0, Some(4)), rotten("a", 1, 5)]), Err(("a".to_owned(), 1)));
        assert_eq!(chosen(&[copy("a", 0, Some(4)), rotten("a", 1, 3)]), Ok((4, 0)));
        let told = [
            copy("a", 0, Some(4)),
            rotten("a", 1, 5),
            copy("b", 0, Some(4)),
            copy("b", 1, Some(5)),
        ];
        assert_eq!(chosen(&told), Ok((5, 1)));
        // Only its number has rotted.
        let mut number = copy("a", 1, Some(5));
        number.block.as_mut().map(Arc::make_mut).unwrap().bytes_mut()[48] ^= 1;
        assert_eq!(chosen(&[copy("a", 0, Some(4)), number]), Ok((5, 1)));
    }

    /// The newest superblock of the only disk was a newer build's, and had a rotten number: the
    /// image before was opened.
    #[test]
    fn regression_a_newer_superblock_of_which_a_number_has_rotted_is_not_older() {
        let mut newer =
            Superblock::from_block(copy("a", 1, Some(5)).block.as_ref().unwrap()).unwrap();
        newer.features.set_named(FeatureClass::Incompatible, 40, "later");
        let mut block = newer.to_block();
        block.bytes_mut()[48] ^= 1;
        let number = SuperblockCopy { block: Some(Arc::new(block)), ..empty("a", 1) };
        let refused = choose_superblock(&[copy("a", 0, Some(4)), number], &AGGREGATE).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "disk a slot 1: superblock: uses the feature 'later', which this build of Stroop lacks; \
             a newer build wrote it"
        );
    }

    #[test]
    fn a_superblock_of_another_aggregate_counts_for_nothing() {
        let copies = [copy("a", 0, Some(4)), empty("a", 1)];
        let refused = choose_superblock(&copies, &AggregateUuid([8; 16]));
        assert!(matches!(refused, Err(AggregateError::NoSuperblock { .. })));
    }
}
