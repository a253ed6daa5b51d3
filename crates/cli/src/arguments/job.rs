//! The grammar of `stroop job`.

use clap::Subcommand;

/// `stroop job`.
#[derive(Subcommand, Debug)]
pub enum JobCommand {
    /// The jobs that are not over, and the last hundred that are
    List,
    /// One job: how far it is, how fast it gets on, how it ended
    Show {
        /// Its number
        job: u64,
    },
}
