//! Which files and devices the configuration names as disks. Object ranges are no paths; their
//! names stand in the configuration as they are.
//!
//! Invariants: only what a pattern names is ever looked at; a device under two names is listed
//! once, under the first; the order is that of the names. Nothing is opened for writing here.
//!
//! [`openers`] opens them, [`lights`] finds the lights of their slots.
//!
//! Fails: a pattern that matches nothing is no error, because disks come and go; what is neither a
//! block device nor, under `file:`, a regular file is left out with a warning.

mod lights;
pub(crate) mod openers;

use server::config::DiskPattern;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

/// The paths of all disks that `patterns` name.
pub(crate) fn discover(patterns: &[DiskPattern]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = patterns.iter().flat_map(matching).collect();
    found.sort();
    let mut devices = BTreeSet::new();
    found.retain(|path| devices.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    found
}

fn matching(pattern: &DiskPattern) -> Vec<PathBuf> {
    let (files, text) = match pattern {
        DiskPattern::Devices(text) => (false, text),
        DiskPattern::Files(text) => (true, text),
        DiskPattern::Range(_) => return Vec::new(),
    };
    let Ok(paths) = glob::glob(text) else {
        unreachable!("the configuration checked the pattern {text}")
    };
    let fits = |path: &PathBuf| match fs::metadata(path) {
        Ok(found) if files => found.is_file(),
        Ok(found) => found.file_type().is_block_device(),
        Err(_) => false,
    };
    let (fitting, others): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.filter_map(Result::ok).partition(fits);
    for path in others {
        let expected = if files { "a regular file" } else { "a block device" };
        tracing::warn!(path = %path.display(), "not {expected}, so not used as a disk");
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_match_are_found_and_each_once() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["b.img", "a.img", "notes.txt"] {
            fs::write(at(name), "").unwrap();
        }
        fs::create_dir(at("c.img")).unwrap();
        std::os::unix::fs::symlink(at("a.img"), at("z.img")).unwrap();
        let pattern = |text: &str| at(text).to_string_lossy().into_owned();
        let files = [DiskPattern::Files(pattern("*.img")), DiskPattern::Files(pattern("a*"))];
        assert_eq!(discover(&files), [at("a.img"), at("b.img")]);
        assert!(discover(&[DiskPattern::Devices(pattern("*.img"))]).is_empty());
        assert!(discover(&[DiskPattern::Files(pattern("x*"))]).is_empty());
    }
}
