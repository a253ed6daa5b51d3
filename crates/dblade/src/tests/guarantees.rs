//! Guarantees of space: what is kept for a volume no other volume takes, and no more is kept than
//! there is.

use super::clones::{refusal, request};
use super::full::tiny;
use super::growing::fill;
use super::*;
use crate::{CloneRequest, EngineError, Guarantee, Keeping, room_blocks_max};
use aggregate::AutogrowMax;
use file_service::calls;
use units::Timestamp;

/// A small volume, of an aggregate of 12,288 blocks.
const SIZE_BLOCKS: u64 = 1024;
const PIECES_MAX: u64 = 1000;
const PIECE_BLOCKS: u64 = 16;

/// An aggregate with the volume `v0`, as large as all of it, and a small one.
fn start(seed: u64, guarantee: Guarantee) -> Node {
    let node = tiny(&SimulatedWorld::new(seed), RaidKind::Raid4, 1);
    create(&node, "small", SIZE_BLOCKS, guarantee).unwrap();
    node
}

fn create(
    node: &Node,
    name: &str,
    size_blocks: u64,
    guarantee: Guarantee,
) -> Result<(), EngineError> {
    let request = VolumeRequest { guarantee, ..VolumeRequest::new(name, "a1", size_blocks) };
    node.wait(|done| node.engine.create_volumes(request, done))
}

fn set(node: &Node, volume: &str, guarantee: Guarantee) -> Result<(), EngineError> {
    let change = VolumeChange { guarantee: Some(guarantee), ..VolumeChange::default() };
    node.wait(|done| node.engine.change_volume(volume, change, done))
}

fn resize(node: &Node, volume: &str, size_blocks: u64) -> Result<(), EngineError> {
    node.wait(|done| node.engine.resize_volume(volume, size_blocks, done))
}

/// Blocks that are kept for a volume, for all, and that nobody has a claim to.
fn room(node: &Node, volume: &str) -> (u64, u64, u64) {
    let served = node.engine.volume_named(volume).unwrap();
    let budget = &served.aggregate.parts.shared.budget;
    (served.guaranteed_blocks(), budget.guaranteed_blocks(), budget.free_blocks())
}

fn is_full(written_blocks: u64) -> bool {
    (SIZE_BLOCKS * 9 / 10..SIZE_BLOCKS).contains(&written_blocks)
}

fn write_over(node: &Node, directory: FileHandle, number: u64, data: Vec<u8>) {
    let name = number.to_string().into_bytes();
    let file = node.ask(calls::Lookup { directory, name }).unwrap().handle;
    let data = Bytes::from(data);
    node.ask(calls::Write { file, offset: 0, data, stability: Stability::FileSync }).unwrap();
}

/// The volume of the name that is written full takes all that it has room for.
fn assert_fills(node: &Node, volume: &str) {
    let pieces = fill(node, volume, PIECES_MAX);
    assert!(is_full(pieces * PIECE_BLOCKS), "{pieces} pieces");
    let root = node.root(volume);
    for number in 0..pieces {
        let read = node.read_file(root, &number.to_string()).unwrap();
        assert!(read == content(number, 64 << 10), "file {number}");
    }
}

#[test]
fn what_is_kept_for_a_volume_others_do_not_take() {
    let node = start(91, Guarantee::Volume);
    let (kept, all, free) = room(&node, "small");
    assert!(kept == all && kept > SIZE_BLOCKS && free > kept, "{kept} of {all}, {free}");
    fill(&node, "v0", PIECES_MAX);
    assert_eq!(room(&node, "small").0, kept);
    assert_fills(&node, "small");
    // The same without.
    let node = start(91, Guarantee::None);
    assert_eq!((room(&node, "small").0, room(&node, "small").1), (0, 0));
    fill(&node, "v0", PIECES_MAX);
    let pieces = fill(&node, "small", PIECES_MAX);
    assert!(!is_full(pieces * PIECE_BLOCKS), "{pieces} pieces");
}

#[test]
fn a_power_cut_leaves_what_was_kept() {
    let node = start(92, Guarantee::Volume);
    let kept = room(&node, "small").0;
    fill(&node, "v0", PIECES_MAX);
    fill(&node, "small", 20);
    let (node, _) = Node::open(&node.power_cut());
    let served = node.engine.volume_named("small").unwrap();
    assert_eq!(served.guarantee(), Guarantee::Volume);
    let left = room(&node, "small").0;
    assert!((kept - 600..kept - 300).contains(&left), "{left} of {kept}");
    assert_eq!(fill(&node, "v0", 1), 0, "nothing is left for the other");
    assert_fills(&node, "small");
}

#[test]
fn no_more_is_guaranteed_than_there_is() {
    let node = start(93, Guarantee::Volume);
    let free = room(&node, "small").2;
    // The largest that fits, and one that does not.
    let fits = (1..free).rfind(|size| room_blocks_max(*size) <= free - 400).unwrap();
    let text = refusal(create(&node, "large", fits + 400, Guarantee::Volume));
    assert!(text.ends_with("needed for blocks that move"), "{text}");
    assert!(node.engine.volume_named("large").is_none());
    let text = refusal(set(&node, "v0", Guarantee::Volume));
    assert!(text.ends_with("needed for blocks that move"), "{text}");
    assert_eq!(node.engine.volume_named("v0").unwrap().guarantee(), Guarantee::None);
    let text = refusal(resize(&node, "small", SIZE_BLOCKS + fits + 2000));
    assert!(text.ends_with("needed for blocks that move"), "{text}");
    let text = refusal(create(&node, "huge", u64::MAX / 64, Guarantee::Volume));
    assert!(text.contains("block") || text.contains("guaranteed"), "{text}");
    create(&node, "large", fits, Guarantee::Volume).unwrap();
    assert!(room(&node, "small").2 < 500, "{:?}", room(&node, "small"));
    assert!(fill(&node, "v0", PIECES_MAX) < 32, "hardly anything is left for volumes without");
    // What one gives back, by its size or altogether, others take.
    resize(&node, "large", fits / 2).unwrap();
    assert_eq!(fill(&node, "v0", 40), 40);
    set(&node, "large", Guarantee::None).unwrap();
    let (kept, all, _) = room(&node, "small");
    assert_eq!(kept, all);
    node.wait(|done| node.engine.delete_volume("large", done)).unwrap();
    let written = fill(&node, "v0", PIECES_MAX);
    assert!(written > 300, "{written} pieces");
    assert_fills(&node, "small");
}

/// Room that snapshots hold is the volume's, and what is written over takes more of it.
#[test]
fn snapshots_count_as_the_volumes() {
    let node = start(94, Guarantee::Volume);
    fill(&node, "v0", PIECES_MAX);
    assert_eq!(fill(&node, "small", 20), 20);
    node.keep_image("small", "s");
    let root = node.root("small");
    for number in 0..20 {
        write_over(&node, root, number, content(100 + number, 64 << 10));
    }
    node.remove_snapshot("small", "s").unwrap();
    let (node, _) = Node::open(&node.power_cut());
    for number in 0..20 {
        let read = node.read_file(node.root("small"), &number.to_string()).unwrap();
        assert!(read == content(100 + number, 64 << 10), "file {number}");
    }
}

#[test]
fn a_deleted_volume_keeps_nothing_and_comes_back_where_there_is_room() {
    let node = start(95, Guarantee::Volume);
    let keeping = Keeping { deleted: Timestamp(7), purge_after: Timestamp(9) };
    node.wait(|done| node.engine.queue_deletion("small", keeping, done)).unwrap();
    let title = "small~2";
    assert_eq!((room(&node, title).0, room(&node, title).1), (0, 0));
    let pieces = fill(&node, "v0", PIECES_MAX);
    let undelete = || node.wait(|done| node.engine.undelete_volume(title, "small", done));
    let text = refusal(undelete());
    assert!(text.ends_with("needed for blocks that move"), "{text}");
    assert!(node.engine.volume_named(title).is_some());
    let root = node.root("v0");
    for number in 0..pieces {
        node.remove(root, &number.to_string()).unwrap();
    }
    node.consistency_point();
    undelete().unwrap();
    fill(&node, "v0", PIECES_MAX);
    assert_fills(&node, "small");
}

/// A clone may come to write over all that it has inherited.
#[test]
fn a_clone_has_the_guarantee_of_its_parent_unless_another_is_chosen() {
    let node = start(96, Guarantee::Volume);
    assert_eq!(fill(&node, "small", 20), 20);
    node.keep_image("small", "s");
    node.clone_volume("small", "s", "clone").unwrap();
    let (kept, all, _) = room(&node, "clone");
    assert!(kept > SIZE_BLOCKS && all > 2 * SIZE_BLOCKS, "{kept} of {all}");
    let thin = CloneRequest { guarantee: Some(Guarantee::None), ..request("small", "s", "thin") };
    node.wait(|done| node.engine.create_clones(thin, done)).unwrap();
    assert_eq!(room(&node, "thin").0, 0);
    fill(&node, "v0", PIECES_MAX);
    let text = refusal(node.clone_volume("small", "s", "third"));
    assert!(text.ends_with("needed for blocks that move"), "{text}");
    let root = node.root("clone");
    for number in 0..20 {
        write_over(&node, root, number, content(200 + number, 64 << 10));
    }
    let (node, _) = Node::open(&node.power_cut());
    assert_eq!(node.engine.volume_named("clone").unwrap().guarantee(), Guarantee::Volume);
    for (volume, seed) in [("small", 0), ("clone", 200)] {
        for number in 0..20 {
            let read = node.read_file(node.root(volume), &number.to_string()).unwrap();
            assert!(read == content(seed + number, 64 << 10), "{volume} {number}");
        }
    }
}

/// Growth is guaranteed like all the rest: where there is no room a client is refused, and does not
/// wait.
#[test]
fn a_volume_with_a_guarantee_grows_as_far_as_there_is_room() {
    let node = start(97, Guarantee::Volume);
    let grow = |maximum: u64| {
        let autogrow_max = Some(AutogrowMax(maximum));
        let change = VolumeChange { autogrow_max, ..VolumeChange::default() };
        node.wait(|done| node.engine.change_volume("small", change, done))
    };
    grow(3 * SIZE_BLOCKS).unwrap();
    let pieces = fill(&node, "small", PIECES_MAX) * PIECE_BLOCKS;
    assert!((SIZE_BLOCKS * 5 / 2..3 * SIZE_BLOCKS).contains(&pieces), "{pieces}");
    grow(8 * SIZE_BLOCKS).unwrap();
    fill(&node, "v0", PIECES_MAX);
    let root = node.root("small");
    let refused = node.create_file(root, "more").and_then(|file| {
        let data = Bytes::from(content(1, 1 << 20));
        node.ask(calls::Write { file, offset: 0, data, stability: Stability::FileSync })
    });
    assert_eq!(refused.map(drop), Err(FsError::NoSpace));
    let (kept, all, _) = room(&node, "small");
    assert_eq!(kept, all);
}
