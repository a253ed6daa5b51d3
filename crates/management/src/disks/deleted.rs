//! Aggregates that were deleted, as a text that outlives restarts: what their labels say counts for
//! nothing any more.
//!
//! An aggregate is deleted when it is in this text. Its labels are erased after that, and its
//! journal; a crash between leaves the rest to the next start. A disk that was missing then has its
//! label still when it returns. The aggregate is not brought back by it, and the list of disks says
//! whose it was.
//!
//! ```text
//! stroop-deleted-aggregates 1
//! 0123456789abcdef0123456789abcdef 1732541528000000000 journal a1 89ab...,cdef... 4711
//! ```
//!
//! A line has the aggregate's identity, when it was deleted, `journal` while its journal is to be
//! removed and else `-`, its name, the identities of the disks that are to be erased, or `-`, and
//! the number of the consistency point that would have been begun next. Lines of earlier builds
//! end before that number.
//!
//! Invariants:
//! - What is added is durable before anything is erased.
//! - At most [`DELETED_MAX`] are kept; the oldest of which nothing is to be erased goes first.
//! - A text that cannot be read is never written over. Lines that this build does not know stay.
//!
//! Fails: a text that cannot be read is told as long as it stands. Labels are believed then, and no
//! aggregate is deleted. A text that cannot be written refuses a deletion. It may have been written
//! all the same, and the aggregate would be deleted at the next start: so the text of before is
//! stored again, and until that is done, this is told and tried at each look.

use crate::fields::{NOTHING, beginning_of, escape, parse_identity, print_identity, unescape};
use crate::ports::StateFile;
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use units::{AggregateUuid, CpNumber, DiskUuid, Timestamp};

/// The first line.
const TITLE: &str = "stroop-deleted-aggregates 1";
/// What comes of a file that cannot be read.
const CONSEQUENCE: &str = "deleted aggregates whose disks were not erased yet come back";
/// Deleted aggregates that are remembered: a disk that returns later than so many is told as the
/// rest of an aggregate that is out of service.
const DELETED_MAX: usize = 1_000;
const JOURNAL: &str = "journal";

/// An aggregate that was deleted.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Deleted {
    pub identity: AggregateUuid,
    pub name: String,
    pub time: Timestamp,
    /// The disks whose labels are to be erased.
    pub disks: BTreeSet<DiskUuid>,
    /// Its journal is to be removed.
    pub has_journal: bool,
    /// The consistency point that would have been begun next: whoever commits it or a later one
    /// uses the aggregate after its deletion. `None` if no superblock could be read at the
    /// deletion, or an earlier build noted it.
    pub next_cp: Option<CpNumber>,
}

impl Deleted {
    /// Whether a superblock of this number and time was written by a use after the deletion.
    pub(crate) fn is_use_since(&self, cp: CpNumber, time: Timestamp) -> bool {
        // A clock may be set back: it is asked only where there is nothing better.
        self.next_cp.map_or(time > self.time, |next| cp >= next)
    }

    /// Whether something of it is to be erased.
    pub(crate) fn is_pending(&self) -> bool {
        self.has_journal || !self.disks.is_empty()
    }
}

/// What a text says.
#[derive(PartialEq, Eq, Default, Debug)]
struct Text {
    list: Vec<Deleted>,
    /// Lines that this build does not know.
    strange: Vec<String>,
}

/// See the module.
pub(crate) struct DeletedAggregates {
    file: Arc<dyn StateFile>,
    list: Mutex<Vec<Deleted>>,
    /// Lines that this build does not know. They are kept.
    strange: Vec<String>,
    /// Why the file cannot be read: it is left as it is.
    failure: Option<String>,
    /// Whose holder writes the file.
    writing: Mutex<()>,
    /// The file may say of an aggregate in service that it is deleted.
    is_uncertain: AtomicBool,
    /// Those that an earlier server deleted.
    earlier: BTreeSet<AggregateUuid>,
    /// Of these those that were in use since, by name: they are not erased.
    used_since: Mutex<BTreeSet<String>>,
}

/// A fault of the file: the consequence for aggregates, and the next step for the operator.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Trouble {
    pub(crate) message: String,
    pub(crate) action: &'static str,
}

impl DeletedAggregates {
    /// Those that a file tells of.
    pub(crate) fn of(file: Arc<dyn StateFile>) -> Self {
        let text = file.load().map_err(|error| error.to_string());
        let text = text.and_then(|text| text.map_or(Ok(Text::default()), |text| parse(&text)));
        let (Text { list, strange }, failure) = match text {
            Ok(text) => (text, None),
            Err(cause) => {
                let failure = format!("the file 'deleted-aggregates' cannot be read: {cause}");
                tracing::error!("{failure}; {CONSEQUENCE}");
                (Text::default(), Some(failure))
            }
        };
        if !strange.is_empty() {
            tracing::warn!(lines = strange.len(), "unknown lines among the deleted aggregates");
        }
        Self {
            file,
            earlier: list.iter().map(|one| one.identity).collect(),
            list: Mutex::new(list),
            strange,
            failure,
            writing: Mutex::default(),
            is_uncertain: AtomicBool::new(false),
            used_since: Mutex::default(),
        }
    }

    /// Whether an earlier server deleted it: another may have served it since, which could not read
    /// the file.
    pub(crate) fn is_of_earlier(&self, identity: &AggregateUuid) -> bool {
        self.earlier.contains(identity)
    }

    /// An aggregate was in use after it was deleted.
    pub(crate) fn note_use(&self, name: &str) {
        self.used_since.lock().insert(name.to_owned());
    }

    /// Why the file cannot be read, if it cannot.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The fault of the file, if it has one.
    pub(crate) fn trouble(&self) -> Option<Trouble> {
        let lines = self.strange.len();
        if let Some(name) = self.used_since.lock().first() {
            return Some(Trouble {
                message: format!(
                    "aggregate '{name}' was in use after it was deleted, while the file \
                     'deleted-aggregates' could not be read, so it is neither erased nor opened"
                ),
                action: "to have it back, stop the server, take its line out of the file, and \
                         start the server again; to lose it, zero its disks",
            });
        }
        if self.is_uncertain.load(Ordering::Relaxed) {
            return Some(Trouble {
                message: "the file 'deleted-aggregates' could not be written. An aggregate whose \
                          deletion was refused may be deleted at the next start"
                    .to_owned(),
                action: "make room in the state directory, and do not restart the server before \
                         this check is gone",
            });
        }
        let message = match &self.failure {
            Some(failure) => format!("{failure}. No aggregate can be deleted, and {CONSEQUENCE}"),
            None if lines == 0 => return None,
            None => format!(
                "{lines} lines of the file 'deleted-aggregates' are unknown to this build, and are \
                 kept. If they are of deleted aggregates, {CONSEQUENCE}"
            ),
        };
        let action =
            "mend the file in the state directory or move it away, and start the server again";
        Some(Trouble { message, action })
    }

    /// The deleted aggregate of this identity.
    pub(crate) fn find(&self, identity: &AggregateUuid) -> Option<Deleted> {
        self.list.lock().iter().find(|one| one.identity == *identity).cloned()
    }

    /// Whether an aggregate was deleted.
    pub(crate) fn has(&self, identity: &AggregateUuid) -> bool {
        self.list.lock().iter().any(|one| one.identity == *identity)
    }

    /// Those of which something is to be erased.
    pub(crate) fn pending(&self) -> Vec<Deleted> {
        self.list.lock().iter().filter(|one| one.is_pending()).cloned().collect()
    }

    /// Notes that an aggregate is deleted, durably.
    ///
    /// # Errors
    /// If that cannot be written, or what was written cannot be read; it is not deleted then.
    pub(crate) fn add(&self, deleted: Deleted) -> io::Result<()> {
        if let Some(failure) = &self.failure {
            return Err(io::Error::other(failure.clone()));
        }
        let _writing = self.writing.lock();
        let mut list = self.list.lock().clone();
        list.retain(|one| one.identity != deleted.identity);
        list.push(deleted);
        if list.len() > DELETED_MAX
            && let Some(at) = list.iter().position(|one| !one.is_pending())
        {
            list.remove(at);
        }
        if !mutation::broken(Rule::DeletionUnnoted) {
            let stored = self.file.store(&print(&list, &self.strange));
            if stored.is_err() {
                self.store_again();
                return stored;
            }
        }
        *self.list.lock() = list;
        Ok(())
    }

    /// Has the file say what is so, if it may say something else.
    pub(crate) fn settle(&self) {
        if self.is_uncertain.load(Ordering::Relaxed) {
            let _writing = self.writing.lock();
            self.store_again();
        }
    }

    /// The same for the holder of [`Self::writing`], after a text that could not be stored.
    fn store_again(&self) {
        let text = print(&self.list.lock(), &self.strange);
        // A text of nothing may be no file.
        let is_there = self.file.load().is_ok_and(|found| match found {
            Some(found) => found == text,
            None => self.list.lock().is_empty(),
        });
        let is_settled = is_there || self.file.store(&text).is_ok();
        self.is_uncertain.store(!is_settled, Ordering::Relaxed);
    }

    /// Notes that something of an aggregate is erased. If that cannot be written it is erased once
    /// more.
    pub(crate) fn note(&self, identity: &AggregateUuid, change: impl FnOnce(&mut Deleted)) {
        let _writing = self.writing.lock();
        let text = {
            let mut list = self.list.lock();
            if let Some(one) = list.iter_mut().find(|one| one.identity == *identity) {
                change(one);
            }
            print(&list, &self.strange)
        };
        if !mutation::broken(Rule::DeletionUnnoted)
            && let Err(error) = self.file.store(&text)
        {
            tracing::warn!(%error, "the list of deleted aggregates could not be written");
        }
    }
}

fn print(list: &[Deleted], strange: &[String]) -> String {
    let mut text = format!("{TITLE}\n");
    for Deleted { identity, name, time, disks, has_journal, next_cp } in list {
        let disks: Vec<String> = disks.iter().map(|disk| print_identity(Some(disk.0))).collect();
        let next_cp = next_cp.map(|cp| format!(" {}", cp.get())).unwrap_or_default();
        text.push_str(&format!(
            "{} {} {} {} {}{next_cp}\n",
            print_identity(Some(identity.0)),
            time.get(),
            if *has_journal { JOURNAL } else { NOTHING },
            escape(Some(name)),
            if disks.is_empty() { NOTHING.to_owned() } else { disks.join(",") }
        ));
    }
    strange.iter().for_each(|line| text.extend([line, "\n"]));
    text
}

fn parse(text: &str) -> Result<Text, String> {
    let mut lines = text.lines();
    match lines.next() {
        Some(TITLE) => {}
        Some(other) => return Err(format!("it begins with '{}'", beginning_of(other))),
        None => return Err("it is empty".to_owned()),
    }
    let mut parsed = Text::default();
    for line in lines {
        match deleted(line) {
            Some(one) => parsed.list.push(one),
            None => parsed.strange.push(line.to_owned()),
        }
    }
    Ok(parsed)
}

fn deleted(line: &str) -> Option<Deleted> {
    let mut fields = line.split(' ');
    let mut next = || fields.next();
    let identity = AggregateUuid(parse_identity(next()?)??);
    let time = Timestamp(next()?.parse().ok()?);
    let has_journal = match next()? {
        JOURNAL => true,
        NOTHING => false,
        _ => return None,
    };
    let name = unescape(next()?)?.unwrap_or_default();
    let disks = match next()? {
        NOTHING => BTreeSet::new(),
        disks => disks
            .split(',')
            .map(|disk| parse_identity(disk).flatten().map(DiskUuid))
            .collect::<Option<_>>()?,
    };
    // 0 is of a build that wrote it if no superblock could be read.
    let next_cp = match next().filter(|number| *number != "0") {
        Some(cp) => Some(CpNumber(cp.parse().ok()?)),
        None => None,
    };
    next().is_none().then_some(Deleted { identity, name, time, disks, has_journal, next_cp })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file that can be full, and one that is written though it says that it is not.
    #[derive(Default)]
    pub(crate) struct File {
        pub text: Mutex<String>,
        pub is_full: Mutex<bool>,
        pub lies: Mutex<u32>,
    }

    impl StateFile for File {
        fn load(&self) -> io::Result<Option<String>> {
            Ok(Some(self.text.lock().clone()).filter(|text| !text.is_empty()))
        }

        fn keep_damaged(&self) -> io::Result<String> {
            unreachable!("it is never written over")
        }

        fn store(&self, text: &str) -> io::Result<()> {
            if *self.is_full.lock() {
                return Err(io::Error::other("it is full"));
            }
            text.clone_into(&mut self.text.lock());
            let mut lies = self.lies.lock();
            if *lies > 0 {
                *lies -= 1;
                return Err(io::Error::other("the directory cannot be opened"));
            }
            Ok(())
        }
    }

    fn one(number: u8) -> Deleted {
        Deleted {
            identity: AggregateUuid([number; 16]),
            name: format!("a{number}"),
            time: Timestamp(7),
            disks: [1, 2].map(|disk| DiskUuid([disk; 16])).into(),
            has_journal: true,
            next_cp: Some(CpNumber(12)),
        }
    }

    #[test]
    fn what_was_deleted_is_known_after_a_restart_and_what_is_erased_is_not_erased_again() {
        let file = Arc::new(File::default());
        let of = || DeletedAggregates::of(Arc::clone(&file) as Arc<dyn StateFile>);
        let table = of();
        table.add(one(1)).unwrap();
        table.add(one(2)).unwrap();
        let same = of();
        assert_eq!(same.pending(), [one(1), one(2)]);
        let first = one(1).identity;
        same.note(&first, |one| one.disks.clear());
        assert_eq!(of().pending().len(), 2, "its journal is there");
        same.note(&first, |one| one.has_journal = false);
        let last = of();
        assert_eq!(last.pending(), [one(2)]);
        assert!(last.has(&first) && !last.has(&AggregateUuid([9; 16])));
    }

    #[test]
    fn nothing_is_deleted_that_cannot_be_noted() {
        let file = Arc::new(File::default());
        let table = DeletedAggregates::of(Arc::clone(&file) as Arc<dyn StateFile>);
        *file.is_full.lock() = true;
        table.add(one(1)).unwrap_err();
        assert!(!table.has(&one(1).identity));
    }

    /// The command failed, the aggregate was used on, and the next start erased it.
    #[test]
    fn regression_a_deletion_that_was_refused_is_not_done_by_the_next_start() {
        for lies in [1, 2, 3] {
            let file = Arc::new(File::default());
            let of = || DeletedAggregates::of(Arc::clone(&file) as Arc<dyn StateFile>);
            let table = of();
            table.add(one(1)).unwrap();
            *file.lies.lock() = lies;
            table.add(one(2)).unwrap_err();
            if lies > 1 {
                assert!(
                    table.trouble().unwrap().message.contains("may be deleted at the next start")
                );
            }
            for _ in 1..lies {
                table.settle();
            }
            assert_eq!(table.trouble(), None);
            assert_eq!(of().pending(), [one(1)]);
        }
    }

    /// The next deletion wrote over it, and with it all that could have been mended.
    #[test]
    fn regression_a_text_that_cannot_be_read_is_left_as_it_is() {
        for wrong in ["something", "stroop-deleted-aggregates 2\nx"] {
            let file = Arc::new(File::default());
            wrong.clone_into(&mut file.text.lock());
            let table = DeletedAggregates::of(Arc::clone(&file) as Arc<dyn StateFile>);
            assert!(table.failure().unwrap().contains("it begins with"));
            assert!(table.trouble().unwrap().message.contains("No aggregate can be deleted"));
            table.add(one(1)).unwrap_err();
            assert_eq!(*file.text.lock(), wrong);
        }
    }

    #[test]
    fn lines_that_nobody_knows_are_told_and_kept() {
        let number = "0123456789abcdef0123456789abcdef 7 - a1 - x";
        for strange in ["journal", "- 7 - a1 -", "x", number] {
            let file = Arc::new(File::default());
            let of = || DeletedAggregates::of(Arc::clone(&file) as Arc<dyn StateFile>);
            *file.text.lock() = print(&[one(1)], &[strange.to_owned()]);
            let table = of();
            assert!(
                table.failure().is_none() && table.trouble().unwrap().message.contains("1 lines")
            );
            table.add(one(2)).unwrap();
            table.note(&one(1).identity, |one| one.disks.clear());
            assert_eq!(of().strange, [strange]);
            assert!(of().pending().contains(&one(2)));
        }
        assert_eq!(parse(""), Err("it is empty".to_owned()));
        assert_eq!(DeletedAggregates::of(Arc::new(File::default())).trouble(), None);
    }

    /// The clock was set back, and the rest of a deletion that a crash cut off was never done.
    #[test]
    fn regression_a_clock_that_was_set_back_makes_no_use_of_a_deleted_aggregate() {
        let (early, late) = (Timestamp(1), Timestamp(100));
        let deleted = one(1);
        assert!(!deleted.is_use_since(CpNumber(11), late));
        assert!(deleted.is_use_since(CpNumber(12), early));
        // A line of an earlier build has the time only.
        let text = print(&[Deleted { next_cp: None, ..one(1) }], &[]);
        assert_eq!(text.lines().nth(1).unwrap().split(' ').count(), 5);
        let deleted = parse(&text).unwrap().list.remove(0);
        assert!(!deleted.is_use_since(CpNumber(12), early));
        assert!(deleted.is_use_since(CpNumber(11), late));
    }

    /// The first of two was found ever after, and the second pending for ever.
    #[test]
    fn regression_an_aggregate_is_in_the_list_once() {
        let table = DeletedAggregates::of(Arc::new(File::default()));
        table.add(Deleted { has_journal: false, ..one(1) }).unwrap();
        table.add(one(1)).unwrap();
        assert_eq!(table.pending(), [one(1)]);
    }

    #[test]
    fn no_more_are_kept_than_can_be_and_none_goes_that_is_to_be_erased() {
        let table = DeletedAggregates::of(Arc::new(File::default()));
        let numbered = |number: usize, has_journal| Deleted {
            identity: AggregateUuid((number as u128).to_be_bytes()),
            disks: BTreeSet::new(),
            has_journal,
            ..one(0)
        };
        (0..DELETED_MAX + 3).for_each(|number| table.add(numbered(number, number == 0)).unwrap());
        assert!(table.has(&numbered(0, true).identity));
        assert!(!table.has(&numbered(1, false).identity));
        assert_eq!(table.list.lock().len(), DELETED_MAX);
    }
}
