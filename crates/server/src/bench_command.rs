//! `stroop bench`: runs a bench of the crate `bench` and shows its figures.
//!
//! Invariants: a bench leaves nothing behind, also when it is interrupted; progress goes to
//! standard error; the JSON has whole numbers in base units; a table stays within 100 columns.

use crate::shutdown::SIGNALLED_STATUS;
use admin_api::{AdminError, Code};
use bench::{
    Beside, EngineBench, FlexvolBench, FlexvolFigure, Latencies, Machine, NfsBench, NodeBench,
    RaidBench, Report, Role, Row, Scratch, Series, Span, StartBench, Unit, VolumesBench,
    clean_up_and_exit, engine, flexvol, nfs, serve_nothing, strip_chart,
};
use cli::output::Output;
use cli::table::{Column, Table};
use cli::{
    BenchCommand, BenchCompareCommand, BenchEngineArguments, BenchFlexvolArguments,
    BenchFuseArguments, BenchModelArguments, BenchNfsArguments, BenchNodeArguments,
    BenchRaidArguments, BenchStartArguments, BenchStreamsArguments, BenchVolumesArguments,
};
use platform::Clock as _;
use platform::linux::SystemClock;
use platform::thread::spawn;
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

mod big;
mod freespace;
mod model;

/// In the environment of this program once it is in namespaces of its own.
const APART: &str = "STROOP_BENCH_APART";

/// Interrupts within this time of the first are the same wish.
const SAME_WISH_NANOSECONDS: u64 = 1_000_000_000;

/// Runs the bench.
///
/// # Errors
/// If a load fails.
pub(crate) fn run(command: &BenchCommand) -> Result<Output, AdminError> {
    clean_up_on_signals()?;
    let report = match command {
        BenchCommand::Engine(arguments) => run_engine(arguments)?,
        BenchCommand::Nfs { arguments, strip_chart } => run_nfs(arguments, strip_chart.as_deref())?,
        BenchCommand::Streams(arguments) => {
            let (bench, _removed) = streams_bench(arguments)?;
            bench::streams(&bench, &mut progress).map_err(failed)?
        }
        BenchCommand::Raid(arguments) => run_raid(arguments)?,
        BenchCommand::Freespace(arguments) => freespace::run(arguments)?,
        BenchCommand::Flexvol(arguments) => run_flexvol(arguments)?,
        BenchCommand::Fuse(arguments) => run_fuse(arguments)?,
        BenchCommand::Compare(BenchCompareCommand::Nfs(arguments)) => compare_nfs(arguments)?,
        BenchCommand::Compare(BenchCompareCommand::Streams(arguments)) => {
            let apart = go_apart()?;
            let (bench, _removed) = streams_bench(arguments)?;
            bench::compare_streams(&bench, apart, &mut progress).map_err(failed)?
        }
        BenchCommand::Compare(BenchCompareCommand::Local(arguments)) => {
            let (bench, _removed) = streams_bench(arguments)?;
            bench::compare_local(&bench, &mut progress).map_err(failed)?
        }
        BenchCommand::Compare(BenchCompareCommand::Volumes(arguments)) => {
            compare_volumes(arguments)?
        }
        BenchCommand::List(arguments) => {
            let (bench, _removed) = node_bench(arguments.clone())?;
            bench::listing(&bench, &mut progress).map_err(failed)?
        }
        BenchCommand::Start(arguments) => run_start(arguments)?,
        BenchCommand::Big(arguments) => return big::run(arguments),
        BenchCommand::Model(arguments) => return run_model(arguments),
        BenchCommand::NfsLimit => return Err(run_limit()),
    };
    Ok(output(&report))
}

fn failed(cause: impl std::fmt::Display) -> AdminError {
    AdminError::new(Code::Failed, "cannot run the bench", "").because(cause.to_string())
}

fn progress(what: &str) {
    eprintln!("bench: {what}");
}

/// Those of `all` that are called so, or all.
fn named<T: Copy>(
    what: &str,
    all: &[T],
    name_of: impl Fn(T) -> &'static str,
    names: &[String],
) -> Result<Vec<T>, AdminError> {
    if names.is_empty() {
        return Ok(all.to_vec());
    }
    let named = |name: &String| {
        let found = all.iter().copied().find(|one| name_of(*one) == name);
        found.ok_or_else(|| {
            let known: Vec<_> = all.iter().copied().map(&name_of).collect();
            failed(format!("there is no {what} '{name}'; there are {}", known.join(", ")))
        })
    };
    names.iter().map(named).collect()
}

fn run_engine(arguments: &BenchEngineArguments) -> Result<Report, AdminError> {
    let BenchEngineArguments { directory, file_size, memory, depth, rounds, workers } =
        arguments.clone();
    let scratch = scratch(Some(&directory))?;
    let directory = scratch.path().to_owned();
    let bench = EngineBench { directory, file: file_size, memory, depth, rounds, workers };
    engine(&bench, &mut progress).map_err(failed)
}

fn run_flexvol(arguments: &BenchFlexvolArguments) -> Result<Report, AdminError> {
    let BenchFlexvolArguments { figures, directory, memory, sizes, .. } = arguments.clone();
    let BenchFlexvolArguments { depth, seconds, rounds, workers, .. } = *arguments;
    let figures = named("figure", &FlexvolFigure::ALL, FlexvolFigure::name, &figures)?;
    let scratch = scratch(Some(&directory))?;
    let bench = FlexvolBench {
        program: std::env::current_exe().map_err(failed)?,
        directory: scratch.path().to_owned(),
        memory,
        sizes_percent: sizes,
        depth,
        round_nanoseconds: seconds.as_nanos() as u64,
        rounds,
        workers,
    };
    flexvol(&bench, &figures, &mut progress).map_err(failed)
}

fn run_model(arguments: &BenchModelArguments) -> Result<Output, AdminError> {
    let bench = model::bench(arguments).map_err(failed)?;
    let report = bench::model(&bench, &mut progress).map_err(failed)?;
    Ok(model::output(&report, head(&report.machine), &machine(&report.machine)))
}

fn run_raid(arguments: &BenchRaidArguments) -> Result<Report, AdminError> {
    let BenchRaidArguments { directory, disk_size, rounds } = arguments.clone();
    let scratch = scratch(Some(&directory))?;
    let directory = scratch.path().to_owned();
    let bench = RaidBench { directory, disk: disk_size, rounds };
    bench::raid(&bench, &mut progress).map_err(failed)
}

fn run_nfs(arguments: &BenchNfsArguments, chart: Option<&Path>) -> Result<Report, AdminError> {
    let (bench, _removed) = nfs_bench(arguments)?;
    match chart {
        Some(file) => strip_chart(&bench, file, &mut progress).map_err(failed),
        None => nfs(&bench, &mut progress).map_err(failed),
    }
}

/// Has this program go on in namespaces of its own, if there is a peer for that; whether it is in
/// some.
fn go_apart() -> Result<bool, AdminError> {
    let apart = std::env::var_os(APART).is_some();
    if !apart && bench::peer_missing().is_none() {
        // Only comes back if it cannot be done: this program goes on in the namespaces.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--"]);
        command.arg(std::env::current_exe().map_err(failed)?).args(std::env::args_os().skip(1));
        let error = command.env(APART, "yes").exec();
        progress(&format!("cannot make namespaces: {error}"));
    }
    Ok(apart)
}

fn compare_nfs(arguments: &BenchNfsArguments) -> Result<Report, AdminError> {
    let apart = go_apart()?;
    let (bench, _removed) = nfs_bench(arguments)?;
    bench::compare_nfs(&bench, apart, &mut progress).map_err(failed)
}

/// What benches of a node have in common, with defaults filled in.
fn node_bench(arguments: BenchNodeArguments) -> Result<(NodeBench, Scratch), AdminError> {
    let removed = scratch(arguments.directory.as_deref())?;
    let bench = NodeBench {
        program: std::env::current_exe().map_err(failed)?,
        directory: removed.path().to_owned(),
        only: arguments.only,
        round_nanoseconds: u64::try_from(arguments.seconds.as_nanos()).unwrap_or(u64::MAX),
        rounds: arguments.rounds,
        file: arguments.file_size,
        memory: arguments.memory,
        journal: arguments.journal_size,
    };
    Ok((bench, removed))
}

fn nfs_bench(arguments: &BenchNfsArguments) -> Result<(NfsBench, Scratch), AdminError> {
    let BenchNfsArguments { node, server, limit } = arguments.clone();
    let (node, removed) = node_bench(node)?;
    Ok((NfsBench { node, server, limit }, removed))
}

fn run_fuse(arguments: &BenchFuseArguments) -> Result<Report, AdminError> {
    let (bench, _removed) = node_bench(arguments.node.clone())?;
    bench::fuse(&bench, &mut progress).map_err(failed)
}

fn streams_bench(arguments: &BenchStreamsArguments) -> Result<(NodeBench, Scratch), AdminError> {
    let BenchStreamsArguments { directory, only, seconds, rounds, .. } = arguments.clone();
    let BenchStreamsArguments { file_size, memory, journal_size, .. } = *arguments;
    let arguments =
        BenchNodeArguments { directory, only, seconds, rounds, file_size, memory, journal_size };
    node_bench(arguments)
}

fn compare_volumes(arguments: &BenchVolumesArguments) -> Result<Report, AdminError> {
    let BenchVolumesArguments { directory, only, seconds, rounds, .. } = arguments.clone();
    let BenchVolumesArguments { file_size, memory, journal_size, write_back, .. } = *arguments;
    let node =
        BenchNodeArguments { directory, only, seconds, rounds, file_size, memory, journal_size };
    let (node, _removed) = node_bench(node)?;
    let snapshot_nanoseconds = arguments.snapshot_seconds.as_nanos() as u64;
    let bench = VolumesBench { node, snapshot_nanoseconds, write_back };
    bench::compare_volumes(&bench, &mut progress).map_err(failed)
}

fn run_start(arguments: &BenchStartArguments) -> Result<Report, AdminError> {
    let BenchStartArguments { directory, only, rounds, data, files, .. } = arguments.clone();
    let BenchStartArguments { volumes, memory, journal_size, .. } = arguments.clone();
    let removed = scratch(directory.as_deref())?;
    let directory = removed.path().to_owned();
    let program = std::env::current_exe().map_err(failed)?;
    let (round_nanoseconds, file, journal) = (0, data, journal_size);
    let node =
        NodeBench { program, directory, only, round_nanoseconds, rounds, file, memory, journal };
    bench::start(&StartBench { node, files, volumes }, &mut progress).map_err(failed)
}

/// Serves nothing; only an error ends it.
fn run_limit() -> AdminError {
    let serve = || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        println!("{}", listener.local_addr()?);
        std::io::stdout().flush()?;
        serve_nothing(&listener)
    };
    match serve() {
        Ok(()) => failed("it ended"),
        Err(error) => failed(error),
    }
}

/// A directory for what a bench makes, in the one that was asked for or a temporary one.
fn scratch(asked: Option<&Path>) -> Result<Scratch, AdminError> {
    Scratch::new(asked).map_err(|error| {
        let shown = asked.map_or_else(std::env::temp_dir, Path::to_owned).display().to_string();
        AdminError::new(Code::Failed, "cannot make a directory for the bench in", shown)
            .because(error.to_string())
            .try_next("--directory with another place")
    })
}

/// Has signals end the bench with nothing left behind; a second interrupt ends it at once.
///
/// timeout(1) sends its signal twice, to the bench and to the bench's process group: that is one
/// wish. So SIGTERM never ends the cleaning up, and SIGINT does only when it comes later.
fn clean_up_on_signals() -> Result<(), AdminError> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let watch = move || {
        let mut begun = None;
        for signal in signals.forever() {
            let status = SIGNALLED_STATUS + signal;
            let now = SystemClock.monotonic_nanoseconds();
            if let Some(begun) = begun {
                if signal == SIGINT && now - begun > SAME_WISH_NANOSECONDS {
                    progress("interrupted again; what it made stays");
                    std::process::exit(status);
                }
                continue;
            }
            begun = Some(now);
            progress("interrupted; what it made is being removed");
            if let Err(error) = spawn("clean-up", move || clean_up_and_exit(status)) {
                progress(&format!("cannot clean up: {error}"));
                std::process::exit(status);
            }
        }
    };
    spawn("signals", watch).map(drop).map_err(failed)
}

fn output(report: &Report) -> Output {
    let records: Vec<Value> = report.rows.iter().map(record).collect();
    let names = report.rows.iter().map(|row| row.load.clone()).collect();
    let json = json!({
        "machine": machine(&report.machine),
        "notes": report.notes,
        "records": records,
        "num_records": records.len(),
        "spans": report.spans.iter().map(span).collect::<Vec<_>>(),
    });
    let mut lines = vec![String::new()];
    lines.extend(report.notes.iter().cloned());
    let head = head(&report.machine);
    Output { json, names, head, table: Some(table(&report.rows)), lines, ..Output::default() }
}

fn head(machine: &Machine) -> Vec<String> {
    let contended = if machine.is_contended() { ": contended" } else { "" };
    vec![
        format!("{}", machine.command),
        format!(
            "commit {}, {} cores ({}), kernel {}, load {}.{:02} at the start{contended}",
            machine.commit,
            machine.cores,
            machine.processor,
            machine.kernel,
            machine.load_hundredths / 100,
            machine.load_hundredths % 100,
        ),
        String::new(),
    ]
}

fn machine(machine: &Machine) -> Value {
    json!({
        "command": machine.command,
        "commit": machine.commit,
        "cores": machine.cores,
        "processor": machine.processor,
        "kernel": machine.kernel,
        "memory_bytes": machine.memory_bytes,
        "load_hundredths": machine.load_hundredths,
        "began_seconds": machine.began_seconds,
    })
}

/// A whole number, none for none.
fn whole(value: Option<f64>) -> Option<u64> {
    value.map(|value| value.round() as u64)
}

fn series(series: &Series) -> Value {
    let latency = |thousandths| series.latencies.quantile(thousandths);
    json!({
        "median": whole(series.median()),
        "lowest": whole(series.lowest()),
        "highest": whole(series.highest()),
        "rounds": series.rounds.iter().map(|round| whole(Some(*round))).collect::<Vec<_>>(),
        "latency_p50_ns": latency(500),
        "latency_p99_ns": latency(990),
        "latency_max_ns": latency(1000),
        "client_cpu_ns": series.client_cost(),
        "device_read_bytes": series.device.map(|device| device.read),
        "device_written_bytes": series.device.map(|device| device.written),
    })
}

fn record(row: &Row) -> Value {
    let beside = |beside: &Beside| {
        let share = row.share(&beside.series).map(|share| share * 1e6);
        json!({
            "name": beside.name,
            "role": match beside.role {
                Role::Limit => "limit",
                Role::Peer => "peer",
                Role::Orientation => "orientation",
            },
            "figures": series(&beside.series),
            "share_millionths": whole(share),
        })
    };
    json!({
        "load": row.load,
        "unit": row.unit.base(),
        "figures": series(&row.ours),
        "beside": row.beside.iter().map(beside).collect::<Vec<_>>(),
    })
}

fn span(span: &Span) -> Value {
    let means = |sums: &BTreeMap<String, u64>| -> Value {
        let mean = |sum: &u64| Value::from(span.mean_millionths(*sum));
        sums.iter().map(|(name, sum)| (name.clone(), mean(sum))).collect()
    };
    json!({
        "load": span.load,
        "nanoseconds": span.nanoseconds,
        "processor_nanoseconds": span.processor_nanoseconds,
        "samples": span.samples,
        "running_threads_millionths": means(&span.running),
        "asleep_threads_millionths": means(&span.asleep),
        "waiting_millionths": means(&span.waiting),
        "busy_millionths": means(&span.busy),
    })
}

/// A figure as the table shows it: three digits at least.
fn figure(value: Option<f64>, unit: Unit) -> String {
    match value.map(|value| value / unit.scale()) {
        None => "-".to_owned(),
        Some(value) if value < 1.0 => format!("{value:.3}"),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// A duration with three digits.
fn duration(nanoseconds: Option<u64>) -> String {
    match nanoseconds {
        None => "-".to_owned(),
        Some(value @ ..10_000) => format!("{:.1}us", value as f64 / 1e3),
        Some(value @ ..1_000_000) => format!("{}us", value / 1_000),
        Some(value @ ..10_000_000) => format!("{:.1}ms", value as f64 / 1e6),
        Some(value @ ..10_000_000_000) => format!("{}ms", value / 1_000_000),
        Some(value) => format!("{}s", value / 1_000_000_000),
    }
}

fn quantile(latencies: &Latencies, thousandths: u64) -> String {
    duration(latencies.quantile(thousandths))
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        ("LOAD", Column::Text),
        ("MEDIAN", Column::Number),
        ("LOWEST", Column::Number),
        ("HIGHEST", Column::Number),
        ("UNIT", Column::Text),
        ("P50", Column::Number),
        ("P99", Column::Number),
        ("BESIDE", Column::Long),
        ("MEDIAN", Column::Number),
        ("SHARE", Column::Number),
    ]);
    for row in rows {
        let unit = row.unit;
        let measured = |beside: &&Beside| !beside.series.rounds.is_empty();
        let mut others = row.beside.iter().filter(measured);
        let other = |beside: Option<&Beside>| {
            let Some(beside) = beside else {
                return [String::new(), "-".to_owned(), "-".to_owned()];
            };
            let share = row.share(&beside.series);
            let share = match share {
                None => "-".to_owned(),
                Some(share) if share < 1.5 => format!("{:.0}%", share * 100.0),
                Some(share) => format!("{share:.2}x"),
            };
            [beside.name.clone(), figure(beside.series.median(), unit), share]
        };
        let [name, median, share] = other(others.next());
        table.row([
            row.load.clone(),
            figure(row.ours.median(), unit),
            figure(row.ours.lowest(), unit),
            figure(row.ours.highest(), unit),
            unit.shown().to_owned(),
            quantile(&row.ours.latencies, 500),
            quantile(&row.ours.latencies, 990),
            name,
            median,
            share,
        ]);
        for more in others {
            let [name, median, share] = other(Some(more));
            let empty = String::new;
            table.row([
                empty(),
                empty(),
                empty(),
                empty(),
                empty(),
                empty(),
                empty(),
                name,
                median,
                share,
            ]);
        }
    }
    table
}
