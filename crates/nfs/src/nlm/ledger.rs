//! Where it is kept over restarts which machines have locks.
//!
//! Fails: with the error of whatever keeps the text.

use platform::sync::Mutex;
use std::io;

/// Keeps a short text over restarts.
pub trait Ledger: Send + Sync {
    /// What was stored last; empty if nothing was.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load(&self) -> io::Result<String>;

    /// Stores another text; it is durable when this returns.
    ///
    /// # Errors
    /// If it cannot be written; what was stored before is still there then.
    fn store(&self, text: &str) -> io::Result<()>;
}

/// A text in memory: it outlives the server and not the process, which does for tests.
impl Ledger for Mutex<String> {
    fn load(&self) -> io::Result<String> {
        Ok(self.lock().clone())
    }

    fn store(&self, text: &str) -> io::Result<()> {
        text.clone_into(&mut self.lock());
        Ok(())
    }
}
