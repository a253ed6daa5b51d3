//! The evaluation in FlexVol section 5 on this engine: what a flexible volume costs beside a
//! traditional one.
//!
//! `small` has figures 5 to 8, on engines in this process. `sfs` has figure 9, on nodes in
//! processes of their own.
//!
//! Invariants: both kinds have an engine, disks and files of their own, and are measured in turns.
//! While `small` measures one, the engine of the other has committed all that was asked of it.

mod sfs;
mod small;

use crate::machine::Machine;
use crate::node::BenchError;
use crate::summary::Report;
use std::path::PathBuf;
use units::ByteSize;

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct FlexvolBench {
    /// This program, which is also the server of figure 9.
    pub program: PathBuf,
    /// A directory for sparse disks; they take sixteen times the largest file at most.
    pub directory: PathBuf,
    /// The memory of each engine.
    pub memory: ByteSize,
    /// Files, in hundredths of that memory; the largest is the size of the data set of figure 9.
    pub sizes_percent: Vec<u64>,
    /// Operations in flight, but for figure 9.
    pub depth: usize,
    /// How long a round of a load takes; it is loaded half as long before. A point of
    /// figure 9 takes four such rounds, and is loaded for one before.
    pub round_nanoseconds: u64,
    /// Rounds, each with a new file, but for figure 9.
    pub rounds: usize,
    /// Threads of each engine, but for figure 9, whose nodes have their own.
    pub workers: usize,
}

/// A figure of FlexVol section 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlexvolFigure {
    /// Random reads of 4 KiB.
    RandomReads,
    /// Reads of 4 KiB in order.
    SequentialReads,
    /// Writes of 4 KiB in order.
    SequentialWrites,
    /// Random writes of 4 KiB.
    RandomWrites,
    /// A mix of NFSv3 operations at a rising load.
    OperationMix,
}

impl FlexvolFigure {
    /// All figures, in the order in which they are run: loads that scatter the file come last.
    pub const ALL: [Self; 5] = [
        Self::RandomReads,
        Self::SequentialReads,
        Self::SequentialWrites,
        Self::RandomWrites,
        Self::OperationMix,
    ];

    /// The figure's name on the command line: its number in FlexVol.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RandomReads => "5",
            Self::SequentialReads => "6",
            Self::SequentialWrites => "7",
            Self::RandomWrites => "8",
            Self::OperationMix => "9",
        }
    }

    /// The load, as a report names it.
    const fn load(self) -> &'static str {
        match self {
            Self::RandomReads => "random read 4K",
            Self::SequentialReads => "read 4K in order",
            Self::SequentialWrites => "write 4K in order",
            Self::RandomWrites => "random write 4K",
            Self::OperationMix => "NFSv3 mix",
        }
    }

    const fn is_random(self) -> bool {
        matches!(self, Self::RandomReads | Self::RandomWrites)
    }

    const fn is_write(self) -> bool {
        matches!(self, Self::SequentialWrites | Self::RandomWrites)
    }
}

/// Measures figures; `progress` is told the size of the file and the round.
///
/// # Errors
/// [`BenchError`].
pub fn flexvol(
    bench: &FlexvolBench,
    figures: &[FlexvolFigure],
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    let machine = Machine::here();
    let mix = FlexvolFigure::OperationMix;
    let mut ordered = FlexvolFigure::ALL.to_vec();
    ordered.retain(|figure| figures.contains(figure) && *figure != mix);
    let (mut rows, mut notes) = (Vec::new(), Vec::new());
    if !ordered.is_empty() {
        rows = small::run(bench, &ordered, progress)?;
        notes = vec![
            "FlexVol: a flexible volume nearly as fast as a traditional one; random writes -14 % \
             at worst"
                .to_owned(),
            "writes: unstable; the time has the consistency point after them".to_owned(),
        ];
    }
    if figures.contains(&mix) {
        let (more, said) = sfs::run(bench, progress)?;
        rows.extend(more);
        notes.extend(said);
    }
    Ok(Report { machine, rows, notes, spans: Vec::new() })
}
