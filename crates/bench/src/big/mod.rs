//! The big bench: what must not slow down with size.
//!
//! Each load makes something large and prints, besides rates, what tells whether a cost grows with
//! the size of what is at rest: the last tenth beside the first, consistency points with much at
//! rest beside those with little, clients' latency while space comes back beside that without,
//! block reads with cold caches.
//!
//! Invariants: figures, never tests; a load that fails ends the bench with its error.

mod clones;
mod directory;
mod inodes;
mod plan;
mod reclaim;
mod restores;
mod rig;
mod snapshots;
mod sparse;
mod sparse_volume;

use crate::node::BenchError;
pub use plan::BigBench;

/// A figure of the big bench.
#[derive(Clone, PartialEq, Debug)]
pub struct BigFigure {
    /// What was done.
    pub load: String,
    /// What came out, as text: some are rates, some times, some counts.
    pub outcome: String,
}

/// The loads of the big bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BigLoad {
    /// Very many files in one directory.
    Directory,
    /// Very many inodes in many directories.
    Inodes,
    /// A sparse file of 4 TiB, written at random.
    Sparse,
    /// A large file removed, truncated, held by a snapshot or a volume that goes.
    Reclaim,
    /// Very many snapshots.
    Snapshots,
    /// Clones of volumes with very much in them and very many snapshots.
    Clones,
    /// Restores of such volumes.
    Restores,
}

impl BigLoad {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Directory,
        Self::Inodes,
        Self::Sparse,
        Self::Reclaim,
        Self::Snapshots,
        Self::Clones,
        Self::Restores,
    ];

    /// What it is called on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Inodes => "inodes",
            Self::Sparse => "sparse",
            Self::Reclaim => "reclaim",
            Self::Snapshots => "snapshots",
            Self::Clones => "clones",
            Self::Restores => "restores",
        }
    }
}

/// Runs one load; `report` is told each figure as it comes.
///
/// # Errors
/// [`BenchError`].
pub fn big(
    bench: &BigBench,
    load: BigLoad,
    report: &mut dyn FnMut(BigFigure),
) -> Result<(), BenchError> {
    let mut report = |load: &str, outcome: String| {
        report(BigFigure { load: load.to_owned(), outcome });
    };
    match load {
        BigLoad::Directory => directory::run(bench, &mut report),
        BigLoad::Inodes => inodes::run(bench, &mut report),
        BigLoad::Sparse => sparse::run(bench, &mut report),
        BigLoad::Reclaim => reclaim::run(bench, &mut report),
        BigLoad::Snapshots => snapshots::run(bench, &mut report),
        BigLoad::Clones => clones::run(bench, &mut report),
        BigLoad::Restores => restores::run(bench, &mut report),
    }
}
