//! The command line: `stroop <noun> <verb> [NAME] [--flag value]`.
//!
//! [`arguments`] is the grammar, [`commands`] turns a command into calls of
//! `admin_api::Administration` and their answers into an [`output::Output`], which is shown as a
//! table, as JSON or as names. The node may be at the other end of a socket
//! ([`transport::SocketTransport`]) or in memory (tests): commands cannot tell.
//!
//! `init`, `serve`, `bench`, `check`, `completion` and `manual` are part of the grammar and carried
//! out by the binary (crate `server`).
//!
//! Invariants:
//! - With `-o json` standard output holds one JSON document and nothing else (`event tail` and `job
//!   watch`: one a line); with `-o name`, names, a line each. Questions, errors and hints that are
//!   not the answer go to standard error.
//! - A destructive act is done only after its summary was shown and the name typed back, or with
//!   `--yes`. Without a terminal and without `--yes` it fails and says which flag to add.
//! - What was done is printed, and the command to type next, as it must be typed here.
//! - What may have to be typed is shown whole at any width; tables and the checks of `status` stay
//!   within the terminal otherwise, and are as wide as they need in a pipe or a file.
//!
//! Fails: with an `AdminError`; its code is the exit status.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod commands;
pub mod confirm;
mod features;
pub mod output;
pub mod owner;
mod quantities;
mod selection;
pub mod table;
pub mod terminal;
pub mod transport;

pub use arguments::{
    BenchBigArguments, BenchCommand, BenchCompareCommand, BenchEngineArguments,
    BenchFlexvolArguments, BenchFreespaceArguments, BenchFuseArguments, BenchModelArguments,
    BenchNfsArguments, BenchNodeArguments, BenchRaidArguments, BenchStartArguments,
    BenchStreamsArguments, BenchVolumesArguments, CheckCommand, Cli, ClientCommand, Command,
    CompletionArguments, InitArguments, JobCommand, LogFormat, ManualArguments, ModelMedium,
    Options, ServeArguments, Shell,
};
pub use commands::run;
pub use terminal::Terminal;
pub use transport::SocketTransport;
