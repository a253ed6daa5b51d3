//! Clones that are split from their parents: what they inherited is their own then, whatever
//! happens on the way.

use super::blocks::find;
use super::clones::{FILE_BYTES, FILES, name, node, refusal};
use super::{Node, content};
use crate::EngineError;
use file_service::{FsError, calls};
use ondisk::identity::BlockIdentity;
use ondisk::label::RaidKind;
use ondisk::root::metafile;
use platform::simulated::SimulatedWorld;
use units::VolumeId;
use volume::SnapshotRequest;

const SECOND: u64 = 1_000_000_000;
/// Blocks that the first consistency point of a split copies: all numbers that it looks at but that
/// of vol_info, which is the clone's own.
const BATCH_BLOCKS: u64 = 1023;

impl Node {
    pub(super) fn split(&self, clone: &str, rate: Option<u64>) -> Result<(), EngineError> {
        self.wait(|done| self.engine.split_clone(clone, rate, done))
    }

    fn inherited(&self, clone: &str) -> u64 {
        self.engine.volume_named(clone).unwrap().inherited_blocks()
    }

    pub(super) fn is_clone(&self, volume: &str) -> bool {
        self.engine.volume_named(volume).unwrap().origin().is_some()
    }

    /// The clone is split, and what its parent's snapshot had is gone and written over.
    fn forget_parent(&self) {
        self.remove_snapshot("home", "s").unwrap();
        self.delete("home").unwrap();
        self.settle();
        self.create_volume("filler");
        self.write_files(self.root("filler"), 70_000);
        self.commit_all();
    }

    fn number(&self, volume: &str) -> VolumeId {
        self.engine.volume_named(volume).unwrap().environment.volume
    }
}

/// A volume, and a clone of it that has inherited its files.
fn with_clone(seed: u64) -> Node {
    let (node, root) = node(seed);
    node.write_files(root, 100);
    node.keep_image("home", "s");
    node.clone_volume("home", "s", "dev").unwrap();
    node.commit_all();
    node
}

#[test]
fn a_clone_that_was_split_needs_no_parent() {
    let node = with_clone(1);
    let inherited = node.inherited("dev");
    assert!(inherited > FILES * 30, "{inherited}");
    let before = node.aggregate_used();
    node.split("dev", None).unwrap();
    node.settle();
    assert!(!node.is_clone("dev"));
    assert_eq!(node.inherited("dev"), 0);
    let cost = node.aggregate_used() - before;
    assert!((inherited..inherited + 64).contains(&cost), "{inherited} blocks took {cost}");
    node.assert_files("dev", 100);
    node.forget_parent();
    node.assert_files("dev", 100);
    let (node, _) = Node::open(&node.power_cut());
    assert!(!node.is_clone("dev"));
    node.assert_files("dev", 100);
    node.write_files(node.root("dev"), 300);
    node.commit_all();
    node.assert_files("dev", 300);
}

#[test]
fn snapshots_of_a_clone_are_its_own_after_the_split() {
    let node = with_clone(2);
    node.keep_image("dev", "own");
    node.write_files(node.root("dev"), 300);
    node.keep_image("dev", "later");
    node.split("dev", None).unwrap();
    node.settle();
    assert!(!node.is_clone("dev"));
    node.forget_parent();
    let (node, _) = Node::open(&node.power_cut());
    node.assert_files("dev", 300);
    let restore = SnapshotRequest::Restore("own".to_owned());
    node.wait(|done| node.engine.request_snapshot("dev", restore, done)).unwrap();
    node.assert_files("dev", 100);
}

#[test]
fn clones_of_a_clone_that_is_split_stay_its_clones() {
    let node = with_clone(3);
    node.keep_image("dev", "s");
    node.clone_volume("dev", "s", "test").unwrap();
    node.split("dev", None).unwrap();
    node.settle();
    assert!(!node.is_clone("dev") && node.is_clone("test"));
    node.forget_parent();
    let (node, _) = Node::open(&node.power_cut());
    node.assert_files("test", 100);
    assert!(refusal(node.delete("dev")).ends_with(": test"));
    node.split("test", None).unwrap();
    node.settle();
    node.remove_snapshot("dev", "s").unwrap();
    node.delete("dev").unwrap();
    node.settle();
    node.assert_files("test", 100);
}

/// The middle one of three goes on to have its parent, though the last has none any more.
#[test]
fn a_clone_of_a_clone_is_split_from_all_its_ancestors() {
    let node = with_clone(4);
    node.write_file(node.root("dev"), &name(0), content(7, FILE_BYTES));
    node.keep_image("dev", "s");
    node.clone_volume("dev", "s", "test").unwrap();
    node.split("test", None).unwrap();
    node.settle();
    assert!(node.is_clone("dev") && !node.is_clone("test"));
    node.remove_snapshot("dev", "s").unwrap();
    node.delete("dev").unwrap();
    node.forget_parent();
    let (node, _) = Node::open(&node.power_cut());
    let root = node.root("test");
    assert!(node.read_file(root, &name(0)).unwrap() == content(7, FILE_BYTES));
    for number in 1..FILES {
        assert!(node.read_file(root, &name(number)).unwrap() == content(100 + number, FILE_BYTES));
    }
}

/// Files are removed, written over and made beside the split.
#[test]
fn a_clone_changes_while_it_is_split() {
    for seed in 10..20 {
        let node = with_clone(seed);
        node.keep_image("dev", "own");
        node.split("dev", None).unwrap();
        let root = node.root("dev");
        for number in 0..FILES {
            if number % 3 == 0 {
                node.ask(calls::Remove { directory: root, name: name(number).into_bytes() })
                    .unwrap();
                node.consistency_point();
            }
            node.write_file(root, &name(number), content(200 + number, FILE_BYTES));
        }
        node.settle();
        assert!(!node.is_clone("dev"));
        node.forget_parent();
        node.assert_files("dev", 200);
        let restore = SnapshotRequest::Restore("own".to_owned());
        node.wait(|done| node.engine.request_snapshot("dev", restore, done)).unwrap();
        node.assert_files("dev", 100);
    }
}

#[test]
fn a_split_goes_on_after_a_power_cut_at_any_moment() {
    for steps in (0..2400).step_by(150) {
        let node = with_clone(5);
        node.split("dev", None).unwrap();
        for _ in 0..steps {
            node.run();
        }
        let (node, _) = Node::open(&node.power_cut());
        node.assert_files("dev", 100);
        // A start asks for a consistency point, and the split goes on from there.
        node.commit_all();
        assert!(!node.is_clone("dev"), "after {steps} steps");
        node.forget_parent();
        node.assert_files("dev", 100);
    }
}

/// A volume, and a clone of it that has inherited more than one batch.
fn with_big_clone(seed: u64) -> Node {
    let (node, root) = node(seed);
    node.write_file(root, "big", content(1, 2000 * 4096));
    node.keep_image("home", "s");
    node.clone_volume("home", "s", "dev").unwrap();
    node.commit_all();
    node
}

#[test]
fn a_split_keeps_to_its_rate() {
    let node = with_big_clone(6);
    let inherited = node.inherited("dev");
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    node.split("dev", Some(4096)).unwrap();
    node.settle();
    let left = node.inherited("dev");
    let splits = aggregate.splits();
    assert_eq!((splits.len(), splits[0].blocks, splits[0].rate), (1, inherited, Some(4096)));
    assert_eq!(left, inherited - BATCH_BLOCKS, "a batch, which is to be paid for before the next");
    for _ in 0..3 {
        aggregate.tick(SECOND);
        node.commit_all();
        assert_eq!(node.inherited("dev"), left);
    }
    for seconds in [1, BATCH_BLOCKS] {
        aggregate.tick(seconds * SECOND);
        node.settle();
        assert_eq!(node.inherited("dev"), left);
    }
    aggregate.tick((1 + BATCH_BLOCKS) * SECOND);
    node.settle();
    assert!(!node.is_clone("dev"));
}

#[test]
fn a_split_stops_where_it_is_and_begins_anew() {
    let node = with_big_clone(11);
    let inherited = node.inherited("dev");
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    node.split("dev", Some(4096)).unwrap();
    node.settle();
    assert_eq!(refusal(node.split("dev", None)), "it is being split already");
    node.wait(|done| node.engine.stop_split("dev", done)).unwrap();
    let refused = node.wait(|done| node.engine.stop_split("dev", done));
    assert_eq!(refusal(refused), "the volume is not being split");
    assert!(!aggregate.limit_split(node.number("dev"), None));
    aggregate.tick(SECOND);
    node.settle();
    assert_eq!(node.inherited("dev"), inherited - BATCH_BLOCKS);
    let (node, _) = Node::open(&node.power_cut());
    node.commit_all();
    assert!(node.is_clone("dev"), "nobody has asked again");
    node.split("dev", Some(4096)).unwrap();
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    assert!(aggregate.limit_split(node.number("dev"), None));
    node.settle();
    assert!(!node.is_clone("dev"));
    assert!(node.read_file(node.root("dev"), "big").unwrap() == content(1, 2000 * 4096));
}

#[test]
fn what_cannot_be_split_is_refused() {
    let node = with_clone(7);
    assert_eq!(refusal(node.split("home", None)), "the volume is no clone");
    assert!(matches!(node.split("none", None), Err(EngineError::NotFound { .. })));
    let stopped = node.wait(|done| node.engine.stop_split("dev", done));
    assert_eq!(refusal(stopped), "the volume is not being split");
    // The aggregate is filled until the copy has no room.
    node.create_volume("filler");
    node.create_volume("more");
    node.create_volume("most");
    for volume in ["filler", "more", "most"] {
        let root = node.root(volume);
        for number in 0.. {
            let file = node.create_file(root, &format!("big{number}")).unwrap();
            let data = bytes::Bytes::from(content(number, 1 << 16));
            let stability = file_service::Stability::FileSync;
            let written = (0..32).try_for_each(|piece| {
                let write =
                    calls::Write { file, offset: piece << 16, data: data.clone(), stability };
                node.ask(write).map(drop)
            });
            if written == Err(FsError::NoSpace) {
                break;
            }
        }
    }
    node.commit_all();
    let refused = refusal(node.split("dev", None));
    assert!(refused.contains(" free, and ") && refused.ends_with(" are needed"), "{refused}");
    assert!(node.engine.aggregate_named("a1").unwrap().splits().is_empty());
    node.assert_files("dev", 100);
}

#[test]
fn a_split_ends_where_a_block_of_the_parent_is_lost() {
    let world = SimulatedWorld::new(8);
    let node = Node::create(&world, RaidKind::None, false);
    node.write_files(node.root("home"), 100);
    node.keep_image("home", "s");
    node.clone_volume("home", "s", "dev").unwrap();
    node.commit_all();
    let parent = node.number("home");
    let of_file = |identity: &BlockIdentity| {
        let is_file = (metafile::ROOT_DIRECTORY + 1..1000).contains(&identity.inode.get());
        identity.volume.get() == parent.get() && is_file && identity.level == 0
    };
    let lost = find(&world, of_file);
    let (node, _) = node.cut_and_fail(&lost);
    node.split("dev", None).unwrap();
    node.settle();
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    assert!(node.is_clone("dev") && aggregate.splits().is_empty());
    assert!(aggregate.has_split_failed(node.number("dev")));
    assert_eq!(node.inherited("dev"), 1);
    // When the file that has the block is gone, nothing is in the way.
    for number in 0..FILES {
        let (directory, name) = (node.root("dev"), name(number).into_bytes());
        node.ask(calls::Remove { directory, name }).unwrap();
    }
    node.commit_all();
    node.split("dev", None).unwrap();
    node.settle();
    assert!(!node.is_clone("dev"));
    assert!(!aggregate.has_split_failed(node.number("dev")));
}

#[test]
fn a_clone_that_is_deleted_is_split_no_further() {
    let node = with_clone(9);
    node.split("dev", Some(1)).unwrap();
    node.delete("dev").unwrap();
    node.settle();
    assert!(node.engine.aggregate_named("a1").unwrap().splits().is_empty());
    node.forget_parent();
    node.assert_files("filler", 70_000);
}

/// The clone's own map cannot be read: nothing goes on for ever.
#[test]
fn a_clone_that_is_damaged_is_split_no_further() {
    for rate in [None, Some(4096)] {
        let world = SimulatedWorld::new(12);
        let node = Node::create(&world, RaidKind::None, false);
        node.write_files(node.root("home"), 100);
        node.keep_image("home", "s");
        node.clone_volume("home", "s", "dev").unwrap();
        node.write_file(node.root("dev"), &name(0), content(7, FILE_BYTES));
        node.commit_all();
        let clone = node.number("dev");
        let of_map = |identity: &BlockIdentity| {
            let inode = identity.inode.get();
            identity.volume.get() == clone.get() && inode == metafile::ACTIVE_MAP
        };
        let lost = find(&world, of_map);
        node.wait(|done| node.engine.stop(done)).unwrap();
        let (node, _) = node.cut_and_fail(&lost);
        node.split("dev", rate).unwrap();
        let aggregate = node.engine.aggregate_named("a1").unwrap();
        for second in 1..100 {
            aggregate.tick(second * SECOND);
            node.settle();
        }
        assert!(aggregate.splits().is_empty() && node.is_clone("dev"));
        assert!(aggregate.has_split_failed(clone));
        // And it stays so after a start.
        let (node, _) = Node::open(&node.power_cut());
        node.commit_all();
        let aggregate = node.engine.aggregate_named("a1").unwrap();
        assert!(aggregate.splits().is_empty(), "{:?}", aggregate.splits());
        // And the others go on.
        node.write_files(node.root("home"), 300);
        node.commit_all();
        node.assert_files("home", 300);
    }
}
