//! What following a score costs, of a thousand areas and of a million (FreeSpace section
//! 3.3).
//!
//! A *change* gives an area chosen by chance any score; the histogram with its list takes two pages
//! whatever their number.

use crate::freespace::plan::{Found, FreespaceBench};
use crate::freespace::variant::Progress;
use crate::node::BenchError;
use crate::summary::{Row, Series, Unit};
use allocator::{AreaHeap, Chance, Hbps};
use platform::Clock;
use platform::linux::SystemClock;

const AREAS: [u32; 2] = [1_000, 1_000_000];
/// Changes of a round.
const CHANGES: u64 = 1_000_000;
/// The free blocks of an empty area.
const SCORE_MAX: u32 = 32 << 10;

pub(super) fn run(bench: &FreespaceBench, progress: Progress<'_>) -> Result<Found, BenchError> {
    let mut rows = Vec::new();
    for areas in AREAS {
        progress(&format!("areas, {areas} of them"));
        rows.push(row("two pages", areas, sorted(areas, bench.rounds)));
        rows.push(row("heap", areas, heap(areas, bench.rounds)));
    }
    let note = "a change of the score of one area, whichever; two pages are 8 KiB for any number of \
                areas, a heap takes 12 bytes for each";
    Ok((rows, note.to_owned()))
}

fn row(what: &str, areas: u32, rounds: Vec<f64>) -> Row {
    let load = format!("areas: changes in the {what}, {areas} areas");
    Row { load, unit: Unit::Operations, ours: Series::of(rounds), beside: Vec::new() }
}

/// Changes a second, in each round.
fn rounds(
    areas: u32,
    scores: &mut [u32],
    rounds: usize,
    mut change: impl FnMut(u32, u32, u32),
) -> Vec<f64> {
    let mut chance = Chance::default();
    let mut round = |_| {
        let begin = SystemClock.monotonic_nanoseconds();
        for _ in 0..CHANGES {
            let area = chance.next(u64::from(areas)) as u32;
            let score = chance.next(u64::from(SCORE_MAX) + 1) as u32;
            let before = std::mem::replace(&mut scores[area as usize], score);
            change(area, before, score);
        }
        CHANGES as f64 * 1e9 / (SystemClock.monotonic_nanoseconds() - begin) as f64
    };
    (0..rounds).map(&mut round).collect()
}

fn scores(areas: u32) -> Vec<u32> {
    let mut chance = Chance::default();
    (0..areas).map(|_| chance.next(u64::from(SCORE_MAX) + 1) as u32).collect()
}

fn sorted(areas: u32, count: usize) -> Vec<f64> {
    let (mut scores, mut sorted) = (scores(areas), Hbps::new(SCORE_MAX));
    scores.iter().for_each(|score| sorted.count(1, *score));
    rounds(areas, &mut scores, count, |area, before, score| sorted.update(area, before, score))
}

fn heap(areas: u32, count: usize) -> Vec<f64> {
    let mut scores = scores(areas);
    let mut heap = AreaHeap::of(areas, |area| scores[area as usize]);
    rounds(areas, &mut scores, count, |area, _, score| heap.count(area, score))
}
