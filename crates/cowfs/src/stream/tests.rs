use super::*;
use units::BlockNumber;

const SIZE: u64 = 64 << 20;
const STEP: u64 = 128 << 10;
const CACHE: u64 = 1 << 20;

fn read(start: u64, length: u64, waited: bool) -> ReadNote {
    let bytes = (start, start + length);
    ReadNote { bytes, size_bytes: SIZE, waited, cache_blocks: CACHE }
}

/// Bytes that the file blocks of some ranges hold.
fn bytes_of(ranges: &[Range<Fbn>]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.start.get() * 4096, range.end.get() * 4096)).collect()
}

/// What is asked for ahead of a reader with one call under way, and how often it waits: whenever
/// nobody asked for what it reads.
fn follow(places: impl IntoIterator<Item = u64>, length: u64) -> (Vec<(u64, u64)>, usize) {
    let mut streams = ReadStreams::default();
    let (mut asked, mut waits) = (Vec::new(), 0);
    for start in places {
        let holds = |(from, to): &(u64, u64)| *from <= start && start + length <= *to;
        let waited = !asked.iter().any(holds);
        waits += usize::from(waited);
        asked.extend(bytes_of(&streams.note(&read(start, length, waited))));
    }
    (asked, waits)
}

fn waits(places: impl IntoIterator<Item = u64>, length: u64) -> usize {
    follow(places, length).1
}

#[test]
fn a_stream_that_waits_is_read_ahead_of_to_its_end_and_no_block_twice() {
    let mut streams = ReadStreams::default();
    let mut asked = Vec::new();
    for start in (0..SIZE).step_by(STEP as usize) {
        let waited = asked.iter().all(|range: &Range<Fbn>| range.end.get() * 4096 < start + STEP);
        asked.extend(streams.note(&read(start, STEP, waited)));
    }
    assert!(asked.windows(2).all(|pair| pair[0].end == pair[1].start), "{asked:?}");
    assert_eq!(asked.last().map(|range| range.end), Some(Fbn(SIZE / 4096)));
    assert!(asked.iter().all(|range| range.end.since(range.start) <= WINDOW_BLOCKS_MAX));
}

#[test]
fn a_look_ahead_covers_a_small_share_of_the_cache() {
    let window = |cache_blocks: u64| {
        let mut streams = ReadStreams::default();
        for start in (0..SIZE).step_by(STEP as usize) {
            streams.note(&ReadNote { cache_blocks, ..read(start, STEP, true) });
        }
        streams.streams[0].window_blocks
    };
    assert_eq!(window(1 << 30), WINDOW_BLOCKS_MAX);
    assert_eq!(window(8 << 10), 512);
    assert_eq!(window(100), WINDOW_BLOCKS_MIN);
}

#[test]
fn reads_at_random_are_told_from_sequences() {
    let is_random = |streams: &mut ReadStreams, at: u64, size: u64| {
        let note = read(at * size, size, true);
        let is_random = streams.is_random(note.bytes);
        streams.note(&note);
        is_random
    };
    // From the begin, as calls under way come out of order; again from the begin; on.
    let mut streams = ReadStreams::default();
    for at in [0, 2, 1, 3, 7, 5, 6, 4, 8, 0, 1, 2, 12, 11] {
        assert!(!is_random(&mut streams, at, STEP), "read {at}");
    }
    // In a small file, too.
    let mut streams = ReadStreams::default();
    for at in [200, 100, 50, 250, 120] {
        assert!(is_random(&mut streams, at, 4096), "read {at}");
    }
    assert!(!is_random(&mut streams, 121, 4096));
}

#[test]
fn nothing_is_asked_for_random_reads_nor_for_cached_ones() {
    let mut streams = ReadStreams::default();
    let size_bytes = 1 << 40;
    for index in 0..100_u64 {
        let start = (1 + index * index * 37 % 1009) * (8 << 20);
        let ahead = streams.note(&ReadNote { size_bytes, ..read(start, 4096, true) });
        assert_eq!(ahead, [], "read {index}");
    }
    let mut streams = ReadStreams::default();
    for start in (0..SIZE / 2).step_by(STEP as usize) {
        assert_eq!(streams.note(&read(start, STEP, false)), []);
    }
    assert_ne!(streams.note(&read(SIZE / 2, STEP, true)), []);
    streams.rest();
    assert_eq!(streams.note(&read(SIZE / 2 + STEP, STEP, false)), []);
}

/// Sixteen calls of a mebibyte are under way, and are answered in any order.
#[test]
fn a_reader_with_many_calls_under_way_stays_one_stream() {
    let mut streams = ReadStreams::default();
    let length = 1 << 20;
    for round in 0..4 {
        for index in 0..16 {
            let number = round * 16 + index * 7 % 16;
            let note = read(number * length, length, true);
            assert!(number == 0 || !streams.is_random(note.bytes), "read {number}");
            streams.note(&note);
        }
    }
    assert_eq!(streams.streams.len(), 1);
    assert!(streams.is_from_disk());
}

#[test]
fn several_readers_of_a_file_are_streams_of_their_own() {
    let quarters = |at: u64| (0..4).map(move |quarter| quarter * (SIZE / 4) + at);
    let places = (0..SIZE / 4).step_by(STEP as usize).flat_map(quarters);
    assert!(waits(places, STEP) <= 4 * 4, "each waits for its first reads only");
    // Reads at random between end none.
    let mut streams = ReadStreams::default();
    for number in 0..100 {
        streams.note(&read(number * STEP, STEP, true));
        let far = SIZE / 2 + number * 7919 % 8192 * 4096;
        assert!(streams.is_random(read(far, 4096, true).bytes), "read {number}");
        streams.note(&read(far, 4096, true));
        assert!(!streams.is_random(read((number + 1) * STEP, STEP, true).bytes), "read {number}");
    }
}

#[test]
fn who_goes_in_equal_steps_is_read_ahead_of() {
    let length = 8192;
    let reads = 500_u64;
    // Over gaps, backward, and backward over gaps.
    let over = |number: u64| number << 16;
    assert!(waits((0..reads).map(over), length) <= 9);
    assert!(waits((0..reads).rev().map(|number| number * length), length) <= 9);
    assert!(waits((0..reads).rev().map(over), length) <= 9);
    // What lies between is not asked for, nor anything twice.
    let (asked, _) = follow((0..reads).map(over), length);
    let asked_bytes: u64 = asked.iter().map(|(from, to)| to - from).sum();
    assert!(asked_bytes <= (reads + 64) * length, "{asked_bytes} bytes");
}

#[test]
fn nothing_is_asked_for_beyond_the_ends_of_a_file() {
    let mut streams = ReadStreams::default();
    let mut asked = Vec::new();
    for number in (0..8).rev() {
        asked.extend(bytes_of(&streams.note(&read(number * 4096, 4096, true))));
    }
    assert_eq!(asked, [(0, 2 * 4096)]);
    let mut streams = ReadStreams::default();
    for start in (0..SIZE).step_by(1 << 20) {
        for (_, to) in bytes_of(&streams.note(&read(start, 8192, true))) {
            assert!(to <= SIZE, "{to}");
        }
    }
    // Offsets at the end of all numbers.
    for start in [u64::MAX - 8192, u64::MAX - 4096, 0, u64::MAX - 4096] {
        let (bytes, size_bytes) = ((start, start + 4095), u64::MAX);
        streams.note(&ReadNote { bytes, size_bytes, waited: true, cache_blocks: CACHE });
    }
}
