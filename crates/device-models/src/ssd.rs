//! An SSD: what the flash translation layer does with each request, and the time that it takes.
//!
//! An erase block here is what the drive erases at a time, spread over all its channels: page after
//! page lies on channel after channel, and erasing a block keeps each channel busy once.
//!
//! Invariants: busy time is that of the busiest channel, which is what the work takes when enough
//! is queued; pages that were never written cost nothing to read, as the map tells all of them.
//!
//! Fails: sizes that make no whole pages panic when the model is made.

use crate::flash::{FlashSizes, FlashStep, FlashTranslation};
use crate::log_blocks::LogBlockTranslation;
use crate::modelled::{Medium, Modelled};
use platform::{Disk, MediaHints};
use std::ops::Range;
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// How finely the drive remembers where what lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlashMapping {
    /// Each page for itself: what is written together lies together ([`FlashTranslation`]).
    #[default]
    Pages,
    /// By the erase block: a page has its place in one ([`LogBlockTranslation`]).
    EraseBlocks,
}

/// What the drive is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SsdConfiguration {
    /// What its map is like.
    pub mapping: FlashMapping,
    /// Bytes that are erased at a time, over all channels; a multiple of 4 KiB.
    pub erase_block_bytes: u64,
    /// Flash beyond what the host sees, in percent of that.
    pub over_provisioning_percent: u32,
    /// Pages that are read or programmed at the same time: channels times what works behind each.
    pub channels: usize,
    /// Reading 4 KiB, to the host.
    pub read_nanoseconds: u64,
    /// Programming 4 KiB.
    pub program_nanoseconds: u64,
    /// Erasing a block.
    pub erase_nanoseconds: u64,
}

impl Default for SsdConfiguration {
    /// A drive as servers have them: 7 % is what binary gigabytes of flash have over decimal ones
    /// of the host; the times are those of three-bit cells, of which a page of 16 KiB is read in
    /// 60 and programmed in 800 microseconds.
    fn default() -> Self {
        Self {
            mapping: FlashMapping::Pages,
            erase_block_bytes: 4 << 20,
            over_provisioning_percent: 7,
            channels: 32,
            read_nanoseconds: 60_000,
            program_nanoseconds: 200_000,
            erase_nanoseconds: 3_000_000,
        }
    }
}

/// What happened in the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SsdStatistics {
    /// Pages that the host read.
    pub host_pages_read: u64,
    /// Pages that the host wrote.
    pub host_pages_written: u64,
    /// Pages that the drive moved to empty a block.
    pub pages_relocated: u64,
    /// Blocks that were erased.
    pub blocks_erased: u64,
    /// Flushes; they cost nothing, for a drive of servers keeps what it has on a power loss.
    pub flushes: u64,
    /// Time in which the busiest channel worked.
    pub busy_nanoseconds: u64,
}

impl SsdStatistics {
    /// Pages programmed for each that the host wrote; 1 where it wrote none.
    #[must_use]
    pub fn write_amplification(&self) -> f64 {
        if self.host_pages_written == 0 {
            return 1.0;
        }
        let programmed = self.host_pages_written + self.pages_relocated;
        programmed as f64 / self.host_pages_written as f64
    }
}

/// The flash and its channels.
pub struct Ssd {
    configuration: SsdConfiguration,
    translation: Translation,
    work: Work,
}

/// The map, of one sort or the other.
pub(crate) enum Translation {
    Pages(FlashTranslation),
    EraseBlocks(LogBlockTranslation),
}

impl Translation {
    pub(crate) fn new(mapping: FlashMapping, sizes: FlashSizes) -> Self {
        match mapping {
            FlashMapping::Pages => Self::Pages(FlashTranslation::new(sizes)),
            FlashMapping::EraseBlocks => Self::EraseBlocks(LogBlockTranslation::new(sizes)),
        }
    }

    pub(crate) fn locate(&self, page: u64) -> Option<u64> {
        match self {
            Self::Pages(map) => map.locate(page),
            Self::EraseBlocks(map) => map.locate(page),
        }
    }

    pub(crate) fn write(&mut self, page: u64, step: impl FnMut(FlashStep)) {
        match self {
            Self::Pages(map) => map.write(page, step),
            Self::EraseBlocks(map) => map.write(page, step),
        }
    }

    pub(crate) fn invalidate(&mut self, pages: Range<u64>) {
        match self {
            Self::Pages(map) => map.invalidate(pages),
            Self::EraseBlocks(map) => map.invalidate(pages),
        }
    }

    #[cfg(test)]
    pub(crate) fn check(&self) {
        match self {
            Self::Pages(map) => map.check(),
            Self::EraseBlocks(map) => map.check(),
        }
    }
}

/// What was done, and by which channel.
struct Work {
    times: SsdConfiguration,
    counts: SsdStatistics,
    channel_nanoseconds: Vec<u64>,
}

impl Work {
    fn new(configuration: &SsdConfiguration) -> Self {
        let (times, counts) = (*configuration, SsdStatistics::default());
        Self { times, counts, channel_nanoseconds: vec![0; configuration.channels] }
    }

    fn occupy(&mut self, page: u64, nanoseconds: u64) {
        let channels = self.channel_nanoseconds.len() as u64;
        self.channel_nanoseconds[(page % channels) as usize] += nanoseconds;
    }

    fn step(&mut self, step: FlashStep) {
        match step {
            FlashStep::Program { page } => {
                self.counts.host_pages_written += 1;
                self.occupy(page, self.times.program_nanoseconds);
            }
            FlashStep::Relocate { from, to } => {
                self.counts.pages_relocated += 1;
                self.occupy(from, self.times.read_nanoseconds);
                self.occupy(to, self.times.program_nanoseconds);
            }
            FlashStep::Erase { .. } => {
                self.counts.blocks_erased += 1;
                let erase = self.times.erase_nanoseconds;
                self.channel_nanoseconds.iter_mut().for_each(|time| *time += erase);
            }
        }
    }
}

/// An SSD. See the module.
pub type SsdModel = Modelled<Ssd>;

impl SsdModel {
    /// A drive as it comes from the shop, with what `inner` holds: nothing of it is mapped.
    ///
    /// # Panics
    /// If the erase block is no whole number of pages, there is no channel, or the inner disk is
    /// empty.
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>, configuration: SsdConfiguration) -> Self {
        let SsdConfiguration { erase_block_bytes, over_provisioning_percent, channels, .. } =
            configuration;
        assert!(erase_block_bytes.is_multiple_of(BLOCK_SIZE_U64), "{erase_block_bytes} bytes");
        assert!(channels > 0, "a drive has channels");
        let pages_per_block = u32::try_from(erase_block_bytes / BLOCK_SIZE_U64).unwrap_or(u32::MAX);
        let sizes =
            FlashSizes::new(inner.size_blocks(), pages_per_block, over_provisioning_percent);
        let translation = Translation::new(configuration.mapping, sizes);
        let work = Work::new(&configuration);
        Self::around(inner, Ssd { configuration, translation, work })
    }

    /// The host needs these blocks no more; what is read of them stays what it was.
    ///
    /// # Panics
    /// If one of them does not exist.
    pub fn invalidate(&self, blocks: Range<u64>) {
        self.with_medium(|ssd| ssd.translation.invalidate(blocks));
    }
}

impl Medium for Ssd {
    type Statistics = SsdStatistics;

    fn read(&mut self, block: u64, count: u64) {
        self.work.counts.host_pages_read += count;
        for page in block..block + count {
            if let Some(at) = self.translation.locate(page) {
                self.work.occupy(at, self.configuration.read_nanoseconds);
            }
        }
    }

    fn write(&mut self, block: u64, count: u64) {
        for page in block..block + count {
            self.translation.write(page, |step| self.work.step(step));
        }
    }

    fn flush(&mut self) {
        self.work.counts.flushes += 1;
    }

    /// As most drives do, it says nothing of its erase blocks.
    fn hints(&self) -> MediaHints {
        MediaHints::default()
    }

    fn statistics(&self) -> SsdStatistics {
        let busy_nanoseconds = self.work.channel_nanoseconds.iter().copied().max().unwrap_or(0);
        SsdStatistics { busy_nanoseconds, ..self.work.counts }
    }

    fn reset_statistics(&mut self) {
        self.work = Work::new(&self.configuration);
    }
}
