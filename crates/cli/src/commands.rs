//! Commands: one file per noun, each a function from arguments to an [`Output`].
//!
//! Invariants: a command prints nothing itself; it asks the node, and returns what to show.

mod aggregate;
mod area_map;
mod begun;
mod clone;
mod deletion;
mod differences;
mod disk;
mod event;
mod export;
mod job;
mod moments;
mod mount;
mod quota;
mod removal;
mod scrub;
mod snapshot;
mod space;
mod status;
mod taking;
mod upkeep;
mod volume;
mod watch;

use crate::arguments::{ClientCommand, EventCommand, JobCommand, Options, UpgradeCommand};
use crate::features;
use crate::output::{Output, print_error};
use crate::terminal::Terminal;
use admin_api::{AdminError, Administration, Code};
use std::io;
use telemetry::render_prometheus;

/// Runs a command against a node and returns the exit status.
pub fn run(
    command: &ClientCommand,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> u8 {
    match (command, options.check_stream()) {
        (
            ClientCommand::Event(EventCommand::Tail(_))
            | ClientCommand::Job(JobCommand::Watch { .. }),
            Err(error),
        ) => return print_error(&error, options, terminal),
        (ClientCommand::Event(EventCommand::Tail(arguments)), Ok(())) => {
            return event::tail(arguments, options, node, terminal);
        }
        (ClientCommand::Job(JobCommand::Watch { job }), Ok(())) => {
            return watch::watch(*job, options, node, terminal);
        }
        _ => {}
    }
    let answer = execute(command, options, node, terminal);
    let output = match answer.and_then(|output| output.select(&options.selection())) {
        Ok(output) => output,
        Err(error) => return print_error(&error, options, terminal),
    };
    match output.print(options, terminal) {
        Ok(()) => output.status,
        // Whoever read the output has seen enough: `stroop volume list | head -1`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => output.status,
        Err(error) => {
            let failed = AdminError::new(Code::Failed, "cannot print the answer", "");
            print_error(&failed.because(error.to_string()), options, terminal)
        }
    }
}

fn execute(
    command: &ClientCommand,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> Result<Output, AdminError> {
    match command {
        ClientCommand::Status { check } => {
            status::status(node, *check, (terminal.colour, terminal.columns))
        }
        ClientCommand::Metrics => metrics(node),
        ClientCommand::Disk(command) => disk::run(command, options, node, terminal),
        ClientCommand::Aggr(command) => aggregate::run(command, options, node, terminal),
        ClientCommand::Scrub(command) => scrub::run(command, options, node, terminal),
        ClientCommand::Job(command) => job::run(command, options, node, terminal),
        ClientCommand::Event(command) => event::run(command, node),
        ClientCommand::Volume(command) => volume::run(command, options, node, terminal),
        ClientCommand::Snapshot(command) => snapshot::run(command, options, node, terminal),
        ClientCommand::Quota(command) => quota::run(command, node),
        ClientCommand::Clone(command) => clone::run(command, (options, terminal), node),
        ClientCommand::Export(command) => export::run(command, node),
        ClientCommand::Mount { volume, mountpoint, write_back } => match (volume, mountpoint) {
            (Some(volume), Some(mountpoint)) => {
                mount::mount(node, (volume, mountpoint), *write_back)
            }
            _ => mount::list(node),
        },
        ClientCommand::Unmount { mountpoint } => mount::unmount(node, mountpoint),
        ClientCommand::Sync { volume } => volume::sync(node, volume.clone()),
        ClientCommand::Upgrade(UpgradeCommand::Check) => {
            let report = node.upgrade_check()?;
            let features::Listing { names, head, table, lines } = features::listing(&report);
            let output = Output::of("upgrade", &report)?;
            Ok(Output { names, head, table: Some(table), lines, ..output })
        }
        ClientCommand::Shutdown => {
            node.shutdown()?;
            let output = Output::of("stopping", &serde_json::json!({ "state": "stopping" }))?;
            Ok(output.line("the server is stopping, with a last consistency point"))
        }
    }
}

fn metrics(node: &dyn Administration) -> Result<Output, AdminError> {
    let metrics = node.status()?.metrics;
    let mut output = Output::of("metrics", &metrics)?;
    output.names = metrics.metrics.iter().map(|metric| metric.name.clone()).collect();
    output.lines = render_prometheus(&metrics).lines().map(str::to_owned).collect();
    Ok(output)
}

#[cfg(test)]
mod tests;
