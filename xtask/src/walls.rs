//! `cargo xtask walls`: what the files of each crate import from one another.
//!
//! Two numbers of each crate say how well it is divided: how many files are in its largest import
//! cycle, and over how many files the methods of one type are spread. [`sources`] reads the files,
//! [`paths`] follows the paths that they name, [`cycle`] finds the cycle. `xtask/walls.txt` keeps
//! both numbers of each crate, and `cargo xtask tidy` compares them: neither may grow, and a number
//! that fell is written down, so that it does not grow again.
//!
//! Invariants: modules of tests count for nothing. A name that a module exports again is one of the
//! module that it comes from. A crate's root is its face, which declares and exports: it is in no
//! cycle. A crate with a library and a binary has two sets of files, "name" and "name:main".
//!
//! Fails: with the path of a source file that cannot be read or is no Rust.

mod cycle;
mod paths;
mod sources;

use crate::tidy::Finding;
use sources::Source;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// The file with the numbers that may not grow, below the root.
const RATCHETS: &str = "xtask/walls.txt";

/// What one crate looks like inside.
#[derive(Debug, Default, PartialEq, Eq)]
struct Walls {
    /// Source files, those of tests left out.
    files: usize,
    /// The files that import one another, of the largest such group; empty if there is none.
    cycle: Vec<String>,
    /// The type whose methods are spread over the most files, and those files.
    spread: Option<(String, BTreeSet<String>)>,
}

impl Walls {
    fn of(sources: &[Source]) -> Self {
        let modules: BTreeMap<&[String], &Source> =
            sources.iter().map(|source| (source.module.as_slice(), source)).collect();
        let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let is_root = |path: &str| matches!(path, "src/lib.rs" | "src/main.rs");
        let mut methods: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
        for source in sources {
            if !is_root(&source.path) {
                let imported = paths::imported(source, &modules).into_iter();
                edges.insert(&source.path, imported.filter(|path| !is_root(path)).collect());
            }
            for (name, path) in &source.methods_of {
                let home = paths::home(source, path, &modules);
                methods.entry((name, home)).or_default().insert(source.path.clone());
            }
        }
        let files = edges.len();
        let spread = methods.into_iter().max_by_key(|((name, _), files)| (files.len(), name.len()));
        Self {
            files,
            cycle: cycle::largest(&edges).into_iter().map(str::to_owned).collect(),
            spread: spread.map(|((name, _), files)| (name.to_owned(), files)),
        }
    }

    fn spread_files(&self) -> usize {
        self.spread.as_ref().map_or(0, |(_, files)| files.len())
    }
}

/// Prints the walls of all crates, or of one crate with the files of its cycle.
pub(crate) fn run(root: &Path, only: Option<&str>) -> ExitCode {
    let crates = match measure(root) {
        Ok(crates) => crates,
        Err(error) => {
            eprintln!("walls: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(name) = only {
        let Some(walls) = crates.get(name) else {
            eprintln!("walls: there is no crate '{name}' below crates/");
            return ExitCode::FAILURE;
        };
        println!("{name}: {} of {} files in the largest cycle", walls.cycle.len(), walls.files);
        walls.cycle.iter().for_each(|path| println!("  {path}"));
        if let Some((name, files)) = &walls.spread {
            println!("methods of {name} in {} files", files.len());
            files.iter().for_each(|path| println!("  {path}"));
        }
        return ExitCode::SUCCESS;
    }
    println!("{:<18} {:>5} {:>5}  methods of one type in files", "crate", "files", "cycle");
    for (name, walls) in &crates {
        let spread = walls.spread.as_ref();
        let spread = spread.map(|(name, files)| format!("{:>2} {name}", files.len()));
        let (files, cycle) = (walls.files, walls.cycle.len());
        println!("{name:<18} {files:>5} {cycle:>5}  {}", spread.unwrap_or_default());
    }
    ExitCode::SUCCESS
}

/// What has grown since it was written down, or has fallen and was not.
pub(crate) fn check(root: &Path) -> io::Result<Vec<Finding>> {
    let noted = fs::read_to_string(root.join(RATCHETS))?;
    Ok(compare(&noted, &measure(root)?))
}

fn measure(root: &Path) -> io::Result<BTreeMap<String, Walls>> {
    let mut crates = BTreeMap::new();
    for entry in fs::read_dir(root.join("crates"))? {
        let folder = entry?.path();
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        let library = sources::of_root(&folder, "lib.rs")?;
        let binary = sources::of_root(&folder, "main.rs")?;
        if !library.is_empty() {
            crates.insert(name.to_owned(), Walls::of(&library));
        }
        if !binary.is_empty() {
            let name = if library.is_empty() { name.to_owned() } else { format!("{name}:main") };
            crates.insert(name, Walls::of(&binary));
        }
    }
    Ok(crates)
}

/// What differs between `noted` and what was measured.
///
/// Each line of `noted` is a crate's name, the files in its largest cycle, and the files with
/// methods of one type; lines that begin with '#' are for people.
fn compare<'n>(noted: &'n str, crates: &BTreeMap<String, Walls>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, what: String| {
        findings.push(Finding { path: RATCHETS.to_owned(), line, what, warning: false });
    };
    let mut seen = BTreeSet::new();
    for (index, line) in noted.lines().enumerate() {
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let parsed = |[name, cycle, spread]: [&'n str; 3]| {
            Some((name, cycle.parse::<usize>().ok()?, spread.parse::<usize>().ok()?))
        };
        let Some((name, cycle, spread)) = words.try_into().ok().and_then(parsed) else {
            find(index + 1, "not a crate's name and two numbers".to_owned());
            continue;
        };
        let Some(walls) = crates.get(name) else {
            find(index + 1, format!("there is no crate '{name}'; remove the line"));
            continue;
        };
        if !seen.insert(name) {
            find(index + 1, format!("a second line for the crate '{name}'"));
        }
        let measured = [
            ("files in the largest import cycle", cycle, walls.cycle.len()),
            ("files with methods of one type", spread, walls.spread_files()),
        ];
        for (what, noted, found) in measured {
            if found > noted {
                find(
                    index + 1,
                    format!(
                        "{name}: {found} {what}, {noted} before; `cargo xtask walls {name}` lists \
                         them"
                    ),
                );
            } else if found < noted {
                find(index + 1, format!("{name}: {found} {what}; write {found} for {noted}"));
            }
        }
    }
    for name in crates.keys().filter(|name| !seen.contains(name.as_str())) {
        find(1, format!("no line for the crate '{name}'"));
    }
    findings
}

#[cfg(test)]
mod tests;
