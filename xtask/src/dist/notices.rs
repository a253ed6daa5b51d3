//! Notices of the crates that are linked into the program: most licences want theirs to go with it.
//!
//! Fails: if cargo does not know the crates. A crate without a file of its licence is listed with
//! the licence's name.

use super::Outcome;
use super::tool::tool;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// How names of files with licences and notices begin.
const NAMES: [&str; 4] = ["LICENSE", "LICENCE", "COPYING", "NOTICE"];

/// The text for all crates of others.
pub(super) fn notices(root: &Path) -> Outcome<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let words = ["tree", "--package", "server", "--edges", "normal", "--prefix", "none"];
    let tree = tool(&cargo, &[&words[..], &["--format", "{p}", "--offline"]].concat(), root)?;
    let words = ["metadata", "--format-version", "1", "--offline"];
    let metadata = tool(&cargo, &words, root)?;
    let metadata: serde_json::Value =
        serde_json::from_str(&metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let mut crates = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let word = |name: &str| package[name].as_str().unwrap_or_default().to_owned();
        // Those of this workspace have no source.
        if package["source"].is_string() {
            crates.insert(format!("{} v{}", word("name"), word("version")), package.clone());
        }
    }
    let used = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let used: std::collections::BTreeSet<String> = tree.lines().map(used).collect();
    let mut text = "The program contains these crates of others.\n".to_owned();
    for (name, package) in crates.iter().filter(|(name, _)| used.contains(*name)) {
        let licence = package["license"].as_str().unwrap_or("see its files");
        text.push_str(&format!("\n==== {name}: {licence}\n"));
        let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
        for notice in manifest.parent().map(files_with_notices).unwrap_or_default() {
            text.push_str(&format!("\n{}\n", notice.trim_end()));
        }
    }
    Ok(text)
}

fn files_with_notices(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_notice = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().to_uppercase());
        name.is_some_and(|name| NAMES.iter().any(|begin| name.starts_with(begin)))
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_notice).collect();
    paths.sort();
    paths.iter().filter_map(|path| fs::read_to_string(path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_others_are_named_with_their_licences_and_ours_are_not() {
        let text = notices(&crate::root()).unwrap();
        for (name, licence) in [("clap v", "MIT OR Apache-2.0"), ("zerocopy v", "BSD-2-Clause")] {
            let line = text.lines().find(|line| line.starts_with(&format!("==== {name}")));
            assert!(line.is_some_and(|line| line.contains(licence)), "{name}: {line:?}");
        }
        assert!(text.contains("Permission is hereby granted"), "with the texts");
        assert!(!text.contains("==== cowfs v") && !text.contains("==== proptest v"));
    }
}
