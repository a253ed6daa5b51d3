//! The options of every command: where the server is, how to wait, and how to show the answer.

use crate::selection::{Condition, Selection};
use admin_api::AdminError;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// How long an answer is waited for unless something else is said.
const ANSWER_WAIT: Duration = Duration::from_secs(15 * 60);

/// The options of every command.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
pub struct Options {
    /// How to print: a table for people; JSON, YAML, CSV or bare names for scripts
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table)]
    pub output: Format,
    /// Show these fields of the JSON only, in this order: name,size_bytes,protection.disk_failures
    #[arg(long, global = true, value_name = "FIELD,..", value_delimiter = ',')]
    pub fields: Vec<String>,
    /// Of a list show what fits: 'size_bytes>10G', 'state!=online', 'name~web'; all of several
    #[arg(long = "where", global = true, value_name = "CONDITION")]
    pub conditions: Vec<Condition>,
    /// Sort a list by a field; -FIELD turns the order round
    #[arg(long, global = true, value_name = "FIELD", allow_hyphen_values = true)]
    pub sort: Option<String>,
    /// Print tables and CSV without their header
    #[arg(long, global = true)]
    pub no_header: bool,
    /// Do not ask: the answer to every question is yes
    #[arg(long, global = true)]
    pub yes: bool,
    /// How long to wait at most for the server's answer [default: 15m], and for the end of a job
    /// that the command begins [default: not at all]: 90s, 15m, 4h
    #[arg(long, global = true, value_name = "DURATION", value_parser = admin_api::duration::parse)]
    pub wait: Option<Duration>,
    /// The node's configuration [default: /etc/stroop/stroop.toml]
    #[arg(long, global = true, value_name = "FILE", env = "STROOP_CONFIG")]
    pub config: Option<PathBuf>,
    /// The server's admin socket, instead of the one that the configuration names
    #[arg(long, global = true, value_name = "PATH", env = "STROOP_SOCKET")]
    pub socket: Option<PathBuf>,
}

impl Options {
    /// The part of an answer that `--fields`, `--where` and `--sort` choose.
    #[must_use]
    pub fn selection(&self) -> Selection {
        let Self { fields, conditions, sort, .. } = self.clone();
        Selection { fields, conditions, sort }
    }

    /// Whether these options fit together, whatever the answer is.
    ///
    /// # Errors
    /// `Usage` if not.
    pub fn check(&self) -> Result<(), AdminError> {
        if self.output == Format::Name && !self.fields.is_empty() {
            return Err(AdminError::usage("cannot show fields", "-o name")
                .because("names have no fields")
                .try_next("--fields name -o csv --no-header"));
        }
        Ok(())
    }

    /// Whether a command that prints a line for each event or change can show it so.
    ///
    /// # Errors
    /// `Usage` if not.
    pub(crate) fn check_stream(&self) -> Result<(), AdminError> {
        let refused = |what: &str| {
            AdminError::usage("cannot show what happens as it happens", what)
                .because("each thing is a line by itself: -o table, json and name are there")
        };
        match self.output {
            Format::Yaml => Err(refused("-o yaml")),
            Format::Csv => Err(refused("-o csv")),
            Format::Table | Format::Wide | Format::Json | Format::Name => match self.selection() {
                selection if selection == Selection::default() => Ok(()),
                _ => Err(refused("--fields, --where or --sort")),
            },
        }
    }

    /// How long an answer is waited for.
    #[must_use]
    pub fn answer_wait(&self) -> Duration {
        self.wait.unwrap_or(ANSWER_WAIT)
    }
}

/// How to print.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A table for people.
    Table,
    /// The table, as wide as it needs, in a narrow terminal too.
    Wide,
    /// JSON: sizes in bytes, durations in nanoseconds, times in RFC 3339.
    Json,
    /// The same as YAML.
    Yaml,
    /// The same as comma-separated values, a line for each record.
    Csv,
    /// Names, one a line.
    Name,
}
