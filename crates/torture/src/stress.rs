//! The engine on real threads: what one thread cannot show.
//!
//! The simulator runs the engine on one thread, so a race between two is invisible to it. Here the
//! same engine has workers, a ticker, threads of its disks and client threads that make overlapping
//! operations; it is stopped or killed every few seconds and started again. Under ThreadSanitizer
//! (`scripts/stress-tsan.sh`) each access that no lock orders is a report.
//!
//! | module | what |
//! | --- | --- |
//! | [`answer`] | waiting for an answer that a kill may swallow |
//! | [`media`] | disks in memory with power cuts, disks in files behind gates |
//! | [`node`] | an engine with its threads, for one life |
//! | [`own`], [`content`] | files that one client changes: every byte is known |
//! | [`shared`] | names and files that all clients change: what may never be seen |
//!
//! Invariants: what is checked follows from answers alone, never from times; a seed makes the same
//! choices again, though the order of the threads is the machine's.
//!
//! Fails: [`Failure`], at the first finding. A thread that panics ends the process, and so does
//! a run in which no operation was answered for [`STALL_SECONDS_MAX`] (it prints what it knows
//! first).

mod abort;
pub mod answer;
pub mod content;
pub mod media;
pub mod node;
pub mod own;
pub mod shared;

use crate::Failure;
use crate::random::Random;
use abort::AbortOnPanic;
use inspect::{Finding, Inspector};
use media::{End, Media, Place, Sizes};
use node::{AGGREGATE, Node, SHARED, Variety};
use ondisk::label::RaidKind;
use own::Own;
use platform::Clock as _;
use platform::linux::SystemClock;
use platform::sync::{Condvar, Mutex};
use platform::thread::spawn;
use raid::ScrubOrder;
use shared::{Shared, check_tree};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use volume::SnapshotRequest;

/// A run in which nothing is answered for so long hangs.
pub const STALL_SECONDS_MAX: u64 = 300;
/// Between looks of the administrator.
const PAUSE: Duration = Duration::from_millis(20);
/// Lives of one aggregate, before another is made.
const LIVES: u64 = 8;
const DISKS: Sizes = Sizes { disks: 4, disk_blocks: 12_288, log_blocks: 1412 };
const VOLUME_BLOCKS: u64 = 16_384;
/// Of the engine's memory, the least is what one operation needs.
const MEMORY_BYTES: [u64; 4] = [1 << 20, 2 << 20, 4 << 20, 16 << 20];
const KINDS: [RaidKind; 3] = [RaidKind::Raid4, RaidKind::Dp, RaidKind::None];

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How long.
    pub duration: Duration,
    /// How long a life is.
    pub life: Duration,
    /// Where choices come from.
    pub seed: u64,
    /// Threads of clients.
    pub clients: usize,
    /// Where disks are; each aggregate is made at the next.
    pub places: Vec<Place>,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Operations that were answered.
    pub operations: u64,
    /// Aggregates that were made.
    pub aggregates: u64,
    /// Clean stops.
    pub stops: u64,
    /// Ends as of a process.
    pub kills: u64,
    /// Ends as of the power.
    pub cuts: u64,
    /// Operations that starts replayed.
    pub replayed: u64,
    /// Consistency points.
    pub consistency_points: u64,
    /// Times that the independent reader found nothing.
    pub inspections: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} operations, {} consistency points, {} aggregates, {} stops, {} kills, {} power \
             cuts, {} operations replayed, {} inspections",
            self.operations,
            self.consistency_points,
            self.aggregates,
            self.stops,
            self.kills,
            self.cuts,
            self.replayed,
            self.inspections
        )
    }
}

/// Runs; `say` is told of each life.
///
/// # Errors
/// The first finding.
pub fn run(plan: &Plan, say: &mut dyn FnMut(&str)) -> Result<Summary, Failure> {
    let clock = SystemClock;
    let end = clock.monotonic_nanoseconds() + plan.duration.as_nanos() as u64;
    let mut summary = Summary::default();
    let mut random = Random::new(plan.seed);
    let answered = Arc::new(AtomicU64::new(0));
    let _watchdog = Watchdog::start(&answered)?;
    let is_over = || clock.monotonic_nanoseconds() >= end;
    while !is_over() {
        let number = summary.aggregates as usize;
        let place = &plan.places[number % plan.places.len()];
        let media = Media::new(place, DISKS, random.number())?;
        let kind = KINDS[number % KINDS.len()];
        let clients = (0..plan.clients).map(|number| Own::new(number, random.number())).collect();
        let mut lives = Lives {
            plan,
            media,
            clients,
            random: &mut random,
            summary: &mut summary,
            answered: &answered,
        };
        lives.begin(kind)?;
        for life in 0..LIVES {
            lives.live()?;
            say(&format!("{kind:?} on {place:?}, life {}: {}", life + 1, lives.summary));
            if is_over() {
                break;
            }
        }
    }
    Ok(summary)
}

/// The lives of one aggregate.
struct Lives<'a> {
    plan: &'a Plan,
    media: Media,
    clients: Vec<Own>,
    random: &'a mut Random,
    summary: &'a mut Summary,
    answered: &'a Arc<AtomicU64>,
}

impl Lives<'_> {
    fn variety(&mut self) -> Variety {
        Variety {
            workers: 1 + self.random.below(4) as usize,
            memory_bytes: MEMORY_BYTES[self.random.below(4) as usize],
            commit_bytes_max: if self.random.one_in(3) { 1 << 16 } else { 8 << 20 },
        }
    }

    /// Makes the aggregate.
    fn begin(&mut self, kind: RaidKind) -> Result<(), Failure> {
        let variety = self.variety();
        let node = Node::start(&self.media, &variety)?;
        node.create(kind, VOLUME_BLOCKS)?;
        Shared { node: &node, random: self.random, operations: 0 }.prepare()?;
        node.stop(&self.media)?;
        self.summary.aggregates += 1;
        Ok(())
    }

    /// Opens the aggregate, has all clients work on it for a while, and ends in some way.
    fn live(&mut self) -> Result<(), Failure> {
        let variety = self.variety();
        let node = Arc::new(Node::start(&self.media, &variety)?);
        let recovery = node.open()?;
        self.summary.replayed += recovery.replayed;
        let how = media::choose_end(self.random);
        let is_stopping = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for mut client in self.clients.drain(..) {
            let (node, is_stopping) = (Arc::clone(&node), Arc::clone(&is_stopping));
            let answered = Arc::clone(self.answered);
            let (name, was_clean) = (client.name.clone(), recovery.clean);
            let body = move || {
                let _guard = AbortOnPanic;
                let outcome = work(&mut client, &node, was_clean, (&is_stopping, &answered));
                // A finding, if it is one, ends the others' work.
                is_stopping.fetch_or(outcome.is_err(), Ordering::SeqCst);
                (client, outcome)
            };
            threads.push(spawn(&name, body).map_err(Failure::machine("start a client"))?);
        }
        let restored = self.administer(&node, &is_stopping);
        let is_found = is_stopping.load(Ordering::SeqCst) || restored.is_err();
        if let (Some(how), false) = (how, is_found) {
            // The clients are in the middle of their work.
            self.count(&node);
            node.kill(&self.media, how);
        }
        is_stopping.store(true, Ordering::SeqCst);
        let mut ended = restored;
        for thread in threads {
            let Ok((mut client, outcome)) = thread.join() else { return Err(Failure::Panicked) };
            self.summary.operations += std::mem::take(&mut client.operations);
            self.clients.push(client);
            match outcome {
                Ok(()) | Err(Failure::Stopped) => {}
                failed => ended = ended.and(failed),
            }
        }
        if let Err(failure) = ended {
            let reason = node.failure().unwrap_or_default();
            return Err(Failure::Server(format!("{failure}; {variety:?}; aggregate: {reason}")));
        }
        match how {
            None => {
                check_tree(&node)?;
                self.count(&node);
                node.stop(&self.media)?;
                self.summary.stops += 1;
            }
            Some(End::Kill) => self.summary.kills += 1,
            Some(End::PowerCut) => self.summary.cuts += 1,
        }
        if how.is_some() {
            node.forget();
        }
        drop(node);
        if self.random.one_in(3) {
            self.inspect(how.is_none())?;
        }
        Ok(())
    }

    fn count(&mut self, node: &Node) {
        let summaries = node.engine.aggregate_summaries();
        let points: u64 = summaries.iter().map(|summary| summary.consistency_points).sum();
        self.summary.consistency_points += points;
    }

    /// While clients work: snapshots of the shared volume, made, restored and deleted.
    fn administer(&mut self, node: &Node, is_stopping: &AtomicBool) -> Result<(), Failure> {
        let clock = SystemClock;
        let end = clock.monotonic_nanoseconds() + self.plan.life.as_nanos() as u64;
        let listed = node.command("list snapshots", |done| node.engine.snapshots(SHARED, done))?;
        let mut kept: Vec<String> = listed.into_iter().map(|snapshot| snapshot.name).collect();
        while clock.monotonic_nanoseconds() < end && !is_stopping.load(Ordering::SeqCst) {
            let request = match (self.random.below(12), kept.len()) {
                (0 | 1, 0..3) => {
                    let name = format!("s{:x}", self.random.number());
                    kept.push(name.clone());
                    SnapshotRequest::Create(name)
                }
                (2, 1..) => SnapshotRequest::Restore(kept[kept.len() - 1].clone()),
                (3, 1..) => SnapshotRequest::Delete(kept.remove(0)),
                (other, _) => {
                    self.look(node, other)?;
                    continue;
                }
            };
            match node.snapshot(SHARED, request) {
                Ok(()) => {}
                Err(Failure::Refused { reason, .. }) if is_refusal(&reason) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// What administrators ask beside that: summaries, a scrub, a consistency point.
    fn look(&self, node: &Node, choice: u64) -> Result<(), Failure> {
        if choice == 4 {
            let order = ScrubOrder::Start { rate: None };
            // One is under way, most likely.
            return match node.command("scrub", |done| node.engine.scrub(AGGREGATE, order, done)) {
                Err(Failure::Refused { .. }) => Ok(()),
                outcome => outcome,
            };
        }
        let used: u64 = node.engine.volume_summaries().iter().map(|one| one.used_blocks).sum();
        let size: u64 = node.engine.aggregate_summaries().iter().map(|one| one.size_blocks).sum();
        if used > size {
            let what = format!("{used} blocks are in use, and there are {size}");
            return Err(Failure::Lost { who: "administrator".to_owned(), what });
        }
        if choice == 5 {
            return node.consistency_point();
        }
        // Clients shall have filled something.
        let (nobody, lock) = (Condvar::new(), Mutex::new(()));
        nobody.wait_for(&mut lock.lock(), PAUSE);
        Ok(())
    }

    /// What the independent reader says of the media.
    fn inspect(&mut self, is_clean: bool) -> Result<(), Failure> {
        let wrong = |what: String| Failure::Lost { who: "media".to_owned(), what };
        let (disks, _) = self.media.open();
        let mut inspector =
            Inspector::open_blocking(disks).map_err(|error| wrong(error.to_string()))?;
        let mut report = inspector.check().map_err(|error| wrong(error.to_string()))?;
        if !is_clean {
            // Of stripes that the log notes.
            report.findings.retain(|finding| !matches!(finding, Finding::Parity { .. }));
        }
        self.summary.inspections += 1;
        if report.is_clean() { Ok(()) } else { Err(wrong(report.to_string())) }
    }
}

/// Refusals of snapshots that are as they should be.
fn is_refusal(reason: &str) -> bool {
    reason.contains("space") || reason.contains("under way") || reason.contains("no snapshot")
}

/// A client's life.
fn work(
    client: &mut Own,
    node: &Node,
    was_clean: bool,
    (is_stopping, answered): (&AtomicBool, &AtomicU64),
) -> Result<(), Failure> {
    node.enter();
    client.arrive(node, was_clean)?;
    // A kill comes while it works: only the stop of a healthy node waits for it.
    while !is_stopping.load(Ordering::SeqCst) {
        let before = client.operations;
        match client.random.below(200) {
            0 => client.snapshot(node)?,
            1..60 => {
                let mut random = client.random.clone();
                let mut shared = Shared { node, random: &mut random, operations: 0 };
                let outcome = shared.step();
                client.operations += shared.operations;
                client.random = random;
                outcome?;
            }
            _ => client.step(node)?,
        }
        answered.fetch_add(client.operations - before + 1, Ordering::Relaxed);
    }
    Ok(())
}

/// Ends the process when no operation is answered any more: a deadlock would say nothing else.
struct Watchdog(Arc<(Mutex<bool>, Condvar)>);

impl Watchdog {
    fn start(answered: &Arc<AtomicU64>) -> Result<Self, Failure> {
        let ending = Arc::new((Mutex::new(false), Condvar::new()));
        let (end, answered) = (Arc::clone(&ending), Arc::clone(answered));
        let body = move || {
            let (mut seen, mut is_over) = (0, end.0.lock());
            while !*is_over {
                let wait = Duration::from_secs(STALL_SECONDS_MAX);
                let timed_out = end.1.wait_for(&mut is_over, wait).timed_out();
                let now = answered.load(Ordering::Relaxed);
                if timed_out && !*is_over && now == seen {
                    eprintln!("no operation was answered for {STALL_SECONDS_MAX} s");
                    std::process::abort();
                }
                seen = now;
            }
        };
        spawn("watchdog", body).map_err(Failure::machine("start a thread"))?;
        Ok(Self(ending))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}
