//! The right to open cells, held by a running message (decision 5).
//!
//! Invariants: an [`Access`] is made by the scheduler only, once for each run, for an affinity
//! that is held until the run ends; it is lent, not given, so no view of a cell outlives the run.
//! Every view borrows it: views to write exclude every other view that the run could open, except
//! those that [`Access::split`] shows to lie apart.

use crate::AffinityId;
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

/// Ties an access to its run (invariant in `'run`) and to its thread (neither `Send` nor `Sync`).
type Tie<'run> = PhantomData<(Cell<&'run ()>, *mut ())>;

/// What the running message may open: the cells of `affinity` and beneath to write, those above
/// also to read.
pub struct Access<'run> {
    affinity: AffinityId,
    tie: Tie<'run>,
}

impl Access<'_> {
    /// The caller (`scheduler`) holds `affinity` exclusively as long as the access lives, and makes
    /// no second one for the same run.
    pub(crate) const fn new(affinity: AffinityId) -> Self {
        Self { affinity, tie: PhantomData }
    }

    /// The affinity that runs, or that [`Self::split`] narrowed it to.
    #[must_use]
    pub const fn affinity(&self) -> AffinityId {
        self.affinity
    }

    /// Splits into the right to read what lies strictly above `at`, and the right to write at
    /// `at` and beneath. For a message that follows a path from the volume down to a stripe and
    /// changes only the stripe; it works the same when the message runs in a wider affinity.
    ///
    /// # Panics
    /// If the running affinity does not cover `at`.
    pub fn split(&mut self, at: AffinityId) -> (Above<'_>, Access<'_>) {
        assert!(self.affinity.covers(at), "{} does not cover {at}", self.affinity);
        (Above { at, tie: PhantomData }, Access { affinity: at, tie: PhantomData })
    }
}

impl fmt::Debug for Access<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Access({})", self.affinity)
    }
}

/// The right to read cells of the strict ancestors of one affinity while that affinity's own are
/// written; see [`Access::split`].
#[derive(Clone, Copy)]
pub struct Above<'run> {
    at: AffinityId,
    tie: Tie<'run>,
}

impl Above<'_> {
    /// The affinity whose ancestors can be read.
    #[must_use]
    pub const fn beneath(&self) -> AffinityId {
        self.at
    }
}

impl fmt::Debug for Above<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Above({})", self.at)
    }
}
