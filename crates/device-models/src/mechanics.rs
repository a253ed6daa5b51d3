//! A head over a turning disk: what it takes to get to a block, and to read or write from there.
//!
//! Blocks lie one behind another from the outer edge inwards. A seek takes the time of the shortest
//! one and, for what lies between that and a seek over the whole disk, a share that grows with the
//! square root of the distance, for a head speeds up half of the way and slows down the other half.
//! After a seek half a turn is waited, which is the average. The outer tracks are longer and pass
//! at a higher rate.
//!
//! Invariants: a request that begins where the last one ended costs its transfer only; the same
//! requests take the same time, to the nanosecond, for there is no floating point.

use units::BLOCK_SIZE_U64;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
/// Square roots of shares of the whole distance are taken in millionths.
const ROOT_SCALE: u64 = 1_000_000;

/// What the drive is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HddConfiguration {
    /// The shortest seek: to the next track, and settling there.
    pub seek_shortest_nanoseconds: u64,
    /// A seek over the whole disk.
    pub seek_longest_nanoseconds: u64,
    /// One turn.
    pub rotation_nanoseconds: u64,
    /// What passes under the head in a second, in bytes, of zones of equally many blocks from the
    /// outer edge inwards.
    pub zone_bytes_per_second: Vec<u64>,
}

impl Default for HddConfiguration {
    /// A large drive of 7,200 turns a minute: 1 ms to the next track, 16 ms over all, so that the
    /// average seek (a third of the way) takes about 9.7 ms; 250 MB/s outside, 125 MB/s inside.
    fn default() -> Self {
        Self {
            seek_shortest_nanoseconds: 1_000_000,
            seek_longest_nanoseconds: 16_000_000,
            rotation_nanoseconds: 8_333_333,
            zone_bytes_per_second: (0..16).map(|zone| 250_000_000 - zone * 8_333_333).collect(),
        }
    }
}

/// What a request made the head do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Motion {
    /// Whether it went on where the request before had ended.
    pub is_sequential: bool,
    /// Blocks that the head passed to get there.
    pub distance_blocks: u64,
    /// Time for the request, the way there included.
    pub nanoseconds: u64,
}

/// The head: where it is.
pub struct Mechanics {
    configuration: HddConfiguration,
    size_blocks: u64,
    position: u64,
    /// Whether the disk turned on since the last request ended.
    has_lost_its_turn: bool,
}

impl Mechanics {
    /// A head at the outer edge of a disk of `size_blocks`.
    ///
    /// # Panics
    /// If the disk is empty, nothing passes the head in some zone, or the longest seek is shorter
    /// than the shortest.
    #[must_use]
    pub fn new(configuration: HddConfiguration, size_blocks: u64) -> Self {
        let HddConfiguration { seek_shortest_nanoseconds, seek_longest_nanoseconds, .. } =
            configuration;
        assert!(size_blocks > 0, "a disk has blocks");
        assert!(seek_shortest_nanoseconds <= seek_longest_nanoseconds);
        let rates = &configuration.zone_bytes_per_second;
        assert!(!rates.is_empty() && rates.iter().all(|rate| *rate > 0), "something passes");
        Self { configuration, size_blocks, position: 0, has_lost_its_turn: true }
    }

    /// Goes to `block` and reads or writes `count` blocks from there.
    ///
    /// # Panics
    /// If they are not on the disk.
    pub fn transfer(&mut self, block: u64, count: u64) -> Motion {
        assert!(block + count <= self.size_blocks, "blocks {block} and {count} more");
        let distance_blocks = self.position.abs_diff(block);
        let is_sequential = distance_blocks == 0 && !self.has_lost_its_turn;
        let wait = if is_sequential { 0 } else { self.configuration.rotation_nanoseconds / 2 };
        let nanoseconds =
            self.seek_nanoseconds(distance_blocks) + wait + self.transfer_nanoseconds(block, count);
        (self.position, self.has_lost_its_turn) = (block + count, false);
        Motion { is_sequential, distance_blocks, nanoseconds }
    }

    /// Nothing was asked for a while, by a host that waited: what comes next has passed the head,
    /// wherever it is.
    pub fn pause(&mut self) {
        self.has_lost_its_turn = true;
    }

    /// Time to get over so many blocks; none for none.
    #[must_use]
    pub fn seek_nanoseconds(&self, distance_blocks: u64) -> u64 {
        if distance_blocks == 0 {
            return 0;
        }
        let (shortest, longest) = (
            self.configuration.seek_shortest_nanoseconds,
            self.configuration.seek_longest_nanoseconds,
        );
        let scale = u128::from(ROOT_SCALE);
        let share = u128::from(distance_blocks) * scale * scale / u128::from(self.size_blocks);
        let more = u128::from(longest - shortest) * share.isqrt() / scale;
        shortest + more as u64
    }

    /// Time for blocks to pass the head.
    fn transfer_nanoseconds(&self, block: u64, count: u64) -> u64 {
        let rates = &self.configuration.zone_bytes_per_second;
        let zone_blocks = self.size_blocks.div_ceil(rates.len() as u64);
        let (mut at, end, mut total) = (block, block + count, 0);
        while at < end {
            let zone = at / zone_blocks;
            let piece = end.min((zone + 1) * zone_blocks) - at;
            let bytes = u128::from(piece * BLOCK_SIZE_U64);
            let rate = u128::from(rates[zone as usize]);
            total += bytes * u128::from(NANOSECONDS_PER_SECOND) / rate;
            at += piece;
        }
        total as u64
    }
}
