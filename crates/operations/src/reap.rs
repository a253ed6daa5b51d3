//! Freeing orphans: files without a name, once nobody holds them. Run in the background and after a
//! release; not logged, because an orphan that comes back after a crash is freed again.
//!
//! Invariants: an inode is freed at once when its file is small or empty; the blocks of others are
//! freed some in each consistency point, and the inode when none is left.

use crate::{Executed, Files, Mutation, Outcome, apply, file};
use cowfs::budget::Spender;
use cowfs::pointer::Pointer;
use units::{Fbn, InodeNumber};

/// What became of an orphan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaped {
    /// It is free now, or was before.
    Freed,
    /// Its blocks are being freed: try again after the next consistency point.
    Later,
    /// It is no orphan, or somebody holds it.
    Needed,
}

/// Frees an orphan, or some of its blocks.
#[derive(Clone, Copy, Debug)]
pub struct Reap {
    /// The orphan.
    pub inode: InodeNumber,
}

impl Mutation for Reap {
    type Reply = Reaped;

    fn execute<P: Pointer>(&self, files: &mut Files<'_, '_, P>) -> Outcome<Executed<Reaped>> {
        let transaction = &mut *files.transaction;
        let done = |reply| Ok(Executed { reply, records: Vec::new(), spender: Spender::Free });
        let inode = self.inode;
        let Some(state) = transaction.attributes(inode)? else { return done(Reaped::Freed) };
        let logical = transaction.logical();
        let orphan = state.links == 0 && logical.orphans.has(inode);
        if !orphan || logical.replaying || file::is_held(transaction, inode, &state) {
            return done(Reaped::Needed);
        }
        if state.size <= apply::FREE_AT_ONCE_BYTES_MAX || transaction.is_emptied(inode) {
            transaction.remove_orphan(inode)?;
            apply::free(transaction, inode)?;
            return done(Reaped::Freed);
        }
        let found = transaction.logical().inodes.get(&inode);
        let punched = found.is_some_and(|found| found.holes.covers(Fbn(0), Fbn::END));
        if !punched {
            transaction.reap(inode)?;
        }
        done(Reaped::Later)
    }
}
