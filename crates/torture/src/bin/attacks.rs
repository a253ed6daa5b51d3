//! `attacks`: clients that mean harm, again and again, beside one that is honest. Needs root and
//! /dev/fuse.
//!
//! Fails: with status 1 at the first attack that has success; the directory is kept for a look.

#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;
use torture::attacks::{Plan, run};
use torture::command_line::{Place, end};
use torture::site::Site;

/// Attacks the memory and the fairness of a server.
#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    place: Place,
    /// How often all attacks are made
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// How long the honest client is measured, with each attack and without
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Make one of them only: the name that is told with it
    #[arg(long)]
    only: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let directory = arguments.place.new_directory("attacks");
    let duration = Duration::from_secs(arguments.seconds);
    let plan = Plan { duration, rounds: arguments.rounds, only: arguments.only };
    let mut tell = |line: &str| println!("{line}");
    let binary = &arguments.place.server;
    let mut site = Site { binary, directory: &directory, tell: &mut tell };
    end(run(&mut site, &plan), &directory)
}
