//! The state against a naive oracle: a set of running affinities and a queue for each.

use super::*;
use crate::access::Access;
use crate::message::Outcome;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl State {
    /// The invariants of the module's header.
    fn check(&self) {
        let runs = |slot: u32| self.node(slot).phase == Phase::Running;
        let slots = 0..self.nodes.len() as u32;
        for slot in slots.clone().filter(|slot| self.node(*slot).live) {
            let node = self.node(slot);
            let busy = |other: &u32| {
                let below = self.node(*other);
                *other != slot
                    && below.live
                    && node.id.covers(below.id)
                    && (runs(*other) || below.reserved)
            };
            assert_eq!(node.busy_below as usize, slots.clone().filter(busy).count(), "{}", node.id);
            let in_ready = self.ready.iter().filter(|ready| **ready == slot).count();
            let in_below = usize::from(self.waiting_below.contains(&(node.since, slot)));
            let holders: Vec<u32> =
                slots.clone().filter(|other| self.node(*other).waiters.contains(&slot)).collect();
            let in_above: usize = holders
                .iter()
                .map(|other| self.node(*other).waiters.iter().filter(|w| **w == slot).count())
                .sum();
            let expected = match node.phase {
                Phase::Idle | Phase::Running => (0, 0, 0),
                Phase::Ready => (1, 0, 0),
                Phase::WaitingBelow => (0, 1, 0),
                Phase::WaitingAbove => (0, 0, 1),
            };
            assert_eq!((in_ready, in_below, in_above), expected, "{} {:?}", node.id, node.phase);
            for holder in holders {
                assert!(runs(holder) || self.node(holder).reserved);
                assert!(self.node(holder).id.covers(node.id));
            }
            match node.phase {
                Phase::Idle => assert!(node.queue.is_empty()),
                Phase::Running => {}
                _ => assert!(!node.queue.is_empty()),
            }
            if node.phase == Phase::WaitingBelow {
                assert!(node.busy_below > 0);
            }
            assert_eq!(node.reserved, self.reserved.contains(&slot));
        }
        let queued: usize = self.nodes.iter().map(|node| node.queue.len()).sum();
        assert_eq!(queued, self.queued);
    }
}

/// The state beside its oracle.
struct Pair {
    state: State,
    live: Vec<AffinityId>,
    /// What runs, with the messages of its turn.
    running: Vec<(AffinityId, Batch)>,
    /// What was sent and has not run, by affinity.
    sent: BTreeMap<u32, VecDeque<u64>>,
    /// What ran last, as the messages themselves tell.
    told: Arc<AtomicU64>,
    number: u64,
}

type Batch = VecDeque<Queued>;

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            state: State::new(1),
            live: vec![AffinityId::root(1)],
            running: Vec::new(),
            sent: BTreeMap::new(),
            told: Arc::default(),
            number: 0,
        };
        for (parent, kind) in [
            (0, AffinityKind::Aggregate),
            (1, AffinityKind::Volume),
            (2, AffinityKind::VolumeLogical),
            (3, AffinityKind::Stripe),
            (3, AffinityKind::Stripe),
            (2, AffinityKind::VolumeVbn),
            (1, AffinityKind::AggregateVbn),
            (1, AffinityKind::Volume),
        ] {
            let parent = pair.live[parent];
            pair.live.push(pair.state.add(parent, kind));
        }
        pair
    }

    fn one(&self, choice: usize) -> AffinityId {
        self.live[choice % self.live.len()]
    }

    fn message(&mut self, id: AffinityId) -> Box<dyn Message> {
        self.number += 1;
        let (number, told) = (self.number, Arc::clone(&self.told));
        self.sent.entry(id.slot()).or_default().push_back(number);
        Box::new(move |_: &mut Access<'_>| {
            told.store(number, Ordering::Relaxed);
            Outcome::Done
        })
    }

    fn push(&mut self, choice: usize) {
        let id = self.one(choice);
        let message = self.message(id);
        assert!(self.state.push_new(id, message).is_none());
    }

    fn begun(&mut self, id: AffinityId, batch: Batch) {
        for (other, _) in &self.running {
            assert!(!other.excludes(id), "{id} runs beside {other}");
        }
        self.running.push((id, batch));
    }

    fn pick(&mut self, choice: Option<usize>) -> bool {
        let mut batch = Batch::new();
        let picked = match choice {
            None => self.state.pick(&mut batch),
            Some(choice) => self.state.pick_chosen(&mut |ready| choice % ready.len(), &mut batch),
        };
        match picked {
            Some(id) => {
                assert!(!batch.is_empty() && self.live.contains(&id));
                self.begun(id, batch);
                true
            }
            None => {
                // Idle only if all that have work are shut out by what runs.
                let idle = self.sent.values().all(VecDeque::is_empty);
                assert!(idle || !self.running.is_empty(), "work, and nothing runs");
                false
            }
        }
    }

    fn direct(&mut self, choice: usize) {
        let id = self.one(choice);
        let free = !self.running.iter().any(|(other, _)| other.excludes(id));
        let first = self.sent.get(&id.slot()).is_none_or(VecDeque::is_empty);
        if self.state.begin_direct(id) {
            assert!(free && first, "{id} runs out of turn");
            let message = self.message(id);
            let queued = self.state.arrive(message);
            self.begun(id, Batch::from([queued]));
        } else {
            assert!(!free || !first || !self.state.reserved.is_empty());
        }
    }

    /// Runs up to `count` messages of a turn and ends it.
    fn end(&mut self, choice: usize, count: usize) {
        if self.running.is_empty() {
            return;
        }
        let (id, mut batch) = self.running.swap_remove(choice % self.running.len());
        for mut queued in batch.drain(..count.min(batch.len())) {
            assert!(matches!(queued.message.run(&mut Access::new(id)), Outcome::Done));
            let expected = self.sent.get_mut(&id.slot()).and_then(VecDeque::pop_front);
            assert_eq!(expected, Some(self.told.load(Ordering::Relaxed)), "order within {id}");
        }
        self.state.end(id, &mut batch);
        assert!(batch.is_empty());
    }

    fn exclusive(&mut self) {
        if self.running.is_empty() {
            let root = self.state.begin_exclusive();
            self.begun(root, Batch::new());
        }
    }

    fn grow(&mut self, choice: usize) {
        let parent = self.one(choice);
        let child = AffinityKind::ALL.into_iter().find(|kind| kind.parent() == Some(parent.kind()));
        if let Some(kind) = child {
            self.live.push(self.state.add(parent, kind));
        }
    }

    fn shrink(&mut self, choice: usize) {
        let id = self.one(choice);
        let leaf = !self.live.iter().any(|other| *other != id && id.covers(*other));
        let runs = self.running.iter().any(|(other, _)| *other == id);
        let empty = self.sent.get(&id.slot()).is_none_or(VecDeque::is_empty);
        if leaf && !runs && empty && id.kind() != AffinityKind::Serial {
            self.state.remove(id);
            self.live.retain(|other| *other != id);
            assert!(!self.state.is_live(id));
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Push(usize),
    Pick,
    PickChosen(usize),
    Direct(usize),
    End(usize, usize),
    Exclusive,
    Grow(usize),
    Shrink(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..64_usize).prop_map(Step::Push),
        5 => Just(Step::Pick),
        2 => (0..64_usize).prop_map(Step::PickChosen),
        2 => (0..64_usize).prop_map(Step::Direct),
        4 => (0..8_usize, 0..20_usize).prop_map(|(choice, count)| Step::End(choice, count)),
        1 => Just(Step::Exclusive),
        1 => (0..64_usize).prop_map(Step::Grow),
        1 => (0..64_usize).prop_map(Step::Shrink),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn exclusion_order_and_progress_hold(steps in proptest::collection::vec(step(), 1..400)) {
        let mut pair = Pair::new();
        for step in steps {
            match step {
                Step::Push(choice) => pair.push(choice),
                Step::Pick => drop(pair.pick(None)),
                Step::PickChosen(choice) => drop(pair.pick(Some(choice))),
                Step::Direct(choice) => pair.direct(choice),
                Step::End(choice, count) => pair.end(choice, count),
                Step::Exclusive => pair.exclusive(),
                Step::Grow(choice) => pair.grow(choice),
                Step::Shrink(choice) => pair.shrink(choice),
            }
            pair.state.check();
        }
        // Everything that was sent runs in the end.
        loop {
            while !pair.running.is_empty() {
                pair.end(0, usize::MAX);
            }
            if !pair.pick(None) {
                break;
            }
            pair.state.check();
        }
        prop_assert!(pair.sent.values().all(VecDeque::is_empty));
        prop_assert!(pair.state.is_idle());
    }
}

/// Keeps both stripes of a volume busy with overlapping turns, and tells after how many turns an
/// affinity further up ran.
fn turns_until(coarse: usize, direct: bool) -> u64 {
    let mut pair = Pair::new();
    let stripes = [4, 5];
    let mut turns = 0;
    pair.push(stripes[0]);
    assert!(pair.pick(None));
    pair.push(coarse);
    let coarse = pair.live[coarse];
    loop {
        turns += 1;
        assert!(turns < 10 * DISPATCHES_WAITED_MAX, "{coarse} starves");
        // The other stripe starts before the one that runs has ended.
        let other = stripes[turns as usize % 2];
        if direct {
            pair.direct(other);
        } else {
            pair.push(other);
            pair.pick(None);
        }
        pair.state.check();
        if pair.running.iter().any(|(id, _)| *id == coarse) {
            return turns;
        }
        pair.end(0, 20);
        pair.state.check();
        if pair.running.is_empty() && pair.pick(None) && pair.running[0].0 == coarse {
            return turns;
        }
    }
}

#[test]
fn coarse_affinities_do_not_starve() {
    for coarse in [0, 1, 2, 3] {
        for direct in [false, true] {
            let turns = turns_until(coarse, direct);
            assert!(turns >= DISPATCHES_WAITED_MAX / 2, "{coarse} was reserved at once");
            assert!(turns <= DISPATCHES_WAITED_MAX + 8, "{turns} turns, {coarse} {direct}");
        }
    }
}

#[test]
fn what_waits_for_a_reservation_has_its_turn_after_it() {
    let mut pair = Pair::new();
    let (aggregate, volume, stripe) = (1, 2, 4);
    // Both the volume and its aggregate wait beside a stripe that runs and runs.
    pair.push(stripe);
    assert!(pair.pick(None));
    pair.push(volume);
    pair.push(aggregate);
    for _ in 0..=DISPATCHES_WAITED_MAX {
        // Elsewhere there is work, too.
        pair.push(8);
        if pair.pick(None) {
            pair.end(1, 20);
        }
        pair.state.check();
    }
    assert_eq!(pair.state.reserved.len(), 1);
    pair.push(stripe);
    pair.end(0, 20);
    let mut order = Vec::new();
    while pair.pick(None) {
        order.push(pair.running[0].0);
        pair.state.check();
        pair.end(0, 20);
        pair.state.check();
    }
    // The aggregate was reserved, so the volume's own wait goes on until it has run.
    assert_eq!(order[0], pair.live[aggregate], "{order:?}");
    for waited in [volume, stripe, 8] {
        assert!(order.contains(&pair.live[waited]), "{order:?}");
    }
    assert_eq!(order.len(), 4);
}
