//! Programs of the system that benches run.
//!
//! Invariants: a program is found also where the `PATH` of a user does not look; an interrupt at
//! the terminal is for the bench, not for them. Fails: with what the program said.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where a program is.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::env::split_paths(&paths).chain(["/usr/sbin".into(), "/sbin".into()]);
    paths.map(|path| path.join(program)).find(|path| path.exists())
}

/// The program, which hears and says nothing.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs a program to its end, and returns its output. Where it leaves something, the caller is
/// within [`crate::leftovers::run`].
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = command(program);
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).args(arguments).output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{program} {}: {said}", arguments.join(" ")))
}
