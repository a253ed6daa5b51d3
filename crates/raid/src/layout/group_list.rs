//! Which groups an aggregate has, by the labels of its disks.
//!
//! Of a group's labels the one that was changed last counts. The others are old; that of a disk
//! which was away and is back is one of them. Of the labels that count, one says which groups there
//! are: the label that knows of most removed groups. A removed group never comes back, so this
//! label was written after the others. If several know of the same removed groups, it is the label
//! of the first group, because that is the label by which groups join, all of them at once.
//!
//! Invariants: a later start that finds the same groups believes the same labels. Each start has
//! the labels of all groups say what it found before anything else becomes durable.

use ondisk::label::DiskLabel;
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub struct GroupList<'a> {
    latest: BTreeMap<u32, &'a DiskLabel>,
    teller: &'a DiskLabel,
}

impl<'a> GroupList<'a> {
    /// By the labels of all disks; `None` if none of them is of a member.
    pub fn of(labels: impl IntoIterator<Item = &'a DiskLabel>) -> Option<Self> {
        let mut latest: BTreeMap<u32, &DiskLabel> = BTreeMap::new();
        // What a spare says of the groups may be old.
        for label in labels.into_iter().filter(|label| !label.is_spare()) {
            let known = latest.entry(label.group_index.get()).or_insert(label);
            if known.sequence.get() < label.sequence.get() {
                *known = label;
            }
        }
        // Of equal ones the last is found.
        let teller = *latest.values().rev().max_by_key(|label| label.removed_blocks.get())?;
        Some(Self { latest, teller })
    }

    /// How many there are, removed ones among them.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.teller.groups_count.get()
    }

    /// Whether a group was removed.
    #[must_use]
    pub fn is_removed(&self, group: u32) -> bool {
        self.teller.is_removed(group)
    }

    /// How many blocks the removed ones had.
    #[must_use]
    pub const fn removed_blocks(&self) -> u64 {
        self.teller.removed_blocks.get()
    }

    /// The label of a group that counts, if a disk of it was found.
    #[must_use]
    pub fn latest(&self, group: u32) -> Option<&'a DiskLabel> {
        self.latest.get(&group).copied()
    }

    /// The groups that there are, and their labels that count, as far as they were found.
    pub fn groups(&self) -> impl Iterator<Item = (u32, Option<&'a DiskLabel>)> {
        let left = (0..self.count()).filter(|group| !self.is_removed(*group));
        left.map(|group| (group, self.latest(group)))
    }

    /// Whether a label tells the same of the groups that there are.
    #[must_use]
    pub fn agrees(&self, label: &DiskLabel) -> bool {
        label.groups_count == self.teller.groups_count && label.removed == self.teller.removed
    }
}
