//! Turns: which affinity is next, the start of its run and its end.
//!
//! Invariants: `begin` is the only way into a run and asserts that nothing shuts the affinity out;
//! every `begin` has one `end`.

use super::{Life, Phase, QUANTUM_MESSAGES_MAX, State, insert};
use crate::AffinityId;
use crate::message::Queued;
use std::collections::VecDeque;

impl State {
    /// Moves affinities that are shut out from the front of `ready` to where they wait; then the
    /// first, if any, can run.
    fn settle_front(&mut self) -> Option<u32> {
        if self.life == Life::Halted {
            return None;
        }
        self.reserve_overdue();
        while let Some(&slot) = self.ready.front() {
            let Some(blocker) = self.blocker(slot) else { return Some(slot) };
            self.ready.pop_front();
            self.park(slot, blocker);
        }
        None
    }

    /// The next affinity in line, now running, its first messages in `batch`.
    pub(crate) fn pick(&mut self, batch: &mut VecDeque<Queued>) -> Option<AffinityId> {
        let slot = self.settle_front()?;
        self.ready.pop_front();
        Some(self.begin_batch(slot, QUANTUM_MESSAGES_MAX, batch))
    }

    /// The affinity that `choose` selects by index among all that can run, now running, its first
    /// message in `batch`.
    pub(crate) fn pick_chosen(
        &mut self,
        choose: &mut dyn FnMut(&[AffinityId]) -> usize,
        batch: &mut VecDeque<Queued>,
    ) -> Option<AffinityId> {
        self.settle_front()?;
        let lined_up = std::mem::take(&mut self.ready);
        for slot in lined_up {
            match self.blocker(slot) {
                None => self.ready.push_back(slot),
                Some(blocker) => self.park(slot, blocker),
            }
        }
        let ready: Vec<AffinityId> = self.ready.iter().map(|slot| self.node(*slot).id).collect();
        let chosen = choose(&ready);
        let Some(slot) = self.ready.remove(chosen) else {
            panic!("the chooser chose {chosen} of {}", self.ready.len());
        };
        Some(self.begin_batch(slot, 1, batch))
    }

    fn begin_batch(
        &mut self,
        slot: u32,
        messages_max: usize,
        batch: &mut VecDeque<Queued>,
    ) -> AffinityId {
        assert!(batch.is_empty(), "a worker has finished its last batch");
        let node = self.node_mut(slot);
        assert!(!node.queue.is_empty(), "{} is in line without work", node.id);
        if node.queue.len() <= messages_max {
            std::mem::swap(&mut node.queue, batch);
        } else {
            batch.extend(node.queue.drain(..messages_max));
        }
        self.queued -= batch.len();
        self.begin(slot)
    }

    fn begin(&mut self, slot: u32) -> AffinityId {
        let node = self.node_mut(slot);
        let id = node.id;
        assert!(node.phase != Phase::Running && node.busy_below == 0, "{id} is shut out");
        node.phase = Phase::Running;
        // A reservation was counted above already; it turns into the run.
        if std::mem::take(&mut node.reserved) {
            self.reserved.retain(|reserved| *reserved != slot);
        } else {
            self.enter(slot);
        }
        self.dispatches += 1;
        self.running += 1;
        self.counters.kind_mut(id.kind()).turns += 1;
        id
    }

    /// Starts `id` at once if nothing is queued there and nothing shuts it out.
    pub(crate) fn begin_direct(&mut self, id: AffinityId) -> bool {
        self.assert_live(id);
        let slot = id.slot();
        if self.life == Life::Halted || self.node(slot).phase != Phase::Idle {
            return false;
        }
        // Messages that run on their senders' threads are turns like others: they too make way.
        self.reserve_overdue();
        if self.blocker(slot).is_some() {
            return false;
        }
        self.begin(slot);
        self.counters.kind_mut(id.kind()).direct_turns += 1;
        true
    }

    /// The affinities that run.
    pub(crate) fn running(&self) -> Vec<AffinityId> {
        let running = self.nodes.iter().filter(|node| node.phase == Phase::Running);
        running.map(|node| node.id).collect()
    }

    /// The affinities that could run now.
    pub(crate) fn ready(&self) -> Vec<AffinityId> {
        let free = self.ready.iter().filter(|slot| self.blocker(**slot).is_none());
        free.map(|slot| self.node(*slot).id).collect()
    }

    /// Starts the root alone.
    ///
    /// # Panics
    /// If anything runs.
    pub(crate) fn begin_exclusive(&mut self) -> AffinityId {
        assert!(self.running == 0, "exclusive access while {} affinities run", self.running);
        // Reservations are taken back: those that held them are in line, and the first overdue.
        for slot in std::mem::take(&mut self.reserved) {
            self.node_mut(slot).reserved = false;
            self.release(slot);
        }
        self.ready.retain(|slot| *slot != 0);
        self.begin(0)
    }

    /// Ends the turn of `id`: messages that it did not get to go back to their places in its queue,
    /// what waited for it gets in line, and so does the affinity itself, last, if it has work.
    /// After a halt the messages stay in `rest`.
    pub(crate) fn end(&mut self, id: AffinityId, rest: &mut VecDeque<Queued>) {
        let slot = id.slot();
        let node = self.node_mut(slot);
        assert!(node.phase == Phase::Running && node.id == id, "{id} does not run");
        node.phase = Phase::Idle;
        self.running -= 1;
        self.release(slot);
        if self.life == Life::Halted {
            return;
        }
        self.queued += rest.len();
        let node = self.node_mut(slot);
        while let Some(queued) = rest.pop_back() {
            insert(&mut node.queue, queued);
        }
        if !node.queue.is_empty() {
            self.line_up(slot);
        }
    }

    /// Lines up what waited for a run or reservation that has ended: in front what waited
    /// beneath, in the order in which it came, and before all of it an ancestor that can run now.
    fn release(&mut self, slot: u32) {
        let mut waiters = std::mem::take(&mut self.node_mut(slot).waiters);
        while let Some(waiter) = waiters.pop() {
            self.ready_at_front(waiter);
        }
        // The list's room is kept.
        self.node_mut(slot).waiters = waiters;
        self.leave(slot);
    }
}
