//! How many writes a device is given at a time.
//!
//! A consistency point has thousands of writes ready at once. A device that takes them all answers
//! nothing else until they are done, and a client waits for the log's write behind them. So a
//! device is given what it writes within [`LATENCY_NANOSECONDS`], which keeps it busy, and the rest
//! waits here, where all other requests go past it. While a read or a durable write is under way,
//! whoever asked for it, and a moment longer, the window is the smallest.
//! Disks that are files of one file system share its device's window.
//!
//! Invariants: a write waits only while others are in the device; each that ends admits those that
//! then fit, in their order.

use crate::Clock as _;
use crate::linux::clock::SystemClock;
use crate::linux::transfer::Transfer;
use crate::stage::Queue;
use crate::sync::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The smallest window: four tetrises of one disk, so that there is always another one to go on
/// with, and less than a fast SSD writes in a millisecond.
const WINDOW_BLOCKS_MIN: usize = 256;
/// The largest: what a device writes in that time which writes 2 GiB a second.
const WINDOW_BLOCKS_MAX: usize = 4096;
/// Writes in a device, however small: fewer than a ring takes, so that others find a place in it.
const WRITES_MAX: usize = 128;
/// How long writes may be in a device that is fast enough for more than the smallest window.
const LATENCY_NANOSECONDS: u64 = 8_000_000;
/// How long a device counts as waited for after the last urgent request: who made it has come back
/// with the next by then.
const URGENT_NANOSECONDS: u64 = 10_000_000;

struct State {
    window_blocks: usize,
    admitted_blocks: usize,
    admitted_writes: usize,
    waiting: VecDeque<Transfer>,
}

impl Default for State {
    fn default() -> Self {
        let (admitted_blocks, admitted_writes, waiting) = (0, 0, VecDeque::new());
        Self { window_blocks: WINDOW_BLOCKS_MIN, admitted_blocks, admitted_writes, waiting }
    }
}

/// When a write went to the device, and how many blocks were in it then, with its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Admission {
    nanoseconds: u64,
    blocks: usize,
}

/// The writes of one device.
#[derive(Default)]
pub(super) struct WriteWindow {
    state: Mutex<State>,
    /// Urgent requests in the device.
    urgent: AtomicUsize,
    /// When the last of them will have ended a moment ago.
    urgent_until: AtomicU64,
}

impl WriteWindow {
    /// Lets a write through, or keeps it until there is room.
    pub(super) fn admit(&self, mut transfer: Transfer) -> Option<Transfer> {
        let now = SystemClock.monotonic_nanoseconds();
        let is_urgent = self.is_urgent(now);
        let mut state = self.state.lock();
        if !state.waiting.is_empty() || !state.fits(transfer.block_count(), is_urgent) {
            Queue::WindowBlocks.add(transfer.block_count() as i64);
            state.waiting.push_back(transfer);
            return None;
        }
        transfer.note_admission(state.admit(transfer.block_count(), now));
        Some(transfer)
    }

    /// A write of `block_count` blocks is over: what goes through now.
    pub(super) fn release(&self, block_count: usize, admission: Admission) -> Vec<Transfer> {
        let now = SystemClock.monotonic_nanoseconds();
        let is_urgent = self.is_urgent(now);
        let mut state = self.state.lock();
        // A window that is not full, or not the device's own business, tells nothing.
        if !state.waiting.is_empty() && !is_urgent {
            state.learn(block_count, now.saturating_sub(admission.nanoseconds), admission.blocks);
        }
        state.release(block_count);
        let mut through = Vec::new();
        while let Some(first) = state.waiting.front()
            && state.fits(first.block_count(), is_urgent)
            && let Some(mut first) = state.waiting.pop_front()
        {
            Queue::WindowBlocks.add(-(first.block_count() as i64));
            first.note_admission(state.admit(first.block_count(), now));
            through.push(first);
        }
        through
    }

    /// An urgent request goes to the device.
    pub(super) fn begin_urgent(&self) {
        self.urgent.fetch_add(1, Ordering::Relaxed);
    }

    /// It is over.
    pub(super) fn end_urgent(&self) {
        let until = SystemClock.monotonic_nanoseconds() + URGENT_NANOSECONDS;
        self.urgent_until.store(until, Ordering::Relaxed);
        self.urgent.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_urgent(&self, now: u64) -> bool {
        self.urgent.load(Ordering::Relaxed) > 0 || now < self.urgent_until.load(Ordering::Relaxed)
    }
}

impl State {
    /// One write fits always.
    const fn fits(&self, block_count: usize, is_urgent: bool) -> bool {
        let window = if is_urgent { WINDOW_BLOCKS_MIN } else { self.window_blocks };
        let has_room = self.admitted_blocks + block_count <= window;
        self.admitted_blocks == 0 || has_room && self.admitted_writes < WRITES_MAX
    }

    fn admit(&mut self, block_count: usize, now: u64) -> Admission {
        self.admitted_blocks += block_count;
        self.admitted_writes += 1;
        Queue::DeviceWrites.add(1);
        Admission { nanoseconds: now, blocks: self.admitted_blocks }
    }

    fn release(&mut self, block_count: usize) {
        self.admitted_blocks -= block_count;
        self.admitted_writes -= 1;
        Queue::DeviceWrites.add(-1);
    }

    /// A write ended which was in the device for so long, and before it, with its own, so many
    /// blocks: so many it writes in that time. The window goes towards what it writes in the time
    /// that it may take, by what this write is of it.
    fn learn(&mut self, block_count: usize, nanoseconds: u64, blocks: usize) {
        let written = blocks as u64 * LATENCY_NANOSECONDS / nanoseconds.max(1);
        let fitting = usize::try_from(written).unwrap_or(usize::MAX);
        let wanted = fitting.clamp(WINDOW_BLOCKS_MIN, WINDOW_BLOCKS_MAX);
        let window = self.window_blocks;
        self.window_blocks = wanted.clamp(window.saturating_sub(block_count), window + block_count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seeded;
    use std::ops::RangeInclusive;

    const WRITE_BLOCKS: usize = 64;

    /// What the window is, and how long writes are in the device, once that has settled: of a
    /// device that writes a block in so many nanoseconds, more or less by so many percent.
    fn settle(
        block_nanoseconds: u64,
        jitter_percent: u64,
    ) -> (RangeInclusive<usize>, RangeInclusive<u64>) {
        let (mut state, mut numbers) = (State::default(), Seeded::new(7));
        let (mut now, mut in_device) = (1, VecDeque::new());
        let (mut windows, mut latencies) = (Vec::new(), Vec::new());
        for number in 0..20_000 {
            while state.fits(WRITE_BLOCKS, false) {
                in_device.push_back(state.admit(WRITE_BLOCKS, now));
            }
            let percent = 100 - jitter_percent + numbers.below(2 * jitter_percent + 1);
            now += WRITE_BLOCKS as u64 * block_nanoseconds * percent / 100;
            let Admission { nanoseconds, blocks } = in_device.pop_front().unwrap();
            state.learn(WRITE_BLOCKS, now - nanoseconds, blocks);
            state.release(WRITE_BLOCKS);
            if number > 1_000 {
                windows.push(state.window_blocks);
                latencies.push(now - nanoseconds);
            }
        }
        let (low, high) = (windows.iter().min().unwrap(), windows.iter().max().unwrap());
        let (soonest, latest) = (latencies.iter().min().unwrap(), latencies.iter().max().unwrap());
        (*low..=*high, *soonest..=*latest)
    }

    #[test]
    fn the_window_is_what_the_device_writes_in_the_time_that_it_may_take() {
        // 1 GB/s: some 2,000 blocks in eight milliseconds.
        let (windows, latencies) = settle(4_000, 0);
        assert!(*windows.start() >= 1_900 && *windows.end() <= 2_100, "{windows:?} blocks");
        assert!(*latencies.end() <= LATENCY_NANOSECONDS * 11 / 10, "{latencies:?} ns");
        let (windows, latencies) = settle(4_000, 80);
        assert!(*windows.start() >= 1_200 && *windows.end() <= 3_500, "{windows:?} blocks");
        assert!(*latencies.end() <= LATENCY_NANOSECONDS * 2, "{latencies:?} ns");
        // 40 GB/s, and 100 MB/s: the limits.
        assert_eq!(settle(100, 20).0, WINDOW_BLOCKS_MAX..=WINDOW_BLOCKS_MAX);
        assert_eq!(settle(40_000, 20).0, WINDOW_BLOCKS_MIN..=WINDOW_BLOCKS_MIN);
    }

    #[test]
    fn somebody_who_waits_has_the_smallest_window() {
        let window = WriteWindow::default();
        window.state.lock().window_blocks = 2_000;
        let fits = |admitted_blocks: usize, now: u64| {
            let is_urgent = window.is_urgent(now);
            let mut state = window.state.lock();
            state.admitted_blocks = admitted_blocks;
            state.fits(WRITE_BLOCKS, is_urgent)
        };
        assert!(fits(1_900, u64::MAX) && !fits(1_950, u64::MAX));
        window.begin_urgent();
        assert!(!fits(256, u64::MAX) && fits(192, u64::MAX) && fits(0, u64::MAX));
        window.end_urgent();
        // A moment longer, and as large as before afterwards.
        assert!(!fits(256, 0) && fits(1_900, u64::MAX));
    }

    #[test]
    fn small_writes_leave_room_in_the_ring() {
        let mut state = State { window_blocks: WINDOW_BLOCKS_MAX, ..State::default() };
        let mut count = 0;
        while state.fits(1, false) {
            state.admit(1, 0);
            count += 1;
        }
        assert_eq!(count, WRITES_MAX);
        (0..count).for_each(|_| state.release(1));
    }
}
