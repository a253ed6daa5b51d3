//! `stroop serve --activity FILE`: what the server's threads do over time, for finding out where
//! time goes (`stroop bench streams` does).
//!
//! A line is an object of JSON for some ten milliseconds: when they ended and how much processor
//! time the process had used then, both in nanoseconds, how many samples were taken, and sums over
//! them ([`Activity`]). What is zero is left out.
//!
//! The looking takes a few percent of a processor, which is not in the processor time.
//!
//! Invariants: an existing file is not written to; a file has no more than [`FILE_BYTES_MAX`].
//! Fails: when the file cannot be made; one that cannot be written on is left as it is, which is
//! logged, and the server goes on.

use crate::node::Watcher;
use admin_api::{AdminError, Code};
use platform::Clock as _;
use platform::linux::{Activity, SystemClock};
use platform::stage::{Queue, Stage};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

/// Time between two samples: a few for each batch of writes of a disk.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(5);
/// Samples of a line.
const LINE_SAMPLES: u64 = 2;
/// Where the file ends: some hours of lines.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Writes the file until it is stopped.
///
/// # Errors
/// When the file, or the thread, cannot be made.
pub(crate) fn start(path: &Path) -> Result<Watcher, AdminError> {
    let failed = |error: std::io::Error| {
        let shown = path.display().to_string();
        AdminError::new(Code::Failed, "cannot make the file", shown).because(error.to_string())
    };
    let mut file = Some(File::create_new(path).map_err(failed)?);
    let mut bytes_left = FILE_BYTES_MAX;
    let mut activity = Activity::default();
    let work = move || {
        activity.sample();
        if activity.samples < LINE_SAMPLES {
            return;
        }
        let line = format!("{}\n", line(&std::mem::take(&mut activity)));
        let Some(open) = &mut file else { return };
        let Some(left) = bytes_left.checked_sub(line.len() as u64) else {
            tracing::warn!(bytes = FILE_BYTES_MAX, "the file of what threads do is full");
            file = None;
            return;
        };
        bytes_left = left;
        if let Err(error) = open.write_all(line.as_bytes()) {
            tracing::warn!(%error, "what threads do is written down no more");
            file = None;
        }
    };
    Watcher::start("activity", SAMPLE_INTERVAL, work).map_err(failed)
}

fn line(activity: &Activity) -> Value {
    let time = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    // Without that of this thread, which only looks.
    let of_this_thread = time(ClockId::ThreadCPUTime);
    let of_process = time(ClockId::ProcessCPUTime);
    let processor_nanoseconds = of_process.saturating_sub(of_this_thread);
    let stages = |sums: &[u64]| named(Stage::ALL.iter().map(|stage| stage.name()), sums);
    let queues = |sums: &[u64]| named(Queue::ALL.iter().map(|queue| queue.name()), sums);
    json!({
        "monotonic_ns": SystemClock.monotonic_nanoseconds(),
        "processor_ns": processor_nanoseconds,
        "samples": activity.samples,
        "running": stages(&activity.running),
        "asleep": stages(&activity.asleep),
        "waiting": queues(&activity.waiting),
        "busy": queues(&activity.busy),
    })
}

fn named<'a>(names: impl Iterator<Item = &'a str>, sums: &[u64]) -> Map<String, Value> {
    let some = names.zip(sums).filter(|(_, sum)| **sum > 0);
    some.map(|(name, sum)| (name.to_owned(), Value::from(*sum))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_what_goes_on_and_a_file_that_is_there_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("activity");
        let _stage = platform::stage::enter(Stage::Copy);
        let watcher = start(&path).unwrap();
        let read = || std::fs::read_to_string(&path).unwrap();
        while !read().contains('\n') {
            std::thread::yield_now();
        }
        watcher.stop();
        let first: Value = serde_json::from_str(read().lines().next().unwrap()).unwrap();
        assert_eq!(first["samples"], json!(LINE_SAMPLES));
        let seen = |what: &str| first[what]["copy"].as_u64().unwrap_or(0);
        assert!(seen("running") + seen("asleep") >= LINE_SAMPLES, "{first}");
        assert!(first["monotonic_ns"].as_u64().unwrap() > 0 && first["waiting"].is_object());
        let refused = start(&path).err().unwrap();
        assert!(refused.to_string().contains("activity"), "{refused}");
    }
}
