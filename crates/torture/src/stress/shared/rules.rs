//! What must be true of files and names that all clients change: of what was read at any moment,
//! and of the tree at rest.
//!
//! Fails: with what is wrong; [`check_tree`] with [`Failure::Lost`].

use crate::Failure;
use crate::stress::content::{UNIT, words};
use crate::stress::node::{Node, SHARED};
use bytes::Bytes;
use file_service::{Caller, FileHandle, FileKind, FileService, calls};
use std::collections::BTreeMap;

/// The word of a unit of a record: from it and its place the number of the write follows.
pub(super) fn record_word(write: u64, unit: usize) -> u64 {
    write ^ (unit as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The word of a unit in which anything goes: it tells its place in the file.
pub(super) fn place_word(write: u64, unit: u64) -> u64 {
    (write << 16) | unit
}

pub(super) fn unit_bytes(words: impl Iterator<Item = u64>) -> Bytes {
    let unit = |word: u64| word.to_le_bytes().repeat(UNIT / size_of::<u64>());
    Bytes::from(words.flat_map(unit).collect::<Vec<u8>>())
}

pub(super) fn check_record(data: &[u8]) -> Result<(), String> {
    let words = words(data)?;
    let Some(first) = words.first().copied() else { return Ok(()) };
    let is_whole = match first {
        0 => words.iter().all(|word| *word == 0),
        write => words.iter().enumerate().all(|(unit, word)| *word == record_word(write, unit)),
    };
    if is_whole { Ok(()) } else { Err(format!("parts of several writes: {words:x?}")) }
}

pub(super) fn check_places(data: &[u8], first: u64) -> Result<(), String> {
    for (number, word) in (first..).zip(words(data)?) {
        if word != 0 && word & 0xffff != number {
            return Err(format!("unit {number} holds {word:#x}, which is from elsewhere"));
        }
    }
    Ok(())
}

/// A finding.
pub(super) fn lost<T>(what: impl Into<String>) -> Result<T, Failure> {
    Err(Failure::Lost { who: SHARED.to_owned(), what: what.into() })
}

/// Walks the volume while nobody changes it. Returns how many files there are.
///
/// # Errors
/// [`Failure`].
pub fn check_tree(node: &Node) -> Result<u64, Failure> {
    let root = node.root(SHARED)?;
    let mut links: BTreeMap<FileHandle, (u32, u32)> = BTreeMap::new();
    let (mut directories, caller) = (vec![root], Caller::root());
    while let Some(directory) = directories.pop() {
        let page = node.list(directory, 1000)?;
        let Ok(page) = page else { return lost(format!("a directory gives {page:?}")) };
        let mut below = 0;
        for entry in &page.entries {
            let name = String::from_utf8_lossy(&entry.name);
            if name == "." || name == ".." {
                continue;
            }
            let found = node.ask(|service, done| {
                service.lookup(
                    &caller,
                    calls::Lookup { directory, name: entry.name.to_vec() },
                    done,
                )
            })?;
            let Ok(found) = found else { return lost(format!("{name} gives {found:?}")) };
            if found.attributes.inode != entry.inode || found.attributes.kind != entry.kind {
                return lost(format!("{name} is {found:?} and listed as {entry:?}"));
            }
            if entry.kind == FileKind::Directory {
                below += 1;
                directories.push(found.handle);
                continue;
            }
            let seen = links.entry(found.handle).or_insert((found.attributes.links, 0));
            seen.1 += 1;
        }
        if page.attributes.links != below + 2 {
            return lost(format!("{} links of {below} directories", page.attributes.links));
        }
    }
    for (file, (told, counted)) in &links {
        if told != counted {
            return lost(format!("{file:?} has {counted} names and {told} links"));
        }
    }
    Ok(links.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_two_writes_are_told() {
        let of = |write: u64, units: std::ops::Range<usize>| {
            unit_bytes(units.map(|unit| record_word(write, unit))).to_vec()
        };
        let whole = of(1 << 63, 0..4);
        assert!(check_record(&whole).is_ok());
        assert!(check_record(&[0; 4 * UNIT]).is_ok());
        assert!(check_record(&[of(1 << 63, 0..2), of(3 << 62, 2..4)].concat()).is_err());
        assert!(check_record(&[of(1 << 63, 0..2), vec![0; UNIT]].concat()).is_err());
        assert!(check_record(&whole[UNIT..]).is_err(), "it is from another place");
    }

    #[test]
    fn units_from_elsewhere_are_told() {
        let data = unit_bytes((5..9).map(|unit| place_word(77, unit)));
        assert!(check_places(&data, 5).is_ok());
        assert!(check_places(&data, 4).is_err());
    }
}
