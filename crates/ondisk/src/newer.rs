//! Structures as a newer build would write them, with features that this build lacks: for tests of
//! what a build does with an image that it does not know all of.
//!
//! Invariants: nothing but the features and the checksum changes.

use crate::features::{FeatureClass, FeatureScope, FeatureSet};
use crate::identity::crc32c;
use crate::label::DiskLabel;
use crate::log::LogHeader;
use crate::root::Superblock;
use std::mem::offset_of;
use units::Block;
use zerocopy::FromBytes;

/// Where labels, superblocks and log headers have the checksum of their block.
const CHECKSUM_OFFSET: usize = 12;

const _: () = {
    assert!(offset_of!(DiskLabel, checksum) == CHECKSUM_OFFSET);
    assert!(offset_of!(Superblock, checksum) == CHECKSUM_OFFSET);
    assert!(offset_of!(LogHeader, checksum) == CHECKSUM_OFFSET);
};

/// The label, superblock or log header of a block with one feature more, and with a checksum that
/// is right. A volume's record is a block of a file, and has no checksum of its own.
///
/// # Panics
/// If it is not a structure of `scope`.
#[must_use]
pub fn with_feature(
    block: &Block,
    scope: FeatureScope,
    class: FeatureClass,
    (bit, name): (u8, &str),
) -> Block {
    let (is_one, at) = match scope {
        FeatureScope::Disk => (DiskLabel::is_claimed_by(block), offset_of!(DiskLabel, features)),
        FeatureScope::Aggregate => {
            (Superblock::from_block(block).is_ok(), offset_of!(Superblock, features))
        }
        FeatureScope::Log => (LogHeader::is_claimed_by(block), offset_of!(LogHeader, features)),
        FeatureScope::Volume => (false, 0),
    };
    assert!(is_one, "the block holds no structure of the {scope}");
    let mut newer = block.clone();
    let bytes = newer.bytes_mut();
    let (before, rest) = bytes.split_at_mut(at);
    let Ok((features, _)) = FeatureSet::mut_from_prefix(rest) else {
        unreachable!("the structure is as large as a block")
    };
    features.set_named(class, bit, name);
    let (_, checksum) = before.split_at_mut(CHECKSUM_OFFSET);
    checksum.iter_mut().take(4).for_each(|byte| *byte = 0);
    let computed = crc32c(&newer);
    let field = newer.bytes_mut().iter_mut().skip(CHECKSUM_OFFSET);
    field.zip(computed.to_le_bytes()).for_each(|(into, byte)| *into = byte);
    newer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damage::Damage;
    use crate::log::{LOG_HALF_BLOCKS_MIN, LOG_NOTES_BLOCKS_MIN};

    #[test]
    fn a_newer_structure_is_refused_for_its_feature_alone() {
        let (compatible, incompatible) = (FeatureClass::Compatible, FeatureClass::Incompatible);
        let later = (40, "later");
        let header = LogHeader::new(
            units::AggregateUuid([1; 16]),
            units::LogUuid([2; 16]),
            LOG_HALF_BLOCKS_MIN,
            LOG_NOTES_BLOCKS_MIN,
        )
        .to_block();
        let newer = |class| with_feature(&header, FeatureScope::Log, class, later);
        let found = LogHeader::from_block(&newer(compatible)).map(|found| found.features);
        assert_eq!(found.map(|features| features.to_string()), Ok("later".to_owned()));
        let refused = LogHeader::from_block(&newer(incompatible));
        assert!(matches!(refused, Err(Damage::Feature { .. })), "{refused:?}");
    }
}
