//! What happened in a span of a load: to the drives, in the engine, and on this machine.
//!
//! *Modelled* rates are those of the busiest drive: operations by the time for which it worked.
//! They and all shares are the same on any machine; rates and processor time are this one's, and
//! processor time has that of the models and of the load in it.
//!
//! A counter that the engine gains is a field of [`Span`], taken in [`Rig::end`], and a [`Metric`].

use crate::freespace::drive::{Drive, Work};
use crate::freespace::rig::Rig;
use crate::summary::Unit;
use aggregate::{FreeCounts, Picks};
use platform::Clock;
use platform::linux::SystemClock;
use raid::Counters;
use std::sync::atomic::Ordering;

/// Where a span began.
pub(super) struct Start {
    nanoseconds: u64,
    processor_nanoseconds: u64,
    counters: Counters,
    emptying_moved_blocks: u64,
    group_picks: Picks,
    volume_picks: Picks,
    frees: FreeCounts,
    scores_nanoseconds: [u64; 2],
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Span {
    pub operations: u64,
    pub bytes: u64,
    pub nanoseconds: u64,
    /// Of this process.
    pub processor_nanoseconds: u64,
    pub stripes: u64,
    pub full_stripes: u64,
    /// Blocks that were moved to empty an area.
    pub emptying_moved_blocks: u64,
    /// What became of numbers that volumes released.
    pub frees: FreeCounts,
    /// Areas of groups that were chosen to be filled.
    pub group_picks: Picks,
    /// Areas of volumes whose numbers were chosen to be given.
    pub volume_picks: Picks,
    /// Time in which scores of groups' areas were kept.
    pub group_scores_nanoseconds: u64,
    /// The same of volumes' areas.
    pub volume_scores_nanoseconds: u64,
    /// Of each drive, group by group, the parity drives first.
    pub work: Vec<Vec<Work>>,
}

fn processor_nanoseconds() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Rig {
    /// Begins a span, and forgets what drives did before.
    pub fn begin(&self) -> Start {
        for drive in self.groups().flatten() {
            let _ = drive.take_work();
        }
        Start {
            nanoseconds: SystemClock.monotonic_nanoseconds(),
            processor_nanoseconds: processor_nanoseconds(),
            counters: self.aggregate().parts.store.status().counters,
            emptying_moved_blocks: self.emptying_moved_blocks(),
            group_picks: self.aggregate().statistics.group_picks.sum(),
            volume_picks: self.aggregate().statistics.volume_picks.sum(),
            frees: self.aggregate().statistics.frees.sum(),
            scores_nanoseconds: self.scores_nanoseconds(),
        }
    }

    fn emptying_moved_blocks(&self) -> u64 {
        self.aggregate().statistics.emptying_moved_blocks.load(Ordering::Relaxed)
    }

    /// Time in which the scores of areas were kept, of groups and of volumes.
    fn scores_nanoseconds(&self) -> [u64; 2] {
        let aggregate = self.aggregate();
        let of = &aggregate.statistics;
        [&of.group_scores_nanoseconds, &of.volume_scores_nanoseconds]
            .map(|nanoseconds| nanoseconds.load(Ordering::Relaxed))
    }

    /// Ends it; the load says what it did.
    pub fn end(&self, start: &Start, operations: u64, bytes: u64) -> Span {
        let counters = self.aggregate().parts.store.status().counters;
        let scores = self.scores_nanoseconds();
        let of_group = |drives: &[Drive]| drives.iter().map(Drive::take_work).collect();
        Span {
            operations,
            bytes,
            nanoseconds: SystemClock.monotonic_nanoseconds() - start.nanoseconds,
            processor_nanoseconds: processor_nanoseconds() - start.processor_nanoseconds,
            stripes: counters.stripes - start.counters.stripes,
            full_stripes: counters.full_stripes - start.counters.full_stripes,
            emptying_moved_blocks: self.emptying_moved_blocks() - start.emptying_moved_blocks,
            group_picks: self.aggregate().statistics.group_picks.sum().since(start.group_picks),
            volume_picks: self.aggregate().statistics.volume_picks.sum().since(start.volume_picks),
            frees: self.aggregate().statistics.frees.sum().since(start.frees),
            group_scores_nanoseconds: scores[0] - start.scores_nanoseconds[0],
            volume_scores_nanoseconds: scores[1] - start.scores_nanoseconds[1],
            work: self.groups().map(of_group).collect(),
        }
    }
}

impl Span {
    fn total(&self, of: impl Fn(&Work) -> u64) -> f64 {
        self.work.iter().flatten().map(of).sum::<u64>() as f64
    }

    /// For which the busiest drive worked.
    fn busy_seconds(&self) -> f64 {
        let busy = self.work.iter().flatten().map(|work| work.busy_nanoseconds);
        busy.max().unwrap_or(0) as f64 / 1e9
    }
}

fn percent_free(picks: Picks) -> (f64, f64) {
    (100.0 * picks.free_blocks as f64, picks.blocks as f64)
}

/// What is told of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Metric {
    /// Blocks that drives wrote for each that was written to them.
    WriteAmplification,
    /// Blocks written to drives for each that the load wrote.
    BlocksWritten,
    /// Blocks moved to empty areas, of those that the load wrote.
    BlocksMoved,
    /// The free share of areas of groups when they were chosen.
    GroupPicks,
    /// The same of volumes.
    VolumePicks,
    /// Keeping the scores of groups' areas, of all processor time.
    GroupScores,
    /// The same of volumes' areas.
    VolumeScores,
    /// Frees for each page of a container map that was changed for them.
    FreesOfPage,
    /// Stripes that were written whole.
    FullStripes,
    /// Blocks that went to the media caches of SMR drives.
    MediaCache,
    /// Checksum blocks, of all that was written: a 64th, if each is written once with its region.
    ChecksumBlocks,
    /// Operations a second, if the busiest drive were the bound.
    ModelledRate,
    /// Bytes a second, likewise.
    ModelledBytes,
    /// Operations a second.
    Rate,
    /// Processor time of an operation.
    ProcessorTime,
}

impl Metric {
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteAmplification => "amplification",
            Self::BlocksWritten => "blocks for a block",
            Self::BlocksMoved => "moved",
            Self::GroupPicks => "free in areas of groups",
            Self::VolumePicks => "free in areas of volumes",
            Self::GroupScores => "scores of groups",
            Self::VolumeScores => "scores of volumes",
            Self::FreesOfPage => "frees of a page",
            Self::FullStripes => "full stripes",
            Self::MediaCache => "to media cache",
            Self::ChecksumBlocks => "checksum blocks",
            Self::ModelledRate | Self::ModelledBytes => "modelled",
            Self::Rate => "rate",
            Self::ProcessorTime => "processor",
        }
    }

    pub const fn unit(self) -> Unit {
        match self {
            Self::WriteAmplification | Self::BlocksWritten | Self::FreesOfPage => Unit::Ratio,
            Self::GroupPicks | Self::VolumePicks => Unit::Percent,
            Self::GroupScores | Self::VolumeScores => Unit::Percent,
            Self::FullStripes | Self::MediaCache | Self::ChecksumBlocks => Unit::Percent,
            Self::BlocksMoved => Unit::Percent,
            Self::ModelledRate | Self::Rate => Unit::Operations,
            Self::ModelledBytes => Unit::Bytes,
            Self::ProcessorTime => Unit::Duration,
        }
    }

    /// In the base unit of [`Self::unit`].
    pub fn of(self, span: &Span) -> f64 {
        let (host, operations) = (span.total(|work| work.host_blocks), span.operations as f64);
        let processor = span.processor_nanoseconds as f64;
        let load_blocks = span.bytes as f64 / units::BLOCK_SIZE_U64 as f64;
        let (count, of) = match self {
            Self::WriteAmplification => (span.total(|work| work.device_blocks), host),
            Self::BlocksWritten => (host, load_blocks),
            Self::BlocksMoved => (100.0 * span.emptying_moved_blocks as f64, load_blocks),
            Self::GroupPicks => percent_free(span.group_picks),
            Self::VolumePicks => percent_free(span.volume_picks),
            Self::GroupScores => (100.0 * span.group_scores_nanoseconds as f64, processor),
            Self::VolumeScores => (100.0 * span.volume_scores_nanoseconds as f64, processor),
            Self::FreesOfPage => (span.frees.cleared as f64, span.frees.pages as f64),
            Self::FullStripes => (100.0 * span.full_stripes as f64, span.stripes as f64),
            Self::MediaCache => (100.0 * span.total(|work| work.cached_blocks), host),
            Self::ChecksumBlocks => (100.0 * span.total(|work| work.regions), host),
            Self::ModelledRate => (operations, span.busy_seconds()),
            Self::ModelledBytes => (span.bytes as f64, span.busy_seconds()),
            Self::Rate => (operations, span.nanoseconds as f64 / 1e9),
            Self::ProcessorTime => (processor, operations),
        };
        let scale = if self.unit() == Unit::Ratio { Unit::Ratio.scale() } else { 1.0 };
        if of > 0.0 { scale * count / of } else { 0.0 }
    }
}
