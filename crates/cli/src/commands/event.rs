//! `stroop event`: what has happened to disks, aggregates and jobs.
//!
//! Invariants: an event is shown whole, one after the other; with `-o json` `event list` is one
//! document, and `event tail` one object a line, as the events come.
//!
//! Fails: as the server says; a server that ends while events are followed ends that, and the error
//! says how to go on.

use super::moments::let_a_moment_pass;
use crate::arguments::{EventCommand, EventTailArguments, Format, Options, Since};
use crate::output::{Output, print_error};
use crate::quantities::count;
use crate::table::{Table, printable};
use crate::terminal::Terminal;
use admin_api::{AdminError, Administration, Code, Event, EventList, EventSeverity, Time};
use std::io;
use units::Timestamp;

/// Events that `event tail` begins with.
const TAIL_MOST: u64 = 10;

pub(super) fn run(command: &EventCommand, node: &dyn Administration) -> Result<Output, AdminError> {
    match command {
        EventCommand::List { since, severity, most } => {
            let (since, within_ns) = match since {
                None => (None, None),
                Some(Since::Time(time)) => (Some(*time), None),
                Some(Since::Within(within)) => {
                    (None, Some(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX)))
                }
            };
            let (severity, most, after) = (*severity, *most, None);
            let events = node.event_list(&EventList { after, since, within_ns, severity, most })?;
            let output =
                Output::list(&events, |event| event.sequence.to_string(), Table::new(&[]))?;
            let lines: Vec<String> = events.iter().flat_map(lines).collect();
            Ok(match lines.is_empty() {
                true => output.line("no events"),
                false => Output { lines, ..output },
            })
        }
        EventCommand::Tail(_) => unreachable!("it prints as events come"),
    }
}

/// `stroop event tail`; its exit status.
pub(super) fn tail(
    arguments: &EventTailArguments,
    options: &Options,
    node: &dyn Administration,
    terminal: &mut Terminal<'_>,
) -> u8 {
    let EventTailArguments { follow, severity, most, after } = *arguments;
    let most = most.or_else(|| after.is_none().then_some(TAIL_MOST));
    let mut asked = EventList { after, severity, most, ..EventList::default() };
    loop {
        let events = match node.event_list(&asked) {
            Ok(events) => events,
            Err(error) => return print_error(&cut_off(error, asked.after), options, terminal),
        };
        if let Err(error) = show(&events, &asked, options, terminal) {
            // Whoever read the events has seen enough: `stroop event tail -f | head -1`.
            if error.kind() == io::ErrorKind::BrokenPipe {
                return 0;
            }
            let failed = AdminError::new(Code::Failed, "cannot print the events", "");
            return print_error(&failed.because(error.to_string()), options, terminal);
        }
        if !follow {
            return 0;
        }
        let last = events.last().map(|event| event.sequence);
        (asked.after, asked.most) = (Some(last.or(asked.after).unwrap_or(0)), None);
        let_a_moment_pass();
    }
}

/// An error after events were shown: how to go on after the last of them.
fn cut_off(error: AdminError, after: Option<u64>) -> AdminError {
    match after {
        None => error,
        Some(after) => error
            .because(format!("events up to number {after} were shown"))
            .try_next(format!("stroop event tail -f --after {after}")),
    }
}

fn show(
    events: &[Event],
    asked: &EventList,
    options: &Options,
    terminal: &mut Terminal<'_>,
) -> io::Result<()> {
    if let (Some(after), None, None, Some(first)) =
        (asked.after, asked.severity, asked.most, events.first())
        && first.sequence > after + 1
        && after > 0
    {
        let dropped = first.sequence - after - 1;
        let dropped = count(dropped, "event");
        writeln!(terminal.err, "not kept any more: {dropped} after number {after}")?;
    }
    for event in events {
        match options.output {
            Format::Json => {
                let json = serde_json::to_string(event).map_err(io::Error::other)?;
                writeln!(terminal.out, "{json}")?;
            }
            Format::Name => writeln!(terminal.out, "{}", event.sequence)?,
            // YAML and CSV are refused before.
            Format::Table | Format::Wide | Format::Yaml | Format::Csv => {
                for line in lines(event) {
                    writeln!(terminal.out, "{line}")?;
                }
            }
        }
    }
    terminal.out.flush()
}

/// `2026-11-20T18:32:28Z  warning  DISK_MISSING  d3: it is gone`, and what to do.
fn lines(event: &Event) -> Vec<String> {
    let time = Time(Timestamp::from_parts(event.time.0.seconds(), 0));
    let Event { severity, code, object, cause, .. } = event;
    let (object, cause) = (printable(object), printable(cause));
    let mut lines = vec![format!("{time}  {severity:<7}  {code}  {object}: {cause}")];
    if *severity > EventSeverity::Info
        && let Some(next) = &event.next
    {
        lines.push(format!("      next: {}", printable(next)));
    }
    lines
}

#[cfg(test)]
mod tests;
