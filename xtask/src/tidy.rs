//! `cargo xtask tidy`: walks the sources and the workspace's manifests and prints what breaks a
//! rule, as `path:line: what`, which editors understand.
//!
//! Invariants: the rules themselves are pure functions of text ([`source`], [`imports`],
//! [`references`]) with tests that show each of them failing; this file only reads.

mod imports;
mod references;
mod source;

use references::Known;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Folders with sources, below the root.
const FOLDERS: [&str; 3] = ["crates", "xtask", "fuzz"];

/// One thing that breaks a rule.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Finding {
    /// The file, below the root.
    pub(crate) path: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) what: String,
    /// Whether it is only worth a look.
    pub(crate) warning: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning: " } else { "" };
        write!(formatter, "{}:{}: {kind}{}", self.path, self.line, self.what)
    }
}

pub(crate) fn run(root: &Path) -> ExitCode {
    let mut findings = match check(root) {
        Ok(findings) => findings,
        Err(error) => {
            eprintln!("tidy: {error}");
            return ExitCode::FAILURE;
        }
    };
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    let failures = findings.iter().filter(|finding| !finding.warning).count();
    println!("tidy: {failures} failures, {} warnings", findings.len() - failures);
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check(root: &Path) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), &mut files)?;
    }
    for file in files.iter().filter(|path| is_source(path)) {
        let path = file.strip_prefix(root).unwrap_or(file).to_string_lossy().into_owned();
        let bytes = fs::read(file)?;
        findings.extend(source::check(&path, &String::from_utf8_lossy(&bytes)));
    }
    findings.extend(check_references(root)?);
    let metadata = metadata(root)?;
    let Some(graph) = imports::Graph::from_metadata(&metadata) else {
        return Err(io::Error::other("the output of cargo metadata makes no sense"));
    };
    findings.extend(graph.check());
    findings.extend(crate::walls::check(root)?);
    Ok(findings)
}

/// What texts refer to and is not there.
fn check_references(root: &Path) -> io::Result<Vec<Finding>> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    let below = |path: &PathBuf| Some(path.strip_prefix(root).ok()?.to_str()?.to_owned());
    let files = files.iter().filter_map(below);
    let mut known = Known { files: files.collect(), ..Default::default() };
    known.decisions = known.files.iter().filter_map(|path| Known::decision_of(path)).collect();
    known.papers = Known::papers_of(&fs::read_to_string(root.join("docs/papers.md"))?);
    let mut findings = Vec::new();
    for path in known.files.iter().filter(|path| path.ends_with(".rs") || path.ends_with(".md")) {
        findings.extend(known.check(path, &fs::read_to_string(root.join(path))?));
    }
    Ok(findings)
}

/// Folders of builds, of git, and of the demo.
const LEFT_OUT: [&str; 3] = ["target", ".git", "demo"];

/// All files below `folder`, in order of name; those that were built are left out.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !path.is_dir() {
            files.push(path);
        } else if !LEFT_OUT.contains(&name) && !name.starts_with("target-") {
            collect(&path, files)?;
        }
    }
    Ok(())
}

fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// The workspace's manifests. Without dependencies of others, so that it needs no network.
fn metadata(root: &Path) -> io::Result<serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
