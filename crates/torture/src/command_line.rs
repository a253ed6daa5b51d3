//! What the command lines of `kill_loop`, `flush_points`, `soak` and `attacks` have in common:
//! where the server is and works, what its node is like, and how a run ends.

use crate::Failure;
use crate::absolute_path;
use crate::node::Sizes;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The server under test, where it works, and what it meets.
#[derive(Args)]
pub struct Place {
    /// The binary `stroop`
    #[arg(long, value_parser = absolute_path)]
    pub server: PathBuf,
    /// Where disks, log and notes are put; below it a new directory is made
    #[arg(long, value_parser = absolute_path)]
    pub directory: PathBuf,
    /// Where choices come from
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Place {
    /// The new directory of a run of this program.
    #[must_use]
    pub fn new_directory(&self, program: &str) -> PathBuf {
        self.directory.join(format!("{program}-{}", std::process::id()))
    }
}

/// Disks, log, memory and volume.
#[derive(Args)]
pub struct NodeArguments {
    /// The disks, four of them
    #[arg(long, default_value = "4x2G")]
    disks: String,
    /// Size of the volume
    #[arg(long, default_value = "4G")]
    volume: String,
    /// Memory of the server
    #[arg(long, default_value = "256M")]
    memory: String,
    /// Size of the operation log: 64M of short rounds, 128M of a soak, if not given
    #[arg(long)]
    journal: Option<String>,
}

impl NodeArguments {
    /// As sizes; `journal` is the operation log's if none was given.
    #[must_use]
    pub fn sizes(self, journal: &str) -> Sizes {
        let journal = self.journal.unwrap_or_else(|| journal.to_owned());
        let Self { disks, volume, memory, .. } = self;
        Sizes { disks, disks_count: 4, volume, memory, journal }
    }
}

/// Tells how a run in `directory` ended: with what it did, or with a finding, and then the
/// directory is kept.
#[must_use]
pub fn end(outcome: Result<String, Failure>, directory: &Path) -> ExitCode {
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            let _ = std::fs::remove_dir_all(directory);
            ExitCode::SUCCESS
        }
        Err(failure) => {
            println!("finding: {failure}");
            println!("kept: {}", directory.display());
            ExitCode::FAILURE
        }
    }
}
