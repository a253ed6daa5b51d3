//! Durable writes of a block, one at a time: by themselves, and while a stream is written on
//! another connection, by another thread. What one client's stream costs another client is the
//! difference.
//!
//! Invariants: both are of a small file that was written before; after the stream's end no durable
//! write begins but the first.

use crate::measured::Measured;
use crate::nfs::driver::{Load, Stopped, run};
use crate::nfs::session::{Each, Session};
use crate::nfs::wire::{Call, Handle, Malformed, Reply, Stability};
use crate::numbers::Numbers;
use crate::streams::LARGE_DEPTH;
use platform::Clock as _;
use platform::linux::SystemClock;
use platform::thread::spawn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use units::BLOCK_SIZE;

const SMALL_BYTES: u32 = BLOCK_SIZE as u32;
/// Blocks of the small file.
const SMALL_BLOCKS: u64 = 256;

/// Durable writes until somebody says that it is enough: one at the least.
struct Durable {
    file: Handle,
    numbers: Numbers,
    is_begun: bool,
    is_enough: Arc<AtomicBool>,
}

impl Load for Durable {
    fn call(&mut self, _lane: usize, call: Call<'_>) -> bool {
        if std::mem::replace(&mut self.is_begun, true) && self.is_enough.load(Ordering::Relaxed) {
            return false;
        }
        let offset = self.numbers.next(SMALL_BLOCKS) * u64::from(SMALL_BYTES);
        call.write(&self.file, offset, SMALL_BYTES, Stability::FileSync);
        true
    }

    fn reply(&mut self, _lane: usize, mut reply: Reply<'_>) -> Result<bool, Malformed> {
        match reply.written()? {
            (SMALL_BYTES, true) => Ok(true),
            _ => Err(Malformed),
        }
    }
}

impl Durable {
    /// Makes the small file, and writes all of it.
    fn of(session: &mut Session) -> Result<Self, Stopped> {
        let file = session.new_file()?;
        let call = |number: u64, call: Call<'_>| {
            let offset = number * u64::from(SMALL_BYTES);
            call.write(&file, offset, SMALL_BYTES, Stability::FileSync);
        };
        let mut all =
            Each::new(SMALL_BLOCKS, call, |mut reply: Reply<'_>| reply.written().map(|_| ()));
        run(&mut session.connections, LARGE_DEPTH, None, &mut all)?;
        Ok(Self { file, numbers: Numbers::new(9), is_begun: false, is_enough: Arc::default() })
    }
}

/// Durable writes for this long.
pub(super) fn durable(session: &mut Session, nanoseconds: u64) -> Result<Measured, Stopped> {
    let mut load = Durable::of(session)?;
    run(&mut session.connections, 1, Some(nanoseconds), &mut load)
}

/// Durable writes while the session's file is written in order. Only the former are counted.
pub(super) fn durable_beside_stream(session: &mut Session) -> Result<Measured, Stopped> {
    let mut load = Durable::of(session)?;
    let is_enough = Arc::clone(&load.is_enough);
    session.connect(2)?;
    let Some(connection) = session.connections.pop() else { unreachable!("there are two") };
    let mut connections = [connection];
    let begin = SystemClock.monotonic_nanoseconds();
    let beside = spawn("bench-durable", move || run(&mut connections, 1, None, &mut load))?;
    let streamed = session.write_in_order();
    is_enough.store(true, Ordering::Relaxed);
    let measured = beside.join().map_err(|_| Stopped::Io(io::ErrorKind::Other))??;
    streamed?;
    let nanoseconds = SystemClock.monotonic_nanoseconds() - begin;
    session.commit()?;
    // The processor time is of both.
    Ok(Measured { nanoseconds, client_nanoseconds: 0, ..measured })
}
