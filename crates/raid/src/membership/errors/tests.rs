//! One disk's errors by themselves: how many are too many, and when its label takes them in.

use super::*;

const SECOND: u64 = 1_000_000_000;

fn health() -> Health {
    Health::new(units::DiskUuid([1; 16]), Known::default())
}

fn unreadable(health: &mut Health, blocks: std::ops::Range<u64>) {
    blocks.for_each(|block| health.add(Trouble::Unreadable { block }));
}

#[test]
fn errors_are_too_many_within_the_window_only() {
    let most = UNREADABLE_BLOCKS_MAX as u64;
    let mut health = health();
    for hour in 0..5 {
        health.tick(hour * WINDOW_NANOSECONDS);
        unreadable(&mut health, 100 * hour..100 * hour + most - 1);
        health.tick(hour * WINDOW_NANOSECONDS);
        assert_eq!(health.known.1, None, "hour {hour}");
    }
    // The window slides: those of a while ago count until they are an hour old.
    health.tick(6 * WINDOW_NANOSECONDS);
    unreadable(&mut health, 0..most / 2);
    health.tick(6 * WINDOW_NANOSECONDS);
    unreadable(&mut health, 50..50 + most / 2 - 1);
    health.tick(7 * WINDOW_NANOSECONDS - 1);
    assert_eq!(health.known.1, None);
    unreadable(&mut health, 90..91);
    assert_eq!(health.known.1, Some(Sickness::Unreadable));
    let expected = 5 * (most - 1) + most;
    assert_eq!(u64::from(health.known.0.read_errors), expected);
    // It stays sick, and goes on being counted.
    health.tick(100 * WINDOW_NANOSECONDS);
    unreadable(&mut health, 0..7);
    assert_eq!(health.known.1, Some(Sickness::Unreadable));
    assert_eq!(u64::from(health.known.0.read_errors), expected + 7);
}

#[test]
fn one_block_that_is_read_again_and_again_is_no_sick_disk() {
    let mut health = health();
    for second in 0..1000 {
        health.add(Trouble::Unreadable { block: 7 });
        health.add(Trouble::Rotten { block: 8 + second % 2 });
        health.tick(second * SECOND);
    }
    let expected = ErrorCounts { read_errors: 1000, write_errors: 0, checksum_errors: 1000 };
    assert_eq!(health.known, (expected, None));
}

#[test]
fn each_kind_of_error_has_its_own_measure() {
    let mut rotten = health();
    (1..ROTTEN_BLOCKS_MAX as u64).for_each(|block| rotten.add(Trouble::Rotten { block }));
    unreadable(&mut rotten, 1..UNREADABLE_BLOCKS_MAX as u64);
    (1..FAILURES_MAX).for_each(|_| {
        rotten.add(Trouble::Failure { is_write: false });
        rotten.tick(1);
    });
    assert_eq!(rotten.known.1, None);
    rotten.add(Trouble::Rotten { block: 0 });
    assert_eq!(rotten.known.1, Some(Sickness::Rotten));
    let mut unreliable = health();
    // All that it had under way fails with it.
    (0..FAILURES_MAX).for_each(|_| unreliable.add(Trouble::Failure { is_write: true }));
    assert_eq!(unreliable.known.1, None);
    (1..FAILURES_MAX).for_each(|_| {
        unreliable.tick(1);
        unreliable.add(Trouble::Failure { is_write: true });
    });
    assert_eq!(unreliable.known.1, Some(Sickness::Unreliable));
    assert_eq!(unreliable.known.0.write_errors as usize, FAILURES_MAX);
}

/// Whatever happens, no more is remembered than makes a disk sick.
#[test]
fn little_is_remembered() {
    let mut health = health();
    for number in 0..100_000 {
        health.add(Trouble::Rotten { block: number });
        if number % 20 == 0 {
            health.tick(number * WINDOW_NANOSECONDS);
        }
        assert!(health.recent.len() <= ROTTEN_BLOCKS_MAX);
    }
    assert_eq!(health.known.0.checksum_errors, 100_000);
    assert_eq!(health.known.1, None, "forty within an hour at most");
}

#[test]
fn the_label_takes_counts_in_at_once_and_then_now_and_then() {
    let mut health = health();
    assert!(health.may_be_saved(Some(1)));
    health.saved_nanoseconds = Some(1);
    assert!(!health.may_be_saved(Some(SAVE_INTERVAL_NANOSECONDS)));
    assert!(health.may_be_saved(Some(1 + SAVE_INTERVAL_NANOSECONDS)));
    assert!(health.may_be_saved(None), "at a stop");
    let known = (
        ErrorCounts { read_errors: 1, write_errors: 2, checksum_errors: u32::MAX },
        Some(Sickness::Rotten),
    );
    let mut label = DiskLabel::empty();
    tell(known, &mut label);
    assert_eq!(known_of(&label), known);
    let mut full = Health::new(units::DiskUuid([1; 16]), known);
    full.add(Trouble::Rotten { block: 1 });
    assert_eq!(full.known.0.checksum_errors, u32::MAX);
    label.clear_errors();
    assert_eq!(known_of(&label), Known::default());
}
