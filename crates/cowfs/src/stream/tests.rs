//! Streams: the blocks that are loaded ahead of each kind of reader, and that none is twice.

use super::*;
use units::BlockNumber;

const SIZE: u64 = 64 << 20;
const STEP: u64 = 128 << 10;
const CACHE: u64 = 1 << 20;

fn read(start: u64, length: u64, waited: bool) -> ReadNote {
    let bytes = (start, start + length);
    ReadNote { bytes, size_bytes: SIZE, waited, cache_blocks: CACHE }
}

/// The streams that are remembered of a file, the last that was read first.
fn known(streams: &ReadStreams) -> &[ReadStream] {
    streams.0.as_ref().map_or(&[], |readers| &readers.streams)
}

/// Bytes that the file blocks of some ranges hold.
fn bytes_of(ranges: &[Range<Fbn>]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.start.get() * 4096, range.end.get() * 4096)).collect()
}

/// The byte ranges that are loaded ahead of a reader with one call under way, and how many of its
/// calls wait: those for bytes that were not loaded ahead.
fn follow(places: impl IntoIterator<Item = u64>, length: u64) -> (Vec<(u64, u64)>, usize) {
    let mut streams = ReadStreams::default();
    let (mut asked, mut waits) = (Vec::new(), 0);
    for start in places {
        let holds = |(from, to): &(u64, u64)| *from <= start && start + length <= *to;
        let waited = !asked.iter().any(holds);
        waits += usize::from(waited);
        asked.extend(bytes_of(&streams.note(&read(start, length, waited)).ahead));
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
        asked.extend(streams.note(&read(start, STEP, waited)).ahead);
    }
    assert!(asked.windows(2).all(|pair| pair[0].end == pair[1].start), "{asked:?}");
    assert_eq!(asked.last().map(|range| range.end), Some(Fbn(SIZE / 4096)));
    assert!(asked.iter().all(|range| range.end.since(range.start) <= WINDOW_BLOCKS_MAX));
}

#[test]
fn a_file_that_is_read_whole_takes_no_memory() {
    let mut streams = ReadStreams::default();
    assert_eq!(streams.note(&read(0, SIZE, true)), Noted::default());
    assert!(streams.0.is_none());
    assert!(streams.is_random((STEP, 2 * STEP)), "nobody has come there");
    streams.note(&read(0, STEP, true));
    assert!(!streams.is_random((STEP, 2 * STEP)));
}

#[test]
fn a_look_ahead_covers_a_small_share_of_the_cache() {
    let window = |cache_blocks: u64| {
        let mut streams = ReadStreams::default();
        for start in (0..SIZE).step_by(STEP as usize) {
            streams.note(&ReadNote { cache_blocks, ..read(start, STEP, true) });
        }
        known(&streams)[0].window_blocks
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
        let noted = streams.note(&ReadNote { size_bytes, ..read(start, 4096, true) });
        assert_eq!(noted, Noted::default(), "read {index}");
    }
    let mut streams = ReadStreams::default();
    for start in (0..SIZE / 2).step_by(STEP as usize) {
        assert_eq!(streams.note(&read(start, STEP, false)), Noted::default());
    }
    assert_ne!(streams.note(&read(SIZE / 2, STEP, true)).ahead, []);
    streams.rest((SIZE / 2, SIZE / 2 + STEP));
    assert_eq!(streams.note(&read(SIZE / 2 + STEP, STEP, false)).ahead, []);
}

#[test]
fn a_reader_that_rests_leaves_the_others_their_look_ahead() {
    let mut streams = ReadStreams::default();
    let (first, second) = (STEP, SIZE / 2 + STEP);
    for start in [first, second] {
        for at in (start..start + 4 * STEP).step_by(STEP as usize) {
            streams.note(&read(at, STEP, true));
        }
    }
    // The first reader's look ahead found all in memory, after the second has read once more.
    streams.rest((first + 3 * STEP, first + 4 * STEP));
    let windows = known(&streams).iter().map(|stream| stream.window_blocks > 0);
    assert_eq!(windows.collect::<Vec<_>>(), [true, false]);
}

/// A reader that nobody knows any more, because others came, rests for nobody.
#[test]
fn a_reader_that_is_forgotten_does_not_end_the_look_ahead_of_another() {
    let mut streams = ReadStreams::default();
    for at in (STEP..5 * STEP).step_by(STEP as usize) {
        streams.note(&read(at, STEP, true));
    }
    streams.rest((SIZE / 2, SIZE / 2 + STEP));
    assert!(known(&streams)[0].window_blocks > 0);
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
    assert_eq!(known(&streams).len(), 1);
    assert!(known(&streams)[0].window_blocks > 0);
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

/// With calls so large that all of the file is near.
#[test]
fn a_file_that_is_read_once_more_is_read_ahead_of_once_more() {
    let length = 1 << 20;
    let mut streams = ReadStreams::default();
    for pass in 0..3 {
        let asked = (0..16).map(|at| {
            let noted =
                streams.note(&ReadNote { size_bytes: SIZE / 4, ..read(at * length, length, true) });
            noted.ahead.len()
        });
        assert!(asked.sum::<usize>() > 1, "pass {pass}");
    }
}

#[test]
fn a_reader_behind_another_becomes_a_stream() {
    let length = 1 << 20;
    let mut streams = ReadStreams::default();
    let mut asked_behind = 0;
    for at in 0..40 {
        streams.note(&read((at + 9) * length, length, true));
        asked_behind += streams.note(&read((at + 1) * length, length, true)).ahead.len();
    }
    assert!(asked_behind > 4, "{asked_behind}");
    assert_eq!(known(&streams).len(), 2);
    // Who asks at the file's end again and again is none.
    streams.note(&read(SIZE - 1, 1, false));
    let before = known(&streams).len();
    (0..100).for_each(|_| drop(streams.note(&read(SIZE, 0, false))));
    assert_eq!(known(&streams).len(), before);
}

#[test]
fn each_run_of_a_stripe_is_told_once_as_left_behind() {
    // In order and eight calls at once, also of a size that ends at no run's end.
    let in_order = |at: u64| at;
    let eight = |at: u64| at / 8 * 8 + at * 5 % 8;
    for order in [in_order as fn(u64) -> u64, eight] {
        for length in [STEP, 96 << 10] {
            let mut streams = ReadStreams::default();
            let mut told = Vec::new();
            let mut tell = |note| told.extend(streams.note(&note).behind);
            for at in (0..SIZE.div_ceil(length) + 8).map(order).filter(|at| at * length < SIZE) {
                tell(read(at * length, length.min(SIZE - at * length), true));
            }
            // No run is told twice, also if the file's end is read again and again.
            tell(read(SIZE - 4096, 4096, true));
            tell(read(SIZE, 0, false));
            let run = |at: u64| Fbn(at * STRIPE_BLOCKS)..Fbn((at + 1) * STRIPE_BLOCKS);
            let all: Vec<_> = (0..SIZE / 4096 / STRIPE_BLOCKS).map(run).collect();
            let is_known = |run: &Range<Fbn>| all.contains(run);
            assert!(told.iter().all(is_known) && told.is_sorted_by_key(|run| run.start));
            assert!(told.windows(2).all(|pair| pair[0] != pair[1]), "{told:?}");
            assert!(told.len() >= all.len() - 1, "{} of {} bytes", told.len(), length);
        }
    }
    // From memory nothing is told.
    let mut streams = ReadStreams::default();
    let from_memory = |at| streams.note(&read(at * STEP, STEP, false)).behind;
    assert!((0..SIZE / STEP).filter_map(from_memory).next().is_none());
}

#[test]
fn who_goes_in_equal_steps_is_not_random() {
    let mut streams = ReadStreams::default();
    for at in (0..200).rev() {
        let note = read(at * STEP, 4096, true);
        assert!(at > 193 || !streams.is_random(note.bytes), "read {at}");
        streams.note(&note);
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
        asked.extend(bytes_of(&streams.note(&read(number * 4096, 4096, true)).ahead));
    }
    assert_eq!(asked, [(0, 2 * 4096)]);
    let mut streams = ReadStreams::default();
    for start in (0..SIZE).step_by(1 << 20) {
        for (_, to) in bytes_of(&streams.note(&read(start, 8192, true)).ahead) {
            assert!(to <= SIZE, "{to}");
        }
    }
    // Offsets at the end of all numbers.
    for start in [u64::MAX - 8192, u64::MAX - 4096, 0, u64::MAX - 4096] {
        let (bytes, size_bytes) = ((start, start + 4095), u64::MAX);
        streams.note(&ReadNote { bytes, size_bytes, waited: true, cache_blocks: CACHE });
    }
}
