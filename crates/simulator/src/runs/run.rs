//! Many seeds on many threads, each seed in a world of its own.
//!
//! Invariants: a panic ends its seed, not the run, and is a finding. Which thread lives a seed does
//! not change it.

use crate::life::live;
use crate::seed::finding::Finding;
use crate::seed::lives::{FrontEnd, Lives};
use crate::seed::reduction::Reduction;
use crate::seed::trace::{Coverage, Trace};
use platform::sync::Mutex;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static LIVES: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A seed's life with how it ended.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// What was left out.
    pub reduction: Reduction,
    /// What happened.
    pub trace: Trace,
    /// What was found.
    pub finding: Option<Finding>,
}

/// The whole of a run.
#[derive(Default, Debug)]
pub struct Summary {
    /// Seeds that were lived.
    pub seeds: u64,
    /// Operations answered.
    pub operations: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// The hashes of all traces together, in whichever order the lives ended: what must be the same
    /// for the same seeds.
    pub digest: u64,
    /// What was met.
    pub coverage: Coverage,
    /// The lives that ended with a finding, by seed.
    pub failures: Vec<Outcome>,
}

/// Lives one seed's life.
#[must_use]
pub fn live_seed(seed: u64, lives: &Lives, is_verbose: bool) -> Outcome {
    keep_panics();
    let mut trace = Trace::new(is_verbose);
    LIVES.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| match lives.front_end {
        FrontEnd::None if lives.operator => crate::operator::life::live(seed, lives, &mut trace),
        FrontEnd::None => live(seed, lives, &mut trace),
        FrontEnd::Nfs => crate::nfs::life::live(seed, lives, &mut trace),
    }));
    LIVES.set(false);
    let finding = match outcome {
        Ok(outcome) => outcome.err(),
        Err(_) => Some(Finding::Panic(PANIC.take())),
    };
    Outcome { seed, reduction: lives.reduction.clone(), trace, finding }
}

/// Panics of seeds' lives are kept for the report; others are printed as usual.
fn keep_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if LIVES.get() {
                let backtrace = std::backtrace::Backtrace::capture();
                PANIC.set(format!("{info}\n{backtrace}"));
            } else {
                usual(info);
            }
        }));
    });
}

/// Lives the seeds' lives on `jobs` threads; `progress` is called after each, with the summary so
/// far.
pub fn run(
    seeds: Range<u64>,
    lives: &Lives,
    jobs: usize,
    progress: &(dyn Fn(&Summary) + Sync),
) -> Summary {
    let summary = Mutex::new(Summary::default());
    live_all(seeds, lives, jobs, &|outcome| {
        let mut summary = summary.lock();
        summary.add(outcome);
        progress(&summary);
        true
    });
    let mut summary = summary.into_inner();
    summary.failures.sort_by_key(|outcome| outcome.seed);
    summary
}

/// Lives the seeds' lives on `jobs` threads until one finds something: the lowest that does.
pub fn first_finding(seeds: Range<u64>, lives: &Lives, jobs: usize) -> Option<Outcome> {
    let first: Mutex<Option<Outcome>> = Mutex::new(None);
    live_all(seeds, lives, jobs, &|outcome| {
        let mut first = first.lock();
        let is_earlier = first.as_ref().is_none_or(|found| outcome.seed < found.seed);
        if outcome.finding.is_some() && is_earlier {
            *first = Some(outcome);
        }
        first.is_none()
    });
    first.into_inner()
}

/// Lives seeds in their order, on several threads, as long as `is_going_on` says so.
fn live_all(
    seeds: Range<u64>,
    lives: &Lives,
    jobs: usize,
    is_going_on: &(dyn Fn(Outcome) -> bool + Sync),
) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    if !is_going_on(live_seed(seed, lives, false)) {
                        // Lower seeds are with their threads already.
                        next.fetch_max(seeds.end, Ordering::Relaxed);
                    }
                }
            });
        }
    });
}

impl Summary {
    /// Adds one life.
    pub fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.operations += outcome.trace.operations;
        self.power_cuts += outcome.trace.power_cuts;
        self.digest = self.digest.wrapping_add(outcome.trace.hash());
        self.coverage.add(&outcome.trace);
        if outcome.finding.is_some() {
            self.failures.push(outcome);
        }
    }
}

impl Outcome {
    /// The finding with where it happened, for a reader; nothing if there is none.
    #[must_use]
    pub fn report(&self) -> String {
        let Some(finding) = &self.finding else { return String::new() };
        let Trace { round, step, .. } = self.trace;
        let mut report = String::new();
        for line in self.trace.tail() {
            report.push_str(&format!("    {line}\n"));
        }
        let seed = self.seed;
        report.push_str(&format!("seed {seed}, round {round}, step {step}: {finding}\n"));
        report
    }
}
