//! A drive-managed SMR drive: a write cache, and the map of its zones over the mechanics of a disk
//! drive.
//!
//! The cache is volatile: a flush has all of it written. It takes no time; what it holds costs some
//! when it goes to the platters, and is counted then.
//!
//! Invariants: the time is that of the head for all that happens on the platters, the drive's own
//! rewriting included, in the order in which it happens; blocks that were never written, or are in
//! the cache, cost nothing to read.
//!
//! Fails: sizes that make no whole blocks panic when the model is made.

use crate::mechanics::{HddConfiguration, Mechanics};
use crate::modelled::{Medium, Modelled};
use crate::shingled::{CleaningPolicy, ShingledLayout, ShingledSizes, ShingledStep};
use crate::write_cache::WriteCache;
use platform::{Disk, MediaHints};
use std::sync::Arc;
use units::BLOCK_SIZE_U64;

/// What the drive is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SmrConfiguration {
    /// A zone; a multiple of 4 KiB.
    pub zone_bytes: u64,
    /// The media cache; a multiple of 4 KiB.
    pub media_cache_bytes: u64,
    /// The write cache; a multiple of 4 KiB, 0 for none.
    pub write_cache_bytes: u64,
    /// Streams over zones with content that the drive follows at one time.
    pub streams_max: usize,
    /// The shortest write at a zone's start that is taken for the first of a stream.
    pub stream_blocks_min: u64,
    /// Which zone is rewritten when the media cache is full.
    pub cleaning: CleaningPolicy,
    /// The mechanics; the disk's size is that of zones, spare zones and media cache.
    pub mechanics: HddConfiguration,
}

impl Default for SmrConfiguration {
    /// Zones of 256 MiB as all host-visible ones have, a media cache of 16 GiB, which is some
    /// thousandths of a large drive, a write cache of 128 MiB, and four streams.
    fn default() -> Self {
        Self {
            zone_bytes: 256 << 20,
            media_cache_bytes: 16 << 30,
            write_cache_bytes: 128 << 20,
            streams_max: 4,
            stream_blocks_min: 64,
            cleaning: CleaningPolicy::OldestZone,
            mechanics: HddConfiguration::default(),
        }
    }
}

/// What happened in the drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SmrStatistics {
    /// Blocks that the host read.
    pub blocks_read: u64,
    /// Blocks that the host wrote and that went to their zones.
    pub blocks_streamed: u64,
    /// Blocks that the host wrote and that went to the media cache.
    pub blocks_cached: u64,
    /// Zones, or rests of them, that the drive rewrote.
    pub zone_rewrites: u64,
    /// Blocks that it wrote for that.
    pub blocks_rewritten: u64,
    /// Flushes.
    pub flushes: u64,
    /// Times that the head went somewhere else.
    pub seeks: u64,
    /// Time in which the drive worked.
    pub busy_nanoseconds: u64,
}

/// The drive.
pub struct Smr {
    cache: WriteCache,
    layout: ShingledLayout,
    platters: Platters,
}

struct Platters {
    mechanics: Mechanics,
    counts: SmrStatistics,
}

impl Platters {
    fn transfer(&mut self, block: u64, count: u64) {
        let motion = self.mechanics.transfer(block, count);
        self.counts.seeks += u64::from(motion.distance_blocks > 0);
        self.counts.busy_nanoseconds += motion.nanoseconds;
    }

    fn step(&mut self, step: ShingledStep<'_>) {
        match step {
            ShingledStep::Stream { to, count } => {
                self.counts.blocks_streamed += count;
                self.transfer(to, count);
            }
            ShingledStep::Cache { to } => {
                self.counts.blocks_cached += 1;
                self.transfer(to, 1);
            }
            ShingledStep::Rewrite { from, to, count, patches } => {
                self.counts.zone_rewrites += 1;
                self.counts.blocks_rewritten += count;
                // The drive knows what it will need and fetches it in the head's order.
                let mut slots: Vec<u64> = patches.iter().map(|patch| patch.slot).collect();
                slots.sort_unstable();
                slots.into_iter().for_each(|slot| self.transfer(slot, 1));
                self.transfer(from, count);
                self.transfer(to, count);
            }
        }
    }
}

/// A drive-managed SMR drive. See the module.
pub type SmrModel = Modelled<Smr>;

impl SmrModel {
    /// A drive as it comes from the shop, with what `inner` holds: no zone has a block.
    ///
    /// # Panics
    /// If the size of a zone or of the media cache is zero, some size is no whole number of blocks,
    /// or as [`Mechanics::new`].
    #[must_use]
    pub fn new(inner: Arc<dyn Disk>, configuration: SmrConfiguration) -> Self {
        let SmrConfiguration { zone_bytes, media_cache_bytes, write_cache_bytes, .. } =
            configuration;
        for bytes in [zone_bytes, media_cache_bytes, write_cache_bytes] {
            assert!(bytes.is_multiple_of(BLOCK_SIZE_U64), "{bytes} bytes");
        }
        let layout = ShingledLayout::new(ShingledSizes {
            logical_blocks: inner.size_blocks(),
            zone_blocks: zone_bytes / BLOCK_SIZE_U64,
            cache_blocks: media_cache_bytes / BLOCK_SIZE_U64,
            streams_max: configuration.streams_max,
            stream_blocks_min: configuration.stream_blocks_min,
            cleaning: configuration.cleaning,
        });
        let mechanics = Mechanics::new(configuration.mechanics, layout.physical_blocks());
        let platters = Platters { mechanics, counts: SmrStatistics::default() };
        let cache = WriteCache::new(write_cache_bytes / BLOCK_SIZE_U64);
        Self::around(inner, Smr { cache, layout, platters })
    }
}

impl Medium for Smr {
    type Statistics = SmrStatistics;

    fn read(&mut self, block: u64, count: u64) {
        self.platters.counts.blocks_read += count;
        let mut run: Option<(u64, u64)> = None;
        let on_platters = (block..block + count).filter(|block| !self.cache.contains(*block));
        for at in on_platters.filter_map(|block| self.layout.locate(block)) {
            run = match run {
                Some((start, length)) if start + length == at => Some((start, length + 1)),
                other => {
                    other
                        .iter()
                        .for_each(|(start, length)| self.platters.transfer(*start, *length));
                    Some((at, 1))
                }
            };
        }
        run.iter().for_each(|(start, length)| self.platters.transfer(*start, *length));
    }

    fn write(&mut self, block: u64, count: u64) {
        let Self { cache, layout, platters } = self;
        cache.write(block, count, |block, count| {
            layout.write(block, count, |step| platters.step(step));
        });
    }

    fn flush(&mut self) {
        let Self { cache, layout, platters } = self;
        cache.flush(|block, count| layout.write(block, count, |step| platters.step(step)));
        platters.counts.flushes += 1;
        platters.mechanics.pause();
    }

    /// A drive that manages its zones itself says nothing of them.
    fn hints(&self) -> MediaHints {
        MediaHints { is_rotational: true, ..MediaHints::default() }
    }

    fn statistics(&self) -> SmrStatistics {
        self.platters.counts
    }

    fn reset_statistics(&mut self) {
        self.platters.counts = SmrStatistics::default();
    }
}
