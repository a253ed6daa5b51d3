//! Media without a fault, whole and degraded.

use super::builder::*;
use crate::{ContentHasher, InspectError, Inspector};
use ondisk::label::RaidKind;
use platform::Disk;
use raid::{DiskAdministration, NewDisk, NewGroup};
use std::sync::Arc;

#[test]
fn sound_media_have_no_findings() {
    let media = build(&Wrong::default());
    let report = media.check();
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.totals.volumes, 1);
    assert_eq!(report.totals.snapshots, 1);
    assert_eq!(report.totals.files, 16);
    assert!(report.totals.stripes > 0 && report.totals.degraded_reads == 0);
}

#[test]
fn one_lost_disk_is_no_finding_and_nothing_is_written() {
    let media = build(&Wrong::default());
    let all = media.inspect(|inspector| inspector.tree("vol", None).unwrap());
    for lost in DISKS {
        let before = media.world.snapshot();
        media.world.set_gone(lost, true);
        let mut drive = || {
            let pending = media.world.pending();
            let only_reads = pending.iter().all(|io| io.kind == platform::simulated::IoKind::Read);
            assert!(only_reads, "{pending:?}");
            media.world.run_until_idle();
        };
        let mut inspector = Inspector::open(media.disks(), &mut drive).unwrap();
        let report = inspector.check().unwrap();
        assert!(report.is_clean(), "{lost}: {report}");
        assert_eq!(report.totals.degraded_reads > 0, lost == "d1", "{lost}");
        assert_eq!(inspector.tree("vol", None).unwrap(), all);
        media.world.restore(&before);
    }
    media.world.set_gone("d0", true);
    media.world.set_gone("d1", true);
    let mut drive = || {
        media.world.run_until_idle();
    };
    let refused = Inspector::open(media.disks(), &mut drive).err();
    let expected = InspectError::TooFewDisks { group: 0, missing: 2, count: 3, tolerated: 1 };
    assert_eq!(refused, Some(expected));
}

/// A group that was removed leaves a gap in the numbers; a disk of it that is still there is not
/// looked at, whatever its label says.
#[test]
fn a_removed_group_is_no_finding() {
    let larger = Wrong {
        superblock: Some(Box::new(|superblock| {
            superblock.root.size_blocks = (superblock.root.size_blocks.get() + 63 * 63).into();
        })),
        ..Wrong::default()
    };
    let media = build(&larger);
    let disk: Arc<dyn Disk> = media.world.add_disk("d3", 4096);
    let new = NewDisk {
        disk: Arc::clone(&disk),
        identity: units::DiskUuid([7; 16]),
        profile: media::Profile::Hdd,
    };
    let groups = vec![NewGroup { kind: RaidKind::None, disks: vec![new] }];
    media.world.wait(|done| media.store.add_groups(groups, done)).unwrap();
    let inspect = |disks: Vec<Arc<dyn Disk>>| {
        let mut drive = || {
            media.world.run_until_idle();
        };
        let mut inspector = Inspector::open(disks, &mut drive)?;
        inspector.check()
    };
    let all = || media.disks().into_iter().chain([Arc::clone(&disk)]).collect();
    let report = inspect(all()).unwrap();
    assert!(report.is_clean(), "{report}");
    let label = media.world.read_block("d3", 0).unwrap();
    media.world.wait(|done| media.store.remove_group(1, done)).unwrap();
    let report = inspect(media.disks()).unwrap();
    assert!(report.is_clean(), "{report}");
    media.world.write_block("d3", 0, &label);
    let report = inspect(all()).unwrap();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn files_are_shown_by_path() {
    let media = build(&Wrong::default());
    let (active, old) = media.inspect(|inspector| {
        let active = inspector.tree("vol", None).unwrap();
        (active, inspector.tree("vol", Some("nightly")).unwrap())
    });
    let paths: Vec<String> =
        active.iter().map(|file| String::from_utf8_lossy(&file.path).into_owned()).collect();
    let expected = ["", "/a", "/dir", "/dir/again", "/dir/deep", "/dir/link", "/tiny"];
    assert_eq!(paths, expected);
    assert_eq!(active[1].content, active[3].content);
    assert_eq!(active[1].xattrs[b"user.a".as_slice()], b"b");
    assert_eq!(active[5].target, b"../");
    assert_eq!(active[6].content, ContentHasher::of(b"hello"));
    assert_eq!(active[6].size, 5);
    assert_ne!(active[1].content, old[1].content, "file 65 was changed after the snapshot");
    assert_eq!(active[4].content, old[4].content);
    let missing = media.inspect(|inspector| inspector.tree("vol", Some("x")).err());
    let (volume, name) = ("vol".to_owned(), "x".to_owned());
    assert_eq!(missing, Some(InspectError::NoSnapshot { volume, name }));
    let missing = media.inspect(|inspector| inspector.tree("x", None).err());
    assert_eq!(missing, Some(InspectError::NoVolume { name: "x".to_owned() }));
}

#[test]
fn a_snapshots_digest_is_that_of_its_image() {
    let digest = |media: &Media| media.inspect(|i| i.snapshot_digest("vol", "nightly").unwrap());
    let media = build(&Wrong::default());
    let first = digest(&media);
    assert_eq!(first, digest(&media));
    // The active image does not count.
    let inodes: Hook<Inodes> = Some(Box::new(|inodes| {
        inodes.get_mut(&66).unwrap().uid = 9.into();
    }));
    assert_eq!(first, digest(&build(&Wrong { inodes, ..Wrong::default() })));
    // A repairable fault does not either.
    let (disk, block) = media.place(VOLUME_BASE + 2);
    media.world.flip_bit(disk, block, 77);
    assert_eq!(first, digest(&media));
    assert_eq!(media.check().findings.len(), 1);
}
