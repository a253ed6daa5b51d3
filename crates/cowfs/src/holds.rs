//! Holds: front ends keep files alive that they have open, though the last name is removed.
//!
//! Holds belong to files, not to inodes in memory: a file is an inode with its generation, and the
//! generations of a volume go on over a restore. So a restore of a snapshot changes no hold. An
//! open file that the restored image has stays held in it, named or not; the hold of a file that
//! it does not have holds nothing and waits for its release.
//!
//! A file that was made without a name (`O_TMPFILE`) is held from its making on, and may be given a
//! name as long as it is held and has had none. Other files without a name have lost their last.
//!
//! Invariants: memory only. After a start nobody holds anything. A release without a hold changes
//! nothing: what clients do must not end the process.

use crate::inode::Inode;
use platform::mutation::{self, Rule};
use rustc_hash::{FxHashMap, FxHashSet};
use units::{Generation, InodeNumber};

/// How often each file of a volume is held.
#[derive(Default, Debug)]
pub struct Holds {
    counts: FxHashMap<(InodeNumber, Generation), u32>,
    /// Held files that have had no name yet.
    unnamed: FxHashSet<(InodeNumber, Generation)>,
}

impl Holds {
    /// Holds a file once more.
    pub fn add(&mut self, inode: InodeNumber, generation: Generation) {
        *self.counts.entry(file(inode, generation)).or_default() += 1;
    }

    /// Ends one hold; whether there was one.
    pub fn remove(&mut self, inode: InodeNumber, generation: Generation) -> bool {
        let file = file(inode, generation);
        let Some(count) = self.counts.get_mut(&file) else { return false };
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&file);
            self.unnamed.remove(&file);
        }
        true
    }

    /// Holds a file that was made without a name.
    pub fn add_unnamed(&mut self, inode: InodeNumber, generation: Generation) {
        self.add(inode, generation);
        self.unnamed.insert(file(inode, generation));
    }

    /// The file got a name.
    pub fn named(&mut self, inode: InodeNumber, generation: Generation) {
        self.unnamed.remove(&file(inode, generation));
    }

    /// Whether the file was made without a name and has had none since.
    #[must_use]
    pub fn is_unnamed(&self, inode: InodeNumber, generation: Generation) -> bool {
        self.unnamed.contains(&file(inode, generation))
    }

    /// Whether somebody holds the file.
    #[must_use]
    pub fn has(&self, inode: InodeNumber, generation: Generation) -> bool {
        self.counts.contains_key(&file(inode, generation))
    }

    /// Whether somebody holds the file that an inode in memory has.
    #[must_use]
    pub fn has_file_of<P>(&self, number: InodeNumber, inode: &Inode<P>) -> bool {
        !self.counts.is_empty() && self.has(number, inode.shared.lock().attributes.generation)
    }
}

fn file(inode: InodeNumber, generation: Generation) -> (InodeNumber, Generation) {
    let is_broken = mutation::broken(Rule::HoldsByInode);
    (inode, if is_broken { Generation(0) } else { generation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_of_a_file_and_not_of_its_inode() {
        let (inode, old, new) = (InodeNumber(70), Generation(5), Generation(9));
        let mut holds = Holds::default();
        assert!(!holds.remove(inode, old), "nobody held it");
        holds.add(inode, old);
        holds.add(inode, new);
        holds.add(inode, new);
        assert!(holds.remove(inode, old));
        assert!(!holds.remove(inode, old), "the others are not its own");
        assert!(holds.remove(inode, new));
        assert!(holds.has(inode, new) && !holds.has(inode, old));
        assert!(holds.remove(inode, new));
        assert!(!holds.has(inode, new));
    }

    #[test]
    fn a_file_is_unnamed_until_it_gets_a_name_or_is_let_go() {
        let (inode, old, new) = (InodeNumber(70), Generation(5), Generation(9));
        let mut holds = Holds::default();
        holds.add_unnamed(inode, old);
        holds.add(inode, old);
        assert!(holds.has(inode, old) && holds.is_unnamed(inode, old));
        assert!(!holds.is_unnamed(inode, new));
        holds.remove(inode, old);
        assert!(holds.is_unnamed(inode, old), "one holds it still");
        holds.remove(inode, old);
        assert!(!holds.is_unnamed(inode, old));
        holds.add_unnamed(inode, new);
        holds.named(inode, new);
        assert!(holds.has(inode, new) && !holds.is_unnamed(inode, new));
    }
}
