//! `stroop bench model`: runs the model of cores and disks and shows its figures.
//!
//! Invariants: rates are in bytes a second and shares in millionths in the JSON, in MB/s (a million
//! bytes) and percent in the table; shares are those of the median round. The table's column ALONE
//! is the time in which one core ran and the others had nothing to do; its disk is the busiest.
//!
//! Fails: if a stream is shorter than a request, or a request is no size that a front end sends.

use bench::{Medium, ModelBench, ModelReport, ModelRow, PhaseShare, Shares};
use cli::output::Output;
use cli::table::{Column, Table};
use cli::{BenchModelArguments, ModelMedium};
use serde_json::{Value, json};
use units::ByteSize;

/// Requests of clients are whole blocks, and no longer than what a front end takes.
const REQUEST_BYTES_MIN: u64 = 4 << 10;
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Below this the engine's tables have no room.
const MEMORY_BYTES_MIN: u64 = 64 << 20;

/// What is to be run.
///
/// # Errors
/// What no model can be made of, in words.
pub(super) fn bench(arguments: &BenchModelArguments) -> Result<ModelBench, String> {
    let BenchModelArguments { cores, disks, group_size, medium, size, memory, .. } =
        arguments.clone();
    let BenchModelArguments {
        volumes, files, depth, request_size, completion_threads, rounds, ..
    } = *arguments;
    let (least, most) = (ByteSize(REQUEST_BYTES_MIN), ByteSize(REQUEST_BYTES_MAX));
    if !request_size.0.is_power_of_two() || !(least..=most).contains(&request_size) {
        let what = format!("a request of {request_size} is no power of two from {least} to {most}");
        return Err(what);
    }
    if size.0 / (volumes * files) as u64 / request_size.0 == 0 {
        return Err(format!("{size} are less than one request of each stream"));
    }
    if memory.0 < MEMORY_BYTES_MIN {
        let least = ByteSize(MEMORY_BYTES_MIN);
        return Err(format!("{memory} of memory are less than {least}"));
    }
    Ok(ModelBench {
        cores,
        disks,
        group_size,
        medium: match medium {
            ModelMedium::Nvme => Medium::NVME,
            ModelMedium::Sata => Medium::SATA,
        },
        size,
        memory,
        volumes,
        files,
        depth,
        request: request_size,
        completion_threads,
        rounds,
    })
}

/// The figures, below what is told of the machine.
pub(super) fn output(report: &ModelReport, head: Vec<String>, machine: &Value) -> Output {
    let records: Vec<Value> = report.rows.iter().filter_map(record).collect();
    let json = json!({
        "machine": machine,
        "records": records,
        "num_records": records.len(),
    });
    Output { json, head, table: Some(table(&report.rows)), ..Output::default() }
}

fn record(row: &ModelRow) -> Option<Value> {
    let median = row.median()?;
    let Shares { affinity: (affinity, of_affinity), consistency_points, .. } = &median.shares;
    let shares = &median.shares;
    let named = |pairs: Vec<(&str, u64)>| -> Value {
        pairs.into_iter().map(|(name, share)| (name.to_owned(), Value::from(share))).collect()
    };
    let kinds = shares.kinds.iter().map(|(kind, share)| (kind.as_str(), *share)).collect();
    Some(json!({
        "disks": row.shape.disks,
        "groups": row.shape.groups(),
        "data_disks": row.shape.data_disks(),
        "cores": row.shape.cores,
        "load": row.direction.name(),
        "bytes_per_second": median.rate,
        "rounds": row.rounds.iter().map(|round| round.rate).collect::<Vec<_>>(),
        "cores_millionths": shares.cores,
        "no_core_millionths": shares.no_core,
        "one_core_millionths": shares.one_core,
        "completion_threads_millionths": shares.completions,
        "calls_millionths": shares.calls,
        "busiest_affinity": affinity,
        "busiest_affinity_millionths": of_affinity,
        "affinity_kinds_millionths": named(kinds),
        "disks_millionths": shares.disks,
        "busiest_disk_millionths": shares.busiest_disk,
        "log_millionths": shares.log,
        "phases": shares.phases.iter().map(phase).collect::<Vec<_>>(),
        "consistency_points": consistency_points.0,
        "back_to_back": consistency_points.1,
        "saturates_first": shares.first_saturated().to_string(),
    }))
}

fn phase(phase: &PhaseShare) -> Value {
    json!({
        "phase": phase.name,
        "millionths": phase.time,
        "busy_cores_millionths": phase.busy_cores,
    })
}

fn table(rows: &[ModelRow]) -> Table {
    let mut table = Table::new(&[
        ("DISKS", Column::Number),
        ("DATA", Column::Number),
        ("CORES", Column::Number),
        ("LOAD", Column::Text),
        ("MB/S", Column::Number),
        ("LOWEST", Column::Number),
        ("HIGHEST", Column::Number),
        ("CORES", Column::Number),
        ("ALONE", Column::Number),
        ("COMPLETIONS", Column::Number),
        ("AFFINITY", Column::Number),
        ("DISKS", Column::Number),
        ("LOG", Column::Number),
        ("FIRST", Column::Long),
    ]);
    let rate = |round: Option<&bench::ModelRound>| {
        round.map_or_else(|| "-".to_owned(), |round| (round.rate / 1_000_000).to_string())
    };
    let percent = |millionths: u64| format!("{}%", (millionths + 5_000) / 10_000);
    for row in rows {
        let Some(median) = row.median() else { continue };
        let shares = &median.shares;
        table.row([
            row.shape.disks.to_string(),
            row.shape.data_disks().to_string(),
            row.shape.cores.to_string(),
            row.direction.name().to_owned(),
            rate(Some(median)),
            rate(row.rounds.first()),
            rate(row.rounds.last()),
            percent(shares.cores),
            percent(shares.one_core),
            percent(shares.completions),
            percent(shares.affinity.1),
            percent(shares.busiest_disk),
            percent(shares.log),
            shares.first_saturated().to_string(),
        ]);
    }
    table
}
