//! Whether what the engine says of the differences of two snapshots is all that differs.
//!
//! The model has both images. Applied to the old one, what was told must lead to the new one: a
//! file that was not told is the same, in the same place of a directory that may be elsewhere.
//!
//! Invariants: files may be told of which the model sees no change: who writes what is there
//! already changes a file.

use cowfs::differences::{Change, Difference, Differences};
use model_fs::{Image, ImageNode};
use std::collections::{BTreeMap, BTreeSet};

type Path = Vec<u8>;

/// # Errors
/// What is wrong with what was told.
pub fn check_differences(old: &Image, new: &Image, told: &Differences) -> Result<(), String> {
    let unreadable = (told.unreadable_directories, told.unreadable_inodes);
    if unreadable != (0, 0) {
        return Err(format!("{unreadable:?} directories and inodes cannot be read"));
    }
    told.files.iter().try_for_each(|file| check_sides(file, old, new))?;
    let listed = |paths: fn(&Difference) -> &Vec<Path>| {
        let of = move |file| paths(file).iter().map(move |path| (path, file));
        told.files.iter().flat_map(of).collect::<BTreeMap<&Path, &Difference>>()
    };
    let (listed_old, listed_new) = (listed(|file| &file.old_paths), listed(|file| &file.new_paths));
    // Where each old path leads to in the new image, if it leads anywhere.
    let mut places: BTreeMap<&[u8], Option<Path>> = BTreeMap::new();
    let mut kept: BTreeSet<Path> = BTreeSet::new();
    for (path, node) in &old.nodes {
        let place = match listed_old.get(path) {
            Some(file) => file.new_paths.first().cloned(),
            None => {
                let place = moved(path, &places);
                check_same(path, node, place.as_ref(), new)?;
                kept.extend(place.clone());
                place
            }
        };
        places.insert(path, place);
    }
    let untold =
        new.nodes.keys().find(|path| !kept.contains(*path) && !listed_new.contains_key(path));
    let twice = kept.iter().find(|path| listed_new.contains_key(path));
    match (untold, twice) {
        (None, None) => Ok(()),
        (Some(path), _) => Err(format!("/{} is new, and not told", path.escape_ascii())),
        (None, Some(path)) => {
            Err(format!("/{} was there before, and is told to be new", path.escape_ascii()))
        }
    }
}

/// Whether the sides of a file are those of its kind of change, and in the images.
fn check_sides(file: &Difference, old: &Image, new: &Image) -> Result<(), String> {
    let (was, is) = (!file.old_paths.is_empty(), !file.new_paths.is_empty());
    let expected = match file.change {
        Change::Created => (false, true),
        Change::Removed => (true, false),
        Change::Modified | Change::Renamed => (true, true),
    };
    let lacks =
        |paths: &[Path], image: &Image| paths.iter().any(|path| !image.nodes.contains_key(path));
    let is_wrong = (was, is) != expected
        || lacks(&file.old_paths, old)
        || lacks(&file.new_paths, new)
        || file.change == Change::Renamed && file.old_paths == file.new_paths;
    if is_wrong { Err(format!("it is not so: {file:?}")) } else { Ok(()) }
}

/// Where a file is now that was not told.
fn moved(path: &[u8], places: &BTreeMap<&[u8], Option<Path>>) -> Option<Path> {
    if path.is_empty() {
        return Some(Path::new());
    }
    let slash = path.iter().rposition(|byte| *byte == b'/');
    let (parent, last) = match slash {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    let parent = places.get(parent)?.as_ref()?;
    let mut place = parent.clone();
    if !place.is_empty() {
        place.push(b'/');
    }
    place.extend_from_slice(last);
    Some(place)
}

fn check_same(
    path: &[u8],
    node: &ImageNode,
    place: Option<&Path>,
    new: &Image,
) -> Result<(), String> {
    let path = path.escape_ascii();
    let Some(now) = place.and_then(|place| new.nodes.get(place)) else {
        return Err(format!("/{path} is gone, and not told"));
    };
    // A read changes no file. The first of its names may be another, where a directory was renamed.
    let now = ImageNode { atime: node.atime, first_path: node.first_path.clone(), ..now.clone() };
    match node.difference(&now).first() {
        None => Ok(()),
        Some(change) => Err(format!("/{path} changed, and is not told: {change}")),
    }
}
