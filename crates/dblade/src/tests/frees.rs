//! Frees that are delayed: many of one page of the container map at a time, over a start, and none
//! where somebody needs the room.

use super::{Node, content};
use aggregate::FreeCounts;
use bytes::Bytes;
use file_service::{FileHandle, FsError, Stability, calls};
use ondisk::label::RaidKind;
use platform::simulated::SimulatedWorld;
use units::BLOCK_SIZE_U64;

const FILE_BLOCKS: u64 = 3072;
/// FlexVol section 3.4: less than one update for ten frees.
const FREES_OF_PAGE: u64 = 10;

impl Node {
    fn overwrite(&self, file: FileHandle, block: u64, seed: u64) -> Result<(), FsError> {
        let offset = block * BLOCK_SIZE_U64;
        let data = Bytes::from(content(seed, BLOCK_SIZE_U64 as usize));
        let stability = Stability::FileSync;
        self.ask(calls::Write { file, offset, data, stability }).map(drop)
    }

    fn frees(&self) -> FreeCounts {
        self.engine.aggregate_named("a1").unwrap().statistics.frees.sum()
    }

    fn delayed_blocks(&self) -> u64 {
        self.engine.volume_named("home").unwrap().delayed_blocks()
    }
}

#[test]
fn random_overwrites_change_a_page_for_many_frees() {
    let world = SimulatedWorld::new(5);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let file = content(1, (FILE_BLOCKS * BLOCK_SIZE_U64) as usize);
    let file = node.write_file(node.root("home"), "file", file);
    node.consistency_point();
    let overwrite = |node: &Node, points: std::ops::Range<u64>| {
        for point in points {
            for write in 0..8 {
                let seed = point << 8 | write;
                let block = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                node.overwrite(file, block % FILE_BLOCKS, seed).unwrap();
            }
            node.consistency_point();
        }
    };
    overwrite(&node, 0..40);
    let before = node.frees();
    overwrite(&node, 40..120);
    let frees = node.frees().since(before);
    assert!(frees.delayed > 400, "{frees:?}");
    assert!(frees.cleared >= FREES_OF_PAGE * frees.pages, "{frees:?}");
    let delayed = node.delayed_blocks();
    assert!(delayed > 50, "{delayed} are delayed");
    let world = node.power_cut();
    let (node, _) = Node::open(&world);
    assert_eq!(node.delayed_blocks(), delayed, "a start knows them");
    overwrite(&node, 120..140);
    assert!(node.frees().pages > 0, "a start knows their pages");
}

#[test]
fn no_frees_are_delayed_in_a_full_volume() {
    let world = SimulatedWorld::new(6);
    let node = Node::create(&world, RaidKind::Raid4, false);
    let root = node.root("home");
    let file = node.write_file(root, "file", content(1, 4 << 20));
    node.consistency_point();
    for point in 0..16 {
        (0..4).for_each(|write| node.overwrite(file, (point * 4 + write) * 97 % 1024, 1).unwrap());
        node.consistency_point();
    }
    assert!(node.delayed_blocks() > 0);
    let refused = (1024..).find_map(|block| node.overwrite(file, block, block).err());
    assert_eq!(refused, Some(FsError::NoSpace));
    node.consistency_point();
    node.settle();
    assert_eq!(node.delayed_blocks(), 0, "they would be room");
}
