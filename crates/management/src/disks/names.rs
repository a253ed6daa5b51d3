//! Short names of disks: `d1`, `d2`, ..., each a disk's for life, as a text that outlives restarts.
//!
//! A disk is known by the identity in its label, so it keeps its name while it is missing, and when
//! a boot gives it another device name. Labels have the numbers, too: of a disk that this text does
//! not know the label's number is taken, if no other disk has it.
//!
//! ```text
//! stroop-disk-names 1
//! d1 0123456789abcdef0123456789abcdef
//! forgotten d7
//! ```
//!
//! A line has a name and the identity of its disk. `forgotten` says up to which number names were
//! given to disks of which nothing is known any more.
//!
//! Invariants:
//! - A name is durable before anybody sees it, and is never given twice while the text is there.
//! - No name is given that another disk has in the configuration: `d1` of `/disks/d1.img`.
//! - At most [`NAMES_MAX`] are kept. The lowest go first, of disks that no aggregate has.
//! - A text that cannot be read is never written over.
//!
//! Fails: while the text cannot be read or written, disks without a name are shown by their paths.
//! If it is lost, disks that are missing then are named anew.

use crate::fields::{beginning_of, parse_identity, print_identity};
use crate::keeping::Unwritten;
use crate::ports::StateFile;
use platform::mutation::{self, Rule};
use platform::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use units::DiskUuid;

/// The first line.
const TITLE: &str = "stroop-disk-names 1";
/// What the file is.
const FILE_TITLE: &str = "list of short names of disks";
const FORGOTTEN: &str = "forgotten";
/// Names that are kept. Disks that aggregates have keep theirs however many they are.
const NAMES_MAX: usize = 4096;

/// Which numbers were given.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Given {
    numbers: BTreeMap<DiskUuid, u32>,
    /// Up to this one no number is given any more.
    forgotten: u32,
}

/// A disk that is to have a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KnownDisk {
    pub identity: DiskUuid,
    /// Where it is, if it is there.
    pub path: Option<String>,
    /// The number that its label has.
    pub number: Option<u32>,
}

/// See the module.
pub(crate) struct DiskNames {
    file: Arc<dyn StateFile>,
    given: Mutex<Given>,
    /// Why the file cannot be read: it is left as it is.
    failure: Option<String>,
    unwritten: Arc<Unwritten>,
    /// Whose holder writes the file.
    writing: Mutex<()>,
}

impl DiskNames {
    /// Those that a file tells of.
    pub(crate) fn of(file: Arc<dyn StateFile>, unwritten: Arc<Unwritten>) -> Self {
        let given = file.load().map_err(|error| error.to_string());
        let given = given.and_then(|text| text.map_or(Ok(Given::default()), |text| parse(&text)));
        let (given, failure) = match given {
            Ok(given) => (given, None),
            Err(cause) => {
                let failure = format!("the file 'disk-names' cannot be read: {cause}");
                tracing::error!("{failure}; disks are shown by their paths");
                (Given::default(), Some(failure))
            }
        };
        Self { file, given: Mutex::new(given), failure, unwritten, writing: Mutex::default() }
    }

    /// Why the file cannot be read, if it cannot.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The name of a disk, if it has one.
    pub(crate) fn name(&self, identity: &DiskUuid) -> Option<String> {
        self.given.lock().numbers.get(identity).copied().map(name_of)
    }

    /// The numbers of all disks.
    pub(crate) fn numbers(&self) -> BTreeMap<DiskUuid, u32> {
        self.given.lock().numbers.clone()
    }

    /// Gives names to disks that have none, in this order; whether there were such. `configured`
    /// tells the paths of all disks.
    pub(crate) fn give(
        &self,
        disks: &[KnownDisk],
        configured: impl FnOnce() -> Vec<String>,
    ) -> bool {
        let lacks =
            |given: &Given| disks.iter().any(|disk| !given.numbers.contains_key(&disk.identity));
        if self.failure.is_some() {
            return false;
        }
        if !lacks(&self.given.lock()) {
            // The disk that was to get one may have left.
            self.unwritten.forget(FILE_TITLE);
            return false;
        }
        let _writing = self.writing.lock();
        let mut given = self.given.lock().clone();
        given.add(disks, &configured());
        given.limit(disks);
        let stored = match mutation::broken(Rule::DiskNameUnnoted) {
            true => Ok(()),
            false => self.file.store(&print(&given)),
        };
        self.unwritten.note(FILE_TITLE, &stored);
        if stored.is_ok() {
            *self.given.lock() = given;
        }
        stored.is_ok()
    }
}

impl Given {
    fn add(&mut self, disks: &[KnownDisk], configured: &[String]) {
        let mut paths: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        configured.iter().for_each(|path| paths.entry(last_part(path)).or_default().push(path));
        let mut given: BTreeSet<u32> = self.numbers.values().copied().collect();
        for KnownDisk { identity, number, .. } in disks {
            if let Some(number) = number.filter(|_| !self.numbers.contains_key(identity))
                && given.insert(number)
            {
                self.numbers.insert(*identity, number);
            }
        }
        for KnownDisk { identity, path, .. } in disks {
            if self.numbers.contains_key(identity) {
                continue;
            }
            let is_of_another = |number: u32| {
                let called = paths.get(name_of(number).as_str()).into_iter().flatten();
                called.into_iter().any(|other| Some(*other) != path.as_deref())
            };
            let mut free = (self.forgotten.saturating_add(1)..u32::MAX)
                .filter(|number| !given.contains(number) && !is_of_another(*number));
            if let Some(number) = free.next() {
                given.insert(number);
                self.numbers.insert(*identity, number);
            }
        }
    }

    /// Forgets disks, but not these.
    fn limit(&mut self, disks: &[KnownDisk]) {
        let known: BTreeSet<DiskUuid> = disks.iter().map(|disk| disk.identity).collect();
        let own = |(identity, number): (&DiskUuid, &u32)| (*number, *identity);
        let mut unknown: Vec<(u32, DiskUuid)> = self.numbers.iter().map(own).collect();
        unknown.retain(|(_, identity)| !known.contains(identity));
        unknown.sort_unstable();
        let over = self.numbers.len().saturating_sub(NAMES_MAX);
        for (number, identity) in unknown.into_iter().take(over) {
            self.numbers.remove(&identity);
            self.forgotten = self.forgotten.max(number);
        }
    }
}

fn name_of(number: u32) -> String {
    format!("d{number}")
}

/// The number of a name, if it is one.
pub(crate) fn number_of(name: &str) -> Option<u32> {
    let number: u32 = name.strip_prefix('d')?.parse().ok()?;
    (number > 0 && name_of(number) == name).then_some(number)
}

/// How a disk is called for short in the configuration: `d1` of `/disks/d1.img`.
pub(crate) fn last_part(path: &str) -> &str {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.strip_suffix(".img").unwrap_or(last)
}

fn print(given: &Given) -> String {
    let mut text = format!("{TITLE}\n");
    let mut lines: Vec<(u32, DiskUuid)> =
        given.numbers.iter().map(|(identity, number)| (*number, *identity)).collect();
    lines.sort_unstable();
    for (number, identity) in lines {
        let identity = print_identity(Some(identity.0));
        text.push_str(&format!("{} {identity}\n", name_of(number)));
    }
    if given.forgotten > 0 {
        text.push_str(&format!("{FORGOTTEN} {}\n", name_of(given.forgotten)));
    }
    text
}

/// A line that is none may have a name that is given: then nothing is known.
fn parse(text: &str) -> Result<Given, String> {
    let mut lines = text.lines();
    match lines.next() {
        Some(TITLE) => {}
        Some(other) => return Err(format!("it begins with '{}'", beginning_of(other))),
        None => return Err("it is empty".to_owned()),
    }
    let mut given = Given::default();
    let mut numbers = BTreeSet::new();
    for line in lines {
        let wrong = || format!("it has the line '{}'", beginning_of(line));
        let (first, second) = line.split_once(' ').ok_or_else(wrong)?;
        if first == FORGOTTEN {
            given.forgotten = number_of(second).ok_or_else(wrong)?;
            continue;
        }
        let number = number_of(first).filter(|number| numbers.insert(*number));
        let identity = parse_identity(second).flatten().map(DiskUuid);
        let (Some(number), Some(identity)) = (number, identity) else { return Err(wrong()) };
        if given.numbers.insert(identity, number).is_some() {
            return Err(wrong());
        }
    }
    Ok(given)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[derive(Default)]
    pub(crate) struct File {
        pub text: Mutex<String>,
        is_full: AtomicBool,
    }

    impl StateFile for File {
        fn load(&self) -> io::Result<Option<String>> {
            Ok(Some(self.text.lock().clone()).filter(|text| !text.is_empty()))
        }

        fn keep_damaged(&self) -> io::Result<String> {
            unreachable!("it is never written over")
        }

        fn store(&self, text: &str) -> io::Result<()> {
            if self.is_full.load(Ordering::Relaxed) {
                return Err(io::Error::other("it is full"));
            }
            text.clone_into(&mut self.text.lock());
            Ok(())
        }
    }

    fn disk(number: u8, path: Option<&str>) -> KnownDisk {
        let (identity, path) = (DiskUuid([number; 16]), path.map(str::to_owned));
        KnownDisk { identity, path, number: None }
    }

    fn names(names: &DiskNames, disks: &[u8]) -> Vec<String> {
        let name = |number: &u8| names.name(&DiskUuid([*number; 16])).unwrap_or_default();
        disks.iter().map(name).collect()
    }

    #[test]
    fn a_disk_keeps_its_name_over_restarts_and_whatever_its_path_is() {
        let file = Arc::new(File::default());
        let start = || DiskNames::of(Arc::clone(&file) as Arc<dyn StateFile>, Arc::default());
        start().give(&[disk(7, Some("/dev/sda")), disk(3, None)], Vec::new);
        let again = start();
        assert_eq!(names(&again, &[7, 3, 9]), ["d1", "d2", ""]);
        again.give(&[disk(9, Some("/dev/sda")), disk(7, Some("/dev/sdb"))], Vec::new);
        assert_eq!(names(&start(), &[7, 3, 9]), ["d1", "d2", "d3"]);
    }

    #[test]
    fn no_disk_gets_a_name_that_another_has_in_the_configuration() {
        let given = DiskNames::of(Arc::new(File::default()), Arc::default());
        let configured =
            ["/a/d1.img", "/a/d2.img", "/b/d3", "/a/d4.img"].map(str::to_owned).to_vec();
        // Those that are called so get the name, in any order.
        given
            .give(&[disk(4, Some("/a/d4.img")), disk(1, Some("/a/d1.img"))], || configured.clone());
        given.give(&[disk(5, None), disk(6, Some("/b/x"))], || configured.clone());
        assert_eq!(names(&given, &[4, 1, 5, 6]), ["d4", "d1", "d5", "d6"]);
    }

    #[test]
    fn a_number_of_a_label_is_taken_unless_another_disk_has_it() {
        let given = DiskNames::of(Arc::new(File::default()), Arc::default());
        let labelled =
            |identity, number| KnownDisk { number: Some(number), ..disk(identity, None) };
        given.give(&[disk(1, None), labelled(2, 1), labelled(3, 7), labelled(4, 7)], Vec::new);
        assert_eq!(names(&given, &[1, 2, 3, 4]), ["d2", "d1", "d7", "d3"]);
        // What was given counts more than what a label says.
        given.give(&[labelled(2, 9), disk(5, None)], Vec::new);
        assert_eq!(names(&given, &[2, 5]), ["d1", "d4"]);
    }

    #[test]
    fn a_name_is_seen_once_it_is_durable() {
        let file = Arc::new(File::default());
        let unwritten = Arc::new(Unwritten::default());
        let given = DiskNames::of(Arc::clone(&file) as Arc<dyn StateFile>, Arc::clone(&unwritten));
        file.is_full.store(true, Ordering::Relaxed);
        given.give(&[disk(1, None)], Vec::new);
        assert_eq!(names(&given, &[1]), [""]);
        assert_eq!(unwritten.list(), [(FILE_TITLE, "it is full".to_owned())]);
        // The disk that lacks a name has left.
        given.give(&[], Vec::new);
        assert_eq!(unwritten.list(), []);
        given.give(&[disk(1, None)], Vec::new);
        assert_eq!(unwritten.list().len(), 1);
        file.is_full.store(false, Ordering::Relaxed);
        given.give(&[disk(2, None), disk(1, None)], Vec::new);
        assert_eq!(names(&given, &[2, 1]), ["d1", "d2"]);
        assert_eq!(unwritten.list(), []);
    }

    #[test]
    fn what_cannot_be_read_is_left_as_it_is() {
        let identity = "01".repeat(16);
        for text in [
            "\n".to_owned(),
            "stroop-disk-names 2\n".to_owned(),
            format!("{TITLE}\nd1 {identity}\nd1 {}\n", "02".repeat(16)),
            format!("{TITLE}\nd1 {identity}\nd2 {identity}\n"),
            format!("{TITLE}\nd01 {identity}\n"),
            format!("{TITLE}\nd0 {identity}\n"),
            format!("{TITLE}\nd1\n"),
            "x".repeat(3 << 20),
        ] {
            let file = Arc::new(File { text: Mutex::new(text.clone()), ..File::default() });
            let given = DiskNames::of(Arc::clone(&file) as Arc<dyn StateFile>, Arc::default());
            given.give(&[disk(2, None)], Vec::new);
            let failure = given.failure().unwrap();
            assert!(failure.len() < 200, "{failure}");
            assert_eq!(
                (names(&given, &[1, 2]).concat(), &*file.text.lock()),
                (String::new(), &text)
            );
        }
    }

    #[test]
    fn names_of_forgotten_disks_are_not_given_again() {
        let identity = |number: usize| DiskUuid((number as u128).to_be_bytes());
        let given = DiskNames::of(Arc::new(File::default()), Arc::default());
        let known = |number| KnownDisk { identity: identity(number), path: None, number: None };
        let all: Vec<KnownDisk> = (0..=NAMES_MAX).map(known).collect();
        given.give(&all[..NAMES_MAX], Vec::new);
        given.give(&all[1..], Vec::new);
        let last = format!("d{}", NAMES_MAX + 1);
        assert_eq!(
            (given.name(&identity(0)), given.name(&identity(NAMES_MAX))),
            (None, Some(last))
        );
        given.give(&[all[0].clone(), all[5].clone()], Vec::new);
        assert_eq!(given.name(&identity(0)), Some(format!("d{}", NAMES_MAX + 2)));
        assert_eq!(given.name(&identity(5)), Some("d6".to_owned()), "it is known");
        assert_eq!(given.name(&identity(1)), None);
    }

    proptest! {
        #[test]
        fn what_is_printed_is_parsed(
            numbers in prop::collection::btree_map(any::<[u8; 16]>(), 1..u32::MAX, 0..20),
            forgotten in any::<u32>(),
        ) {
            let mut seen = BTreeSet::new();
            let numbers = numbers.into_iter().filter(|(_, number)| seen.insert(*number));
            let numbers = numbers.map(|(identity, number)| (DiskUuid(identity), number)).collect();
            let given = Given { numbers, forgotten };
            prop_assert_eq!(parse(&print(&given)), Ok(given));
        }

        #[test]
        fn any_text_is_read_without_harm(text in "(stroop-disk-names 1\n)?(.{0,20}\n){0,4}") {
            let _ = parse(&text);
        }
    }
}
