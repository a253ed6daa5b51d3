//! Where a drive-managed SMR drive puts what (FreeSpace sections 3.2.3 and 4.3).
//!
//! Tracks of a zone overlap: a zone can be written from its start to its end and in no other order.
//! Writes at a zone's write pointer stream into it. A long write at the start of a zone that has
//! content is taken for the first of a new stream over it: it goes to a spare zone, which takes the
//! old one's place once nothing of that is needed. All other writes go to a media cache, and
//! when that is full a zone is rewritten, whole and to a spare zone, with what is cached of it.
//!
//! A stream that leaves off in the middle of a zone costs the rest of it: when another wants its
//! spare zone the drive copies what was not written over. So does the end of an allocation area
//! that is smaller than a zone.
//!
//! Only the map is here. What happens on the platters is told step by step ([`ShingledStep`]).
//! Positions on them: the media cache first, then the zones.
//!
//! Invariants:
//! - A zone on the platters is written at the place behind its last written block, or from its
//!   start, and then nothing of what it held is needed.
//! - Each cached block has a slot of its own; a block is cached at most once.
//! - There is a spare zone for each stream and one for cleaning.
//!
//! Fails: sizes of zero panic when it is made.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Which zone is rewritten when the media cache is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CleaningPolicy {
    /// The one whose oldest cached block is the oldest.
    OldestZone,
    /// The one with the fewest blocks to rewrite for each cached block.
    LeastCost,
}

/// What the drive is made of, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShingledSizes {
    /// What the host sees.
    pub logical_blocks: u64,
    /// A zone; the host's last may be shorter.
    pub zone_blocks: u64,
    /// The media cache.
    pub cache_blocks: u64,
    /// Streams over zones with content that the drive follows at one time.
    pub streams_max: usize,
    /// The shortest write at a zone's start that is taken for the first of a stream.
    pub stream_blocks_min: u64,
    /// Which zone is cleaned.
    pub cleaning: CleaningPolicy,
}

/// What happens on the platters. Positions are in blocks; what the host writes comes in its order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShingledStep<'a> {
    /// Blocks of the host go to a zone.
    Stream {
        /// The first position.
        to: u64,
        /// How many.
        count: u64,
    },
    /// A block of the host goes to the media cache.
    Cache {
        /// The slot.
        to: u64,
    },
    /// Part of a zone is read and written elsewhere, with what is cached of it.
    Rewrite {
        /// The first position that is read.
        from: u64,
        /// The first that is written.
        to: u64,
        /// How many.
        count: u64,
        /// Which of them come from the media cache instead, in ascending order.
        patches: &'a [Source],
    },
}

/// A block of a rewrite that comes from the media cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// Which block of the rewrite.
    pub index: u64,
    /// The slot.
    pub slot: u64,
}

/// One of the host's zones. What is there of it: cached blocks, then what a stream has written,
/// then what lies at home below the write pointer.
struct Zone {
    home: u64,
    written_blocks: u64,
    stream: Option<Stream>,
    cached: BTreeMap<u64, u64>,
    /// When the oldest of them came, as a count of all that came.
    cached_since: u64,
}

struct Stream {
    home: u64,
    written_blocks: u64,
}

impl Zone {
    /// Where a write streams.
    fn pointer(&self) -> u64 {
        self.stream.as_ref().map_or(self.written_blocks, |stream| stream.written_blocks)
    }

    /// The end of all that there is.
    fn end(&self) -> u64 {
        let cached = self.cached.last_key_value().map_or(0, |(offset, _)| offset + 1);
        self.written_blocks.max(self.pointer()).max(cached)
    }
}

/// The map.
pub struct ShingledLayout {
    sizes: ShingledSizes,
    zones: BTreeMap<u64, Zone>,
    spare: VecDeque<u64>,
    /// Zones with streams; what was written longest ago comes first.
    streams: VecDeque<u64>,
    slots: BTreeSet<u64>,
    next_slot: u64,
    cached_count: u64,
}

impl ShingledLayout {
    /// A drive that was never written.
    ///
    /// # Panics
    /// If a size is zero.
    #[must_use]
    pub fn new(sizes: ShingledSizes) -> Self {
        let ShingledSizes { logical_blocks, zone_blocks, cache_blocks, streams_max, .. } = sizes;
        assert!(logical_blocks > 0 && zone_blocks > 0 && cache_blocks > 0, "{sizes:?}");
        assert!(streams_max > 0 && sizes.stream_blocks_min > 0, "{sizes:?}");
        let logical_zones = logical_blocks.div_ceil(zone_blocks);
        let spare = (logical_zones..=logical_zones + streams_max as u64).collect();
        Self {
            sizes,
            zones: BTreeMap::new(),
            spare,
            streams: VecDeque::new(),
            slots: BTreeSet::new(),
            next_slot: 0,
            cached_count: 0,
        }
    }

    /// Blocks on the platters: media cache, zones and spare zones.
    #[must_use]
    pub fn physical_blocks(&self) -> u64 {
        let zones = self.sizes.logical_blocks.div_ceil(self.sizes.zone_blocks);
        let all = zones + self.sizes.streams_max as u64 + 1;
        self.sizes.cache_blocks + all * self.sizes.zone_blocks
    }

    /// Blocks in the media cache.
    #[must_use]
    pub fn cached_blocks(&self) -> u64 {
        self.slots.len() as u64
    }

    /// Where a block lies; `None` if it was never written.
    #[must_use]
    pub fn locate(&self, block: u64) -> Option<u64> {
        let (zone, offset) = (block / self.sizes.zone_blocks, block % self.sizes.zone_blocks);
        let zone = self.zones.get(&zone)?;
        if let Some(slot) = zone.cached.get(&offset) {
            return Some(*slot);
        }
        match &zone.stream {
            Some(stream) if offset < stream.written_blocks => {
                Some(self.position(stream.home, offset))
            }
            _ => (offset < zone.written_blocks).then(|| self.position(zone.home, offset)),
        }
    }

    /// The host writes.
    ///
    /// # Panics
    /// If the blocks do not exist.
    pub fn write(&mut self, block: u64, count: u64, mut step: impl FnMut(ShingledStep<'_>)) {
        let end = block + count;
        assert!(end <= self.sizes.logical_blocks, "blocks {block} to {end}");
        let mut at = block;
        while at < end {
            let zone = at / self.sizes.zone_blocks;
            let start = zone * self.sizes.zone_blocks;
            let piece_end = end.min(start + self.sizes.zone_blocks);
            self.write_zone(zone, at - start, piece_end - at, &mut step);
            at = piece_end;
        }
    }

    fn write_zone(
        &mut self,
        zone: u64,
        offset: u64,
        count: u64,
        step: &mut impl FnMut(ShingledStep<'_>),
    ) {
        let pointer = self.zone(zone).pointer();
        let is_streaming = self.zone(zone).stream.is_some();
        if offset == pointer {
            self.stream(zone, count, step);
        } else if offset == 0 && !is_streaming && count >= self.sizes.stream_blocks_min {
            self.open_stream(zone, step);
            self.stream(zone, count, step);
        } else if offset < pointer && pointer < offset + count {
            // What is behind the pointer streams, what is before it cannot.
            self.cache(zone, offset, pointer - offset, step);
            let done = pointer - offset;
            self.write_zone(zone, pointer, count - done, step);
        } else {
            self.cache(zone, offset, count, step);
        }
    }

    /// Writes at the zone's pointer.
    fn stream(&mut self, zone: u64, count: u64, step: &mut impl FnMut(ShingledStep<'_>)) {
        let state = self.zone(zone);
        let offset = state.pointer();
        let home = match &mut state.stream {
            Some(stream) => {
                stream.written_blocks += count;
                stream.home
            }
            None => {
                state.written_blocks += count;
                state.home
            }
        };
        let superseded: Vec<(u64, u64)> =
            state.cached.extract_if(offset..offset + count, |_, _| true).collect();
        let is_over = state.stream.is_some() && state.pointer() >= state.written_blocks;
        superseded.iter().for_each(|(_, slot)| assert!(self.slots.remove(slot)));
        let to = self.position(home, offset);
        step(ShingledStep::Stream { to, count });
        if is_over {
            // Nothing at home is needed any more.
            self.move_home(zone);
        } else if let Some(at) = self.streams.iter().position(|other| *other == zone) {
            self.streams.remove(at);
            self.streams.push_back(zone);
        }
    }

    /// Begins to write a zone anew that has content.
    fn open_stream(&mut self, zone: u64, step: &mut impl FnMut(ShingledStep<'_>)) {
        if self.streams.len() == self.sizes.streams_max
            && let Some(oldest) = self.streams.front().copied()
        {
            self.finish_stream(oldest, step);
        }
        let home = self.take_spare();
        self.zone(zone).stream = Some(Stream { home, written_blocks: 0 });
        self.streams.push_back(zone);
    }

    /// Copies what a stream has not written over behind it, with what is cached of that.
    fn finish_stream(&mut self, zone: u64, step: &mut impl FnMut(ShingledStep<'_>)) {
        let state = self.zone(zone);
        let (from, end) = (state.pointer(), state.end());
        let Some(stream) = &mut state.stream else { unreachable!("it has a stream") };
        let (old, new) = (state.home, stream.home);
        stream.written_blocks = end;
        self.rewrite(zone, old, new, from..end, step);
        self.move_home(zone);
    }

    /// The stream's zone takes the place of the old one.
    fn move_home(&mut self, zone: u64) {
        let state = self.zone(zone);
        let Some(stream) = state.stream.take() else { unreachable!("it has a stream") };
        let old = std::mem::replace(&mut state.home, stream.home);
        state.written_blocks = stream.written_blocks;
        self.spare.push_back(old);
        self.streams.retain(|other| *other != zone);
    }

    /// Puts blocks into the media cache, one by one: each may need a zone to be cleaned first.
    fn cache(
        &mut self,
        zone: u64,
        offset: u64,
        count: u64,
        step: &mut impl FnMut(ShingledStep<'_>),
    ) {
        for offset in offset..offset + count {
            if self.slots.len() as u64 == self.sizes.cache_blocks {
                self.clean(step);
            }
            while self.slots.contains(&self.next_slot) {
                self.next_slot = (self.next_slot + 1) % self.sizes.cache_blocks;
            }
            let slot = self.next_slot;
            self.next_slot = (slot + 1) % self.sizes.cache_blocks;
            self.cached_count += 1;
            let count = self.cached_count;
            let state = self.zone(zone);
            if state.cached.is_empty() {
                state.cached_since = count;
            }
            let superseded = state.cached.insert(offset, slot);
            superseded.iter().for_each(|old| assert!(self.slots.remove(old)));
            self.slots.insert(slot);
            step(ShingledStep::Cache { to: slot });
        }
    }

    /// Empties the media cache of what belongs to one zone.
    fn clean(&mut self, step: &mut impl FnMut(ShingledStep<'_>)) {
        let victim = self.victim();
        if self.zone(victim).stream.is_some() {
            self.finish_stream(victim, step);
        }
        if self.zone(victim).cached.is_empty() {
            return;
        }
        let new = self.take_spare();
        let state = self.zone(victim);
        let end = state.end();
        let old = std::mem::replace(&mut state.home, new);
        state.written_blocks = end;
        self.rewrite(victim, old, new, 0..end, step);
        self.spare.push_back(old);
    }

    fn victim(&self) -> u64 {
        let cached = self.zones.iter().filter(|(_, zone)| !zone.cached.is_empty());
        let victim = match self.sizes.cleaning {
            CleaningPolicy::OldestZone => cached.min_by_key(|(_, zone)| zone.cached_since),
            CleaningPolicy::LeastCost => cached.min_by(|(_, one), (_, other)| {
                // One's blocks for each cached one, compared without dividing.
                let cost =
                    |zone: &Zone, times: &Zone| u128::from(zone.end()) * times.cached.len() as u128;
                cost(one, other).cmp(&cost(other, one))
            }),
        };
        let Some((victim, _)) = victim else { unreachable!("a full cache holds some zone's") };
        *victim
    }

    /// Tells a rewrite of offsets of a zone, and forgets what was cached of them.
    fn rewrite(
        &mut self,
        zone: u64,
        old: u64,
        new: u64,
        offsets: std::ops::Range<u64>,
        step: &mut impl FnMut(ShingledStep<'_>),
    ) {
        let cached = self.zone(zone).cached.split_off(&offsets.start);
        let patch =
            |(offset, slot): (&u64, &u64)| Source { index: offset - offsets.start, slot: *slot };
        let patches: Vec<Source> = cached.iter().map(patch).collect();
        patches.iter().for_each(|patch| assert!(self.slots.remove(&patch.slot)));
        let (from, to) = (self.position(old, offsets.start), self.position(new, offsets.start));
        let count = offsets.end - offsets.start;
        step(ShingledStep::Rewrite { from, to, count, patches: &patches });
    }

    fn take_spare(&mut self) -> u64 {
        let Some(spare) = self.spare.pop_front() else {
            unreachable!("streams and cleaning have spare zones of their own")
        };
        spare
    }

    fn zone(&mut self, zone: u64) -> &mut Zone {
        self.zones.entry(zone).or_insert_with(|| Zone {
            home: zone,
            written_blocks: 0,
            stream: None,
            cached: BTreeMap::new(),
            cached_since: 0,
        })
    }

    const fn position(&self, home: u64, offset: u64) -> u64 {
        self.sizes.cache_blocks + home * self.sizes.zone_blocks + offset
    }
}
