//! Durable writes of a block while a stream is written on another connection: what a client waits
//! for behind another one's stream.
//!
//! Invariants: there is one durable write at a time; the last begins before the stream ends.

use crate::latency::Latencies;
use crate::nfs::driver::{Load, Measured, Stopped, run};
use crate::nfs::session::{LARGE_BYTES, LARGE_DEPTH, Session};
use crate::nfs::wire::{Call, Handle, Malformed, Reply, Stability};
use crate::numbers::Numbers;
use units::BLOCK_SIZE;

const SMALL_BYTES: u32 = BLOCK_SIZE as u32;
/// Blocks of the file that is written durably.
const SMALL_BLOCKS: u64 = 256;
/// The lane of the second connection that writes.
const SMALL_LANE: usize = LARGE_DEPTH;

/// Both loads. Lanes below [`SMALL_LANE`] are the stream's.
struct Both {
    stream: Handle,
    small: Handle,
    numbers: Numbers,
    next: u64,
    end: u64,
    latencies: Latencies,
}

impl Load for Both {
    fn call(&mut self, lane: usize, call: Call<'_>) -> bool {
        let is_going_on = self.next < self.end;
        match lane {
            SMALL_LANE if is_going_on => {
                let offset = self.numbers.next(SMALL_BLOCKS) * u64::from(SMALL_BYTES);
                call.write(&self.small, offset, SMALL_BYTES, Stability::FileSync);
            }
            ..SMALL_LANE if is_going_on => {
                let offset = self.next * u64::from(LARGE_BYTES);
                call.write(&self.stream, offset, LARGE_BYTES, Stability::Unstable);
                self.next += 1;
            }
            _ => return false,
        }
        true
    }

    fn reply(&mut self, lane: usize, mut reply: Reply<'_>) -> Result<bool, Malformed> {
        let (written, is_durable) = reply.written()?;
        match lane {
            SMALL_LANE if written != SMALL_BYTES || !is_durable => Err(Malformed),
            ..SMALL_LANE if written != LARGE_BYTES => Err(Malformed),
            _ => Ok(true),
        }
    }

    fn ended(&mut self, lane: usize, _now_nanoseconds: u64, nanoseconds: u64) {
        if lane == SMALL_LANE {
            self.latencies.record(nanoseconds);
        }
    }
}

/// Writes the session's file in order, and blocks of a file of their own durably meanwhile. Only
/// these are counted.
pub(super) fn durable_beside_stream(session: &mut Session) -> Result<Measured, Stopped> {
    let small = session.new_file()?;
    session.connect(2)?;
    let mut both = Both {
        stream: session.file,
        small,
        numbers: Numbers::new(9),
        next: 0,
        end: session.file_bytes / u64::from(LARGE_BYTES),
        latencies: Latencies::default(),
    };
    let measured = run(&mut session.connections, LARGE_DEPTH, None, &mut both)?;
    session.connect(1)?;
    session.commit()?;
    let Both { latencies, .. } = both;
    Ok(Measured { operations: latencies.total(), latencies, ..measured })
}
