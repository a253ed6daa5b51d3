//! Blocks that cool, move to objects and come back: by age, by who holds them and by how they are
//! read. What they hold is the same wherever they lie.

use super::*;
use file_service::calls;

const BLOCK: u64 = 4096;
/// Between two temperature scans of what cools for two days.
const SCAN_NANOSECONDS: u64 = 6 * 3600 * 1_000_000_000;
/// Scans until a block is cold.
const COLD_SCANS: u32 = ondisk::pointer::AGE_COLD as u32;

/// Two days, whatever the policy.
fn cooling(policy: TieringPolicy) -> Tiering {
    Tiering { policy, cooling_days: Some(2) }
}

/// A node with an object store beside its disks.
fn node_with_objects(seed: u64) -> Node {
    let world = SimulatedWorld::new(seed);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let request = AddDisks {
        disks: vec![world.add_disk("objects", DISK_BLOCKS) as Arc<dyn Disk>],
        to: Joining::NewGroups { kind: RaidKind::None, group_size: 1 },
        media: Some(Profile::Object),
        force: false,
        zeroing: Arc::default(),
    };
    node.wait(|done| node.engine.add_disks("a1", request, done)).unwrap();
    node
}

impl Node {
    /// The same after a power cut, with nothing in memory.
    fn cut(self) -> Self {
        let world = self.power_cut();
        let node = Self::start(&world);
        let disks = [node.disks(), vec![world.open("objects").unwrap()]].concat();
        node.wait(|done| node.engine.open_aggregate(disks, done)).unwrap();
        node
    }

    fn set_tiering(&self, tiering: Tiering) {
        self.wait(|done| self.engine.set_tiering("home", tiering, done)).unwrap();
        self.settle();
    }

    /// Time passes, from scan to scan.
    fn cool(&self, scans: u32) {
        // What was written is on disks before the next scan.
        self.consistency_point();
        self.settle();
        for _ in 0..scans {
            self.world.advance(SCAN_NANOSECONDS);
            self.engine.tick();
            self.settle();
        }
    }

    fn object_blocks(&self) -> u64 {
        let volume = self.engine.volume_named("home").unwrap();
        assert_eq!(volume.object_blocks(), volume.aggregate.object_blocks());
        volume.object_blocks()
    }

    fn read_at(&self, name: &str, offset: u64, count: u32) -> Vec<u8> {
        let (caller, root) = (Caller::root(), self.root("home"));
        let lookup = |service: &Service, done: Done<_>| {
            service.lookup(
                &caller,
                calls::Lookup { directory: root, name: name.as_bytes().to_vec() },
                done,
            );
        };
        let handle = self.call(lookup).unwrap().handle;
        let read = self.ask(calls::Read { file: handle, offset, count }).unwrap();
        read.to_vec()
    }

    fn snapshot(&self, request: SnapshotRequest) {
        self.wait(|done| self.engine.request_snapshot("home", request, done)).unwrap();
        self.settle();
    }

    fn snapshot_file(&self, snapshot: &str, name: &str) -> Vec<u8> {
        let _caller = Caller::root();
        let lookup = |directory, name: &str| {
            self.ask(calls::Lookup { directory, name: name.as_bytes().to_vec() }).unwrap().handle
        };
        let image = lookup(lookup(self.root("home"), ".snapshot"), snapshot);
        self.read_file(image, name).unwrap()
    }
}

#[test]
fn what_only_snapshots_hold_moves_when_it_is_cold() {
    let node = node_with_objects(31);
    node.set_tiering(cooling(TieringPolicy::SnapshotOnly));
    let root = node.root("home");
    node.write_file(root, "both", content(1, 800_000));
    node.write_file(root, "gone", content(2, 400 * 4096));
    node.snapshot(SnapshotRequest::Create("one".to_owned()));
    node.cool(5);
    // Ages survive a cut.
    let node = node.cut();
    let (_caller, root) = (Caller::root(), node.root("home"));
    node.ask(calls::Remove { directory: root, name: b"gone".to_vec() }).unwrap();
    node.consistency_point();
    node.settle();
    node.cool(COLD_SCANS - 6);
    assert_eq!(node.object_blocks(), 0, "nothing is cold yet");
    node.cool(1);
    assert_eq!(node.object_blocks(), 400, "what the active image has stays");
    node.cool(COLD_SCANS);
    assert_eq!(node.object_blocks(), 400);
    let node = node.cut();
    assert_eq!(node.object_blocks(), 400);
    assert!(node.snapshot_file("one", "gone") == content(2, 400 * 4096));
    assert!(node.read_file(node.root("home"), "both").unwrap() == content(1, 800_000));
    node.settle();
    assert_eq!(node.object_blocks(), 400, "who reads a snapshot copies it");
    node.snapshot(SnapshotRequest::Delete("one".to_owned()));
    node.consistency_point();
    node.settle();
    assert_eq!(node.object_blocks(), 0);
}

#[test]
fn cold_blocks_move_and_those_that_are_read_at_random_come_back() {
    let node = node_with_objects(37);
    node.set_tiering(cooling(TieringPolicy::Auto));
    let root = node.root("home");
    node.write_file(root, "cold", content(1, 500 * 4096));
    node.cool(COLD_SCANS - 2);
    node.write_file(root, "young", content(2, 300 * 4096));
    // What is read stays near, if it had to be loaded.
    let node = node.cut();
    let hot = |name: &str, at: u64| node.read_at(name, at * BLOCK, BLOCK as u32);
    assert!(hot("cold", 100) == content(1, 500 * 4096)[100 * 4096..101 * 4096]);
    node.cool(2);
    assert_eq!(node.object_blocks(), 499, "all but what was read");
    // Backups and scans leave them there.
    let node = node.cut();
    assert!(node.read_file(node.root("home"), "cold").unwrap() == content(1, 500 * 4096));
    node.settle();
    node.consistency_point();
    assert_eq!(node.object_blocks(), 499);
    // Random reads do not.
    let node = node.cut();
    for at in [300, 20, 410, 205] {
        let expected = &content(1, 500 * 4096)[at * 4096..(at + 1) * 4096];
        assert!(node.read_at("cold", at as u64 * BLOCK, BLOCK as u32) == expected);
    }
    // The first is on its way when the others come: they go with the next consistency point.
    for _ in 0..2 {
        node.settle();
        node.consistency_point();
    }
    assert_eq!(node.object_blocks(), 495);
    // They are young, and the others cold.
    node.cool(COLD_SCANS - 3);
    assert_eq!(node.object_blocks(), 495);
    let node = node.cut();
    assert!(node.read_file(node.root("home"), "cold").unwrap() == content(1, 500 * 4096));
    assert!(node.read_file(node.root("home"), "young").unwrap() == content(2, 300 * 4096));
    let summary = &node.engine.aggregate_summaries()[0];
    assert_eq!((summary.lost_blocks, summary.status.counters.damaged_blocks), (0, 0));
    node.cool(3);
    assert_eq!(node.object_blocks(), 800);
}

#[test]
fn a_policy_is_chosen_at_birth_and_none_leaves_what_moved() {
    let node = node_with_objects(41);
    let request = VolumeRequest {
        tiering: Tiering { policy: TieringPolicy::Auto, cooling_days: Some(1) },
        ..VolumeRequest::new("kept", "a1", 4096)
    };
    let refused = node.wait(|done| node.engine.create_volumes(request.clone(), done));
    assert!(refused.unwrap_err().to_string().contains("2 to 183 days, not 1"));
    let request = VolumeRequest { tiering: cooling(TieringPolicy::Auto), ..request };
    node.wait(|done| node.engine.create_volumes(request, done)).unwrap();
    let kept = |node: &Node| node.engine.volume_named("kept").unwrap();
    node.write_file(node.root("kept"), "file", content(1, 100 * 4096));
    node.write_file(node.root("home"), "file", content(2, 100 * 4096));
    node.cool(COLD_SCANS);
    assert_eq!((kept(&node).object_blocks(), kept(&node).aggregate.object_blocks()), (100, 100));
    let none = Tiering::default();
    node.wait(|done| node.engine.set_tiering("kept", none, done)).unwrap();
    let node = node.cut();
    assert_eq!(kept(&node).tiering(), none);
    node.cool(1);
    assert!(node.read_file(node.root("kept"), "file").unwrap() == content(1, 100 * 4096));
    node.settle();
    assert_eq!(kept(&node).object_blocks(), 100);
    // Written anew it lies on disks.
    node.write_file(node.root("kept"), "file", content(3, 60 * 4096));
    node.consistency_point();
    node.settle();
    assert_eq!(kept(&node).object_blocks(), 40);
    node.wait(|done| node.engine.delete_volume("kept", done)).unwrap();
    node.settle();
    assert_eq!(node.engine.aggregate_named("a1").unwrap().object_blocks(), 0);
}

/// The copies are written to disks, and go where all blocks of the clone are to lie.
#[test]
fn what_a_split_copies_moves_to_the_object_store_as_the_clone_says() {
    let node = node_with_objects(77);
    let root = node.root("home");
    let data = content(5, 400 * BLOCK as usize);
    node.write_file(root, "file", data.clone());
    node.set_tiering(tiering(TieringPolicy::All));
    node.commit_all();
    let of_parent = node.object_blocks();
    assert!(of_parent >= 400, "{of_parent}");
    node.keep_image("home", "s");
    node.clone_volume("home", "s", "dev").unwrap();
    node.commit_all();
    node.split("dev", None).unwrap();
    node.settle();
    assert!(!node.is_clone("dev"));
    node.commit_all();
    let clone = node.engine.volume_named("dev").unwrap();
    assert!(clone.object_blocks() >= 400, "{}", clone.object_blocks());
    assert!(node.read_file(node.root("dev"), "file").unwrap() == data);
    let node = node.cut();
    assert!(node.read_file(node.root("dev"), "file").unwrap() == data);
}
