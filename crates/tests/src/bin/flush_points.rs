//! `flush_points`: the real binary on disks of which each write and flush is logged, and starts on
//! what was there at flushes. Needs root, /dev/fuse, QEMU's storage daemon and `nbdfuse`.
//!
//! Fails: with status 1 at the first finding; the directory is kept for a look at it.

#![forbid(unsafe_code)]

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tests::absolute_path;
use tests::node::Sizes;
use tests::power::{Plan, devices, run};

/// Cuts the power of a server at flushes of its disks, and checks that nothing acknowledged is
/// lost.
#[derive(Parser)]
struct Arguments {
    /// The binary `stroop`
    #[arg(long, value_parser = absolute_path)]
    server: PathBuf,
    /// Where disks, logs and notes are put; below it a new directory is made
    #[arg(long, value_parser = absolute_path)]
    directory: PathBuf,
    /// Seconds until the last round begins
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
    /// Milliseconds that the server works in a round
    #[arg(long, default_value_t = 4000)]
    life: u64,
    /// Flushes that are replayed of each round
    #[arg(long, default_value_t = 10)]
    cuts: usize,
    /// Where choices come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some((tool, package)) = devices::missing_tool() {
        println!("{tool} is not installed: apt-get install {package}");
        return ExitCode::FAILURE;
    }
    let directory = arguments.directory.join(format!("flush-points-{}", std::process::id()));
    let plan = Plan {
        duration: Duration::from_secs(arguments.seconds),
        life: Duration::from_millis(arguments.life),
        cuts_per_round: arguments.cuts,
        seed: arguments.seed,
        sizes: Sizes::small(),
    };
    let mut tell = |line: &str| println!("{line}");
    match run(&arguments.server, &directory, &plan, &mut tell) {
        Ok(summary) => {
            println!("{summary}");
            let _ = std::fs::remove_dir_all(&directory);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("finding: {failure}");
            println!("kept: {}", directory.display());
            ExitCode::FAILURE
        }
    }
}
