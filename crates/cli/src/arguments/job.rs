//! The grammar of `stroop job`.

use super::parse_rate_limit;
use admin_api::RateLimit;
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
        /// Do at most so much a second from now on: 50M, or none for no limit [default: as before]
        #[arg(long, value_name = "SIZE|none", value_parser = parse_rate_limit)]
        rate: Option<RateLimit>,
    },
    /// Have a job be faster or slower, also after a restart: a scrub, or a disk that is filled
    Set {
        /// Its number
        job: u64,
        /// Do at most so much a second from now on: 50M, or none for no limit
        #[arg(long, value_name = "SIZE|none", value_parser = parse_rate_limit)]
        rate: RateLimit,
    },
    /// Give a job up
    Cancel {
        /// Its number
        job: u64,
    },
    /// Show how jobs get on, as they do, until none goes on any more
    #[command(after_help = "Without a number it shows all jobs that go on or begin meanwhile. \
        On a terminal they are written over; elsewhere there is a line for each change, with -o \
        json an object a line. Ctrl-C ends it, and --wait after a while; the jobs go on.\n\n\
        Exit status: 0 all succeeded, 1 one failed or was cancelled, 4 the job is paused, 7 they \
        are not over after --wait.")]
    Watch {
        /// Its number [default: all jobs that go on]
        job: Option<u64>,
    },
    /// Wait until a job is over, at most as long as --wait says, or else 15 minutes; the job goes
    /// on in any case
    #[command(after_help = "Exit status: 0 it succeeded, 1 it failed or was cancelled, 4 it is \
        paused, 7 it is not over.")]
    Wait {
        /// Its number
        job: u64,
    },
}
