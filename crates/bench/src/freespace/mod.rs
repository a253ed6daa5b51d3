//! The evaluation in FreeSpace section 4, on this engine and models of drives.
//!
//! | figure | asks |
//! | --- | --- |
//! | 6 | what are caches of allocation areas worth, in an aged aggregate? |
//! | 7 | how are writes divided among groups of different age? |
//! | 8 | what are areas as large as an SSD's erase blocks worth? |
//! | 9 | the same for the zones of SMR drives, in a new aggregate |
//! | 10 | what is TopAA worth to the first consistency point after a start? |
//! | ageing | does the engine slow down as it is overwritten? |
//! | frees | what do delayed frees save (FlexVol section 3.4)? |
//! | areas | what does following a score cost, of a thousand areas and of a million? |
//!
//! A figure compares variants of the engine ([`variant::Variant`]); loads and drives are the same
//! for all of them.
//!
//! Invariants: figures, never tests; a load that fails ends the bench with its error.

mod ageing;
mod areas;
mod drive;
mod figure10;
mod figure6;
mod figure7;
mod figure8;
mod figure9;
mod frees;
mod loads;
mod plan;
mod rig;
mod span;
mod variant;

#[cfg(test)]
mod tests;

use crate::machine::Machine;
use crate::node::BenchError;
use crate::summary::Report;
pub use plan::FreespaceBench;

/// A figure of FreeSpace section 4, or one of our own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreespaceFigure {
    /// Caches of allocation areas.
    Caches,
    /// Groups of different age.
    Imbalance,
    /// Areas of the size of erase blocks.
    EraseBlocks,
    /// Areas of the size of zones.
    Zones,
    /// The first consistency point after a start.
    Starts,
    /// Many overwrites of everything.
    Ageing,
    /// Delayed frees.
    Frees,
    /// The cost of scores.
    Areas,
}

impl FreespaceFigure {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Caches,
        Self::Imbalance,
        Self::EraseBlocks,
        Self::Zones,
        Self::Starts,
        Self::Ageing,
        Self::Frees,
        Self::Areas,
    ];

    /// What it is called on the command line: its number in FreeSpace, if it has one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Caches => "6",
            Self::Imbalance => "7",
            Self::EraseBlocks => "8",
            Self::Zones => "9",
            Self::Starts => "10",
            Self::Ageing => "ageing",
            Self::Frees => "frees",
            Self::Areas => "areas",
        }
    }
}

/// Runs figures; `progress` is told what is done.
///
/// # Errors
/// [`BenchError`].
pub fn freespace(
    bench: &FreespaceBench,
    figures: &[FreespaceFigure],
    progress: &mut dyn FnMut(&str),
) -> Result<Report, BenchError> {
    let (machine, rows, notes, spans) = (Machine::here(), Vec::new(), Vec::new(), Vec::new());
    let mut report = Report { machine, rows, notes, spans };
    for figure in figures {
        let (rows, note) = match figure {
            FreespaceFigure::Caches => figure6::run(bench, progress)?,
            FreespaceFigure::Imbalance => figure7::run(bench, progress)?,
            FreespaceFigure::EraseBlocks => figure8::run(bench, progress)?,
            FreespaceFigure::Zones => figure9::run(bench, progress)?,
            FreespaceFigure::Starts => figure10::run(bench, progress)?,
            FreespaceFigure::Ageing => ageing::run(bench, progress)?,
            FreespaceFigure::Frees => frees::run(bench, progress)?,
            FreespaceFigure::Areas => areas::run(bench, progress)?,
        };
        report.rows.extend(rows);
        report.notes.push(format!("{}: {note}", figure.name()));
    }
    Ok(report)
}
