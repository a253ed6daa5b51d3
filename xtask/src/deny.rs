//! Licences, sources, banned crates and advisories, by cargo-deny (`deny.toml`).
//!
//! `make test` installs the tool (`scripts/install-test-packages.sh`). Nothing is passed over in
//! silence: what was not checked is said where it happens, and once more at the end of `ci`.
//!
//! Advisories need the database of RustSec, which is fetched anew each time. Where it cannot be,
//! they are checked against the one that was fetched last, and said to be; without that they are
//! not checked, and the other checks still count.
//!
//! Fails: a check that fails fails `ci`; a tool or database that is missing does not.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// How the checks ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Checked {
    /// Whether all that were made passed.
    pub(super) passed: bool,
    /// What was not checked, and why.
    pub(super) gaps: Vec<String>,
}

/// The tool.
pub(super) struct Deny<'a> {
    /// `cargo`, or what a test has in its place.
    pub(super) cargo: PathBuf,
    /// The workspace.
    pub(super) root: &'a Path,
    /// Where cargo-deny keeps databases of advisories.
    pub(super) databases: PathBuf,
}

impl<'a> Deny<'a> {
    /// The one of this machine.
    pub(super) fn here(root: &'a Path) -> Self {
        let variable = |name| std::env::var_os(name).map(PathBuf::from);
        let home = || variable("HOME").unwrap_or_default().join(".cargo");
        Self {
            cargo: variable("CARGO").unwrap_or_else(|| "cargo".into()),
            root,
            databases: variable("CARGO_HOME").unwrap_or_else(home).join("advisory-dbs"),
        }
    }

    /// Makes all checks.
    pub(super) fn check(&self) -> Checked {
        let mut checked = Checked { passed: true, gaps: Vec::new() };
        if !self.run(&["--version"]).is_some_and(|output| output.status.success()) {
            return checked.gap(
                "licences, sources, bans and advisories were not checked: cargo-deny is not \
                 installed; type: scripts/install-test-packages.sh",
            );
        }
        checked.passed = self.passes(&["check", "bans", "licenses", "sources"]);
        let fetched = self.run(&["fetch", "db"]);
        let reason = match &fetched {
            Some(output) if output.status.success() => None,
            Some(output) => Some(reason(&String::from_utf8_lossy(&output.stderr))),
            None => Some("cargo cannot be run".to_owned()),
        };
        match reason {
            None => checked.passed &= self.passes(&["check", "advisories"]),
            Some(reason) if self.has_database() => {
                checked.passed &= self.passes(&["--offline", "check", "advisories"]);
                checked = checked.gap(&format!(
                    "advisories were checked against the database that was fetched last: {reason}"
                ));
            }
            Some(reason) => {
                checked = checked.gap(&format!(
                    "advisories were not checked: their database cannot be fetched: {reason}"
                ));
            }
        }
        checked
    }

    fn has_database(&self) -> bool {
        let entries = std::fs::read_dir(&self.databases);
        entries.is_ok_and(|entries| entries.flatten().any(|entry| entry.path().is_dir()))
    }

    fn run(&self, arguments: &[&str]) -> Option<Output> {
        let mut command = Command::new(&self.cargo);
        command.arg("deny").args(arguments).current_dir(self.root).output().ok()
    }

    /// Runs a check whose findings are for people.
    fn passes(&self, arguments: &[&str]) -> bool {
        println!("== deny: cargo deny {}", arguments.join(" "));
        let mut command = Command::new(&self.cargo);
        // Two versions of one crate are a warning, of which there are pages.
        command.args(["deny", "--log-level", "error"]).args(arguments).current_dir(self.root);
        command.status().is_ok_and(|status| status.success())
    }
}

impl Checked {
    fn gap(mut self, gap: &str) -> Self {
        println!("== deny: {gap}");
        self.gaps.push(gap.to_owned());
        self
    }
}

/// The line that says why: git's, if it is git that failed.
fn reason(said: &str) -> String {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let of_git = lines().find_map(|line| line.strip_prefix("fatal: "));
    of_git.or_else(|| lines().next_back()).unwrap_or("it does not say why").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a script in the place of cargo makes of the checks, and the calls that it got.
    fn checked(script: &str, has_database: bool) -> (Checked, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let (cargo, calls) = (folder.path().join("cargo"), folder.path().join("calls"));
        let databases = folder.path().join("advisory-dbs");
        if has_database {
            std::fs::create_dir_all(databases.join("advisory-db-1")).unwrap();
        }
        let text = format!(
            "#!/bin/sh\necho \"$*\" >>'{}'\ncase \"$*\" in\n{script}\nesac\n",
            calls.display()
        );
        // Another test's child that is just being made would keep a file of ours busy.
        let write = "printf '%s' \"$1\" >\"$2\" && chmod 755 \"$2\"";
        let mut shell = std::process::Command::new("sh");
        assert!(shell.args(["-c", write, "sh", &text]).arg(&cargo).status().unwrap().success());
        let checked = Deny { cargo, root: folder.path(), databases }.check();
        let calls = std::fs::read_to_string(calls).unwrap();
        (checked, calls.lines().map(str::to_owned).collect())
    }

    const UNREACHABLE: &str = "*fetch*) echo 'fatal: Could not resolve host: x' >&2; exit 1 ;;";

    #[test]
    fn a_tool_that_is_missing_is_told() {
        let (checked, calls) = checked("*) exit 101 ;;", false);
        assert!(checked.passed && checked.gaps[0].contains("cargo-deny is not installed"));
        assert_eq!(calls.len(), 1);
    }

    #[test]
    fn a_database_that_cannot_be_fetched_is_told_and_the_rest_counts() {
        let (none, calls) = checked(UNREACHABLE, false);
        assert!(none.passed);
        assert_eq!(
            none.gaps,
            ["advisories were not checked: their database cannot be fetched: Could not resolve \
              host: x"]
        );
        assert!(
            calls.iter().any(|call| call.ends_with("check bans licenses sources")),
            "{calls:?}"
        );
        let (old, calls) = checked(UNREACHABLE, true);
        assert!(old.gaps[0].starts_with("advisories were checked against the database that was"));
        assert!(calls.iter().any(|call| call.ends_with("advisories")), "{calls:?}");
        let banned = format!("{UNREACHABLE}\n*bans*) exit 1 ;;");
        assert!(!checked(&banned, false).0.passed);
    }

    #[test]
    fn an_advisory_fails_the_checks() {
        let (all, calls) = checked("*) exit 0 ;;", false);
        assert_eq!((all.passed, all.gaps.len(), calls.len()), (true, 0, 4));
        assert!(!checked("*advisories*) exit 1 ;;", false).0.passed);
        let old = format!("{UNREACHABLE}\n*advisories*) exit 1 ;;");
        assert!(!checked(&old, true).0.passed);
    }
}
