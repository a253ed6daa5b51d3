//! A directory tree that becomes a package.
//!
//! Invariants: modes are those that were given, whatever the umask; directories are 0755.
//!
//! Fails: with the path that cannot be written.

use super::Outcome;
use super::tool::bytes_of;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mode of files that nobody runs.
pub(super) const FILE_MODE: u32 = 0o644;
/// Mode of programs.
pub(super) const PROGRAM_MODE: u32 = 0o755;

/// See the module.
pub(super) struct Stage(PathBuf);

fn at<T>(path: &Path, result: std::io::Result<T>) -> Outcome<T> {
    result.map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a file of the repository.
pub(super) fn read(path: &Path) -> Outcome<Vec<u8>> {
    at(path, fs::read(path))
}

/// The same as text.
pub(super) fn read_text(path: &Path) -> Outcome<String> {
    at(path, fs::read_to_string(path))
}

/// Compressed by gzip, without a time.
fn gzip(bytes: &[u8]) -> Outcome<Vec<u8>> {
    bytes_of("gzip", Command::new("gzip").args(["-9", "-n"]), bytes)
}

impl Stage {
    /// An empty tree.
    pub(super) fn new(directory: PathBuf) -> Outcome<Self> {
        if directory.exists() {
            at(&directory, fs::remove_dir_all(&directory))?;
        }
        let stage = Self(directory);
        stage.directory("")?;
        Ok(stage)
    }

    /// Where the tree is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes a directory and those above it.
    pub(super) fn directory(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.0.join(name);
        at(&path, fs::create_dir_all(&path))?;
        for path in path.ancestors().take_while(|path| path.starts_with(&self.0)) {
            at(path, fs::set_permissions(path, Permissions::from_mode(PROGRAM_MODE)))?;
        }
        Ok(path)
    }

    fn place(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.0.join(name);
        if let Some(parent) = Path::new(name).parent().and_then(Path::to_str) {
            self.directory(parent)?;
        }
        Ok(path)
    }

    /// Writes a file.
    pub(super) fn file(&self, name: &str, mode: u32, bytes: &[u8]) -> Outcome<()> {
        let path = self.place(name)?;
        at(&path, fs::write(&path, bytes))?;
        at(&path, fs::set_permissions(&path, Permissions::from_mode(mode)))
    }

    /// Writes a compressed file; `.gz` is added to its name.
    pub(super) fn compressed(&self, name: &str, bytes: &[u8]) -> Outcome<()> {
        self.file(&format!("{name}.gz"), FILE_MODE, &gzip(bytes)?)
    }

    /// Makes a symbolic link.
    pub(super) fn link(&self, name: &str, target: &str) -> Outcome<()> {
        let path = self.place(name)?;
        at(&path, symlink(target, &path))
    }

    /// The files, below the tree and in order, and how many bytes they have.
    pub(super) fn files(&self) -> Outcome<(Vec<String>, u64)> {
        let (mut names, mut bytes) = (Vec::new(), 0);
        let mut directories = vec![self.0.clone()];
        while let Some(directory) = directories.pop() {
            for entry in at(&directory, fs::read_dir(&directory))? {
                let path = at(&directory, entry)?.path();
                let found = at(&path, path.symlink_metadata())?;
                if found.is_dir() {
                    directories.push(path);
                } else if found.is_file() {
                    bytes += found.len();
                    let name = path.strip_prefix(&self.0).unwrap_or(&path);
                    names.push(name.to_string_lossy().into_owned());
                }
            }
        }
        names.sort();
        Ok((names, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_what_was_put_there_with_its_modes() {
        let folder = tempfile::tempdir().unwrap();
        let stage = Stage::new(folder.path().join("stage")).unwrap();
        stage.file("usr/bin/program", PROGRAM_MODE, b"#!").unwrap();
        stage.compressed("usr/share/doc/text", b"text").unwrap();
        stage.link("usr/sbin/other", "../bin/program").unwrap();
        let mode = |name: &str| {
            fs::metadata(stage.path().join(name)).unwrap().permissions().mode() & 0o7777
        };
        assert_eq!(
            (mode("usr"), mode("usr/bin/program"), mode("usr/sbin/other")),
            (0o755, 0o755, 0o755)
        );
        assert_eq!(mode("usr/share/doc/text.gz"), 0o644);
        let (files, bytes) = stage.files().unwrap();
        assert_eq!(files, ["usr/bin/program", "usr/share/doc/text.gz"]);
        assert!(bytes > 2);
        let again = Stage::new(folder.path().join("stage")).unwrap();
        assert_eq!(again.files().unwrap(), (Vec::new(), 0), "nothing of before is left");
    }
}
