//! Makes the life of a finding small: fewer rounds, no faults that do not matter, fewer operations.
//!
//! A smaller life counts if it ends with a finding of the same kind. What is left out shifts
//! moments, so each candidate is tried with a few schedules ([`crate::Reduction::salt`]) before it
//! is given up.
//!
//! Invariants: what is returned was lived and ends with such a finding; the same seed shrinks to
//! the same life.

use crate::runs::run::{Outcome, live_seed};
use crate::seed::finding::Finding;
use crate::seed::lives::Lives;
use crate::seed::reduction::{Calm, Reduction};
use std::collections::BTreeSet;

/// Schedules that a candidate is tried with.
const SALTS_MAX: u64 = 12;
/// Lives that shrinking takes at most.
const LIVES_MAX: u64 = 6_000;

/// Shrinks the life of a seed that ends with a finding; `None` if it does not. `progress` is told
/// each smaller life.
#[must_use]
pub fn shrink(seed: u64, lives: &Lives, progress: &mut dyn FnMut(&Reduction)) -> Option<Outcome> {
    let first = live_seed(seed, lives, false);
    first.finding.as_ref()?;
    let mut shrinking = Shrinking { seed, lives: lives.clone(), best: first, lived: 1, progress };
    shrinking.fewer_rounds();
    shrinking.calmer();
    shrinking.fewer_operations();
    shrinking.calmer();
    shrinking.fewer_operations();
    Some(shrinking.best)
}

struct Shrinking<'a> {
    seed: u64,
    lives: Lives,
    best: Outcome,
    lived: u64,
    progress: &'a mut dyn FnMut(&Reduction),
}

impl Shrinking<'_> {
    /// Whether a smaller life has the finding; then it is the best.
    fn accepts(&mut self, candidate: &Reduction) -> bool {
        let salt = self.lives.reduction.salt;
        for salt in std::iter::once(salt).chain((0..SALTS_MAX).filter(|other| *other != salt)) {
            if self.lived >= LIVES_MAX {
                return false;
            }
            self.lived += 1;
            let reduction = Reduction { salt, ..candidate.clone() };
            let lives = Lives { reduction, ..self.lives.clone() };
            let outcome = live_seed(self.seed, &lives, false);
            if kind(outcome.finding.as_ref()) == kind(self.best.finding.as_ref()) {
                (self.progress)(&lives.reduction);
                self.lives = lives;
                self.best = outcome;
                return true;
            }
        }
        false
    }

    fn fewer_rounds(&mut self) {
        // What comes after the finding is not lived anyway.
        let found = self.best.trace.round.max(1);
        for rounds in 1..=found {
            let candidate = Reduction { rounds: Some(rounds), ..self.lives.reduction.clone() };
            if self.accepts(&candidate) {
                return;
            }
        }
    }

    fn calmer(&mut self) {
        for calm in Calm::ALL {
            if self.lives.reduction.is_calm(calm) {
                continue;
            }
            let mut candidate = self.lives.reduction.clone();
            candidate.calm.insert(calm);
            self.accepts(&candidate);
        }
    }

    /// Leaves out operations: large runs of them first, then smaller ones, down to single ones.
    fn fewer_operations(&mut self) {
        let end = self.best.trace.operations_asked;
        let mut size = (end / 2).max(1);
        loop {
            let mut start = 0;
            while start < end {
                let run: BTreeSet<u64> = (start..(start + size).min(end)).collect();
                start += size;
                let skipped = &self.lives.reduction.skipped;
                if run.is_subset(skipped) {
                    continue;
                }
                let skipped = skipped.union(&run).copied().collect();
                let candidate = Reduction { skipped, ..self.lives.reduction.clone() };
                self.accepts(&candidate);
            }
            if size == 1 {
                return;
            }
            size = size.div_ceil(2);
            if size == 2 {
                size = 1;
            }
        }
    }
}

/// What kind of finding it is: what must stay the same while a life is shrunk.
fn kind(finding: Option<&Finding>) -> Option<String> {
    let finding = finding?;
    let text = finding.to_string();
    // Of what is described in words, the words without the numbers.
    let words = |text: &str| -> String {
        let line = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
        line.split(|letter: char| !letter.is_alphabetic())
            .filter(|word| !word.is_empty())
            .take(KIND_WORDS)
            .collect::<Vec<_>>()
            .join(" ")
    };
    Some(match finding {
        Finding::Panic(text) => {
            let place = text.lines().next().unwrap_or_default();
            format!("panic {place}")
        }
        Finding::Media(text) => format!("media {}", words(text)),
        Finding::Open(text) => format!("open {}", words(text)),
        Finding::Mismatch { .. } => "mismatch".to_owned(),
        Finding::Crash { .. } => "crash".to_owned(),
        Finding::Unreadable { .. } => "unreadable".to_owned(),
        _ => words(&text),
    })
}

/// Words of a text that make its kind.
const KIND_WORDS: usize = 5;
