//! The strip chart: what clients see over a minute of load, above what consistency points do.
//!
//! Three connections load a node of our own at once: random unstable writes, random reads, and
//! creates. Latencies are summed up for each tenth of a second. The phases come out of the node's
//! log, which has their times by the same clock ([`aggregate`'s trace events]).
//!
//! Invariants: client and node are on one machine, so the monotonic clock is one. A tenth of a
//! second without an answer is a gap in the line and counts as a stall of that length in the next.
//!
//! [`aggregate`'s trace events]: ../../../aggregate/src/service/state.rs

use super::driver::{Load, run};
use super::session::Session;
use super::wire::{Call, Handle, Malformed, Reply, Stability};
use super::{NfsBench, our_server};
use crate::latency::Latencies;
use crate::machine::Machine;
use crate::measured::Measured;
use crate::node::BenchError;
use crate::numbers::Numbers;
use crate::summary::{Report, Row, Series, Unit};
use crate::svg::{Anchor, Picture};
use platform::Clock;
use platform::linux::SystemClock;
use std::path::Path;

const LENGTH_NANOSECONDS: u64 = 60_000_000_000;
const BUCKET_NANOSECONDS: u64 = 100_000_000;
/// Calls in flight of each connection.
const DEPTH: usize = 8;
const SMALL_BYTES: u32 = 4096;
/// What each connection does.
const KINDS: [(&str, Unit); 3] = [
    ("write 4K unstable d8", Unit::Operations),
    ("read 4K cached d8", Unit::Operations),
    ("create d8", Unit::Files),
];
/// Each phase and its colour.
const PHASES: [(&str, &str); 6] = [
    ("Freezing", "#d62728"),
    ("CleaningMembers", "#1f77b4"),
    ("CleaningAggregate", "#17becf"),
    ("Syncing", "#ff7f0e"),
    ("Sealing", "#8c564b"),
    ("Committing", "#9467bd"),
];
const WIDTH: f64 = 1000.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 15.0;
const PANEL_HEIGHT: f64 = 130.0;
const PANEL_GAP: f64 = 28.0;
const TOP: f64 = 44.0;
const STRIP_HEIGHT: f64 = 26.0;
/// The latencies at a panel's bottom and top, as powers of ten of nanoseconds: 10 us and 10 s.
const DECADES: (f64, f64) = (4.0, 10.0);

/// A tenth of a second of one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bucket {
    number: u64,
    p50: u64,
    p99: u64,
}

/// One connection's past.
#[derive(Default)]
struct History {
    buckets: Vec<Bucket>,
    number: u64,
    current: Latencies,
    total: Latencies,
}

impl History {
    fn record(&mut self, number: u64, nanoseconds: u64) {
        if number != self.number {
            self.close();
            self.number = number;
        }
        self.current.record(nanoseconds);
        self.total.record(nanoseconds);
    }

    fn close(&mut self) {
        let quantiles = (self.current.quantile(500), self.current.quantile(990));
        if let (Some(p50), Some(p99)) = quantiles {
            self.buckets.push(Bucket { number: self.number, p50, p99 });
        }
        self.current.clear();
    }
}

/// What the three connections do.
struct Mixed {
    file: Handle,
    directory: Handle,
    blocks: u64,
    numbers: Numbers,
    files: u64,
    begin: u64,
    histories: [History; KINDS.len()],
}

impl Load for Mixed {
    fn call(&mut self, lane: usize, call: Call<'_>) -> bool {
        let offset = self.numbers.next(self.blocks) * u64::from(SMALL_BYTES);
        match lane / DEPTH {
            0 => call.write(&self.file, offset, SMALL_BYTES, Stability::Unstable),
            1 => call.read(&self.file, offset, SMALL_BYTES),
            _ => {
                self.files += 1;
                call.create(&self.directory, &format!("file-{}", self.files));
            }
        }
        true
    }

    fn reply(&mut self, lane: usize, mut reply: Reply<'_>) -> Result<bool, Malformed> {
        match lane / DEPTH {
            0 if reply.written()?.0 != SMALL_BYTES => Err(Malformed),
            1 if reply.read()? != SMALL_BYTES => Err(Malformed),
            _ => Ok(true),
        }
    }

    fn ended(&mut self, lane: usize, now_nanoseconds: u64, nanoseconds: u64) {
        let number = now_nanoseconds.saturating_sub(self.begin) / BUCKET_NANOSECONDS;
        if let Some(history) = self.histories.get_mut(lane / DEPTH) {
            history.record(number, nanoseconds);
        }
    }
}

/// A phase of a consistency point, in nanoseconds since the beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PhaseSpan {
    phase: String,
    from: i64,
    to: i64,
}

/// Loads a node for a minute and draws what was seen into `file`.
///
/// # Errors
/// [`BenchError`].
pub fn strip_chart(
    bench: &NfsBench,
    file: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    let machine = Machine::here();
    progress("starting a node");
    let (node, target) = our_server(bench)?;
    let name = target.name.clone();
    progress("preparing");
    let mut session = Session::open(target, bench.node.file.0)?;
    progress("loading it for a minute");
    let (mixed, measured) =
        load(&mut session).map_err(|stopped| stopped.error("mixed load", &name))?;
    let log = node.map(|node| node.log()).unwrap_or_default();
    let spans = phases(&log, mixed.begin);
    let picture = draw(&machine, &mixed.histories, &spans);
    let what = "cannot write the chart";
    std::fs::write(file, picture).map_err(|error| BenchError::System { what, error })?;
    Ok(report(machine, mixed, &measured, &spans, file))
}

fn load(session: &mut Session) -> Result<(Mixed, Measured), super::driver::Stopped> {
    let directory = session.new_directory()?;
    session.connect(KINDS.len())?;
    let mut mixed = Mixed {
        file: session.file,
        directory,
        blocks: session.file_bytes / u64::from(SMALL_BYTES),
        numbers: Numbers::new(5),
        files: 0,
        begin: SystemClock.monotonic_nanoseconds(),
        histories: Default::default(),
    };
    let measured = run(&mut session.connections, DEPTH, Some(LENGTH_NANOSECONDS), &mut mixed)?;
    mixed.histories.iter_mut().for_each(History::close);
    Ok((mixed, measured))
}

/// The value of `key` in a line of JSON: what follows it up to a comma, brace or quote.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{key}\":"))?;
    let rest = rest.strip_prefix('"').unwrap_or(rest);
    rest.split([',', '}', '"']).next()
}

/// The phases within the load, out of the node's log.
fn phases(log: &str, begin: u64) -> Vec<PhaseSpan> {
    let changes = log.lines().filter_map(|line| {
        let phase = field(line, "phase")?;
        let at: u64 = field(line, "nanoseconds")?.parse().ok()?;
        Some((phase.to_owned(), at as i64 - begin as i64))
    });
    let changes: Vec<(String, i64)> = changes.collect();
    let pairs = changes.windows(2).filter_map(|pair| match pair {
        [(phase, from), (_, to)] => Some(PhaseSpan { phase: phase.clone(), from: *from, to: *to }),
        _ => None,
    });
    let end = LENGTH_NANOSECONDS as i64;
    pairs.filter(|span| span.phase != "Idle" && span.to > 0 && span.from < end).collect()
}

fn report(
    machine: Machine,
    mixed: Mixed,
    measured: &Measured,
    spans: &[PhaseSpan],
    file: &Path,
) -> Report {
    let rows = KINDS.iter().zip(mixed.histories).map(|((load, unit), history)| {
        let rate = history.total.total() as f64 * 1e9 / measured.nanoseconds.max(1) as f64;
        let ours = Series { rounds: vec![rate], latencies: history.total, ..Series::default() };
        Row { load: (*load).to_owned(), unit: *unit, ours, beside: Vec::new() }
    });
    let rows = rows.collect();
    let points = spans.iter().filter(|span| span.phase == "Freezing").count();
    let busy: i64 = spans.iter().map(|span| span.to - span.from).sum();
    let notes = vec![
        format!("all three at once, for {} s, on one node", LENGTH_NANOSECONDS / 1_000_000_000),
        format!("{points} consistency points began; one ran for {} ms in all", busy / 1_000_000),
        format!("chart: {}", file.display()),
    ];
    Report { machine, rows, notes, spans: Vec::new() }
}

fn x(nanoseconds: f64) -> f64 {
    let share = (nanoseconds / LENGTH_NANOSECONDS as f64).clamp(0.0, 1.0);
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn y(top: f64, nanoseconds: u64) -> f64 {
    let power = (nanoseconds.max(1) as f64).log10().clamp(DECADES.0, DECADES.1);
    top + PANEL_HEIGHT * (1.0 - (power - DECADES.0) / (DECADES.1 - DECADES.0))
}

fn draw(machine: &Machine, histories: &[History], spans: &[PhaseSpan]) -> String {
    let strip = TOP + histories.len() as f64 * (PANEL_HEIGHT + PANEL_GAP);
    let mut picture = Picture::new(WIDTH, strip + STRIP_HEIGHT + 52.0);
    let title = format!(
        "Client latency of each tenth of a second (p50 dark, p99 light) and consistency points; \
         commit {}, {} cores{}",
        machine.commit,
        machine.cores,
        if machine.is_contended() { ", contended machine" } else { "" }
    );
    picture.text((LEFT, 20.0), 13.0, Anchor::Start, &title);
    for (number, (history, (name, _))) in histories.iter().zip(KINDS).enumerate() {
        let top = TOP + number as f64 * (PANEL_HEIGHT + PANEL_GAP);
        panel(&mut picture, top, name, history, spans);
    }
    phase_strip(&mut picture, strip, spans);
    picture.finish()
}

fn panel(picture: &mut Picture, top: f64, name: &str, history: &History, spans: &[PhaseSpan]) {
    // A consistency point is one box, from its first phase to its last.
    for point in spans.chunk_by(|one, next| one.to == next.from) {
        let (Some(first), Some(last)) = (point.first(), point.last()) else { continue };
        let (from, to) = (x(first.from as f64), x(last.to as f64));
        picture.rectangle((from, top), (to - from, PANEL_HEIGHT), "#000000", 0.06);
    }
    for (power, label) in (4..=10).zip(["10us", "100us", "1ms", "10ms", "100ms", "1s", "10s"]) {
        let height = y(top, 10_u64.pow(power));
        picture.line(&[(LEFT, height), (WIDTH - RIGHT, height)], "#dddddd", 0.5);
        picture.text((LEFT - 6.0, height + 3.5), 10.0, Anchor::End, label);
    }
    let shown =
        |latencies: &Latencies, thousandths| latencies.quantile(thousandths).unwrap_or(0) / 1_000;
    let label = format!(
        "{name}: {} answers, p50 {} us, p99 {} us, longest {} us",
        history.total.total(),
        shown(&history.total, 500),
        shown(&history.total, 990),
        shown(&history.total, 1000),
    );
    picture.text((LEFT, top - 5.0), 11.0, Anchor::Start, &label);
    let middle = |bucket: &Bucket| x((bucket.number as f64 + 0.5) * BUCKET_NANOSECONDS as f64);
    // A line is interrupted where a tenth of a second had no answer.
    for run in history.buckets.chunk_by(|one, next| one.number + 1 == next.number) {
        let p99: Vec<_> = run.iter().map(|bucket| (middle(bucket), y(top, bucket.p99))).collect();
        let p50: Vec<_> = run.iter().map(|bucket| (middle(bucket), y(top, bucket.p50))).collect();
        picture.line(&visible(p99), "#f4a261", 1.0);
        picture.line(&visible(p50), "#264653", 1.2);
    }
}

/// A single point would be a line of no length.
fn visible(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if let [(x, y)] = points[..] {
        points.push((x + 1.0, y));
    }
    points
}

fn phase_strip(picture: &mut Picture, top: f64, spans: &[PhaseSpan]) {
    picture.text((LEFT - 6.0, top + 16.0), 10.0, Anchor::End, "CP phase");
    for span in spans {
        let colour = PHASES.iter().find(|(name, _)| *name == span.phase);
        let (from, to) = (x(span.from as f64), x(span.to as f64));
        let fill = colour.map_or("#888888", |(_, colour)| colour);
        picture.rectangle((from, top), ((to - from).max(0.3), STRIP_HEIGHT), fill, 1.0);
    }
    let mut seconds = 0;
    while seconds <= LENGTH_NANOSECONDS / 1_000_000_000 {
        let place = (x(seconds as f64 * 1e9), top + STRIP_HEIGHT + 14.0);
        let anchor = if seconds == 0 { Anchor::Start } else { Anchor::End };
        picture.text(place, 10.0, anchor, &format!("{seconds} s"));
        seconds += 10;
    }
    let mut left = LEFT;
    for (name, colour) in PHASES {
        let line = top + STRIP_HEIGHT + 28.0;
        picture.rectangle((left, line), (12.0, 12.0), colour, 1.0);
        picture.text((left + 17.0, line + 10.0), 11.0, Anchor::Start, name);
        left += 150.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_read_out_of_the_log() {
        let line = |phase: &str, at: u64| {
            format!(
                "{{\"fields\":{{\"message\":\"x\",\"phase\":\"{phase}\",\"nanoseconds\":{at}}}}}"
            )
        };
        let log = [
            line("Freezing", 1_000),
            "not JSON".to_owned(),
            line("Syncing", 1_500),
            line("Idle", 2_500),
            line("Freezing", 9_000),
        ]
        .join("\n");
        let span = |phase: &str, from, to| PhaseSpan { phase: phase.to_owned(), from, to };
        assert_eq!(phases(&log, 1_200), [span("Freezing", -200, 300), span("Syncing", 300, 1_300)]);
        assert_eq!(phases("", 0), []);
    }

    #[test]
    fn a_tenth_of_a_second_is_one_point() {
        let mut history = History::default();
        for (number, nanoseconds) in [(0, 1_000), (0, 2_000), (3, 5_000_000)] {
            history.record(number, nanoseconds);
        }
        history.close();
        assert_eq!(history.buckets.iter().map(|bucket| bucket.number).collect::<Vec<_>>(), [0, 3]);
        let text = draw(&Machine::here(), &[history], &[]);
        assert!(text.contains("write 4K unstable d8: 3 answers"), "{text}");
    }
}
