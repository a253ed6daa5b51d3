//! The grammar of `stroop event`.

use admin_api::{EventSeverity, Time, duration};
use clap::{Args, Subcommand};
use std::time::Duration;

/// `stroop event`.
#[derive(Subcommand, Debug)]
pub enum EventCommand {
    /// The events that the server keeps, oldest first
    List {
        /// Those of this time and later (2026-11-20T18:32:28Z), or of the last so long (90s, 4h)
        #[arg(long, value_name = "TIME or DURATION", value_parser = parse_since)]
        since: Option<Since>,
        /// Those that are at least so bad: info, warning or error
        #[arg(long, value_name = "SEVERITY", value_parser = parse_severity)]
        severity: Option<EventSeverity>,
        /// The last so many
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        most: Option<u64>,
    },
    /// The last events; with -f, then each one as it comes. With -o json an object a line
    Tail(EventTailArguments),
}

/// `stroop event tail`.
#[derive(Args, Debug)]
pub struct EventTailArguments {
    /// Go on with the events to come, until the server ends or Ctrl-C is pressed
    #[arg(short, long)]
    pub follow: bool,
    /// Those that are at least so bad: info, warning or error
    #[arg(long, value_name = "SEVERITY", value_parser = parse_severity)]
    pub severity: Option<EventSeverity>,
    /// The last so many [default: 10, or all with --after]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub most: Option<u64>,
    /// Those with a larger number than this one: where another 'event tail' ended
    #[arg(long, value_name = "SEQUENCE")]
    pub after: Option<u64>,
}

/// From when on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Since {
    /// From a time on.
    Time(Time),
    /// Of the last so long.
    Within(Duration),
}

fn parse_since(text: &str) -> Result<Since, String> {
    let within = |_| duration::parse(text).map(Since::Within);
    text.parse().map(Since::Time).or_else(within).map_err(|error| {
        format!("neither a time such as 2026-11-20T18:32:28Z, nor a duration: {error}")
    })
}

fn parse_severity(text: &str) -> Result<EventSeverity, String> {
    let mut known = EventSeverity::ALL.into_iter();
    let found = known.find(|severity| severity.to_string() == text);
    found.ok_or_else(|| "not info, warning or error".to_owned())
}
