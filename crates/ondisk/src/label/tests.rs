//! Labels: what survives a block, and which fields are wrong.

use super::*;
use crate::features::FeatureClass;
use units::{AggregateUuid, DiskUuid};

fn example() -> DiskLabel {
    let mut label = DiskLabel::empty();
    label.disk = DiskUuid([2; 16]);
    label.aggregate = AggregateUuid([9; 16]);
    assert!(label.set_name("pool"));
    label.data_regions = U64::new(100);
    label.groups_count = U32::new(1);
    label.disk_index = U16::new(1);
    label.disks_in_group = U16::new(3);
    label.raid_kind = RaidKind::Raid4.number();
    label.role = DiskRole::Data.number();
    label.bases[2] = U64::new(6300);
    for (member, byte) in label.members.iter_mut().zip(1..=3) {
        *member = DiskUuid([byte; 16]);
    }
    label
}

#[test]
fn labels_survive_a_block() {
    let block = example().to_block();
    assert!(DiskLabel::is_claimed_by(&block));
    let read = DiskLabel::from_block(&block).unwrap();
    assert_eq!(read.name(), Some("pool"));
    assert_eq!(
        read.to_string(),
        "data disk 1 of 3 in raid4 group 0 of aggregate 'pool' \
         (09090909090909090909090909090909), 100 regions, first pvbn:0"
    );
}

#[test]
fn media_are_recorded_and_labels_of_earlier_versions_have_none() {
    let mut label = example();
    label.set_medium(Medium::Ssd(4 << 20));
    let read = DiskLabel::from_block(&label.to_block()).unwrap();
    assert_eq!((read.medium(), read.rotational), (Some(Medium::Ssd(4 << 20)), 0));
    assert!(read.to_string().ends_with(", first pvbn:0, ssd:4MiB"), "{read}");
    label.set_medium(Medium::Smr(256 << 20));
    assert_eq!((label.medium(), label.rotational), (Some(Medium::Smr(256 << 20)), 1));
    let read = DiskLabel::from_block(&example().to_block()).unwrap();
    assert_eq!(read.medium(), Some(Medium::Unrecorded));
}

#[test]
fn the_last_label_of_a_disk_fits_a_sector() {
    let mut label = example();
    label.set_medium(Medium::Ssd(4 << 20));
    label.trusted_cp = U64::new(7);
    label.set_number(3);
    let block = label.in_one_sector().to_block();
    assert!(block.bytes()[512..].iter().all(|byte| *byte == 0));
    let read = DiskLabel::from_block(&block).unwrap();
    assert_eq!(
        (read.disk, read.aggregate, read.name()),
        (label.disk, label.aggregate, Some("pool"))
    );
    assert_eq!((read.medium(), read.disk_role()), (label.medium(), Some(DiskRole::Spare)));
}

#[test]
fn a_number_is_that_of_the_disk_which_got_it() {
    let mut label = example();
    assert_eq!(label.number(), None);
    label.set_number(7);
    let read = DiskLabel::from_block(&label.to_block()).unwrap();
    assert_eq!((read.number(), read.features.to_string().as_str()), (Some(7), "disk-numbers"));
    // Builds that lack the feature make labels of other disks from this one.
    label.disk = DiskUuid([3; 16]);
    label.disk_index = U16::new(2);
    assert_eq!(DiskLabel::from_block(&label.to_block()).unwrap().number(), None);
}

#[test]
fn removed_groups_are_remembered() {
    let mut label = example();
    label.groups_count = U32::new(GROUPS_MAX);
    [7, 8, GROUPS_MAX - 1].into_iter().for_each(|group| label.set_removed(group));
    label.removed_blocks = U64::new(3 * 63);
    let read = DiskLabel::from_block(&label.to_block()).unwrap();
    let removed: Vec<u32> = (0..2 * GROUPS_MAX).filter(|at| read.is_removed(*at)).collect();
    assert_eq!(removed, [7, 8, GROUPS_MAX - 1]);
    assert!(read.features.has(&REMOVED_GROUPS));
    assert!(!(0..GROUPS_MAX).any(|at| example().is_removed(at)));
}

#[test]
fn a_label_has_the_features_that_its_group_uses_and_keeps_those_of_newer_builds() {
    let features =
        |label: &DiskLabel| DiskLabel::from_block(&label.to_block()).unwrap().features.to_string();
    let mut label = example();
    assert_eq!(features(&label), "");
    label.raid_kind = RaidKind::Dp.number();
    (label.disk_index, label.disk, label.bases) = (U16::new(2), DiskUuid([3; 16]), [U64::ZERO; 32]);
    label.features.set_named(FeatureClass::Compatible, 40, "later");
    assert_eq!(features(&label), "later, double-parity");
    label.features.set_named(FeatureClass::Incompatible, 40, "much-later");
    label.checksum = U32::new(label.computed_checksum());
    let refused = label.validate().unwrap_err();
    assert!(refused.to_string().contains("'much-later'"), "{refused}");
}

#[test]
fn every_flipped_bit_is_seen() {
    let block = example().to_block();
    for bit in 0..BLOCK_SIZE * 8 {
        let mut bad = block.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(DiskLabel::from_block(&bad).is_err(), "bit {bit}");
    }
    assert!(DiskLabel::from_block(&Block::zeroed()).is_err());
}

#[test]
fn wrong_fields_are_named() {
    type Change = fn(&mut DiskLabel);
    let changes: [(&str, Change); 22] = [
        ("sickness", |label| label.sickness = U32::new(4)),
        ("scrub", |label| label.scrub.phase = 9),
        ("medium", |label| label.medium = 5),
        ("medium", |label| label.medium_unit_bytes = U32::new(4096)),
        ("away", |label| label.away = U32::new(1)),
        ("settled", |label| label.settled = U32::new(1)),
        ("rebuilding", |label| label.rebuilding = U32::new(1)),
        ("rebuilt_regions", |label| label.rebuilt_regions = U64::new(101)),
        ("aggregate_name", |label| label.aggregate_name[10] = 1),
        ("group_index", |label| label.group_index = U32::new(1)),
        ("disk_index", |label| label.disk_index = U16::new(3)),
        ("raid_kind", |label| label.raid_kind = 9),
        ("role", |label| label.role = DiskRole::Parity.number()),
        ("missing", |label| label.missing = U32::new(8)),
        ("members", |label| label.members[2] = DiskUuid::NIL),
        ("data_regions", |label| label.data_regions = U64::ZERO),
        ("log_regions", |label| label.log_regions = U64::new(LOG_REGIONS_MAX + 1)),
        ("bases", |label| label.bases[2] = U64::ZERO),
        ("removed", |label| label.set_removed(1)),
        ("removed", |label| {
            label.set_removed(0);
            label.removed_blocks = U64::new(63);
        }),
        ("removed_blocks", |label| label.removed_blocks = U64::new(63)),
        ("removed_blocks", |label| {
            label.groups_count = U32::new(2);
            label.set_removed(1);
        }),
    ];
    for (field, change) in changes {
        let mut label = example();
        change(&mut label);
        label.checksum = U32::new(label.computed_checksum());
        assert_eq!(label.validate(), Err(Damage::Field { structure: STRUCTURE, field }));
    }
    let mut newer = example();
    newer.version = U16::new(FORMAT_VERSION + 1);
    assert!(matches!(newer.validate(), Err(Damage::Checksum { .. })));
    newer.checksum = U32::new(newer.computed_checksum());
    assert!(matches!(newer.validate(), Err(Damage::Version { .. })));
    let reserved: [fn(&mut DiskLabel); 6] = [
        |label| label.rotational = 2,
        |label| label.reserved_a = U16::new(1),
        |label| label.reserved_c[15] = 1,
        |label| label.reserved_d = U32::new(1),
        |label| label.reserved_e = U64::new(1),
        |label| *label.reserved_f.last_mut().unwrap() = 1,
    ];
    for change in reserved {
        let mut newer = example();
        change(&mut newer);
        newer.checksum = U32::new(newer.computed_checksum());
        assert_eq!(newer.validate(), Err(Damage::Reserved { structure: STRUCTURE }));
    }
    assert!(!example().set_name(&"x".repeat(65)));
}

#[test]
fn a_spare_has_no_group() {
    let mut spare = DiskLabel::empty();
    (spare.disk, spare.aggregate) = (DiskUuid([2; 16]), AggregateUuid([9; 16]));
    assert!(spare.set_name("pool"));
    spare.data_regions = U64::new(100);
    spare.groups_count = U32::new(1);
    spare.role = DiskRole::Spare.number();
    let read = DiskLabel::from_block(&spare.to_block()).unwrap();
    assert!(read.is_spare() && !example().is_spare());
    assert_eq!(
        read.to_string(),
        "spare of aggregate 'pool' (09090909090909090909090909090909), 100 regions"
    );
    type Change = fn(&mut DiskLabel);
    let changes: [(&str, Change); 6] = [
        ("disk", |label| label.disk = DiskUuid::NIL),
        ("disk_index", |label| label.disk_index = U16::new(32)),
        ("raid_kind", |label| label.raid_kind = RaidKind::Dp.number()),
        ("members", |label| label.members[0] = label.disk),
        ("rebuilt_regions", |label| label.rebuilt_regions = U64::new(101)),
        ("removed_blocks", |label| {
            label.groups_count = U32::new(2);
            label.set_removed(1);
            label.removed_blocks = U64::new(63);
        }),
    ];
    for (field, change) in changes {
        let mut label = spare.clone();
        change(&mut label);
        label.checksum = U32::new(label.computed_checksum());
        assert_eq!(label.validate(), Err(Damage::Field { structure: STRUCTURE, field }));
    }
}
