//! The figures of a soak: a line for each interval and each life as CSV, a summary that compares
//! the first quarter with the last, and a picture.
//!
//! Invariants: every figure is measured; what was not measured is an empty cell.
//!
//! Fails: [`Failure::Machine`] if a file cannot be written.

mod picture;
mod summary;

use super::control::Control;
use super::mirror;
use super::snapshots;
use crate::Failure;
use crate::measure::{AggregateUse, Class, Latency, ProcessUse, Recorder, now_ns};
use crate::node::CommandLine;
use crate::programs::Kind;
use platform::thread::{JoinHandle, spawn};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Length of an interval.
const INTERVAL_S: u64 = 10;
/// How often the status is asked within it, to see most consistency points.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// One interval.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its end, since the beginning.
    pub elapsed_s: u64,
    /// Which life of the server, and whether it lived throughout.
    pub life: u64,
    /// See `life`.
    pub is_whole: bool,
    /// Of the process, at the end.
    pub process: Option<ProcessUse>,
    /// Of the aggregate, at the end.
    pub aggregate: Option<AggregateUse>,
    /// Consistency points that ended within it.
    pub consistency_points: u64,
    /// The longest that was seen.
    pub consistency_point_max_ns: u64,
    /// The fullest that the log was seen, in bytes.
    pub log_used_max_bytes: u64,
    /// By class.
    pub latencies: [Latency; Class::ALL.len()],
    /// Calls that had to be sent again.
    pub over_kills: u64,
}

impl Sample {
    /// Operations answered.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.latencies.iter().map(|latency| latency.count).sum()
    }
}

/// One life of the server, and the start after it.
#[derive(Clone, Copy, Default, Debug)]
pub struct Life {
    /// When it was killed, since the beginning.
    pub killed_at_s: u64,
    /// How long it worked.
    pub lived_ms: u64,
    /// The most memory that it had.
    pub resident_max_kib: u64,
    /// From the kill until the next one was ready, checks of the media included.
    pub outage_ms: u64,
    /// The start that got to its end.
    pub start_ms: u64,
    /// What it replayed.
    pub replayed: u64,
    /// In this time.
    pub replay_ns: u64,
    /// Starts that were killed, too.
    pub starts_killed: u64,
    /// Blocks that the independent reader checked.
    pub blocks_checked: u64,
    /// What the program had promised.
    pub promises: u64,
    /// How long comparing took.
    pub verify_ms: u64,
}

impl Life {
    /// It in words.
    #[must_use]
    pub fn sentence(&self, program: Option<Kind>) -> String {
        let mut text = format!(
            "lived {:.1} s with {} ({} promises), at most {} MiB; {} replayed in {:.1} ms, ready {} ms \
             after its start, compared in {} ms",
            self.lived_ms as f64 / 1e3,
            program.map_or_else(|| "no program".to_owned(), |kind| format!("{kind:?}")),
            self.promises,
            self.resident_max_kib / 1024,
            self.replayed,
            self.replay_ns as f64 / 1e6,
            self.start_ms,
            self.verify_ms,
        );
        if self.starts_killed > 0 {
            let _ = write!(text, "; {} starts killed", self.starts_killed);
        }
        if self.blocks_checked > 0 {
            let _ = write!(text, "; {} blocks checked", self.blocks_checked);
        }
        text
    }
}

/// Of the whole run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    nfs: mirror::Counts,
    /// Changes over FUSE.
    pub fuse_operations: u64,
    /// Reads over FUSE.
    pub fuse_reads: u64,
    /// Snapshots.
    pub snapshots: snapshots::Counts,
    /// Blocks that the independent reader checked in the end.
    pub blocks_checked: u64,
}

impl Totals {
    /// Adds what a client did.
    pub fn add(&mut self, counts: mirror::Counts) {
        self.nfs.answered += counts.answered;
        self.nfs.repeated += counts.repeated;
        self.nfs.done_before += counts.done_before;
        self.nfs.rewritten += counts.rewritten;
        self.nfs.recoveries += counts.recoveries;
    }
}

/// See the module.
pub struct Report {
    directory: PathBuf,
    sampler: JoinHandle<Vec<Sample>>,
    stop: Sender<()>,
}

impl Report {
    /// Begins to take samples.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn begin(
        directory: &Path,
        commands: CommandLine,
        control: Arc<Control>,
        recorder: Arc<Recorder>,
    ) -> Result<Self, Failure> {
        fs::create_dir_all(directory).map_err(Failure::at("make", directory))?;
        let path = directory.join("soak.csv");
        let mut file = File::create(&path).map_err(Failure::at("make", &path))?;
        writeln!(file, "{}", header()).map_err(Failure::at("write", &path))?;
        let (stop, stopped) = channel::<()>();
        let began_ns = now_ns();
        let body = move || {
            let mut samples = Vec::new();
            recorder.take();
            loop {
                let wait = |time| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
                let end_ns = began_ns + (samples.len() as u64 + 1) * INTERVAL_S * 1_000_000_000;
                let Some(mut sample) = take_sample(&commands, &control, &recorder, end_ns, &wait)
                else {
                    return samples;
                };
                sample.elapsed_s = (samples.len() as u64 + 1) * INTERVAL_S;
                // Lost lines are missed by whoever reads them; the run goes on.
                let _ = writeln!(file, "{}", line(&sample));
                samples.push(sample);
            }
        };
        let sampler = spawn("samples", body).map_err(Failure::machine("start a thread"))?;
        Ok(Self { directory: directory.to_owned(), sampler, stop })
    }

    /// Ends it; the summary, which is also written down.
    ///
    /// # Errors
    /// [`Failure::Machine`].
    pub fn end(self, lives: &[Life], totals: &Totals) -> Result<String, Failure> {
        drop(self.stop);
        let Ok(samples) = self.sampler.join() else { panic!("the sampler panicked") };
        let write = |name: &str, text: &str| {
            let path = self.directory.join(name);
            fs::write(&path, text).map_err(Failure::at("write", &path))
        };
        let summary = summary::summary(&samples, lives, totals);
        write("lives.csv", &lives_table(lives))?;
        write("soak.svg", &picture::picture(&samples, lives))?;
        write("soak.txt", &summary)?;
        Ok(summary)
    }
}

/// One interval, unless the run ends before it does.
fn take_sample(
    commands: &CommandLine,
    control: &Control,
    recorder: &Recorder,
    end_ns: u64,
    wait: &dyn Fn(Duration) -> bool,
) -> Option<Sample> {
    let life = control.life();
    let was_steady = control.steady_ns().is_some();
    let mut aggregate: Option<AggregateUse> = None;
    let mut first_consistency_point = None;
    let (mut consistency_point_max_ns, mut log_used_max_bytes) = (0, 0);
    loop {
        let left = Duration::from_nanos(end_ns.saturating_sub(now_ns()));
        if left.is_zero() {
            break;
        }
        if !wait(left.min(STATUS_EVERY)) {
            return None;
        }
        if control.steady_ns().is_none() {
            continue;
        }
        // It may be killed while it is asked.
        let status = commands.json(&["status"]).ok();
        let Some(used) = status.and_then(|status| AggregateUse::of(&status)) else { continue };
        if *first_consistency_point.get_or_insert(used.consistency_point) != used.consistency_point
        {
            consistency_point_max_ns = consistency_point_max_ns.max(used.consistency_point_ns);
        }
        log_used_max_bytes = log_used_max_bytes.max(used.log_used_bytes);
        aggregate = Some(used);
    }
    let (latencies, over_kills) = recorder.take();
    let last = aggregate.map_or(0, |used| used.consistency_point);
    Some(Sample {
        elapsed_s: 0,
        life,
        is_whole: was_steady && !control.is_over(life),
        process: control.process().and_then(ProcessUse::read),
        aggregate,
        consistency_points: first_consistency_point.map_or(0, |first| last.saturating_sub(first)),
        consistency_point_max_ns,
        log_used_max_bytes,
        latencies,
        over_kills,
    })
}

fn header() -> String {
    let mut text = "elapsed_s,life,is_whole,rss_kib,hwm_kib,files,threads,log_used_max_bytes,\
                    log_size_bytes,used_bytes,cache_bytes,cps,cp_max_us,over_kills"
        .to_owned();
    for class in Class::ALL {
        let name = class.name();
        let _ = write!(text, ",{name}_count,{name}_p50_us,{name}_p99_us,{name}_max_us");
    }
    text
}

fn line(sample: &Sample) -> String {
    let cell = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let process = |of: fn(&ProcessUse) -> u64| cell(sample.process.as_ref().map(of));
    let aggregate = |of: fn(&AggregateUse) -> u64| cell(sample.aggregate.as_ref().map(of));
    let mut cells = vec![
        sample.elapsed_s.to_string(),
        sample.life.to_string(),
        u8::from(sample.is_whole).to_string(),
        process(|used| used.resident_kib),
        process(|used| used.resident_max_kib),
        process(|used| used.files),
        process(|used| used.threads),
        sample.log_used_max_bytes.to_string(),
        aggregate(|used| used.log_size_bytes),
        aggregate(|used| used.used_bytes),
        aggregate(|used| used.cache_bytes),
        sample.consistency_points.to_string(),
        (sample.consistency_point_max_ns / 1000).to_string(),
        sample.over_kills.to_string(),
    ];
    for latency in sample.latencies {
        let is_measured = latency.count > 0;
        cells.push(latency.count.to_string());
        for value in [latency.median_us, latency.p99_us, latency.max_us] {
            cells.push(cell(is_measured.then_some(value)));
        }
    }
    cells.join(",")
}

fn lives_table(lives: &[Life]) -> String {
    let mut text = "killed_at_s,lived_ms,rss_max_kib,outage_ms,start_ms,replayed,replay_us,\
                    starts_killed,blocks_checked,promises,verify_ms\n"
        .to_owned();
    for life in lives {
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{},{}",
            life.killed_at_s,
            life.lived_ms,
            life.resident_max_kib,
            life.outage_ms,
            life.start_ms,
            life.replayed,
            life.replay_ns / 1000,
            life.starts_killed,
            life.blocks_checked,
            life.promises,
            life.verify_ms
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_cell_for_each_name_in_the_header() {
        let sample = Sample {
            elapsed_s: 10,
            life: 0,
            is_whole: false,
            process: None,
            aggregate: None,
            consistency_points: 0,
            consistency_point_max_ns: 0,
            log_used_max_bytes: 0,
            latencies: [Latency::default(); Class::ALL.len()],
            over_kills: 0,
        };
        assert_eq!(line(&sample).split(',').count(), header().split(',').count());
    }
}
