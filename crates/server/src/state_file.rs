//! Small texts of the server's own in the state directory.
//!
//! Invariants:
//! - A file is replaced whole, by a rename, so it is as it was before or as it should be; what was
//!   stored survives a loss of power.
//! - A file that is read with changes, because it is no text, is kept aside first.
//! - No file is stored that could not be read again.

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

    fn path(&self) -> PathBuf {
        self.directory.join(self.name)
    }

    /// The text of the file; none if there is no file. Bytes that are no text are read as U+FFFD,
    /// so that they cost their line.
    fn read(&self) -> io::Result<Option<String>> {
        let path = self.path();
        let bytes = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
            Ok(found) if found.len() > STATE_FILE_BYTES_MAX => return Err(too_large(&path)),
            Ok(_) => fs::read(&path)?,
        };
        String::from_utf8(bytes).map(Some).or_else(|error| {
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let kept = self.keep_aside()?;
            tracing::error!(
                path = %path.display(),
                kept = %kept.display(),
                "a file of the state directory has bytes that are no text"
            );
            Ok(Some(text))
        })
    }

    /// Keeps the file as it is under another name, too. What was kept there before goes.
    fn keep_aside(&self) -> io::Result<PathBuf> {
        let (path, kept) = (self.path(), self.kept());
        let fresh = self.directory.join(format!("{}.damaged.new", self.name));
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // A second name does for a file that cannot be read. Some systems let nobody but the owner
        // give one.
        fs::hard_link(&path, &fresh).or_else(|_| copy(&path, &fresh))?;
        fs::rename(&fresh, &kept)?;
        File::open(&self.directory)?.sync_all()?;
        Ok(kept)
    }

    /// The same before the file is written anew: it may lose its own name.
    fn keep_before_a_new_one(&self) -> io::Result<String> {
        let kept = self.kept();
        self.keep_aside().or_else(|_| fs::rename(self.path(), &kept).map(|()| kept.clone()))?;
        Ok(kept.display().to_string())
    }

    fn kept(&self) -> PathBuf {
        self.directory.join(format!("{}.damaged", self.name))
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        if text.len() as u64 > STATE_FILE_BYTES_MAX {
            return Err(too_large(&self.path()));
        }
        let fresh = self.directory.join(format!("{}.new", self.name));
        // What can fail does so before the new text may be found.
        let directory = File::open(&self.directory)?;
        let mut file = File::create(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, self.path())?;
        directory.sync_all()
    }
}

/// A copy that is durable.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::copy(from, to)?;
    File::open(to)?.sync_all()
}

fn too_large(path: &Path) -> io::Error {
    let message = format!("{} is larger than {STATE_FILE_BYTES_MAX} bytes", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Which NFS clients have locks.
impl nfs::Ledger for StateFile {
    fn load(&self) -> io::Result<Option<String>> {
        self.read()
    }

    fn store(&self, text: &str) -> io::Result<()> {
        self.replace(text)
    }

    fn keep_damaged(&self) -> io::Result<String> {
        self.keep_before_a_new_one()
    }
}

/// Which jobs there are.
impl management::StateFile for StateFile {
    fn load(&self) -> io::Result<Option<String>> {
        self.read()
    }

    fn store(&self, text: &str) -> io::Result<()> {
        self.replace(text)
    }

    fn keep_damaged(&self) -> io::Result<String> {
        self.keep_before_a_new_one()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_stored_is_loaded() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path(), "texts");
        assert_eq!(file.read().unwrap(), None);
        for text in ["first\nlines\n", "second\n"] {
            file.replace(text).unwrap();
            let again = StateFile::new(directory.path(), "texts").read().unwrap();
            assert_eq!(again.as_deref(), Some(text));
        }
        assert_eq!(StateFile::new(directory.path(), "others").read().unwrap(), None);
        fs::write(directory.path().join("empty"), "").unwrap();
        let empty = StateFile::new(directory.path(), "empty").read().unwrap();
        assert_eq!(empty.as_deref(), Some(""));
        let gone = StateFile::new(&directory.path().join("missing"), "texts");
        assert_eq!(gone.read().unwrap(), None);
        assert!(gone.replace("text").is_err());
    }

    #[test]
    fn what_is_no_text_is_kept_aside_before_it_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path(), "texts");
        let kept = || fs::read(directory.path().join("texts.damaged"));
        file.replace("well\n").unwrap();
        file.read().unwrap();
        assert!(kept().is_err());
        for bytes in [b"first\n\xff\n", b"again\n\xfe\n"] {
            fs::write(directory.path().join("texts"), bytes).unwrap();
            let read = file.read().unwrap().unwrap();
            assert!(read.ends_with("\n\u{fffd}\n"), "{read}");
            file.replace(&read).unwrap();
            assert_eq!(kept().unwrap(), bytes);
        }
    }

    #[test]
    fn a_text_that_could_not_be_read_again_is_not_stored() {
        let directory = tempfile::tempdir().unwrap();
        let file = StateFile::new(directory.path(), "texts");
        let largest = "x".repeat(STATE_FILE_BYTES_MAX as usize);
        file.replace(&largest).unwrap();
        assert!(file.replace(&format!("{largest}x")).is_err());
        assert_eq!(file.read().unwrap(), Some(largest));
        fs::write(directory.path().join("texts"), vec![b'x'; 5 << 20]).unwrap();
        assert!(file.read().is_err());
        assert_eq!(file.keep_aside().unwrap().metadata().unwrap().len(), 5 << 20);
    }
}
