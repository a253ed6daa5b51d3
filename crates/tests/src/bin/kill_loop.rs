//! `kill_loop`: rounds of SIGKILL on a server under load, and what was acknowledged compared with
//! what is there. Needs root and /dev/fuse.
//!
//! Fails: with status 1 at the first finding; the directory is kept for a look at it.

#![forbid(unsafe_code)]

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use tests::absolute_path;
use tests::kernel_client;
use tests::node::Sizes;
use tests::rounds::{Plan, run};

/// Kills a server under load, again and again, and checks that nothing acknowledged is lost.
#[derive(Parser)]
struct Arguments {
    /// The binary `stroop`
    #[arg(long, value_parser = absolute_path)]
    server: PathBuf,
    /// Where disks, log and notes are put; below it a new directory is made
    #[arg(long, value_parser = absolute_path)]
    directory: PathBuf,
    /// How many kills
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// Where choices come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// scripts/kernel-client.sh: then Linux's own NFS client, in a guest, has its kills as well
    #[arg(long)]
    kernel_client: Option<PathBuf>,
    /// How many of them
    #[arg(long, default_value_t = 5)]
    kernel_kills: u64,
    /// The disks, four of them
    #[arg(long, default_value = "4x2G")]
    disks: String,
    /// Size of the volume
    #[arg(long, default_value = "4G")]
    volume: String,
    /// Memory of the server
    #[arg(long, default_value = "256M")]
    memory: String,
    /// Size of the operation log
    #[arg(long, default_value = "64M")]
    journal: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let directory = arguments.directory.join(format!("kill-{}", std::process::id()));
    let sizes = Sizes {
        disks: arguments.disks,
        disks_count: 4,
        volume: arguments.volume,
        memory: arguments.memory,
        journal: arguments.journal,
    };
    let plan = Plan { rounds: arguments.rounds, seed: arguments.seed, sizes };
    let mut tell = |line: &str| println!("{line}");
    let outcome = run(&arguments.server, &directory, &plan, &mut tell);
    let mut outcome = outcome.map(|summary| summary.to_string());
    if let (Ok(summary), Some(script)) = (&outcome, &arguments.kernel_client) {
        println!("{summary}");
        let (server, kills) = (&arguments.server, arguments.kernel_kills);
        let (seed, sizes) = (plan.seed, &plan.sizes);
        let run = kernel_client::run(server, &directory, script, kills, seed, sizes, &mut tell);
        outcome = run.map(|said| format!("{summary}; {said}"));
    }
    match outcome {
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
