//! A dirty file against a map of its blocks.

use super::DirtyFile;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::{Block, BlockRef, Fbn};

#[derive(Clone, Debug)]
enum Step {
    Put(Fbn, bool),
    Change(Fbn, bool),
    Reallocate(Fbn),
    Drop(Fbn, Fbn),
    SetLogged,
}

fn step() -> impl Strategy<Value = Step> {
    let fbn = || prop_oneof![0..80_u64, (1_u64 << 40)..(1 << 40) + 80].prop_map(Fbn);
    prop_oneof![
        6 => (fbn(), any::<bool>()).prop_map(|(fbn, logged)| Step::Put(fbn, logged)),
        2 => (fbn(), any::<bool>()).prop_map(|(fbn, logged)| Step::Change(fbn, logged)),
        3 => fbn().prop_map(Step::Reallocate),
        2 => (fbn(), fbn()).prop_map(|(start, end)| Step::Drop(start, end)),
        1 => Just(Step::SetLogged),
    ]
}

fn block(value: u64) -> BlockRef {
    Arc::new(Block::from_prefix(&value.to_le_bytes()))
}

proptest! {
    #[test]
    fn is_a_map(
        steps in prop::collection::vec(step(), 1..60),
        low in (0..100_u64).prop_map(Fbn),
        high in (0..100_u64).prop_map(Fbn),
    ) {
        let mut file = DirtyFile::default();
        let mut blocks: BTreeMap<Fbn, u64> = BTreeMap::new();
        let mut unlogged = BTreeSet::new();
        let mut reallocated = BTreeSet::new();
        for (value, step) in steps.into_iter().enumerate() {
            let value = value as u64;
            match step {
                Step::Put(fbn, logged) => {
                    let new = blocks.insert(fbn, value).is_none();
                    prop_assert_eq!(file.put(fbn, block(value), logged), new);
                    if !logged { unlogged.insert(fbn); }
                    reallocated.remove(&fbn);
                }
                Step::Reallocate(fbn) => {
                    let new = !blocks.contains_key(&fbn);
                    prop_assert_eq!(file.put_reallocated(fbn, block(value)), new);
                    if new {
                        blocks.insert(fbn, value);
                        reallocated.insert(fbn);
                    }
                }
                Step::Change(fbn, logged) => {
                    let found = file.get_mut(fbn, logged);
                    prop_assert_eq!(found.is_some(), blocks.contains_key(&fbn));
                    if let Some(found) = found {
                        *found = block(value);
                        blocks.insert(fbn, value);
                        reallocated.remove(&fbn);
                        if !logged { unlogged.insert(fbn); }
                    }
                }
                Step::Drop(start, end) => {
                    let before = blocks.len();
                    blocks.retain(|fbn, _| *fbn < start || *fbn >= end);
                    unlogged.retain(|fbn| *fbn < start || *fbn >= end);
                    reallocated.retain(|fbn| *fbn < start || *fbn >= end);
                    let dropped = (before - blocks.len()) as u64;
                    prop_assert_eq!(file.drop_range(start, end), dropped);
                }
                Step::SetLogged => {
                    file.set_logged();
                    unlogged.clear();
                }
            }
            prop_assert_eq!(file.len(), blocks.len());
            prop_assert_eq!(file.is_empty(), blocks.is_empty());
        }
        let content = |found: (Fbn, &BlockRef)| {
            (found.0, u64::from_le_bytes(found.1.bytes()[..8].try_into().unwrap()))
        };
        let all: Vec<_> = file
            .leaves()
            .map(|(fbn, block, is_reallocated)| (content((fbn, block)), is_reallocated))
            .collect();
        let leaf = |(fbn, value): (&Fbn, &u64)| ((*fbn, *value), reallocated.contains(fbn));
        prop_assert_eq!(all, blocks.iter().map(leaf).collect::<Vec<_>>());
        let unlogged: Vec<_> = unlogged.into_iter().collect();
        prop_assert_eq!(file.unlogged().collect::<Vec<_>>(), unlogged);
        let some: Vec<_> = file.range(low, high).map(content).collect();
        let mut expected: Vec<_> = blocks.clone().into_iter().collect();
        expected.retain(|(fbn, _)| (low..high).contains(fbn));
        prop_assert_eq!(file.is_any(low, high), !expected.is_empty());
        prop_assert_eq!(some, expected);
        for fbn in (0..90).map(Fbn) {
            prop_assert_eq!(file.get(fbn).is_some(), blocks.contains_key(&fbn));
        }
    }
}

/// The rule `stable-write-hides-unlogged`.
#[test]
fn what_is_not_logged_stays_so_under_a_stable_write() {
    let mut file = DirtyFile::default();
    file.put(Fbn(3), units::zero_block(), false);
    file.put(Fbn(3), units::zero_block(), true);
    assert!(file.get_mut(Fbn(3), true).is_some());
    file.put(Fbn(4), units::zero_block(), true);
    assert_eq!(file.unlogged().collect::<Vec<_>>(), [Fbn(3)]);
}
