//! Holds: front ends keep files alive that they have open, though the last name is removed.
//!
//! Holds belong to files, not to inodes in memory: a file is an inode with its generation, and the
//! generations of a volume go on over a restore. So a restore of a snapshot changes no hold. An
//! open file that the restored image has stays held in it, named or not; the hold of a file that
//! it does not have holds nothing and waits for its release.
//!
//! Invariants: memory only. After a start nobody holds anything. A release without a hold changes
//! nothing: what clients do must not end the process.

use crate::inode::Inode;
use platform::mutation::{self, Rule};
use rustc_hash::FxHashMap;
use units::{Generation, InodeNumber};

/// How often each file of a volume is held.
#[derive(Default, Debug)]
pub struct Holds(FxHashMap<(InodeNumber, Generation), u32>);

impl Holds {
    /// Holds a file once more.
    pub fn add(&mut self, inode: InodeNumber, generation: Generation) {
        *self.0.entry(file(inode, generation)).or_default() += 1;
    }

    /// Ends one hold; whether there was one.
    pub fn remove(&mut self, inode: InodeNumber, generation: Generation) -> bool {
        let Some(count) = self.0.get_mut(&file(inode, generation)) else { return false };
        *count -= 1;
        if *count == 0 {
            self.0.remove(&file(inode, generation));
        }
        true
    }

    /// Whether somebody holds the file.
    #[must_use]
    pub fn has(&self, inode: InodeNumber, generation: Generation) -> bool {
        self.0.contains_key(&file(inode, generation))
    }

    /// Whether somebody holds the file that an inode in memory has.
    #[must_use]
    pub fn has_file_of<P>(&self, number: InodeNumber, inode: &Inode<P>) -> bool {
        !self.0.is_empty() && self.has(number, inode.shared.lock().attributes.generation)
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
}
