//! What disks are called by whoever administers them, and which disk is meant by what is typed.
//!
//! Inside of management and the engine a disk is called by its path, and a disk that is not there
//! by its identity, `(0123...)`. Answers call it by its short name, if it has one.
//!
//! Invariants: one table says both, so that what is shown can be typed; what could mean two disks
//! is refused, never guessed.
//!
//! Fails: `Usage` for a name that means two disks.

use crate::disks::names::number_of;
use admin_api::{
    AdminError, AggregateInfo, DiskInfo, DiskLocated, HealthCheck, JournalCopy, Removal,
    StatusReply,
};
use std::collections::BTreeMap;
use units::DiskUuid;

/// What a disk is called inside that is not there.
pub(crate) fn unnamed(identity: &DiskUuid) -> String {
    format!("({identity})")
}

/// What the names of disks are at this moment.
#[derive(Clone, Default, Debug)]
pub(crate) struct Shown {
    /// Short names, by the name inside.
    short: BTreeMap<String, String>,
    /// Identity and path, by the short name.
    disks: BTreeMap<String, (DiskUuid, Option<String>)>,
    /// The paths of all disks.
    paths: Vec<String>,
}

impl Shown {
    /// The same beside the paths of all disks, which may be typed.
    pub(crate) fn or_paths(self, paths: Vec<String>) -> Self {
        Self { paths, ..self }
    }

    /// A disk that has a short name, and its path, if it is there.
    pub(crate) fn add(&mut self, name: String, identity: DiskUuid, path: Option<String>) {
        self.short.insert(unnamed(&identity), name.clone());
        if let Some(path) = &path {
            self.short.insert(path.clone(), name.clone());
        }
        self.disks.insert(name, (identity, path));
    }

    /// This, and for disks that have no name in it any more, what they were called before.
    pub(crate) fn or(mut self, before: Self) -> Self {
        for (inside, name) in before.short {
            self.short.entry(inside).or_insert(name);
        }
        self
    }

    /// What a disk is called that is called `inside` inside.
    pub(crate) fn name(&self, inside: &str) -> String {
        self.short.get(inside).map_or(inside, String::as_str).to_owned()
    }

    /// The path that is meant by what is typed; if the disk is not there, what it is called inside.
    ///
    /// # Errors
    /// `Usage` if it means two disks.
    pub(crate) fn path(&self, typed: &str) -> Result<String, AdminError> {
        let Some((identity, path)) = self.disk(typed)? else { return Ok(typed.to_owned()) };
        Ok(path.clone().unwrap_or_else(|| unnamed(identity)))
    }

    /// The same for each of these.
    pub(crate) fn paths(&self, typed: &[String]) -> Result<Vec<String>, AdminError> {
        typed.iter().map(|typed| self.path(typed)).collect()
    }

    /// The member of an aggregate that is meant, by its identity: the path of one that failed may
    /// be another's by now. What is no short name stays as it is typed.
    ///
    /// # Errors
    /// `Usage` if it means two disks.
    pub(crate) fn member(&self, typed: &str) -> Result<String, AdminError> {
        let found = self.disk(typed)?;
        Ok(found.map_or_else(|| typed.to_owned(), |(identity, _)| unnamed(identity)))
    }

    fn disk(&self, typed: &str) -> Result<Option<&(DiskUuid, Option<String>)>, AdminError> {
        let Some(found) = self.disks.get(typed) else { return Ok(None) };
        let (identity, path) = found;
        let mut others = self.paths.iter().filter(|other| Some(*other) != path.as_ref());
        if others.any(|other| other == typed) {
            let own = path.clone().unwrap_or_else(|| unnamed(identity));
            return Err(AdminError::usage("cannot tell which disk is", typed)
                .because(format!("it is the short name of {own}, and the path of another disk"))
                .try_next("stroop disk list"));
        }
        Ok(Some(found))
    }

    /// A text in which disks may be named. Only what can be nothing else is replaced: a path, or
    /// an identity in brackets.
    pub(crate) fn text(&self, text: &str) -> String {
        self.words(text, &['/', '('])
    }

    /// A text of which something may be typed, perhaps not here (`chmod 600 ...`): a path in it
    /// stays a path, which every command takes.
    pub(crate) fn typed(&self, text: &str) -> String {
        self.words(text, &['('])
    }

    fn words(&self, text: &str, begins: &[char]) -> String {
        text.split_inclusive(char::is_whitespace).map(|word| self.word(word, begins)).collect()
    }

    fn word(&self, word: &str, begins: &[char]) -> String {
        let start = word.trim_start_matches(['\'', '"', '[']);
        if !start.starts_with(begins) {
            return word.to_owned();
        }
        let mut end = start.trim_end();
        loop {
            if let Some(name) = self.short.get(end) {
                let (before, after) = (word.len() - start.len(), start.get(end.len()..));
                let before = word.get(..before).unwrap_or_default();
                return format!("{before}{name}{}", after.unwrap_or_default());
            }
            let Some(shorter) = end.strip_suffix([',', ';', ':', '.', '\'', '"', ')', ']']) else {
                return word.to_owned();
            };
            end = shorter;
        }
    }

    /// Where a disk stands in the list of disks: by number, then those that have none by path, and
    /// last those that have neither.
    pub(crate) fn order(&self, disk: &DiskInfo) -> (u8, u32, String) {
        let number = self.disks.get(&disk.name).and_then(|_| number_of(&disk.name));
        match number {
            Some(number) => (0, number, String::new()),
            None => (1 + u8::from(disk.path.is_none()), 0, disk.name.clone()),
        }
    }

    fn replace(&self, text: &mut String) {
        *text = self.text(text);
    }
}

/// What names disks as they are called inside, until it is told.
pub(crate) trait Told {
    /// Calls disks as administrators do.
    fn tell(&mut self, shown: &Shown);
}

impl<T: Told> Told for Vec<T> {
    fn tell(&mut self, shown: &Shown) {
        self.iter_mut().for_each(|one| one.tell(shown));
    }
}

impl Told for DiskInfo {
    fn tell(&mut self, shown: &Shown) {
        let name = shown.name(&self.name);
        let inside = std::mem::replace(&mut self.name, name);
        self.path = (!inside.starts_with('(')).then_some(inside);
        self.note.iter_mut().for_each(|note| shown.replace(note));
    }
}

impl Told for JournalCopy {
    fn tell(&mut self, shown: &Shown) {
        self.name = shown.name(&self.name);
        self.cause.iter_mut().for_each(|cause| shown.replace(cause));
    }
}

impl Told for AggregateInfo {
    fn tell(&mut self, shown: &Shown) {
        self.disks.tell(shown);
        self.journal_copies.tell(shown);
    }
}

impl Told for HealthCheck {
    fn tell(&mut self, shown: &Shown) {
        self.object = shown.name(&self.object);
        self.now.iter_mut().for_each(|now| shown.replace(&mut now.what));
        shown.replace(&mut self.message);
        self.action = shown.typed(&self.action);
    }
}

impl Told for StatusReply {
    fn tell(&mut self, shown: &Shown) {
        self.aggregates.tell(shown);
        self.now.iter_mut().for_each(|now| shown.replace(&mut now.what));
    }
}

impl Told for Removal {
    fn tell(&mut self, shown: &Shown) {
        self.object = shown.name(&self.object);
        self.consequences.iter_mut().for_each(|text| shown.replace(text));
    }
}

impl Told for DiskLocated {
    fn tell(&mut self, shown: &Shown) {
        self.disk = shown.name(&self.disk);
    }
}

impl Told for AdminError {
    fn tell(&mut self, shown: &Shown) {
        self.object = shown.name(&self.object);
        self.cause.iter_mut().for_each(|cause| shown.replace(cause));
        self.next.iter_mut().for_each(|next| *next = shown.typed(next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin_api::{Code, DiskState};

    const MISSING: DiskUuid = DiskUuid([2; 16]);

    /// `d1` is there, `d2` is missing, and a disk that nobody has is called `d2`, too.
    fn shown() -> Shown {
        let paths = ["/dev/sda", "/dev/sdb", "d2"].map(str::to_owned).to_vec();
        let mut shown = Shown::default().or_paths(paths);
        shown.add("d1".to_owned(), DiskUuid([1; 16]), Some("/dev/sda".to_owned()));
        shown.add("d2".to_owned(), MISSING, None);
        shown.add("d3".to_owned(), DiskUuid([3; 16]), None);
        shown
    }

    #[test]
    fn what_is_typed_means_one_disk_or_is_refused() {
        let shown = shown();
        for typed in ["/dev/sda", "/dev/sdb", "d9", "(x)"] {
            assert_eq!(shown.path(typed).unwrap(), typed);
            assert_eq!(shown.member(typed).unwrap(), typed);
        }
        assert_eq!(shown.path("d1").unwrap(), "/dev/sda");
        assert_eq!(shown.member("d1").unwrap(), unnamed(&DiskUuid([1; 16])));
        assert_eq!(shown.path("d3").unwrap(), unnamed(&DiskUuid([3; 16])));
        let error = shown.path("d2").unwrap_err();
        assert_eq!((error.code, error.cause.len()), (Code::Usage, 1));
        let cause = error.cause.concat();
        assert!(cause.contains(&unnamed(&MISSING)) && cause.contains("another disk"), "{cause}");
        assert_eq!(shown.member("d2").unwrap_err().code, Code::Usage);
    }

    #[test]
    fn texts_call_disks_by_their_short_names() {
        let shown = shown();
        let missing = unnamed(&MISSING);
        for (text, told) in [
            ("12 % copied from /dev/sda, about 2h".to_owned(), "12 % copied from d1, about 2h"),
            (
                format!("without {missing} (missing); 1 may fail"),
                "without d2 (missing); 1 may fail",
            ),
            (format!("{missing}: gone"), "d2: gone"),
            ("'/dev/sda'. [/dev/sda]".to_owned(), "'d1'. [d1]"),
            // No disk, or one without a name.
            ("/dev/sda1 /dev/sdb x/dev/sda (d1)".to_owned(), "/dev/sda1 /dev/sdb x/dev/sda (d1)"),
        ] {
            assert_eq!(shown.text(&text), told);
        }
        let typed = format!("chmod 600 /dev/sda; stroop disk replace '{missing}' NEW");
        assert_eq!(shown.typed(&typed), "chmod 600 /dev/sda; stroop disk replace 'd2' NEW");
    }

    #[test]
    fn a_disk_has_its_name_and_its_path_apart() {
        let told = |inside: &str| {
            let mut info = DiskInfo::new(inside.to_owned(), DiskState::InUse);
            info.tell(&shown());
            (info.name, info.path)
        };
        let both = |name: &str, path: Option<&str>| (name.to_owned(), path.map(str::to_owned));
        assert_eq!(told("/dev/sda"), both("d1", Some("/dev/sda")));
        assert_eq!(told("/dev/sdb"), both("/dev/sdb", Some("/dev/sdb")));
        assert_eq!(told(&unnamed(&MISSING)), both("d2", None));
        // One that was just let go of is called as before.
        let after = Shown::default().or(shown());
        assert_eq!(after.name("/dev/sda"), "d1");
    }
}
