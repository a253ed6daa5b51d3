//! Cells of partitioned state (decision 5; Waffinity section 4.2). The only unsafe code of the
//! crate.
//!
//! A [`Partition`] belongs to an affinity. It opens to the [`Access`] of a running message and
//! checks, at each opening, that the running affinity stands in the right relation to the cell's.
//! No lock is taken: the scheduler's exclusion is the lock.
//!
//! Why it is sound. Write `r > c` for "r is a strict ancestor of c", `r >= c` for "r covers c".
//!
//! 1. *The scheduler's promise.* Two runs at one time are in affinities neither of which covers
//!    the other, and between the end of a run and the start of one that it excluded lies a lock
//!    (release, acquire), so the second sees what the first wrote. `loom_tests` check the latter.
//! 2. *Writers exclude writers and readers, between runs.* To write cell c a run needs `r >= c`; to
//!    read it, `s >= c` or `c >= s`. Two affinities that both cover c lie on one path to the
//!    root, so one covers the other. If `r >= c >= s`, r covers s. Either way the two exclude each
//!    other by 1. This holds whatever the distance: a grandparent's reader, a grandchild's
//!    reader, the root.
//! 3. *Within a run* the borrow checker does it: a view to write borrows the run's one `Access`
//!    mutably for as long as it lives, a view to read borrows it shared. An `Access` cannot be
//!    made, copied or kept by a message; its lifetime is invariant and new for each run, so it
//!    cannot be swapped for another run's either. Reads overlap only with reads.
//! 4. *Splitting at c.* After [`Access::split`] one run holds an [`Above`], which reads cells of
//!    affinities a with `a > c`, and an `Access` narrowed to c, which writes cells w with
//!    `c >= w`. No affinity is both, so no cell is opened both ways by this run. The run's
//!    affinity r covers c, and every `a > c` is comparable with r, so 2 protects the reads too.
//! 5. *Nested cells.* A cell may lie in the content of another: a shared view of the outer content
//!    does not reach through the inner `UnsafeCell`, so an inner writer beside an outer reader is
//!    no alias. A mutable view of the outer content does reach it, through
//!    [`Partition::get_mut`] without a check. For that to be an alias somebody must hold a
//!    reference to the inner cell: he got it from a view of the outer content, which 2 and 3 say
//!    is not alive then. So safety does not depend on the data tree mirroring the affinity tree;
//!    usefulness does.
//! 6. *Reversed nesting under a split* (a cell of an ancestor inside the content written through
//!    the narrowed access): a view of it is bounded by the borrow of the content it lies in.
//! 7. *Threads.* Siblings read an ancestor's cell in parallel (`T: Sync`), and runs move between
//!    threads (`T: Send`).
//!
//! A message that panics keeps its affinity for ever: nobody sees what it left half done.

use crate::AffinityId;
use crate::access::{Above, Access};
use std::fmt;

#[cfg(loom)]
use loom::cell::UnsafeCell;
#[cfg(not(loom))]
use std::cell::UnsafeCell;

/// State that belongs to an affinity.
pub struct Partition<T> {
    affinity: AffinityId,
    cell: UnsafeCell<T>,
}

#[expect(unsafe_code, reason = "the one place that turns exclusion of affinities into references")]
// SAFETY: shared use from several threads hands out `&T` to many (needs `T: Sync`) or `&mut T` to
// one at a time (needs `T: Send`), as argued in the module's header.
unsafe impl<T: Send + Sync> Sync for Partition<T> {}

impl<T> Partition<T> {
    /// A cell that belongs to `affinity`.
    pub fn new(affinity: AffinityId, value: T) -> Self {
        Self { affinity, cell: UnsafeCell::new(value) }
    }

    /// The affinity that the cell belongs to.
    #[must_use]
    pub const fn affinity(&self) -> AffinityId {
        self.affinity
    }

    /// The content, to be changed.
    ///
    /// # Panics
    /// Unless the running affinity is the cell's or an ancestor of it.
    #[must_use]
    pub fn write<'a>(&'a self, access: &'a mut Access<'_>) -> &'a mut T {
        let running = access.affinity();
        assert!(running.covers(self.affinity), "{running} may not write {}", self.affinity);
        self.open_mut()
    }

    /// The content, to be read.
    ///
    /// # Panics
    /// Unless the running affinity is the cell's, an ancestor or a descendant of it.
    #[must_use]
    pub fn read<'a>(&'a self, access: &'a Access<'_>) -> &'a T {
        let running = access.affinity();
        assert!(running.excludes(self.affinity), "{running} may not read {}", self.affinity);
        self.open()
    }

    /// The content, to be read while cells further down are written; see [`Access::split`].
    ///
    /// # Panics
    /// Unless the cell's affinity is a strict ancestor of the one that was split at.
    #[must_use]
    pub fn read_above<'a>(&'a self, above: &'a Above<'_>) -> &'a T {
        let at = above.beneath();
        assert!(
            self.affinity.covers(at) && self.affinity != at,
            "{} is not above {at}",
            self.affinity
        );
        self.open()
    }

    /// Reads `parent` and writes the cell that `project` finds in it, both at once. For a stripe's
    /// message that also looks at its volume. For longer paths use [`Access::split`].
    ///
    /// # Panics
    /// Unless the parent's affinity is a strict ancestor of the found cell's, and the running
    /// affinity covers the found cell and excludes the parent.
    #[must_use]
    pub fn write_beneath<'a, P>(
        parent: &'a Partition<P>,
        project: impl FnOnce(&'a P) -> &'a Self,
        access: &'a mut Access<'_>,
    ) -> (&'a P, &'a mut T) {
        let running = access.affinity();
        assert!(running.excludes(parent.affinity), "{running} may not read {}", parent.affinity);
        let content = parent.open();
        let cell = project(content);
        // The narrowed access is the split of point 4; it also proves that the two cells differ.
        assert!(
            parent.affinity.covers(cell.affinity) && parent.affinity != cell.affinity,
            "{} is not above {}",
            parent.affinity,
            cell.affinity
        );
        assert!(running.covers(cell.affinity), "{running} may not write {}", cell.affinity);
        (content, cell.open_mut())
    }

    /// The content, by way of the exclusive borrow of the cell itself: for whoever writes the
    /// state that the cell is a part of.
    pub fn get_mut(&mut self) -> &mut T {
        self.open_mut()
    }

    /// The content, without the cell.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.cell.into_inner()
    }

    #[expect(unsafe_code, reason = "see the module's header")]
    #[inline]
    fn open(&self) -> &T {
        #[cfg(loom)]
        let pointer = self.cell.with(|pointer| pointer);
        #[cfg(not(loom))]
        let pointer = self.cell.get().cast_const();
        // SAFETY: the caller checked that the cell may be read (points 2 to 5) and bounds the
        // reference by a borrow of the run's access.
        unsafe { &*pointer }
    }

    #[expect(unsafe_code, reason = "see the module's header")]
    #[expect(clippy::mut_from_ref, reason = "that is what the exclusion of affinities is for")]
    #[inline]
    fn open_mut(&self) -> &mut T {
        #[cfg(loom)]
        let pointer = self.cell.with_mut(|pointer| pointer);
        #[cfg(not(loom))]
        let pointer = self.cell.get();
        // SAFETY: the caller checked that the cell may be written (points 2 to 5) and bounds the
        // reference by a mutable borrow of the run's access, or borrows the cell mutably.
        unsafe { &mut *pointer }
    }
}

impl<T> fmt::Debug for Partition<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Partition({})", self.affinity)
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
