//! What a front end asks for all files of a volume at once.

use super::*;
use units::{BLOCK_SIZE, BLOCK_SIZE_U64, VolumeUuid};

#[test]
fn a_sync_makes_the_unstable_data_of_all_files_durable() {
    for traditional in [false, true] {
        let world = SimulatedWorld::new(71);
        let node = Node::create(&world, RaidKind::Raid4, traditional);
        let volume = if traditional { "a1" } else { "home" };
        let root = node.root(volume);
        let write = |name: &str| {
            let file = node.create_file(root, name).unwrap();
            let (data, stability) = (Bytes::from(name.repeat(9000)), Stability::Unstable);
            node.ask(calls::Write { file, offset: 0, data, stability }).unwrap();
        };
        write("a");
        write("b");
        // Any handle of the volume will do, whatever became of its file.
        let gone = FileHandle { generation: units::Generation(9), ..root };
        node.ask(calls::SyncVolume { file: gone }).unwrap();
        write("c");
        let elsewhere = FileHandle { volume: VolumeUuid([9; 16]), ..root };
        let refused = node.ask(calls::SyncVolume { file: elsewhere });
        assert_eq!(refused, Err(FsError::Stale));
        let world = node.power_cut();
        let (node, _) = Node::open(&world);
        let root = node.root(volume);
        for name in ["a", "b"] {
            assert_eq!(node.read_file(root, name).unwrap(), name.repeat(9000).into_bytes());
        }
        let found = node.read_file(root, "c").unwrap_or_default();
        assert_ne!(found, "c".repeat(9000).into_bytes(), "nobody asked for it");
    }
}

/// A half of the log can be full of what needs no consistency point: commits of blocks that were
/// frozen already. The freeze found nothing changed and left the log as it was, for ever.
#[test]
fn regression_a_half_that_is_full_though_nothing_is_dirty_does_not_stop_changes() {
    let world = SimulatedWorld::new(73);
    let node = Node::create(&world, RaidKind::Raid4, true);
    let root = node.root("a1");
    node.commit_all();
    node.settle();
    let aggregate = node.engine.aggregate_named("a1").unwrap();
    let log = &aggregate.parts.log;
    log.limit_halves(BLOCK_SIZE_U64);
    while log.append(aggregate.filling(), 7, &[&[0; BLOCK_SIZE]]).is_ok() {}
    node.create_file(root, "file").unwrap();
}
