//! How much is kept for whom: locks, waits and share reservations, and the memory that they take.
//!
//! A *party* is what has a share of the limits: a mount, or all clients that a front end counts as
//! one, because nobody can tell them apart but by what they call themselves.
//!
//! Invariants: what is noted is what the files have; whoever takes something out of a file or puts
//! it there notes it here. A party that has nothing has no entry.
//!
//! Fails: [`LockError::TooMany`]; giving back never fails.

use crate::asking::Limits;
use crate::lock::{LockError, Owner};
use std::collections::BTreeMap;

/// What something takes beside its owner's name.
pub(crate) const ENTRY_BYTES: usize = 256;

/// What can be kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sort {
    Lock,
    Wait,
    Share,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) locks: usize,
    pub(crate) waits: usize,
    pub(crate) shares: usize,
    bytes: usize,
}

impl Tally {
    const fn place(&mut self, sort: Sort) -> &mut usize {
        match sort {
            Sort::Lock => &mut self.locks,
            Sort::Wait => &mut self.waits,
            Sort::Share => &mut self.shares,
        }
    }

    fn check(&self, limits: &Limits, of: Of) -> Result<(), LockError> {
        let (part, [locks, waits, shares, bytes]) = match of {
            Of::All => (1, ["locks", "waits for locks", "reservations", "memory for locks"]),
            Of::Party => {
                let whats = [
                    "locks of the client",
                    "waits of the client",
                    "reservations of the client",
                    "memory for locks of the client",
                ];
                (limits.party_part.max(1), whats)
            }
        };
        let rows = [
            (locks, self.locks, limits.locks),
            (waits, self.waits, limits.waits),
            (shares, self.shares, limits.shares),
            (bytes, self.bytes, limits.bytes),
        ];
        let above = rows.into_iter().find(|(_, count, limit)| *count > limit.div_ceil(part));
        above.map_or(Ok(()), |(what, _, limit)| {
            Err(LockError::TooMany { what, limit: limit.div_ceil(part) })
        })
    }
}

#[derive(Clone, Copy)]
enum Of {
    All,
    Party,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Usage {
    pub(crate) all: Tally,
    parties: BTreeMap<u64, Tally>,
}

fn bytes_of(owner: &Owner) -> usize {
    ENTRY_BYTES + owner.name.len()
}

impl Usage {
    /// One more of an owner's.
    pub(crate) fn more(&mut self, sort: Sort, owner: &Owner) {
        for tally in [&mut self.all, self.parties.entry(owner.client.party).or_default()] {
            *tally.place(sort) += 1;
            tally.bytes += bytes_of(owner);
        }
    }

    /// One less.
    pub(crate) fn less(&mut self, sort: Sort, owner: &Owner) {
        let party = owner.client.party;
        let Some(of_party) = self.parties.get_mut(&party) else {
            unreachable!("what goes was noted when it came")
        };
        for tally in [&mut self.all, &mut *of_party] {
            *tally.place(sort) -= 1;
            tally.bytes -= bytes_of(owner);
        }
        if *of_party == Tally::default() {
            self.parties.remove(&party);
        }
    }

    /// Whether so many more of an owner's may be kept.
    pub(crate) fn check(
        &self,
        limits: &Limits,
        owner: &Owner,
        (sort, count): (Sort, usize),
    ) -> Result<(), LockError> {
        let of_party = self.parties.get(&owner.client.party).copied().unwrap_or_default();
        for (mut tally, of) in [(self.all, Of::All), (of_party, Of::Party)] {
            *tally.place(sort) += count;
            tally.bytes += count * bytes_of(owner);
            tally.check(limits, of)?;
        }
        Ok(())
    }

    /// Parties that have anything.
    #[cfg(test)]
    pub(crate) fn parties_count(&self) -> usize {
        self.parties.len()
    }
}
