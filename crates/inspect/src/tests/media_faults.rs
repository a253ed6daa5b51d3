//! Rot on the disks themselves: told once, with whether parity makes it good.

use super::builder::*;
use crate::*;
use proptest::prelude::*;
use units::{Block, Pvbn};

#[test]
fn a_flipped_bit_of_a_block_in_use() {
    for pvbn in [VOLUME_BASE + 1, VOLUME_BASE + 2, VOLUME_BASE + 20, 100, 101, 102, 103] {
        let media = build(&Wrong::default());
        let (disk, block) = media.place(pvbn);
        media.world.flip_bit(disk, block, 12_345);
        let report = media.check();
        assert!(
            matches!(
                report.findings.as_slice(),
                [Finding::Damaged { pvbn: found, repairable: true, .. }] if found.get() == pvbn
            ),
            "{pvbn}: {report}"
        );
        let (disk, block) = media.place(pvbn);
        media.world.fail_block(disk, block);
        let report = media.check();
        assert!(
            matches!(report.findings.as_slice(), [Finding::Damaged { repairable: true, .. }]),
            "{pvbn}: {report}"
        );
    }
}

#[test]
fn damage_beyond_parity() {
    let media = build(&Wrong::default());
    let (disk, block) = media.place(VOLUME_BASE + 2);
    media.world.flip_bit(disk, block, 1);
    media.world.flip_bit("d0", block, 9);
    let report = media.check();
    let [Finding::Damaged { at, repairable: false, .. }] = report.findings.as_slice() else {
        panic!("{report}")
    };
    assert_eq!((at.inode, at.level), (70, 0));
    let error = media.inspect(|inspector| inspector.snapshot_digest("vol", "nightly"));
    assert!(matches!(error, Err(InspectError::Damaged(_))));
}

#[test]
fn a_flipped_bit_of_an_identity() {
    let media = build(&Wrong::default());
    let (disk, block, byte) = media.identity_place(VOLUME_BASE + 2);
    media.world.flip_bit(disk, block, byte * 8 + 3);
    let report = media.check();
    assert!(
        matches!(report.findings.as_slice(),
            [Finding::Identity { pvbn, fault: IdentityFault::Damaged(_) }]
                if *pvbn == Pvbn(VOLUME_BASE + 2)),
        "{report}"
    );
}

#[test]
fn wrong_parity() {
    let media = build(&Wrong::default());
    let (_, block) = media.place(VOLUME_BASE + 2);
    media.world.flip_bit("d0", block, 100);
    let place = |report: &Report| match report.findings.as_slice() {
        [Finding::Parity { group: 0, region, row }] => (*region, *row),
        _ => panic!("{report}"),
    };
    let (region, row) = place(&media.check());
    assert_eq!(16 + region * 64 + row as u64, block);
    media.world.flip_bit("d0", block, 100);
    assert!(media.check().is_clean());
    // That of the checksum blocks.
    media.world.flip_bit("d0", 16 + region * 64 + 63, 100);
    assert_eq!(place(&media.check()), (region, 63));
    // Where nothing is in use it does not matter.
    media.world.flip_bit("d0", 16 + region * 64 + 63, 100);
    media.world.flip_bit("d0", 16 + 60 * 64, 100);
    assert!(media.check().is_clean());
    media.world.fail_block("d0", block);
    let report = media.check();
    let unreadable = Finding::Unreadable { group: 0, disk: 0, block };
    assert_eq!(report.findings, [unreadable], "{report}");
}

#[test]
fn superblocks() {
    let media = build(&Wrong::default());
    for disk in ["d0", "d1"] {
        media.world.flip_bit(disk, 8, 500);
    }
    assert!(media.check().is_clean(), "one copy is left");
    media.world.flip_bit("d2", 8, 500);
    let mut drive = || {
        media.world.run_until_idle();
    };
    let refused = Inspector::open(media.disks(), &mut drive).err();
    assert!(matches!(refused, Some(InspectError::NoSuperblock { last: Some(_) })), "{refused:?}");
    let mut silent = || {};
    assert_eq!(Inspector::open(media.disks(), &mut silent).err(), Some(InspectError::Stalled));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Blocks of anything in the place of blocks in use, on all disks of the stripe: told, and
    /// nothing panics or goes on for ever.
    #[test]
    fn garbage_is_told(choice in any::<u64>(), seed in 1_u64.., own in any::<bool>()) {
        let media = build(&Wrong::default());
        let volume = VOLUME_BASE + 1 + choice % (media.vvbn_end - 1);
        let pvbn = if own { 100 + choice % 6 } else { volume };
        let (disk, block) = media.place(pvbn);
        media.world.write_block(disk, block, &pattern(seed));
        media.world.write_block("d0", block, &Block::zeroed());
        let report = media.check();
        prop_assert!(!report.is_clean());
        let _ = media.inspect(|inspector| inspector.tree("vol", None).is_ok());
    }
}
