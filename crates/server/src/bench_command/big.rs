//! `stroop bench big`: runs the big bench and shows its figures as they come.
//!
//! Invariants: figures go to standard error as they come, since a load takes minutes, and all of
//! them to standard output at the end.

use super::{failed, named, progress, scratch};
use admin_api::AdminError;
use bench::{BigBench, BigFigure, BigLoad, big};
use cli::BenchBigArguments;
use cli::output::Output;
use serde_json::{Value, json};

/// Runs the loads that are asked for, or all.
pub(crate) fn run(arguments: &BenchBigArguments) -> Result<Output, AdminError> {
    let loads = named("load", &BigLoad::ALL, BigLoad::name, &arguments.loads)?;
    let scratch = scratch(Some(&arguments.directory))?;
    let bench = BigBench {
        directory: scratch.path().to_owned(),
        memory: arguments.memory,
        workers: arguments.workers,
        directory_files: arguments.files,
        inodes: arguments.inodes,
        sparse_writes: arguments.writes,
        reclaim: arguments.freed,
        snapshots: arguments.snapshots,
    };
    let mut figures = Vec::new();
    for load in loads {
        let mut report = |figure: BigFigure| {
            progress(&line(load, &figure));
            figures.push((load, figure));
        };
        big(&bench, load, &mut report).map_err(failed)?;
    }
    Ok(output(&figures))
}

fn line(load: BigLoad, figure: &BigFigure) -> String {
    format!("{}: {}: {}", load.name(), figure.load, figure.outcome)
}

fn output(figures: &[(BigLoad, BigFigure)]) -> Output {
    let record = |(load, figure): &(BigLoad, BigFigure)| json!({ "bench": load.name(), "load": figure.load, "outcome": figure.outcome });
    let records: Vec<Value> = figures.iter().map(record).collect();
    let json = json!({ "records": records, "num_records": records.len() });
    let lines = figures.iter().map(|(load, figure)| line(*load, figure)).collect();
    Output { json, lines, ..Output::default() }
}
