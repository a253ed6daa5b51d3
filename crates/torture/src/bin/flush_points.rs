//! `flush_points`: the real binary on disks of which each write and flush is logged, and starts on
//! what was there at flushes. Needs root, /dev/fuse, QEMU's storage daemon and `nbdfuse`.
//!
//! Fails: with status 1 at the first finding; the directory is kept for a look at it.

#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;
use torture::command_line::{Place, end};
use torture::node::Sizes;
use torture::power::{Plan, devices, run};
use torture::site::Site;

/// Cuts the power of a server at flushes of its disks, and checks that nothing acknowledged is
/// lost.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Seconds until the last round begins
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
    /// Milliseconds that the server works in a round
    #[arg(long, default_value_t = 4000)]
    life: u64,
    /// Flushes that are replayed of each round
    #[arg(long, default_value_t = 10)]
    cuts: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some((tool, package)) = devices::missing_tool() {
        println!("{tool} is not installed: apt-get install {package}");
        return ExitCode::FAILURE;
    }
    let directory = arguments.place.new_directory("flush-points");
    let plan = Plan {
        duration: Duration::from_secs(arguments.seconds),
        life: Duration::from_millis(arguments.life),
        cuts_per_round: arguments.cuts,
        seed: arguments.place.seed,
        sizes: Sizes::small(),
    };
    let mut tell = |line: &str| println!("{line}");
    let mut site = Site { binary: &arguments.place.server, directory: &directory, tell: &mut tell };
    let outcome = run(&mut site, &plan);
    end(outcome.map(|summary| summary.to_string()), &directory)
}
