//! Runs a test's body in thousands of interleavings of its threads (shuttle).
//!
//! Invariant: each thread has the stack that it has by default in a test. Shuttle's own default is
//! 60 KiB: less than a simulated disk and a loader need, and beyond its end is no page that says so
//! (a run ends with a segmentation fault).
//!
//! Fails: panics with the schedule of the interleaving that broke an assertion.

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

const STACK_BYTES: usize = 2 << 20;
/// How often a schedule of probabilistic concurrency testing changes the thread: bugs of locks show
/// with few changes.
const DEPTH: usize = 4;

/// Runs `body` in `runs` random interleavings, and in as many that seldom change the thread.
pub fn check_interleavings(runs: usize, body: impl Fn() + Send + Sync + Copy + 'static) {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    Runner::new(RandomScheduler::new(runs), config.clone()).run(body);
    Runner::new(PctScheduler::new(DEPTH, runs), config).run(body);
}
