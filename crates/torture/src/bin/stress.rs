//! `stress`: the engine in this process, on real threads, for a while. See `torture::stress`.
//!
//! Fails: with status 1 at the first finding.

#![forbid(unsafe_code)]

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use torture::absolute_path;
use torture::stress::media::Place;
use torture::stress::{Plan, run};

/// Has clients work on an engine with real threads, stops and kills it every few seconds, and
/// checks that nothing acknowledged is lost and nothing is seen that never was.
#[derive(Parser)]
struct Arguments {
    /// How long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// How long a life is, in milliseconds
    #[arg(long, default_value_t = 3000)]
    life_ms: u64,
    /// Where choices come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads of clients
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Has every other aggregate in files here, and not all in memory
    #[arg(long, value_parser = absolute_path)]
    directory: Option<PathBuf>,
    /// Breaks this rule of the engine, to see that it is noticed (docs/testing.md, section 5)
    #[cfg(feature = "mutations")]
    #[arg(long = "break")]
    broken: Option<String>,
}

#[cfg(feature = "mutations")]
fn break_rule(name: &str) {
    use platform::mutation::Rule;
    let rule = Rule::ALL.iter().find(|rule| rule.name() == name);
    assert!(rule.is_some(), "no rule is called {name}");
    platform::mutation::break_rule(rule.copied());
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // What the engine says of damage is said beside the finding.
    tracing_subscriber::fmt().with_env_filter("error").with_writer(std::io::stderr).init();
    #[cfg(feature = "mutations")]
    arguments.broken.as_deref().into_iter().for_each(break_rule);
    let mut places = vec![Place::Memory];
    places.extend(arguments.directory.map(Place::Files));
    let plan = Plan {
        duration: Duration::from_secs(arguments.seconds),
        life: Duration::from_millis(arguments.life_ms),
        seed: arguments.seed,
        clients: arguments.threads,
        places,
    };
    match run(&plan, &mut |line| println!("{line}")) {
        Ok(summary) => {
            println!("nothing found: {summary}");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("finding: {failure}");
            ExitCode::FAILURE
        }
    }
}
