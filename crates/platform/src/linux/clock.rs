//! The system's clock and randomness.

use crate::{Clock, Entropy};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::time::{ClockId, clock_gettime};
use units::Timestamp;

/// The machine's clock.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall(&self) -> Timestamp {
        let time = clock_gettime(ClockId::Realtime);
        Timestamp::from_parts(time.tv_sec, u32::try_from(time.tv_nsec).unwrap_or(0))
    }

    fn monotonic_nanoseconds(&self) -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
    }
}

/// The kernel's random number generator.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        // Eight bytes are never given in part once the kernel's pool is filled; before that the
        // call waits and can be interrupted.
        loop {
            match getrandom(&mut bytes, GetRandomFlags::empty()) {
                Ok(8) => return u64::from_le_bytes(bytes),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel has no random numbers: {error}"),
            }
        }
    }
}
