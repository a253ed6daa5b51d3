//! The summary of a soak in words: what was done, how starts went, and the medians of the first
//! quarter of the intervals beside those of the last, in which nothing may have grown.
//!
//! Invariants: intervals in which the server was killed are left out of the comparison.

use super::{INTERVAL_S, Life, Sample, Totals};
use crate::measure::{Class, ProcessUse};
use std::fmt::Write as _;

/// The middle of all, the upper one of two.
fn median(mut all: Vec<f64>) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// Medians of the first and the last quarter.
fn quarters<T>(all: &[T], of: impl Fn(&T) -> Option<f64>) -> Option<(f64, f64)> {
    let quarter = all.len() / 4;
    let middle = |part: &[T]| median(part.iter().filter_map(&of).collect());
    Some((middle(&all[..quarter])?, middle(&all[all.len() - quarter..])?))
}

/// The summary.
pub(super) fn summary(samples: &[Sample], lives: &[Life], totals: &Totals) -> String {
    let mut text = String::new();
    say_what_was_done(&mut text, samples, lives, totals);
    say_how_starts_went(&mut text, lives);
    compare_quarters(&mut text, samples, lives);
    text
}

fn say_what_was_done(text: &mut String, samples: &[Sample], lives: &[Life], totals: &Totals) {
    let minutes = samples.last().map_or(0, |sample| sample.elapsed_s) / 60;
    let starts_killed: u64 = lives.iter().map(|life| life.starts_killed).sum();
    let promises: u64 = lives.iter().map(|life| life.promises).sum();
    let nfs = totals.nfs;
    let snapshots = totals.snapshots;
    let _ = writeln!(
        text,
        "{minutes} minutes, {} kills under load, {starts_killed} more during starts: nothing lost.\n\
         NFS: {} calls answered; {} were repeated over kills, {} of them had been done before; \
         {} lost ranges written again; {} times everything compared.\n\
         FUSE: {} changes, {} reads; {promises} promises of programs kept.\n\
         Snapshots: {} taken, {} deleted, {} commands cut off by kills, {} comparisons.\n\
         The media: {} blocks right in the end.",
        lives.len(),
        nfs.answered,
        nfs.repeated,
        nfs.done_before,
        nfs.rewritten,
        nfs.recoveries,
        totals.fuse_operations,
        totals.fuse_reads,
        snapshots.taken,
        snapshots.deleted,
        snapshots.interrupted,
        snapshots.compared,
        totals.blocks_checked,
    );
}

fn say_how_starts_went(text: &mut String, lives: &[Life]) {
    let of_lives = |of: fn(&Life) -> u64| {
        let all: Vec<f64> = lives.iter().map(|life| of(life) as f64).collect();
        let most = all.iter().copied().fold(0.0, f64::max);
        (median(all).unwrap_or(0.0), most)
    };
    let replay = of_lives(|life| life.replay_ns / 1000);
    let start = of_lives(|life| life.start_ms);
    let _ = writeln!(
        text,
        "Replay: median {:.1} ms, at most {:.1} ms; from start to ready: median {} ms, at most {} ms.\n",
        replay.0 / 1e3,
        replay.1 / 1e3,
        start.0,
        start.1
    );
}

fn compare_quarters(text: &mut String, samples: &[Sample], lives: &[Life]) {
    let _ = writeln!(
        text,
        "{:<28} {:>14} {:>14} {:>9}",
        "median of intervals", "first quarter", "last quarter", "change"
    );
    let mut row = |name: &str, values: Option<(f64, f64)>| {
        let Some((first, last)) = values else { return };
        let change = if first > 0.0 { (last / first - 1.0) * 100.0 } else { 0.0 };
        let _ = writeln!(text, "{name:<28} {first:>14.1} {last:>14.1} {change:>+8.1}%");
    };
    let whole: Vec<&Sample> = samples.iter().filter(|sample| sample.is_whole).collect();
    let process = |of: fn(&ProcessUse) -> u64| {
        quarters(&whole, move |sample| sample.process.as_ref().map(|used| of(used) as f64))
    };
    row("RSS, MiB", process(|used| used.resident_kib / 1024));
    row(
        "RSS, most of a life, MiB",
        quarters(lives, |life| Some(life.resident_max_kib as f64 / 1024.0)),
    );
    row("open files", process(|used| used.files));
    row("threads", process(|used| used.threads));
    row(
        "operations a second",
        quarters(&whole, |sample| Some(sample.operations() as f64 / INTERVAL_S as f64)),
    );
    row(
        "longest CP, ms",
        quarters(&whole, |sample| {
            Some(sample.consistency_point_max_ns as f64 / 1e6).filter(|time| *time > 0.0)
        }),
    );
    row(
        "space used, MiB",
        quarters(&whole, |sample| sample.aggregate.map(|used| used.used_bytes as f64 / 1048576.0)),
    );
    for class in Class::ALL {
        let of = |sample: &&Sample| {
            let latency = sample.latencies[class as usize];
            (latency.count > 0).then_some(latency.p99_us as f64)
        };
        row(&format!("p99 {}, us", class.name()), quarters(&whole, of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarters_are_medians_of_the_first_and_the_last() {
        let all: Vec<u64> = (0..40).collect();
        assert_eq!(quarters(&all, |value| Some(*value as f64)), Some((5.0, 35.0)));
        assert_eq!(quarters(&all[..3], |value| Some(*value as f64)), None);
    }
}
