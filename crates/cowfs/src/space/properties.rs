//! Free numbers beside a naive model: sets of what is in use, of what the running consistency point
//! has freed, and of what a pinned image has.
//!
//! Rules, over takes, frees, commits, pins and starts in any order, in a space that is nearly full:
//!
//! - A number is given to one taker at a time.
//! - A number that a consistency point has freed is not given before that one has committed: until
//!   then a crash leads back to the image that has it.
//! - A number that a pinned image has is not given before the end of the pin.
//! - All other free numbers can be given, and the counts say how many are in use.

use super::*;
use crate::cache::BufferCache;
use crate::reader::HeldBlocks;
use ondisk::pointer::PhysicalPointer;
use proptest::prelude::*;

/// Less than an area: what is free is soon given again.
const NUMBERS: u64 = 900;

#[derive(Clone, Debug)]
enum Step {
    Take(usize),
    Free(Vec<prop::sample::Index>),
    Commit,
    /// A pin begins, or ends, with the commit before.
    Pin,
    /// What was found free and not used is found again.
    DropPool,
}

fn step() -> impl Strategy<Value = Step> {
    let some = proptest::collection::vec(any::<prop::sample::Index>(), 0..80);
    prop_oneof![
        5 => (0..200_usize).prop_map(Step::Take),
        5 => some.prop_map(Step::Free),
        4 => Just(Step::Commit),
        1 => Just(Step::Pin),
        1 => Just(Step::DropPool),
    ]
}

struct Naive {
    used: BTreeSet<Pvbn>,
    /// Freed since the last commit.
    freed: BTreeSet<Pvbn>,
    /// The pinned image, if there is one.
    pinned: Option<BTreeSet<Pvbn>>,
    /// As of the last commit.
    committed: BTreeSet<Pvbn>,
}

impl Naive {
    /// Numbers that may be given.
    fn givable(&self) -> BTreeSet<Pvbn> {
        let is_pinned = |vbn: &Pvbn| self.pinned.as_ref().is_some_and(|image| image.contains(vbn));
        let is_free = |vbn: &Pvbn| !self.used.contains(vbn) && !self.freed.contains(vbn);
        (1..NUMBERS).map(Pvbn).filter(|vbn| is_free(vbn) && !is_pinned(vbn)).collect()
    }
}

struct Rig {
    cache: BufferCache,
    held: HeldBlocks,
    space: Space<PhysicalPointer>,
    naive: Naive,
}

impl Rig {
    fn new() -> Self {
        let (cache, held) = (BufferCache::new(8), HeldBlocks::default());
        let mut space = Space::new(VolumeId(0), NUMBERS);
        space.claim(Pvbn(0));
        let (used, freed) = (BTreeSet::from([Pvbn(0)]), BTreeSet::new());
        let committed = BTreeSet::from([Pvbn(0)]);
        let naive = Naive { used, freed, pinned: None, committed };
        Self { cache, held, space, naive }
    }

    fn settle(&mut self) {
        let reader = Reader { cache: &self.cache, held: &self.held };
        self.space.settle(&reader).expect("nothing is waited for");
        self.space.settle_scores(&reader).expect("nothing is waited for");
    }

    fn take(&mut self, count: usize) {
        // What was freed in areas that are in hand is found after they were put back.
        self.settle();
        let reader = Reader { cache: &self.cache, held: &self.held };
        let mut givable = self.naive.givable();
        let count = count.min(givable.len());
        self.space.fill_pool(count, &reader).expect("so many are free");
        for _ in 0..count {
            let vbn = self.space.take_from_pool();
            assert!(givable.remove(&vbn), "{vbn} is given too early, or twice");
            self.naive.used.insert(vbn);
        }
    }

    fn free(&mut self, which: &[prop::sample::Index]) {
        // What this consistency point has taken itself is no image's, and is freed like the rest.
        let used: Vec<Pvbn> = self.naive.used.iter().copied().skip(1).collect();
        let which = which.iter().filter(|_| !used.is_empty());
        let numbers: BTreeSet<Pvbn> = which.map(|at| *at.get(&used)).collect();
        for vbn in numbers {
            self.space.free(vbn);
            self.naive.used.remove(&vbn);
            self.naive.freed.insert(vbn);
        }
    }

    fn commit(&mut self) {
        self.settle();
        self.space.put_back_areas();
        self.space.drain_released();
        // As if the maps had been written and read again.
        let dirty = std::mem::take(&mut self.space.active_map.dirty);
        let freed = self.space.commit();
        self.space.active_map.dirty = dirty;
        let is_pinned =
            |vbn: &Pvbn| self.naive.pinned.as_ref().is_some_and(|image| image.contains(vbn));
        let expected: Vec<Pvbn> =
            self.naive.freed.iter().copied().filter(|vbn| !is_pinned(vbn)).collect();
        assert_eq!(freed, expected, "these may be given from now on");
        self.naive.freed.clear();
        self.naive.committed = self.naive.used.clone();
        assert_eq!(self.space.used_blocks, self.naive.used.len() as u64);
        assert_eq!(self.space.active_blocks, self.naive.used.len() as u64);
    }

    fn pin(&mut self) {
        self.commit();
        match self.naive.pinned.take() {
            None => {
                self.space.pin(1 << 20);
                self.naive.pinned = Some(self.naive.committed.clone());
            }
            Some(image) => {
                let held: Vec<Pvbn> = image.difference(&self.naive.used).copied().collect();
                assert_eq!(self.space.held_blocks(), held.len() as u64);
                assert_eq!(self.space.unpin(), held, "these may be given from now on");
                self.space.search_again();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_number_is_given_again_when_no_image_has_it(
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut rig = Rig::new();
        rig.take(700);
        for step in steps {
            match step {
                Step::Take(count) => rig.take(count),
                Step::Free(which) => rig.free(&which),
                Step::Commit => rig.commit(),
                Step::Pin => rig.pin(),
                Step::DropPool => {
                    rig.settle();
                    rig.space.drop_pool();
                }
            }
        }
        rig.commit();
    }
}
