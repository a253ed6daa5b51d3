//! Notes which commit the benches were built from, so that their figures can name it.
//!
//! Invariant: without git or outside a checkout the build works and the commit is `unknown`.

use std::process::Command;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

fn main() {
    let commit = git(&["rev-parse", "--short=10", "HEAD"]);
    println!("cargo:rustc-env=STROOP_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
    // Grows by a line at each commit and checkout; a worktree has one of its own.
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]);
    println!("cargo:rerun-if-changed={}", log.as_deref().unwrap_or("build.rs"));
}
