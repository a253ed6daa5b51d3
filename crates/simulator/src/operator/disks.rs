//! Whose the disks are, as far as an operator can say: what a call gave to the aggregate belongs to
//! it, what was failed, replaced or lost may belong to it until all work with disks is over.
//!
//! Invariants: a disk that belongs to the aggregate is shown as its disk, once; a disk that does
//! not is never shown as its disk. Doubts end when nothing is rebuilt, missing or zeroed any more.

use super::views::{Checked, same};
use crate::machine::AGGREGATE;
use admin_api::{Code, DiskInfo, DiskState};
use std::collections::BTreeSet;

/// The path of a disk, or its name if it is missing.
pub(super) fn path_of(disk: &DiskInfo) -> &String {
    disk.path.as_ref().unwrap_or(&disk.name)
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct DiskBook {
    all: BTreeSet<String>,
    owned: BTreeSet<String>,
    /// These may be the aggregate's.
    doubtful: BTreeSet<String>,
}

impl DiskBook {
    /// Disks of a node without an aggregate.
    pub(super) fn new(names: impl Iterator<Item = String>) -> Self {
        Self { all: names.collect(), ..Self::default() }
    }

    /// The disks that belong to the aggregate, or may.
    pub(super) fn known(&self) -> Vec<&str> {
        self.owned.iter().chain(&self.doubtful).map(String::as_str).collect()
    }

    /// The disks that belong to nobody.
    pub(super) fn free(&self) -> Vec<&str> {
        let is_free = |name: &&String| !self.is_known(name);
        self.all.iter().filter(is_free).map(String::as_str).collect()
    }

    /// Whether a disk belongs to the aggregate, or may.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.owned.contains(name) || self.doubtful.contains(name)
    }

    /// Whether a disk is known to belong to the aggregate.
    pub(super) fn is_owned(&self, name: &str) -> bool {
        self.owned.contains(name)
    }

    /// Whether it is clear of each disk whose it is.
    pub(super) fn is_clear(&self) -> bool {
        self.doubtful.is_empty()
    }

    /// These are given to the aggregate, in this order.
    pub(super) fn take(&mut self, disks: &[String]) -> Result<(), Code> {
        for (at, disk) in disks.iter().enumerate() {
            if !self.all.contains(disk) {
                return Err(Code::NotFound);
            }
            if self.owned.contains(disk) || disks.iter().take(at).any(|other| other == disk) {
                return Err(Code::Conflict);
            }
        }
        for disk in disks {
            self.doubtful.remove(disk);
            self.owned.insert(disk.clone());
        }
        Ok(())
    }

    /// A disk goes, or may go, from the aggregate.
    pub(super) fn doubt(&mut self, disk: &str) {
        self.owned.remove(disk);
        self.doubtful.insert(disk.to_owned());
    }

    /// Each disk may go.
    pub(super) fn doubt_all(&mut self) {
        self.doubtful.append(&mut self.owned);
    }

    /// Work with disks was cut off: of no disk is it clear whose it is, unless there was no work.
    pub(super) fn doubt_unless_clear(&mut self) {
        if !self.is_clear() {
            self.doubt_all();
        }
    }

    /// A disk belongs to nobody any more.
    pub(super) fn release(&mut self, disk: &str) {
        self.owned.remove(disk);
        self.doubtful.remove(disk);
    }

    /// The aggregate is no more.
    pub(super) fn release_all(&mut self) {
        self.owned.clear();
        self.doubtful.clear();
    }

    /// A disk of the aggregate, or what may be one, is named.
    pub(super) fn check_known(&self, disk: &str) -> Result<(), Code> {
        if self.is_known(disk) { Ok(()) } else { Err(Code::NotFound) }
    }

    /// A disk that belongs to nobody is named.
    pub(super) fn check_free(&self, disk: &str) -> Result<(), Code> {
        match self.all.contains(disk) {
            false => Err(Code::NotFound),
            true if self.owned.contains(disk) => Err(Code::Conflict),
            true => Ok(()),
        }
    }

    /// The disks that the aggregate shows.
    pub(super) fn check_shown(&self, shown: &[DiskInfo]) -> Checked {
        let mut seen = BTreeSet::new();
        for disk in shown {
            let name = path_of(disk);
            if !seen.insert(name.clone()) {
                return Err(format!("disk {name} is shown twice: {shown:?}"));
            }
            if self.all.contains(name) && !self.is_known(name) {
                return Err(format!("disk {name} is shown, and does not belong to it: {disk:?}"));
            }
        }
        match self.owned.iter().find(|name| !seen.contains(*name)) {
            Some(name) => Err(format!("disk {name} belongs to it, and is not shown: {shown:?}")),
            None => Ok(()),
        }
    }

    /// The list of all disks.
    pub(super) fn check_list(&self, list: &[DiskInfo]) -> Checked {
        let is_here = |disk: &&DiskInfo| self.all.contains(path_of(disk));
        // They are in the order of their short names, and then of the others' paths.
        let mut names: Vec<&String> = list.iter().filter(is_here).map(path_of).collect();
        names.sort_unstable();
        same("disks", &self.all.iter().collect(), &names)?;
        for disk in list.iter().filter(is_here) {
            let is_its = matches!(
                disk.state,
                DiskState::InUse
                    | DiskState::Rebuilding
                    | DiskState::Failed
                    | DiskState::Missing
                    // It has just joined.
                    | DiskState::Zeroing
            );
            let is_its = is_its && disk.aggregate.as_deref() == Some(AGGREGATE);
            let is_wrong = match self.doubtful.contains(path_of(disk)) {
                true => false,
                false => is_its != self.owned.contains(path_of(disk)),
            };
            if is_wrong {
                return Err(format!("disk {} belongs to another: {disk:?}", disk.name));
            }
        }
        Ok(())
    }

    /// Doubts are over, if nothing is under way with the disks that the aggregate shows.
    pub(super) fn settle(&mut self, shown: &[DiskInfo]) {
        if shown.iter().any(|disk| disk.state != DiskState::InUse) {
            return;
        }
        for name in std::mem::take(&mut self.doubtful) {
            if shown.iter().any(|disk| *path_of(disk) == name) {
                self.owned.insert(name);
            }
        }
    }
}
