//! `cargo xtask fuzz [TARGET] [--seconds N]`: runs a fuzz target, or each of them in turn.
//!
//! What is found goes to `fuzz/artifacts/TARGET`, what is learnt to `fuzz/corpus/TARGET`, neither
//! of which is committed; `fuzz/seeds/TARGET` is where a run begins.
//!
//! Invariants: built optimised, with debug assertions and overflow checks; no address sanitizer,
//! since nearly all that runs is safe Rust, and it costs most of the speed.
//!
//! Fails: with status 1 at the first target that finds something or cannot be built, 2 for a
//! command line that makes no sense.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

/// How long a target runs unless something else is said.
const SECONDS_DEFAULT: u64 = 60;
/// Longest input. Longer ones reach nothing that two of half the length do not.
const INPUT_BYTES_MAX: u64 = 4400;
/// An input that runs longer than this never ends, as far as anybody knows.
const INPUT_SECONDS_MAX: u64 = 60;
/// Memory that no input may take.
const MEMORY_MEBIBYTES_MAX: u64 = 2048;

pub(crate) fn run(root: &Path, words: &[&str]) -> ExitCode {
    let all = match targets(root) {
        Ok(all) => all,
        Err(error) => {
            eprintln!("fuzz: the targets in fuzz/fuzz_targets cannot be read: {error}");
            return ExitCode::FAILURE;
        }
    };
    let Some((target, seconds)) = parse(words) else {
        eprintln!("usage: cargo xtask fuzz [TARGET] [--seconds N]");
        return ExitCode::from(2);
    };
    let chosen: Vec<&String> =
        all.iter().filter(|name| target.is_none_or(|target| target == *name)).collect();
    if chosen.is_empty() {
        eprintln!("fuzz: there is no such target; there are {}", all.join(", "));
        return ExitCode::from(2);
    }
    for name in chosen {
        println!("== fuzz {name} for {seconds} seconds");
        if let Err(error) = fuzz(root, name, seconds) {
            eprintln!("fuzz: {name}: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The target if one is named, and the seconds.
fn parse<'a>(words: &[&'a str]) -> Option<(Option<&'a str>, u64)> {
    match words {
        [] => Some((None, SECONDS_DEFAULT)),
        ["--seconds", seconds] => Some((None, seconds.parse().ok()?)),
        [target] if !target.starts_with('-') => Some((Some(target), SECONDS_DEFAULT)),
        [target, "--seconds", seconds] => Some((Some(target), seconds.parse().ok()?)),
        _ => None,
    }
}

/// The names of all targets, in order.
fn targets(root: &Path) -> std::io::Result<Vec<String>> {
    let entries = fs::read_dir(root.join("fuzz/fuzz_targets"))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    let stem = |path: &std::path::PathBuf| Some(path.file_stem()?.to_str()?.to_owned());
    let mut names: Vec<String> = paths.iter().filter_map(stem).collect();
    names.sort();
    Ok(names)
}

fn fuzz(root: &Path, target: &str, seconds: u64) -> Result<(), String> {
    let folder = root.join("fuzz");
    let corpus = folder.join("corpus").join(target);
    fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz", "run", "--sanitizer", "none", "--fuzz-dir"]);
    command.arg(&folder).arg(target).arg(&corpus).arg(folder.join("seeds").join(target));
    command.args(["--", &format!("-max_total_time={seconds}")]);
    command.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    command.arg(format!("-rss_limit_mb={MEMORY_MEBIBYTES_MAX}"));
    // The compiler that xtask was built with must not be the one that is asked for.
    command.env_remove("CARGO").env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    match command.current_dir(root).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!(
            "{status}; it wants `rustup toolchain install nightly` and `cargo install cargo-fuzz`; \
             what it found lies in fuzz/artifacts/{target}"
        )),
        Err(error) => Err(format!("rustup cannot be run: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines() {
        assert_eq!(parse(&[]), Some((None, SECONDS_DEFAULT)));
        assert_eq!(parse(&["config"]), Some((Some("config"), SECONDS_DEFAULT)));
        assert_eq!(parse(&["config", "--seconds", "5"]), Some((Some("config"), 5)));
        assert_eq!(parse(&["--seconds", "5"]), Some((None, 5)));
        for wrong in [&["--seconds"][..], &["--seconds", "x"], &["a", "b"], &["-x"]] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
