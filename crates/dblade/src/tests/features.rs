//! Images that a newer build wrote, with features that this one lacks: the volume, or the
//! aggregate, is refused by name, and nothing of it is changed.

use super::*;
use crate::EngineError;
use aggregate::{Acted, BlockSide, FreezeScope};
use ondisk::features::FeatureClass::{Compatible, Incompatible, ReadOnlyCompatible};
use ondisk::features::{FeatureClass, FeatureSet};
use units::VolumeId;
use volume::VolumeDamage;

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
        side.dirty_slots.insert(slot);
    });
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
fn an_aggregate_is_not_opened_after_a_crash_while_a_feature_of_a_volume_is_lacking() {
    for class in [ReadOnlyCompatible, Incompatible] {
        let world = with_feature(class).power_cut();
        let refused = refusal(&world);
        assert!(refused.contains("'later'") && refused.contains("stop it in order"), "{refused}");
    }
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
