//! Labelling and refusing, on simulated disks.

use crate::*;
use device_models::{HddConfiguration, HddModel};
use ondisk::features::{FeatureClass, FeatureScope};
use ondisk::identity::crc32c_of_bytes;
use ondisk::label::{DiskLabel, DiskRole, RaidKind};
use ondisk::medium::Medium;
use platform::Disk;
use platform::simulated::{Fate, SimulatedWorld};
use platform::sync::Mutex;
use platform::watched::Watch;
use std::sync::Arc;
use units::{Block, zero_block};
use zerocopy::IntoBytes;

const SIZE: u64 = DISK_BLOCKS_MIN;

fn world() -> (SimulatedWorld, Arc<dyn Disk>) {
    let world = SimulatedWorld::new(1);
    let disk = world.add_disk("a", SIZE);
    (world, disk)
}

fn label() -> DiskLabel {
    let mut label = DiskLabel::empty();
    label.disk = units::DiskUuid([1; 16]);
    label.members[0] = units::DiskUuid([1; 16]);
    label.aggregate = units::AggregateUuid([2; 16]);
    assert!(label.set_name("pool"));
    label.data_regions = regions_of(SIZE).into();
    label.groups_count = 1.into();
    label.disks_in_group = 1.into();
    label.raid_kind = RaidKind::None.number();
    label.role = DiskRole::Data.number();
    label
}

/// A change far from the sequence number: the label is torn if not all of it is written.
fn count_error(label: &mut DiskLabel) {
    label.read_errors = (label.read_errors.get() + 1).into();
}

#[test]
fn foreign_disks_are_refused_by_name() {
    let cases: [(&str, u64, usize, &[u8]); 14] = [
        ("an XFS file system", 0, 0, b"XFSB"),
        ("an ext2, ext3 or ext4 file system", 0, 1080, b"\x53\xef"),
        ("a Btrfs file system", 16, 64, b"_BHRfS_M"),
        ("an LVM physical volume", 0, 536, b"LVM2 001"),
        ("a GPT partition table", 0, 512, b"EFI PART"),
        ("a GPT partition table", SIZE - 1, 4096 - 512, b"EFI PART"),
        ("an MBR partition table or boot sector", 0, 510, b"\x55\xaa"),
        ("a member of a ZFS pool", 40, 1024, b"\x0c\xb1\xba\x00\x00\x00\x00\x00"),
        ("swap space", 0, 4086, b"SWAPSPACE2"),
        ("a LUKS encrypted volume", 0, 0, b"LUKS\xba\xbe"),
        ("a member of a Linux md RAID", 1, 0, b"\xfc\x4e\x2b\xa9"),
        ("unknown data (block 0 is not zero)", 0, 100, b"x"),
        ("unknown data (block 63 is not zero)", 63, 100, b"x"),
        ("unknown data (block 4032 is not zero)", SIZE - 64, 0, b"x"),
    ];
    for (name, block, offset, magic) in cases {
        let (world, disk) = world();
        let mut content = Block::zeroed();
        content[offset..offset + magic.len()].copy_from_slice(magic);
        world.write_block("a", block, &content);
        let refused = world.wait(|done| check_unused(&disk, false, done)).unwrap_err();
        let expected = format!("disk a holds {name}; if it is to be erased, use --force");
        assert_eq!(refused.to_string(), expected);
        assert_eq!(world.wait(|done| check_unused(&disk, true, done)), Ok(()));
    }
    let (world, disk) = world();
    assert_eq!(world.wait(|done| check_unused(&disk, false, done)), Ok(()));
    let small: Arc<dyn Disk> = world.add_disk("small", 100);
    let refused = world.wait(|done| check_unused(&small, true, done)).unwrap_err();
    assert_eq!(refused.to_string(), "disk small has 400KiB, the least is 16MiB; use a larger disk");
}

/// It passed for unknown data, with an invitation to erase it.
#[test]
fn regression_a_disk_of_another_build_is_named_before_it_is_erased() {
    let newer = |copies: &[u64]| {
        let (world, disk) = world();
        world.wait(|done| initialize(Arc::clone(&disk), label(), done)).unwrap();
        for copy in copies {
            let old = world.read_block("a", *copy).unwrap();
            let (class, later) = (FeatureClass::Incompatible, (40, "later"));
            let block = ondisk::newer::with_feature(&old, FeatureScope::Disk, class, later);
            world.write_block("a", *copy, &block);
        }
        (world, disk)
    };
    for copies in [&[0][..], &[SIZE - 1], &[0, SIZE - 1]] {
        let (world, disk) = newer(copies);
        let refused = world.wait(|done| check_unused(&disk, false, done)).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "disk a holds a disk of another build of Stroop (disk label: uses the feature 'later', \
             which this build of Stroop lacks; a newer build wrote it); if it is to be erased, use \
             --force"
        );
    }
    let (world, disk) = newer(&[]);
    [0, SIZE - 1].iter().for_each(|copy| world.flip_bit("a", *copy, 32_000));
    let refused = world.wait(|done| check_unused(&disk, false, done)).unwrap_err();
    assert!(refused.to_string().contains("a disk of Stroop whose label is damaged"), "{refused}");
}

#[test]
fn a_labelled_disk_opens_and_is_not_given_away() {
    let (world, disk) = world();
    let unlabelled = world.wait(|done| open(Arc::clone(&disk), done)).err();
    assert_eq!(unlabelled, Some(MediaError::NoLabel { disk: "a".to_owned() }));
    // A superblock of an earlier life.
    world.write_block("a", SUPERBLOCK_BLOCK + 1, &Block::from_prefix(b"old"));
    let device = world.wait(|done| initialize(Arc::clone(&disk), label(), done)).unwrap();
    assert_eq!(device.layout().regions, 63);
    assert_eq!(device.layout().data_blocks(), 63 * 63);
    assert_eq!(device.layout().data_block(units::Dbn(63)), DATA_START + 64);
    assert_eq!(device.layout().checksum_block(0), DATA_START + 63);
    let refused = world.wait(|done| check_unused(&disk, false, done)).unwrap_err();
    assert!(refused.to_string().contains("aggregate 'pool' (0202"), "{refused}");
    let device = world.wait(|done| open(Arc::clone(&disk), done)).unwrap();
    let slot = world.wait(|done| device.read_superblock(1, done)).unwrap();
    assert_eq!(slot, zero_block());
    let block = Arc::new(Block::from_prefix(b"new"));
    world.wait(|done| device.write_superblock(1, Arc::clone(&block), done)).unwrap();
    assert_eq!(world.wait(|done| device.read_superblock(1, done)), Ok(block));
}

#[test]
fn one_damaged_copy_is_no_loss_and_two_are_told() {
    for copy in [0, SIZE - 1] {
        let (world, disk) = world();
        world.wait(|done| initialize(Arc::clone(&disk), label(), done)).unwrap();
        world.flip_bit("a", copy, 777);
        assert!(world.wait(|done| open(Arc::clone(&disk), done)).is_ok());
        world.fail_block("a", copy);
        assert!(world.wait(|done| open(Arc::clone(&disk), done)).is_ok());
        world.flip_bit("a", SIZE - 1 - copy, 777);
        let refused = world.wait(|done| open(Arc::clone(&disk), done)).err().unwrap();
        assert!(matches!(refused, MediaError::DamagedLabel { .. }), "{refused}");
    }
}

/// A label that this build cannot read is not a damaged one, and tells which build can.
#[test]
fn labels_of_another_build_are_told_from_damaged_ones() {
    let (world, disk) = world();
    world.wait(|done| initialize(Arc::clone(&disk), label(), done)).unwrap();
    let mut newer = world.wait(|done| read_label(&disk, done)).unwrap();
    newer.features.set_named(FeatureClass::Incompatible, 50, "later");
    newer.checksum = 0.into();
    newer.checksum = crc32c_of_bytes(newer.as_bytes()).into();
    let newer = Block::from_prefix(newer.as_bytes());
    let old = world.read_block("a", SIZE - 1).unwrap();
    // The build that wrote it may have died before the second copy.
    for second in [&old, &newer, &Block::from_prefix(&newer.bytes()[..100])] {
        world.write_block("a", 0, &newer);
        world.write_block("a", SIZE - 1, second);
        let refused = world.wait(|done| open(Arc::clone(&disk), done)).err().unwrap();
        assert_eq!(
            refused.to_string(),
            "disk a is of another build of Stroop: disk label: uses the feature 'later', which \
             this build of Stroop lacks; a newer build wrote it"
        );
    }
}

/// A disk that a newer build once labelled was labelled again, and the power went between the two
/// copies: the copy that is left of the former life refuses nothing.
#[test]
fn a_newer_label_of_a_former_life_is_passed_over() {
    let (world, disk) = world();
    world.wait(|done| initialize(Arc::clone(&disk), label(), done)).unwrap();
    let mut former = world.wait(|done| read_label(&disk, done)).unwrap();
    former.features.set_named(FeatureClass::Incompatible, 50, "later");
    former.disk = units::DiskUuid([0xee; 16]);
    former.checksum = 0.into();
    former.checksum = crc32c_of_bytes(former.as_bytes()).into();
    world.write_block("a", SIZE - 1, &Block::from_prefix(former.as_bytes()));
    assert!(world.wait(|done| open(Arc::clone(&disk), done)).is_ok());
}

#[test]
fn power_cuts_leave_one_label_or_the_next() {
    for seed in 0..200 {
        let world = SimulatedWorld::new(seed);
        let disk: Arc<dyn Disk> = world.add_disk("a", SIZE);
        let mut device = Arc::new(world.wait(|done| initialize(disk, label(), done)).unwrap());
        // A cut in each of many updates: none falls back behind what was acknowledged.
        for _ in 0..6 {
            let before = device.label().sequence.get();
            device.update_label(count_error, Box::new(|_| ()));
            for _ in 0..world.choose(5) {
                world.step();
            }
            let finished = world.pending_count() == 0;
            world.power_cut();
            let disk: Arc<dyn Disk> = world.disk("a").unwrap();
            device = Arc::new(world.wait(|done| open(disk, done)).unwrap());
            let after = device.label().sequence.get();
            assert!(after == before + 1 || after == before && !finished, "{before} {after}");
        }
    }
}

/// What a process that died had written can be read at the next start, and is not durable.
#[test]
fn a_power_cut_after_a_kill_leaves_a_label() {
    for seed in 0..400 {
        let world = SimulatedWorld::new(seed);
        let disk: Arc<dyn Disk> = world.add_disk("a", SIZE);
        let device = Arc::new(world.wait(|done| initialize(disk, label(), done)).unwrap());
        let updates = |device: &Arc<Device>, steps: u64| {
            device.update_label(count_error, Box::new(|_| ()));
            for _ in 0..world.choose(steps) {
                world.step();
            }
        };
        updates(&device, 5);
        world.kill();
        let opened = world.wait(|done| open(world.disk("a").unwrap(), done)).unwrap();
        updates(&Arc::new(opened), 6);
        world.power_cut_with(if seed % 2 == 0 { Fate::AllTorn } else { Fate::Each });
        world.wait(|done| open(world.disk("a").unwrap(), done)).unwrap();
    }
}

#[test]
fn an_erased_disk_is_unused() {
    let (world, disk) = world();
    let device = world.wait(|done| initialize(Arc::clone(&disk), label(), done)).unwrap();
    let device = Arc::new(device);
    let content = Block::from_prefix(b"content");
    let superblock = Arc::new(content.clone());
    assert_eq!(world.wait(|done| device.write_superblock(1, superblock, done)), Ok(()));
    world.write_block("a", DATA_START + 3, &content);
    world.write_block("a", SIZE - 20, &content);
    assert!(world.wait(|done| check_unused(&disk, false, done)).is_err());
    assert_eq!(world.wait(|done| device.erase(done)), Ok(()));
    assert_eq!(world.wait(|done| check_unused(&disk, false, done)), Ok(()));
}

/// A disk of which all but the label was erased looked like somebody's when the label had gone
/// first and the power then, and when the power cut tore the last label.
#[test]
fn a_disk_that_is_erased_label_last_is_unused_or_has_its_label() {
    let fates = [Fate::AllLost, Fate::AllTorn, Fate::Each, Fate::Each, Fate::Each];
    for (steps, fate) in (0..60).flat_map(|steps| fates.map(|fate| (steps, fate))) {
        let world = SimulatedWorld::new(steps);
        let disk: Arc<dyn Disk> = world.add_disk("a", SIZE);
        // Several sectors have something of it.
        let label = DiskLabel { trusted_cp: 7.into(), ..label() };
        let made = world.wait(|done| initialize(Arc::clone(&disk), label, done)).unwrap();
        let device = Arc::new(made);
        let superblock = Arc::new(Block::from_prefix(b"content"));
        assert_eq!(world.wait(|done| device.write_superblock(1, superblock, done)), Ok(()));
        device.erase_label_last(Box::new(|_| ()));
        for _ in 0..steps {
            world.step();
        }
        drop((device, disk));
        world.power_cut_with(fate);
        let disk: Arc<dyn Disk> = world.disk("a").unwrap();
        if let Ok(device) = world.wait(|done| open(Arc::clone(&disk), done)) {
            assert_eq!(world.wait(|done| Arc::new(device).erase_label_last(done)), Ok(()));
        }
        assert_eq!(world.wait(|done| check_unused(&disk, false, done)), Ok(()), "{steps}");
    }
}

/// What a disk that hangs was told may be torn by a power cut, whenever it was told.
#[test]
fn a_disk_that_hangs_keeps_a_whole_label() {
    for seed in 0..200 {
        let world = SimulatedWorld::new(seed);
        let watch = Watch::new(Arc::new(world.clone()), 1_000);
        let disk = watch.over(world.add_disk("a", SIZE));
        let device = Arc::new(world.wait(|done| initialize(disk, label(), done)).unwrap());
        let before = device.label().sequence.get();
        for change in 1..3 {
            // The first one's time is over when the second begins, or it is met by it. They change
            // several sectors.
            let change = move |label: &mut DiskLabel| label.trusted_cp = change.into();
            device.update_label(change, Box::new(|_| ()));
            for _ in 0..world.choose(5) {
                world.step();
            }
            world.set_hung("a", true);
            if world.choose(2) == 0 {
                world.advance(1_000);
                watch.expire();
            }
        }
        world.advance(1_000);
        watch.expire();
        world.set_hung("a", false);
        world.power_cut();
        let disk: Arc<dyn Disk> = world.disk("a").unwrap();
        let found = world.wait(|done| open(disk, done)).unwrap().label().sequence.get();
        assert!((before..=before + 2).contains(&found), "seed {seed}: {found}");
    }
}

#[test]
fn changes_that_meet_are_all_durable_when_they_are_told() {
    for seed in 0..100 {
        let world = SimulatedWorld::new(seed);
        let disk: Arc<dyn Disk> = world.add_disk("a", SIZE);
        let device = Arc::new(world.wait(|done| initialize(disk, label(), done)).unwrap());
        let told = Arc::new(Mutex::new(0_i64));
        for bit in 0..3 {
            let told = Arc::clone(&told);
            device.update_label(
                move |label| {
                    let bits = label.created_nanoseconds.get() | 1 << bit;
                    label.created_nanoseconds = bits.into();
                },
                Box::new(move |result| *told.lock() |= i64::from(result.is_ok()) << bit),
            );
            for _ in 0..world.choose(4) {
                world.step();
            }
        }
        for _ in 0..world.choose(12) {
            world.step();
        }
        let told = *told.lock();
        world.power_cut();
        let disk: Arc<dyn Disk> = world.disk("a").unwrap();
        let found = world.wait(|done| open(disk, done)).unwrap().label().created_nanoseconds.get();
        assert_eq!(found & told, told, "seed {seed}: {found:b}, told {told:b}");
    }
}

#[test]
fn a_disk_that_shrank_is_told() {
    let (world, disk) = world();
    let mut large = label();
    large.data_regions = (regions_of(SIZE) + 1).into();
    let block = large.to_block();
    world.write_block("a", 0, &block);
    let refused = world.wait(|done| open(disk, done)).err().unwrap();
    assert!(matches!(refused, MediaError::Shrunk { .. }), "{refused}");
}

#[test]
fn the_label_says_what_a_disk_is_and_the_disk_where_it_does_not() {
    let (world, disk) = world();
    let rotational: Arc<dyn Disk> =
        Arc::new(HddModel::new(Arc::clone(&disk), HddConfiguration::default()));
    let recorded = |medium| {
        let mut label = label();
        label.set_medium(medium);
        let made = world.wait(|done| initialize(Arc::clone(&rotational), label, done)).unwrap();
        // The label is changed once: what it says of the medium stays.
        let (made, opened) = (Arc::new(made), Arc::clone(&rotational));
        world.wait(|done| made.update_label(|_| (), done)).unwrap();
        let profile = world.wait(|done| open(opened, done)).unwrap().profile();
        assert_eq!(made.profile(), profile);
        // Another disk below tells otherwise, and is not asked.
        let elsewhere = world.wait(|done| open(Arc::clone(&disk), done)).unwrap().profile();
        (profile.to_string(), elsewhere.to_string())
    };
    let same = |text: &str| (text.to_owned(), text.to_owned());
    assert_eq!(recorded(Medium::Ssd(1 << 20)), same("ssd:1MiB"));
    assert_eq!(recorded(Medium::Smr(64 << 20)), same("smr:64MiB"));
    assert_eq!(recorded(Medium::Hdd), same("hdd"));
    assert_eq!(recorded(Medium::Object), same("object"));
    let asked = ("hdd".to_owned(), "ssd:4MiB".to_owned());
    assert_eq!(recorded(Medium::Unrecorded), asked);
}

#[test]
fn a_stretch_holds_zeros_and_nothing_else_is_touched() {
    let (world, disk) = world();
    let garbage = Arc::new(Block::from_prefix(&[7; 64]));
    (0..600).for_each(|block| world.write_block("a", block, &garbage));
    let zeroing = Arc::<Zeroing>::default();
    world.wait(|done| zero(&disk, 3..500, &zeroing, done)).unwrap();
    assert_eq!(zeroing.progress(), (497, 497));
    world.power_cut();
    for block in 0..600 {
        let is_zeroed = (3..500).contains(&block);
        let expected = if is_zeroed { zero_block() } else { Arc::clone(&garbage) };
        assert_eq!(world.read_block("a", block).unwrap(), expected, "block {block}");
    }
}

#[test]
fn zeroing_that_is_stopped_says_so() {
    let (world, disk) = world();
    let zeroing = Arc::<Zeroing>::default();
    zeroing.stop();
    let stopped = world.wait(|done| zero(&disk, 0..SIZE, &zeroing, done)).unwrap_err();
    assert!(stopped.to_string().contains("disk a was stopped"), "{stopped}");
    assert!(zeroing.progress().0 < SIZE);
}
