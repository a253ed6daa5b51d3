//! Random calls against a naive disk, with crashes: what was flushed is there, and nothing is there
//! that was never written.

use super::rig::{
    Fault, Faulty, Machine, Verb, flush, in_memory, limits, numbered, read, start_write, write,
};
use crate::name::RangeName;
use platform::Disk;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const SIZE_BLOCKS: u64 = 16 + 4 * 1024 + 700 + 1;

#[derive(Clone, Debug)]
enum Step {
    Write {
        block: u64,
        count: usize,
    },
    Read {
        block: u64,
        count: usize,
    },
    Discard {
        block: u64,
        count: u64,
    },
    Flush,
    /// Puts and gets fail for a while.
    Fail {
        fault: Fault,
        skip: usize,
        times: usize,
    },
    /// What is in memory is lost.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let range = || {
        let places = prop_oneof![0..SIZE_BLOCKS, Just(16), Just(1040), Just(2064), 0..20_u64];
        let counts = prop_oneof![1..40_u64, Just(1024), 1000..1500_u64];
        (places, counts).prop_map(|(block, count)| (block, count.min(SIZE_BLOCKS - block)))
    };
    let fault = prop_oneof![Just(Fault::Fail), Just(Fault::LoseAnswer), Just(Fault::Precondition)];
    prop_oneof![
        5 => range().prop_map(|(block, count)| Step::Write { block, count: count as usize }),
        3 => range().prop_map(|(block, count)| Step::Read { block, count: count as usize }),
        2 => range().prop_map(|(block, count)| Step::Discard { block, count }),
        3 => Just(Step::Flush),
        1 => (fault, 0..3_usize, 1..8_usize)
            .prop_map(|(fault, skip, times)| Step::Fail { fault, skip, times }),
        1 => Just(Step::Crash),
    ]
}

/// What each block may read as: the last value that was flushed, or one that came after it. 0 is
/// always allowed after a discard.
#[derive(Default)]
struct Model {
    allowed: BTreeMap<u64, Vec<u64>>,
}

impl Model {
    fn written(&mut self, block: u64, number: u64) {
        self.allowed.entry(block).or_insert_with(|| vec![0]).push(number);
    }

    fn flushed(&mut self) {
        for values in self.allowed.values_mut() {
            let last = values.pop().into_iter();
            // After a discard older values may come back: the store need not have dropped them.
            let last: Vec<u64> = last.collect();
            if last != [0] {
                *values = last;
            } else {
                values.extend(last);
            }
        }
    }

    /// Before a crash a block reads as it was written last.
    fn check(&self, found: &[u64], block: u64, crashed: bool) {
        for (block, found) in (block..).zip(found) {
            let zero = vec![0];
            let values = self.allowed.get(&block).unwrap_or(&zero);
            let last = values.last().copied().unwrap_or(0);
            let well = if crashed || last == 0 { values.contains(found) } else { *found == last };
            assert!(well, "block {block} reads {found}, allowed {values:?}, crashed: {crashed}");
        }
    }

    fn read_all(&mut self, disk: &dyn Disk) {
        let found = read(disk, 0, SIZE_BLOCKS as usize).unwrap();
        self.check(&found, 0, true);
        // What is there after a crash was put, and stays.
        for (block, found) in (0..).zip(found) {
            if let Some(values) = self.allowed.get_mut(&block) {
                if values.last() == Some(&0) || found == 0 {
                    values.push(found);
                } else {
                    *values = vec![found];
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_bucket_loses_nothing_that_was_flushed(steps in prop::collection::vec(step(), 1..40)) {
        let clock = Arc::default();
        let mut store = in_memory();
        let mut machine = Machine::new(1, &clock, limits());
        let mut disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
        let mut model = Model::default();
        for (number, step) in (1..).zip(&steps) {
            match *step {
                Step::Write { block, count } => {
                    let blocks = vec![numbered(number); count];
                    // One that waits for room fails with the upload that would make it.
                    if start_write(&*disk, block, blocks).wait().is_ok() {
                        (block..).take(count).for_each(|block| model.written(block, number));
                    }
                }
                Step::Read { block, count } => {
                    if let Ok(found) = read(&*disk, block, count) {
                        model.check(&found, block, false);
                    }
                }
                Step::Discard { block, count } => {
                    disk.discard(block, count);
                    (block..block + count).for_each(|block| model.written(block, 0));
                }
                Step::Flush => {
                    if flush(&*disk).is_ok() {
                        model.flushed();
                    }
                }
                Step::Fail { fault, skip, times } => {
                    store.fail(Verb::Put, "data-", fault, skip, times);
                    store.fail(Verb::Get, "data-", Fault::Fail, skip, times);
                }
                Step::Crash => {
                    // Another process of the node: it takes the lease over from the dead one.
                    store.die();
                    store = Faulty::new(Arc::clone(&store.inner));
                    machine = Machine::new(1, &clock, limits());
                    let next = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
                    drop(std::mem::replace(&mut disk, next));
                    model.read_all(&*disk);
                }
            }
        }
        store.heal();
        flush(&*disk).unwrap();
        model.flushed();
        drop(disk);
        let disk = machine.open(&store, Some(SIZE_BLOCKS)).unwrap();
        let found = read(&*disk, 0, SIZE_BLOCKS as usize).unwrap();
        model.check(&found, 0, true);
    }
}

/// The same calls on a directory, without faults.
#[test]
fn a_directory_loses_nothing_that_was_flushed() {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(12));
    let strategy = prop::collection::vec(step(), 1..30);
    let outcome = runner.run(&strategy, |steps| {
        let place = tempfile::tempdir().unwrap();
        let text = format!("object:{}/range?size=19M", place.path().display());
        let name = RangeName::parse(&text).unwrap();
        let machine = Machine::one();
        let mut disk = machine.opener.open_range(&name).unwrap();
        let mut model = Model::default();
        for (number, step) in (1..).zip(&steps) {
            match *step {
                Step::Write { block, count } => {
                    write(&*disk, block, count, number);
                    (block..).take(count).for_each(|block| model.written(block, number));
                }
                Step::Read { block, count } => {
                    model.check(&read(&*disk, block, count).unwrap(), block, false);
                }
                Step::Discard { block, count } => {
                    disk.discard(block, count);
                    (block..block + count).for_each(|block| model.written(block, 0));
                }
                Step::Flush => {
                    flush(&*disk).unwrap();
                    model.flushed();
                }
                Step::Fail { .. } => {}
                Step::Crash => {
                    drop(disk);
                    disk = machine.opener.open_range(&name).unwrap();
                    model.read_all(&*disk);
                }
            }
        }
        Ok(())
    });
    outcome.unwrap();
}
