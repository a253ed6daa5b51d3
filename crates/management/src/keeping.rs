//! What a room knows, and the file that keeps it over restarts.
//!
//! Invariants: the lock of what is known is held for a few instructions, never while the file is
//! written: a state directory that hangs holds up whoever waits for the file, and no look. One text
//! is written at a time, so that an older one never replaces a newer one.
//!
//! Fails: a file that cannot be written is tried again with the next look, and is in [`Unwritten`]
//! until it was written.

use crate::ports::StateFile;
use platform::sync::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Which files of the node could not be written the last time, and why.
#[derive(Default)]
pub(crate) struct Unwritten(Mutex<BTreeMap<&'static str, String>>);

impl Unwritten {
    /// Notes what came of writing the file of this title. The first failure is logged.
    pub(crate) fn note(&self, title: &'static str, outcome: &io::Result<()>) {
        let mut causes = self.0.lock();
        let Err(error) = outcome else {
            causes.remove(title);
            return;
        };
        let cause = error.to_string();
        if !causes.contains_key(title) {
            tracing::error!(
                cause,
                "the {title} could not be written, and is tried again every second; make room in \
                 the state directory"
            );
        }
        causes.insert(title, cause);
    }

    /// The file of this title is not to be written any more.
    pub(crate) fn forget(&self, title: &str) {
        self.0.lock().remove(title);
    }

    /// Titles and causes.
    pub(crate) fn list(&self) -> Vec<(&'static str, String)> {
        self.0.lock().iter().map(|(title, cause)| (*title, cause.clone())).collect()
    }
}

/// Keeps a file aside that cannot be used, before another text replaces it. Says where it is.
pub(crate) fn keep_aside(file: &dyn StateFile) -> String {
    match file.keep_damaged() {
        Ok(place) => format!("the file is kept as {place}"),
        Err(error) => format!("the file could not be kept aside: {error}"),
    }
}

/// What can be kept as a text.
pub(crate) trait Print: Send {
    /// What it is, for the log: "list of jobs".
    const TITLE: &'static str;

    /// The text.
    fn print(&self) -> String;
}

/// What is known, and how it is kept.
pub(crate) struct Kept<T> {
    pub table: T,
    /// Counts what of the table was changed that the file is to say.
    pub changes: u64,
    /// How many of them it says.
    stored: u64,
}

/// See the module.
pub(crate) struct Keeper<T> {
    pub kept: Mutex<Kept<T>>,
    file: Arc<dyn StateFile>,
    unwritten: Arc<Unwritten>,
    /// Whose holder writes the file, unlike any other lock.
    writing: Mutex<()>,
}

impl<T: Print> Keeper<T> {
    /// Keeps a table that the file tells of.
    pub(crate) fn new(table: T, file: Arc<dyn StateFile>, unwritten: Arc<Unwritten>) -> Self {
        let kept = Kept { table, changes: 0, stored: 0 };
        Self { kept: Mutex::new(kept), file, unwritten, writing: Mutex::default() }
    }

    /// Has the file say what the table does; whether it does then.
    pub(crate) fn store(&self) -> bool {
        let _writing = self.writing.lock();
        let (text, changes) = {
            let kept = self.kept.lock();
            if kept.stored == kept.changes {
                return true;
            }
            (kept.table.print(), kept.changes)
        };
        let outcome = self.file.store(&text);
        self.unwritten.note(T::TITLE, &outcome);
        if outcome.is_ok() {
            self.kept.lock().stored = changes;
        }
        outcome.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::Table;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{OnceLock, Weak};

    /// Fails the first time, and sees whether the table is free meanwhile.
    #[derive(Default)]
    struct File {
        keeper: OnceLock<Weak<Keeper<Table>>>,
        stores: AtomicU64,
    }

    impl StateFile for File {
        fn load(&self) -> io::Result<Option<String>> {
            Ok(None)
        }

        fn keep_damaged(&self) -> io::Result<String> {
            unreachable!("nothing is damaged")
        }

        fn store(&self, _: &str) -> io::Result<()> {
            let keeper = self.keeper.get().and_then(Weak::upgrade).unwrap();
            let mut kept = keeper.kept.try_lock().expect("a look would wait for the file");
            // What changes while the file is written is not in it.
            kept.changes += 1;
            match self.stores.fetch_add(1, Ordering::Relaxed) {
                0 => Err(io::Error::other("it is full")),
                _ => Ok(()),
            }
        }
    }

    #[test]
    fn regression_the_table_is_not_locked_while_the_file_is_written() {
        let file = Arc::new(File::default());
        let table = Table::new(Vec::new(), 1);
        let unwritten = Arc::new(Unwritten::default());
        let port = Arc::clone(&file) as Arc<dyn StateFile>;
        let keeper = Arc::new(Keeper::new(table, port, Arc::clone(&unwritten)));
        file.keeper.set(Arc::downgrade(&keeper)).unwrap();
        assert!(keeper.store(), "there is nothing to store");
        keeper.kept.lock().changes = 1;
        assert!(!keeper.store());
        assert_eq!(unwritten.list(), [("list of jobs", "it is full".to_owned())]);
        for stores in [2, 3] {
            assert!(keeper.store());
            assert_eq!(file.stores.load(Ordering::Relaxed), stores);
            assert_eq!(unwritten.list(), []);
        }
    }
}
