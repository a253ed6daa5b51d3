//! Which file of a crate a path leads to.
//!
//! Invariants: a path is followed as far as modules go; the next name of it is one that the last
//! module defines, or one that it has by `use`: then that path is followed. A file imports neither
//! itself nor, by declaring them, the modules below it.
//!
//! Fails: never; a path that leads out of the crate leads to no file.

use super::sources::Source;
use std::collections::{BTreeMap, BTreeSet};

/// How often a name is followed through `use`; more is a circle.
const STEPS_MAX: usize = 16;

pub(super) type Modules<'a> = BTreeMap<&'a [String], &'a Source>;

/// The files that `source` imports something from.
pub(super) fn imported<'a>(source: &Source, modules: &Modules<'a>) -> BTreeSet<&'a str> {
    let leads = |path: &Vec<String>| file_of(source, path, modules, 0);
    let files: BTreeSet<&str> = source.paths.iter().filter_map(leads).collect();
    files.into_iter().filter(|path| *path != source.path).collect()
}

/// The file that a type is defined in, which `source` names by this path.
pub(super) fn home<'a>(source: &'a Source, path: &[String], modules: &Modules<'a>) -> &'a str {
    let named = path.first().and_then(|name| source.uses.iter().find(|(has, _)| has == name));
    let path = named.filter(|_| path.len() == 1).map_or(path, |(_, path)| path.as_slice());
    file_of(source, path, modules, 0).unwrap_or(&source.path)
}

fn file_of<'a>(
    from: &Source,
    path: &[String],
    modules: &Modules<'a>,
    steps: usize,
) -> Option<&'a str> {
    let (mut module, mut rest) = begin(from, path)?;
    while let Some((next, others)) = rest.split_first() {
        let mut below = module.clone();
        below.push(next.clone());
        if !modules.contains_key(below.as_slice()) {
            break;
        }
        (module, rest) = (below, others);
    }
    let found = modules.get(module.as_slice())?;
    let by_use = rest.first().and_then(|name| found.uses.iter().find(|(has, _)| has == name));
    match by_use {
        Some((_, path)) if steps < STEPS_MAX => {
            // What comes from another crate is imported from where it is exported again.
            file_of(found, path, modules, steps + 1).or(Some(&found.path))
        }
        _ => Some(&found.path),
    }
}

/// The module that the path begins in, and what follows; nothing for a path out of the crate or
/// to a name of the file itself.
fn begin<'p>(from: &Source, path: &'p [String]) -> Option<(Vec<String>, &'p [String])> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some((Vec::new(), rest)),
        "super" => {
            let mut module = from.module.clone();
            let mut rest = path;
            while rest.first().is_some_and(|first| first == "super") {
                module.pop();
                rest = rest.get(1..).unwrap_or_default();
            }
            Some((module, rest))
        }
        name if from.children.contains(name) => Some((from.module.clone(), path)),
        _ => None,
    }
}
