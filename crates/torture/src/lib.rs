//! Torture of the real binary on real files, by SIGKILL at random moments under load; and of the
//! engine on real threads.
//!
//! A round starts the server, lets writers and a program (git, SQLite, make) work on a volume,
//! kills the server, looks at the media with the independent reader, starts the server again
//! (sometimes killing it once more while it replays), and compares what is there with what was
//! acknowledged.
//!
//! | module | what |
//! | --- | --- |
//! | [`node`] | a state directory with disks, and the server on it |
//! | [`tree`] | what must be there: a model with the freedom that a crash has |
//! | [`found`] | what is there, read through the mount |
//! | [`attacks`] | clients that mean harm, beside one that is honest |
//! | [`command_line`] | what the command lines have in common |
//! | `crew` | writers that work together until the server is killed |
//! | [`worker`] | a writer: random operations over FUSE or NFS, and what was promised of them |
//! | [`kernel_client`] | Linux's own NFS client, in a guest, over kills |
//! | [`measure`] | latencies by class, and what the server's process uses |
//! | [`pace`] | so many operations a second |
//! | [`power`] | power cuts of the real binary: every flush of its disks replayed |
//! | [`programs`] | git, SQLite and make as writers |
//! | [`rounds`] | the loop of short rounds: everything dies with the server |
//! | [`site`] | where a run works, and who follows it |
//! | [`soak`] | hours of load with kills in between: clients go on over them; figures |
//! | [`stress`] | the engine itself in this process, on real threads |
//!
//! Invariants: what is noted of acknowledged operations lies outside of the volume; a writer owns
//! its directory, so its own order of operations is the order of what is there; the same seed makes
//! the same choices, though the moments of the kills are the machine's.
//!
//! Fails: [`Failure`], with what was expected and found.

#![forbid(unsafe_code)]

pub mod attacks;
pub mod command_line;
mod crew;
pub mod found;
pub mod kernel_client;
pub mod measure;
pub mod node;
pub mod pace;
pub mod power;
pub mod programs;
pub mod random;
pub mod rounds;
pub mod site;
pub mod soak;
pub mod stress;
pub mod tree;
pub mod worker;

use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// A path as an argument: absolute, since programs under test change their directory.
///
/// # Errors
/// An empty path, or no current directory.
pub fn absolute_path(text: &str) -> io::Result<PathBuf> {
    std::path::absolute(text)
}

/// Why a round did not pass.
#[derive(Debug, Error)]
pub enum Failure {
    /// The machine did not do its part.
    #[error("{what}: {error}")]
    Machine {
        /// What was tried.
        what: String,
        /// What it came to.
        error: io::Error,
    },
    /// The server ended, refused a command, or said something that it must not.
    #[error("the server: {0}")]
    Server(String),
    /// An operation was refused that must succeed.
    #[error("{worker}: {operation} was refused: {reason}")]
    Refused {
        /// Whose operation.
        worker: String,
        /// What was asked for.
        operation: String,
        /// What was answered.
        reason: String,
    },
    /// A writer found what it takes for impossible.
    #[error("a writer panicked; what it asserted is on standard error")]
    Panicked,
    /// Somebody else found something.
    #[error("the run ended: another worker found something")]
    Stopped,
    /// What is there is not what was acknowledged.
    #[error("{who}: {what}")]
    Lost {
        /// Whose data.
        who: String,
        /// What is wrong with it.
        what: String,
    },
}

impl Failure {
    /// For `map_err`: an error of the machine, with what was tried.
    pub fn machine(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Machine { what, error }
    }

    /// As [`Self::machine`], for something done with a path.
    pub fn at(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        Self::machine(format!("{what} {}", path.display()))
    }
}
