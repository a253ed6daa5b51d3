//! The command line of the simulator: `simulator run`, `simulator replay`, `simulator mutations`.
//!
//! Exit status: 0 if nothing was found, 1 if something was (of `mutations`: if a broken rule was
//! not noticed), 2 if the arguments are wrong.

#![forbid(unsafe_code)]

use clap::{Args, Parser, Subcommand};
use ondisk::label::RaidKind;
use platform::Clock;
use platform::linux::SystemClock;
use simulator::runs::boundaries::live_boundaries;
use simulator::runs::shrink::shrink;
use simulator::seed::lives::BoundaryCut;
use simulator::{FrontEnd, Lives, MixChoice, Reduction, Summary, live_seed, run};
use std::ops::Range;
use std::process::ExitCode;

/// Progress is printed after this many seeds.
const PROGRESS_SEEDS: u64 = 100;
/// Findings that are printed in full.
const REPORTS_MAX: usize = 5;

/// Simulates whole nodes with faults, each from one seed.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lives the lives of many seeds.
    Run {
        /// The seeds, as FIRST..END.
        #[arg(long, value_parser = parse_seeds)]
        seeds: Range<u64>,
        #[command(flatten)]
        how: HowArguments,
        /// Live one round of each seed, cut at each write and flush that is submitted or completes.
        #[arg(long)]
        every_boundary: bool,
        /// Threads; as many as the machine has by default.
        #[arg(long)]
        jobs: Option<usize>,
    },
    /// Leaves out of a seed's life what its finding does not need, and lives what is left.
    Shrink {
        /// The seed.
        seed: u64,
        #[command(flatten)]
        how: HowArguments,
    },
    /// Lives one seed's life again.
    Replay {
        /// The seed.
        seed: u64,
        #[command(flatten)]
        how: HowArguments,
        /// Cut it at this boundary, as `run --every-boundary` does.
        #[arg(long)]
        boundary: Option<u64>,
        /// Print every event, and what the engine says of itself.
        #[arg(long)]
        verbose: bool,
    },
    /// Breaks the engine's rules one by one, and counts the seeds until each is noticed.
    #[cfg(feature = "mutations")]
    Mutations {
        /// The seeds that are tried, as FIRST..END.
        #[arg(long, value_parser = parse_seeds, default_value = "0..2000")]
        seeds: Range<u64>,
        /// Only this rule; may be given several times.
        #[arg(long, value_parser = parse_rule)]
        rule: Vec<platform::mutation::Rule>,
        /// Print each finding in full.
        #[arg(long)]
        verbose: bool,
        /// Threads; as many as the machine has by default.
        #[arg(long)]
        jobs: Option<usize>,
    },
}

/// How lives are lived.
#[derive(Args)]
struct HowArguments {
    /// What the operations are.
    #[arg(long, value_enum, default_value_t)]
    mix: MixChoice,
    /// Faulty disks acknowledge all writes of a while and keep none. Blocks are lost then; see
    /// docs/testing.md.
    #[arg(long)]
    forgetting: bool,
    /// Every life is on a group of this kind, and loses as many disks as it can do without.
    #[arg(long, value_name = "raid4|dp|tp", value_parser = parse_kind)]
    losing: Option<RaidKind>,
    /// Every life is on a wide group of RAID-4 that is written in large pieces: rows are written
    /// whole, and later in part from old parity.
    #[arg(long)]
    wide: bool,
    /// In every life more disks go at times than the group can do without, and come back.
    #[arg(long)]
    outages: bool,
    /// In every life on disks with parity one disk gets sick.
    #[arg(long)]
    sick: bool,
    /// In every life on disks without parity blocks of files become unreadable.
    #[arg(long)]
    damaged: bool,
    /// In every life volumes have guarantees of space, where there is room.
    #[arg(long)]
    guarantees: bool,
    /// In every life owners of files have quotas.
    #[arg(long)]
    quotas: bool,
    /// In every life the node has other aggregates, one of which is slow or dead at times.
    #[arg(long)]
    neighbours: bool,
    /// In every life the process dies at times instead of the machine.
    #[arg(long)]
    kills: bool,
    /// In every life without another fault the log's disk hangs, rots, loses writes or cannot be
    /// read.
    #[arg(long)]
    log_faults: bool,
    /// In every life without a fault of the log it has two copies, one of which goes and returns.
    #[arg(long)]
    log_copies: bool,
    /// In every life without a fault of the log and other aggregates the log is on the disks of
    /// the aggregate.
    #[arg(long)]
    log_on_disks: bool,
    /// In every life an operator manages the node: volumes, snapshots and the like are made and
    /// changed by calls of an administrator.
    #[arg(long, conflicts_with = "front_end")]
    operator: bool,
    /// Every life without faults of disks ends with structures of a newer build, whose features
    /// this build lacks.
    #[arg(long)]
    lacking: bool,
    /// How operations come to the node.
    #[arg(long, value_enum, default_value_t)]
    front_end: FrontEnd,
    /// Leave this out, as `shrink` says.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reduced: Reduction,
    /// Break this rule of the engine.
    #[cfg(feature = "mutations")]
    #[arg(long = "break", value_name = "RULE", value_parser = parse_rule)]
    broken: Option<platform::mutation::Rule>,
}

impl HowArguments {
    /// Takes effect in the whole process, as far as it has to.
    fn lives(&self) -> Lives {
        #[cfg(feature = "mutations")]
        platform::mutation::break_rule(self.broken);
        Lives {
            mix: self.mix,
            forgets: self.forgetting,
            losing: self.losing,
            wide: self.wide,
            outages: self.outages,
            sick: self.sick,
            damaged: self.damaged,
            guarantees: self.guarantees,
            quotas: self.quotas,
            neighbours: self.neighbours,
            kills: self.kills,
            log_faults: self.log_faults,
            log_copies: self.log_copies,
            log_on_disks: self.log_on_disks,
            operator: self.operator,
            lacking: self.lacking,
            reduction: self.reduced.clone(),
            front_end: self.front_end,
            boundary: None,
        }
    }
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("'{text}' is no range of seeds; write FIRST..END");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    Ok(number(first)?..number(end)?)
}

fn parse_kind(text: &str) -> Result<RaidKind, String> {
    let kinds = [RaidKind::Raid4, RaidKind::Dp, RaidKind::Tp];
    let named = kinds.into_iter().find(|kind| kind.to_string() == text);
    named.ok_or_else(|| "a group that survives failures is one of: raid4, dp, tp".to_owned())
}

#[cfg(feature = "mutations")]
fn parse_rule(text: &str) -> Result<platform::mutation::Rule, String> {
    simulator::runs::mutations::rule_named(text).ok_or_else(|| {
        let names: Vec<_> = platform::mutation::Rule::ALL.iter().map(|rule| rule.name()).collect();
        format!("there is no rule '{text}'; there are {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    let all = platform::thread::parallelism;
    match Arguments::parse().command {
        Command::Run { seeds, how, every_boundary: true, .. } => {
            run_boundaries(seeds, &how.lives())
        }
        Command::Run { seeds, how, jobs, .. } => {
            run_seeds(seeds, &how.lives(), jobs.unwrap_or_else(all))
        }
        Command::Shrink { seed, how } => shrink_seed(seed, &how.lives()),
        Command::Replay { seed, how, boundary, verbose } => {
            let boundary = boundary.map(BoundaryCut::At);
            replay(seed, &Lives { boundary, ..how.lives() }, verbose)
        }
        #[cfg(feature = "mutations")]
        Command::Mutations { seeds, rule, verbose, jobs } => {
            break_rules(&seeds, rule, verbose, jobs.unwrap_or_else(all))
        }
    }
}

#[cfg(feature = "mutations")]
fn break_rules(
    seeds: &Range<u64>,
    mut rules: Vec<platform::mutation::Rule>,
    is_verbose: bool,
    jobs: usize,
) -> ExitCode {
    if rules.is_empty() {
        rules.extend_from_slice(platform::mutation::Rule::ALL);
    }
    println!("{:26} {:>6}  finding", "rule", "seeds");
    let mut missed = 0;
    for rule in rules {
        let row = simulator::runs::mutations::try_rule(
            rule,
            seeds.clone(),
            &simulator::runs::mutations::lives_of(rule),
            jobs,
        );
        println!("{row}");
        match &row.outcome {
            Some(outcome) if is_verbose => println!("{}", outcome.report()),
            Some(_) => {}
            None => missed += 1,
        }
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_seeds(seeds: Range<u64>, lives: &Lives, jobs: usize) -> ExitCode {
    let started = SystemClock.monotonic_nanoseconds();
    let line = |summary: &Summary| {
        let seconds = (SystemClock.monotonic_nanoseconds() - started) as f64 / 1e9;
        format!(
            "{} seeds ({:.0}/s), {} operations, {} power cuts, {} findings",
            summary.seeds,
            summary.seeds as f64 / seconds,
            summary.operations,
            summary.power_cuts,
            summary.failures.len()
        )
    };
    let progress = |summary: &Summary| {
        if summary.seeds.is_multiple_of(PROGRESS_SEEDS) {
            eprintln!("{}", line(summary));
        }
    };
    let summary = run(seeds, lives, jobs, &progress);
    for outcome in summary.failures.iter().take(REPORTS_MAX) {
        eprintln!("\n{}", outcome.report());
    }
    print_coverage(&summary);
    println!("{}, digest {:016x}", line(&summary), summary.digest);
    if summary.failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    for outcome in &summary.failures {
        let finding = outcome.finding.as_ref().map(ToString::to_string).unwrap_or_default();
        let first_line = finding.lines().next().unwrap_or_default().to_owned();
        println!("seed {}: {first_line}", outcome.seed);
    }
    ExitCode::FAILURE
}

fn run_boundaries(seeds: Range<u64>, lives: &Lives) -> ExitCode {
    let mut summary = Summary::default();
    for seed in seeds {
        let before = summary.seeds;
        let found = live_boundaries(seed, lives, &mut summary);
        println!("seed {seed}: {} lives", summary.seeds - before);
        if let Some(outcome) = found {
            let boundary = outcome.trace.boundary_cut.unwrap_or_default();
            println!("{}", outcome.report());
            println!("simulator replay {seed} --boundary {boundary}");
            return ExitCode::FAILURE;
        }
    }
    print_coverage(&summary);
    println!("{} lives, {} power cuts, no finding", summary.seeds, summary.power_cuts);
    ExitCode::SUCCESS
}

fn shrink_seed(seed: u64, lives: &Lives) -> ExitCode {
    let mut progress = |reduction: &Reduction| eprintln!("{reduction}");
    let Some(outcome) = shrink(seed, lives, &mut progress) else {
        println!("seed {seed} finds nothing");
        return ExitCode::SUCCESS;
    };
    println!("{}", outcome.report());
    let asked = outcome.trace.operations;
    println!("{asked} operations answered, {} power cuts", outcome.trace.power_cuts);
    println!("simulator replay {seed} --reduced '{}'", outcome.reduction);
    ExitCode::FAILURE
}

fn print_coverage(summary: &Summary) {
    println!("   seeds      times  situation");
    for (what, seeds, times) in summary.coverage.counts() {
        println!("{seeds:8} {times:10}  {what}");
    }
}

fn replay(seed: u64, lives: &Lives, is_verbose: bool) -> ExitCode {
    if is_verbose {
        tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().init();
    }
    let outcome = live_seed(seed, lives, is_verbose);
    println!("{}", outcome.report());
    println!("seed {seed}: {} steps, trace {:016x}", outcome.trace.step, outcome.trace.hash());
    if outcome.finding.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
