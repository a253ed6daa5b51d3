//! Mutual exclusion in a tetris, without waiting threads: work that must wait is queued. A group
//! can be closed for a moment, when its disks become more: then nothing is under way in any tetris
//! of it.

use crate::io::tetris::{ClosedGroup, Gate, Job};
use crate::io::{Io, State};
use crate::layout::TetrisId;
use std::sync::Arc;

impl State {
    fn is_written(&self, group: u32) -> bool {
        let mut tetrises = self.tetrises.iter().filter(|(tetris, _)| tetris.group == group);
        tetrises.any(|(_, tetris)| !tetris.filling.is_empty())
    }
}

impl Io {
    /// Runs the job as soon as it can have the tetris to itself.
    pub(crate) fn lock_tetris(self: &Arc<Self>, tetris: TetrisId, job: Job) {
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            let group = &mut state.gates[tetris.group as usize];
            if let Some(closed) = &mut group.closed {
                closed.held.push((tetris, job));
                return;
            }
            let entry = state.tetrises.entry(tetris).or_default();
            if entry.busy {
                entry.waiting.push_back(job);
                return;
            }
            entry.busy = true;
            group.busy_tetrises += 1;
        }
        job(self);
    }

    /// The job with the tetris is over; the next one runs.
    pub(crate) fn unlock_tetris(self: &Arc<Self>, tetris: TetrisId) {
        let next = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let Some(entry) = state.tetrises.get_mut(&tetris) else {
                unreachable!("a busy tetris is not forgotten")
            };
            assert!(entry.busy, "only the job that has the tetris gives it back");
            let next = entry.waiting.pop_front();
            entry.busy = next.is_some();
            if next.is_none() && entry.filling.is_empty() && entry.expected_blocks == 0 {
                state.tetrises.remove(&tetris);
            }
            let group = &mut state.gates[tetris.group as usize];
            group.busy_tetrises -= usize::from(next.is_none());
            let is_idle = group.busy_tetrises == 0;
            let closed = group.closed.as_mut().filter(|_| is_idle);
            next.or_else(|| closed.and_then(|closed| closed.when_idle.take()))
        };
        if let Some(job) = next {
            job(self);
        }
    }

    /// Runs the job when nothing is under way in a group; nothing begins until
    /// [`Self::open_group`].
    ///
    /// # Panics
    /// If the group is closed.
    pub(crate) fn close_group(self: &Arc<Self>, group: u32, job: Job) {
        let job = {
            let mut state = self.state.lock();
            let group = &mut state.gates[group as usize];
            assert!(group.closed.is_none(), "a group is closed once at a time");
            let (now, later) =
                if group.busy_tetrises == 0 { (Some(job), None) } else { (None, Some(job)) };
            group.closed = Some(ClosedGroup { when_idle: later, held: Vec::new() });
            now
        };
        if let Some(job) = job {
            job(self);
        }
    }

    /// Groups more, open and without anything under way.
    pub(crate) fn add_groups(&self, count: usize) {
        let new = std::iter::repeat_with(Gate::default).take(count);
        self.state.lock().gates.extend(new);
    }

    /// Forgets what was announced for the tetrises of a closed group, unless something is queued
    /// for one: then it says no.
    pub(crate) fn forget_group(&self, group: u32) -> bool {
        let mut state = self.state.lock();
        let is_written = state.is_written(group);
        if !is_written {
            state.tetrises.retain(|tetris, _| tetris.group != group);
        }
        !is_written
    }

    /// Whether something is queued for a tetris of a group.
    pub(crate) fn is_written(&self, group: u32) -> bool {
        self.state.lock().is_written(group)
    }

    /// Goes on with what waited.
    pub(crate) fn open_group(self: &Arc<Self>, group: u32) {
        let closed = self.state.lock().gates[group as usize].closed.take();
        for (tetris, job) in closed.into_iter().flat_map(|closed| closed.held) {
            self.lock_tetris(tetris, job);
        }
    }
}
