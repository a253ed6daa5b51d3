//! The project's own tasks: `cargo xtask ci`, `tidy`, `deny`, `shuttle`, `dist`, `fuzz` and
//! `callgrind`.
//!
//! `ci` is everything that must pass before a change lands, in the order of its cost, and the only
//! thing that a hosted CI calls (through `make test`). `tidy` is the part of it that no other tool
//! checks: the rules of STYLE.md and the import rules of ARCHITECTURE.md. `shuttle` is another
//! part: it builds a few crates once more, with locks that a test drives (`target-shuttle`). `fuzz`
//! wants a nightly compiler and cargo-fuzz, and is no part of `ci`, which replays its seeds only.
//!
//! Fails: with status 1 and a line for each finding, or the status of the command that failed;
//! status 2 for a command line that makes no sense.

#![forbid(unsafe_code)]

mod callgrind;
mod deny;
mod dist;
mod fuzz;
mod tidy;
mod walls;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;

/// One step of `ci`: what it is called, and the cargo command.
type Step<'a> = (&'a str, &'a [&'a str]);

/// The steps in their order, but for [`SHUTTLE`], which runs beside the tests.
const STEPS: [Step<'static>; 5] = [
    ("fmt", &["fmt", "--all", "--check"]),
    ("clippy", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]),
    ("doc", DOC),
    ("build", &["test", "--workspace", "--no-run", "--quiet"]),
    ("test", &["test", "--workspace", "--no-fail-fast"]),
];

/// Documentation without a warning. Headers link to private items, since readers of the source are
/// whom they are for.
const DOC: &[&str] = &[
    "--config",
    "build.rustdocflags=[\"-D\",\"warnings\",\"-A\",\"rustdoc::private_intra_doc_links\"]",
    "doc",
    "--workspace",
    "--no-deps",
    "--document-private-items",
    "--quiet",
];

/// The tests that choose which thread goes on at each lock (docs/testing.md, section 1).
const SHUTTLE: Step<'static> = (
    "shuttle",
    &[
        "--config",
        "build.rustflags=[\"--cfg\",\"shuttle\"]",
        "test",
        "--profile",
        "simulation",
        "--target-dir",
        "target-shuttle",
        "--package",
        "affinity",
        "--package",
        "nvlog",
        "--package",
        "aggregate",
        "--lib",
        "shuttle",
    ],
);

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["ci"] => ci(),
        ["tidy"] => tidy::run(&root()),
        ["deny"] if deny::Deny::here(&root()).check().passed => ExitCode::SUCCESS,
        ["deny"] => ExitCode::FAILURE,
        ["dist", rest @ ..] => dist::run(&root(), rest),
        ["callgrind"] => callgrind::run(&root()),
        ["walls"] => walls::run(&root(), None),
        ["walls", name] => walls::run(&root(), Some(name)),
        ["shuttle"] if cargo(SHUTTLE) => ExitCode::SUCCESS,
        ["shuttle"] => ExitCode::FAILURE,
        ["fuzz", rest @ ..] => fuzz::run(&root(), rest),
        _ => {
            eprintln!(
                "usage: cargo xtask ci      format, tidy, clippy, rustdoc, licences, tests\n       \
                 cargo xtask tidy    the rules of STYLE.md and the import rules\n       \
                 cargo xtask deny    licences, sources, advisories\n       \
                 cargo xtask walls [CRATE]    import cycles inside crates\n       \
                 cargo xtask shuttle    threads at locks, in thousands of interleavings\n       \
                 cargo xtask dist    packages for users, in target/dist\n       \
                 cargo xtask callgrind    instructions of each operation, by valgrind\n       \
                 cargo xtask fuzz [TARGET] [--seconds N]    fuzz a target, or each in turn"
            );
            ExitCode::from(2)
        }
    }
}

/// The repository's root: where the workspace of this crate is.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

fn ci() -> ExitCode {
    let [format, clippy, doc, build, test] = STEPS;
    if !cargo(format) {
        return ExitCode::FAILURE;
    }
    println!("== tidy");
    if tidy::run(&root()) != ExitCode::SUCCESS || !cargo(clippy) || !cargo(doc) {
        return ExitCode::FAILURE;
    }
    let denied = deny::Deny::here(&root()).check();
    if !denied.passed {
        eprintln!("xtask: deny failed");
    }
    if !denied.passed || !cargo(build) || !cargo_beside(SHUTTLE, test) {
        return ExitCode::FAILURE;
    }
    let tried = dist::try_package(&root());
    if !tried.passed {
        return ExitCode::FAILURE;
    }
    // Once more, where it is read.
    denied.gaps.iter().for_each(|gap| println!("== deny: {gap}"));
    tried.gaps.iter().for_each(|gap| println!("== package: NOT TRIED: {gap}"));
    ExitCode::SUCCESS
}

fn cargo((name, arguments): Step<'_>) -> bool {
    println!("== {name}: cargo {}", arguments.join(" "));
    has_passed(name, cargo_command(arguments).status())
}

/// Runs a step beside another one, which leaves a processor idle for much of its time, and shows
/// what it printed after that. They share no target directory.
fn cargo_beside((name, arguments): Step<'_>, other: Step<'_>) -> bool {
    println!("== {name}: cargo {}, beside {}", arguments.join(" "), other.0);
    let mut command = cargo_command(arguments);
    // The other step's tests have patience, and not without end.
    command.env("CARGO_BUILD_JOBS", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let begun = command.spawn();
    thread::scope(|scope| {
        let beside = scope.spawn(|| begun.and_then(Child::wait_with_output));
        println!("== {}: cargo {}", other.0, other.1.join(" "));
        let other_status = cargo_command(other.1).status();
        println!("== {name}, which ran beside it");
        let Ok(ended) = beside.join() else { return false };
        let status = ended.map(|output| {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
            output.status
        });
        // Both verdicts come last.
        has_passed(name, status) & has_passed(other.0, other_status)
    })
}

fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

fn has_passed(name: &str, status: io::Result<ExitStatus>) -> bool {
    match status {
        Ok(status) if status.success() => true,
        Ok(status) => {
            eprintln!("xtask: {name} failed ({status})");
            false
        }
        Err(error) => {
            eprintln!("xtask: {name} cannot be run: {error}");
            false
        }
    }
}
