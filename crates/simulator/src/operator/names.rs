//! The short names of disks that an operator has seen: they stay what they were, through every end
//! of the node, and are typed.
//!
//! Invariants: no two disks ever have one name; a disk that stays the aggregate's keeps its name.
//! The disks of the world have the same paths at every start, so a path tells which disk it is.
//!
//! Fails: with what an answer shows against that.

use super::disks::{DiskBook, path_of};
use super::views::Checked;
use admin_api::{DiskInfo, Reply, Request};
use std::collections::BTreeMap;

/// Of so many calls one has short names where the others have paths.
pub(super) const TYPED_SHORT: u64 = 3;

/// See the module.
#[derive(Default)]
pub(super) struct NameBook {
    /// The disk that has, or had, a name.
    disks: BTreeMap<String, String>,
    /// The names of the disks that are the aggregate's since they were seen so.
    names: BTreeMap<String, String>,
}

impl NameBook {
    /// Takes in the disks of an answer; `book` says whose the disks were before it.
    pub(super) fn take_in(&mut self, shown: &[DiskInfo], book: &DiskBook) -> Checked {
        self.names.retain(|path, _| book.is_owned(path));
        for disk in shown.iter().filter(|disk| disk.name != *path_of(disk)) {
            let (name, path) = (&disk.name, path_of(disk));
            let owner = self.disks.entry(name.clone()).or_insert_with(|| path.clone());
            if owner != path {
                return Err(format!("{name} was the name of {owner}: {disk:?}"));
            }
            if !book.is_owned(path) {
                continue;
            }
            let before = self.names.entry(path.clone()).or_insert_with(|| name.clone());
            if before != name {
                return Err(format!("{path} was called {before}: {disk:?}"));
            }
        }
        Ok(())
    }

    /// A call as it is typed with short names, as far as they are known.
    pub(super) fn short(&self, request: &Request) -> Request {
        let mut request = request.clone();
        let replace = |disk: &mut String| {
            if let Some(name) = self.names.get(disk) {
                name.clone_into(disk);
            }
        };
        match &mut request {
            Request::DiskFail(wanted) => replace(&mut wanted.disk),
            Request::DiskClear(wanted) => replace(&mut wanted.disk),
            Request::SpareRemove(wanted) => replace(&mut wanted.disk),
            Request::DiskReplace(wanted) => {
                replace(&mut wanted.disk);
                wanted.replacement.iter_mut().for_each(replace);
            }
            _ => {}
        }
        request
    }
}

/// The disks that an answer shows.
pub(super) fn disks_of(reply: &Reply) -> Vec<DiskInfo> {
    let all = |list: &[admin_api::AggregateInfo]| {
        list.iter().flat_map(|info| info.disks.clone()).collect()
    };
    match reply {
        Reply::DiskList(list) | Reply::SpareAdd(list) => list.clone(),
        Reply::DiskReplace(disk) => vec![disk.clone()],
        Reply::AggregateList(list) => all(list),
        Reply::AggregateShow(info) | Reply::AggregateCreate(info) | Reply::AggregateAdd(info) => {
            all(std::slice::from_ref(info))
        }
        Reply::Status(status) => all(&status.aggregates),
        _ => Vec::new(),
    }
}
