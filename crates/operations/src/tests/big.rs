//! What must hold when there is much of something: inodes, blocks of a file.

use super::cases::{create, read, remove, root, scope, write};
use super::engine::{BLOCKS, State};
use crate::Scoped;
use file_service::calls;
use file_service::{Allocation, SeekTarget, Stability};
use units::BLOCK_SIZE_U64;

#[test]
fn freed_inodes_are_used_again_from_the_lowest() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let mut names = Vec::new();
    for number in 0..40 {
        let name = format!("file{number}").into_bytes();
        names.push((create(&mut state, root, &name).unwrap().inode, name));
    }
    state.consistency_point();
    for (_, name) in &names[7..20] {
        remove(&mut state, root, name).unwrap();
    }
    let next = create(&mut state, root, b"before the commit").unwrap().inode;
    assert!(next > names[39].0, "a freed number may be in the image of the last commit");
    state.consistency_point();
    for (inode, name) in &names[7..20] {
        assert_eq!(create(&mut state, root, name).unwrap().inode, *inode);
    }
    assert_eq!(create(&mut state, root, b"one more").unwrap().inode.get(), next.get() + 1);
    state.verify();
}

#[test]
fn full_blocks_of_the_inode_map_are_passed_by() {
    const FIRST_OF_SECOND_BLOCK: u64 = BLOCK_SIZE_U64 * 8;
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let mut last = create(&mut state, root, b"first").unwrap();
    for number in last.inode.get() + 1..=FIRST_OF_SECOND_BLOCK {
        last = create(&mut state, root, format!("file{number}").as_bytes()).unwrap();
    }
    assert_eq!(last.inode.get(), FIRST_OF_SECOND_BLOCK);
    state.consistency_point();
    state.restart();
    let next = create(&mut state, root, b"after the restart").unwrap();
    assert_eq!(next.inode.get(), FIRST_OF_SECOND_BLOCK + 1);
    assert!(
        state.logical.get_mut().full_map_blocks.contains(&units::Fbn(0)),
        "it is known to be full"
    );
    remove(&mut state, root, b"file20000").unwrap();
    state.consistency_point();
    let again = create(&mut state, root, b"again").unwrap();
    assert_eq!(again.inode.get(), 20_000, "until one of it is freed");
    state.verify();
}

/// The inode file has a further level from inode 1.8 billion on.
#[test]
fn files_with_the_highest_inode_numbers() {
    const DEEP: u64 = 1_879_048_192;
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    create(&mut state, root, b"low").unwrap();
    state.consistency_point();
    let mut files = Vec::new();
    for (name, hint) in [("before", DEEP - 1), ("deep", DEEP), ("last", u64::from(u32::MAX) - 1)] {
        state.logical.get_mut().inode_hint = hint;
        let file = create(&mut state, root, name.as_bytes()).unwrap();
        assert_eq!(file.inode.get(), hint);
        let content = name.as_bytes().to_vec();
        write(&mut state, file, 0, content, Stability::Unstable).unwrap();
        files.push((name, file));
        state.consistency_point();
    }
    state.restart();
    for (name, file) in &files {
        assert_eq!(read(&mut state, *file, 0, 10), name.as_bytes());
    }
    state.verify();
    for (name, _) in &files {
        remove(&mut state, root, name.as_bytes()).unwrap();
        state.consistency_point();
    }
    state.verify();
    // There is none after the last one: the search begins anew.
    state.logical.get_mut().inode_hint = u64::from(u32::MAX);
    assert!(create(&mut state, root, b"next").unwrap().inode.get() < 1000);
}

#[test]
fn a_hole_is_found_in_what_is_dirty_frozen_and_committed() {
    let mut state = State::new(BLOCKS);
    let root = root(&mut state);
    let file = create(&mut state, root, b"file").unwrap();
    let content = |blocks: u64| vec![7; (blocks * BLOCK_SIZE_U64) as usize];
    for block in (0..1_500).step_by(250) {
        write(&mut state, file, block * BLOCK_SIZE_U64, content(250), Stability::Unstable).unwrap();
    }
    let hole = |state: &mut State, block: u64| {
        let (offset, target) = (block * BLOCK_SIZE_U64, SeekTarget::Hole);
        let seek = Scoped { scope: scope(state), call: calls::Seek { file, offset, target } };
        state.query(&seek).unwrap() / BLOCK_SIZE_U64
    };
    let punch = |state: &mut State, block: u64| {
        let (allocation, scope) = (Allocation::PunchHole, scope(state));
        let offset = block * BLOCK_SIZE_U64;
        let punch = Scoped {
            scope,
            call: calls::Allocate { file, allocation, offset, length: BLOCK_SIZE_U64 },
        };
        state.mutate(&punch).unwrap();
    };
    assert_eq!(hole(&mut state, 3), 1_500, "all dirty");
    state.consistency_point();
    assert_eq!(hole(&mut state, 3), 1_500, "all committed");
    punch(&mut state, 1_200);
    state.freeze();
    assert_eq!(hole(&mut state, 3), 1_200, "a frozen hole");
    punch(&mut state, 900);
    assert_eq!(hole(&mut state, 3), 900, "an active one before it");
    write(&mut state, file, 900 * BLOCK_SIZE_U64, content(1), Stability::Unstable).unwrap();
    assert_eq!(hole(&mut state, 3), 1_200, "written over");
    state.publish();
    assert_eq!(hole(&mut state, 3), 1_200);
    assert_eq!(hole(&mut state, 1_200), 1_200);
    assert_eq!(hole(&mut state, 1_201), 1_500);
    state.verify();
}
