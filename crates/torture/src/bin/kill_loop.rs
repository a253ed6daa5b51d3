//! `kill_loop`: rounds of SIGKILL on a server under load, and what was acknowledged compared with
//! what is there. Needs root and /dev/fuse.
//!
//! Fails: with status 1 at the first finding; the directory is kept for a look at it.

#![forbid(unsafe_code)]

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use torture::command_line::{NodeArguments, Place, end};
use torture::kernel_client;
use torture::rounds::{Plan, run};
use torture::site::Site;

/// Kills a server under load, again and again, and checks that nothing acknowledged is lost.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    place: Place,
    /// How many kills
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// scripts/kernel-client.sh: then Linux's own NFS client, in a guest, has its kills as well
    #[arg(long)]
    kernel_client: Option<PathBuf>,
    /// How many of them
    #[arg(long, default_value_t = 5)]
    kernel_kills: u64,
    #[command(flatten)]
    node: NodeArguments,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let directory = arguments.place.new_directory("kill");
    let plan = Plan {
        rounds: arguments.rounds,
        seed: arguments.place.seed,
        sizes: arguments.node.sizes("64M"),
    };
    let mut tell = |line: &str| println!("{line}");
    let binary = &arguments.place.server;
    let mut site = Site { binary, directory: &directory, tell: &mut tell };
    let outcome = run(&mut site, &plan);
    let mut outcome = outcome.map(|summary| summary.to_string());
    if let (Ok(summary), Some(script)) = (&outcome, &arguments.kernel_client) {
        println!("{summary}");
        let kills = arguments.kernel_kills;
        let (seed, sizes) = (plan.seed, &plan.sizes);
        let run = kernel_client::run(&mut site, script, kills, seed, sizes);
        outcome = run.map(|said| format!("{summary}; {said}"));
    }
    end(outcome, &directory)
}
