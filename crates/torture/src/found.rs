//! What is there: a directory read through the mount.
//!
//! Fails: with the error of the first thing that cannot be read; after a restart everything can.

use crate::Failure;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

/// What a name leads to.
#[derive(Clone)]
pub enum FoundKind {
    /// A directory.
    Directory,
    /// A symbolic link and its text.
    Symlink(String),
    /// A regular file and its content.
    File(Arc<Vec<u8>>),
    /// Something that no writer makes.
    Other,
}

impl fmt::Debug for FoundKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory => write!(formatter, "directory"),
            Self::Symlink(text) => write!(formatter, "link to {text}"),
            Self::File(content) => write!(formatter, "file of {} bytes", content.len()),
            Self::Other => write!(formatter, "special file"),
        }
    }
}

/// A file that is there.
#[derive(Clone, Debug)]
pub struct Found {
    /// What it is.
    pub kind: FoundKind,
    /// Its inode.
    pub inode: u64,
    /// Its names, by the attributes.
    pub links: u64,
    /// Permission bits.
    pub mode: u32,
}

/// All below `directory`, by path relative to it.
///
/// # Errors
/// [`Failure::Machine`].
pub fn read_tree(directory: &Path) -> Result<BTreeMap<String, Found>, Failure> {
    let mut tree = BTreeMap::new();
    let mut waiting = vec![String::new()];
    while let Some(path) = waiting.pop() {
        let place = directory.join(&path);
        for entry in fs::read_dir(&place).map_err(Failure::at("list", &place))? {
            let entry = entry.map_err(Failure::at("list", &place))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let below = if path.is_empty() { name } else { format!("{path}/{name}") };
            let found = read_file(&entry.path())?;
            if matches!(found.kind, FoundKind::Directory) {
                waiting.push(below.clone());
            }
            tree.insert(below, found);
        }
    }
    Ok(tree)
}

fn read_file(path: &Path) -> Result<Found, Failure> {
    let metadata = fs::symlink_metadata(path).map_err(Failure::at("stat", path))?;
    let kind = if metadata.is_dir() {
        FoundKind::Directory
    } else if metadata.is_file() {
        FoundKind::File(Arc::new(fs::read(path).map_err(Failure::at("read", path))?))
    } else if metadata.is_symlink() {
        let text = fs::read_link(path).map_err(Failure::at("read link", path))?;
        FoundKind::Symlink(text.to_string_lossy().into_owned())
    } else {
        FoundKind::Other
    };
    let mode = metadata.permissions().mode() & 0o7777;
    Ok(Found { kind, inode: metadata.ino(), links: metadata.nlink(), mode })
}
