//! `cargo xtask callgrind`: instructions of each operation on an engine in memory.
//!
//! The example `operation` of the crate `bench` runs under callgrind twice, with two counts; the
//! difference divided by the difference of the counts is one operation, without what was prepared.
//! Instructions are the same on a busy machine, so that a change of a percent can be seen.
//!
//! Fails: with a sentence if valgrind is not installed, or the example fails.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const FEW: u64 = 2_000;
const MANY: u64 = 12_000;

pub(crate) fn run(root: &Path) -> ExitCode {
    match table(root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("callgrind: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table(root: &Path) -> Result<(), String> {
    let valgrind = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !valgrind.is_ok_and(|status| status.success()) {
        return Err("valgrind is missing; install the package valgrind".to_owned());
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["build", "--release", "--package", "bench", "--example", "operation"];
    let built = Command::new(cargo).args(arguments).current_dir(root).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the example operation of the crate bench does not build".to_owned());
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let example = root.join(target).join("release/examples/operation");
    let listed = Command::new(&example).output().map_err(|error| error.to_string())?;
    println!("| operation | instructions |\n| --- | --- |");
    for name in String::from_utf8_lossy(&listed.stdout).lines() {
        let (few, many) = (count(&example, name, FEW)?, count(&example, name, MANY)?);
        println!("| {name} | {} |", many.saturating_sub(few) / (MANY - FEW));
    }
    Ok(())
}

/// Instructions of a run.
fn count(example: &Path, name: &str, operations: u64) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(example)
        .args([name, &operations.to_string()])
        .output()
        .map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    let failed = || format!("{name} {operations} failed: {said}");
    if !output.status.success() {
        return Err(failed());
    }
    collected(&said).ok_or_else(failed)
}

/// The number behind `Collected :`, which is what callgrind counted.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_out_of_what_callgrind_says() {
        assert_eq!(collected("==7== x\n==7== Collected : 2456\n==7==\n"), Some(2456));
        assert_eq!(collected("==7== nothing"), None);
    }
}
