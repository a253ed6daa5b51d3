//! `simulator run --seeds A..B` and `simulator replay SEED`.
//!
//! Exit status: 0 if nothing was found, 1 if something was, 2 if the arguments are wrong.

use clap::{Parser, Subcommand, ValueEnum};
use platform::Clock;
use platform::linux::SystemClock;
use simulator::{MixChoice, Summary, live_seed, run};
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
        /// What the operations are.
        #[arg(long, value_enum, default_value_t)]
        mix: MixArgument,
        /// Threads; as many as the machine has by default.
        #[arg(long)]
        jobs: Option<usize>,
    },
    /// Lives one seed's life again.
    Replay {
        /// The seed.
        seed: u64,
        /// What the operations are.
        #[arg(long, value_enum, default_value_t)]
        mix: MixArgument,
        /// Print every event, and what the engine says of itself.
        #[arg(long)]
        verbose: bool,
    },
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum MixArgument {
    #[default]
    Any,
    Everything,
    Names,
    Data,
    Snapshots,
}

impl From<MixArgument> for MixChoice {
    fn from(mix: MixArgument) -> Self {
        match mix {
            MixArgument::Any => Self::Any,
            MixArgument::Everything => Self::Everything,
            MixArgument::Names => Self::Names,
            MixArgument::Data => Self::Data,
            MixArgument::Snapshots => Self::Snapshots,
        }
    }
}

fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("'{text}' is no range of seeds; write FIRST..END");
    let (first, end) = text.split_once("..").ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
    Ok(number(first)?..number(end)?)
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run { seeds, mix, jobs } => run_seeds(seeds, mix.into(), jobs),
        Command::Replay { seed, mix, verbose } => replay(seed, mix.into(), verbose),
    }
}

fn run_seeds(seeds: Range<u64>, mix: MixChoice, jobs: Option<usize>) -> ExitCode {
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
    let jobs = jobs.unwrap_or_else(platform::thread::parallelism);
    let summary = run(seeds, mix, jobs, &progress);
    for outcome in summary.failures.iter().take(REPORTS_MAX) {
        eprintln!("\n{}", outcome.report());
    }
    println!("seeds that met each situation:");
    for (what, count) in summary.coverage.counts() {
        println!("{count:8}  {what}");
    }
    println!("{}", line(&summary));
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

fn replay(seed: u64, mix: MixChoice, is_verbose: bool) -> ExitCode {
    if is_verbose {
        tracing_subscriber::fmt().with_writer(std::io::stderr).without_time().init();
    }
    let outcome = live_seed(seed, mix, is_verbose);
    println!("{}", outcome.report());
    println!("seed {seed}: {} steps, trace {:016x}", outcome.trace.step, outcome.trace.hash());
    if outcome.finding.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
