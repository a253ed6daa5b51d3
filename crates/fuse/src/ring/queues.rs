//! The kernel's queues: one for each processor that there may be.
//!
//! Fails: where their number cannot be read, there is none.

/// Where Linux lists the processors that there may be, as ranges.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// How many queues the kernel has.
pub(super) fn count() -> Option<u16> {
    count_in(&std::fs::read_to_string(POSSIBLE).ok()?)
}

fn count_in(list: &str) -> Option<u16> {
    let count = |range: &str| -> Option<u16> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    let mut counts = list.trim().split(',').map(count);
    counts.try_fold(0_u16, |sum, count| sum.checked_add(count?)).filter(|sum| *sum > 0)
}

#[cfg(test)]
mod tests {
    use super::count_in;

    #[test]
    fn processors_are_counted() {
        let counted = ["0\n", "0-1\n", "0-3,8-11\n", "0,2,4-5"].map(count_in);
        assert_eq!(counted, [Some(1), Some(2), Some(8), Some(4)]);
        for strange in ["", "\n", "x", "3-1", "0-", "0-65535", "0-70000", "0-65534,1"] {
            assert_eq!(count_in(strange), None, "{strange}");
        }
    }
}
