//! How long operations take, and how many bytes they move: by operation and protocol, and, in
//! coarser steps, by volume (decision 45).
//!
//! A call is counted on the thread that answers it. Threads count in shards: each thread keeps to
//! one, so that two processors seldom meet in a cache line. A volume is found by its identity in a
//! table of fixed size, without a lock.
//!
//! Invariants:
//! - [`Operations::observe`] takes no lock and waits for nobody. It allocates once for each place
//!   of a volume.
//! - The memory is bounded when the table is made ([`Operations::memory_bytes_max`]). Volumes past
//!   that share one series, with the name `(overflow)`.
//! - Only volumes that were made known are counted by name: what a client makes up makes no series.
//! - A volume that is forgotten leaves no series, and its place begins at zero for the next one. A
//!   call that is counted in the very moment of that may be lost, or be the next volume's.
//!
//! Fails: a wrong number of an operation or a protocol is a programming error and panics.

use crate::definitions::{
    Definition, OPERATION_DURATION, VOLUME_OPERATION_DURATION, VOLUME_TRANSFERRED,
};
use crate::registry::OVERFLOW;
use crate::snapshot::{MetricSnapshot, SeriesSnapshot, Value};
use platform::sync::{Mutex, thread_local};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Most shards: beyond that threads of several processors share one, which costs them a few
/// nanoseconds and no wait.
const SHARDS_MAX: usize = 16;
/// Most volumes that are counted by name, however much memory there is: a scrape stays below some
/// megabytes.
const PLACES_MAX: usize = 2048;
/// How far from its home in the table a volume may lie.
const WINDOW_SLOTS: usize = 16;
/// Slots of the table for each place: with one in four taken no window is ever full in practice.
const SLOTS_PER_PLACE: usize = 4;

/// Numbers of a row: buckets of the fine histogram, and the sum.
const ROW_NUMBERS: usize = 24;
/// Numbers of a line: buckets of the coarse histogram, the sum, and bytes.
const LINE_NUMBERS: usize = 8;
const ROW_SUM: usize = ROW_NUMBERS - 1;
const LINE_SUM: usize = LINE_NUMBERS - 2;
const LINE_BYTES: usize = LINE_NUMBERS - 1;
const FINE: &[u64] = OPERATION_DURATION.bounds;
const COARSE: &[u64] = VOLUME_OPERATION_DURATION.bounds;
const _: () = assert!(FINE.len() < ROW_SUM && COARSE.len() < LINE_SUM);

/// The coarse bucket of what is in a fine one: the coarse bounds are fine ones, too.
const COARSE_BUCKETS: [usize; FINE.len() + 1] = {
    let mut buckets = [0; FINE.len() + 1];
    let (mut fine, mut coarse) = (0, 0);
    while fine < buckets.len() {
        buckets[fine] = coarse;
        if fine < FINE.len() && coarse < COARSE.len() && FINE[fine] == COARSE[coarse] {
            coarse += 1;
        }
        fine += 1;
    }
    assert!(coarse == COARSE.len());
    buckets
};

/// One operation of one protocol in one shard.
#[derive(Default)]
#[repr(align(64))]
struct Row([AtomicU64; ROW_NUMBERS]);

/// One class of operations of one protocol on one volume in one shard: a cache line.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; LINE_NUMBERS]);

/// What an operation is to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It reads data.
    Read,
    /// It writes data.
    Write,
    /// Anything else.
    Other,
}

impl Class {
    const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// The identity of a volume.
pub type VolumeKey = [u8; 16];

/// A call that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The number of the operation.
    pub operation: usize,
    /// The number of the protocol.
    pub protocol: usize,
    /// The volume, if it was about one.
    pub volume: Option<VolumeKey>,
    /// What it is to the volume.
    pub class: Class,
    /// How long it took.
    pub nanoseconds: u64,
    /// Bytes of data that it moved.
    pub bytes: u64,
}

/// One slot of the table: an identity in two halves, and where the volume is counted.
#[derive(Default)]
struct Slot {
    high: AtomicU64,
    /// Zero: the slot is empty. Written last, and read first.
    low: AtomicU64,
    place: AtomicU32,
}

/// A volume that is counted by name.
struct Named {
    key: VolumeKey,
    /// Its slot and its place; none if there was no room.
    place: Option<(usize, u32)>,
}

struct Names {
    volumes: BTreeMap<String, Named>,
    free: Vec<u32>,
}

/// See the module.
pub struct Operations {
    operations: &'static [&'static str],
    protocols: &'static [&'static str],
    shards: usize,
    rows: Box<[Row]>,
    slots: Box<[Slot]>,
    /// By place; the last is of the volumes for which there is none.
    places: Box<[OnceLock<Box<[Line]>>]>,
    places_used: AtomicUsize,
    has_overflown: AtomicBool,
    names: Mutex<Names>,
}

thread_local! {
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The number by which this thread chooses a shard: another for each thread, in turn.
#[must_use]
pub fn shard_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SHARD.with(|shard| match shard.get() {
        Some(number) => number,
        None => {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            shard.set(Some(number));
            number
        }
    })
}

fn zeroed<T: Default>(count: usize) -> Box<[T]> {
    (0..count).map(|_| T::default()).collect()
}

/// The two halves of an identity; the lower one is never zero.
fn halves(key: VolumeKey) -> (u64, u64) {
    let number = u128::from_le_bytes(key);
    ((number >> 64) as u64, (number as u64).max(1))
}

impl Operations {
    /// Counts nothing as yet. `threads` is how many run at a time; volumes take at most
    /// `memory_bytes`, but there is always room for one.
    #[must_use]
    pub fn new(
        operations: &'static [&'static str],
        protocols: &'static [&'static str],
        (memory_bytes, threads): (u64, usize),
    ) -> Self {
        let shards = threads.clamp(1, SHARDS_MAX).next_power_of_two();
        let place_bytes = (shards * protocols.len() * Class::ALL.len() * size_of::<Line>()) as u64;
        let places = (memory_bytes / place_bytes.max(1)).clamp(2, PLACES_MAX as u64) as usize;
        // One is for those past the limit.
        let named = places - 1;
        let slots = (named * SLOTS_PER_PLACE).next_power_of_two().max(WINDOW_SLOTS);
        Self {
            operations,
            protocols,
            shards,
            rows: zeroed(shards * protocols.len() * operations.len()),
            slots: zeroed(slots),
            places: zeroed(places),
            places_used: AtomicUsize::new(0),
            has_overflown: AtomicBool::new(false),
            names: Mutex::new(Names {
                volumes: BTreeMap::new(),
                free: (0..named as u32).rev().collect(),
            }),
        }
    }

    /// How many shards there are.
    #[must_use]
    pub const fn shards(&self) -> usize {
        self.shards
    }

    const fn place_bytes(&self) -> usize {
        self.shards * self.protocols.len() * Class::ALL.len() * size_of::<Line>()
    }

    fn fixed_bytes(&self) -> usize {
        size_of_val(&*self.rows) + size_of_val(&*self.slots) + size_of_val(&*self.places)
    }

    /// The memory that it has.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let used = self.places_used.load(Ordering::Relaxed);
        (self.fixed_bytes() + used * self.place_bytes()) as u64
    }

    /// The most that it will have.
    #[must_use]
    pub fn memory_bytes_max(&self) -> u64 {
        (self.fixed_bytes() + self.places.len() * self.place_bytes()) as u64
    }

    /// A volume is there, known from now on as `name`.
    pub fn know(&self, key: VolumeKey, name: &str) {
        let mut names = self.names.lock();
        let known = names.volumes.iter().find(|(_, known)| known.key == key);
        let known = known.map(|(name, _)| name.clone());
        let renamed = match known {
            Some(known) if known == name => return,
            Some(known) => names.volumes.remove(&known),
            None => None,
        };
        self.leave(&mut names, name);
        let named = renamed.unwrap_or_else(|| {
            let place = names.free.pop();
            let placed = place.and_then(|place| Some((self.put(key, place)?, place)));
            if placed.is_none() {
                names.free.extend(place);
                self.has_overflown.store(true, Ordering::Relaxed);
            }
            Named { key, place: placed }
        });
        names.volumes.insert(name.to_owned(), named);
    }

    /// A volume is gone.
    pub fn forget(&self, key: VolumeKey) {
        let mut names = self.names.lock();
        let known = names.volumes.iter().find(|(_, known)| known.key == key);
        if let Some(name) = known.map(|(name, _)| name.clone()) {
            self.leave(&mut names, &name);
        }
    }

    fn leave(&self, names: &mut Names, name: &str) {
        let Some(Named { place: Some((slot, place)), .. }) = names.volumes.remove(name) else {
            return;
        };
        if let Some(slot) = self.slots.get(slot) {
            slot.low.store(0, Ordering::Release);
        }
        let lines = self.places.get(place as usize).and_then(OnceLock::get);
        let numbers = lines.into_iter().flatten().flat_map(|line| &line.0);
        numbers.for_each(|number| number.store(0, Ordering::Relaxed));
        names.free.push(place);
    }

    fn window(&self, low: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        let home = low as usize;
        (0..WINDOW_SLOTS).map(move |step| home.wrapping_add(step) & mask)
    }

    /// Puts a volume into the table; its slot, unless the window is full.
    fn put(&self, key: VolumeKey, place: u32) -> Option<usize> {
        let (high, low) = halves(key);
        let is_empty = |at: &usize| {
            self.slots.get(*at).is_some_and(|slot| slot.low.load(Ordering::Relaxed) == 0)
        };
        let at = self.window(low).find(is_empty)?;
        let slot = self.slots.get(at)?;
        slot.high.store(high, Ordering::Relaxed);
        slot.place.store(place, Ordering::Relaxed);
        slot.low.store(low, Ordering::Release);
        Some(at)
    }

    fn place_of(&self, key: VolumeKey) -> Option<usize> {
        let (high, low) = halves(key);
        let slots = self.window(low).filter_map(|at| self.slots.get(at));
        let mut its = slots.filter(|slot| {
            slot.low.load(Ordering::Acquire) == low && slot.high.load(Ordering::Relaxed) == high
        });
        its.next().map(|slot| slot.place.load(Ordering::Relaxed) as usize)
    }

    /// Counts a call.
    ///
    /// # Panics
    /// If there is no such operation or protocol.
    pub fn observe(&self, seen: &Observation) {
        let Observation { operation, protocol, nanoseconds, .. } = *seen;
        assert!(operation < self.operations.len() && protocol < self.protocols.len());
        let shard = shard_of_thread() & (self.shards - 1);
        let group = shard * self.protocols.len() + protocol;
        // From the shortest on: most calls are short.
        let bucket = FINE.iter().position(|bound| *bound >= nanoseconds).unwrap_or(FINE.len());
        if let Some(Row(row)) = self.rows.get(group * self.operations.len() + operation) {
            count(row, (bucket, ROW_SUM), nanoseconds);
        }
        let Some(key) = seen.volume else { return };
        let overflow = || self.has_overflown.load(Ordering::Relaxed).then(|| self.places.len() - 1);
        let place = self.place_of(key).or_else(overflow);
        let Some(place) = place.and_then(|place| self.places.get(place)) else { return };
        let lines = place.get_or_init(|| {
            self.places_used.fetch_add(1, Ordering::Relaxed);
            zeroed(self.place_bytes() / size_of::<Line>())
        });
        if let Some(Line(line)) = lines.get(group * Class::ALL.len() + seen.class as usize) {
            count(line, (COARSE_BUCKETS[bucket], LINE_SUM), nanoseconds);
            if seen.bytes > 0 {
                line[LINE_BYTES].fetch_add(seen.bytes, Ordering::Relaxed);
            }
        }
    }

    /// Its metrics, now, in order of name.
    #[must_use]
    pub fn snapshot(&self) -> Vec<MetricSnapshot> {
        let mut durations = Vec::new();
        for (protocol, protocol_name) in self.protocols.iter().enumerate() {
            for (operation, name) in self.operations.iter().enumerate() {
                let rows = (0..self.shards).filter_map(|shard| {
                    let group = shard * self.protocols.len() + protocol;
                    self.rows.get(group * self.operations.len() + operation)
                });
                let sums: [u64; ROW_NUMBERS] = sums(rows.map(|row| &row.0));
                let value = histogram(&sums, FINE, ROW_SUM);
                durations.extend(series(&[("op", name), ("protocol", protocol_name)], value));
            }
        }
        let (mut by_volume, mut bytes) = (Vec::new(), Vec::new());
        let names = self.names.lock();
        let named = names
            .volumes
            .iter()
            .filter_map(|(name, named)| Some((name.as_str(), named.place?.1 as usize)));
        for (volume, place) in named.chain([(OVERFLOW, self.places.len() - 1)]) {
            let Some(lines) = self.places.get(place).and_then(OnceLock::get) else { continue };
            for (protocol, protocol_name) in self.protocols.iter().enumerate() {
                for class in Class::ALL {
                    let lines = (0..self.shards).filter_map(|shard| {
                        let group = shard * self.protocols.len() + protocol;
                        lines.get(group * Class::ALL.len() + class as usize)
                    });
                    let sums: [u64; LINE_NUMBERS] = sums(lines.map(|line| &line.0));
                    let value = histogram(&sums, COARSE, LINE_SUM);
                    let (name, protocol) = (class.name(), *protocol_name);
                    let labels = [("protocol", protocol), ("volume", volume)];
                    let labelled = |label, name| [[(label, name)].as_slice(), &labels].concat();
                    by_volume.extend(series(&labelled("op", name), value));
                    let moved = Some(Value::Counter(sums[LINE_BYTES]));
                    let moved = moved.filter(|_| sums[LINE_BYTES] > 0);
                    bytes.extend(series(&labelled("direction", name), moved));
                }
            }
        }
        drop(names);
        let all = [
            (&OPERATION_DURATION, durations),
            (&VOLUME_OPERATION_DURATION, by_volume),
            (&VOLUME_TRANSFERRED, bytes),
        ];
        all.into_iter().filter(|(_, series)| !series.is_empty()).map(metric).collect()
    }
}

fn count(numbers: &[AtomicU64], (bucket, sum): (usize, usize), nanoseconds: u64) {
    for (at, value) in [(bucket, 1), (sum, nanoseconds)] {
        if let Some(number) = numbers.get(at) {
            number.fetch_add(value, Ordering::Relaxed);
        }
    }
}

fn sums<'a, const N: usize>(shards: impl Iterator<Item = &'a [AtomicU64; N]>) -> [u64; N] {
    let mut sums = [0_u64; N];
    for numbers in shards {
        for (sum, number) in sums.iter_mut().zip(numbers) {
            *sum = sum.wrapping_add(number.load(Ordering::Relaxed));
        }
    }
    sums
}

/// None if nothing was counted.
fn histogram(numbers: &[u64], bounds: &[u64], sum: usize) -> Option<Value> {
    let counts = numbers.get(..=bounds.len())?;
    let sum = *numbers.get(sum)?;
    let is_used = counts.iter().any(|count| *count > 0);
    is_used.then(|| Value::Histogram { bounds: bounds.to_vec(), counts: counts.to_vec(), sum })
}

fn series(labels: &[(&str, &str)], value: Option<Value>) -> Option<SeriesSnapshot> {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Some(SeriesSnapshot { labels: labels.iter().map(owned).collect(), value: value? })
}

fn metric((definition, series): (&Definition, Vec<SeriesSnapshot>)) -> MetricSnapshot {
    MetricSnapshot {
        name: definition.name.to_owned(),
        help: definition.help.to_owned(),
        kind: definition.kind,
        unit: definition.unit,
        series,
    }
}

#[cfg(test)]
mod tests;
