//! What the scheduler knows: who has work, who runs, who waits for whom (Waffinity section 4.3).
//! Plain data under the scheduler's lock; no thread, no lock and no clock in here.
//!
//! Invariants, all checked by `check` in tests:
//! - No two running affinities cover one another.
//! - `busy_below` of a node is the number of its running or reserved strict descendants.
//! - A node that does not run has work if and only if it is in exactly one place: in `ready`, in
//!   the `waiters` of one ancestor that runs or is reserved, or, with `busy_below > 0`, in
//!   `waiting_below`.
//! - Queues are in the order of arrival. A message that gives way or changes its affinity arrives
//!   anew.
//!
//! Order is first in, first out among affinities with work. One that is shut out leaves the list
//! and comes back to its front when what shut it out ends, so nobody walks over it in vain. A
//! coarse affinity that has waited for [`DISPATCHES_WAITED_MAX`] is *reserved*: nothing above or
//! beneath it starts before it has run. Reserved affinities never cover one another, and each
//! waits for running ones only, so there is no deadlock.
//!
//! Within an affinity messages run in the order in which they came. A message that was suspended
//! keeps its place: it runs before those that came while it waited, and after those that came
//! before it and are queued, whichever is woken first. So a message that waits again and again for
//! what others use up is passed by nobody of its affinity.
//!
//! Cost: each call walks at most the depth of the tree (5) and what it releases.

mod life;
mod turns;

use crate::counters::Counters;
use crate::message::{Message, Queued};
use crate::{AffinityId, AffinityKind};
use platform::mutation::{self, Rule};
use std::collections::{BTreeSet, VecDeque};

/// Messages that an affinity runs in one turn: enough to spread the cost of a dispatch, few
/// enough that what waits for the affinity waits tens of microseconds.
pub(crate) const QUANTUM_MESSAGES_MAX: usize = 16;

/// Turns given to others before a coarse affinity that waits for its descendants is reserved.
/// Low enough that a volume's operation waits a few milliseconds beside the busiest stripes, high
/// enough that stripes do not pause for each of them.
pub(crate) const DISPATCHES_WAITED_MAX: u64 = 64;

/// How far the scheduler is from its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// Serving.
    Open,
    /// Workers return when no message is left.
    Draining,
    /// No message runs any more.
    Halted,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No work, not running.
    Idle,
    /// In `ready`.
    Ready,
    /// In an ancestor's `waiters`.
    WaitingAbove,
    /// In `waiting_below`.
    WaitingBelow,
    Running,
}

struct Node {
    id: AffinityId,
    parent: Option<u32>,
    children: u32,
    /// In the order of arrival.
    queue: VecDeque<Queued>,
    phase: Phase,
    reserved: bool,
    busy_below: u32,
    /// `dispatches` when it last got in line.
    since: u64,
    /// Descendants that wait for this one to have run.
    waiters: Vec<u32>,
    suspended: u32,
    live: bool,
}

impl Node {
    fn new(id: AffinityId, parent: Option<u32>) -> Self {
        Self {
            id,
            parent,
            children: 0,
            queue: VecDeque::new(),
            phase: Phase::Idle,
            reserved: false,
            busy_below: 0,
            since: 0,
            waiters: Vec::new(),
            suspended: 0,
            live: true,
        }
    }
}

/// What shuts an affinity out.
enum Blocker {
    Above(u32),
    Below,
}

pub(crate) struct State {
    nodes: Vec<Node>,
    free: Vec<u32>,
    number_last: u32,
    ready: VecDeque<u32>,
    /// By age: (since, slot).
    waiting_below: BTreeSet<(u64, u32)>,
    reserved: Vec<u32>,
    dispatches: u64,
    running: usize,
    queued: usize,
    suspended: usize,
    /// Messages that came so far.
    arrivals: u64,
    /// Workers that wait for work, and wake-ups that are on their way to some of them.
    sleeping: usize,
    wakeups: usize,
    life: Life,
    pub(crate) counters: Counters,
}

impl State {
    pub(crate) fn new(scheduler: u32) -> Self {
        Self {
            nodes: vec![Node::new(AffinityId::root(scheduler), None)],
            free: Vec::new(),
            number_last: 0,
            ready: VecDeque::new(),
            waiting_below: BTreeSet::new(),
            reserved: Vec::new(),
            dispatches: 0,
            running: 0,
            queued: 0,
            suspended: 0,
            arrivals: 0,
            sleeping: 0,
            wakeups: 0,
            life: Life::Open,
            counters: Counters::default(),
        }
    }

    fn node(&self, slot: u32) -> &Node {
        &self.nodes[slot as usize]
    }

    fn node_mut(&mut self, slot: u32) -> &mut Node {
        &mut self.nodes[slot as usize]
    }

    /// Whether `id` has not been removed.
    pub(crate) fn is_live(&self, id: AffinityId) -> bool {
        self.nodes.get(id.slot() as usize).is_some_and(|node| node.live && node.id == id)
    }

    fn assert_live(&self, id: AffinityId) {
        assert!(self.is_live(id), "{id} is gone, or of another scheduler");
    }

    pub(crate) fn add(&mut self, parent: AffinityId, kind: AffinityKind) -> AffinityId {
        self.assert_live(parent);
        let Some(number) = self.number_last.checked_add(1) else {
            panic!("2^32 affinities were made; none may be named twice");
        };
        let slot = self.free.last().copied().unwrap_or(self.nodes.len() as u32);
        let id = parent.child(kind, number, slot);
        let mut node = Node::new(id, Some(parent.slot()));
        if self.free.pop().is_some() {
            // The queue's room is kept for the next tenant.
            node.queue = std::mem::take(&mut self.node_mut(slot).queue);
            *self.node_mut(slot) = node;
        } else {
            self.nodes.push(node);
        }
        self.number_last = number;
        self.node_mut(parent.slot()).children += 1;
        id
    }

    /// Removes an affinity with all beneath it, if none of them has work; whether it did.
    pub(crate) fn remove_tree_if_idle(&mut self, top: AffinityId) -> bool {
        self.assert_live(top);
        let is_idle = |node: &&Node| {
            let is_at_rest = node.phase == Phase::Idle && node.suspended == 0 && !node.reserved;
            is_at_rest && node.queue.is_empty() && node.waiters.is_empty()
        };
        let beneath = self.nodes.iter().filter(|node| node.live && top.covers(node.id));
        let mut tree: Vec<&Node> = beneath.collect();
        if !tree.iter().all(is_idle) {
            return false;
        }
        tree.sort_by_key(|node| std::cmp::Reverse(node.id.depth()));
        let tree: Vec<AffinityId> = tree.into_iter().map(|node| node.id).collect();
        tree.into_iter().for_each(|id| self.remove(id));
        true
    }

    /// # Panics
    /// If the affinity has work or children, or is the root.
    pub(crate) fn remove(&mut self, id: AffinityId) {
        self.assert_live(id);
        let node = self.node_mut(id.slot());
        let Some(parent) = node.parent else { panic!("the root is not removed") };
        assert!(node.children == 0, "{id} has children");
        assert!(node.phase == Phase::Idle && node.suspended == 0, "{id} is not idle");
        assert!(node.queue.is_empty() && node.waiters.is_empty() && !node.reserved);
        node.live = false;
        self.node_mut(parent).children -= 1;
        self.free.push(id.slot());
    }

    /// Gives a message its place in the order of arrival.
    pub(crate) fn arrive(&mut self, message: Box<dyn Message>) -> Queued {
        self.arrivals += 1;
        Queued { arrival: self.arrivals, message }
    }

    /// Queues a message behind all others of its affinity, or gives it back after a halt.
    pub(crate) fn push_new(&mut self, id: AffinityId, message: Box<dyn Message>) -> Option<Queued> {
        let queued = self.arrive(message);
        self.push(id, queued, |queue, queued| queue.push_back(queued))
    }

    /// Queues a message that was suspended at its place in the order of arrival, or gives it back
    /// after a halt.
    pub(crate) fn push_woken(&mut self, id: AffinityId, queued: Queued) -> Option<Queued> {
        self.push(id, queued, insert)
    }

    fn push(
        &mut self,
        id: AffinityId,
        queued: Queued,
        enqueue: impl FnOnce(&mut VecDeque<Queued>, Queued),
    ) -> Option<Queued> {
        self.assert_live(id);
        if self.life == Life::Halted {
            return Some(queued);
        }
        self.queued += 1;
        let slot = id.slot();
        let node = self.node_mut(slot);
        enqueue(&mut node.queue, queued);
        if node.phase == Phase::Idle {
            self.line_up(slot);
        }
        None
    }

    /// Puts an affinity in front of all that can run, if it can.
    pub(crate) fn expedite(&mut self, id: AffinityId) {
        let slot = id.slot();
        if self.node(slot).phase == Phase::Ready && self.ready.front() != Some(&slot) {
            self.ready.retain(|other| *other != slot);
            self.ready.push_front(slot);
        }
    }

    /// Puts a node that has work, is not running and is in no list where it belongs.
    fn line_up(&mut self, slot: u32) {
        self.node_mut(slot).since = self.dispatches;
        match self.blocker(slot) {
            None => {
                self.node_mut(slot).phase = Phase::Ready;
                self.ready.push_back(slot);
            }
            Some(blocker) => self.park(slot, blocker),
        }
    }

    fn blocker(&self, slot: u32) -> Option<Blocker> {
        let mut above = self.node(slot).parent;
        while let Some(ancestor) = above {
            let node = self.node(ancestor);
            if mutation::broken(Rule::ConflictingAffinities) {
                break;
            }
            if node.phase == Phase::Running || node.reserved {
                return Some(Blocker::Above(ancestor));
            }
            above = node.parent;
        }
        (self.node(slot).busy_below > 0).then_some(Blocker::Below)
    }

    fn park(&mut self, slot: u32, blocker: Blocker) {
        let kind = self.node(slot).id.kind();
        self.counters.kind_mut(kind).waits += 1;
        match blocker {
            Blocker::Above(ancestor) => {
                self.node_mut(slot).phase = Phase::WaitingAbove;
                self.node_mut(ancestor).waiters.push(slot);
            }
            Blocker::Below => {
                self.node_mut(slot).phase = Phase::WaitingBelow;
                let since = self.node(slot).since;
                self.waiting_below.insert((since, slot));
            }
        }
    }

    fn ready_at_front(&mut self, slot: u32) {
        self.node_mut(slot).phase = Phase::Ready;
        self.ready.push_front(slot);
    }

    /// Counts a run or reservation of `slot` in at all ancestors.
    fn enter(&mut self, slot: u32) {
        let mut above = self.node(slot).parent;
        while let Some(ancestor) = above {
            let node = self.node_mut(ancestor);
            node.busy_below += 1;
            above = node.parent;
        }
    }

    /// The opposite of [`Self::enter`]; lines up the ancestors that waited for this.
    fn leave(&mut self, slot: u32) {
        let mut above = self.node(slot).parent;
        while let Some(ancestor) = above {
            let node = self.node_mut(ancestor);
            let Some(busy) = node.busy_below.checked_sub(1) else {
                unreachable!("every end of a run or reservation follows its start");
            };
            node.busy_below = busy;
            above = node.parent;
            if busy == 0 && node.phase == Phase::WaitingBelow {
                let since = node.since;
                self.waiting_below.remove(&(since, ancestor));
                self.ready_at_front(ancestor);
            }
        }
    }

    /// Holds back what shuts out those that have waited too long.
    fn reserve_overdue(&mut self) {
        let Some(overdue) = self.dispatches.checked_sub(DISPATCHES_WAITED_MAX) else { return };
        if self.waiting_below.first().is_none_or(|(since, _)| *since > overdue) {
            return;
        }
        let waiting: Vec<u32> =
            self.waiting_below.range(..=(overdue, u32::MAX)).map(|(_, slot)| *slot).collect();
        for slot in waiting {
            // One that is reserved stays so; one that waits for a reserved descendant has its turn
            // after that one.
            let id = self.node(slot).id;
            if self.reserved.iter().any(|reserved| self.node(*reserved).id.excludes(id)) {
                continue;
            }
            self.counters.kind_mut(id.kind()).reservations += 1;
            self.node_mut(slot).reserved = true;
            self.reserved.push(slot);
            self.enter(slot);
        }
    }

    pub(crate) fn suspend(&mut self, id: AffinityId) {
        self.node_mut(id.slot()).suspended += 1;
        self.suspended += 1;
    }

    pub(crate) fn resume(&mut self, id: AffinityId) {
        self.assert_live(id);
        self.node_mut(id.slot()).suspended -= 1;
        self.suspended -= 1;
    }
}

/// Puts a message into a queue at its place in the order of arrival. Mostly that is the front: what
/// is queued came while the message waited, and several are put in from the last to the first.
fn insert(queue: &mut VecDeque<Queued>, queued: Queued) {
    let is_first = queue.front().is_none_or(|front| front.arrival > queued.arrival);
    if is_first || mutation::broken(Rule::WaitersReversed) {
        return queue.push_front(queued);
    }
    let place = queue.partition_point(|other| other.arrival < queued.arrival);
    queue.insert(place, queued);
}

#[cfg(all(test, not(loom)))]
mod tests;
