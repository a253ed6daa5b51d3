//! The kernel's queues: one for each processor that there may be.
//!
//! Fails: where their number cannot be read, there is none.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where Linux lists the processors that there may be, as ranges.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
/// The same for those that run.
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// How many queues the kernel has. None if programs may run where this process may not: see
/// [`on`].
pub(super) fn count() -> Option<u16> {
    let count = |list| count_in(&std::fs::read_to_string(list).ok()?);
    let own = sched_getaffinity(None).ok()?;
    if own.count() < u32::from(count(ONLINE)?) {
        return None;
    }
    count(POSSIBLE)
}

/// Whether this thread may choose the processors that it runs on: a filter of system calls may be
/// against it.
pub(super) fn may_choose() -> rustix::io::Result<()> {
    sched_setaffinity(None, &sched_getaffinity(None)?)
}

/// Has this thread run on the processor of a queue.
pub(super) fn bind(queue: u16) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(usize::from(queue));
    sched_setaffinity(None, &set)
}

/// Runs `body` on the processor of a queue, if there is one: without it there are no programs whose
/// requests are in the queue.
pub(super) fn on(queue: u16, body: impl FnOnce()) {
    let Ok(before) = sched_getaffinity(None) else { return };
    if bind(queue).is_ok() {
        body();
        // This was allowed before. Elsewhere the thread is slower, and right.
        let _best_effort = sched_setaffinity(None, &before);
    }
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
