//! `soak`: hours of mixed load over NFS and FUSE with snapshots, and SIGKILL in between; figures of
//! memory and latencies. Needs root and /dev/fuse.
//!
//! Fails: with status 1 at the first finding; the directory is kept for a look at it.

#![forbid(unsafe_code)]

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use torture::absolute_path;
use torture::command_line::{NodeArguments, Place, end};
use torture::site::Site;
use torture::soak::{Plan, run};

/// Keeps a server under mixed load for hours, kills it now and then, and checks that nothing
/// acknowledged is lost and that memory and latencies stay what they are.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    place: Place,
    /// Where soak.csv, lives.csv, soak.svg and soak.txt go; the directory if not given
    #[arg(long, value_parser = absolute_path)]
    output: Option<PathBuf>,
    /// How long
    #[arg(long, default_value_t = 120)]
    minutes: u64,
    /// Operations a second over NFS and FUSE, programs aside; 0 for as many as can be
    #[arg(long, default_value_t = 2000)]
    operations_per_second: u64,
    /// How long a server lives on average; 0 for one life, killed at the end
    #[arg(long, default_value_t = 60)]
    kill_every_seconds: u64,
    /// How many snapshots are kept; one is taken every ten seconds
    #[arg(long, default_value_t = 8)]
    snapshots: usize,
    /// The media are read as a whole after every so many kills
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    inspect_every: u64,
    #[command(flatten)]
    node: NodeArguments,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let directory = arguments.place.new_directory("soak");
    let kill_every = arguments.kill_every_seconds;
    let plan = Plan {
        duration: Duration::from_secs(arguments.minutes * 60),
        kill_every: (kill_every > 0).then(|| Duration::from_secs(kill_every)),
        operations_per_second: arguments.operations_per_second,
        seed: arguments.place.seed,
        sizes: arguments.node.sizes("128M"),
        snapshots_kept: arguments.snapshots,
        inspect_every: arguments.inspect_every,
        output: arguments.output.unwrap_or_else(|| arguments.place.directory.clone()),
    };
    let mut tell = |line: &str| println!("{line}");
    let binary = &arguments.place.server;
    let mut site = Site { binary, directory: &directory, tell: &mut tell };
    let outcome = run(&mut site, &plan);
    end(outcome.map(|()| "nothing found".to_owned()), &directory)
}
