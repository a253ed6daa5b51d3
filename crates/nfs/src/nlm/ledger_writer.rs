//! Writes the ledger, and knows what is wrong with it.
//!
//! Invariants:
//! - One text is written at a time, and is made when its turn comes, so that an older one never
//!   replaces a newer one.
//! - Who writes holds nothing else: a state directory that hangs holds up whoever waits for the
//!   ledger, and no other lock.
//! - A ledger that could not be read is never written.
//!
//! Fails: [`Unwritten`].

use super::ledger::{Ledger, LedgerTrouble};
use super::ledger_text::{self, Contents};
use platform::sync::Mutex;
use std::sync::Arc;

/// The ledger does not say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unwritten;

/// See the module.
pub(super) struct LedgerWriter {
    ledger: Arc<dyn Ledger>,
    /// The trouble of the start, which stays.
    trouble_at_start: Option<LedgerTrouble>,
    /// How many changes the ledger says. Whose holder writes.
    written: Mutex<u64>,
    /// Why the ledger could not be written the last time. Never held over I/O.
    failure: Mutex<Option<String>>,
}

impl LedgerWriter {
    /// Reads a ledger. What makes no sense is kept aside.
    pub(super) fn start(ledger: Arc<dyn Ledger>) -> (Self, Contents) {
        let (contents, trouble_at_start) = match ledger.load() {
            Ok(None) => (Contents::default(), None),
            Ok(Some(text)) => {
                let contents = ledger_text::parse(&text);
                let trouble = (contents.nonsense > 0).then(|| damaged(&*ledger, contents.nonsense));
                (contents, trouble)
            }
            Err(error) => (Contents::default(), Some(LedgerTrouble::Unreadable(error.to_string()))),
        };
        if let Some(trouble) = &trouble_at_start {
            tracing::error!(?trouble, "the list of clients with locks");
        }
        let (written, failure) = (Mutex::default(), Mutex::default());
        (Self { ledger, trouble_at_start, written, failure }, contents)
    }

    /// What is wrong with the ledger, if something is.
    pub(super) fn trouble(&self) -> Option<LedgerTrouble> {
        let failure = self.failure.lock().clone().map(LedgerTrouble::Unwritten);
        failure.or_else(|| self.trouble_at_start.clone())
    }

    /// Has the ledger say all changes; how many it says then. `text` is asked for the text and how
    /// many changes it says, unless there are no more than so many.
    pub(super) fn store(
        &self,
        text: impl FnOnce(u64) -> Option<(String, u64)>,
    ) -> Result<u64, Unwritten> {
        if matches!(self.trouble_at_start, Some(LedgerTrouble::Unreadable(_))) {
            return Err(Unwritten);
        }
        // The disk may hang, for this writer or another: what the thread has put off must not.
        platform::round::run();
        let mut written = self.written.lock();
        let Some((text, changes)) = text(*written) else { return Ok(*written) };
        let cause = self.ledger.store(&text).err().map(|error| error.to_string());
        let before = std::mem::replace(&mut *self.failure.lock(), cause.clone());
        match (before, cause) {
            (None, Some(cause)) => {
                tracing::error!(cause, "the list of clients with locks cannot be written");
                Err(Unwritten)
            }
            (Some(_), Some(_)) => Err(Unwritten),
            (before, None) => {
                if before.is_some() {
                    tracing::info!("the list of clients with locks is written again");
                }
                *written = changes;
                Ok(changes)
            }
        }
    }
}

/// Keeps a ledger aside that makes no sense in so many places.
fn damaged(ledger: &dyn Ledger, lines: usize) -> LedgerTrouble {
    let kept = match ledger.keep_damaged() {
        Ok(place) => format!("it is kept as {place}"),
        Err(error) => format!("it could not be kept aside: {error}"),
    };
    LedgerTrouble::Damaged(format!("{lines} lines make no sense or are missing; {kept}"))
}
