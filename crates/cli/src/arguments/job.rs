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
    /// Have a job wait until it is resumed, also after a restart
    Pause {
        /// Its number
        job: u64,
    },
    /// Have a job go on that was paused
    Resume {
        /// Its number
        job: u64,
    },
    /// Give a job up
    Cancel {
        /// Its number
        job: u64,
    },
    /// Wait until a job is over, at most as long as --wait says; the job goes on in any case
    #[command(after_help = "Exit status: 0 it succeeded, 1 it failed or was cancelled, 4 it is \
        paused, 7 it is not over.")]
    Wait {
        /// Its number
        job: u64,
    },
}
