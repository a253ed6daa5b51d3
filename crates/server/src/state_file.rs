//! Small texts of the server's own in the state directory.
//!
//! Invariants: a file is replaced whole, by a rename, so it is as it was before or as it should be;
//! what was stored survives a loss of power.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Largest file that is read.
const STATE_FILE_BYTES_MAX: u64 = 4 << 20;

/// A file of the state directory.
pub(crate) struct StateFile {
    directory: PathBuf,
    name: &'static str,
}

impl StateFile {
    /// The file of a name, which may not be there yet.
    pub(crate) fn new(state_directory: &Path, name: &'static str) -> Self {
        Self { directory: state_directory.to_owned(), name }
    }

    fn read(&self) -> io::Result<String> {
        let path = self.directory.join(self.name);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
            Ok(found) if found.len() > STATE_FILE_BYTES_MAX => {
                let message =
                    format!("{} is larger than {STATE_FILE_BYTES_MAX} bytes", path.display());
                Err(io::Error::new(io::ErrorKind::InvalidData, message))
            }
            Ok(_) => Ok(String::from_utf8_lossy(&fs::read(&path)?).into_owned()),
        }
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let fresh = self.directory.join(format!("{}.new", self.name));
        // What can fail does so before the new text may be found.
        let directory = File::open(&self.directory)?;
        let mut file = File::create(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, self.directory.join(self.name))?;
        directory.sync_all()
    }
}

/// Which NFS clients have locks.
impl nfs::Ledger for StateFile {
    fn load(&self) -> io::Result<String> {
        self.read()
    }

    fn store(&self, text: &str) -> io::Result<()> {
        self.replace(text)
    }
}

/// Which jobs there are.
impl management::StateFile for StateFile {
    fn load(&self) -> io::Result<String> {
        self.read()
    }

    fn store(&self, text: &str) -> io::Result<()> {
        self.replace(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path(), "texts");
        assert_eq!(file.read().unwrap(), "");
        for text in ["first\nlines\n", "second\n"] {
            file.replace(text).unwrap();
            assert_eq!(StateFile::new(directory.path(), "texts").read().unwrap(), text);
        }
        assert_eq!(StateFile::new(directory.path(), "others").read().unwrap(), "");
        let gone = StateFile::new(&directory.path().join("missing"), "texts");
        assert_eq!(gone.read().unwrap(), "");
        assert!(gone.replace("text").is_err());
    }
}
