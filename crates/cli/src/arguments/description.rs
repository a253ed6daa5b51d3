//! Commands that describe the command line itself.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// `stroop completion`.
#[derive(Args, Debug)]
pub struct CompletionArguments {
    /// The shell
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Shells whose completion is made.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shell {
    /// The GNU shell.
    Bash,
    /// The Z shell.
    Zsh,
    /// The friendly interactive shell.
    Fish,
}

/// `stroop manual`.
#[derive(Args, Debug)]
pub struct ManualArguments {
    /// The directory for the pages, which must be there
    pub directory: PathBuf,
}
