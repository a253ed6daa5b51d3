//! The numbers of labels: of a group's labels the one with the highest counts.

use units::Timestamp;

/// Numbers of labels that one start may use.
const SEQUENCES_PER_START: u64 = 1 << 22;

const NANOSECONDS_PER_MILLISECOND: i64 = 1_000_000;

const MILLISECONDS_PER_SECOND: u64 = 1000;

/// 2100-01-01. Starts from then on are told apart by the second: by the millisecond the numbers
/// would end in 2109. By the second they end long after what a [`Timestamp`] can say.
const SECONDS_FROM_MILLISECONDS: u64 = 4_102_444_800_000;

/// The number that a start at this time begins with. It is higher than any that the start finds,
/// and than those of starts before it whose labels it does not find: a disk that was labelled last
/// before a crash, and stays away, is not believed later.
pub(crate) fn first_sequence(highest: u64, now: Timestamp) -> u64 {
    let milliseconds = u64::try_from(now.get() / NANOSECONDS_PER_MILLISECOND).unwrap_or(0);
    let late = milliseconds.saturating_sub(SECONDS_FROM_MILLISECONDS);
    let time = milliseconds - late + late / MILLISECONDS_PER_SECOND;
    let next = (highest / SEQUENCES_PER_START).saturating_add(1);
    next.max(time).saturating_mul(SEQUENCES_PER_START)
}

#[cfg(test)]
mod tests {
    use super::*;

    const YEAR_NANOSECONDS: i64 = 31_556_952_000_000_000;

    /// They ended in 2109: then every start began with the highest number, and the next label had
    /// number 0.
    #[test]
    fn regression_numbers_of_labels_grow_as_long_as_there_is_time() {
        let mut last = 0;
        for year in [0, 56, 129, 130, 131, 139, 140, 200, 292] {
            let noon = year * YEAR_NANOSECONDS;
            for start in 0..20 {
                let now = Timestamp(noon + start * 1_000_000_000);
                // What a start does not find the next is above all the same.
                let first = first_sequence(0, now);
                assert!(first > last, "year {}: {first} after {last}", 1970 + year);
                last = first + SEQUENCES_PER_START - 1;
            }
        }
        // A clock that stands still, or goes back, is no matter where the labels are found.
        for now in [i64::MAX, 0, i64::MIN] {
            for _ in 0..100_000 {
                let first = first_sequence(last, Timestamp(now));
                assert!(first > last);
                last = first + SEQUENCES_PER_START - 1;
            }
        }
        assert!(u64::MAX - last > u64::MAX / 20, "there is room for billions of starts");
    }
}
