//! Runs one operation on an engine in memory: `operation NAME COUNT`. For `cargo xtask callgrind`,
//! `perf stat` and the like.

use bench::{OPERATIONS, run_operation};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [name, count] = words.as_slice() else {
        OPERATIONS.iter().for_each(|name| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let outcome = count.parse().map_err(|_| "no number".to_owned());
    let outcome =
        outcome.and_then(|count| run_operation(name, count).map_err(|error| error.to_string()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("operation {name} {count}: {error}");
            ExitCode::FAILURE
        }
    }
}
