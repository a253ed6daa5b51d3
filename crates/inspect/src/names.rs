//! The names of what findings are about: volumes, snapshots, and the paths of files.
//!
//! Invariants: only the paths of files that something was found about are looked for, so a check
//! that finds nothing reads no directory twice. A directory is entered once, so the search ends
//! although entries may lead anywhere.
//!
//! Fails: [`InspectError`] when the disks do not answer. A file to which no name leads has none.

use crate::directory;
use crate::error::InspectError;
use crate::finding::ImageName;
use crate::image::Image;
use crate::namespace::read_blocks;
use crate::walker::{Inodes, Walker};
use ondisk::inode::KIND_DIRECTORY;
use ondisk::root::metafile::ROOT_DIRECTORY;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Directories that a search remembers: with names of common length about 100 MiB.
const DIRECTORIES_MAX: usize = 1_000_000;

/// Notes the paths of those files of an image that something was found about.
pub(crate) fn note_paths(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    image: &Image,
) -> Result<(), InspectError> {
    let of_image = |(of, inode): (ImageName, u64)| (of == name).then_some(inode);
    let findings = walker.medium.report.findings.iter();
    let found = findings.filter_map(|finding| finding.file().and_then(of_image));
    let wanted: BTreeSet<u64> = found.filter(|inode| *inode >= ROOT_DIRECTORY).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    // What is wrong with directories was told.
    let told = walker.medium.report.findings.len();
    let paths = paths(walker, name, &image.inodes, &wanted);
    walker.medium.report.findings.truncate(told);
    for (inode, path) in paths? {
        walker.medium.report.names.paths.insert((name, inode), path);
    }
    Ok(())
}

/// A name and the directory that it is in.
type Parent = (u64, Vec<u8>);

fn paths(
    walker: &mut Walker<'_, '_, '_>,
    name: ImageName,
    inodes: &Inodes,
    wanted: &BTreeSet<u64>,
) -> Result<Vec<(u64, Vec<u8>)>, InspectError> {
    let mut directories: BTreeMap<u64, Parent> = BTreeMap::new();
    let mut found: BTreeMap<u64, Parent> = BTreeMap::new();
    let mut waiting = VecDeque::from([ROOT_DIRECTORY]);
    while let Some(inode) = waiting.pop_front() {
        let is_done = wanted.iter().all(|one| found.contains_key(one) || *one == ROOT_DIRECTORY);
        if is_done || directories.len() > DIRECTORIES_MAX {
            break;
        }
        let Some(record) = inodes.get(&inode).filter(|record| record.kind == KIND_DIRECTORY) else {
            continue;
        };
        let blocks = read_blocks(walker, name, inode, record)?;
        for entry in directory::read(&blocks, record.size.get()).entries {
            if wanted.contains(&entry.inode) {
                found.entry(entry.inode).or_insert_with(|| (inode, entry.name.clone()));
            }
            let is_new = entry.inode != ROOT_DIRECTORY && !directories.contains_key(&entry.inode);
            if entry.kind == KIND_DIRECTORY && is_new {
                directories.insert(entry.inode, (inode, entry.name));
                waiting.push_back(entry.inode);
            }
        }
    }
    let path = |inode: &u64| {
        if *inode == ROOT_DIRECTORY {
            return Some((*inode, Vec::new()));
        }
        let (mut parent, own) = found.get(inode)?.clone();
        let mut names = vec![own];
        while parent != ROOT_DIRECTORY {
            let (above, own) = directories.get(&parent)?;
            names.push(own.clone());
            parent = *above;
        }
        let names = names.iter().rev();
        Some((*inode, names.flat_map(|name| [b"/", name.as_slice()].concat()).collect()))
    };
    Ok(wanted.iter().filter_map(path).collect())
}
