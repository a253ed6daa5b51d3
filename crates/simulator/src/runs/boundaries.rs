//! One seed's life, cut at each of its boundaries: every write and flush of consistency points and
//! log that is submitted or completes, from the making of the aggregate to a clean stop.
//!
//! The life is lived once to count them, then once for each, cut there and recovered. A request
//! that is under way at a cut is kept, lost or torn by the seed's choice, so a boundary inside of
//! one step, between two submissions, is among what the boundary after it may leave.
//!
//! Fails: with the first finding, and the boundary that leads to it.

use crate::runs::run::{Outcome, Summary, live_seed};
use crate::seed::lives::BoundaryCut;
use crate::seed::lives::Lives;

/// Lives one seed's life through all its boundaries; `step` of them at a time is skipped.
#[must_use]
pub fn live_boundaries(seed: u64, lives: &Lives, summary: &mut Summary) -> Option<Outcome> {
    let at = |cut| Lives { boundary: Some(cut), ..lives.clone() };
    let whole = live_seed(seed, &at(BoundaryCut::Nowhere), false);
    let boundaries = whole.trace.boundaries;
    if whole.finding.is_some() {
        return Some(whole);
    }
    summary.add(whole);
    for boundary in 1..=boundaries {
        let outcome = live_seed(seed, &at(BoundaryCut::At(boundary)), false);
        if outcome.finding.is_some() {
            return Some(outcome);
        }
        summary.add(outcome);
    }
    None
}
