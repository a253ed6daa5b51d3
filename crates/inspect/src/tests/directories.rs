//! The walk of a directory's B+tree, block by block.

use super::builder::directory_block;
use crate::DirectoryFault;
use crate::directory::read;
use ondisk::directory::*;
use ondisk::versions::FORMAT_VERSION;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use units::{BLOCK_SIZE, Block, BlockRef};
use zerocopy::{FromBytes, IntoBytes};

type Blocks = BTreeMap<u64, BlockRef>;

fn one(names: &[&[u8]]) -> Block {
    let names = names.iter().map(|name| (name.to_vec(), 70, 1, 1)).collect();
    directory_block(64, 64, &names)
}

fn header(block: &mut Block) -> &mut DirectoryBlockHeader {
    DirectoryBlockHeader::mut_from_prefix(&mut block[..]).unwrap().0
}

fn root(block: &mut Block) -> &mut DirectoryRoot {
    DirectoryRoot::mut_from_prefix(&mut block[NODE_START..]).unwrap().0
}

fn fault(blocks: &Blocks) -> Option<DirectoryFault> {
    read(blocks, (blocks.len() * BLOCK_SIZE) as u64).fault
}

fn blocks(list: Vec<Block>) -> Blocks {
    (0..).zip(list.into_iter().map(Arc::new)).collect()
}

/// A leaf that holds the records of a directory of one block.
fn leaf(fbn: u32, from: &Block, records: std::ops::Range<usize>) -> Block {
    let node = DirectoryNode::view(from, units::Fbn(0)).unwrap();
    let DirectoryContent::Leaf(all) = node.content else { panic!("a leaf") };
    let mut block = Block::zeroed();
    let (mut at, mut names_start) = (NODE_START, BLOCK_SIZE);
    for record in &all[records.clone()] {
        let name = node.name(record);
        names_start -= name.len();
        let moved = DirectoryRecord { name_offset: (names_start as u16).into(), ..*record };
        block[at..at + 28].copy_from_slice(moved.as_bytes());
        block[names_start..names_start + name.len()].copy_from_slice(name);
        at += 28;
    }
    *header(&mut block) = DirectoryBlockHeader {
        magic: DIRECTORY_MAGIC.into(),
        version: FORMAT_VERSION.into(),
        kind: DirectoryBlockKind::Leaf as u8,
        count: (records.len() as u16).into(),
        names_start: (names_start as u16).into(),
        fbn: fbn.into(),
        ..DirectoryBlockHeader::default()
    };
    block
}

/// Three blocks and one on the free list: a root, two leaves, with four names.
fn deep() -> Vec<Block> {
    let whole = one(&[b"a", b"b", b"c", b"d"]);
    let node = DirectoryNode::view(&whole, units::Fbn(0)).unwrap();
    let DirectoryContent::Leaf(records) = node.content else { panic!("a leaf") };
    let middle = records[2].cookie;
    let mut top = whole.clone();
    top[ROOT_NODE_START..].fill(0);
    for (at, key, fbn) in [(0, 0.into(), 1_u32), (1, middle, 2)] {
        let child = DirectoryChild { key, fbn: fbn.into() };
        let start = ROOT_NODE_START + at * 12;
        top[start..start + 12].copy_from_slice(child.as_bytes());
    }
    let top_header = header(&mut top);
    top_header.kind = DirectoryBlockKind::Branch as u8;
    (top_header.level, top_header.count) = (1, 2.into());
    top_header.names_start = (BLOCK_SIZE as u16).into();
    (root(&mut top).free_head, root(&mut top).free_count) = (3.into(), 1.into());
    let mut free = leaf(3, &whole, 0..0);
    header(&mut free).kind = DirectoryBlockKind::Free as u8;
    vec![top, leaf(1, &whole, 0..2), leaf(2, &whole, 2..4), free]
}

#[test]
fn directories_are_read() {
    let names: [&[u8]; 3] = [b"one", b"two", b"three"];
    let found = read(&blocks(vec![one(&names)]), 4096);
    assert_eq!((found.fault, found.entries.len()), (None, 3));
    let found = read(&blocks(deep()), 4 * 4096);
    assert_eq!(found.fault, None);
    let mut names: Vec<_> = found.entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    assert_eq!(names, [b"a", b"b", b"c", b"d"]);
    assert_eq!(fault(&blocks(vec![one(&[])])), None);
}

#[test]
fn every_rule_is_checked() {
    type Harm = fn(&mut Vec<Block>);
    let block = |problem: DirectoryProblem, fbn| {
        DirectoryFault::Block(DirectoryDamage { fbn: units::Fbn(fbn), problem })
    };
    let cases: [(Harm, DirectoryFault); 9] = [
        (
            |b| root(&mut b[0]).entry_count = 3.into(),
            DirectoryFault::Totals { recorded: 3, counted: 4 },
        ),
        (
            |b| root(&mut b[0]).free_count = 2.into(),
            DirectoryFault::Totals { recorded: 2, counted: 1 },
        ),
        (|b| root(&mut b[0]).free_head = 2.into(), DirectoryFault::Twice(2)),
        (|b| header(&mut b[3]).next_free = 3.into(), DirectoryFault::Twice(3)),
        (|b| b.push(leaf(4, &one(&[b"a"]), 0..1)), DirectoryFault::Lost(4)),
        (|b| header(&mut b[1]).level = 1, block(DirectoryProblem::Level(1), 1)),
        (|b| header(&mut b[1]).kind = 3, block(DirectoryProblem::Kind(3), 1)),
        (|b| header(&mut b[2]).fbn = 1.into(), block(DirectoryProblem::Misplaced(1), 2)),
        (|b| b[0][ROOT_NODE_START + 20] = 1, DirectoryFault::Twice(1)),
    ];
    for (harm, expected) in cases {
        let mut list = deep();
        harm(&mut list);
        assert_eq!(fault(&blocks(list)), Some(expected));
    }
    let mut list = blocks(deep());
    list.remove(&2);
    assert_eq!(read(&list, 4 * 4096).fault, Some(DirectoryFault::Missing(2)));
    assert_eq!(read(&list, 0).fault, Some(DirectoryFault::Size(0)));
    assert_eq!(read(&list, 4095).fault, Some(DirectoryFault::Size(4095)));
}

#[test]
fn names_are_where_their_hashes_say_and_once() {
    let mut block = one(&[b"name"]);
    let last = BLOCK_SIZE - 1;
    block[last] = b'f';
    assert!(matches!(fault(&blocks(vec![block])), Some(DirectoryFault::Hash(_))));
    assert!(matches!(
        fault(&blocks(vec![one(&[b"name", b"name"])])),
        Some(DirectoryFault::Duplicate(_))
    ));
}

proptest! {
    #[test]
    fn no_bytes_panic(
        at in 0_usize..4,
        harms in proptest::collection::vec((0_usize..4096, any::<u8>()), 1..40),
    ) {
        let mut list = deep();
        for (byte, value) in harms {
            list[at][byte] = value;
        }
        fault(&blocks(list));
    }
}
