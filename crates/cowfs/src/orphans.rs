//! The orphan list: files without a name, in the order in which their inodes' numbers lie in the
//! metafile of that name.
//!
//! A removal puts the last entry in the place of the one that goes, so that an operation changes
//! two places of the metafile at most, however long the list is.
//!
//! Invariants: an inode is in the list once; `places` has each inode's place. [`OrphanEdits`] are a
//! transaction's changes: nothing of the list changes before they are applied.

use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Deref;
use units::InodeNumber;

/// See the module.
#[derive(Clone, Default, Debug)]
pub struct OrphanList {
    list: Vec<InodeNumber>,
    places: FxHashMap<InodeNumber, usize>,
}

impl From<Vec<InodeNumber>> for OrphanList {
    fn from(list: Vec<InodeNumber>) -> Self {
        let places = list.iter().enumerate().map(|(at, inode)| (*inode, at)).collect();
        Self { list, places }
    }
}

impl Deref for OrphanList {
    type Target = [InodeNumber];

    fn deref(&self) -> &[InodeNumber] {
        &self.list
    }
}

impl OrphanList {
    /// Whether `inode` is in the list.
    #[must_use]
    pub fn has(&self, inode: InodeNumber) -> bool {
        self.places.contains_key(&inode)
    }

    /// Changes of none yet.
    #[must_use]
    pub fn edits(&self) -> OrphanEdits {
        OrphanEdits { places: BTreeMap::new(), count: self.list.len() }
    }

    /// Makes changes.
    pub fn apply(&mut self, edits: OrphanEdits) {
        for at in edits.count..self.list.len() {
            self.forget(at);
        }
        self.list.truncate(edits.count);
        for (at, inode) in edits.places.into_iter().take_while(|(at, _)| *at < edits.count) {
            if at < self.list.len() {
                self.forget(at);
                self.list[at] = inode;
            } else {
                self.list.push(inode);
            }
            self.places.insert(inode, at);
        }
    }

    /// Forgets the place `at`, unless what was there has another by now.
    fn forget(&mut self, at: usize) {
        let inode = self.list[at];
        if self.places.get(&inode) == Some(&at) {
            self.places.remove(&inode);
        }
    }
}

/// Changes of an [`OrphanList`].
#[derive(Clone, Debug)]
pub struct OrphanEdits {
    /// What is at the places that changed. Those from `count` on are of no account.
    places: BTreeMap<usize, InodeNumber>,
    /// Entries of the list.
    count: usize,
}

impl OrphanEdits {
    /// Entries of the changed list.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether the changed list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds `inode`; its place.
    pub fn push(&mut self, inode: InodeNumber) -> usize {
        self.places.insert(self.count, inode);
        self.count += 1;
        self.count - 1
    }

    /// Takes `inode` out: the place where it was, and what is there now, or that it was the last.
    /// `None` if it is not in the list.
    pub fn remove(
        &mut self,
        list: &OrphanList,
        inode: InodeNumber,
    ) -> Option<(usize, Option<InodeNumber>)> {
        let at = self.place(list, inode)?;
        let last = self.at(list, self.count - 1);
        self.count -= 1;
        if at == self.count {
            return Some((at, None));
        }
        self.places.insert(at, last);
        Some((at, Some(last)))
    }

    fn at(&self, list: &OrphanList, at: usize) -> InodeNumber {
        self.places.get(&at).copied().unwrap_or_else(|| list.list[at])
    }

    fn place(&self, list: &OrphanList, inode: InodeNumber) -> Option<usize> {
        let changed = self.places.range(..self.count).find(|(_, found)| **found == inode);
        let unchanged = || {
            let at = *list.places.get(&inode)?;
            (at < self.count && !self.places.contains_key(&at)).then_some(at)
        };
        changed.map(|(at, _)| *at).or_else(unchanged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn edits_equal_a_vector(
            steps in prop::collection::vec((any::<bool>(), 0_u64..12, any::<bool>()), 0..200),
        ) {
            let (mut list, mut naive) = (OrphanList::default(), Vec::new());
            let mut edits = list.edits();
            for (add, number, apply) in steps {
                let inode = InodeNumber(number);
                let at = naive.iter().position(|found| *found == inode);
                if add && at.is_none() {
                    prop_assert_eq!(edits.push(inode), naive.len());
                    naive.push(inode);
                } else if !add {
                    let removed = edits.remove(&list, inode);
                    prop_assert_eq!(removed.map(|found| found.0), at);
                    if let Some(at) = at {
                        naive.swap_remove(at);
                        prop_assert_eq!(removed.and_then(|found| found.1), naive.get(at).copied());
                    }
                }
                if apply {
                    list.apply(std::mem::replace(&mut edits, OrphanList::default().edits()));
                    edits = list.edits();
                    prop_assert_eq!(&list[..], &naive[..]);
                    for number in 0..12 {
                        let inode = InodeNumber(number);
                        prop_assert_eq!(list.has(inode), naive.contains(&inode));
                    }
                }
            }
        }
    }
}
