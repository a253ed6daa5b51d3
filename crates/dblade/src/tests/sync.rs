//! What a front end asks for all files of a volume at once.

use super::*;
use units::VolumeUuid;

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
