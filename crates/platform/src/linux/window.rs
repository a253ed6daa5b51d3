//! How many writes a device is given at a time.
//!
//! A consistency point has thousands of writes ready at once. A device that takes them all answers
//! nothing else until they are done, and a client waits for the log's write behind them. A device
//! is at its full speed with a few: the rest wait here, where what is urgent goes past them.
//! Disks that are files of one file system share its device's window.
//!
//! Invariants: a write waits only while others are in the device; each that ends admits those that
//! then fit, in their order.

use crate::linux::transfer::Transfer;
use crate::sync::Mutex;
use std::collections::VecDeque;

/// Blocks of writes in one device: four tetrises, so that there is always another one to go on
/// with, and less than a fast SSD moves in a millisecond.
const WINDOW_BLOCKS: usize = 256;

#[derive(Default)]
struct State {
    admitted_blocks: usize,
    waiting: VecDeque<Transfer>,
}

/// The writes of one device.
#[derive(Default)]
pub(super) struct WriteWindow(Mutex<State>);

impl WriteWindow {
    /// Lets a write through, or keeps it until there is room.
    pub(super) fn admit(&self, transfer: Transfer) -> Option<Transfer> {
        let mut state = self.0.lock();
        if !state.waiting.is_empty() || !state.fits(&transfer) {
            state.waiting.push_back(transfer);
            return None;
        }
        state.admitted_blocks += transfer.block_count();
        Some(transfer)
    }

    /// A write of `block_count` blocks is over: what goes through now.
    pub(super) fn release(&self, block_count: usize) -> Vec<Transfer> {
        let mut state = self.0.lock();
        state.admitted_blocks -= block_count;
        let mut admitted = Vec::new();
        while let Some(first) = state.waiting.front()
            && state.fits(first)
            && let Some(first) = state.waiting.pop_front()
        {
            state.admitted_blocks += first.block_count();
            admitted.push(first);
        }
        admitted
    }
}

impl State {
    /// One write fits always.
    fn fits(&self, transfer: &Transfer) -> bool {
        let blocks = self.admitted_blocks + transfer.block_count();
        self.admitted_blocks == 0 || blocks <= WINDOW_BLOCKS
    }
}
