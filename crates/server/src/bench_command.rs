//! `stroop bench`: runs a bench of the crate `bench` and shows its figures.
//!
//! Invariants: progress goes to standard error; the JSON has plain numbers per second.

use admin_api::{AdminError, Code};
use bench::{EngineBench, Figure, engine};
use cli::output::Output;
use cli::table::{Column, Table};
use cli::{BenchCommand, BenchEngineArguments};
use serde_json::{Value, json};

/// Runs the bench.
///
/// # Errors
/// If a load fails.
pub(crate) fn run(command: &BenchCommand) -> Result<Output, AdminError> {
    let BenchCommand::Engine(arguments) = command;
    let BenchEngineArguments { directory, file_size, memory, depth, rounds, workers } =
        arguments.clone();
    let bench = EngineBench {
        directory: directory.clone(),
        file: file_size,
        memory,
        depth,
        rounds,
        workers,
    };
    let figures = engine(&bench, &mut |load| eprintln!("bench: {load}")).map_err(|error| {
        let directory = directory.display().to_string();
        AdminError::new(Code::Failed, "cannot run the bench in", directory)
            .because(error.to_string())
    })?;
    let records: Vec<Value> = figures.iter().map(record).collect();
    let names = figures.iter().map(|figure| figure.load.to_owned()).collect();
    let json = json!({ "records": records, "num_records": records.len() });
    Ok(Output { json, names, table: Some(table(&figures)), ..Output::default() })
}

fn record(figure: &Figure) -> Value {
    json!({
        "load": figure.load,
        "unit": figure.unit,
        "median": figure.median,
        "lowest": figure.lowest,
        "highest": figure.highest,
        "bound": figure.bound.map(|(name, value)| json!({ "name": name, "value": value })),
    })
}

fn table(figures: &[Figure]) -> Table {
    let mut table = Table::new(&[
        ("LOAD", Column::Text),
        ("MEDIAN", Column::Number),
        ("LOWEST", Column::Number),
        ("HIGHEST", Column::Number),
        ("UNIT", Column::Text),
        ("BESIDE", Column::Text),
    ]);
    for figure in figures {
        let bound = figure.bound.map(|(name, value)| format!("{name}: {value:.0}/s"));
        table.row([
            figure.load.to_owned(),
            format!("{:.0}", figure.median),
            format!("{:.0}", figure.lowest),
            format!("{:.0}", figure.highest),
            figure.unit.to_owned(),
            bound.unwrap_or_default(),
        ]);
    }
    table
}
