//! A whole directory, page after page, with what the trait promises of pages checked.
//!
//! Invariants checked: cookies ascend strictly within and across pages; a page has no more entries
//! than asked for, and none only at the end; `.` and `..` come first and, like all names, once;
//! an entry's handle is the entry's inode.

use crate::answer::{Answer, NoAnswer};
use crate::executor::{Executor, broken};
use crate::observation::{EntryView, Observation};
use file_service::{Caller, DirectoryEntry, DirectoryPage, FileHandle, calls};
use std::sync::Arc;

/// Most pages: more than any directory of a check has entries.
const PAGES_MAX: u32 = 100_000;

/// A listing under way.
pub struct Listing {
    caller: Caller,
    directory: FileHandle,
    page_entries: u32,
    with_attributes: bool,
    cookie: u64,
    pages: u32,
    answer: Option<Answer<DirectoryPage>>,
    entries: Vec<DirectoryEntry>,
}

impl Listing {
    pub fn new(
        caller: Caller,
        directory: FileHandle,
        page_entries: u32,
        with_attributes: bool,
    ) -> Self {
        Self {
            caller,
            directory,
            page_entries: page_entries.max(1),
            with_attributes,
            cookie: 0,
            pages: 0,
            answer: None,
            entries: Vec::new(),
        }
    }

    /// Goes on as far as answers are there.
    pub fn poll(&mut self, executor: &mut Executor) -> Option<Observation> {
        loop {
            let Some(answer) = self.answer.take() else {
                self.ask(executor);
                continue;
            };
            match answer.take() {
                Ok(Ok(page)) => match self.add(page) {
                    Ok(true) => return Some(self.observe(executor)),
                    Ok(false) => {}
                    Err(what) => return Some(broken(what)),
                },
                Ok(Err(error)) => return Some(Observation::Failed(error)),
                Err(NoAnswer::NotYet) => {
                    self.answer = Some(answer);
                    return None;
                }
                Err(NoAnswer::Never) => return Some(broken("the callback was dropped".to_owned())),
            }
        }
    }

    fn ask(&mut self, executor: &Executor) {
        let service = Arc::clone(&executor.service);
        self.pages += 1;
        self.answer = Some(Answer::to(|done| {
            service.read_directory(
                &self.caller,
                calls::ReadDirectory {
                    directory: self.directory,
                    cookie: self.cookie,
                    entries_max: self.page_entries,
                    with_attributes: self.with_attributes,
                },
                done,
            );
        }));
    }

    /// Takes a page; whether it is the last.
    fn add(&mut self, page: DirectoryPage) -> Result<bool, String> {
        if page.entries.len() > self.page_entries as usize {
            return Err(format!("{} entries in a page", page.entries.len()));
        }
        if page.entries.is_empty() && !page.end {
            return Err("an empty page before the end".to_owned());
        }
        if self.pages > PAGES_MAX {
            return Err("the listing never ends".to_owned());
        }
        for entry in page.entries {
            if entry.cookie <= self.cookie {
                return Err(format!("cookie {:#x} after {:#x}", entry.cookie, self.cookie));
            }
            self.cookie = entry.cookie;
            if entry.entry.as_ref().is_some_and(|found| found.handle.inode != entry.inode) {
                return Err(format!("the entry's handle is another file's: {entry:?}"));
            }
            if entry.entry.is_some() != self.with_attributes {
                return Err(format!("attributes as not asked for: {entry:?}"));
            }
            self.entries.push(entry);
        }
        Ok(page.end)
    }

    fn observe(&mut self, executor: &mut Executor) -> Observation {
        let dots = self.entries.iter().take(2).map(|entry| entry.name.as_slice());
        let is_removed = self.entries.is_empty();
        if !is_removed && !dots.eq([&b"."[..], b".."]) {
            return broken("'.' and '..' are not first".to_owned());
        }
        // Files are numbered in the order of names: that of cookies is the service's own.
        self.entries.sort_by(|left, right| left.name.cmp(&right.name));
        if self.entries.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return broken("a name comes twice".to_owned());
        }
        let mut views = Vec::with_capacity(self.entries.len());
        for DirectoryEntry { name, kind, entry, .. } in self.entries.drain(..) {
            let seen = entry.map(|found| executor.seen(found.handle, &found.attributes));
            match seen.transpose() {
                Ok(file) => views.push(EntryView { name, kind, file }),
                Err(what) => return broken(what),
            }
        }
        Observation::Entries(views)
    }
}
