//! What the threads of this process do, over a little time: samples of [`crate::stage`].
//!
//! A thread says in which stage it is, not whether it gets ahead there: it may wait for a client,
//! a lock or the kernel. The kernel says that. A thread that has a processor, or waits for nothing
//! but one, is *running*; one that sleeps in a stage is *asleep*.
//!
//! Invariants: no thread waits for a look at it. Fails: a thread that ended meanwhile is left out.

use crate::stage::{self, Queue, Stage};
use std::fs;

/// Sums over a number of samples.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Activity {
    /// Samples that were taken.
    pub samples: u64,
    /// Threads that ran in each stage, summed over the samples.
    pub running: [u64; Stage::ALL.len()],
    /// Threads that slept in each stage but [`Stage::Other`].
    pub asleep: [u64; Stage::ALL.len()],
    /// What waited in each queue.
    pub waiting: [u64; Queue::ALL.len()],
    /// Samples in which anything waited there.
    pub busy: [u64; Queue::ALL.len()],
}

impl Activity {
    /// Adds a sample: what goes on now.
    pub fn sample(&mut self) {
        self.samples += 1;
        for (thread, stage) in stage::threads() {
            let Some(is_running) = is_running(thread) else { continue };
            if is_running {
                self.running[stage as usize] += 1;
            } else if stage != Stage::Other {
                self.asleep[stage as usize] += 1;
            }
        }
        for queue in Queue::ALL {
            let length = queue.length();
            self.waiting[*queue as usize] += length;
            self.busy[*queue as usize] += u64::from(length > 0);
        }
    }

    /// Adds the samples of another.
    pub fn add(&mut self, other: &Self) {
        fn add(sums: &mut [u64], more: &[u64]) {
            sums.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        self.samples += other.samples;
        add(&mut self.running, &other.running);
        add(&mut self.asleep, &other.asleep);
        add(&mut self.waiting, &other.waiting);
        add(&mut self.busy, &other.busy);
    }
}

/// Whether a thread runs, or would if it had a processor; `None` if there is no such thread.
fn is_running(thread: i32) -> Option<bool> {
    let status = fs::read(format!("/proc/self/task/{thread}/stat")).ok()?;
    // The name before it is in brackets, and may have brackets in it.
    let end = status.iter().rposition(|byte| *byte == b')')?;
    Some(status.get(end + 2) == Some(&b'R'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Condvar, Mutex};
    use std::sync::Arc;

    #[test]
    fn a_thread_that_works_runs_and_one_that_waits_is_asleep() {
        let shared = Arc::new((Mutex::new((false, false)), Condvar::new()));
        let same = Arc::clone(&shared);
        let body = move || {
            let _stage = stage::enter(Stage::Parity);
            let (state, changed) = &*same;
            let mut state = state.lock();
            state.0 = true;
            changed.notify_all();
            while !state.1 {
                changed.wait(&mut state);
            }
        };
        let thread = crate::thread::spawn("waits", body).unwrap();
        let (state, changed) = &*shared;
        let mut held = state.lock();
        while !held.0 {
            changed.wait(&mut held);
        }
        drop(held);
        let _stage = stage::enter(Stage::Find);
        let mut activity = Activity::default();
        // It may still be on its way to sleep.
        while activity.asleep[Stage::Parity as usize] == 0 {
            activity.sample();
        }
        assert_eq!(activity.running[Stage::Find as usize], activity.samples, "that is this thread");
        state.lock().1 = true;
        changed.notify_all();
        thread.join().unwrap();
        let mut sum = activity.clone();
        sum.add(&activity);
        assert_eq!(sum.samples, 2 * activity.samples);
        assert_eq!(sum.running[Stage::Find as usize], sum.samples);
    }
}
