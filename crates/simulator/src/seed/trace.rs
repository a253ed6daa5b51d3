//! What a seed's life left behind: a hash of every event, the last of them in words, and which of
//! the situations that matter were met.
//!
//! Invariants: the hash is a function of the events alone, so two runs of one seed that differ in
//! anything that was chosen, answered or found differ in it.

use std::collections::{BTreeMap, VecDeque};

/// Lines that are kept for the report of a finding.
const TAIL_LINES: usize = 40;

/// See the module.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    is_verbose: bool,
    tail: VecDeque<String>,
    met: BTreeMap<&'static str, u64>,
    /// Rounds begun.
    pub round: u64,
    /// Messages run and requests completed.
    pub step: u64,
    /// Operations answered.
    pub operations: u64,
    /// Power cuts.
    pub power_cuts: u64,
    /// The boundary at which the power went, if it was asked to go at one.
    pub boundary_cut: Option<u64>,
    /// Operations asked for or left out.
    pub operations_asked: u64,
    /// Moments at which what a power cut leaves had changed.
    pub boundaries: u64,
}

impl Trace {
    /// Empty. A verbose one prints every event to standard error.
    #[must_use]
    pub const fn new(is_verbose: bool) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            is_verbose,
            tail: VecDeque::new(),
            met: BTreeMap::new(),
            round: 0,
            step: 0,
            operations: 0,
            power_cuts: 0,
            boundary_cut: None,
            operations_asked: 0,
            boundaries: 0,
        }
    }

    /// Whether events are printed: then they may be described at more length.
    #[must_use]
    pub const fn is_verbose(&self) -> bool {
        self.is_verbose
    }

    /// An event without words.
    pub const fn fold(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25);
        self.hash ^= self.hash >> 32;
    }

    /// An event in words.
    pub fn note(&mut self, line: String) {
        let (words, rest) = line.as_bytes().as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        rest.iter().for_each(|byte| self.fold(u64::from(*byte)));
        let line = format!("round {} step {}: {line}", self.round, self.step);
        if self.is_verbose {
            eprintln!("{line}");
        }
        if self.tail.len() == TAIL_LINES {
            self.tail.pop_front();
        }
        self.tail.push_back(line);
    }

    /// Something for the reader of a verbose trace only.
    pub fn remark(&self, line: impl FnOnce() -> String) {
        if self.is_verbose {
            eprintln!("round {} step {}:   {}", self.round, self.step, line());
        }
    }

    /// A situation was met.
    pub fn meet(&mut self, what: &'static str) {
        self.meet_times(what, 1);
    }

    /// A situation was met so many times.
    pub fn meet_times(&mut self, what: &'static str, times: u64) {
        if times > 0 {
            *self.met.entry(what).or_default() += times;
        }
    }

    /// The hash of all events so far.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// The last events.
    pub fn tail(&self) -> impl Iterator<Item = &str> {
        self.tail.iter().map(String::as_str)
    }

    /// The situations that were met, and how often.
    pub fn met(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.met.iter().map(|(what, times)| (*what, *times))
    }
}

/// How often each situation was met: in how many seeds, and how many times.
#[derive(Clone, Default, Debug)]
pub struct Coverage(BTreeMap<&'static str, (u64, u64)>);

impl Coverage {
    /// Adds one seed.
    pub fn add(&mut self, trace: &Trace) {
        for (what, times) in trace.met() {
            let (seeds, total) = self.0.entry(what).or_default();
            *seeds += 1;
            *total += times;
        }
    }

    /// Seeds that met a situation.
    #[must_use]
    pub fn count(&self, what: &str) -> u64 {
        self.0.get(what).map_or(0, |(seeds, _)| *seeds)
    }

    /// All situations with the seeds and the times, by name.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        self.0.iter().map(|(what, (seeds, times))| (*what, *seeds, *times))
    }
}
