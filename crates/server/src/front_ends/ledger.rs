//! The file that keeps which NFS clients have locks, in the state directory.
//!
//! Invariants: it is replaced whole, by a rename, so it is as it was before or as it should be;
//! what was stored survives a loss of power.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The file's name within the state directory.
const LEDGER_FILE: &str = "nfs-locks";
/// Largest file that is read.
const LEDGER_BYTES_MAX: u64 = 4 << 20;

/// See the module.
pub(crate) struct LedgerFile {
    directory: PathBuf,
}

impl LedgerFile {
    pub(crate) fn new(state_directory: &Path) -> Self {
        Self { directory: state_directory.to_owned() }
    }
}

impl nfs::Ledger for LedgerFile {
    fn load(&self) -> io::Result<String> {
        let path = self.directory.join(LEDGER_FILE);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
            Ok(found) if found.len() > LEDGER_BYTES_MAX => {
                let message = format!("{} is larger than {LEDGER_BYTES_MAX} bytes", path.display());
                Err(io::Error::new(io::ErrorKind::InvalidData, message))
            }
            Ok(_) => Ok(String::from_utf8_lossy(&fs::read(&path)?).into_owned()),
        }
    }

    fn store(&self, text: &str) -> io::Result<()> {
        let fresh = self.directory.join(format!("{LEDGER_FILE}.new"));
        let mut file = File::create(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, self.directory.join(LEDGER_FILE))?;
        File::open(&self.directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs::Ledger as _;

    #[test]
    fn what_was_stored_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let ledger = LedgerFile::new(directory.path());
        assert_eq!(ledger.load().unwrap(), "");
        for text in ["first\nlines\n", "second\n"] {
            ledger.store(text).unwrap();
            assert_eq!(LedgerFile::new(directory.path()).load().unwrap(), text);
        }
        let gone = LedgerFile::new(&directory.path().join("missing"));
        assert_eq!(gone.load().unwrap(), "");
        assert!(gone.store("text").is_err());
    }
}
