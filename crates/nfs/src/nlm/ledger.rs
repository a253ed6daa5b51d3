//! Where it is kept over restarts which machines have locks.
//!
//! Fails: with the error of whatever keeps the text.

use platform::sync::Mutex;
use std::io;

/// Keeps a short text over restarts.
pub trait Ledger: Send + Sync {
    /// The text that was stored last; `None` if none was.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load(&self) -> io::Result<Option<String>>;

    /// Stores another text; it is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written; what was stored before is still there then.
    fn store(&self, text: &str) -> io::Result<()>;

    /// Keeps the text of now where no other replaces it, for a person to look at, because another
    /// is stored soon. Gives the place.
    ///
    /// # Errors
    /// If it cannot be kept.
    fn keep_damaged(&self) -> io::Result<String>;
}

/// A fault of the ledger, each with its cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LedgerTrouble {
    /// It could not be read at the start: nobody gets a lock, and it is left as it is.
    Unreadable(String),
    /// It cannot be written: no client gets its first lock since the start.
    Unwritten(String),
    /// Parts of it made no sense at the start: clients were not told of the restart.
    Damaged(String),
}

/// A text in memory: it outlives the server and not the process, which does for tests.
impl Ledger for Mutex<String> {
    fn load(&self) -> io::Result<Option<String>> {
        Ok(Some(self.lock().clone()).filter(|text| !text.is_empty()))
    }

    fn store(&self, text: &str) -> io::Result<()> {
        text.clone_into(&mut self.lock());
        Ok(())
    }

    fn keep_damaged(&self) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
