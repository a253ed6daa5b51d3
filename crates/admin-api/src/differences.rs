//! What changed between two snapshots of a volume.
//!
//! Paths begin with `/`, the root directory of the volume. Names are bytes, and JSON is text: bytes
//! that are no UTF-8, control characters and backslashes are written as `\\xNN`, so that nothing is
//! lost and two paths never look the same.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Two snapshots to compare.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotDiff {
    /// The volume.
    pub volume: String,
    /// The first snapshot: files that it alone has were removed.
    pub from: String,
    /// The second snapshot: files that it alone has were created.
    pub to: String,
}

/// What changed between two snapshots.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotDifferences {
    /// The volume.
    pub volume: String,
    /// See [`SnapshotDiff`].
    pub from: String,
    /// See [`SnapshotDiff`].
    pub to: String,
    /// The files that differ, in the order of their paths.
    pub files: Vec<FileDifference>,
    /// Directories that cannot be read: names in them are not told.
    pub unreadable_directories: u64,
    /// Inodes that cannot be read: whether their files differ is not known.
    pub unreadable_inodes: u64,
}

/// A file that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileDifference {
    /// What became of it.
    pub change: FileChange,
    /// Whether its content or attributes may have changed beside its names. False of a renamed file
    /// means that nothing else changed.
    pub modified: bool,
    /// The kind of file: "file", "directory", "symlink", "device", "fifo", "socket".
    pub kind: String,
    /// Its inode.
    pub inode: u64,
    /// Its paths in the first snapshot, more than one with hard links; none if it was created.
    pub old_paths: Vec<String>,
    /// Its paths in the second; none if it was removed.
    pub new_paths: Vec<String>,
    /// Its length in the first.
    pub old_size_bytes: u64,
    /// And in the second.
    pub new_size_bytes: u64,
}

/// What became of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileChange {
    /// The second snapshot alone has it.
    Created,
    /// The first alone has it.
    Removed,
    /// Its content or attributes are others. Of a directory: or its entries.
    Modified,
    /// It has another name, or is in another directory; or has more names, or fewer.
    Renamed,
}

impl fmt::Display for FileChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Created => "created",
            Self::Removed => "removed",
            Self::Modified => "modified",
            Self::Renamed => "renamed",
        })
    }
}

/// A path as it is shown; `path` has no leading slash.
#[must_use]
pub fn shown_path(path: &[u8]) -> String {
    let mut shown = String::with_capacity(path.len() + 1);
    shown.push('/');
    for chunk in path.utf8_chunks() {
        for char in chunk.valid().chars() {
            if char.is_control() || char == '\\' {
                let mut bytes = [0; 4];
                char.encode_utf8(&mut bytes)
                    .bytes()
                    .for_each(|byte| push_escaped(&mut shown, byte));
            } else {
                shown.push(char);
            }
        }
        chunk.invalid().iter().for_each(|byte| push_escaped(&mut shown, *byte));
    }
    shown
}

/// The names in a path as [`shown_path`] writes it; doubled slashes count once.
#[must_use]
pub fn parse_path(shown: &str) -> Vec<Vec<u8>> {
    let names = shown.split('/').filter(|name| !name.is_empty());
    names.map(|name| unescaped(name.as_bytes())).collect()
}

fn unescaped(mut text: &[u8]) -> Vec<u8> {
    let digits = |two: &[u8]| {
        let are_digits = two.iter().all(u8::is_ascii_hexdigit);
        str::from_utf8(two).ok().filter(|_| are_digits).map(|two| u8::from_str_radix(two, 16))
    };
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        let escaped =
            rest.split_at_checked(3).filter(|(head, _)| *first == b'\\' && head[0] == b'x');
        match escaped.and_then(|(head, rest)| Some((digits(&head[1..])?.ok()?, rest))) {
            Some((byte, rest)) => {
                bytes.push(byte);
                text = rest;
            }
            None => {
                bytes.push(*first);
                text = rest;
            }
        }
    }
    bytes
}

fn push_escaped(shown: &mut String, byte: u8) {
    use fmt::Write as _;
    // A string takes whatever is written to it.
    let _ = write!(shown, "\\x{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_text_without_loss() {
        assert_eq!(shown_path(b""), "/");
        assert_eq!(shown_path("d/\u{e9} b".as_bytes()), "/d/\u{e9} b");
        assert_eq!(shown_path(b"a\xff\nb"), "/a\\xff\\x0ab");
        assert_ne!(shown_path(b"\\xff"), shown_path(b"\xff"));
        for path in [&b"a\xff\nb"[..], b"\\xff", b"a b\\", "\u{e9}".as_bytes()] {
            assert_eq!(parse_path(&shown_path(path)), [path]);
        }
        assert_eq!(parse_path("/a//b\\x4/\\x+4"), [&b"a"[..], b"b\\x4", b"\\x+4"]);
    }
}
