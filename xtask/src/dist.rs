//! `cargo xtask dist`: what users install, in `target/dist/`, named by version and architecture.
//!
//! | file | what |
//! | --- | --- |
//! | `stroop_VERSION_ARCH.deb` | a Debian package: program, manual, completions, service |
//! | `stroop-dbgsym_VERSION_ARCH.deb` | its debug information |
//! | `stroop-VERSION-MACHINE-linux.tar.gz` | the same as a static program, for any Linux |
//! | `stroop-VERSION-MACHINE-linux.debug` | its debug information |
//! | `SHA256SUMS` | of all of them |
//!
//! The package is made by `dpkg-deb` and not by cargo-deb: the tarball has the same content, pages
//! and completions come from the program that is packaged, and CI makes a package in seconds: no
//! tool is built first.
//!
//! Invariants: manual and completions are written by the program itself, and it says the version of
//! the package; the same program gives the same packages, byte for byte, because times are those of
//! the commit (`SOURCE_DATE_EPOCH`) and owners are root. The tarball has no dynamic program.
//!
//! Fails: with the tool that failed and what it said.

mod contents;
mod debian;
mod notices;
mod program;
mod stage;
mod tarball;
mod tool;

use crate::deny::Checked;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tool::tool;

/// What `cargo test` builds for the tests of the real binary.
const TRIED_PROGRAM: &str = "target/debug/stroop";

/// Why something was not made.
type Outcome<T> = Result<T, String>;

/// What is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Debian,
    Tarball,
}

/// How `dist` was called.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Arguments {
    kinds: Vec<Kind>,
    /// The program to package, in place of one that is built for it.
    program: Option<PathBuf>,
}

/// What the packages are of.
struct Release<'a> {
    root: &'a Path,
    version: String,
    /// As Linux names the processor: `x86_64`.
    machine: &'static str,
    /// Seconds since 1970: of the commit, unless `SOURCE_DATE_EPOCH` says otherwise.
    epoch: String,
    /// Where packages go.
    output: PathBuf,
    /// A program that somebody else built is packaged quickly, not tightly: it is for a test.
    is_quick: bool,
}

/// Exit status of the script that tries a package if it could not try all of it.
const GAPS_STATUS: i32 = 77;

/// Makes a package of the program that the tests ran, and installs it into a fresh root.
pub(super) fn try_package(root: &Path) -> Checked {
    println!("== package: {TRIED_PROGRAM}");
    let arguments =
        Arguments { kinds: vec![Kind::Debian], program: Some(PathBuf::from(TRIED_PROGRAM)) };
    let files = match make(root, &arguments) {
        Ok(files) => files,
        Err(error) => {
            eprintln!("xtask: package failed: {error}");
            return Checked { passed: false, gaps: Vec::new() };
        }
    };
    let script = root.join("scripts/try-package.sh");
    let checked = try_with(&script, files.first(), &root.join("target/dist/not-tried"));
    if !checked.passed {
        eprintln!("xtask: package failed");
    }
    checked
}

/// Runs the script; what it did not try is never nothing when its status says so.
fn try_with(script: &Path, package: Option<&PathBuf>, gaps: &Path) -> Checked {
    let status = Command::new(script).args(package).env("TRY_PACKAGE_GAPS", gaps).status();
    let code = status.ok().and_then(|status| status.code());
    let mut told = Vec::new();
    if code == Some(GAPS_STATUS) {
        let text = fs::read_to_string(gaps).unwrap_or_default();
        told.extend(text.lines().map(str::to_owned));
        if told.is_empty() {
            told.push("not all of the package was tried".to_owned());
        }
    }
    let _ = fs::remove_file(gaps);
    Checked { passed: matches!(code, Some(0 | GAPS_STATUS)), gaps: told }
}

/// Makes packages.
pub(super) fn run(root: &Path, words: &[&str]) -> ExitCode {
    match parse(words).and_then(|arguments| make(root, &arguments)) {
        Ok(files) => {
            files.iter().for_each(|file| println!("{}", file.display()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("dist: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[&str]) -> Outcome<Arguments> {
    let mut arguments = Arguments { kinds: vec![Kind::Debian, Kind::Tarball], program: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (*word, words.next().copied()) {
            ("--only", Some("deb")) => arguments.kinds = vec![Kind::Debian],
            ("--only", Some("tarball")) => arguments.kinds = vec![Kind::Tarball],
            ("--program", Some(path)) => arguments.program = Some(PathBuf::from(path)),
            _ => {
                return Err(format!(
                    "'{word}' makes no sense; usage: cargo xtask dist [--only deb|tarball] \
                     [--program FILE]"
                ));
            }
        }
    }
    Ok(arguments)
}

fn make(root: &Path, arguments: &Arguments) -> Outcome<Vec<PathBuf>> {
    let output = root.join("target/dist");
    fs::create_dir_all(&output).map_err(|error| format!("{}: {error}", output.display()))?;
    let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(epoch) => epoch,
        Err(_) => tool("git", &["log", "-1", "--format=%ct"], root)?.trim().to_owned(),
    };
    let release = Release {
        root,
        // Of the workspace, which this program is of, too.
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: std::env::consts::ARCH,
        epoch,
        output,
        is_quick: arguments.program.is_some(),
    };
    let mut files = Vec::new();
    for kind in &arguments.kinds {
        let is_static = *kind == Kind::Tarball;
        let built = match &arguments.program {
            Some(program) => root.join(program),
            None => program::build(root, is_static)?,
        };
        files.extend(match kind {
            Kind::Debian => debian::make(&release, &built)?,
            Kind::Tarball => tarball::make(&release, &built)?,
        });
    }
    files.push(sums(&release, &files)?);
    Ok(files)
}

/// The sums of files, in a file beside them.
fn sums(release: &Release<'_>, files: &[PathBuf]) -> Outcome<PathBuf> {
    let mut names: Vec<&str> =
        files.iter().filter_map(|file| file.file_name().and_then(|name| name.to_str())).collect();
    names.sort_unstable();
    let text = tool("sha256sum", &names, &release.output)?;
    let path = release.output.join("SHA256SUMS");
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script that ended without trying anything was a package that passed.
    #[test]
    fn what_was_not_tried_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let gaps = folder.path().join("gaps");
        let tried = |script: &str| {
            let path = folder.path().join("try");
            // Another test's child that is just being made would keep a file of ours busy.
            let write = "printf '#!/bin/sh\n%s\n' \"$1\" >\"$2\" && chmod 755 \"$2\"";
            let mut shell = Command::new("sh");
            assert!(shell.args(["-c", write, "sh", script]).arg(&path).status().unwrap().success());
            try_with(&path, None, &gaps)
        };
        let checked = |passed, gaps: &[&str]| Checked {
            passed,
            gaps: gaps.iter().map(|gap| (*gap).to_owned()).collect(),
        };
        assert_eq!(tried("exit 0"), checked(true, &[]));
        assert_eq!(tried("exit 1"), checked(false, &[]));
        let told = "printf 'no zsh\nno man\n' >\"$TRY_PACKAGE_GAPS\"; exit 77";
        assert_eq!(tried(told), checked(true, &["no zsh", "no man"]));
        assert_eq!(tried("exit 77"), checked(true, &["not all of the package was tried"]));
    }

    #[test]
    fn both_are_made_of_release_builds_unless_the_call_says_otherwise() {
        let arguments = parse(&[]).unwrap();
        assert_eq!((arguments.kinds.len(), arguments.program), (2, None));
        let arguments = parse(&["--only", "deb", "--program", "target/debug/stroop"]).unwrap();
        assert_eq!(arguments.kinds, [Kind::Debian]);
        assert_eq!(arguments.program, Some(PathBuf::from("target/debug/stroop")));
        for wrong in [&["--only"][..], &["--only", "rpm"], &["deb"], &["--program"]] {
            assert!(parse(wrong).unwrap_err().contains("usage"), "{wrong:?}");
        }
    }
}
