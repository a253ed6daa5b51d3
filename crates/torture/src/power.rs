//! Power cuts of the real binary: everything that its disks and its journal are given is logged,
//! and the server is started on what was there at a flush.
//!
//! A round: the media of a node become parts of one image with a log of its writes
//! ([`devices`]), the server works on them under load, and is killed. Then, for some flushes of the
//! log, the media are made what they would be if the power had gone there: all that was written up
//! to the flush; or that, and by chance some of what was written after it and before the next. The
//! server starts, and what it shows must have all that was acknowledged below the flush
//! ([`history`]), and nothing that was not asked for.
//!
//! Invariants: all that was given before a flush is durable with it; a write after the last flush
//! is there whole or not at all, as chance has it. Rounds begin with all that was written.
//!
//! Fails: with the first [`Failure`]; the media are kept as the start left them.

pub mod devices;
pub mod history;
pub mod write_log;

use crate::Failure;
use crate::crew::Crew;
use crate::measure::now_ns;
use crate::node::{Node, Sizes};
use crate::random::Random;
use crate::site::Site;
use crate::worker::Worker;
use devices::{Devices, Layout};
use history::{History, Meter};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;
use write_log::{Entry, Kind, WriteLog};

/// Entries of the log within which a write to a disk makes a flush one of a consistency point.
const NEAR_ENTRIES: usize = 4;
/// Of 100 cuts, those that leave some of what was not flushed.
const TORN_PERCENT: u64 = 60;

/// What a run does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// It ends after the round in which so much time has gone.
    pub duration: Duration,
    /// How long the server works in a round.
    pub life: Duration,
    /// Flushes that are replayed of each round.
    pub cuts_per_round: usize,
    /// Choices come from it.
    pub seed: u64,
    /// Disks and volume.
    pub sizes: Sizes,
}

/// What a run did.
#[derive(Clone, Copy, Default, Debug)]
pub struct Summary {
    /// Rounds of load.
    pub rounds: u64,
    /// Starts on what was there at a flush.
    pub cuts: u64,
    /// Of them, those with a part of what was written after it.
    pub torn: u64,
    /// Flushes in the logs.
    pub flushes: u64,
    /// Writes in the logs.
    pub writes: u64,
    /// Operations of the writers that were answered.
    pub operations: u64,
    /// Answers before the flush, over all starts: each was looked for.
    pub looked_for: u64,
    /// Operations that starts replayed.
    pub replayed: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} rounds, {} operations answered, {} writes and {} flushes of disks; {} starts at \
             flushes, {} of them with some of what was written after; {} answers looked for, {} \
             operations replayed, nothing lost",
            self.rounds,
            self.operations,
            self.writes,
            self.flushes,
            self.cuts,
            self.torn,
            self.looked_for,
            self.replayed
        )
    }
}

struct Run<'a> {
    plan: &'a Plan,
    directory: PathBuf,
    random: Random,
    node: Node,
    layout: Layout,
    crew: Crew,
    summary: Summary,
}

/// Runs the plan; a line is told for each round.
///
/// # Errors
/// The first [`Failure`].
pub fn run(site: &mut Site<'_>, plan: &Plan) -> Result<Summary, Failure> {
    let mut node = site.node(&plan.sizes)?;
    let crew = Crew::on(&node, plan.seed)?;
    node.stop()?;
    let layout = Layout::of(node.media()?)?;
    let (random, directory) = (Random::new(plan.seed), site.directory.to_owned());
    let summary = Summary::default();
    let mut run = Run { plan, directory, random, node, layout, crew, summary };
    let began_ns = now_ns();
    while gone(began_ns) < plan.duration || run.summary.rounds == 0 {
        let before = run.summary;
        run.round()?;
        let after = run.summary;
        (site.tell)(&format!(
            "round {} of seed {}: {} operations, {} writes, {} flushes; {} starts, {} answers \
             looked for, {} replayed",
            after.rounds - 1,
            plan.seed,
            after.operations - before.operations,
            after.writes - before.writes,
            after.flushes - before.flushes,
            after.cuts - before.cuts,
            after.looked_for - before.looked_for,
            after.replayed - before.replayed,
        ));
    }
    Ok(run.summary)
}

fn gone(began_ns: u64) -> Duration {
    Duration::from_nanos(now_ns().saturating_sub(began_ns))
}

impl Run<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn round(&mut self) -> Result<(), Failure> {
        let (image, before) = (self.path("media.img"), self.path("before.img"));
        self.layout.gather(&before)?;
        fs::copy(&before, &image).map_err(Failure::at("copy", &before))?;
        let devices = Devices::show(&self.layout, &image, &self.directory)?;
        let log = devices.log().to_owned();
        let histories = self.work(&log)?;
        drop(devices);
        let log = File::open(&log).map_err(Failure::at("open", &log))?;
        let log = WriteLog::read(log).map_err(Failure::machine("read the log of writes"))?;
        self.replay(&log, &before, &histories)?;
        // On with all that was written, as after a kill.
        self.layout.spread(&image)?;
        self.node.start()?;
        self.node.mount()?;
        let address = self.node.nfs_address()?;
        self.crew.verify(address)?;
        self.node.check_log()?;
        self.node.stop()?;
        self.summary.rounds += 1;
        self.summary.operations = self.crew.answered();
        Ok(())
    }

    /// Lets writers work for some time, and kills the server under them.
    fn work(&mut self, log: &Path) -> Result<Vec<History>, Failure> {
        self.node.start()?;
        self.node.mount()?;
        let address = self.node.nfs_address()?;
        let log = File::open(log).map_err(Failure::at("open", log))?;
        let meter = Meter::new(log);
        for worker in &mut self.crew.workers {
            worker.verify(address)?;
            worker.begin_history(meter.clone());
        }
        let Self { crew, node, plan, .. } = self;
        crew.work(plan.life, |is_killed| {
            is_killed.store(true, Ordering::SeqCst);
            node.kill()
        })?;
        let histories = crew.workers.iter_mut().filter_map(Worker::end_history).collect();
        self.node.unmount();
        Ok(histories)
    }

    /// Starts the server on what was there at some flushes.
    fn replay(
        &mut self,
        log: &WriteLog,
        before: &Path,
        histories: &[History],
    ) -> Result<(), Failure> {
        let is_flush = |at: &usize| log.entries[*at].kind == Kind::Flush;
        let flushes: Vec<usize> = (0..log.entries.len()).filter(is_flush).collect();
        self.summary.flushes += flushes.len() as u64;
        self.summary.writes += (log.entries.len() - flushes.len()) as u64;
        let cuts = self.choose_cuts(log, &flushes);
        let image = OpenOptions::new().read(true).write(true).open(before);
        let image = image.map_err(Failure::at("open", before))?;
        let mut applied = 0;
        for cut in cuts {
            for entry in &log.entries[applied..=cut] {
                log.apply(entry, &image).map_err(Failure::machine("replay a write"))?;
            }
            applied = cut + 1;
            self.cut(log, cut, before, histories)?;
        }
        Ok(())
    }

    /// Some of the flushes, in order. Most are the journal's, so half of those that are chosen are
    /// near a write to a disk: there a consistency point is under way.
    fn choose_cuts(&mut self, log: &WriteLog, flushes: &[usize]) -> Vec<usize> {
        let is_of_disk =
            |entry: &Entry| entry.kind != Kind::Flush && entry.offset < self.layout.last_offset();
        let is_busy = |at: &usize| {
            let end = log.entries.len().min(at + NEAR_ENTRIES);
            log.entries[at.saturating_sub(NEAR_ENTRIES)..end].iter().any(is_of_disk)
        };
        let busy: Vec<usize> = flushes.iter().copied().filter(is_busy).collect();
        let mut cuts = Vec::new();
        for number in 0..self.plan.cuts_per_round {
            let from = if number % 2 == 0 && !busy.is_empty() { &busy } else { flushes };
            cuts.extend(from.get(self.random.below(from.len().max(1) as u64) as usize));
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// The power goes after flush `at`; `before` has what was written until then.
    fn cut(
        &mut self,
        log: &WriteLog,
        at: usize,
        before: &Path,
        histories: &[History],
    ) -> Result<(), Failure> {
        let torn = self.path("torn.img");
        fs::copy(before, &torn).map_err(Failure::at("copy", before))?;
        let durable = log.entries[at].end;
        let mut end = durable;
        if self.random.below(100) < TORN_PERCENT {
            let image = OpenOptions::new().write(true).open(&torn);
            let image = image.map_err(Failure::at("open", &torn))?;
            let kept_percent = self.random.below(101);
            let later = log.entries[at + 1..].iter().take_while(|one| one.kind != Kind::Flush);
            for entry in later {
                if self.random.below(100) < kept_percent {
                    log.apply(entry, &image).map_err(Failure::machine("replay a write"))?;
                }
                end = entry.end;
            }
            self.summary.torn += u64::from(end > durable);
        }
        self.layout.spread(&torn)?;
        self.node.start()?;
        self.summary.replayed += self.node.recovery()?.0;
        self.node.mount()?;
        for (worker, history) in self.crew.workers.iter().zip(histories) {
            worker.verify_allowed(history.at(durable, end)).map_err(|failure| match failure {
                Failure::Lost { who, what } => Failure::Lost {
                    who,
                    what: format!("at flush {at}, {durable} to {end} of the log: {what}"),
                },
                other => other,
            })?;
            self.summary.looked_for += history.answered_until(durable) as u64;
        }
        self.node.check_log()?;
        self.node.kill()?;
        self.node.unmount();
        self.summary.cuts += 1;
        Ok(())
    }
}
