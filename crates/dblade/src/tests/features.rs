//! Images that a newer build wrote, with features that this one lacks: the volume, or the
//! aggregate, is refused by name, and nothing of it is changed.

use super::*;
use crate::EngineError;
use aggregate::{Acted, BlockSide, FreezeScope};
use media::{LABEL_BLOCK, SUPERBLOCK_BLOCK};
use ondisk::features::FeatureClass::{Compatible, Incompatible, ReadOnlyCompatible};
use ondisk::features::{FeatureClass, FeatureScope, FeatureSet};
use ondisk::newer::with_feature as newer;
use ondisk::records::{TIERING_AUTO, VolumeRecord};
use ondisk::root::Superblock;
use units::BlockRef;
use units::VolumeId;
use volume::VolumeDamage;

mod below;

/// Has the next consistency point write what `change` makes of the block side.
fn change(node: &Node, change: impl FnOnce(&mut BlockSide) + Send + 'static) {
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    let mut change = Some(change);
    let action = move |scope: &mut FreezeScope<'_, '_>| {
        if let Some(change) = change.take() {
            change(scope.block_side());
        }
        Ok(Acted::Done)
    };
    node.wait(|done| aggregate.request_action(Box::new(action), done)).unwrap();
}

fn use_feature(node: &Node, volume: &'static str, class: FeatureClass) {
    change(node, move |side| {
        let is_it = |slot: &aggregate::VolumeSlot| slot.record.name() == volume;
        let slot = side.table.iter().position(is_it).unwrap();
        let record = &mut side.table[slot].record;
        record.features.set_named(class, 40, "later");
        // The feature keeps something where this build knows nothing.
        record.padding[9] = 1;
        record.exports[1].reserved[0] = 1;
        if class != Compatible {
            record.tiering = TIERING_AUTO + 1;
        }
        side.dirty_slots.insert(slot);
    });
}

/// A volume's record, as the next consistency point would write it.
fn record(node: &Node, volume: &'static str) -> Box<[u8]> {
    let found = Arc::new(Mutex::new(None));
    let same = Arc::clone(&found);
    change(node, move |side| {
        let slot = side.table.iter().find(|slot| slot.record.name() == volume);
        *same.lock() = slot.map(|slot| slot.record.to_block());
    });
    let block = found.lock().take().expect("the volume is there");
    Box::from(&block[..])
}

fn features(node: &Node) -> FeatureSet {
    let found = Arc::new(Mutex::new(FeatureSet::empty()));
    let same = Arc::clone(&found);
    change(node, move |side| *same.lock() = side.settings.features);
    *found.lock()
}

fn is_quarantined(node: &Node, volume: VolumeId) -> bool {
    let found = Arc::new(Mutex::new(false));
    let same = Arc::clone(&found);
    change(node, move |side| *same.lock() = side.containers[&volume].quarantined);
    *found.lock()
}

/// The volumes `home` and `other`, with a file each. `home` uses a feature of this class.
fn with_feature(class: FeatureClass) -> Node {
    let world = SimulatedWorld::new(5);
    let node = Node::create(&world, RaidKind::Raid4, false);
    node.create_volume("other");
    for name in ["home", "other"] {
        node.write_file(node.root(name), "file", content(1, 100_000));
    }
    use_feature(&node, "home", class);
    node
}

fn restarted(node: Node) -> Node {
    node.wait(|done| node.engine.stop(done)).unwrap();
    Node::open(&node.power_cut()).0
}

fn refusal(world: &SimulatedWorld) -> String {
    let node = Node::start(world);
    let disks = node.disks();
    let opened: Result<Recovery, EngineError> =
        node.wait(|done| node.engine.open_aggregate(disks, done));
    opened.expect_err("it is refused").to_string()
}

fn check_other(node: &Node) {
    let other = node.engine.volume_named("other").unwrap();
    assert_eq!(other.damage(), None);
    node.write_file(node.root("other"), "another", content(2, 100_000));
    assert!(node.read_file(node.root("other"), "file").unwrap() == content(1, 100_000));
}

fn check_lacking(node: &Node) -> VolumeId {
    let home = node.engine.volume_named("home").unwrap();
    let damage = home.damage().expect("a feature is lacking");
    assert!(matches!(damage, VolumeDamage::Feature(_)), "{damage}");
    assert!(damage.to_string().contains("'later'"), "{damage}");
    home.environment.volume
}

#[test]
fn a_volume_with_a_read_only_compatible_feature_is_served_read_only_and_stays_as_it_is() {
    let mut node = with_feature(ReadOnlyCompatible);
    for _ in 0..2 {
        node = restarted(node);
        let home = check_lacking(&node);
        let root = node.root("home");
        assert!(node.read_file(root, "file").unwrap() == content(1, 100_000));
        let name = b"refused".to_vec();
        let (set, mode) = (SetAttributes::default(), CreateMode::Unchecked);
        let refused = node.ask(calls::Create { directory: root, name, mode, set });
        assert_eq!(refused.map(drop), Err(FsError::ReadOnly));
        check_other(&node);
        assert!(!is_quarantined(&node, home), "the build that has the feature may write");
    }
}

#[test]
fn a_volume_with_an_incompatible_feature_is_refused_and_costs_the_others_nothing() {
    let mut node = with_feature(Incompatible);
    for _ in 0..2 {
        node = restarted(node);
        let home = check_lacking(&node);
        assert!(node.engine.volume_named("home").unwrap().is_unreadable());
        check_other(&node);
        assert!(!is_quarantined(&node, home));
    }
    node.wait(|done| node.engine.delete_volume("home", done)).unwrap();
    check_other(&restarted(node));
}

/// Logged operations of a volume that lacks a feature cannot be replayed, and must not be dropped.
#[test]
fn an_aggregate_is_not_opened_while_the_log_has_operations_of_a_volume_that_lacks_a_feature() {
    for class in [ReadOnlyCompatible, Incompatible] {
        let node = with_feature(class);
        node.write_file(node.root("home"), "logged", content(3, 9_000));
        let refused = refusal(&node.power_cut());
        assert!(refused.contains("'later'") && refused.contains("stop it in order"), "{refused}");
    }
}

/// This build has logged nothing of the volume that it does not write.
#[test]
fn a_crash_of_the_build_that_lacks_the_feature_costs_no_more_than_a_stop() {
    for class in [ReadOnlyCompatible, Incompatible] {
        let node = restarted(with_feature(class));
        node.write_file(node.root("other"), "logged", content(3, 9_000));
        let (node, recovery) = Node::open(&node.power_cut());
        assert!(!recovery.clean && recovery.replayed > 0, "{recovery:?}");
        check_lacking(&node);
        assert!(node.read_file(node.root("other"), "logged").unwrap() == content(3, 9_000));
        check_other(&node);
    }
}

/// Whatever an administrator asks for, the record stays as the newer build wrote it.
#[test]
fn no_request_changes_the_record_of_a_volume_that_lacks_a_feature() {
    for class in [ReadOnlyCompatible, Incompatible] {
        let node = restarted(with_feature(class));
        let before = record(&node, "home");
        let refused = |outcome: Result<(), EngineError>| {
            let refused = outcome.expect_err("it is refused").to_string();
            assert!(refused.contains("volume 'home' uses the feature 'later'"), "{refused}");
        };
        let tiering = Tiering { policy: TieringPolicy::Auto, cooling_days: None };
        refused(node.wait(|done| node.engine.set_tiering("home", tiering, done)));
        let off = Some(Reallocation::Off);
        let change = VolumeChange { reallocation: off, ..VolumeChange::default() };
        refused(node.wait(|done| node.engine.change_volume("home", change, done)));
        refused(node.wait(|done| node.engine.set_exports("home", Vec::new(), done)));
        for request in [
            SnapshotRequest::Create("one".to_owned()),
            SnapshotRequest::Delete("one".to_owned()),
            SnapshotRequest::Restore("one".to_owned()),
        ] {
            refused(node.wait(|done| node.engine.request_snapshot("home", request, done)));
        }
        let home = node.engine.volume_named("home").unwrap();
        assert_eq!(home.tiering(), Tiering::default());
        assert!(home.may_reallocate());
        assert!(record(&node, "home") == before);
        let node = restarted(node);
        assert!(record(&node, "home") == before);
        node.wait(|done| node.engine.delete_volume("home", done)).unwrap();
        assert!(restarted(node).engine.volume_named("home").is_none());
    }
}

/// An administrator's change wrote back the rules that were understood, and lost the other.
#[test]
fn regression_an_export_rule_of_a_newer_build_is_not_lost() {
    let node = Node::create(&SimulatedWorld::new(5), RaidKind::None, false);
    change(&node, |side| {
        let mut newer = VolumeRecord::empty().exports[0];
        (newer.used, newer.flags) = (1, 16);
        side.table[0].record.exports[0] = newer;
        side.dirty_slots.insert(0);
    });
    let node = restarted(node);
    let before = record(&node, "home");
    let refused = node.wait(|done| node.engine.set_exports("home", Vec::new(), done));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("says what this build of Stroop does not know"), "{refused}");
    assert!(record(&node, "home") == before);
    assert_eq!(node.engine.volume_named("home").unwrap().exports().len(), 1);
}

/// Ages and temperature scans are the volume's, too.
#[test]
fn blocks_of_a_volume_that_lacks_a_feature_do_not_cool() {
    let node = with_feature(ReadOnlyCompatible);
    let tiering = Tiering { policy: TieringPolicy::SnapshotOnly, cooling_days: Some(2) };
    change(&node, move |side| {
        let slot = side.table.iter().position(|slot| slot.record.name() == "home").unwrap();
        tiering.store(&mut side.table[slot].record);
        side.dirty_slots.insert(slot);
    });
    node.wait(|done| node.engine.stop(done)).unwrap();
    let world = node.power_cut();
    world.add_disk("objects", DISK_BLOCKS);
    let (node, _) = Node::open(&world);
    let request = AddDisks {
        disks: vec![world.open("objects").unwrap()],
        to: Joining::NewGroups { kind: RaidKind::None, group_size: 1 },
        media: Some(Profile::Object),
        force: false,
        zeroing: Arc::default(),
    };
    node.wait(|done| node.engine.add_disks("a1", request, done)).unwrap();
    let before = record(&node, "home");
    for _ in 0..4 {
        node.world.advance(6 * 3600 * 1_000_000_000);
        node.engine.tick();
        node.settle();
    }
    assert!(record(&node, "home") == before);
}

#[test]
fn an_aggregate_is_refused_by_the_feature_that_is_lacking_and_keeps_those_that_are_harmless() {
    let world = SimulatedWorld::new(6);
    let node = Node::create(&world, RaidKind::Raid4, false);
    change(&node, |side| side.settings.features.set_named(Compatible, 3, "harmless"));
    let node = restarted(node);
    assert_eq!(features(&node).to_string(), "harmless");
    for class in [ReadOnlyCompatible, Incompatible] {
        let world = SimulatedWorld::new(7);
        let node = Node::create(&world, RaidKind::Raid4, false);
        change(&node, move |side| side.settings.features.set_named(class, 40, "later"));
        node.wait(|done| node.engine.stop(done)).unwrap();
        let refused = refusal(&node.power_cut());
        assert!(refused.contains("uses the feature 'later'"), "{refused}");
    }
}

/// All blocks of all disks.
fn bytes(world: &SimulatedWorld) -> Vec<Option<BlockRef>> {
    let names = world.disk_names().into_iter();
    let blocks = names.flat_map(|name| {
        let size = world.disk(&name).map_or(0, |disk| disk.size_blocks());
        (0..size).map(move |block| (Arc::clone(&name), block))
    });
    blocks.map(|(name, block)| world.read_block(&name, block)).collect()
}

/// Where labels, superblocks and the log's header lie.
fn places() -> Vec<(FeatureScope, Vec<(String, u64)>)> {
    let disk = |disk: usize| format!("disk{disk}");
    let of_all = |block: u64| (0..3).map(|one| (disk(one), block)).collect::<Vec<_>>();
    let log = |copies: &[u64]| copies.iter().map(|copy| ("log".to_owned(), *copy)).collect();
    let last = DISK_BLOCKS - 1;
    vec![
        (FeatureScope::Disk, vec![(disk(1), LABEL_BLOCK)]),
        (FeatureScope::Disk, vec![(disk(1), last)]),
        (FeatureScope::Disk, [of_all(LABEL_BLOCK), of_all(last)].concat()),
        (FeatureScope::Aggregate, vec![(disk(2), SUPERBLOCK_BLOCK)]),
        (FeatureScope::Aggregate, of_all(SUPERBLOCK_BLOCK + 1)),
        (FeatureScope::Log, log(&[0])),
        (FeatureScope::Log, log(&[1])),
        (FeatureScope::Log, log(&[0, 1])),
    ]
}

/// After a stop and after a crash, whichever copy has the feature.
#[test]
fn a_start_that_is_refused_for_a_feature_changes_nothing() {
    for is_clean in [true, false] {
        let world = SimulatedWorld::new(8);
        let node = Node::create(&world, RaidKind::Raid4, false);
        node.write_file(node.root("home"), "file", content(1, 300_000));
        node.consistency_point();
        node.write_file(node.root("home"), "logged", content(2, 30_000));
        if is_clean {
            node.wait(|done| node.engine.stop(done)).unwrap();
        }
        let world = node.power_cut();
        if !is_clean {
            // The power went before the newest superblock was on the last disk.
            let cp = |slot: &u64| {
                let block = world.read_block("disk3", SUPERBLOCK_BLOCK + slot).unwrap();
                Superblock::from_block(&block).unwrap().cp()
            };
            let newest = [0, 1].into_iter().max_by_key(cp).unwrap();
            world.write_block("disk3", SUPERBLOCK_BLOCK + newest, &units::Block::zeroed());
        }
        let left = world.snapshot();
        for (scope, blocks) in places() {
            for class in [ReadOnlyCompatible, Incompatible] {
                world.restore(&left);
                for (disk, block) in &blocks {
                    let old = world.read_block(disk, *block).unwrap();
                    world.write_block(disk, *block, &newer(&old, scope, class, (40, "later")));
                }
                let before = bytes(&world);
                let refused = refusal(&world);
                assert!(refused.contains("uses the feature 'later'"), "{refused}");
                assert!(bytes(&world) == before, "{scope} {blocks:?}: {refused}");
            }
        }
        world.restore(&left);
        let (node, _) = Node::open(&world);
        assert!(node.read_file(node.root("home"), "file").unwrap() == content(1, 300_000));
        assert!(node.read_file(node.root("home"), "logged").unwrap() == content(2, 30_000));
    }
}
