//! Populating the memory of blocks ahead of time.
//!
//! The system clears each page when it is touched first. On the path of a request that costs a
//! client more than all else that is done for it, and in a virtual machine, whose host has to find
//! the page as well, several times as much. So a thread has the pages populated before: from the
//! start on if the configuration says so, else once the node is used. A node that nobody uses takes
//! no more memory than its start did.
//!
//! Invariants: between two steps the thread waits as long as a step took, so it takes half of one
//! processor at the most, and leaves the address space to others half of the time. It ends when all
//! blocks have their memory, or the system refuses more.

use super::threads::{Ending, end, join};
use crate::memory;
use platform::Clock as _;
use platform::linux::SystemClock;
use platform::sync::{Condvar, Mutex};
use platform::thread::{JoinHandle, spawn};
use std::io;
use std::time::Duration;

/// How often the thread looks whether the node is used.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// How many more blocks than at its start have lived at one time in a node that counts as used: 16
/// MiB of them.
const USED_BLOCKS: u64 = 4096;

/// The thread.
pub(crate) struct Populating {
    thread: JoinHandle<()>,
    ending: Ending,
}

impl Populating {
    /// Has memory for `blocks_max` blocks populated, at once or when the node is used.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn start(blocks_max: u64, at_once: bool) -> io::Result<Self> {
        let ending = Ending::default();
        let same = Ending::clone(&ending);
        let thread = spawn("populate", move || populate(blocks_max, at_once, &same))?;
        Ok(Self { thread, ending })
    }

    /// Ends it, after the step that is under way.
    pub(crate) fn stop(self) {
        end(&self.ending);
        join(self.thread);
    }
}

fn populate(blocks_max: u64, at_once: bool, (ending, changed): &(Mutex<bool>, Condvar)) {
    let used_from = memory::peak_blocks() + USED_BLOCKS;
    let is_used = || at_once || memory::peak_blocks() >= used_from;
    let mut pause = Duration::ZERO;
    loop {
        {
            let mut held = ending.lock();
            if !*held {
                changed.wait_for(&mut held, pause);
            }
            if *held {
                return;
            }
        }
        if !is_used() {
            pause = LOOK_INTERVAL;
            continue;
        }
        let begin = SystemClock.monotonic_nanoseconds();
        if !memory::populate(blocks_max) {
            return;
        }
        pause = Duration::from_nanos(SystemClock.monotonic_nanoseconds() - begin);
    }
}
