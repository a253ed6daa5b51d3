//! What is in memory against a naive model: every write with its number, and what the store has.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use units::{Block, zero_block};

const SIZE_BLOCKS: u64 = 16 + 64 + 64 + 50 + 1;
const GEOMETRY: Geometry = Geometry { size_blocks: SIZE_BLOCKS, blocks_per_object: 64 };
const BLOCKS_MAX: usize = 96;

fn numbered(number: u64) -> BlockRef {
    Block::shared(&number.to_le_bytes())
}

fn number_of(block: &BlockRef) -> u64 {
    u64::from_le_bytes(block.bytes()[..8].try_into().unwrap())
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        block: u64,
        count: u64,
    },
    Discard {
        block: u64,
        count: u64,
    },
    Flush,
    Start,
    /// The first or last of those under way, and whether it succeeds.
    End {
        last: bool,
        well: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..SIZE_BLOCKS, 1..80_u64);
    let cut = |(block, count): (u64, u64)| (block, count.min(SIZE_BLOCKS - block));
    prop_oneof![
        4 => range().prop_map(cut).prop_map(|(block, count)| Step::Write { block, count }),
        2 => range().prop_map(cut).prop_map(|(block, count)| Step::Discard { block, count }),
        1 => Just(Step::Discard { block: 16, count: 64 }),
        2 => Just(Step::Flush),
        4 => Just(Step::Start),
        4 => (any::<bool>(), prop::bool::weighted(0.7))
            .prop_map(|(last, well)| Step::End { last, well }),
    ]
}

struct Model {
    pending: Pending<(u64, u64, u64), u64, &'static str>,
    /// The number of the last write of each block that completed; 0 after a discard.
    written: BTreeMap<u64, u64>,
    /// When each block was discarded last.
    discarded: BTreeMap<u64, u64>,
    stored: BTreeMap<u64, u64>,
    /// What each flush promises, by its number: the writes that had completed.
    promises: BTreeMap<u64, BTreeMap<u64, u64>>,
    under_way: Vec<Upload>,
    next: u64,
}

impl Model {
    fn new() -> Self {
        Self {
            pending: Pending::new(GEOMETRY, BLOCKS_MAX, 3, 2),
            written: BTreeMap::new(),
            discarded: BTreeMap::new(),
            stored: BTreeMap::new(),
            promises: BTreeMap::new(),
            under_way: Vec::new(),
            next: 1,
        }
    }

    fn written(&mut self, (block, count, number): (u64, u64, u64)) {
        self.written.extend((block..block + count).map(|block| (block, number)));
    }

    fn check_promise(&self, flush: u64) {
        for (block, number) in &self.promises[&flush] {
            let stored = self.stored.get(block);
            let is_discarded = self.discarded.get(block).is_some_and(|at| at > number);
            assert!(
                is_discarded || stored.is_some_and(|stored| stored >= number),
                "flush {flush}: block {block} has {stored:?} and not {number}"
            );
        }
    }

    fn end(&mut self, upload: Upload, well: bool) {
        if well {
            for within in 0..GEOMETRY.blocks_of(upload.object) {
                let block = GEOMETRY.block(upload.object, within);
                match &upload.body {
                    Body::Delete => _ = self.stored.remove(&block),
                    Body::Put { changes, zeros } => {
                        if let Some(content) = changes.get(&within) {
                            self.stored.insert(block, number_of(content));
                        } else if zeros.has(within) {
                            self.stored.remove(&block);
                        }
                    }
                }
            }
        }
        let result = if well { Ok(()) } else { Err("failed") };
        let finished = self.pending.complete(upload.object, &result);
        for (write, result) in finished.writes {
            if result.is_ok() {
                self.written(write);
            }
        }
        for (flush, result) in finished.flushes {
            if result.is_ok() {
                self.check_promise(flush);
            }
            self.promises.remove(&flush);
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Write { block, count } => {
                let number = self.next;
                self.next += 1;
                let blocks = vec![numbered(number); count as usize];
                if let Some(write) = self.pending.write(block, blocks, (block, count, number)) {
                    self.written(write);
                }
            }
            Step::Discard { block, count } => {
                let number = self.next;
                self.next += 1;
                for extent in GEOMETRY.extents(block, count) {
                    let admitted = self.pending.discard(&extent);
                    let blocks = extent.block..extent.block + extent.within.len() as u64;
                    self.written((extent.block, blocks.end - blocks.start, 0));
                    self.discarded.extend(blocks.map(|block| (block, number)));
                    admitted.into_iter().for_each(|write| self.written(write));
                }
            }
            Step::Flush => {
                let flush = self.next;
                self.next += 1;
                self.promises.insert(flush, self.written.clone());
                if let Some(flush) = self.pending.flush(flush) {
                    self.check_promise(flush);
                    self.promises.remove(&flush);
                }
            }
            Step::Start => self.under_way.extend(self.pending.next_upload()),
            Step::End { last, well } => {
                if !self.under_way.is_empty() {
                    let index = if last { self.under_way.len() - 1 } else { 0 };
                    let upload = self.under_way.remove(index);
                    self.end(upload, well);
                }
            }
        }
    }

    /// Every block reads as it was written last; one that was discarded, as anything it ever was.
    fn check_reads(&self) {
        let mut kept = 0;
        for block in 0..SIZE_BLOCKS {
            let (id, within) = GEOMETRY.place(block);
            let found = match self.pending.look(id, within) {
                Found::Block(content) => number_of(&content),
                Found::Zeros => 0,
                Found::Stored => self.stored.get(&block).copied().unwrap_or(0),
            };
            let latest = self.written.get(&block).copied().unwrap_or(0);
            assert!(latest == 0 || found == latest, "block {block}: {found}, not {latest}");
            let object = self.pending.objects.get(&id);
            let dirty = object.is_some_and(|object| object.dirty.contains_key(&within));
            let moving = object.and_then(|object| object.in_flight.as_ref());
            kept += usize::from(dirty)
                + usize::from(moving.is_some_and(|changes| changes.contains_key(&within)));
        }
        assert_eq!(self.pending.blocks_count(), kept);
        assert!(kept <= BLOCKS_MAX.max(80));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn nothing_that_was_flushed_is_lost_and_reads_see_the_last_write(
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut model = Model::new();
        for step in &steps {
            model.run(step);
            model.check_reads();
        }
        // In the end everybody is answered, and all is stored.
        model.run(&Step::Flush);
        loop {
            while let Some(upload) = model.pending.next_upload() {
                model.under_way.push(upload);
            }
            let Some(upload) = model.under_way.pop() else { break };
            model.end(upload, true);
        }
        model.check_reads();
        prop_assert!(!model.pending.is_awaited());
        prop_assert!(model.promises.is_empty(), "{:?}", model.promises.keys());
        model.run(&Step::Flush);
        while let Some(upload) = model.pending.next_upload() {
            model.end(upload, true);
        }
        prop_assert_eq!(model.pending.blocks_count(), 0);
    }
}

type Small = Pending<&'static str, &'static str, &'static str>;

fn small(blocks_max: usize) -> Small {
    Pending::new(GEOMETRY, blocks_max, 2, 2)
}

#[test]
fn a_whole_object_is_put_without_being_asked_for() {
    let mut pending = small(1000);
    pending.write(16, vec![zero_block(); 63], "write");
    assert_eq!(pending.next_upload(), None);
    pending.write(16 + 63, vec![zero_block()], "write");
    assert_eq!(pending.next_upload().unwrap().object, ObjectId::Data(0));
    assert_eq!(pending.next_upload(), None);
}

#[test]
fn writes_wait_for_room_in_their_order() {
    let mut pending = small(8);
    assert_eq!(pending.write(16, vec![zero_block(); 6], "a"), Some("a"));
    assert_eq!(pending.write(80, vec![zero_block(); 4], "b"), None);
    assert_eq!(pending.write(17, vec![zero_block(); 1], "c"), None, "not past the one before");
    let upload = pending.next_upload().unwrap();
    assert_eq!(upload.object, ObjectId::Data(0));
    let finished = pending.complete(upload.object, &Ok(()));
    assert_eq!(finished.writes, [("b", Ok(())), ("c", Ok(()))]);
}

#[test]
fn writes_that_wait_for_room_fail_with_the_upload_that_would_make_it() {
    let mut pending = small(8);
    pending.write(16, vec![zero_block(); 8], "a");
    assert_eq!(pending.write(80, vec![zero_block(); 4], "b"), None);
    let upload = pending.next_upload().unwrap();
    let finished = pending.complete(upload.object, &Err("failed"));
    assert_eq!(finished.writes, [("b", Err("failed"))]);
    assert_eq!(pending.blocks_count(), 8, "what was taken stays");
}

#[test]
fn a_write_larger_than_all_room_goes_alone() {
    let mut pending = small(8);
    assert_eq!(pending.write(16, vec![zero_block(); 20], "a"), Some("a"));
    assert_eq!(pending.write(90, vec![zero_block(); 1], "b"), None);
}

#[test]
fn an_object_is_deleted_when_all_of_it_is_discarded_and_a_flush_comes() {
    let mut pending = small(1000);
    let extents = |count| GEOMETRY.extents(16, count).collect::<Vec<_>>();
    extents(63).iter().for_each(|extent| assert!(pending.discard(extent).is_empty()));
    assert_eq!(pending.flush("nothing to do"), Some("nothing to do"));
    extents(64).iter().for_each(|extent| assert!(pending.discard(extent).is_empty()));
    assert_eq!(pending.next_upload(), None, "not before a flush");
    assert_eq!(pending.flush("flush"), None);
    let upload = pending.next_upload().unwrap();
    assert_eq!(upload, Upload { object: ObjectId::Data(0), body: Body::Delete });
    // What is written meanwhile comes after it.
    pending.write(16, vec![numbered(7)], "write");
    assert_eq!(pending.look(ObjectId::Data(0), 0), Found::Block(numbered(7)));
    assert_eq!(pending.flush("second"), None);
    assert_eq!(pending.next_upload(), None, "one at a time");
    let finished = pending.complete(ObjectId::Data(0), &Ok(()));
    assert_eq!(finished.flushes, [("flush", Ok(()))]);
    let next = pending.next_upload().unwrap();
    assert!(matches!(next.body, Body::Put { changes, .. } if changes.len() == 1));
}

#[test]
fn a_write_after_the_discard_keeps_the_object() {
    let mut pending = small(1000);
    GEOMETRY.extents(16, 64).for_each(|extent| drop(pending.discard(&extent)));
    pending.write(20, vec![numbered(1)], "write");
    pending.flush("flush");
    let upload = pending.next_upload().unwrap();
    let Body::Put { changes, zeros } = upload.body else { panic!("it was deleted") };
    assert!(changes.contains_key(&4) && zeros.has(3) && !zeros.has(4));
}

#[test]
fn regression_a_discard_makes_room_for_those_who_wait() {
    let mut pending = small(8);
    pending.write(16, vec![zero_block(); 8], "a");
    assert_eq!(pending.write(80, vec![zero_block(); 4], "b"), None);
    let admitted: Vec<_> =
        GEOMETRY.extents(16, 8).flat_map(|extent| pending.discard(&extent)).collect();
    assert_eq!(admitted, ["b"]);
}
