//! The shares against a naive model, and what each of the two rules is for.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicU32;

/// Counts what it is told.
#[derive(Default)]
struct Told {
    asked_back: AtomicU32,
    has_room: AtomicU32,
}

impl Holder for Told {
    fn asked_back(&self) {
        self.asked_back.fetch_add(1, Ordering::Relaxed);
    }

    fn has_room(&self) {
        self.has_room.fetch_add(1, Ordering::Relaxed);
    }
}

fn part_of(node: &Arc<NodeMemory>) -> (DirtyMemory, Arc<Told>) {
    let (part, told) = (DirtyMemory::part_of(node), Arc::<Told>::default());
    part.set_holder(Arc::clone(&told) as _);
    (part, told)
}

/// Adds as long as it may, a block at a time.
fn fill(part: &DirtyMemory) {
    while !part.is_full_for(1) {
        part.add(1);
    }
}

#[test]
fn an_aggregate_alone_has_all_and_begins_at_half() {
    let part = DirtyMemory::new(100);
    part.add(49);
    assert!(!part.is_half_full());
    part.add(1);
    assert!(part.is_half_full());
    fill(&part);
    assert_eq!(part.blocks(), 100);
}

#[test]
fn who_writes_a_stream_leaves_room_for_small_changes() {
    let part = DirtyMemory::new(1_600);
    while !part.is_full_for(64) {
        part.add(64);
    }
    assert_eq!(part.blocks(), 1_536, "the last one begins below 1,500");
    assert!(part.is_full_for(8) && !part.is_full_for(7));
    fill(&part);
    assert_eq!(part.blocks(), 1_600);
}

/// Who streams into an aggregate beside a full one has what is guaranteed, as those who change
/// little have.
#[test]
fn what_large_operations_leave_is_of_the_common_part() {
    let node = Arc::new(NodeMemory::new(1_600));
    let parts = [0; 2].map(|_| part_of(&node).0);
    fill(&parts[0]);
    assert_eq!(parts[0].blocks(), 400 + 800);
    let mut blocks = 0;
    while !parts[1].is_full_for(50) {
        parts[1].add(50);
        blocks += 50;
    }
    assert_eq!(blocks, 400, "less than what it is guaranteed");
}

#[test]
fn what_is_guaranteed_is_there_beside_one_that_gives_nothing_back() {
    let node = Arc::new(NodeMemory::new(120));
    let parts = [0; 3].map(|_| part_of(&node).0);
    fill(&parts[0]);
    assert_eq!(parts[0].blocks(), 20 + 60, "its part, and the common one");
    for part in &parts[1..] {
        fill(part);
        assert_eq!(part.blocks(), 20);
        assert!(part.is_half_full());
    }
    assert_eq!(node.blocks(), 120);
    // It fails: the others have its part and may borrow.
    parts[0].give_up();
    parts[0].remove(80);
    fill(&parts[1]);
    assert_eq!(parts[1].blocks(), 30 + 60);
}

#[test]
fn a_newcomer_goes_on_with_what_is_left() {
    let node = Arc::new(NodeMemory::new(100));
    let (first, first_told) = part_of(&node);
    fill(&first);
    let (second, second_told) = part_of(&node);
    // Nothing is left; but whoever has nothing dirty may begin.
    assert!(!second.is_full_for(1));
    second.add(7);
    assert!(second.is_full_for(1));
    second.note_waiting();
    assert_eq!(first_told.asked_back.load(Ordering::Relaxed), 1);
    // Its own commit wakes it itself.
    second.remove(7);
    second.add(7);
    assert_eq!(second_told.has_room.load(Ordering::Relaxed), 0);
    first.remove(50);
    assert_eq!(second_told.has_room.load(Ordering::Relaxed), 1);
    first.remove(50);
    assert_eq!(second_told.has_room.load(Ordering::Relaxed), 1, "nobody waits any more");
}

#[test]
fn what_is_dirty_goes_with_its_aggregate() {
    let node = Arc::new(NodeMemory::new(100));
    let (first, second) = (DirtyMemory::part_of(&node), DirtyMemory::part_of(&node));
    first.add(60);
    first.add_inode();
    second.add(30);
    second.remove(10);
    assert_eq!((node.blocks(), node.inodes()), (80, 1));
    drop(first);
    assert_eq!((node.blocks(), node.inodes(), second.blocks()), (20, 0, 20));
    assert!(!second.is_half_full());
    fill(&second);
    assert_eq!(second.blocks(), 100, "it is alone");
}

#[test]
#[should_panic(expected = "are clean again of")]
fn what_one_counted_is_not_taken_off_by_another() {
    let node = Arc::new(NodeMemory::new(100));
    let (first, second) = (DirtyMemory::part_of(&node), DirtyMemory::part_of(&node));
    first.add(10);
    second.remove(1);
}

#[test]
fn what_disks_have_taken_of_an_image_makes_room_before_the_commit() {
    let node = Arc::new(NodeMemory::new(1_600));
    let (part, told) = part_of(&node);
    let has_room = || told.has_room.load(Ordering::Relaxed);
    part.add(1_000);
    part.note_frozen(1_000);
    while !part.is_full_for(64) {
        part.add(64);
    }
    part.note_waiting();
    // Large ones need what they leave to small ones, and room for a few of them.
    part.note_written(30);
    assert_eq!((part.blocks(), part.is_full_for(64), has_room()), (1_482, false, 0));
    // One that comes late, and found no room before, waits for the same.
    part.note_waiting();
    part.note_written(8);
    assert_eq!((part.blocks(), has_room()), (1_474, 1));
    part.note_written(200);
    assert_eq!(has_room(), 1, "nobody waits any more");
    // No more than half of the cap is in memory and does not count.
    part.note_written(10_000);
    assert_eq!(part.blocks(), 1_512 - 800);
    part.remove_frozen(1_000);
    assert_eq!(part.blocks(), 512);
}

/// Where even small ones found no room they do not wait for what large ones need.
#[test]
fn small_changes_are_woken_early() {
    let (part, told) = part_of(&Arc::new(NodeMemory::new(1_600)));
    part.add(1_000);
    part.note_frozen(1_000);
    fill(&part);
    part.note_waiting();
    part.note_written(25);
    assert_eq!(told.has_room.load(Ordering::Relaxed), 0);
    part.note_written(1);
    assert_eq!(told.has_room.load(Ordering::Relaxed), 1);
}

#[test]
#[should_panic(expected = "blocks are of an image of")]
fn an_image_is_taken_off_once() {
    let part = DirtyMemory::new(100);
    part.add(50);
    part.note_frozen(20);
    part.remove_frozen(20);
    part.remove_frozen(1);
}

/// What the model knows: blocks and inodes of each aggregate that count, the blocks of its image
/// that do and those that do no more, and whether it was given up.
#[derive(Clone, Default, Debug)]
struct Naive {
    blocks: u64,
    inodes: u64,
    frozen: u64,
    written: u64,
    has_failed: bool,
}

impl Naive {
    const fn weight(&self) -> u64 {
        self.blocks * 4 + self.inodes
    }
}

/// The rules in words, over all aggregates each time.
fn naive_is_full(cap: u64, all: &[Naive], own: usize, blocks: u64) -> bool {
    let serving = all.iter().filter(|one| !one.has_failed).count().max(1) as u64;
    let guaranteed = cap / 2 / serving;
    let over = |one: &Naive| one.weight().saturating_sub(guaranteed);
    let others: u64 = (0..all.len())
        .filter(|index| *index != own && !all[*index].has_failed)
        .map(|index| over(&all[index]))
        .sum();
    let left = if blocks > 7 { cap / 16 } else { 0 };
    let has_borrowed_all = over(&all[own]) + others + left >= cap - cap / 2;
    let total: u64 = all.iter().map(Naive::weight).sum();
    let weight = all[own].weight();
    weight > 0 && (total >= cap || weight >= guaranteed && has_borrowed_all)
}

#[derive(Clone, Debug)]
enum Step {
    Comes,
    Goes(usize),
    Fails(usize),
    Changes(usize, u64, u64),
    Freezes(usize),
    Writes(usize, u64),
    Commits(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = 0..8_usize;
    let step = prop_oneof![
        1 => Just(Step::Comes),
        1 => index.clone().prop_map(Step::Goes),
        1 => index.clone().prop_map(Step::Fails),
        20 => (index.clone(), 0..20_u64, 0..9_u64).prop_map(|(at, b, i)| Step::Changes(at, b, i)),
        3 => index.clone().prop_map(Step::Freezes),
        6 => (index.clone(), 0..40_u64).prop_map(|(at, blocks)| Step::Writes(at, blocks)),
        5 => index.prop_map(Step::Commits),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// The shares say what the naive rules say; nothing is counted twice or lost; the cap holds but
    /// for one operation of each aggregate; and one that has nothing dirty is never full.
    #[test]
    fn shares_are_those_of_the_rules(blocks_max in 1..300_u64, steps in steps()) {
        const OPERATION_WEIGHT_MAX: u64 = 19 * 4 + 8;
        let node = Arc::new(NodeMemory::new(blocks_max));
        let (mut parts, mut naive) = (vec![part_of(&node).0], vec![]);
        naive.push(Naive::default());
        for step in steps {
            match step {
                Step::Comes => {
                    parts.push(part_of(&node).0);
                    naive.push(Naive::default());
                }
                Step::Goes(at) if at < parts.len() => {
                    parts.remove(at);
                    naive.remove(at);
                }
                Step::Fails(at) if at < parts.len() => {
                    parts[at].give_up();
                    naive[at].has_failed = true;
                }
                Step::Changes(at, blocks, inodes) if at < parts.len() => {
                    if naive[at].has_failed || parts[at].is_full_for(1) {
                        continue;
                    }
                    parts[at].add(blocks);
                    (0..inodes).for_each(|_| parts[at].add_inode());
                    naive[at].blocks += blocks;
                    naive[at].inodes += inodes;
                }
                Step::Freezes(at) if at < parts.len() => {
                    if naive[at].frozen + naive[at].written == 0 {
                        naive[at].frozen = naive[at].blocks;
                        parts[at].note_frozen(naive[at].blocks);
                    }
                }
                Step::Writes(at, blocks) if at < parts.len() => {
                    let written: u64 = naive.iter().map(|one| one.written).sum();
                    let taken = blocks.min(naive[at].frozen).min(blocks_max / 2 - written);
                    naive[at].frozen -= taken;
                    naive[at].written += taken;
                    naive[at].blocks -= taken;
                    parts[at].note_written(blocks);
                }
                Step::Commits(at) if at < parts.len() => {
                    let image = naive[at].frozen + naive[at].written;
                    naive[at].blocks -= std::mem::take(&mut naive[at].frozen);
                    naive[at].written = 0;
                    parts[at].remove_frozen(image);
                    parts[at].remove_inodes(std::mem::take(&mut naive[at].inodes));
                }
                _ => continue,
            }
            let total: u64 = naive.iter().map(Naive::weight).sum();
            prop_assert_eq!(total, node.counts.weight());
            let written: u64 = naive.iter().map(|one| one.written).sum();
            prop_assert!(written <= blocks_max / 2, "{} of {}", written, blocks_max);
            let over = OPERATION_WEIGHT_MAX * naive.len() as u64;
            prop_assert!(total < blocks_max * 4 + over, "{} of {}", total, blocks_max * 4);
            for (at, part) in parts.iter().enumerate() {
                let Naive { blocks, inodes, .. } = naive[at];
                prop_assert_eq!((part.blocks(), part.inodes()), (blocks, inodes));
                for blocks in [1, 7, 8, 64] {
                    let is_full = part.is_full_for(blocks);
                    prop_assert_eq!(is_full, naive_is_full(blocks_max * 4, &naive, at, blocks));
                    prop_assert!(!is_full || part.blocks() + part.inodes() > 0);
                }
                prop_assert!(!part.is_full_for(1) || part.is_half_full());
            }
        }
        parts.clear();
        prop_assert_eq!((node.blocks(), node.inodes()), (0, 0));
    }
}
